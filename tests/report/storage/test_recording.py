"""``record-job --out URL``: what lies in storage, at which moment, and what becomes of the job if storage fails."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.record.recordings import RECORD_JOB, wait_for
from tests.report.storage.servers import SECRET, Bucket, Fault, Proxy
from tests.report.test_cli import make_report

#: Ends with a status of its own.
SHORT = ("sh", "-c", "sleep 0.3; exit 7")


class Recorder:
    """record-job into a bucket, with a folder of its own for local copies."""

    def __init__(self, bucket: Bucket, scratch: Path) -> None:
        scratch.mkdir()
        self.program = RECORD_JOB
        self.bucket, self.scratch, self.url = bucket, scratch, f"s3://{bucket.name}/job"
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("JOBRECORD_", "SLURM_"))
        }
        self._environment = kept | {"PYTHONPATH": str(ROOT / "record"), "TMPDIR": str(scratch)}

    def start(self, *options: str, command: tuple[str, ...] = SHORT) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.program, "--out", self.url, "--node", "n", *options, "--", *command],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, command: tuple[str, ...] = SHORT) -> tuple[int, str]:
        with self.start(*options, command=command) as process:
            out, err = process.communicate(timeout=100)
        assert out == ""
        assert SECRET not in err
        return process.returncode, err

    @property
    def local(self) -> list[Path]:
        return [path for path in self.scratch.rglob("*") if path.is_file()]

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bucket.get("job/jobrecord/n.json") or b"{}")
        return found

    def stored(self) -> list[str]:
        return self.bucket.listed()

    def samples(self) -> list[dict[str, Any]]:
        """Rows in storage."""
        packed = [self.bucket.get(key) or b"" for key in self.stored() if key.endswith(".json.gz")]
        return [json.loads(row) for one in packed for row in gzip.decompress(one).splitlines()]


@pytest.fixture
def recorder(proxy: Proxy, bucket: Bucket, tmp_path: Path) -> Recorder:
    return Recorder(bucket, tmp_path / "scratch")


def test_a_recording_is_in_storage_and_nowhere_else(recorder: Recorder) -> None:
    status, said = recorder.run()

    assert (status, said) == (7, f"record-job: next: make-report --job-dir {recorder.url}\n")
    assert list(recorder.scratch.iterdir()) == []
    assert (recorder.facts()["exit_status"], recorder.facts()["not_uploaded"]["files"]) == (7, 0)
    ends = ["job/framework/training_job_end.ts", "job/system/training_job_end.ts"]
    assert [key for key in recorder.stored() if key.endswith(".ts")] == ends
    assert recorder.samples()


@pytest.mark.slow
def test_a_recording_is_continued_beside_what_is_there(recorder: Recorder, tmp_path: Path) -> None:
    assert recorder.run()[0] == 7
    first = recorder.samples()
    status, said = recorder.run()
    assert status == 2
    assert f"{recorder.url} already contains a recording of n." in said
    assert (recorder.samples(), list(recorder.scratch.iterdir())) == (first, [])
    # Within the same minute, the samples of the earlier run are under the same name.
    assert recorder.run("--force", "--keep-local")[0] == 7
    assert len(recorder.samples()) > len(first)
    assert [one["exit_status"] for one in recorder.facts()["earlier"]] == [7]
    assert len(recorder.local) >= 4
    done = make_report("--job-dir", recorder.url, "--out", tmp_path / "out", "--formats", "json")
    assert done.returncode == 0
    (rows,) = [
        one["rows"]
        for one in json.loads((tmp_path / "out" / "report.json").read_bytes())["quality"]["sources"]
        if one["source"] == "system samples"
    ]
    assert rows == len(recorder.samples())


@pytest.mark.slow
def test_a_recording_that_is_seen_only_after_the_job_has_started_stays(
    recorder: Recorder, proxy: Proxy
) -> None:
    patched = "from jobrecord import command, uploader_process as p; p.START_S = 0.1; raise SystemExit(command.main())"
    recorder.program = (sys.executable, "-c", patched)
    facts = b'{"run": "another", "pid": 1}'
    recorder.bucket.put("job/jobrecord/n.json", facts)

    def claimed() -> bool:
        return bool(list(recorder.scratch.glob("job-*/jobrecord/n.json")))

    proxy.fault = lambda asked: Fault(before=lambda: wait_for(claimed)) if asked.method == "GET" else None

    status, said = recorder.run(command=("sh", "-c", "sleep 5; exit 7"))

    assert status == 7
    assert f"not all is in {recorder.url}: {recorder.url} already contains a recording of n." in said
    assert recorder.bucket.get("job/jobrecord/n.json") == facts


@pytest.mark.slow
def test_a_local_copy_that_somebody_removes_takes_nothing_from_storage(recorder: Recorder) -> None:
    remove = ('until [ -e "$0" ]; do sleep 0.1; done; rm -r "$1"/job-*', str(recorder.scratch / "go-on"))
    with recorder.start(command=("sh", "-c", *remove, str(recorder.scratch))) as process:
        wait_for(lambda: recorder.facts().get("run"))
        (recorder.scratch / "go-on").touch()
        _, said = process.communicate(timeout=100)

    assert f"not all is in {recorder.url}" in said
    assert recorder.facts()["run"]


@pytest.mark.slow
def test_who_interrupts_the_start_leaves_nothing(recorder: Recorder, proxy: Proxy) -> None:
    asked_for, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        asked_for.set()
        goes_on.wait(60)

    proxy.fault = lambda _: Fault(before=hang)
    try:
        with recorder.start() as process:
            assert asked_for.wait(60)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    finally:
        goes_on.set()

    assert (process.returncode, said, list(recorder.scratch.iterdir())) == (130, "", [])


@pytest.mark.slow
def test_what_a_watch_wrote_beside_the_local_copy_goes_with_it(recorder: Recorder) -> None:
    watched = ("--notify", "http://127.0.0.1:9/", "--quiet")

    assert recorder.run(*watched) == (7, "")
    assert list(recorder.scratch.iterdir()) == []


def test_a_signal_has_facts_and_open_files_copied_first_while_the_job_still_ends(
    recorder: Recorder, proxy: Proxy
) -> None:
    trap = "trap 'until [ -e \"$0\" ]; do sleep 0.1; done; exit 3' TERM; while :; do sleep 0.1; done"
    go_on = recorder.scratch / "go-on"
    with recorder.start(command=("sh", "-c", trap, str(go_on))) as process:
        wait_for(lambda: list(recorder.scratch.glob("job-*/system/incremental/*/*.json")))
        (out,) = recorder.scratch.glob("job-*")
        for path in (
            "a.json",
            "framework/pevents/a.json",
            "framework/0-n_pythontimeline.tmp",
            "system/a.json.gz.tmp",
        ):
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(b"x")
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "job/framework/pevents/a.json" in recorder.stored())
        go_on.touch()
        assert process.wait(60) == 3

    put = [one.path.partition("/job/")[2] for one in proxy.requests if one.method == "PUT"]
    put = put[1 : put.index("framework/pevents/a.json") + 1]
    assert put[0] == "jobrecord/n.json"
    (minute,) = [path for path in put if path.startswith("system/")]
    assert sorted(put[1:-1]) == ["framework/0-n_pythontimeline.tmp", minute]
    assert not [
        key
        for key in sorted(recorder.stored())
        if key.endswith((".n.json", "a.json.gz.tmp")) and "system" in key
    ]
    assert recorder.samples()
    assert recorder.facts()["not_uploaded"] == {"files": 0, "bytes": 0, "reason": None}


@pytest.mark.slow
def test_a_bucket_that_is_missing_starts_no_job(recorder: Recorder) -> None:
    recorder.url = "s3://no-such-bucket-of-the-test/job"

    status, said = recorder.run(command=("touch", str(recorder.scratch / "started")))

    assert (status, said.startswith(f"record-job: --out: Not found: {recorder.url}")) == (2, True)
    assert recorder.local == []


@pytest.mark.slow
def test_closed_files_are_copied_while_the_job_runs_and_after_the_recorder_was_killed(
    recorder: Recorder,
) -> None:
    # The file of a minute is closed at its end.
    if (second := time.time() % 60) > 40:
        time.sleep(60 - second)
    with recorder.start("--upload-every", "10s", command=("sleep", "60")) as process:
        wait_for(lambda: recorder.facts().get("gpu_reason"))
        facts = recorder.facts()
        assert facts["ended_us"] is None
        assert not [key for key in recorder.stored() if "system" in key]
        assert facts["not_uploaded"]["files"] == 1
        process.kill()
    wait_for(lambda: recorder.facts()["not_uploaded"]["files"] == 0)
    assert recorder.facts()["ended_by"] == "parent gone"
    # What copies is no process of the job.
    resident = [row["Value"] for row in recorder.samples() if row["Dimension"] == "ResidentBytes"]
    assert 0 < max(resident) < 20e6
    assert recorder.local


@pytest.mark.slow
def test_storage_that_refuses_ends_no_job_that_runs(recorder: Recorder, proxy: Proxy) -> None:
    proxy.fault = lambda asked: (
        Fault(403, "AccessDenied") if asked.method == "PUT" and "system/incremental" in asked.path else None
    )

    status, said = recorder.run()

    assert status == 7
    (folder,) = recorder.scratch.iterdir()
    assert f"not all is in {recorder.url}: Files that are missing: 1. No permission for s3://" in said
    assert f"make-report --job-dir {folder}" in said
    assert recorder.facts()["not_uploaded"]["files"] == 1
    assert list(folder.glob("system/incremental/*/*.json.gz"))


@pytest.mark.slow
def test_who_wants_an_end_waits_20_s_for_storage_that_hangs(recorder: Recorder, proxy: Proxy) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait(100)

    proxy.fault = lambda asked: (
        Fault(before=hang) if asked.method == "PUT" and "system/incremental" in asked.path else None
    )
    try:
        with recorder.start() as process:
            assert hangs.wait(60)
            process.send_signal(signal.SIGINT)
            asked_s = time.monotonic()
            _, said = process.communicate(timeout=60)
    finally:
        goes_on.set()

    assert process.returncode == 7
    assert 15 < time.monotonic() - asked_s < 30
    assert f"not all is in {recorder.url}: There was no time left. All is in" in said
    assert recorder.local


@pytest.mark.slow
def test_storage_that_is_down_delays_a_job_and_changes_nothing_of_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder._environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"

    status, said = recorder.run()

    assert status == 7
    assert f"not all is in {recorder.url}" in said
    assert [path.name for path in recorder.local if path.name == "n.json"] == ["n.json"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://user:hunter2@bucket/job", "Credentials come from the environment"),
        ("https://x.s3.amazonaws.com/b?X-Amz-Signature=hunter2", "A signed URL is a credential"),
    ],
)
def test_addresses_that_are_refused_are_not_repeated(url: str, said: str, recorder: Recorder) -> None:
    recorder.url = url
    status, err = recorder.run()

    assert status == 2
    assert said in err
    assert "hunter2" not in err
    assert recorder.local == []


def test_a_report_beside_a_whole_bucket_is_refused(recorder: Recorder) -> None:
    recorder.url = f"s3://{recorder.bucket.name}"

    status, err = recorder.run("--report", command=("touch", str(recorder.scratch / "started")))

    assert (status, f"use --out {recorder.url}/my-job." in err) == (2, True)
    assert recorder.local == []


def test_a_recording_into_a_folder_loads_nothing_of_storage(tmp_path: Path) -> None:
    loaded = "[name for name in sys.modules if name.partition('.')[2].startswith('storage')]"
    script = f"import sys; from jobrecord import command; status = command.main(); print({loaded}, status)"
    done = subprocess.run(
        [sys.executable, "-c", script, "--out", tmp_path / "job", "--quiet", "--", "true"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[] 0\n"


def test_a_script_alone_records_into_no_url(recorder: Recorder) -> None:
    script = "import jobrecord; jobrecord.start()"
    environment = recorder._environment | {"JOBRECORD_DIR": recorder.url}
    cwd = recorder.scratch / "cwd"
    cwd.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )

    assert "Only record-job records into a URL" in done.stderr
    assert list(cwd.iterdir()) == []
