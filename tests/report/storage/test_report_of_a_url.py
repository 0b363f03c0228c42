"""Jobs that are read from object storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paths import SAMPLES
from tests.report.storage.servers import Bucket, Proxy
from tests.report.test_cli import make_report

QUICK = ("fluctuating", "late-rank")


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(one, id=one.name, marks=[] if one.name.startswith(QUICK) else pytest.mark.slow)
        for one in SAMPLES
    ],
)
def test_the_report_is_that_of_a_local_copy_but_for_the_command(
    sample: Path, proxy: Proxy, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put_folder(sample, f"jobs/{sample.name}/profiler-output")
    url = f"s3://{bucket.name}/jobs/{sample.name}/profiler-output"
    options = ("--formats", "json,md", "--quiet", "--strict")

    local = make_report("--job-dir", sample, "--out", tmp_path / "local", *options)
    remote = make_report("--job-dir", url, *options, cwd=tmp_path)

    assert (local.returncode, remote.returncode, remote.stderr) == (0, 0, "")
    here, there = tmp_path / "local", tmp_path / f"{sample.name}-report"
    reports = [json.loads((folder / "report.json").read_bytes()) for folder in (here, there)]
    assert reports[1].pop("command") == f"make-report --job-dir {url}"
    assert reports[0].pop("command") == f"make-report --job-dir {sample.name}"
    assert reports[0] == reports[1]
    assert (here / "summary.md").read_bytes() == (there / "summary.md").read_bytes()
    files = sum(path.is_file() for path in sample.rglob("*"))
    assert (proxy.count("LIST"), proxy.count("GET"), len(proxy.requests)) == (1, files, files + 1)
