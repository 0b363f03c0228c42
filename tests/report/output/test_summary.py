from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from jobreport import formats
from jobreport.build import build_report
from jobreport.document import Report
from jobreport.markdown import MAX_CHARACTERS
from jobreport.output import summary
from jobreport.page import sections
from jobreport.remarks import Quality, SourceQuality
from jobrules import RULES
from jobrules.model import Job, JobInMemory, Metric, Severity, Status
from jobrules.rule import not_recorded, reason_short, run_rules
from jobrules.verdict.not_evaluated import NotEvaluated
from tests.captured_jobs import job_of, training
from tests.copies import replace
from tests.jobs import make_job, make_panel
from tests.paths import CORPUS, SAMPLES, needs_corpus
from tests.report.page.sections.html import read
from tests.report.page.sections.test_one_voice import read as read_report


def report_of(job: Job) -> Report:
    rules = [rule() for rule in RULES]
    quality = Quality(sources=(SourceQuality(source="system samples", files=1, rows=1),))
    return build_report(job, quality, rules, run_rules(rules, job, strict=True), "make-report")


LOW = make_job(cpu=[[10.0] * 4] * 1500, gpu=[20.0] * 1500, memory=[20.0] * 1500)


def test_the_summary_holds_verdict_findings_and_what_was_not_checked() -> None:
    text = summary.markdown(report_of(LOW))

    assert "**20.0% of GPU time was used." in text
    assert "**Main cause (critical): The GPU worked steadily below its capacity" in text
    assert "**Critical: The GPU worked steadily below its capacity" in text
    assert "Also seen as: low utilization in" in text
    assert "Try first:* Raise the batch size" in text
    assert "rules were not evaluated.** Not recorded: " in text
    assert "steps \\(StepOutlier, MaxInitializationTime\\)" in text


def test_every_rule_that_was_not_evaluated_is_named_on_page_ticket_and_terminal() -> None:
    report = report_of(LOW)
    reasons = [not_recorded(Metric.GPU_POWER)] * 2 + [reason_short(60_000_000, 15)]
    missing = tuple(
        NotEvaluated(rule=f"Rule{i}", status=Status.NOT_EVALUATED, reason=reason)
        for i, reason in enumerate(reasons)
    )
    verdict = replace(report.verdict, not_evaluated=missing, findings=(), rules=len(missing))
    report = replace(report, verdict=verdict)

    text, (_, none, record, last) = summary.markdown(report), summary.terminal(report)
    page = read(sections.verdict(report)).text

    brief = "Not recorded: GPU power (2 rules). Too short: Rule2."
    groups = "Not recorded: GPU power (Rule0, Rule1). Too short: Rule2 needs 15 min of samples, this job has 1 min."
    assert f"## Not evaluated\n\n{groups}" in text.replace("\u00a0", " ").replace("\\", "")
    assert " ".join(page.replace("\u00a0", " ").split()).endswith(
        f"No rule was evaluated. Which rules {brief}"
    )
    assert none == "No rule was evaluated."
    assert record == "Record next: GPU power, to see what was not checked."
    assert last.replace("\u00a0", " ") == f"Not checked: 3 of 3 rules. {brief}"


def test_a_job_whose_script_recorded_nothing_says_how_to_record_steps() -> None:
    _, none, record, _ = summary.terminal(report := report_of(make_job(cpu=[50.0] * 100)))

    assert none == "No rule was evaluated."
    assert record == (
        "Record next: Loader events and steps, to see what was not checked. jobrecord.start() and "
        "jobrecord.data(loader) in the training script record steps and data loading."
    )
    how = "`jobrecord.start()` and `jobrecord.data(loader)` in the training script record steps and data loading."
    assert report.verdict.advice[1] == how


def test_rules_that_do_not_apply_are_not_missing() -> None:
    report = report_of(make_job(cpu=[50.0] * 100))
    verdict = report.verdict
    absent = tuple(one for one in verdict.not_evaluated if not one.applies)
    report = replace(report, verdict=replace(verdict, not_evaluated=absent))

    *_, last = summary.terminal(report)

    assert (
        last.replace("\u00a0", " ")
        == "All 3 rules were evaluated. Not applicable: no GPU was sampled, no PyTorch trace was found."
    )


