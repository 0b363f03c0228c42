"""What the sections on bottlenecks say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobreport import formats
from jobreport.document import NodeFacts, Origin, Report
from jobreport.page import sections
from jobreport.page.figures.bottlenecks import shares_over_time
from jobrules.analyses.bottlenecks import Bottlenecks, CoreShare, NodeBottlenecks, Ran, Split, StepSpan
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


# The lead.


def with_result(status: Status, bottlenecks: int = 2000, **facts: Any) -> str:
    """The section's text where the rule has this result."""
    card = examples.card("CPUBottleneck", status, **facts)
    report = report_of(changed(CPU, bottlenecks=bottlenecks), rules=(card,))
    return text_of(Page.of(sections.cpu_bottlenecks(report).html))


def test_the_lead_has_number_share_threshold_and_definition() -> None:
    text = with_result(Status.TRIGGERED)

    assert (
        "2,000 of 3,600 snapshots of the whole job (55.6%; threshold 50%) are bottlenecks: "
        "a GPU below 10% while a core of its node is above 90%."
    ) in text
    assert "Figure 11.1. 2,000 of 2,400 snapshots with an idle GPU (83.3%) are bottlenecks." in text
    assert "Inferred from simultaneous samples." in text
    assert "Inferred" not in with_result(Status.PASSED, 500)


def test_without_a_result_the_rule_is_named_first_and_nothing_is_compared() -> None:
    not_evaluated = with_result(Status.NOT_EVALUATED, reason="only 892 of 1,001 samples")
    not_selected = text_of(cpu_page())

    assert "CPUBottleneck was not evaluated: only 892 of 1,001 samples. 2,000 of 3,600" in not_evaluated
    assert "Figure 11.2. First bottleneck 08:00:01, last 08:59:00." in not_evaluated
    assert "CPU bottlenecks CPUBottleneck was not selected" in not_selected
    for text in (not_evaluated, not_selected):
        assert "threshold 50%" not in text
        assert "Inferred" not in text


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

    def text(**changes: Any) -> str:
        found = replace(verdict, findings=(replace(finding, **changes),))
        return Page.of(sections.cpu_bottlenecks(report_of(CPU, verdict=found)).html).text

    assert f"Bottlenecks explain {' '.join(hours.split())}, 12.5% of GPU time." in text()
    assert part.startswith("12.5")
    assert "Bottlenecks explain" not in text(gpu_s=None)
    assert "Bottlenecks explain" not in text(key="io-bottleneck")


def test_few_bottlenecks_are_not_drawn_over_time_unless_they_triggered() -> None:
    few = 34  # of 3,600, 0.9%

    assert "Orange: percentage" not in with_result(Status.PASSED, few)
    assert "Orange: percentage" in with_result(Status.PASSED, few + 1)
    assert "Orange: percentage" in with_result(Status.TRIGGERED, few)


def test_without_bottlenecks_a_sentence_holds_the_numbers() -> None:
    page = Page.of(sections.io_bottlenecks(report_of(CPU, IO)).html)
    partly = Page.of(sections.io_bottlenecks(report_of(changed(IO, no_core_sample=7))).html)

    assert (
        "0 of 3,600 snapshots are I/O bottlenecks. No GPU idle: 1,200 (33.3%); "
        "GPU idle, no core waiting for I/O: 2,400 (66.7%)."
    ) in text_of(page)
    assert [*page.all("table"), *page.all("figure"), *page.scripts] == []
    assert "GPU idle, I/O wait not recorded: 7 (0.2%)." in text_of(partly)


def test_a_gpu_is_idle_below_10_percent_only() -> None:
    text = text_of(cpu_page(gpu_below=25.0))

    assert "a GPU below 25% while" in text
    assert "GPU below 25%, core saturated" in text
    assert "idle" not in text


# The parts.


def test_the_parts_of_the_bar_add_up_to_all_snapshots() -> None:
    page = cpu_page()
    rows = re.findall(r"(?:saturated|core|idle|recorded) (\d[\d,]*) (\d+\.\d)", text_of(page))

    counts = [int(count.replace(",", "")) for count, _ in rows]
    assert counts == [1200, 399, 1, 2000]
    assert sum(counts) == CPU.snapshots
    assert round(sum(float(percent) for _, percent in rows), 1) == 100.0
    widths = [float(str(a["width"]).rstrip("%")) for a in page.all("rect") if a.get("height") == "100%"][:4]
    assert round(sum(widths), 1) == 100.0


