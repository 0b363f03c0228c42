"""The visible text of each section, of sample jobs and made ones. See README.md beside this file."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

import pytest

from jobreport import document, pipeline
from jobreport.options import Options
from jobreport.page import sections
from jobreport.page.sections import Fragment, comparison
from jobrules.model.time_parts import TIME_PARTS
from tests.copies import replace
from tests.golden.accepted import hold
from tests.golden.visible import Visible
from tests.paths import SAMPLES
from tests.report.debugger_report.made_results import Made
from tests.report.page.sections import examples, test_comparison, test_recordings

pytestmark = pytest.mark.usefixtures("without_live_plots")

GOLDEN = Path(__file__).parent
TEXTS = GOLDEN / "sections"
#: Of the examples of a report and of a comparison.
REPORTS = ("gpu", "cpu", "idle", "many", "single", "empty", "captures")
COMPARISONS = ("priced", "repeats", "traces", "twelve")
SAMPLE_NAMES = tuple(path.name for path in SAMPLES)
JOBS = (*SAMPLE_NAMES, *REPORTS, "debugger", "recorder", *(f"comparison-{name}" for name in COMPARISONS))


@cache
def sections_of(job: str) -> dict[str, Fragment]:
    """The sections of a job by their names."""
    if job.startswith("comparison-"):
        return comparison.page(test_comparison.EXAMPLES[job.removeprefix("comparison-")]())
    with tempfile.TemporaryDirectory() as folder:
        page = sections.page(report_of(job, Path(folder)))
    return {name: page[name] for name in ("quality", "goodput")} if job == "recorder" else page


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
def test_the_sections_say_what_they_said(job: str, request: pytest.FixtureRequest) -> None:
    folder = TEXTS / job
    made = {
        folder / f"{name.replace('-', '_')}.txt": Visible.of(one) for name, one in sections_of(job).items()
    }
    hold(made, request, folder.glob("*.txt"))


#: Class of a swatch, and its words.
SWATCH = re.compile(
    r'<svg class="sw"[^>]*>\s*<rect class="(\w+)"[^>]*>.*?</svg>(?:<a [^>]*>)?([^<]+)', re.DOTALL
)
#: Sections that show nothing but parts of a time with a color.
OF_TIME = {"verdict", "cost", "goodput", "summary", "profiled_time", "idle_time", "time"}
COLORS = {words: one.fill for one in TIME_PARTS.values() for words in (one.name, one.title, one.of_device)}
#: Boxes of values in the training loop, which are no time.
BOXES = ("u2", "training loop")


@pytest.mark.parametrize("job", JOBS)
def test_a_part_of_time_has_one_name_and_one_color_wherever_it_is_shown(job: str) -> None:
    shown = {
        (name, fill, words.replace("\xa0", " ").strip())
        for name, one in sections_of(job).items()
        for fill, words in SWATCH.findall(one.html)
    }

    others = {
        (name, fill, words)
        for name, fill, words in shown
        # Sampling pauses are hatched, on each node.
        if COLORS.get(words, "" if name in OF_TIME and fill != "x" else fill) != fill
        and (fill, words) != BOXES
    }
    assert not others
