"""What the section on batch size says."""

from __future__ import annotations

from typing import Any

import pytest
from bokeh.models import Quad

from jobreport.document import Origin, Parameter, Report, RuleCard
from jobreport.page import sections
from jobreport.page.figures.batch_size import group, thresholds
from jobreport.page.figures.box_plot import labels, slots
from jobrules.analyses.gpu_utilization import Box
from jobrules.model import Metric, Status
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import boxes
from tests.report.page.sections.html import Cells, Page

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
            "the GPU has every p95 below its threshold (dashed): CPU 23.0% (threshold 60%), GPU 53",
        ),
        ([50], [95], 20, "the GPU does not have every p95 below"),
        ([50, 95], [30, 30], 20, "1 of 2 GPUs has every p95 below"),
        ([50, 50], [30, 30], 90, "none of 2 GPUs has every p95 below"),
        ([50, 50], [], 20, "both GPUs have every p95 below"),
        ([90, 90], [90, 90], 90, "no p95 is below its threshold"),
    ],
)
def test_the_finding_says_which_gpus_have_every_p95_below_its_threshold(
    gpus: list[float], memory: list[float], cpu: float, finding: str
) -> None:
    low = not finding.lower().startswith(("the gpu does not", "no"))
    rule = card(Status.TRIGGERED if low else Status.PASSED, violating=5 if low else 0)

    assert f"Over the whole job: {finding}" in text_of(*boxes("n", gpus, memory, cpu), rule=rule)


def test_where_the_rule_finds_otherwise_during_the_work_no_threshold_is_named() -> None:
    found = boxes("n", [50, 50], [30, 30], 20)

    low, passed = (text_of(*found, rule=card(violating=violating)) for violating in (5, 0))
    assert "every p95 below its threshold" in low
    assert "Over the whole job: p95: CPU 23.0% (threshold 60%), GPU 53.0%" in passed
    assert "below its threshold" not in passed


def test_one_threshold_of_all_metrics_is_named_once() -> None:
    same = tuple(Parameter(name=name, value=70.0, unit="%", help="limit", default=70.0) for name in NAMES)

    text = text_of(*boxes("n", [90], [90], 90), rule=card(parameters=same))

    assert "no p95 is below its threshold of 70% (dashed): CPU 93.0%, GPU 93.0%, GPU memory" in text


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


def test_of_many_nodes_and_gpus_those_used_least_are_drawn() -> None:
    page = page_of(*(box for i in range(6) for box in boxes(f"n{i}", [90.0 - 10 * i], [30], 20)))
    alike = page_of(*(box for i in range(6) for box in boxes(f"n{i}", [90.0 + i / 2], [30], 20)))
    large = page_of(*boxes("n", [90.0] * 10 + [50.0] * 10, [30] * 20, 20))

    titles = [a["aria-label"] for _, a in page.elements if "boxes" in str(a.get("class"))]
    assert [str(title)[:2] for title in titles] == ["n2", "n3", "n4", "n5"]
    assert "Drawn: 4 of 6 nodes (lowest GPU p95)." in page.text
    assert page.all("details")
    assert len(page.all("tr")) == 1 + 6 * 3
    assert len([i for i in alike.ids if i.startswith("live-batch-")]) == 1
    assert "Drawn: 1 of 6 similar nodes (lowest GPU p95)." in alike.text
    medians = [line for line in large.all("line") if line.get("class") == "median"]
    assert len(medians) == 1 + 16 + 16
    assert "Drawn: 16 GPUs per node (lowest GPU p95)." in large.text


def test_nodes_without_gpus_are_left_out() -> None:
    cpu_only = [box for box in boxes("host", [50], [], 20) if box.metric == Metric.CPU_UTILIZATION]

    assert "GPU utilization was not recorded." in text_of(*cpu_only)
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