def test_what_was_not_sampled_is_no_part_where_there_is_none() -> None:
    assert "CPU not recorded" in text_of(cpu_page())
    assert "CPU not recorded" not in text_of(cpu_page(no_core_sample=0))


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

    def text(*nodes: NodeBottlenecks, **changes: Any) -> str:
        return text_of(cpu_page(nodes=nodes, **changes))

    share = "50.0% of GPU samples in the training loop were in bottlenecks on"
    assert f"{share} each of 2 nodes." in text(first, other)
    assert f"{share} algo-1 and algo-2, more than on other nodes." in text(first, other, less)
    assert f"{share} algo-1, more than on other nodes." in text(first, less)
    assert f"{share} algo-1 and algo-2, more" in text(first, other, more_nodes=3)


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

    assert "in the training loop (whole job if there is none)" in text
    assert "algo-2 whole job 3,000 20.0 13.3 6.7 10.0 50.0" in text
    assert "in the whole job were in bottlenecks" in text_of(
        cpu_page(nodes=(other, replace(other, node="algo-3")))
    )
    assert "Data: GPU samples in the whole job" in text_of(cpu_page(nodes=(other,)))


# Over time.


def test_the_time_above_the_threshold_has_its_whole() -> None:
    card = examples.card("CPUBottleneck", Status.TRIGGERED)
    page = Page.of(sections.cpu_bottlenecks(report_of(CPU, rules=(card,))).html)
    text = text_of(page)

    # 390 of 541 columns of 6 s that were measured.
    assert "The share of bottlenecks was above 50% (dashed) for 39 min of 54 min 6 s. Columns of 6 s." in text
    assert "Dotted: first" in text
    assert "Hatched: not measured." in text
    assert "live-cpu-bottlenecks-course0" in page.ids
    # 25 columns of 6 s a row, those in the gap without a number.
    assert "08:32:30 not measured" in text
    assert "08:25:00 75.0" in text


def test_nodes_with_the_same_time_above_the_threshold_share_a_clause() -> None:
    card = examples.card("CPUBottleneck", Status.TRIGGERED)
    low = example_bottlenecks.course("algo-2", (20.0,) * 600)
    unknown = example_bottlenecks.course("algo-3", (None,) * 600)
    several = changed(CPU, nodes=CPU.nodes * 2, courses=(*CPU.courses, low, unknown))
    (both, _) = example_bottlenecks.stalls("x", ("algo-1", "algo-2"))

    text, equal = (
        text_of(Page.of(sections.cpu_bottlenecks(report_of(found, rules=(card,))).html))
        for found in (several, both)
    )

    assert "(dashed): algo-1 for 39 min of" in text
    assert "; algo-2 at no time; algo-3 not measured." in text
    assert "(dashed) for 39 min of 54 min 6 s." in equal


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


def test_many_nodes_fold_their_table() -> None:
    cpu, _ = example_bottlenecks.stalls("x", tuple(f"algo-{i}" for i in range(16)))
    cpu = replace(cpu, more_nodes=3, more_cores=12)

    page = Page.of(sections.cpu_bottlenecks(report_of(cpu)).html)

    assert any("rows-16" in str(a.get("class")) for a in page.all("div"))
    # Courses with their fold, and samples; four nodes have few rows of cores, which stay open.
    assert len(page.all("details")) == 3
    many = tuple(CoreShare(core=f"cpu{i}", percent=50.0 - i) for i in range(16))
    full = replace(cpu, cores=tuple(replace(one, cores=many) for one in cpu.cores))
    folded = Page.of(sections.cpu_bottlenecks(report_of(full)).html)
    assert len(folded.all("details")) == 4
    assert "Not shown: 3 more nodes." in page.text
    assert "Not shown: 12 nodes with fewer bottlenecks." in page.text


# Tables.


