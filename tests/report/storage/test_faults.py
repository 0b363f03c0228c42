"""What becomes of a job if storage answers late, wrongly, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.storage.jobs import LOGS, MANY, gpus, remarks, report_of
from tests.report.storage.servers import ID, SECRET, Bucket, Fault, Proxy, Request
from tests.report.test_cli import COMMAND

KEY = "job/node-2/gpu.csv"


def first(times: int, fault: Fault, key: str = KEY) -> Callable[[Request], Fault | None]:
    """The fault at the first requests for a key."""
    left = [times]

    def made(asked: Request) -> Fault | None:
        if asked.kind != "GET" or not asked.path.endswith(key) or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return made


@pytest.fixture
def job(bucket: Bucket, request: pytest.FixtureRequest) -> str:
    """A job of three objects, or of many."""
    for name, data in getattr(request, "param", LOGS).items():
        bucket.put(f"job/{name}", data)
    return f"s3://{bucket.name}/job"


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        pytest.param(4, Fault(503, "SlowDown"), id="slow down"),
        pytest.param(2, Fault(500, "InternalError"), id="internal error", marks=pytest.mark.slow),
        pytest.param(2, Fault(429, "TooManyRequests"), id="too many requests", marks=pytest.mark.slow),
        pytest.param(2, Fault(cut=100), id="cut"),
        pytest.param(2, Fault(cut=0), id="nothing", marks=pytest.mark.slow),
        pytest.param(2, Fault(longer=7), id="wrong length", marks=pytest.mark.slow),
        pytest.param(1, Fault(slow=0.0005), id="slow", marks=pytest.mark.slow),
    ],
)
def test_a_fault_that_passes_changes_nothing(
    times: int, fault: Fault, job: str, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.fault = first(times, fault)

    done, report = report_of(job, tmp_path / "o", "--strict")

    assert (done.returncode, done.stderr) == (0, "")
    assert report is not None
    assert remarks(report) == {}
    assert gpus(report) == len(LOGS)
    assert proxy.count("GET") == len(LOGS) + (0 if fault.slow else times)


@pytest.mark.parametrize(
    ("job", "fault", "times", "code", "left"),
    [
        pytest.param(LOGS, Fault(412, "PreconditionFailed"), 1, "storage.changed", 3, id="changed"),
        pytest.param(LOGS, Fault(403, "AccessDenied"), 9, "storage.denied", 2, id="denied"),
        *(
            pytest.param(*one, id=name, marks=pytest.mark.slow)
            for name, one in {
                "gone": (LOGS, Fault(404, "NoSuchKey"), 9, "storage.gone", 2),
                "archived": (LOGS, Fault(403, "InvalidObjectState"), 9, "storage.archived", 2),
                "failed": (MANY, Fault(503, "SlowDown"), 9, "storage.failed", 10),
                "never whole": (MANY, Fault(longer=7), 9, "storage.failed", 10),
            }.items()
        ),
    ],
    indirect=["job"],
)
def test_an_object_that_cannot_be_had_gets_a_remark(
    job: str, fault: Fault, times: int, code: str, left: int, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.fault = first(times, fault)

    done, report = report_of(job, tmp_path / "o")

    assert done.returncode == 0
    assert report is not None
    assert remarks(report) == {code: 1}
    assert gpus(report) == left
    (remark,) = (one for one in report["quality"]["remarks"] if one["code"] == code)
    assert remark["place"] == "node-2/gpu.csv"


@pytest.mark.slow
def test_an_object_that_changes_between_list_and_request_is_read_as_it_is_then(
    job: str, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    longer = LOGS["node-2/gpu.csv"] + b"1767454703,GPU-00000002,50 %\n"
    proxy.fault = first(1, Fault(before=lambda: bucket.put(KEY, longer)))

    _, report = report_of(job, tmp_path / "o")
    proxy.reset()
    _, expected = report_of(job, tmp_path / "sound")

    assert report is not None
    assert expected is not None
    assert remarks(report) == {"storage.changed": 1}
    assert report["job"] == expected["job"]
    assert report["utilization"] == expected["utilization"]


def test_too_many_failures_are_no_report(job: str, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = first(9, Fault(503, "SlowDown"))

    done, report = report_of(job, tmp_path / "o")

    assert (done.returncode, report) == (2, None)
    assert "1\xa0object of 3 could not be fetched" in done.stderr
    assert "HTTP 503 (SlowDown)" in done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(403, "AccessDenied"), "No permission for s3://bucket"),
        pytest.param(Fault(404, "NoSuchBucket"), "Not found: s3://bucket", marks=pytest.mark.slow),
        pytest.param(Fault(503, "SlowDown"), "cannot be used: HTTP 503 (SlowDown)", marks=pytest.mark.slow),
        pytest.param(
            Fault(401, "Unauthorized"), "No credentials for s3:// were found.", marks=pytest.mark.slow
        ),
        (Fault(418, f"{SECRET} Signature"), "cannot be used: HTTP 418."),
    ],
    ids=lambda one: str(one.status) if isinstance(one, Fault) else "",
)
def test_a_list_that_cannot_be_had_is_a_sentence(
    fault: Fault, words: str, job: str, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.fault = lambda asked: fault if asked.kind == "LIST" else None

    done, report = report_of(job, tmp_path / "o", "--strict")

    assert (done.returncode, report) == (2, None)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(one in done.stderr for one in (ID, SECRET, "Signature"))


def test_without_credentials_the_option_for_public_data_is_named(
    job: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    done, _ = report_of(job, tmp_path / "o", "--strict")
    assert proxy.requests == []
    public, _ = report_of(job, tmp_path / "public", "--storage-option", "anon=true")

    assert done.returncode == 2
    assert "No credentials for s3:// were found. Public data: --storage-option anon=true." in done.stderr
    assert {"authorization" in one.headers for one in proxy.requests} == {False}
    # The objects are not public.
    assert public.returncode == 2
    assert "3\xa0objects: no permission for the object" in public.stderr


def test_nothing_travels_over_an_open_line_to_another_machine(
    job: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9")
    by_variable, _ = report_of(job, tmp_path / "o")
    by_option, _ = report_of(job, tmp_path / "o", "--storage-option", "endpoint_url=http://example.invalid")

    for done in (by_variable, by_option):
        assert done.returncode == 2
        assert "has no TLS" in done.stderr


def test_nothing_is_left_that_a_fork_does_not_bear(job: str, proxy: Proxy, tmp_path: Path) -> None:
    before = threads()

    report_of(job, tmp_path / "o")

    assert threads() == before


def threads() -> set[str]:
    """Without those that the proxy looks up addresses in, which come as it needs them."""
    return {one.name for one in threading.enumerate() if not one.name.startswith("asyncio_")}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_ends_it_and_leaves_nothing(
    number: signal.Signals, job: str, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.fault = lambda asked: Fault(slow=1) if asked.kind == "GET" else None
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    run = subprocess.Popen(
        [*COMMAND, "--job-dir", job, "--out", str(tmp_path / "o"), "--formats", "json"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while proxy.count("GET") < 3 and run.poll() is None:
        time.sleep(0.02)
    assert any(temporary.iterdir())
    began = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate(timeout=20)

    assert time.monotonic() - began < 4  # 2 s of a machine that does nothing else
    assert (run.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "make-report: stopped."
    assert not any(temporary.iterdir())
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("url", "module", "words"),
    [
        ("s3://bucket/my job", "s3fs", "s3]'. Or: aws s3 sync 's3://bucket/my job' my-job"),
        pytest.param(
            "gcs://b1/job",
            "gcsfs.core",
            "gs]'. Or: gcloud storage rsync -r gs://b1/job my-job",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "az://b1/job",
            "azure.identity.aio",
            "az]'. Or: az storage blob download-batch -d my-job -s b1 --pattern 'job/*'",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["s3", "gs", "az"],
)
def test_a_missing_backend_is_a_sentence_with_both_ways_out(url: str, module: str, words: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from jobreport.cli import main; main()"
    run = [sys.executable, "-c", code, "--job-dir", url, "--strict"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())

    assert done.returncode == 2
    scheme = url.partition("/")[0]
    assert done.stderr.splitlines()[-1] == (
        f"make-report: Reading {scheme}// needs: pip install 'jobreport[{words} && make-report --job-dir my-job."
    )
