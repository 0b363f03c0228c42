"""A job in object storage that runs: each round fetches what is new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobreport.watching import watch
from tests.report.storage.servers import Bucket, Proxy
from tests.report.test_cli import make_report, sample


@pytest.mark.slow
def test_a_watch_of_a_url_fetches_each_object_once(
    proxy: Proxy, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, top = sample("fluctuating"), "jobs/my-job/profiler-output"
    files = sorted((path for path in job.rglob("*") if path.is_file()), key=lambda path: path.suffix == ".ts")
    parts = [files[5:], files[:5]]

    def pause(*_: object) -> None:
        for file in parts.pop() if parts else ():
            bucket.put(f"{top}/{file.relative_to(job)}", file.read_bytes())

    pause()
    monkeypatch.setattr(watch._Rounds, "_pause", pause)
    monkeypatch.setattr(watch, "_LATE_S", 0.01)

    done = make_report(
        *("--job-dir", f"s3://{bucket.name}/{top}", "--watch", "--formats", "json", "--quiet"), cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "my-job-report/report.json").read_bytes())
    assert (report["job"]["finished"], "made_us" in report) == (True, False)
    assert (proxy.count("LIST"), proxy.count("GET")) == (3, len(files))
