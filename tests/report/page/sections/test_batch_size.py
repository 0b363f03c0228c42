"""What the section on batch size says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobreport.document import Origin, Parameter, Report, RuleCard
from jobreport.page import sections
from jobreport.page.figures.batch_size import group, thresholds
from jobreport.page.figures.box_plot import labels, slots
from jobreport.page.figures.models import Quad
from jobrules.analyses.gpu_utilization import Box
from jobrules.model import Metric, Status
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import boxes
from tests.report.page.sections.html import Page

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


def shown(*found: Box, **facts: Any) -> sections.Fragment:
    return sections.batch_size(report_of(*found, rule=card(**facts)))


def with_levels(
    gpus: list[float], memory: list[float], cpu: float | None, violating: int = 0
) -> sections.Fragment:
    status = Status.TRIGGERED if violating else Status.PASSED
    return shown(*boxes("n", gpus, memory, cpu), status=status, violating=violating)


ONE = boxes("n", [50], [30], 20)
SAME = tuple(Parameter(name=name, value=70.0, unit="%", help="limit", default=70.0) for name in NAMES)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "the GPU is low": lambda: with_levels([50], [30], 20, 5),
    "one threshold": lambda: shown(*boxes("n", [90], [90], 90), parameters=SAME),
    "some windows": lambda: shown(*ONE, status=Status.TRIGGERED, violating=10, severity=0.25),
    "not evaluated": lambda: shown(
        *ONE, status=Status.NOT_EVALUATED, reason="only 612 of 1001 samples", evaluated=0
    ),
    "not selected": lambda: sections.batch_size(replace(report_of(*ONE), rules=())),
    "no CPU and no memory": lambda: with_levels([50], [], None),
    "no memory on a node": lambda: shown(*boxes("a", [50], [30], 20), *boxes("b", [50], [], 20)),
    "no GPU": lambda: shown(*boxes("host", [], [], 20)),
    "results": lambda: sections.batch_size(
        replace(report_of(*boxes("n", [50], [], None)), origin=Origin.DEBUGGER_RESULTS)
    ),
}


def test_the_boxes_are_grouped_by_metric_with_a_limit_over_each_group() -> None:
    found = boxes("n", [50, 90], [30, 40], 20)

    figure, without = thresholds(found, LIMITS), thresholds(found, {})

    assert figure
    assert without
    drawing = figure.drawing
    (quads,) = [one for one in figure.live.renderers if isinstance(one.glyph, Quad)]
    assert [name.rsplit(",")[0] for name in quads.data_source.data["name"]] == [
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


def test_of_many_nodes_and_gpus_those_used_least_are_drawn() -> None:
    page = page_of(*(box for i in range(6) for box in boxes(f"n{i}", [90.0 - 10 * i], [30], 20)))
    alike = page_of(*(box for i in range(6) for box in boxes(f"n{i}", [90.0 + i / 2], [30], 20)))
    large = page_of(*boxes("n", [90.0] * 10 + [50.0] * 10, [30] * 20, 20))

    titles = [a["aria-label"] for _, a in page.elements if "boxes" in str(a.get("class"))]
    assert [str(title)[:2] for title in titles] == ["n2", "n3", "n4", "n5"]
    assert "Drawn: 4 of 6 GPUs" in page.text
    assert page.all("details")
    assert len(page.all("tr")) == 1 + 6 * 3
    assert len([i for i in alike.ids if i.startswith("live-batch-")]) == 1
    assert "Drawn: 1 of 6 GPUs" in alike.text
    medians = [line for line in large.all("line") if line.get("class") == "median"]
    assert len(medians) == 1 + 16 + 16
    assert "Drawn: 16 of 20 GPUs" in large.text
