"""What the sections on bottlenecks say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from jobreport.document import NodeFacts, Origin, Report
from jobreport.page import sections
from jobreport.page.figures.bottlenecks import shares_over_time
from jobrules.analyses.bottlenecks import Bottlenecks, CoreShare, Ran, Split, StepSpan
from jobrules.analyses.time_lines import Columns
from jobrules.model import Measure, Status
from jobrules.verdict.phases import Phase
from tests.copies import replace
from tests.report.page.sections import example_bottlenecks, examples
from tests.report.page.sections.html import Page

CPU, IO = example_bottlenecks.stalls("DataLoader")


def report_of(*stalls: Any, **more: Any) -> Report:
    return replace(examples.gpu_job(), bottlenecks=stalls, **more)


def changed(stalls: Bottlenecks, **changes: Any) -> Bottlenecks:
    """With other numbers, and what they add up to."""
    found = replace(stalls, **changes)
    split = Split.of(
        snapshots=found.snapshots,
        low=found.low,
        no_core_sample=found.no_core_sample,
        bottlenecks=found.bottlenecks,
    )
    return replace(found, split=split)


def cpu_page(**changes: Any) -> Page:
    return Page.of(sections.cpu_bottlenecks(report_of(changed(CPU, **changes))).html)


def text_of(page: Page) -> str:
    return page.text


def cpu(**changes: Any) -> sections.Fragment:
    return sections.cpu_bottlenecks(report_of(changed(CPU, **changes)))


def with_result(status: Status, bottlenecks: int = 2000, **facts: Any) -> sections.Fragment:
    """The section where the rule has this result."""
    card = examples.card("CPUBottleneck", status, **facts)
    return sections.cpu_bottlenecks(report_of(changed(CPU, bottlenecks=bottlenecks), rules=(card,)))


def with_finding(**changes: Any) -> sections.Fragment:
    verdict = examples.gpu_job().verdict
    known: dict[str, Any] = {"key": "cpu-bottleneck", "gpu_s": 7200.0, "share": 0.125}
    finding = replace(verdict.findings[0], **(known | changes))
    return sections.cpu_bottlenecks(report_of(CPU, verdict=replace(verdict, findings=(finding,))))


def without_samples(**changes: Any) -> sections.Fragment:
    return sections.io_bottlenecks(replace(examples.gpu_job(), bottlenecks=(), **changes))


def with_run(place: str, *steps: tuple[str, int | None, int | None]) -> sections.Fragment:
    spans = tuple(StepSpan(mode=phase, first=first, last=last) for phase, first, last in steps)
    return cpu(runs=(replace(CPU.runs[0], place=place, steps=spans),))


TRIGGERED = examples.card("CPUBottleneck", Status.TRIGGERED)
FIRST, RUN, CORES = CPU.nodes[0], CPU.runs[0], CPU.cores[0]
SECOND = replace(FIRST, node="algo-2")
LESS = replace(FIRST, node="algo-3", percents=(70.0, 13.3, 6.7, 0.0, 10.0))
OUTSIDE = replace(
    SECOND, in_loop=False, idle_no_core_sample=300, busy=600, percents=(20.0, 13.3, 6.7, 10.0, 50.0)
)
SHORT = replace(SECOND, reason="only 4 of 7\u00a0samples")
OF_TWO = example_bottlenecks.stalls("x", ("algo-1", "algo-2"))[0]
OF_MANY = example_bottlenecks.stalls("x", tuple(f"algo-{i}" for i in range(16)))[0]
LOW = example_bottlenecks.course("algo-2", (20.0,) * 600)
UNKNOWN = example_bottlenecks.course("algo-3", (None,) * 600)
HOST = NodeFacts(name="n", gpus=0, cores=8, interval_s=0.5, first_us=0, last_us=1)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "not selected": cpu,
    "triggered": lambda: with_result(Status.TRIGGERED),
    "passed": lambda: with_result(Status.PASSED, 500),
    "not evaluated": lambda: with_result(Status.NOT_EVALUATED, reason="only 892 of 1,001 samples"),
    "too few to be drawn": lambda: with_result(Status.PASSED, 34),
    "few that triggered": lambda: with_result(Status.TRIGGERED, 34),
    "triggered early": lambda: with_result(Status.TRIGGERED, 1000, evaluated=18, violating=5),
    "passed by another share": lambda: with_result(
        Status.PASSED, 1000, measure=Measure(value=12.5, limits=(50.0,), scale=100.0, unit="%", limit_text="")
    ),
    "with a finding": with_finding,
    "with a finding of the other cause": lambda: with_finding(key="io-bottleneck"),
    "another limit of the GPU": lambda: cpu(gpu_below=25.0),
    "all cores sampled": lambda: cpu(no_core_sample=0),
    "two nodes alike": lambda: cpu(nodes=(FIRST, SECOND)),
    "one of two nodes": lambda: cpu(nodes=(FIRST, LESS)),
    "two of five nodes": lambda: cpu(nodes=(FIRST, SECOND), more_nodes=3),
    "one node without steps": lambda: cpu(nodes=(*CPU.nodes, OUTSIDE)),
    "no node has steps": lambda: cpu(nodes=(OUTSIDE, replace(OUTSIDE, node="algo-3"))),
    "the node has no steps": lambda: cpu(nodes=(OUTSIDE,)),
    "figure of two nodes": lambda: sections.cpu_bottlenecks(report_of(OF_TWO)),
    "courses that differ": lambda: sections.cpu_bottlenecks(
        report_of(changed(CPU, nodes=CPU.nodes * 2, courses=(*CPU.courses, LOW, UNKNOWN)), rules=(TRIGGERED,))
    ),
    "equal courses": lambda: sections.cpu_bottlenecks(report_of(OF_TWO, rules=(TRIGGERED,))),
    "many nodes": lambda: sections.cpu_bottlenecks(report_of(replace(OF_MANY, more_nodes=3, more_cores=12))),
    "run in steps": lambda: with_run("in", ("TRAIN", 240, 243)),
    "run in a step of each mode": lambda: with_run("in", ("TRAIN", 7, 7), ("EVAL", None, None)),
    "run between steps": lambda: with_run("between", ("TRAIN", 242, 242), ("TRAIN", 243, 243)),
    "run between modes": lambda: with_run("between", ("TRAIN", 9, 9), ("EVAL", 0, 0)),
    "run before steps": lambda: with_run("before", ("TRAIN", 0, 0)),
    "run after steps": lambda: with_run("after", ("TRAIN", 99, 99)),
    "run without steps": lambda: with_run(""),
    "equal cores of many": lambda: cpu(cores=(CORES, replace(CORES, node="algo-2")), more_cores=1),
    "other cores": lambda: cpu(
        cores=(CORES, replace(CORES, node="algo-2", cores=(CoreShare(core="cpu7", percent=80.0),)))
    ),
    "all cores": lambda: cpu(
        cores=(
            replace(CORES, cores=tuple(CoreShare(core=f"cpu{i}", percent=100.0) for i in range(8)), ever=8),
        )
    ),
    "equal event types": lambda: cpu(
        ran=(Ran.of("Load", 80.0, 20.0), Ran.of("Copy", 80.0, 20.0), Ran.of("Rest", 70.0, 10.0))
    ),
    "similar event types": lambda: cpu(ran=(Ran.of("DataLoader", 80.0, 78.0),)),
    "no events": lambda: cpu(ran=()),
    "a node not evaluated": lambda: cpu(nodes=(*CPU.nodes, SHORT), without_cores=("algo-3",)),
    "no I/O bottleneck": lambda: sections.io_bottlenecks(report_of(CPU, IO)),
    "no I/O bottleneck, not all sampled": lambda: sections.io_bottlenecks(
        report_of(changed(IO, no_core_sample=7))
    ),
    "results": lambda: without_samples(origin=Origin.DEBUGGER_RESULTS),
    "no GPU": lambda: without_samples(job=replace(examples.gpu_job().job, nodes=(HOST,))),
}


def test_the_parts_of_the_bar_add_up_to_all_snapshots() -> None:
    page = cpu_page()
    rows = re.findall(r"(?:saturated|core|idle|recorded) (\d[\d,]*) (\d+\.\d)", text_of(page))

    counts = [int(count.replace(",", "")) for count, _ in rows]
    assert counts == [1200, 399, 1, 2000]
    assert sum(counts) == CPU.snapshots
    assert round(sum(float(percent) for _, percent in rows), 1) == 100.0
    widths = [float(str(a["width"]).rstrip("%")) for a in page.all("rect") if a.get("height") == "100%"][:4]
    assert round(sum(widths), 1) == 100.0


def test_the_share_over_time_has_its_limit_phases_and_gaps() -> None:
    columns = Columns(start_us=1_763_107_200_000_000, width_us=5_000_000, count=8)
    phases = examples.cpu_job().phases
    (loop,) = phases.phases
    phases = replace(phases, phases=(loop, replace(loop, start_us=columns.start_us + 10_000_000)))
    percents = (0.0, 25.4, 25.4, None, None, 100.0, 0.0, 60.0)

    (one,) = shares_over_time([percents], columns, phases, 40.0)
    (without,) = shares_over_time([percents], columns, phases, None)

    assert [(rule.style, rule.x1, rule.y1) for rule in one.drawing.rules] == [
        ("dots", 25, 0),
        ("limit", 0, 60),
    ]
    assert [rule.style for rule in without.drawing.rules] == ["dots"]
    assert [(area.x, area.width) for area in one.drawing.areas] == [(37.5, 25.0)]
    assert one.drawing.shapes[0].path.count("M") == 2


@pytest.mark.parametrize("snapshots", [1, 2])
def test_one_snapshot_is_enough(snapshots: int) -> None:
    counts = dict.fromkeys(("no_core_sample", "busy", "partly", "idle_unsaturated"), 0)
    counts |= {"snapshots": snapshots, "low": 1, "bottlenecks": 1, "bottleneck": 1}
    node = example_bottlenecks.node("n", in_loop=False, **counts)
    few = changed(CPU, nodes=(node,), snapshots=snapshots, low=1, no_core_sample=0, bottlenecks=1, courses=())
    whole = Phase(key="whole", label="Whole job", start_us=0, end_us=1, percent=100.0)
    report = replace(report_of(few), phases=replace(examples.gpu_job().phases, phases=(whole,)))

    page = Page.of(sections.cpu_bottlenecks(report).html)

    assert "1 snapshots" not in page.text
    assert page.faults == []
