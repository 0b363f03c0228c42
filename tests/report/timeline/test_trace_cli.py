"""``make-report trace``."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobreport import open_job
from tests.paths import ROOT
from tests.report.timeline.test_trace import checked

SAMPLE = ROOT / "sample_data" / "cpu-bottleneck-2gpu"


def trace(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jobreport", "trace", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_trace_is_written_and_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    options = ["--job-dir", str(SAMPLE), "-o", str(file), "--steps", "40:42", "--metric", "gpu_utilization"]
    done, again = trace(*options), trace(*options)

    assert (done.returncode, done.stdout) == (0, f"{file}\n")
    rows = checked(gzip.decompress(file.read_bytes()))
    assert {row["args"]["step"] for row in rows if row.get("cat") == "step"} == {40, 41}
    assert {row["name"] for row in rows if row["ph"] == "C"} == {"GPU"}
    assert (again.returncode, again.stdout, "--force" in again.stderr) == (2, "", True)


@pytest.mark.parametrize(
    "options",
    [
        *(["--steps", "4000:"], ["--steps", "a"], ["--metric", "gpu"], ["--start", "soon"], ["--limit", "5"]),
        *(["--source", "gpu"], ["--every", "soon"]),
    ],
)
def test_what_cannot_be_is_a_sentence(options: list[str], tmp_path: Path) -> None:
    done = trace("--job-dir", str(SAMPLE), "-o", str(tmp_path / "trace.json"), *options)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.iterdir()]


def test_fewer_samples_are_written_if_they_are_asked_for(tmp_path: Path) -> None:
    file, job = tmp_path / "trace.json", open_job(SAMPLE)
    options = ["--source", "python", "--every", "10s", "--metric", "gpu_utilization"]
    assert trace("--job-dir", str(SAMPLE), "-o", str(file), *options).returncode == 0
    rows = checked(file.read_bytes())
    bins = job.samples("gpu_utilization", every="10s").dropna()["time_us"]
    assert len([row for row in rows if row["ph"] == "C"]) == bins.nunique()


def test_the_findings_of_the_page_are_in_it(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert trace("--job-dir", str(SAMPLE), "-o", str(file)).returncode == 0
    found = json.loads((ROOT / "tests/golden/cpu-bottleneck-2gpu.json").read_bytes())["verdict"]["findings"]
    marks = [row["name"] for row in checked(file.read_bytes()) if row.get("cat") == "finding"]
    assert {one["title"] for one in found if one["start_us"]} == {*marks} - {
        f"{one['title']}: ends" for one in found
    }
