"""What the sections on batch size and GPU utilization say, and that drawing and live plot say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bokeh.models import Quad

from jobreport import sections
from jobreport.document import Origin, Parameter, Report, RuleCard
from jobreport.figures.batch_size import group, thresholds
from jobreport.figures.box_plot import labels, slots
from jobrules.analyses.gpu_utilization import Box
from jobrules.model import Metric, Status
from tests.copies import replace
from tests.report.sections import examples
from tests.report.sections.example_balance import boxes
from tests.report.sections.html import Cells, Page

NBSP = "\u00a0"
LIMITS = {Metric.CPU_UTILIZATION: 60.0, Metric.GPU_UTILIZATION: 70.0, Metric.GPU_MEMORY_ACTIVITY: 80.0}
NAMES = ("cpu_threshold_p95", "gpu_threshold_p95", "gpu_memory_threshold_p95")


def card(status: Status = Status.PASSED, **facts: Any) -> RuleCard:
    limits = (
        Parameter(name=name, value=value, unit="%", help="limit", default=70.0)
        for name, value in zip(NAMES, LIMITS.values(), strict=True)
    )
    window = Parameter(name="window", value=500, unit="samples", help="samples judged together", default=500)
    return examples.card("BatchSize", status, **({"evaluated": 40, "parameters": (*limits, window)} | facts))


def report_of(*found: Box, rule: RuleCard | None = None) -> Report:
    return replace(examples.gpu_job(), boxes=found, rules=(rule or card(),))


def page_of(*found: Box, rule: RuleCard | None = None) -> Page:
    return Page.of(sections.batch_size(report_of(*found, rule=rule)).html)


def text_of(*found: Box, rule: RuleCard | None = None) -> str:
    return page_of(*found, rule=rule).text.replace(NBSP, " ")


def test_the_boxes_are_grouped_by_metric_with_a_limit_over_each_group() -> None:
    found = boxes("n", [50, 90], [30, 40], 20)

    figure, without = thresholds(found, LIMITS), thresholds(found, {})

    assert figure
    assert without
    drawing = figure.drawing
    (quads,) = [one for one in figure.live.renderers if isinstance(one.glyph, Quad)]  # type: ignore[attr-defined]
    assert [name.rsplit(",")[0] for name in quads.data_source.data["name"]] == [  # type: ignore[attr-defined]
        "n CPU",
        "n gpu0",
        "n gpu1",
        "n gpu0 memory activity",
        "n gpu1 memory activity",
    ]
    limits = [(rule.x1, rule.x2, rule.y1) for rule in drawing.rules if rule.style == "limit"]
    assert limits == [(0, 20, 40), (20, 60, 30), (60, 100, 20)]
    assert drawing.x.two_rows
    assert "limit" not in {rule.style for rule in without.drawing.rules}


def test_gpus_are_called_by_their_number_and_groups_by_their_metric() -> None:
    named = labels(slots(sorted(boxes("n", [50, 60, 70], [30, 30, 30], 20), key=lambda b: b.metric), group))

    assert list(named.values()) == ["CPU", "0", "1\nGPU memory activity", "2", "0", "1\nGPU", "2"]


def test_names_that_are_no_numbers_stay() -> None:
    (box,) = boxes("n", [50], [], None)

    assert group(box) == ("GPU", "0")
    assert group(replace(box, device="gpu12345")) == ("GPU", "gpu12345")
    assert group(replace(box, device=examples.HOSTILE)) == ("GPU", examples.HOSTILE)


def test_a_box_of_neither_metric_is_left_out() -> None:
    other = replace(boxes("n", [50], [], None)[0], metric=Metric.IO_WAIT)

    assert thresholds([other], LIMITS) is None


@pytest.mark.parametrize(
    ("gpus", "memory", "cpu", "finding"),
    [
        (
            [50],
            [30],
            20,
            "The GPU has every p95 below its threshold (dashed): CPU 23.0% (threshold 60%), GPU 53",
        ),
        ([50], [95], 20, "The GPU does not have every p95 below"),
        ([50, 95], [30, 30], 20, "1 of 2 GPUs has every p95 below"),
        ([50, 50], [30, 30], 90, "None of 2 GPUs has every p95 below"),
        ([50, 50], [], 20, "Both GPUs have every p95 below"),
        ([90, 90], [90, 90], 90, "No p95 is below its threshold"),
    ],
)
def test_the_finding_says_which_gpus_have_every_p95_below_its_threshold(
    gpus: list[float], memory: list[float], cpu: float, finding: str
) -> None:
    assert finding in text_of(*boxes("n", gpus, memory, cpu))


def test_one_threshold_of_all_metrics_is_named_once() -> None:
    same = tuple(Parameter(name=name, value=70.0, unit="%", help="limit", default=70.0) for name in NAMES)

    text = text_of(*boxes("n", [90], [90], 90), rule=card(parameters=same))

    assert (
        "No p95 is below its threshold of 70% (dashed): CPU 93.0%, GPU 93.0%, GPU memory activity 93" in text
    )


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "BatchSize: CPU, GPU, and GPU memory activity were all low in 0 of 40 windows."),
        (
            {"status": Status.TRIGGERED, "violating": 10, "severity": 0.25},
            "all low in 10 of 40 windows (25.0%).",
        ),
        (
            {"status": Status.NOT_EVALUATED, "reason": "only 612 of 1001 samples", "evaluated": 0},
            "BatchSize was not evaluated: only 612 of 1001 samples.",
        ),
    ],
)
def test_what_the_rule_counted_is_named(facts: dict[str, Any], sentence: str) -> None:
    text = text_of(*boxes("n", [50], [30], 20), rule=card(**facts))

    assert sentence in text
    assert "dashed" in text


def test_a_rule_that_was_not_selected_has_no_limits() -> None:
    report = replace(report_of(*boxes("n", [50], [30], 20)), rules=())

    page = Page.of(sections.batch_size(report).html)

    assert "BatchSize was not selected" in page.text
    assert not [a for _, a in page.elements if a.get("class") == "limit"]
    assert "dashed" not in page.text


def test_what_was_not_sampled_is_said() -> None:
    assert "CPU was not recorded. GPU memory activity was not recorded." in text_of(
        *boxes("n", [50], [], None)
    )
    text = text_of(*boxes("a", [50], [30], 20), *boxes("b", [50], [], 20))
    assert "GPU memory activity was not recorded on b." in text
    assert "CPU was not recorded" not in text


def test_the_table_holds_every_box_with_its_limit() -> None:
    found = boxes("n", [50, 90], [30, 40], 20)

    cells = Cells.of(sections.batch_size(report_of(*found)).html)

    rows = [cells[i : i + 7] for i in range(0, len(cells), 7)]
    assert len(rows) == 5
    assert [row[0] for row in rows] == ["CPU", "GPU", "GPU", *["GPU memory activity"] * 2]
    assert [row[-1] for row in rows] == ["60", "70", "70", "80", "80"]
    assert [float(row[-2]) for row in rows] == pytest.approx([23.0, 53.0, 93.0, 33.0, 43.0], abs=0.1)


def test_of_many_nodes_those_used_least_are_drawn() -> None:
    found = [box for i in range(6) for box in boxes(f"n{i}", [90.0 - 10 * i], [30], 20)]

    page = page_of(*found)

    assert len([i for i in page.ids if i.startswith("live-batch-")]) == 4
    titles = [a["aria-label"] for _, a in page.elements if "boxes" in str(a.get("class"))]
    assert [str(title)[:2] for title in titles] == ["n2", "n3", "n4", "n5"]
    assert "Drawn: 4 of 6 nodes (lowest GPU p95)." in page.text
    assert page.all("details")
    assert len(page.all("tr")) == 1 + 6 * 3


def test_of_a_large_node_the_gpus_used_least_are_drawn() -> None:
    page = page_of(*boxes("n", [90.0] * 10 + [50.0] * 10, [30] * 20, 20))

    drawn = [line for line in page.all("line") if line.get("class") == "median"]
    assert len(drawn) == 1 + 16 + 16
    assert "Drawn: 16 GPUs per node (lowest GPU p95)." in page.text


def test_nodes_without_gpus_are_left_out() -> None:
    cpu_only = [box for box in boxes("host", [50], [], 20) if box.metric == Metric.CPU_UTILIZATION]

    assert "No GPU was recorded." in text_of(*cpu_only)
    page = page_of(*boxes("n", [50], [30], 20), *cpu_only)
    assert "host" not in page.text


def test_the_vendors_results_have_no_such_figure() -> None:
    report = replace(report_of(*boxes("n", [50], [], None)), origin=Origin.DEBUGGER_RESULTS)

    page = Page.of(sections.batch_size(report).html)

    assert "SageMaker Debugger's results hold no p95 of the CPU" in page.text
    assert page.scripts == []


def test_hostile_names_stay_text() -> None:
    found = [
        replace(box, device=examples.HOSTILE, node=examples.HOSTILE) for box in boxes("n", [50], [30], 20)
    ]

    page = page_of(*found, *boxes("m", [50], [30], 20))

    assert page.faults == []
    assert all(attributes.get("type") == "application/json" for attributes, _ in page.scripts)
    assert page.text.count("</script") >= 7


def utilization_of(*found: Box, **facts: Any) -> Page:
    told: dict[str, Any] = {"status": Status.PASSED, "evaluated": 480} | facts
    rule = examples.card("LowGPUUtilization", told.pop("status"), **told)
    return Page.of(sections.gpu_utilization(report_of(*found, rule=rule)).html)


def test_gpu_utilization_shows_no_other_metric() -> None:
    page = utilization_of(*boxes("n", [50, 60], [10, 20], 5))

    drawn = [line for line in page.all("line") if line.get("class") == "median"]
    assert len(drawn) == 2
    assert len(page.all("tr")) == 3
    assert "CPU" not in page.text


def test_gpu_utilization_draws_the_gpus_used_least_and_lists_all() -> None:
    levels = [float(90 - i % 40) for i in range(128)]

    page = utilization_of(
        *(box for i in range(16) for box in boxes(f"n{i}", levels[8 * i : 8 * i + 8], [], None))
    )

    drawn = [float(str(a["y1"]).rstrip("%")) for _, a in page.elements if a.get("class") == "median"]
    assert len(drawn) == 32
    assert min(drawn) > np.quantile([100 - level for level in levels], 0.7)
    assert len(page.all("tr")) == 129
    assert "Drawn: 32 of 128 GPUs, those with the lowest utilization." in page.text.replace(NBSP, " ")


def test_gpu_utilization_names_what_the_rule_counted() -> None:
    found = boxes("n", [50], [], None)

    passed, triggered, not_evaluated = (
        utilization_of(*found, **facts).text.replace(NBSP, " ")
        for facts in (
            {},
            {"status": Status.TRIGGERED, "violating": 360, "severity": 0.75},
            {"status": Status.NOT_EVALUATED, "reason": "only 5 of 1001 samples"},
        )
    )

    assert "LowGPUUtilization: 0 of 480 windows are low or fluctuate." in passed
    assert "LowGPUUtilization: 360 of 480 windows are low or fluctuate." in triggered
    assert "A window is the last 500 samples; boxes show all samples." in triggered
    assert "LowGPUUtilization was not evaluated: only 5 of 1001 samples." in not_evaluated


def test_boxes_of_memory_make_no_gpu_unused() -> None:
    base = examples.gpu_job()
    idle = [
        replace(box, max=0.0)
        for box in boxes("algo-1", [50, 50], [1, 1], 5)
        if box.metric != Metric.GPU_UTILIZATION
    ]
    used = boxes("algo-1", [50, 50], [], None)

    texts = [
        Page.of(sections.utilization(replace(base, boxes=(*used, *more))).html).text for more in ((), idle)
    ]

    assert texts[0] == texts[1]
    assert "never used" not in texts[1]


@pytest.mark.parametrize(
    ("low", "fluctuating", "told"),
    [
        (0, 16, "16 of 16 windows fluctuate (p95 at least 70%, p5 below 10%)."),
        (3, 0, "3 of 16 windows are low (p95 below 70%)."),
        (1, 0, "1 of 16 windows is low (p95 below 70%)."),
        (
            3,
            1,
            "3 of 16 windows are low (p95 below 70%), 1 of 16 windows fluctuates (p95 at least 70%, p5 below",
        ),
    ],
)
def test_gpu_utilization_counts_windows_by_kind_with_limits_as_they_were_set(
    low: int, fluctuating: int, told: str
) -> None:
    limits = tuple(
        Parameter(name=name, value=value, unit="%", help="", default=value)
        for name, value in (("threshold_p95", 70.0), ("threshold_p5", 10.0))
    )

    page = utilization_of(
        *boxes("n", [50], [], None),
        status=Status.TRIGGERED,
        evaluated=16,
        violating=low + fluctuating,
        kinds={"low": low, "fluctuating": fluctuating},
        parameters=limits,
    )

    assert f"LowGPUUtilization: {told}" in page.text.replace(NBSP, " ")


def test_gpus_are_told_as_alike_by_one_threshold_and_once_where_they_print_alike() -> None:
    texts = [
        utilization_of(
            *(replace(box, mean=mean) for box, mean in zip(found, means, strict=True))
        ).text.replace(NBSP, " ")
        for found in [boxes("n", [50, 50], [], None)]
        for means in ((27.26, 27.34), (27.0, 31.9), (27.0, 32.0))
    ]

    assert "Both GPUs average 27.3%." in texts[0]
    assert "Both GPUs average 27.0 to 31.9%." in texts[1]
    assert "gpu0 has the lowest utilization, 27.0% on average; gpu1 has the highest, 32.0%." in texts[2]


def test_a_mean_that_hides_idle_times_leads_to_the_figures_that_show_them() -> None:
    (box,) = boxes("n", [50], [], None)

    page = utilization_of(replace(box, below_10=0.7))

    assert [a["href"] for a in page.all("a")] == ["#nodes"]


def test_alike_nodes_are_drawn_once() -> None:
    found = [box for i in range(6) for box in boxes(f"n{i}", [90.0 + i / 2], [30], 20)]

    page = page_of(*found)

    assert len([i for i in page.ids if i.startswith("live-batch-")]) == 1
    assert "Drawn: 1 of 6 similar nodes (lowest GPU p95)." in page.text


def test_tables_in_closed_details_have_no_number() -> None:
    """Numbers that a reader sees do not jump."""
    few, many = (utilization_of(*boxes("n", [50.0] * n, [], None)).text for n in (2, 20))

    assert "Table 6.1." in few
    assert "Table" not in many
