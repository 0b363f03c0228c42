"""The visible text of each section, of sample jobs and made ones. See README.md beside this file."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobreport import document, pipeline
from jobreport.options import Options
from jobreport.page.sections import Fragment
from tests.copies import replace
from tests.golden.visible import Visible
from tests.paths import SAMPLES
from tests.report.debugger_report.made_results import Made
from tests.report.page.sections import examples, test_comparison, test_recordings, test_sections

GOLDEN = Path(__file__).parent
TEXTS = GOLDEN / "sections"
#: Of the examples of a report and of a comparison.
REPORTS = ("gpu", "cpu", "idle", "many", "single", "empty", "captures")
COMPARISONS = ("priced", "repeats", "traces", "twelve")
#: What differs from one version to the next, or is the same in all jobs and held elsewhere.
LEFT_OUT = ("style", "contents", "live_figures")
SAMPLE_NAMES = tuple(path.name for path in SAMPLES)
JOBS = (*SAMPLE_NAMES, *REPORTS, "debugger", "recorder", *(f"comparison-{name}" for name in COMPARISONS))


def sections_of(job: str, folder: Path) -> dict[str, Fragment]:
    """The sections of a job by their names."""
    if job.startswith("comparison-"):
        found = test_comparison.EXAMPLES[job.removeprefix("comparison-")]()
        of_pair: dict[str, Callable[[Any], Fragment]] = dict(test_comparison.CALLS)
        return {name: call(found) for name, call in of_pair.items() if name not in LEFT_OUT}
    report = report_of(job, folder)
    of_report = [call for call in test_sections.CALLS if call.__name__ not in LEFT_OUT]
    if job == "recorder":
        of_report = [call for call in of_report if call.__name__ in ("quality", "goodput")]
    return {call.__name__: call(report) for call in of_report}


def report_of(job: str, folder: Path) -> document.Report:
    if job in SAMPLE_NAMES:
        return document.load(GOLDEN / f"{job}.json")
    if job == "debugger":
        directory = Made.of("data-loading", 1).write(folder / "job", "results")
        pipeline.make_report(directory, folder / "out", Options(formats=["json"]))
        return replace(
            document.load(folder / "out" / "report.json"), command="make-report", version="scrubbed"
        )
    if job == "recorder":
        return test_recordings.report_of(
            test_recordings.recording(
                "algo-1",
                test_recordings.run(0, ended_by="signal:9", exit_status=137, dropped_samples=1000),
                test_recordings.run(1),
            )
        )
    return examples.ALL[job]()


@pytest.mark.parametrize("job", JOBS)
def test_the_sections_say_what_they_said(job: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    made = {f"{name}.txt": Visible.of(one) for name, one in sections_of(job, tmp_path).items()}
    folder = TEXTS / job
    if request.config.getoption("--accept-golden"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.txt"):
            path.unlink()
        for name, text in made.items():
            (folder / name).write_text(text, "utf-8")
    golden = {path.name: path.read_text("utf-8") for path in folder.glob("*.txt")}
    diff = [
        line
        for name in sorted(golden.keys() | made.keys())
        for line in difflib.unified_diff(
            golden.get(name, "").splitlines(),
            made.get(name, "").splitlines(),
            f"{job}/{name}",
            "made now",
            lineterm="",
            n=1,
        )
    ]
    assert not diff, "\n".join([*diff[:80], f"{len(diff)} lines differ; accept them with: make golden"])
