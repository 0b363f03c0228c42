"""Real jobs with nothing but rule results of SageMaker Debugger: each gives a whole report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobreport.document import Origin, Report
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules.model import Status
from tests.paths import CORPUS, needs_corpus
from tests.report.page.sections.html import Page

JOBS = sorted(
    folder.parent.name
    for folder in (CORPUS / "sagemaker").glob("*/vendor-rules")
    if not (folder.parent / "profiler-output").is_dir()
)
#: Four GPUs of which one works; two nodes. ``make test-slow`` has all jobs, and pages.
QUICK = ("job-28", "job-39")
EACH = [pytest.param(job, marks=() if job in QUICK else pytest.mark.slow) for job in JOBS]

pytestmark = needs_corpus


def original(job: str, rule: str) -> dict[str, object]:
    path = CORPUS / "sagemaker" / job / "vendor-rules" / f"{rule}.json"
    content: dict[str, object] = json.loads(path.read_text("utf-8"))
    return content


def test_there_are_such_jobs() -> None:
    assert len(JOBS) > 20


@pytest.mark.parametrize("job", EACH)
def test_every_job_gives_a_report_and_keeps_the_numbers(tmp_path: Path, job: str) -> None:
    outcome = make_report(
        CORPUS / "sagemaker" / job, tmp_path / "out", Options(formats=["json", "md"], strict=True)
    )

    report = outcome.report
    assert report.origin is Origin.DEBUGGER_RESULTS
    assert outcome.failure is None
    assert [source.remarks for source in report.quality.sources] == [()]
    assert {card.name for card in report.rules} >= set(NAMES)
    for card in (card for card in report.rules if card.name in NAMES):
        before = original(job, card.name)
        folder = tmp_path / "out" / "rules" / ("" if card.was_evaluated else "more")
        after = json.loads((folder / f"{card.name}.json").read_text("utf-8"))
        assert {key: after[key] for key in before} == before
        assert (card.triggered, card.datapoints) == (before["RuleTriggered"], before["Datapoints"])
        assert (card.status is Status.TRIGGERED) == (card.triggered > 0)
        assert card.status is not Status.ERROR


@pytest.mark.slow
@pytest.mark.parametrize("job", ["job-10", "job-18", "job-28"])
def test_the_page_is_made(tmp_path: Path, job: str) -> None:
    make_report(CORPUS / "sagemaker" / job, tmp_path / "out", Options(strict=True))

    page = Page.of((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert page.faults == []
    assert (tmp_path / "out" / "report.ipynb").exists()


def report_of(job: str, folder: Path) -> Report:
    return make_report(CORPUS / "sagemaker" / job, folder, Options(formats=["json"])).report


def test_what_is_known_of_one_job(tmp_path: Path) -> None:
    report = report_of("job-28", tmp_path / "out")

    (node,) = report.job.nodes
    assert (node.name, node.gpus) == ("algo-1", 4)
    assert [(box.device, box.p95) for box in report.boxes] == [
        ("gpu0", 85.0), ("gpu1", 0.0), ("gpu2", 0.0), ("gpu3", 0.0)
    ]  # fmt: skip
    assert [round((p.end_us - p.start_us) / 1e6) for p in report.phases.phases] == [115, 419]
    assert {u.rule: str(u.reason) for u in report.verdict.not_evaluated if u.rule in NAMES} == {
        "Dataloader": "loader events not recorded",
        "LoadBalancing": "comparison of GPUs not recorded",
    }


def test_the_rank_and_the_mode_of_outliers_are_named(tmp_path: Path) -> None:
    cards = {card.name: card for card in report_of("job-39", tmp_path / "out").rules}

    assert cards["StepOutlier"].headline.startswith("49\u00a0steps of algo-2-27 (EVAL) were outliers: ")
