"""Reports that are written to object storage: whole or not at all, whoever else writes, and whenever a run dies."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobreport.storage import publishing
from tests.report.storage.jobs import log
from tests.report.storage.servers import Bucket, Fault, Proxy, Request
from tests.report.test_cli import COMMAND, make_report
from tests.report.test_compare_cli import compare

OPTIONS = ("--formats", "json,md,html", "--select", "BatchSize,IdleGaps", "--quiet")
QUICK = ("--formats", "json,md", "--select", "BatchSize,IdleGaps", "--quiet")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "my-job"
    folder.mkdir()
    (folder / "gpu.csv").write_bytes(log())
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "other-job"
    folder.mkdir()
    (folder / "gpu.csv").write_bytes(log(1, 200))
    return folder


def write(job: Path, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    return make_report("--job-dir", job, "--out", out, *QUICK, *options)


def manifest(bucket: Bucket, folder: str = "r") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bucket.get(f"{folder}/report.manifest.json") or b"{}")
    return found


def what_a_reader_sees(bucket: Bucket) -> str:
    """The name of the job, or why there is no report: as the manifest says, and never a mixture."""
    about = manifest(bucket)
    if about.get("state") != "complete":
        return str(about.get("state", "nothing"))
    for name, known in about["files"].items():
        data = bucket.get(f"r/{name}") or b""
        assert (len(data), hashlib.sha256(data).hexdigest()) == (known["size"], known["sha256"]), name
    report = json.loads(bucket.get("r/report.json") or b"")
    return str(report["job"]["name"])


def test_the_page_comes_last_and_the_manifest_around_all(job: Path, bucket: Bucket, proxy: Proxy) -> None:
    out = f"s3://{bucket.name}/r"
    done = make_report("--job-dir", job, "--out", out, *OPTIONS, "--strict")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}/report.html\n", "")
    puts = [one for one in proxy.requests if one.kind == "PUT"]
    names = [one.path.removeprefix(f"{bucket.name}/r/") for one in puts]
    assert [names[0], *names[-2:]] == ["report.manifest.json", "report.html", "report.manifest.json"]
    assert sorted(names[1:-2]) == [
        "report.json",
        "rules/more/BatchSize.json",
        "rules/more/IdleGaps.json",
        "summary.md",
    ]
    kinds = {
        name: (one.headers["content-type"], one.headers["cache-control"])
        for name, one in zip(names, puts, strict=True)
    }
    assert kinds["report.html"] == ("text/html; charset=utf-8", "no-cache")
    assert kinds["report.json"] == ("application/json", "no-cache")
    assert not [
        name for one in puts for name in one.headers if "acl" in name or name == "content-disposition"
    ]
    assert puts[0].headers["if-none-match"] == "*"
    assert "if-match" in puts[-1].headers
    assert what_a_reader_sees(bucket) == "my-job"
    local = make_report("--job-dir", job, "--out", job.parent / "local", *OPTIONS)
    assert local.returncode == 0
    for name in ("report.json", "summary.md", "rules/more/BatchSize.json"):
        assert bucket.get(f"r/{name}") == (job.parent / "local" / name).read_bytes()


def test_a_report_is_replaced_with_force_only_and_nothing_else_is_removed(
    job: Path, other: Path, bucket: Bucket, proxy: Proxy
) -> None:
    out = f"s3://{bucket.name}/r"
    write(job, out)
    for key in ("r/mine.txt", "r/rules/mine.json.bak", "r2/report.json"):
        bucket.put(key, b"of somebody else")
    proxy.reset()

    refused = write(other, out)
    assert refused.returncode == 2
    assert "already contains a report. Use --force" in refused.stderr
    assert proxy.count("PUT") == 0
    assert what_a_reader_sees(bucket) == "my-job"

    forced = make_report(
        "--job-dir", other, "--out", out, "--formats", "json", "--select", "IdleGaps", "--force"
    )
    assert forced.returncode == 0
    assert what_a_reader_sees(bucket) == "other-job"
    assert bucket.listed() == [
        "r/mine.txt",
        "r/report.json",
        "r/report.manifest.json",
        "r/rules/mine.json.bak",
        "r/rules/more/IdleGaps.json",
        "r2/report.json",
    ]


@pytest.mark.slow
def test_a_report_that_was_copied_there_is_not_replaced_without_force(
    job: Path, bucket: Bucket, proxy: Proxy
) -> None:
    bucket.put("r/report.json", b"{}")

    refused = write(job, f"s3://{bucket.name}/r")

    assert refused.returncode == 2
    assert bucket.listed() == ["r/report.json"]


@pytest.mark.parametrize(
    "put",
    [pytest.param(0, id="at the first put"), pytest.param(3, id="later", marks=pytest.mark.slow)],
)
def test_of_two_writers_at_once_one_succeeds(
    put: int, job: Path, other: Path, bucket: Bucket, proxy: Proxy
) -> None:
    """Another run begins and ends in front of a put; later it can do so with --force only."""
    out, puts = f"s3://{bucket.name}/r", []
    direct = {**os.environ, "AWS_ENDPOINT_URL": proxy.server}

    def run() -> None:
        command = [*COMMAND, "--job-dir", str(other), "--out", out, *QUICK, *(["--force"] if put else [])]
        subprocess.run(command, check=True, env=direct, capture_output=True)

    def in_between(asked: Request) -> Fault | None:
        puts.append(asked) if asked.kind == "PUT" else None
        return Fault(before=run) if asked.kind == "PUT" and len(puts) == put + 1 else None

    proxy.fault = in_between
    done = write(job, out)

    assert done.returncode == 2
    assert "already contains a report" in done.stderr
    about = manifest(bucket)
    assert about["state"] == "complete"
    if put == 0:
        assert what_a_reader_sees(bucket) == "other-job"


@pytest.mark.slow
def test_an_answer_that_is_lost_is_not_taken_for_another_run(job: Path, bucket: Bucket, proxy: Proxy) -> None:
    puts: list[Request] = []

    def lose(asked: Request) -> Fault | None:
        if asked.kind != "PUT" or not asked.path.endswith("manifest.json"):
            return None
        puts.append(asked)
        return Fault(lost=True) if len(puts) in (1, 3) else None

    proxy.fault = lose
    done = write(job, f"s3://{bucket.name}/r")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(puts) == 4
    assert what_a_reader_sees(bucket) == "my-job"


@pytest.mark.slow
def test_a_run_that_died_is_taken_over_after_an_hour_or_by_force(
    job: Path, other: Path, bucket: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = f"s3://{bucket.name}/r"
    write(job, out)
    dead = {
        "state": "writing",
        "id": "1",
        "older": ["summary.md", "rules/more/BatchSize.json", "../x", "mine.txt"],
    }
    bucket.put("r/report.manifest.json", json.dumps(dead).encode())
    bucket.put("r/mine.txt", b"of somebody else")

    soon = write(other, out)
    monkeypatch.setattr(publishing, "_DEAD_S", -1)
    late = make_report("--job-dir", other, "--out", out, "--formats", "json", "--select", "IdleGaps")

    assert soon.returncode == 2
    assert "Another run writes to" in soon.stderr
    assert late.returncode == 0
    assert what_a_reader_sees(bucket) == "other-job"
    # Files of the report before are removed, and no others.
    assert "r/mine.txt" in bucket.listed()
    assert "r/rules/more/BatchSize.json" not in bucket.listed()


def kill(puts_before: int, job: Path, bucket: Bucket, proxy: Proxy) -> None:
    """Run until it has put as many objects, and kill it."""
    runs: list[subprocess.Popen[bytes]] = []
    puts: list[str] = []

    def end() -> None:
        runs[0].send_signal(signal.SIGKILL)
        runs[0].wait()

    def fault(asked: Request) -> Fault | None:
        if asked.kind != "PUT":
            return None
        puts.append(asked.path)
        if puts_before == 0:
            return Fault(before=end, status=503)
        return Fault(after=end) if len(puts) == puts_before else None

    proxy.fault = fault
    command = [*COMMAND, "--job-dir", str(job), "--out", f"s3://{bucket.name}/r", *QUICK, "--force"]
    runs.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    runs[0].wait()
    proxy.reset()
    assert len(puts) >= puts_before


@pytest.mark.parametrize(
    ("puts", "seen"),
    [
        pytest.param(0, "my-job", marks=pytest.mark.slow),
        pytest.param(1, "writing", marks=pytest.mark.slow),
        (2, "writing"),
        *(pytest.param(i, "writing", marks=pytest.mark.slow) for i in (3, 4, 5)),
        pytest.param(6, "other-job", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_leaves_no_mixture(
    puts: int, seen: str, job: Path, other: Path, bucket: Bucket, proxy: Proxy
) -> None:
    out = f"s3://{bucket.name}/r"
    write(job, out)

    kill(puts, other, bucket, proxy)

    assert what_a_reader_sees(bucket) == seen
    assert write(other, out, "--force").returncode == 0
    assert what_a_reader_sees(bucket) == "other-job"


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "strict"])
def test_a_store_without_conditions_is_written_with_a_warning(
    strict: bool, job: Path, bucket: Bucket, proxy: Proxy
) -> None:
    proxy.fault = lambda asked: (
        Fault(501, "NotImplemented")
        if {"if-match", "if-none-match"} & {*asked.headers} and asked.kind == "PUT"
        else None
    )
    done = write(job, f"s3://{bucket.name}/r", *(["--strict"] if strict else []))

    assert done.returncode == (2 if strict else 0)
    assert done.stderr.count("has no conditional writes") == 1
    assert what_a_reader_sees(bucket) == ("nothing" if strict else "my-job")


@pytest.mark.slow
def test_no_permission_leaves_nothing(job: Path, bucket: Bucket, proxy: Proxy) -> None:
    proxy.fault = lambda asked: Fault(403, "AccessDenied") if asked.kind == "PUT" else None

    done = write(job, f"s3://{bucket.name}/r", "--strict")

    assert done.returncode == 2
    assert f"No permission for s3://{bucket.name} (HTTP 403 (AccessDenied))." in done.stderr
    assert bucket.listed() == []


def test_runs_in_storage_are_compared(
    job: Path, other: Path, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """A report, a report.json, and a job; the comparison is that of local copies."""
    for name in ("a", "b"):
        write(job if name == "a" else other, f"s3://{bucket.name}/reports/{name}")
    bucket.put("jobs/third/gpu.csv", log(2, 300))
    (tmp_path / "third").mkdir()
    (tmp_path / "third/gpu.csv").write_bytes(log(2, 300))
    write(job, str(tmp_path / "a"))
    write(other, str(tmp_path / "b"))
    options = ("--formats", "json,md", "--quiet")
    base = f"s3://{bucket.name}"

    local = compare(
        f"a={tmp_path}/a",
        f"b={tmp_path}/b/report.json",
        f"third={tmp_path}/third",
        "--out",
        tmp_path / "c",
        *options,
        cwd=tmp_path,
    )
    remote = compare(
        f"a={base}/reports/a",
        f"b={base}/reports/b/report.json",
        f"third={base}/jobs/third",
        "--out",
        f"{base}/c",
        *options,
        cwd=tmp_path,
    )

    assert (local.returncode, remote.returncode, remote.stderr) == (0, 0, "")
    assert remote.stdout == f"{base}/c/comparison.md\n"
    made = [
        json.loads(data)
        for data in ((tmp_path / "c/comparison.json").read_bytes(), bucket.get("c/comparison.json") or b"")
    ]
    assert made[1].pop("command") == (
        f"compare-reports a={base}/reports/a b={base}/reports/b/report.json third={base}/jobs/third"
    )
    made[0].pop("command")
    assert made[0] == made[1]
    assert json.loads(bucket.get("c/comparison.manifest.json") or b"")["state"] == "complete"


@pytest.mark.parametrize(
    "state",
    ["other size", *(pytest.param(one, marks=pytest.mark.slow) for one in ("writing", "damaged"))],
)
def test_a_report_that_is_being_written_is_not_compared(
    state: str, job: Path, other: Path, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    write(job, f"s3://{bucket.name}/r")
    about = manifest(bucket) | ({"state": "writing"} if state == "writing" else {})
    bucket.put("r/report.manifest.json", b"{" if state == "damaged" else json.dumps(about).encode())
    if state == "other size":
        bucket.put("r/report.json", (bucket.get("r/report.json") or b"") + b" ")

    done = compare(f"s3://{bucket.name}/r", other, "--out", tmp_path / "c", cwd=tmp_path)

    assert done.returncode == 2
    assert f"The report at s3://{bucket.name}/r is being written." in done.stderr
