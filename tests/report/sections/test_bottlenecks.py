"""What the sections on bottlenecks say, and that drawing and live plot say the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bokeh.models import HBar, VBar
from bokeh.models.annotations.geometry import BoxAnnotation, Span

from jobreport import formats, sections
from jobreport.document import NodeFacts, Origin, Report
from jobreport.figures.bottlenecks import (
    Band,
    Frame,
    course_drawing,
    course_plots,
    parted_drawing,
    parted_plot,
)
from jobrules.analyses.bottlenecks import Bottlenecks, CoreShare, NodeBottlenecks, Ran, Split, StepSpan
from jobrules.analyses.time_lines import Columns
from jobrules.model import Measure, Status
from jobrules.verdict.phases import Phase
from tests.copies import replace
from tests.report.sections import example_bottlenecks, examples
from tests.report.sections.html import Page

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


# The lead.


def test_the_lead_has_number_share_limit_and_the_share_of_low_snapshots() -> None:
    text = text_of(cpu_page())

    assert "2,000 of 3,600 snapshots (55.6%) are bottlenecks: a GPU was below 10% while a core of the" in text
    # Of the low ones, and not of all: 2 000 / 2 400.
    assert "Figure 10.1. 83.3% of the snapshots with a GPU below 10% are bottlenecks." in text
    assert "The bar is all 3,600 snapshots" in text


@pytest.mark.parametrize(
    ("bottlenecks", "side"),
    [(1798, "below"), (1799, "at"), (1801, "at"), (1802, "above")],
)
def test_share_and_limit_are_compared_as_printed(bottlenecks: int, side: str) -> None:
    assert f"That is {side} the limit of 50%." in judged(Status.TRIGGERED, bottlenecks)


def judged(status: Status, bottlenecks: int = 2000, **facts: Any) -> str:
    """What the section says where the rule gave this answer."""
    card = examples.card("CPUBottleneck", status, **facts)
    report = report_of(changed(CPU, bottlenecks=bottlenecks), rules=(card,))
    return text_of(Page.of(sections.cpu_bottlenecks(report).html))


#: What only a rule that answered may say.
CLAIMS = ("the limit of", "held", "wins back")


def test_a_rule_without_an_answer_is_said_first_and_nothing_is_held_against_its_limit() -> None:
    told = judged(Status.NOT_EVALUATED, reason="only 892 of 1,001 samples")

    assert "CPU bottlenecks CPUBottleneck gave no answer: only 892 of 1,001 samples. 2,000 of 3,600" in told
    assert "Figure 10.2. Bottlenecks lie between 08:00:01 and 08:59:00 UTC. Orange" in told
    assert [claim for claim in CLAIMS if claim in told] == []
    assert not any(claim in text_of(cpu_page()) for claim in CLAIMS)
    assert "CPU bottlenecks CPUBottleneck was not selected" in text_of(cpu_page())
    assert "gave no answer" not in judged(Status.TRIGGERED)


def test_a_rule_that_passed_holds_no_cores_to_account() -> None:
    passed, triggered = judged(Status.PASSED, 500), judged(Status.TRIGGERED)

    assert "That is below the limit of 50%." in passed
    assert "held" not in passed
    assert "That the cores held the GPUs up is inferred from simultaneous samples." in triggered
    # The nodes that it judges lie below, all together above.
    assert "That is above" not in judged(Status.PASSED)


def test_the_gpu_time_is_that_of_the_verdict() -> None:
    job = examples.gpu_job()
    assert job.verdict.use is not None
    finding = replace(
        job.verdict.findings[0],
        key="cpu-bottleneck",
        gpu_s=7200.0,
        share=0.125,
        share_of="of GPU time",
    )
    verdict = replace(job.verdict, findings=(finding,))
    (hours, part) = formats.amount(finding, verdict.use)

    def told(**changes: Any) -> str:
        found = replace(verdict, findings=(replace(finding, **changes),))
        return Page.of(sections.cpu_bottlenecks(report_of(CPU, verdict=found)).html).text

    assert f"The verdict counts {' '.join(hours.split())}, 12.5% of GPU time: it takes" in " ".join(
        told().split()
    )
    assert part.startswith("12.5")
    assert "The verdict counts" not in told(gpu_s=None)
    assert "The verdict counts" not in told(key="io-bottleneck")


def test_few_bottlenecks_are_not_drawn_over_time_unless_they_triggered() -> None:
    few = 34  # of 3 600, 0.9 %

    assert "Orange: share" not in judged(Status.PASSED, few)
    assert "Orange: share" in judged(Status.PASSED, few + 1)
    assert "Orange: share" in judged(Status.TRIGGERED, few)


def test_a_job_without_bottlenecks_keeps_the_split() -> None:
    page = Page.of(sections.io_bottlenecks(report_of(CPU, IO)).html)
    text = text_of(page)

    assert "No snapshot is a bottleneck: in none of 3,600 snapshots a GPU was below 10% while a core" in text
    assert "waited for input or output more than 50% of its time" in text
    assert (
        "Table 11.1. A GPU was below 10% in 2,400 of 3,600 snapshots, but in none was that seen beside a core "
        "that waited more than 50%."
    ) in text
    # Neither a figure nor its data: each would draw one number.
    assert "Figure" not in text
    assert len(page.all("table")) == 1
    assert page.scripts == []


def test_gpus_that_were_never_low_are_said_to() -> None:
    never = changed(IO, low=0, nodes=(replace(IO.nodes[0], low=0, idle_unsaturated=0),))

    text = text_of(Page.of(sections.io_bottlenecks(report_of(never)).html))

    assert "A GPU was below 10% in none of 3,600 snapshots." in text


# The parts.


def test_the_parts_of_the_bar_add_up_to_all_snapshots() -> None:
    page = cpu_page()
    rows = re.findall(r"(?:bottleneck|above 90%|below 10%|sampled) (\d[\d ]*?) (\d+\.\d)", text_of(page))

    counts = [int(count.replace(" ", "")) for count, _ in rows]
    assert counts == [1200, 399, 1, 2000]
    assert sum(counts) == CPU.snapshots
    assert round(sum(float(percent) for _, percent in rows), 1) == 100.0
    widths = [float(str(a["width"]).rstrip("%")) for a in page.all("rect") if a.get("height") == "100%"][:4]
    assert round(sum(widths), 1) == 100.0


def test_what_was_not_sampled_is_no_part_where_there_is_none() -> None:
    assert "no core sampled" in text_of(cpu_page())
    assert "no core sampled" not in text_of(cpu_page(no_core_sample=0))


def test_the_samples_of_one_node_are_data_and_those_of_several_a_figure() -> None:
    one = cpu_page()
    both = Page.of(
        sections.cpu_bottlenecks(report_of(example_bottlenecks.stalls("x", ("algo-1", "algo-2"))[0])).html
    )

    assert "Data: GPU samples in the training loop" in one.text
    assert "algo-1 3,000 30.0 13.3 6.7 50.0" in text_of(one)
    assert not {"fig-cpu-bottlenecks-samples", "live-cpu-bottlenecks-samples"} & set(one.ids)
    assert "fig-cpu-bottlenecks-samples" in both.ids


def test_the_nodes_with_most_samples_in_bottlenecks_are_all_named() -> None:
    first = CPU.nodes[0]
    other = replace(first, node="algo-2")
    less = replace(first, node="algo-3", percents=(70.0, 13.3, 6.7, 0.0, 10.0))

    def told(*nodes: NodeBottlenecks, **changes: Any) -> str:
        return text_of(cpu_page(nodes=nodes, **changes))

    alike = "50.0% of the GPU samples in the training loop were below 10% beside a core above 90%"
    assert f"On each of 2 nodes {alike}." in told(first, other)
    assert f"On algo-1 and algo-2 {alike}, more than on any other node." in told(first, other, less)
    assert f"On algo-1 {alike}, more than on any other node." in told(first, less)
    assert f"On algo-1 and algo-2 {alike}, more" in told(first, other, more_nodes=3)


def test_a_node_without_steps_is_of_the_whole_job() -> None:
    other = replace(
        CPU.nodes[0],
        node="algo-2",
        in_loop=False,
        idle_no_core_sample=300,
        busy=600,
        percents=(20.0, 13.3, 6.7, 10.0, 50.0),
    )

    text = text_of(cpu_page(nodes=(*CPU.nodes, other)))

    assert "of the whole job where none was sampled" in text
    assert "algo-2 whole job 3,000 20.0 13.3 6.7 10.0 50.0" in text
    assert "of the whole job were below" in text_of(cpu_page(nodes=(other, replace(other, node="algo-3"))))
    assert "Data: GPU samples of the whole job" in text_of(cpu_page(nodes=(other,)))


# Over time.


def test_the_course_is_told_with_its_marks() -> None:
    card = examples.card("CPUBottleneck", Status.TRIGGERED)
    page = Page.of(sections.cpu_bottlenecks(report_of(CPU, rules=(card,))).html)
    text = text_of(page)

    # 390 of 541 columns of 6 s that were measured; the first above is number 151.
    assert (
        "Above the limit of 50% for 39 min of the 54 min 6 s measured, between 08:15:06 and 08:59:00 UTC. Orange"
        in text
    )
    assert "a column is 6 s; dashed: the limit of 50%; dotted: first step" in text
    assert "hatched: not measured" in text
    assert "live-cpu-bottlenecks-course0" in page.ids
    # 25 columns of 6 s a row, those in the gap without a number.
    assert "08:32:30 not measured" in text
    assert "08:25:00 75.0" in text


def test_nodes_with_the_same_course_are_told_together() -> None:
    both = examples.gpu_job()
    cpu, _ = example_bottlenecks.stalls("x", ("algo-1", "algo-2"))

    text = text_of(Page.of(sections.cpu_bottlenecks(replace(both, bottlenecks=(cpu,))).html))

    assert "Bottlenecks lie between 08:00:01 and 08:59:00 UTC. Orange" in text


def test_courses_that_differ_are_told_apart() -> None:
    card = examples.card("CPUBottleneck", Status.TRIGGERED)
    flat = example_bottlenecks.course("algo-2", (20.0,) * 600)
    void = example_bottlenecks.course("algo-3", (None,) * 600)
    several = changed(CPU, nodes=CPU.nodes * 2, courses=(*CPU.courses, flat, void))

    text = text_of(Page.of(sections.cpu_bottlenecks(report_of(several, rules=(card,))).html))

    assert "Above the limit of 50%, between 08:15:06 and 08:59:00 UTC: algo-1 for 39 min of" in text
    assert "; algo-2 at no time; algo-3 not measured. Orange" in text


def test_without_a_limit_none_is_drawn() -> None:
    frame = replace(FRAME, limit=None)

    assert [rule.style for rule in course_drawing(PERCENTS, frame, labels=True).rules] == ["dots"]
    (plot,) = course_plots([PERCENTS], frame)
    assert [one.dimension for one in plot.select(Span) if isinstance(one, Span)] == ["height"]


COLUMNS = Columns(start_us=1_763_107_200_000_000, width_us=5_000_000, count=8)
FRAME = Frame(columns=COLUMNS, boundaries=(COLUMNS.start_us + 10_000_000,), limit=40.0)
PERCENTS = (0.0, 25.4, 25.4, None, None, 100.0, 0.0, 60.0)


def test_drawing_and_live_plot_of_a_course_say_the_same() -> None:
    drawing = course_drawing(PERCENTS, FRAME, labels=True)
    plot: Any = course_plots([PERCENTS], FRAME)[0]

    (renderer,) = plot.renderers
    bar = renderer.glyph
    assert isinstance(bar, VBar)
    data = renderer.data_source.data
    assert np.array_equal(
        data["v0"], np.array([np.nan if v is None else v for v in PERCENTS], np.float32), equal_nan=True
    )
    assert drawing.shapes[0].path == "M125 100V75H375V100M625 100V0H750V100M875 100V40H1000V100"
    spans = {one.dimension: one.location for one in plot.select(Span)}
    rules = {("width" if one.x1 != one.x2 else "height"): one for one in drawing.rules}
    assert spans["width"] == FRAME.limit == 100 - rules["width"].y1
    start, end = plot.x_range.start, plot.x_range.end
    assert (end - start) == 8 * 5000
    assert 100 * (spans["height"] - start) / (end - start) == rules["height"].x1 == 25
    gaps = [one for one in plot.select(BoxAnnotation) if one.hatch_pattern]
    assert [(one.left - start, one.right - start) for one in gaps] == [(15_000, 25_000)]
    assert [(area.x, area.width) for area in drawing.areas] == [(37.5, 25.0)]


def test_courses_zoom_together_and_the_last_has_the_labels() -> None:
    plots: list[Any] = course_plots([PERCENTS, PERCENTS[::-1]], FRAME)
    first, second = plots

    assert first.x_range is second.x_range
    assert first.min_border_bottom < second.min_border_bottom


# Bars by node.

BANDS = (
    Band(style="u", label="good", counts=(3, 0), percents=(75.0, 0.0)),
    Band(style="x", label="not known", counts=(0, 1), percents=(0.0, 50.0)),
    Band(style="l", label="held up", counts=(1, 1), percents=(25.0, 50.0)),
)


def test_drawing_and_live_plot_of_the_samples_say_the_same() -> None:
    drawing = parted_drawing(["algo-1", "algo-2"], BANDS)
    plot: Any = parted_plot(["algo-1", "algo-2"], BANDS, "Samples")

    live = {}
    for renderer in plot.renderers:
        assert isinstance(renderer.glyph, HBar)
        data = renderer.data_source.data
        live[data["part"][0]] = (list(data["left"]), list(data["right"]), list(data["count"]))
    assert live == {
        "good": ([0, 0], [75, 0], [3, 0]),
        "not known": ([75, 0], [75, 50], [0, 1]),
        "held up": ([75, 50], [100, 100], [1, 1]),
    }
    good, held = drawing.shapes
    assert good.path == "M0 9.5H750V40.5H0z"
    assert held.path == "M750 9.5H1000V40.5H750zM500 59.5H1000V90.5H500z"
    (area,) = drawing.areas
    assert (area.x, area.width) == (0, 50)
    assert (area.y, area.height) == pytest.approx((59.5, 31.0))


def test_many_nodes_fold_their_table() -> None:
    cpu, _ = example_bottlenecks.stalls("x", tuple(f"algo-{i}" for i in range(16)))
    cpu = replace(cpu, more_nodes=3, more_cores=12)

    page = Page.of(sections.cpu_bottlenecks(report_of(cpu)).html)

    assert any("rows-16" in str(a.get("class")) for a in page.all("div"))
    # Courses and samples; four nodes have few rows of cores, which stay open.
    assert len(page.all("details")) == 2
    many = tuple(CoreShare(core=f"cpu{i}", percent=50.0 - i) for i in range(16))
    full = replace(cpu, cores=tuple(replace(one, cores=many) for one in cpu.cores))
    folded = Page.of(sections.cpu_bottlenecks(report_of(full)).html)
    assert len(folded.all("details")) == 3
    assert "3 nodes with a smaller share left out" in page.text
    assert "the 4 nodes with most bottlenecks, 12 with fewer left out" in page.text


# Tables.


@pytest.mark.parametrize(
    ("place", "steps", "told"),
    [
        ("in", (("TRAIN", 240, 243),), "TRAIN steps 240 to 243"),
        ("in", (("TRAIN", 7, 7), ("EVAL", None, None)), "TRAIN step 7 and EVAL step"),
        ("between", (("TRAIN", 242, 242), ("TRAIN", 243, 243)), "between TRAIN steps 242 and 243"),
        ("between", (("TRAIN", 9, 9), ("EVAL", 0, 0)), "between TRAIN step 9 and EVAL step 0"),
        ("before", (("TRAIN", 0, 0),), "before TRAIN step 0"),
        ("after", (("TRAIN", 99, 99),), "after TRAIN step 99"),
        ("", (), "–"),
    ],
)
def test_the_steps_of_a_run_are_told(place: str, steps: tuple[Any, ...], told: str) -> None:
    spans = tuple(StepSpan(mode=phase, first=first, last=last) for phase, first, last in steps)

    text = text_of(cpu_page(runs=(replace(CPU.runs[0], place=place, steps=spans),)))

    assert f"08:00:01 60.5 121 2 {told} " in text
    assert "The longest run of bottlenecks lasted 1 min, from 08:00:01 UTC." in text


def test_runs_and_cores_that_are_alike_are_told_together() -> None:
    run, one = CPU.runs[0], CPU.cores[0]
    short = replace(run, end_us=run.start_us + 2_000_000)
    other = replace(one, node="algo-2", cores=(CoreShare(core="cpu7", percent=80.0),))

    def cores(*told: Any, more: int = 0) -> str:
        return text_of(cpu_page(cores=told, more_cores=more))

    assert "The 2 longest runs of bottlenecks lasted 1 min each." in text_of(cpu_page(runs=(run, run, short)))
    which = "DataLoader and cpu1 were used more than 90% in 80.0% of the bottlenecks"
    assert f"{which} on each of 2 nodes." in cores(one, replace(one, node="algo-2"))
    assert f"{which} on algo-1 and algo-2." in cores(one, replace(one, node="algo-2"), more=1)
    assert f"{which} on algo-1." in cores(one, other)
    ties = (Ran.of("Load", 80.0, 20.0), Ran.of("Copy", 80.0, 20.0), Ran.of("Rest", 70.0, 10.0))
    assert "Load and Copy ran in 80.0% of the time" in text_of(cpu_page(ran=ties))
    everywhere = replace(one, cores=tuple(CoreShare(core=f"cpu{i}", percent=100.0) for i in range(8)), ever=8)
    assert "All 8 cores were used more than 90% in 100.0% of the bottlenecks." in cores(everywhere)


def test_closed_tables_have_no_number() -> None:
    """Else the numbers of those in sight would jump."""
    html = sections.cpu_bottlenecks(report_of(CPU)).html

    closed = re.findall(r"<details>.*?</details>", html, re.S)
    assert len(closed) == 2
    assert all('<caption class="vh">' in one and "Table" not in one for one in closed)
    numbers = re.findall(r"Table\s10\.(\d)", re.sub(r"<details>.*?</details>", "", html, flags=re.S))
    assert numbers == ["1", "2", "3"]


def test_cores_with_the_same_share_are_one_row() -> None:
    text = text_of(cpu_page())

    assert "DataLoader and cpu1 were used more than 90% in 80.0% of the bottlenecks" in text
    assert "DataLoader, cpu1 80.0" in text
    assert "cpu2 12.5" in text
    assert "5 of 8 cores never" in text


def test_what_ran_is_told_as_inferred() -> None:
    text = text_of(cpu_page())

    assert (
        "DataLoader ran in 80.0% of the time of bottlenecks and in 20.0% of the rest. Inferred from" in text
    )
    assert "DataLoader 80.0 20.0 60.0" in text
    assert "Backward 5.0 45.5 −40.5" in text
    assert "1 class that differs less left out" in text
    alike = Ran.of("DataLoader", 80.0, 78.0)
    assert "Nothing that was recorded ran notably more" in text_of(cpu_page(ran=(alike,)))
    assert "What ran during the bottlenecks is not known" in text_of(cpu_page(ran=()))


# What is missing.


def test_what_is_not_judged_is_said() -> None:
    short = replace(CPU.nodes[0], node="algo-2", reason="only 4 of 7\u00a0samples")

    text = text_of(cpu_page(nodes=(*CPU.nodes, short), without_cores=("algo-3",)))

    assert "Counted here but not judged by the rule: algo-2 (only 4 of 7 samples)." in text
    assert "Not looked at, because the CPU use of its cores was not sampled: algo-3." in text
    assert "CPUBottleneck was not selected" in text


def test_where_the_rule_says_something_else_the_reason_stands_beside_it() -> None:
    measure = Measure(value=12.5, limits=(50.0,), scale=100.0, unit="%", limit_text="")
    early = judged(Status.TRIGGERED, 1000, evaluated=18, violating=5)
    assert (
        "CPUBottleneck triggered: it looks once a minute, and the share so far was above in 5 of 18 looks"
        in early
    )
    assert "looks once a minute" not in judged(Status.TRIGGERED, 2300, evaluated=18, violating=5)
    assert "judges, 12.5% of the snapshots are" in judged(Status.PASSED, 1000, measure=measure)


def test_without_samples_the_reason_is_told() -> None:
    def reason(report: Report) -> str:
        return Page.of(sections.io_bottlenecks(replace(report, bottlenecks=())).html).text

    job = examples.gpu_job()
    facts = NodeFacts(name="n", gpus=0, cores=8, interval_s=0.5, first_us=0, last_us=1)
    assert "The vendor's results hold no samples" in reason(replace(job, origin=Origin.DEBUGGER_RESULTS))
    assert "No GPU was sampled." in reason(replace(job, job=replace(job.job, nodes=(facts,))))
    assert "The I/O wait of the cores was not sampled." in reason(replace(job, utilization=()))
    both = replace(job, utilization=(examples.usage("n", "I/O wait", 1.0),))
    assert "No node has samples of both GPU and I/O wait." in reason(both)


def test_hostile_names_stay_text() -> None:
    page = Page.of(sections.cpu_bottlenecks(examples.hostile_job()).html)

    assert [attributes.get("type") for attributes, _ in page.scripts] == ["application/json"]
    assert page.text.count("alert(1)") >= 3
    assert page.faults == []


@pytest.mark.parametrize("snapshots", [1, 2])
def test_one_snapshot_is_enough(snapshots: int) -> None:
    node = NodeBottlenecks.of(
        node="n",
        reason="",
        snapshots=snapshots,
        low=1,
        no_core_sample=0,
        bottlenecks=1,
        in_loop=False,
        busy=0,
        partly=0,
        idle_unsaturated=0,
        idle_no_core_sample=0,
        bottleneck=1,
    )
    few = changed(CPU, nodes=(node,), snapshots=snapshots, low=1, no_core_sample=0, bottlenecks=1, courses=())
    whole = Phase(key="whole", label="Whole job", start_us=0, end_us=1, percent=100.0)
    report = replace(report_of(few), phases=replace(examples.gpu_job().phases, phases=(whole,)))

    page = Page.of(sections.cpu_bottlenecks(report).html)

    assert "1 snapshots" not in page.text
    assert "is a bottleneck" in page.text
    assert page.faults == []
