"""Real jobs whose sources are taken away one by one: what is found with fewer is not lost with more."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest

from jobreport.document import Report
from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.pipeline import make_report
from tests.more_sources import lost
from tests.paths import CORPUS, needs_corpus

pytestmark = [needs_corpus, pytest.mark.slow]

JOBS = sorted(
    folder.parent.name
    for folder in (CORPUS / "sagemaker").glob("job-*/vendor-rules")
    if (folder.parent / "profiler-output").is_dir()
)
SOURCES = ("results", "cpu", "gpu")


def copied(job: Path, sources: tuple[str, ...], to: Path) -> Path:
    """The job with some of its sources."""
    to.mkdir()
    if "results" in sources:
        shutil.copytree(job / "vendor-rules", to / "vendor-rules")
    for file in job.glob("profiler-output/**/*.json"):
        lines = [line for line in file.read_text().splitlines() if json.loads(line)["Type"] in sources]
        if lines:
            copy = to / file.relative_to(job)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("\n".join(lines) + "\n")
    return to


def report_of(job: Path, sources: tuple[str, ...], folder: Path) -> Report | None:
    """None if these are no sources of the job."""
    folder.mkdir()
    try:
        return make_report(
            copied(job, sources, folder / "job"), folder / "out", Options(formats=["json"])
        ).report
    except NothingReadableError:
        return None


def test_there_are_jobs_with_several_sources() -> None:
    assert len(JOBS) >= 9


@pytest.mark.parametrize("name", JOBS)
def test_more_sources_never_make_a_worse_verdict(tmp_path: Path, name: str) -> None:
    subsets = [some for n in (1, 2, 3) for some in itertools.combinations(SOURCES, n)]
    reports = {
        some: report_of(CORPUS / "sagemaker" / name, some, tmp_path / "-".join(some)) for some in subsets
    }

    assert not [
        (fewer, more, one)
        for fewer, more in itertools.permutations(subsets, 2)
        if {*fewer} < {*more} and (before := reports[fewer]) and (after := reports[more])
        for one in lost(before, after)
    ]
