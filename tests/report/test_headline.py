"""The first lines of page, ``summary.md``, and terminal are about one thing, and say how much time it is about."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jobreport.document import Report
from jobreport.headline import headline
from jobreport.output import summary
from jobreport.page import sections
from jobrules.model import Metric
from jobrules.text import NBSP, rounded_percent
from tests.captured_jobs import job_of, training
from tests.jobs import make_job, make_panel, make_steps
from tests.learning_data import learning_job, scalars
from tests.paths import SAMPLES
from tests.report.output.test_summary import report_of
from tests.report.page.sections.html import read
from tests.report.page.sections.test_one_voice import made_report
from tests.report.page.sections.test_one_voice import read as read_report
from tests.rules.diagnosis_jobs import CAUSES


def plain(text: str) -> str:
    """Without what only Markdown or the page has."""
    return " ".join(re.sub(r"[`\\*]", "", text).replace(NBSP, " ").replace("‑", "-").split())


def said(report: Report) -> str:
    """The first line, which is the same everywhere, as is the second."""
    lines = headline(report)
    page = read(sections.verdict(report))
    ticket = plain(summary.markdown(report))

    assert plain(summary.terminal(report)[0]) == plain(lines.sentence)
    assert plain(lines.second) in plain(summary.terminal(report)[1])
    assert f"{plain(lines.sentence)} {plain(lines.second)}".strip() in ticket
    assert plain(page.text).startswith(plain(lines.sentence))
    assert plain(lines.second) in plain(page.text).replace(" %", "%")
    return plain(lines.sentence)


def names_one_cause(report: Report) -> None:
    sentence, lead = said(report), report.verdict.lead
    if lead is None:
        return
    assert sentence.endswith(f"{plain(lead.title)}.")
    assert plain(read(sections.findings(report)).text).split(" ", 1)[1].find(plain(lead.title)) >= 0
    assert lead is report.verdict.findings[0]
    explained = [p for p in (report.verdict.use or report.verdict.profiled).parts if p.finding == lead.key]  # type: ignore[union-attr]
    if explained:
        assert headline(report).number == rounded_percent(sum(part.percent for part in explained))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: one.name)
def test_a_sample_names_one_cause(sample: Path) -> None:
    report = read_report(sample)
    assert report is not None
    names_one_cause(report)


@pytest.mark.parametrize(
    "cause",
    [pytest.param(name, marks=() if i % 3 == 0 else pytest.mark.slow) for i, name in enumerate(CAUSES)],
)
def test_a_made_job_names_one_cause(cause: str) -> None:
    names_one_cause(made_report(cause))


def edge(start_up: float, idle: float, low: float) -> Report:
    """No GPU works for a share of 2,000 s, then it is idle for a share without any cause."""
    n = 2000
    gpu = np.full(n, 95.0)
    gpu[: round(start_up * n)] = 0.0
    rest = np.arange(round(start_up * n), n)
    gpu[rest[:: max(1, round(len(rest) / (idle * n)))]] = low
    return report_of(make_job(gpu=gpu, interval_s=1))


@pytest.mark.parametrize(
    ("start_up", "idle", "first"),
    [(0.3, 0.25, "No GPU worked in the first 10 min"), (0.22, 0.5, "The GPU was idle or low")],
)
def test_a_known_cause_comes_first_unless_most_of_the_loss_has_none(
    start_up: float, idle: float, first: str
) -> None:
    report = edge(start_up, idle, 0.0)

    assert {one.key for one in report.verdict.findings} >= {"start-up", "unexplained"}
    assert said(report).startswith(first)


def test_what_is_too_short_has_no_large_number_of_a_cause() -> None:
    report = report_of(make_job(gpu=[[0.0] * 7 + [95.0]] * 2, interval_s=14))

    assert said(report).startswith("Too short to judge: ")
    assert report.verdict.findings == ()


def test_a_busy_job_has_nothing_to_fix() -> None:
    report = report_of(make_job(gpu=[97.0] * 800, cpu=[[40.0] * 4] * 800, interval_s=1))

    assert said(report) == "Nothing to fix seen: the GPU was busy."
    assert headline(report).second.startswith("97% of GPU time was used in ")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("loss", "Nothing to fix seen in the training itself."),
        ("box", "Little is known of the training itself: no loss was found (--scalar loss=NAME)."),
    ],
)
def test_a_training_is_not_cleared_without_a_loss(name: str, sentence: str) -> None:
    report = report_of(learning_job(scalars(np.linspace(2, 1, 200).tolist(), name)))

    assert said(report) == sentence


@pytest.mark.parametrize(
    ("cause", "share", "sentence"),
    [
        ("host", 0.12, "Nothing to fix seen: the GPU computed most of the profiled time."),
        ("copy", 0.3, "The GPU copied while nothing was computed."),
        ("communication", 0.3, "The GPU communicated while nothing was computed."),
    ],
)
def test_the_first_line_of_traces_does_not_say_that_a_part_is_all(
    tmp_path: Path, cause: str, share: float, sentence: str
) -> None:
    assert said(report_of(job_of(tmp_path, training(cause, share)))) == sentence


def test_what_a_busy_gpu_lacks_is_not_named_beside_a_loss() -> None:
    gpu = np.full(2000, 88.0)
    gpu[:1600:4] = 0.0
    report = report_of(make_job(gpu=gpu, interval_s=1))

    assert report.verdict.use
    assert {one.key: one.percent for one in report.verdict.use.parts}["busy"] > 5
    assert "Another" not in headline(report).second


def test_cores_alone_say_when_they_waited_for_io() -> None:
    wait = np.full((800, 4), 1.0)
    for start in (100, 300, 500):
        wait[start : start + 8] = 30.0
    report = report_of(make_job(cpu=np.full((800, 4), 73.0), io_wait=wait, interval_s=1))

    assert said(report) == "Nothing to fix seen: the CPU was busy; no rule was evaluated."
    assert "waited for I/O 3 times, for about 8 s each (30.0% of their time then)" in plain(
        headline(report).second
    )


def test_a_hot_gpu_is_said_of_a_job_that_is_too_short_for_all_else() -> None:
    n = 40
    metrics = (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_CLOCK)
    hot = [
        make_panel(metric, [[one]] * n, interval_s=1)
        for metric, one in zip(metrics, (100.0, 900.0), strict=True)
    ]
    report = report_of(make_job(gpu=[97.0] * n, interval_s=1, extra=hot))

    assert report.verdict.lead
    assert said(report) == f"{report.verdict.lead.title}. All else is too short to judge: 39 s of GPU work."


def test_what_waits_for_data_is_not_cleared_without_a_record_of_it() -> None:
    steps = make_steps([(float(t), t + 1.0) for t in range(700)])
    unknown = report_of(make_job(cpu=np.full((800, 4), 90.0), steps=steps, interval_s=1))
    busy = report_of(make_job(gpu=[97.0] * 800, steps=steps, interval_s=1))

    assert said(unknown) == "No cause found, but waits for data were not measured."
    # A GPU that is busy waits for nothing.
    assert said(busy) == "Nothing to fix seen: the GPU was busy."