def test_every_amount_is_that_of_the_bar_to_the_printed_digit() -> None:
    gpu = np.column_stack([[0.0] * 500 + [2.0, 2.0, 96.0] * 1000 + [0.0] * 300, np.zeros(3800)])
    cpu = [20.0] * 500 + [99.0, 99.0, 20.0] * 1000 + [20.0] * 300
    report = report_of(make_job(cpu=cpu, gpu=gpu))
    use = report.verdict.use
    assert use is not None
    assert report.verdict.has_cause

    text = summary.markdown(report).replace("\u00a0", " ").replace("\\", "")
    lines = re.findall(r"^- (\w.*): ([\d.]+) GPU-h, ([\d.]+)%$", text, flags=re.M)
    page = read(sections.verdict(report)).text.replace("\u00a0", " ")
    told = read(sections.findings(report)).text.replace("\u00a0", " ")
    terminal = " ".join(summary.terminal(report)).replace("\u00a0", " ")

    assert [(label, float(h), float(p)) for label, h, p in lines] == [
        (part.label.replace("\u00a0", " "), part.amount, part.percent) for part in use.parts
    ]
    assert sum(float(h) for _, h, _ in lines) == pytest.approx(use.hours)
    assert sum(float(p) for _, _, p in lines) == pytest.approx(100)
    linked = {part.finding: part for part in use.parts if part.finding}
    assert set(linked) == {"gpu-never-used", "cpu-bottleneck"}
    for part in linked.values():
        hours, share = f"{part.amount:.{use.digits}f} GPU-h", f"{part.percent:.1f}%"
        assert f"{hours}, {share}" in page
        assert f"{hours} {share} of GPU time" in told
        assert f"Explains {hours}, {share} of GPU time" in text
    main = linked[report.verdict.findings[0].key]
    assert (
        f"Main cause (critical): 1 of 2 GPUs was never used (no sample above 1%) ({main.amount:.{use.digits}f} GPU-h, "
        in terminal
    )
    assert f"Possible gain: at most {main.amount:.{use.digits}f} GPU-h." in page


def test_the_parts_come_in_the_order_of_the_bar() -> None:
    gpu = np.column_stack([[0.0] * 500 + [2.0, 2.0, 96.0] * 1000 + [0.0] * 300, np.zeros(3800)])
    cpu = [20.0] * 500 + [99.0, 99.0, 20.0] * 1000 + [20.0] * 300
    use = report_of(make_job(cpu=cpu, gpu=gpu)).verdict.use
    assert use is not None

    keys = [part.key for part in use.parts]
    assert keys == ["used", "gpu-never-used", "cpu-bottleneck", "start-up", "wind-down", "busy"]


def test_gpus_whose_use_was_not_sampled_are_told_wherever_the_others_are_counted() -> None:
    power = make_panel(Metric.GPU_POWER, np.full((1500, 4), 400.0))
    report = report_of(make_job(gpu=[0.0] * 1500, extra=[power]))

    text, page, head = (
        summary.markdown(report),
        read(sections.verdict(report)).text,
        read(sections.head(report)).text,
    )
    told = "of the time of 1 of 4 GPUs was used"
    assert told in text.replace("\u00a0", " ")
    assert told in page.replace("\u00a0", " ")
    assert "Utilization of 3 more GPUs is unknown." in page.replace("\u00a0", " ")
    assert "1\u00a0node with 4\u00a0GPUs" in text
    assert "1 node, 4 GPUs" in head.replace("\u00a0", " ")
    assert sections.head(report).facts["title"].startswith("0.0% of the time of 1 of 4 GPUs used")
    assert not any("No GPU was used" in one for one in (text, page))


def test_nothing_is_told_as_nothing_and_not_as_little() -> None:
    never, hardly = (report_of(make_job(gpu=[first] + [0.0] * 1499)) for first in (0.0, 10.0))

    for report, told in ((never, "0.000"), (hardly, "under 0.001")):
        assert f"- Used: {told}\u00a0GPU-h, 0.0%" in summary.markdown(report)
        assert f"Used {told} GPU-h" in read(sections.verdict(report)).text.replace("\u00a0", " ")
    text = read(sections.utilization(never)).text
    assert "Median utilization: GPU 0.0%." in text
    assert "not measured" not in text


def test_names_from_data_stay_text() -> None:
    hostile = replace(LOW, name="<script>alert(1)</script> [x](http://e.example) @all `a`\x1b[31m")

    text = summary.markdown(report_of(hostile))
    title = text.splitlines()[0]

    assert "<script>" not in title.replace("\\<", "")
    assert re.search(r"(?<!\\)[<>@`\[\]]", title) is None
    assert "\x1b" not in text


