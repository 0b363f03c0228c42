"""Reports that are written to object storage: whole or not at all, whoever else writes, and whenever a run dies."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jobreport.errors import UsageError
from jobreport.options import Options
from jobreport.storage import publishing
from jobreport.storage.urls import Url
from tests.report.storage.jobs import log
from tests.report.storage.servers import Bucket, Fault, Proxy, Request
from tests.report.test_cli import CODE, make_report
from tests.report.test_compare_cli import compare

NAMES = ("report.html", "report.json", "rules/BatchSize.json", "rules/more/IdleGaps.json", "summary.md")


def files(name: str, names: tuple[str, ...] = NAMES) -> dict[str, bytes]:
    """The files of a report of this name."""
    return {one: f"{name}: {one}".encode() for one in names}


def write(
    name: str, bucket: Bucket, *, force: bool = False, strict: bool = False, names: tuple[str, ...] = NAMES
) -> str:
    """Write a report; returns the error, or a warning."""
    warnings = io.StringIO()
    try:
        with contextlib.redirect_stderr(warnings):
            put = publishing.reserved(Url("s3", bucket.name, "r"), Options(force=force, strict=strict))
            put(files(name, names))
    except UsageError as error:
        return str(error)
    return warnings.getvalue()


def manifest(bucket: Bucket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bucket.get("r/report.manifest.json") or b"{}")
    return found


def seen(bucket: Bucket) -> str:
    """The report that a reader sees, or why there is none: as the manifest says, and never a mixture."""
    about = manifest(bucket)
    if about.get("state") != "complete":
        return str(about.get("state", "nothing"))
    names = set()
    for name, known in about["files"].items():
        data = bucket.get(f"r/{name}") or b""
        assert (len(data), hashlib.sha256(data).hexdigest()) == (known["size"], known["sha256"]), name
        names.add(data.partition(b":")[0].decode())
    (one,) = names
    return one


def test_the_page_comes_last_and_the_manifest_around_all(bucket: Bucket, proxy: Proxy) -> None:
    assert write("first", bucket) == ""

    puts = [one for one in proxy.requests if one.kind == "PUT"]
    names = [one.path.removeprefix(f"{bucket.name}/r/") for one in puts]
    assert (names[0], *names[-2:]) == ("report.manifest.json", "report.html", "report.manifest.json")
    assert sorted(names[1:-1]) == sorted(NAMES)
    kinds = {one.path.rpartition(".")[2]: one.headers["content-type"] for one in puts}
    assert kinds == {
        "html": "text/html; charset=utf-8",
        "json": "application/json",
        "md": "text/markdown; charset=utf-8",
    }
    assert {one.headers["cache-control"] for one in puts} == {"no-cache"}
    assert not [n for one in puts for n in one.headers if "acl" in n or n == "content-disposition"]
    assert puts[0].headers["if-none-match"] == "*"
    assert "if-match" in puts[-1].headers
    assert seen(bucket) == "first"


def test_a_report_is_replaced_with_force_only_and_nothing_else_is_removed(
    bucket: Bucket, proxy: Proxy
) -> None:
    write("first", bucket)
    for key in ("r/mine.txt", "r/rules/mine.json.bak", "r2/report.json"):
        bucket.put(key, b"of somebody else")
    proxy.reset()

    assert "already contains a report. Use --force" in write("second", bucket)
    assert proxy.count("PUT") == 0
    assert seen(bucket) == "first"

    assert write("second", bucket, force=True, names=("report.json", "rules/more/IdleGaps.json")) == ""
    assert seen(bucket) == "second"
    assert bucket.listed() == [
        "r/mine.txt",
        "r/report.json",
        "r/report.manifest.json",
        "r/rules/mine.json.bak",
        "r/rules/more/IdleGaps.json",
        "r2/report.json",
    ]


@pytest.mark.slow
def test_a_junit_file_of_another_program_is_not_replaced(bucket: Bucket, proxy: Proxy) -> None:
    names = (*NAMES, "junit.xml")
    options = Options(force=True, formats=("json", "junit"))
    bucket.put("r/junit.xml", b"of a test")

    def put(name: str) -> None:
        publishing.reserved(Url("s3", bucket.name, "r"), options)(files(name, names))

    with pytest.raises(UsageError, match=r"contains junit\.xml, which make-report did not write"):
        put("1")
    assert bucket.get("r/junit.xml") == b"of a test"
    bucket.delete("r/junit.xml")
    put("1")
    put("2")
    assert bucket.get("r/junit.xml") == b"2: junit.xml"


def test_a_report_that_was_copied_there_is_not_replaced_without_force(bucket: Bucket, proxy: Proxy) -> None:
    bucket.put("r/report.json", b"{}")

    assert "already contains a report" in write("first", bucket)
    assert bucket.listed() == ["r/report.json"]


@pytest.mark.parametrize(
    ("put", "words"),
    [
        pytest.param(0, "already contains a report", id="at the first put"),
        pytest.param(3, "files of both may stand there", id="later, with force"),
    ],
)
def test_of_two_writers_at_once_one_succeeds(
    put: int, words: str, bucket: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run begins and ends in front of a put."""
    puts: list[Request] = []

    def other_run() -> None:
        proxy.fault = lambda _: None
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server)
        other = threading.Thread(target=lambda: write("second", bucket, force=put > 0))
        other.start()
        other.join()

    def in_between(asked: Request) -> Fault | None:
        if asked.kind == "PUT":
            puts.append(asked)
        return Fault(before=other_run) if len(puts) == put + 1 else None

    proxy.fault = in_between

    assert words in write("first", bucket)
    assert manifest(bucket)["state"] == "complete"
    if put == 0:
        assert seen(bucket) == "second"