@pytest.mark.parametrize(
    ("place", "steps", "named"),
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
def test_a_run_names_its_steps(place: str, steps: tuple[Any, ...], named: str) -> None:
    spans = tuple(StepSpan(mode=phase, first=first, last=last) for phase, first, last in steps)

    text = text_of(cpu_page(runs=(replace(CPU.runs[0], place=place, steps=spans),)))

    assert f"08:00:01 60.5 121 2 {named} " in text
    assert "The longest bottleneck lasted 1 min, from 08:00:01." in text


def test_equal_runs_and_cores_share_a_sentence() -> None:
    run, one = CPU.runs[0], CPU.cores[0]
    short = replace(run, end_us=run.start_us + 2_000_000)
    other = replace(one, node="algo-2", cores=(CoreShare(core="cpu7", percent=80.0),))

    def cores(*found: Any, more: int = 0) -> str:
        return text_of(cpu_page(cores=found, more_cores=more))

    assert "The 2 longest bottlenecks lasted 1 min each." in text_of(cpu_page(runs=(run, run, short)))
    which = "DataLoader and cpu1 were saturated in 80.0% of bottlenecks"
    assert f"{which} on each of 2 nodes." in cores(one, replace(one, node="algo-2"))
    assert f"{which} on algo-1 and algo-2." in cores(one, replace(one, node="algo-2"), more=1)
    assert f"{which} on algo-1." in cores(one, other)
    ties = (Ran.of("Load", 80.0, 20.0), Ran.of("Copy", 80.0, 20.0), Ran.of("Rest", 70.0, 10.0))
    assert "Load and Copy ran during 80.0% of bottleneck time" in text_of(cpu_page(ran=ties))
    everywhere = replace(one, cores=tuple(CoreShare(core=f"cpu{i}", percent=100.0) for i in range(8)), ever=8)
    assert "All 8 cores were saturated in every bottleneck." in cores(everywhere)


def test_cores_with_the_same_share_are_one_row() -> None:
    text = text_of(cpu_page())

    assert "DataLoader and cpu1 were saturated in 80.0% of bottlenecks." in text
    assert "DataLoader, cpu1 80.0" in text
    assert "cpu2 12.5" in text
    assert "5 of 8 cores never" in text


def test_event_types_are_compared_during_bottlenecks_and_otherwise() -> None:
    text = text_of(cpu_page())

    assert "DataLoader ran during 80.0% of bottleneck time and 20.0% of other time." in text
    assert "DataLoader 80.0 20.0 60.0" in text
    assert "Backward 5.0 45.5 −40.5" in text
    assert "Not shown: 1 more event type." in text
    similar = Ran.of("DataLoader", 80.0, 78.0)
    assert "No event type ran notably more" in text_of(cpu_page(ran=(similar,)))
    assert "No events were recorded around the bottlenecks." in text_of(cpu_page(ran=()))


# What is missing.


def test_what_is_not_evaluated_is_listed() -> None:
    short = replace(CPU.nodes[0], node="algo-2", reason="only 4 of 7\u00a0samples")

    text = text_of(cpu_page(nodes=(*CPU.nodes, short), without_cores=("algo-3",)))

    assert "Counted here, but not evaluated by CPUBottleneck: algo-2 (only 4 of 7 samples)." in text
    assert "CPU was not recorded on algo-3." in text
    assert "CPUBottleneck was not selected" in text


def test_a_result_that_differs_from_the_comparison_is_explained() -> None:
    measure = Measure(value=12.5, limits=(50.0,), scale=100.0, unit="%", limit_text="")
    early = "above the threshold in 5 of 18 checks."

    assert early in with_result(Status.TRIGGERED, 1000, evaluated=18, violating=5)
    assert early not in with_result(Status.TRIGGERED, 2300, evaluated=18, violating=5)
    passed = with_result(Status.PASSED, 1000, measure=measure)
    assert "CPUBottleneck counts 12.5% of snapshots without start-up and wind-down (threshold 50%)." in passed


def test_without_samples_there_is_a_reason() -> None:
    def reason(report: Report) -> str:
        return Page.of(sections.io_bottlenecks(replace(report, bottlenecks=())).html).text

    job = examples.gpu_job()
    facts = NodeFacts(name="n", gpus=0, cores=8, interval_s=0.5, first_us=0, last_us=1)
    assert "rule results hold no samples" in reason(replace(job, origin=Origin.DEBUGGER_RESULTS))
    assert "GPU utilization was not recorded." in reason(replace(job, job=replace(job.job, nodes=(facts,))))
    assert "I/O wait of the cores was not recorded." in reason(replace(job, utilization=()))
    both = replace(job, utilization=(examples.usage("n", "I/O wait", 1.0),))
    assert "GPU and I/O wait were not recorded on the same node." in reason(both)


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