def test_code_in_our_texts_is_a_code_span_and_nothing_else_is() -> None:
    told = "Raise ``num_workers``, set `a=1`; ``x` `<img>` ```y``` `@all`"

    assert summary.prose(told) == (
        "Raise `num_workers`, set `a=1`; \\`\\`x\\` \\`\\<img\\>\\` \\`\\`\\`y\\`\\`\\` \\`\\@all\\`"
    )


def test_advice_shows_no_backticks_of_its_source() -> None:
    report = report_of(LOW)
    first = replace(report.verdict.findings[0], advice=("Raise ``num_workers``.", "Or not."))
    report = replace(report, verdict=replace(report.verdict, findings=(first,)))

    assert "*Try first:* Raise `num_workers`. Or not.\n" in summary.markdown(report)
    assert summary.terminal(report)[2] == "Try first: Raise num_workers."


def test_the_summary_fits_a_text_field_whatever_the_number_of_findings() -> None:
    report = report_of(LOW)
    many = replace(report, verdict=replace(report.verdict, findings=report.verdict.findings * 200))

    text = summary.markdown(many)

    assert len(text) < MAX_CHARACTERS
    assert "more findings" in text


def test_the_terminal_gets_at_most_five_lines() -> None:
    assert len(summary.terminal(report_of(LOW))) <= 5
    assert summary.terminal(report_of(make_job(gpu=[1.0])))[0].startswith("Utilization is unknown")


def test_severities_are_ordered() -> None:
    assert summary.reaches(Severity.CRITICAL, "warning")
    assert not summary.reaches(Severity.INFO, "warning")
    assert summary.worst_severity(report_of(LOW)) is Severity.CRITICAL


#: What a reader of the first lines would have to look up.
JARGON = re.compile(
    r"\bp\d\d?\b|σ|[Hh]istogram|[Pp]ercentile|[Qq]uantile|Jensen|[Ss]td|\b[a-z]+_[a-z_]+\b(?<!num_workers)"
)


@pytest.mark.parametrize(
    "job",
    [
        *SAMPLES,
        *(
            pytest.param(job, marks=[needs_corpus, pytest.mark.slow])
            for job in sorted((CORPUS / "sagemaker").glob("job-*"))
        ),
    ],
    ids=lambda job: job.name,
)
def test_a_ticket_and_a_terminal_begin_with_what_matters(job: Path) -> None:
    report = read_report(job)
    if report is None:
        pytest.skip("refused")
    verdict = report.verdict

    top = summary.markdown(report).partition("\n## ")[0]
    lines = summary.terminal(report)

    assert len(top.splitlines()) <= 12
    assert len(lines) <= 5
    assert "were not evaluated" in top or verdict.how_many in top
    for text in (top.replace("\\", "").replace("`", ""), "\n".join(lines)):
        assert summary.headline(report) in text
        if main := verdict.main_finding:
            assert f"{verdict.main_head} ({main.severity}): {main.title.replace('`', '')}" in text
            assert all(one in text for one in formats.amount(main, verdict.use))
        else:
            assert verdict.without_finding in text
        if verdict.advice:
            assert verdict.advice_head in text
            assert verdict.advice[0].replace("`", "") in text
    assert JARGON.findall(top + "\n".join(lines)) == []


def test_page_ticket_and_terminal_say_the_same_of_the_profiled_time(tmp_path: Path) -> None:
    traces = job_of(tmp_path, training("data loading", 0.4))
    assert isinstance(LOW, JobInMemory)
    alone, both = report_of(traces), report_of(dataclasses.replace(LOW, captures=traces.captures))

    for report, whole in (
        (alone, "Only traces were recorded"),
        (both, "The traces cover 0.5 s of 12 min 30 s"),
    ):
        texts = (read(sections.verdict(report)).text, summary.markdown(report).replace("\\", ""))
        for text in (one.replace("\u00a0", " ") for one in texts):
            assert "of the profiled time of 1 GPU (0.5 s) was used for computing" in text
            assert "40.0% was lost, 40.0% while the training loop fetched the next batch." in text
            assert whole in text
            assert "Lost: waiting for data" in text
            assert "0.200 GPU-s, 40.0%" in text
    assert "60.0% of the profiled time" in summary.terminal(alone)[0]
    first, *_ = summary.terminal(both)
    assert first.startswith("20.0% of GPU time was used.")
    assert "Traces: 60.0% of the profiled time" in first
