from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from jobreport.build import build_report
from jobreport.document import Report
from jobreport.headline import headline
from jobreport.markdown import MAX_CHARACTERS, prose
from jobreport.output import summary
from jobreport.page import sections
from jobreport.remarks import Quality, SourceQuality
from jobrules import RULES
from jobrules.model import Job, JobInMemory, Metric, Severity, Status
from jobrules.rule import not_recorded, reason_short, run_rules
from jobrules.text import NBSP
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


def told(report: Report) -> str:
    """What the ticket and the terminal say."""
    texts = ("# Ticket", summary.markdown(report), "# Terminal", *summary.terminal(report))
    return "\n".join(texts).replace(NBSP, " ")


def with_verdict(report: Report, **changes: Any) -> Report:
    return replace(report, verdict=replace(report.verdict, **changes))


def unevaluated() -> Report:
    """Three rules without an answer, for two reasons."""
    reasons = [not_recorded(Metric.GPU_POWER)] * 2 + [reason_short(60_000_000, 15)]
    missing = tuple(
        NotEvaluated(rule=f"Rule{i}", status=Status.NOT_EVALUATED, reason=reason)
        for i, reason in enumerate(reasons)
    )
    return with_verdict(report_of(LOW), not_evaluated=missing, findings=(), rules=len(missing))


def inapplicable() -> Report:
    """Rules that do not apply, and none that lacks something."""
    report = report_of(make_job(cpu=[50.0] * 100))
    absent = tuple(one for one in report.verdict.not_evaluated if not one.applies)
    return with_verdict(report, not_evaluated=absent)


def with_code() -> Report:
    report = report_of(LOW)
    first = replace(report.verdict.findings[0], advice=("Raise ``num_workers``.", "Or not."))
    return with_verdict(report, findings=(first,))


def of_power() -> Report:
    """The use of one GPU, and the power of four."""
    power = make_panel(Metric.GPU_POWER, np.full((1500, 4), 400.0))
    return report_of(make_job(gpu=[0.0] * 1500, extra=[power]))


def traced(*, alone: bool) -> Report:
    with TemporaryDirectory() as folder:
        traces = job_of(Path(folder), training("data loading", 0.4))
    assert isinstance(LOW, JobInMemory)
    return report_of(traces if alone else dataclasses.replace(LOW, captures=traces.captures))


#: Reports whose ticket, lines on the terminal, and first sections are held by an accepted text.
REPORTS: dict[str, Callable[[], Report]] = {
    "low use": lambda: report_of(LOW),
    "rules that were not evaluated": unevaluated,
    "a script that recorded nothing": lambda: report_of(make_job(cpu=[50.0] * 100)),
    "rules that do not apply": inapplicable,
    "advice with code": with_code,
    "a single sample": lambda: report_of(make_job(gpu=[1.0])),
    "use of one GPU of four": of_power,
    "a GPU that was never used": lambda: report_of(make_job(gpu=[0.0] * 1500)),
    "a GPU that was hardly used": lambda: report_of(make_job(gpu=[10.0] + [0.0] * 1499)),
    "traces alone": lambda: traced(alone=True),
    "traces beside samples": lambda: traced(alone=False),
}
SHOWN: dict[str, Callable[[Report], sections.Fragment | str]] = {
    "ticket and terminal": told,
    "head": sections.head,
    "verdict": sections.verdict,
}
VARIANTS: dict[str, Callable[[], sections.Fragment | str]] = {
    f"{name}, {what}": partial(lambda make, show: show(make()), make, show)
    for what, show in SHOWN.items()
    for name, make in REPORTS.items()
}


def test_every_amount_is_that_of_the_bar_to_the_printed_digit() -> None:
    gpu = np.column_stack([[0.0] * 500 + [2.0, 2.0, 96.0] * 1000 + [0.0] * 300, np.zeros(3800)])
    cpu = [20.0] * 500 + [99.0, 99.0, 20.0] * 1000 + [20.0] * 300
    report = report_of(make_job(cpu=cpu, gpu=gpu))
    use = report.verdict.use
    assert use is not None
    assert report.verdict.is_cause(report.verdict.findings[0])

    text = summary.markdown(report)
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
    said = f"{main.percent:.0f}% of GPU time was lost to it: {main.amount:.{use.digits}f} of"
    assert said in terminal
    assert said in page.replace("%\n", "% ").replace("\n%", "%")


def test_the_parts_come_in_the_order_of_the_bar() -> None:
    gpu = np.column_stack([[0.0] * 500 + [2.0, 2.0, 96.0] * 1000 + [0.0] * 300, np.zeros(3800)])
    cpu = [20.0] * 500 + [99.0, 99.0, 20.0] * 1000 + [20.0] * 300
    use = report_of(make_job(cpu=cpu, gpu=gpu)).verdict.use
    assert use is not None

    keys = [part.key for part in use.parts]
    assert keys == ["used", "gpu-never-used", "cpu-bottleneck", "start-up", "wind-down", "busy"]


def test_names_from_data_stay_text() -> None:
    hostile = replace(LOW, name="<script>alert(1)</script> [x](http://e.example) @all `a`\x1b[31m")

    text = summary.markdown(report_of(hostile))
    title = text.splitlines()[0]

    assert "<script>" not in title.replace("\\<", "")
    assert re.search(r"(?<!\\)[<@`\[]", title) is None
    assert "\x1b" not in text


def test_code_in_our_texts_is_a_code_span_and_nothing_else_is() -> None:
    told = "Raise ``num_workers``, set `a=1`; ``x` `<img>` ```y``` `@all`"

    assert prose(told) == (
        "Raise `num_workers`, set `a=1`; \\`\\`x\\` \\`\\<img>\\` \\`\\`\\`y\\`\\`\\` \\`\\@all\\`"
    )


def test_the_summary_fits_a_text_field_whatever_the_number_of_findings() -> None:
    report = report_of(LOW)
    many = replace(report, verdict=replace(report.verdict, findings=report.verdict.findings * 200))

    text = summary.markdown(many)

    assert len(text) < MAX_CHARACTERS
    assert "more findings" in text


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

    assert len(top.splitlines()) <= 14
    assert len(lines) <= 5
    assert "were not evaluated" in top or _plain(verdict.how_many) in top
    said = headline(report)
    for text in (_plain(top.replace("\\", "")), _plain("\n".join(lines))):
        assert _plain(said.sentence) in text
        assert _plain(said.second) in text
        if verdict.advice:
            assert verdict.advice_head in text
            assert _plain(verdict.advice[0]) in text
    assert JARGON.findall(top + "\n".join(lines)) == []


def _plain(text: str) -> str:
    """A text without ends of code, its blanks those of Markdown."""
    return text.replace("`", "").replace("\u00a0", " ")