@pytest.mark.slow
def test_an_answer_that_is_lost_is_not_taken_for_another_run(bucket: Bucket, proxy: Proxy) -> None:
    puts: list[Request] = []

    def lose(asked: Request) -> Fault | None:
        if asked.kind != "PUT" or not asked.path.endswith("manifest.json"):
            return None
        puts.append(asked)
        return Fault(lost=True) if len(puts) in (1, 3) else None

    proxy.fault = lose

    assert write("first", bucket) == ""
    assert len(puts) == 4
    assert seen(bucket) == "first"


@pytest.mark.slow
def test_a_run_that_died_is_taken_over_after_an_hour(
    bucket: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("first", bucket)
    dead = {"state": "writing", "id": "1", "older": [*NAMES, "../x", "mine.txt"]}
    bucket.put("r/report.manifest.json", json.dumps(dead).encode())
    bucket.put("r/mine.txt", b"of somebody else")

    assert "Another run writes to" in write("second", bucket)

    monkeypatch.setattr(publishing, "_DEAD_S", -1)
    assert write("second", bucket, names=("report.json",)) == ""
    assert seen(bucket) == "second"
    # Files of the report before are removed, and no others.
    assert bucket.listed() == ["r/mine.txt", "r/report.json", "r/report.manifest.json"]


@pytest.mark.parametrize(
    ("puts", "left"),
    [
        pytest.param(0, "first", marks=pytest.mark.slow),
        (1, "writing"),
        *(pytest.param(i, "writing", marks=pytest.mark.slow) for i in range(2, 7)),
        pytest.param(7, "second", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_leaves_no_mixture(puts: int, left: str, bucket: Bucket, proxy: Proxy) -> None:
    write("first", bucket)
    runs: list[subprocess.Popen[bytes]] = []
    asked_for: list[Request] = []

    def kill() -> None:
        runs[0].send_signal(signal.SIGKILL)
        runs[0].wait()

    def fault(asked: Request) -> Fault | None:
        if asked.kind != "PUT":
            return None
        asked_for.append(asked)
        if puts == 0:
            return Fault(before=kill, status=503)
        return Fault(after=kill) if len(asked_for) == puts else None

    proxy.fault = fault
    code = f"{CODE}sys.path[:0] = ['.']; from tests.report.storage.test_publishing import *; "
    code += (
        f"bucket = Bucket.__new__(Bucket); bucket.name = {bucket.name!r}; write('second', bucket, force=True)"
    )
    runs.append(subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3]))
    status = runs[0].wait()
    proxy.reset()

    assert status == -signal.SIGKILL
    assert seen(bucket) == left
    assert write("second", bucket, force=True) == ""
    assert seen(bucket) == "second"


@pytest.mark.slow
def test_a_large_file_is_one_request_so_no_part_of_it_stays(bucket: Bucket, proxy: Proxy) -> None:
    put = publishing.reserved(Url("s3", bucket.name, "r"), Options())
    proxy.fault = lambda asked: Fault(503) if asked.path.endswith("html") else None

    with pytest.raises(UsageError, match="HTTP 503"):
        put({"report.json": b"1" * (20 << 20), "report.html": b"2" * (20 << 20)})

    assert len(bucket.get("r/report.json") or b"") == 20 << 20
    assert [one.method for one in proxy.requests if one.path.endswith("r/report.json")] == ["PUT"]
    assert "<Upload>" not in bucket.uploads()
    assert seen(bucket) == "writing"


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "strict"])
def test_a_store_without_conditions_is_written_with_a_warning(
    strict: bool, bucket: Bucket, proxy: Proxy
) -> None:
    proxy.fault = lambda asked: (
        Fault(501, "NotImplemented")
        if {"if-match", "if-none-match"} & {*asked.headers} and asked.kind == "PUT"
        else None
    )

    assert write("first", bucket, strict=strict).count("has no conditional writes") == 1
    assert seen(bucket) == ("nothing" if strict else "first")


