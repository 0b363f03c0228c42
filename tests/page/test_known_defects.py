"""Faults that reports of this kind are known for, each with a test that would find it in our page.

``N-1`` to ``N-28`` are defects of the vendor's report notebook, ``docs/differences.md`` names them; the others were
seen in public reports that it made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from jobreport import document, export, pipeline
from jobreport.document import Report
from jobreport.quality import Quality, SourceQuality
from jobreport.sections.outline import SECTIONS
from jobrules import RULES
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.job import SECOND_US, Job, Metric
from jobrules.load_balancing import LoadBalancing
from jobrules.result import Status
from jobrules.rule import Rule, run_rules
from jobrules.step_outlier import StepOutlier
from tests.jobs import START_US, make_job, make_panel, make_steps
from tests.page.html import Page
from tests.page.test_sections import CALLS


def reported(job: Job, *rules: Rule) -> Report:
    """The report of a job, by all rules or by those given."""
    chosen: Sequence[Rule] = rules or [rule() for rule in RULES]
    quality = Quality(sources=(SourceQuality(source="system samples", files=1, rows=1),))
    return pipeline.build_report(job, quality, chosen, run_rules(chosen, job, strict=True), "make-report")


def whole(report: Report) -> Page:
    return Page.of("".join(call(report).html for call in CALLS))


def section(report: Report, name: str) -> Page:
    (call,) = [one for one in CALLS if one(report).name == name]
    return Page.of(call(report).html)


def plain(page: Page) -> str:
    return page.text.replace("\u00a0", " ").replace("\u202f", " ")


RANDOM = np.random.default_rng(4)
#: Twenty minutes of two GPUs and four cores; the loop runs from the second to the eighteenth minute.
TICKS = 2400
GPU = np.where(RANDOM.random((TICKS, 2)) < 0.4, 3.0, 80.0)
GPU[:240] = 0.0
CPU = np.where(GPU[:, :1] < 10, 97.0, 40.0) * np.array([1.0, 0.9, 0.5, 0.2])
STEPS = make_steps([(120 + i, 120 + i + 0.9) for i in range(960)])
JOB = make_job(gpu=GPU, cpu=CPU, memory=GPU / 2, io_wait=np.zeros((TICKS, 4)), steps=STEPS)


def test_n1_a_start_up_longer_than_the_training_is_told() -> None:
    gpu = np.repeat([0.0, 90.0], [1500, 500])
    report = reported(make_job(gpu=gpu, cpu=gpu, steps=make_steps([(750 + i, 751 + i) for i in range(249)])))

    phases = {phase.key: phase.end_us - phase.start_us for phase in report.course.phases}
    assert phases["before"] > phases["loop"]
    assert "longer than" in plain(section(report, "summary"))
    first = report.verdict.findings[0]
    assert "12 min 30 s" in first.title.replace("\u00a0", " ")


@pytest.mark.parametrize("overlap_s", [0, 700])
def test_n2_n6_phases_end_with_the_last_step_and_are_never_negative(overlap_s: float) -> None:
    # Steps that reach past the last sample, as a sampler that stops first leaves them.
    steps = make_steps([(120, 121), (1100 + overlap_s, 1105 + overlap_s)])
    report = reported(make_job(gpu=GPU, steps=steps))

    phases = report.course.phases
    assert all(phase.percent >= 0 and phase.end_us >= phase.start_us for phase in phases)
    assert round(sum(phase.percent for phase in phases), 1) == 100.0
    (loop,) = [phase for phase in phases if phase.key == "loop"]
    assert loop.end_us == START_US + (1105 + overlap_s) * SECOND_US


@pytest.mark.parametrize("count", [1, 2])
def test_n3_a_job_without_duration_has_a_page(count: int) -> None:
    page = whole(reported(make_job(gpu=[50.0] * count, cpu=[50.0] * count, interval_s=1e-6)))

    assert page.faults == []
    assert not re.search(r"\b(nan|inf)\b", page.text)


def test_n4_the_start_is_told_once() -> None:
    text = plain(section(reported(make_job(gpu=GPU)), "summary"))

    assert text.count("The job ran from") == 1
    assert not re.search(r"(^|\s)\.\s|\.\.", text)


def test_n5_times_say_utc_and_days_come_year_first() -> None:
    for call in CALLS:
        text = plain(Page.of(call(reported(JOB)).html))
        assert "UTC" in text or not re.search(r"\d\d:\d\d:\d\d", text), call
        assert not re.search(r"\d\d/\d\d/\d{4}", text), call


def test_n7_a_job_without_gpu_gets_a_sentence_on_its_cpu() -> None:
    busy, free = (reported(make_job(cpu=np.full((600, 4), use))) for use in (90.0, 20.0))

    assert "the CPU was well used: its p95 lies at 90.0 %" in plain(section(busy, "utilisation"))
    assert "the CPU was below 70 %" in plain(section(free, "utilisation"))


def test_n7_a_p95_at_the_limit_is_judged() -> None:
    told = {
        use: plain(section(reported(make_job(cpu=np.full(600, use))), "utilisation")) for use in (69.9, 70.0)
    }

    assert "well used" in told[70.0]
    assert "well used" not in told[69.9]


def test_n8_columns_are_named_for_what_they_hold() -> None:
    network = make_panel(Metric.NETWORK_RECEIVE, np.full(TICKS, 5e6), prefix="net")
    report = reported(replace(JOB, panels=(*JOB.panels, network)))
    page = section(report, "utilisation")

    text = plain(page)
    assert "Min p50 p90 p95 p99 Max Mean" in text
    assert re.search(r"Network\D* MB/s 5.0 5.0", text)
    assert "I/O wait %" in text
    assert "total I/O" not in text


def test_n9_a_table_of_utilisation_needs_no_row_and_no_known_metric() -> None:
    empty = reported(Job(name="empty"))
    odd = replace(reported(JOB), usage=(replace(reported(JOB).usage[0], label="Fan speed", unit="rpm"),))

    assert "Not recorded" in section(empty, "utilisation").text
    assert "Fan speed rpm" in section(odd, "utilisation").text


def test_n14_cards_come_by_severity_and_without_rules_nothing_breaks() -> None:
    report = reported(JOB)
    page = section(report, "rules")

    names = [
        str(a["id"])[2:] for tag, a in page.elements if tag == "h3" and str(a.get("id", "")).startswith("r-")
    ]
    cards = {card.name: card for card in report.rules}
    order = [Status.TRIGGERED, Status.ERROR, Status.NOT_EVALUATED, Status.PASSED]
    told = [order.index(cards[name].status) for name in names if cards[name].judges]
    assert told == sorted(told)
    assert len(set(told)) > 1
    assert section(replace(report, rules=()), "rules").faults == []


def test_n15_a_threshold_is_read_by_its_name_whatever_its_kind() -> None:
    report = reported(
        JOB,
        LoadBalancing(threshold=0.25),
        CPUBottleneck(cpu_threshold=70.5),
        StepOutlier(mode=None, stddev=2.5),
    )

    text = plain(section(report, "rules"))
    for parameter in ("threshold=0.25", "cpu_threshold=70.5", "mode=none", "stddev=2.5"):
        assert parameter in text


def test_n25_drawing_changes_nothing_in_the_report() -> None:
    report = reported(JOB)
    before = document.to_json(report)

    first = [call(report).html for call in CALLS]

    assert document.to_json(report) == before
    assert [call(report).html for call in CALLS] == first


def test_n26_the_page_holds_no_code_of_the_notebook(gpu_page: str) -> None:
    assert not re.search(r"sections\.\w+\(report\)|open_report|report_json|In\s*\[", gpu_page)


def test_n28_sentences_of_nodes_are_items_of_a_list() -> None:
    low, high = (
        make_panel(Metric.GPU_USE, np.full(600, use), node=node) for use, node in ((20.0, "a"), (95.0, "b"))
    )
    cpu = [make_panel(Metric.CPU_USE, np.full(600, 30.0), node=node, prefix="cpu") for node in "ab"]
    page = section(reported(Job(name="two", panels=(cpu[0], low, cpu[1], high))), "utilisation")

    items = [tag for tag, _ in page.elements if tag == "li"]
    assert len(items) == 2
    assert not re.search(r"[a-z]\.[A-Z]", plain(page))


def test_seen_zero_data_points_are_no_pass() -> None:
    report = reported(make_job(cpu=np.full(100, 50.0)))

    answers = {card.name: card for card in report.rules if card.judges}
    assert {card.status for card in answers.values()} == {Status.NOT_EVALUATED}
    text = section(report, "rules").text
    assert "Passed" not in text
    assert text.count("Not evaluated") >= len(answers)


def test_seen_a_rule_whose_window_no_sample_fills_is_no_pass() -> None:
    report = reported(make_job(gpu=np.full(300, 5.0), memory=np.full(300, 5.0), cpu=np.full(300, 5.0)))

    answers = {card.name: card.status for card in report.rules}
    for name in ("LowGPUUtilization", "BatchSize", "CPUBottleneck", "GPUMemoryIncrease"):
        assert answers[name] is Status.NOT_EVALUATED


def test_seen_a_gpu_that_never_worked_is_a_finding() -> None:
    report = reported(make_job(gpu=np.zeros((1200, 2)), cpu=np.full(1200, 20.0)))

    first = report.verdict.findings[0]
    assert first.key == "gpu-never-used"
    assert first.gpu_s == pytest.approx(2 * 600, rel=0.01)
    assert "never worked" in section(report, "verdict").text


def test_seen_low_use_is_told_as_a_share_of_time_beside_the_p95_of_the_job() -> None:
    # Busy for most of the job: its p95 is high, though some windows are low.
    gpu = np.repeat([95.0, 4.0, 95.0], [1500, 1200, 1500])
    report = reported(make_job(gpu=gpu, cpu=gpu))

    (card,) = [card for card in report.rules if card.name == "LowGPUUtilization"]
    assert card.status is Status.TRIGGERED
    assert "% of" in plain(Page.of(f"<p>{card.headline}</p>"))
    (row,) = [row for row in report.usage if row.label == "GPU"]
    assert row.p95 == 95.0
    assert "95.0" in section(report, "utilisation").text


def test_seen_units_stand_at_every_number_of_the_table() -> None:
    network = make_panel(Metric.NETWORK_RECEIVE, np.full(TICKS, 5e6), prefix="net")
    report = reported(replace(JOB, panels=(*JOB.panels, network)))

    units = {row.label: row.unit for row in report.usage}
    assert units["Network"] == "B/s"
    assert {unit for label, unit in units.items() if label != "Network"} == {"%"}


def test_seen_defaults_on_the_page_are_the_defaults_in_force() -> None:
    report = reported(JOB)

    for card in report.rules:
        (kind,) = [rule for rule in RULES if rule.__name__ == card.name]
        rule = kind()
        for parameter in card.parameters:
            assert parameter.value == parameter.default
            assert getattr(rule, parameter.name) == parameter.value


def test_seen_nothing_is_asked_of_anyone(gpu_page: str) -> None:
    page = Page.of(gpu_page)

    assert [link for link in page.links if not link.startswith(("#", "data:"))] == []
    outside = re.sub(r"<script>.*?</script>", "", gpu_page, flags=re.S)
    assert not re.search(r"https?://(?!www\.w3\.org/)", outside)
    assert "arn:aws" not in outside


def test_seen_the_page_says_all_without_scripts(gpu_notebook: object, gpu_page: str) -> None:
    still = Page.of(export.render_html(gpu_notebook, static=True))  # type: ignore[arg-type]

    assert len(still.text) > 5000
    for figure in re.findall(r"<figure.*?</figure>", gpu_page, re.S):
        assert "<svg" in figure or "<table" in figure or "<picture" in figure
    headings = [tag for tag, _ in still.elements if tag == "h2"]
    assert len(headings) >= len(SECTIONS)