@pytest.mark.slow
def test_no_permission_leaves_nothing(bucket: Bucket, proxy: Proxy) -> None:
    proxy.fault = lambda asked: Fault(403, "AccessDenied") if asked.kind == "PUT" else None

    assert write("first", bucket) == f"No permission for s3://{bucket.name} (HTTP 403 (AccessDenied))."
    assert bucket.listed() == []


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "my-job").mkdir()
    (tmp_path / "my-job/gpu.csv").write_bytes(log())
    return tmp_path / "my-job"


QUICK = ("--formats", "json,md", "--quiet", "--strict")


@pytest.mark.parametrize(
    "state", ["other size", *(pytest.param(one, marks=pytest.mark.slow) for one in ("writing", "damaged"))]
)
def test_a_report_that_is_being_written_is_not_compared(
    state: str, job: Path, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    write("first", bucket, names=("report.json",))
    about = manifest(bucket) | ({"state": "writing"} if state == "writing" else {})
    bucket.put("r/report.manifest.json", b"{" if state == "damaged" else json.dumps(about).encode())
    if state == "other size":
        bucket.put("r/report.json", b"{}")

    done = compare(f"s3://{bucket.name}/r", job, "--out", tmp_path / "c", *QUICK, cwd=tmp_path)

    assert done.returncode == 2
    assert f"The report at s3://{bucket.name}/r is being written." in done.stderr


def test_reports_and_comparisons_in_storage_are_those_of_local_copies(
    job: Path, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """A report, and a job."""
    base, out = f"s3://{bucket.name}", ("--out", tmp_path / "c")
    bucket.put("jobs/b/gpu.csv", log(2, 300))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/gpu.csv").write_bytes(log(2, 300))
    make_report("--job-dir", job, "--out", tmp_path / "a", *QUICK)
    done = make_report("--job-dir", job, "--out", f"{base}/reports/a", *QUICK)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{base}/reports/a/summary.md\n", "")
    for file in (tmp_path / "a").rglob("*.*"):
        assert bucket.get(f"reports/a/{file.relative_to(tmp_path / 'a')}") == file.read_bytes()
    here = (f"a={tmp_path}/a", f"b={tmp_path}/b")
    there = (f"a={base}/reports/a/report.json", f"b={base}/jobs/b")

    local = compare(*here, *out, *QUICK, cwd=tmp_path)
    remote = compare(*there, "--out", f"{base}/c", *QUICK, cwd=tmp_path)

    assert (local.returncode, remote.returncode, remote.stderr) == (0, 0, "")
    assert remote.stdout == f"{base}/c/comparison.md\n"
    ours = json.loads((tmp_path / "c/comparison.json").read_bytes())
    theirs = json.loads(bucket.get("c/comparison.json") or b"")
    ours.pop("command")
    assert theirs.pop("command") == " ".join(["compare-reports", *there])
    assert theirs == ours
    assert json.loads(bucket.get("c/comparison.manifest.json") or b"")["state"] == "complete"
