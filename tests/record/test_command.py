"""``record-job`` as its user sees it: exit status, output, signals, folder."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobrecord.command import main
from tests.record.fake_nvml import gpu
from tests.record.recordings import (
    LIMIT_S,
    PYTHON,
    RECORD_JOB,
    environment,
    facts,
    record,
    rows,
    start,
    until_sampled,
    wait_for,
)


def test_output_and_status_are_the_commands_own(tmp_path: Path) -> None:
    out = tmp_path / "job"
    program = "import sys; print(sys.stdin.read()); print('warning', file=sys.stderr); sys.exit(3)"

    done = subprocess.run(
        [*RECORD_JOB, "--out", out, "--interval", "100ms", "--", PYTHON, "-c", program],
        input="from standard input",
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (3, "from standard input\n")
    assert done.stderr == f"warning\nrecord-job: next: make-report --job-dir {out}\n"
    found = facts(out)
    assert (found["exit_status"], found["ended_by"]) == (3, "exit")
    assert (out / "system/training_job_end.ts").exists()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ((PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"), 137),
        (("sh", "-c", "exit 255"), 255),
    ],
)
def test_a_command_that_a_signal_kills(command: tuple[str, ...], status: int, tmp_path: Path) -> None:
    done = record(tmp_path / "job", "--quiet", command=command)

    assert (done.returncode, done.stderr) == (status, "")
    assert facts(tmp_path / "job")["exit_status"] == status


@pytest.mark.skipif(shutil.which("bash") is None, reason="the line is for a shell")
def test_the_next_command_works_as_it_is_printed(tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode("a'b \u3000c\\b\xa0\n1$HOME \x1b[31m\u202e2é".encode() + b"\xff7")

    done = record(out, command=["true"])

    line = done.stderr.removeprefix("record-job: next: ")
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    printed = subprocess.run(
        ["bash", "-c", line.replace("make-report", "printf '%s\\n'")], stdout=subprocess.PIPE, check=True
    )
    assert printed.stdout == b"--job-dir\n" + os.fsencode(out) + b"\n"


def test_a_folder_with_control_characters_is_shown_escaped(tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode("a\x1b[31m\n\u202eé ".encode() + b"\xff")
    record(out, command=["true"])

    again = record(out, command=["true"])

    shown = f"{tmp_path}/a\\x1b[31m\\n\\u202eé \\udcff"
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert again.stderr.startswith(f"record-job: {shown} already contains a recording of ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is missing")
def test_a_log_that_is_full_does_not_change_the_exit_status(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RECORD_JOB, "--out", str(tmp_path / "job"), "--", "sh", "-c", "exit 5"],
            env=environment(),
            stderr=full,
            check=False,
        )

    assert done.returncode == 5


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("no-such-command", 127, "command not found"),
        ("./plain", 126, "Permission denied"),
        (".", 126, "Permission"),
    ],
)
def test_a_command_that_cannot_be_run(command: str, status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")

    done = record(tmp_path / "job", command=[command])

    assert done.returncode == status
    assert message in done.stderr
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--interval", "10ms", "--", "true"], "100ms to 1min"),
        (["--label", "novalue", "--", "true"], "KEY=VALUE"),
        (["--gpus", "9", "--", "true"], "--gpus 9: this machine has"),
        (["--pid", "1", "--", "true"], "Give a command"),
        (["--pid", "4194305"], "no such process"),
        (["--out", "ftp://host/job", "--", "true"], "--out: ftp:// is not supported"),
        (["--out", "/proc/job", "--", "true"], "Cannot write"),
        (["--upload-every", "5s", "--", "true"], "--upload-every 5s: use 0, or a time from 10s"),
        (["--"], "Give a command"),
        ([], "Give a command"),
        (["--intervall", "1s", "--", "true"], "Unknown option --intervall. Did you mean --interval?"),
        (["python", "train.py"], "Give a command after --"),
    ],
)
def test_wrong_usage_starts_nothing(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    status = main(options)

    printed = capfd.readouterr()
    assert (status, printed.out) == (2, "")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_a_working_directory_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    out = tmp_path / "job"

    status = main(["--", "true"])
    full = subprocess.run(
        [*RECORD_JOB, "--quiet", "--out", str(out), "--", "true"], env=environment(), check=False
    )

    assert (status, full.returncode) == (2, 0)
    assert capfd.readouterr().err.startswith(
        "record-job: The working directory was removed; give the full path"
    )
    assert rows(out)


def test_several_nodes_need_a_folder(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_NNODES", "2")

    assert main(["--", "true"]) == 2
    assert "several nodes" in capfd.readouterr().err


def test_options_come_from_the_environment_too(tmp_path: Path) -> None:
    out = tmp_path / "job"

    done = subprocess.run(
        [
            *RECORD_JOB,
            "--interval",
            "200ms",
            "--label",
            "a=1",
            "--label",
            "b=2",
            "--",
            "sh",
            "-c",
            "env | grep ^JOBREC",
        ],
        env=environment(
            JOBRECORD_DIR=str(out), JOBRECORD_NODE="n_1", JOBRECORD_INTERVAL="1s", JOBRECORD_QUIET="1"
        ),
        capture_output=True,
        text=True,
        check=True,
    )

    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    found = facts(out)
    assert (variables["JOBRECORD_DIR"], variables["JOBRECORD_NODE"]) == (str(out), "n-1")
    assert variables["JOBRECORD_RUN"] == found["run"]
    assert (found["node"], found["interval_ms"], found["labels"]) == ("n-1", 200, {"a": "1", "b": "2"})
    assert done.stderr == ""


def test_nothing_secret_is_written(tmp_path: Path) -> None:
    done = record(
        tmp_path / "job",
        "--interval",
        "100ms",
        command=["sh", "-c", until_sampled(tmp_path / "job"), "hush-1"],
        API_TOKEN="hush-2",
    )
    kept = record(
        tmp_path / "kept", "--record-command", command=["sh", "-c", "true", "--api-key", "hush-3", "--lr=1"]
    )

    assert (done.returncode, kept.returncode) == (0, 0)
    text = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.json"))
    assert "hush" not in text
    assert "hush" not in json.dumps(rows(tmp_path / "job"))
    (written,) = (tmp_path / "kept/jobrecord").glob("*.command.json")
    assert json.loads(written.read_bytes()) == ["sh", "-c", "true", "--api-key", "***", "--lr=1"]


def test_samples_of_a_fake_gpu_and_of_the_machine(tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    fake.mkdir()
    script = {"gpus": [gpu(utilization=[[10, 1], [20, 2], {"error": "GPU_IS_LOST"}, [30, 3]])]}
    shutil.copy(Path(__file__).with_name("fake_nvml.py"), fake / "fake_nvml.py")
    (fake / "pynvml.py").write_text(
        f"import sys, json\nimport fake_nvml\nsys.modules['pynvml'] = fake_nvml.FakeNVML(json.loads({json.dumps(script)!r}))\n"
    )
    out = tmp_path / "job"

    def use() -> list[float]:
        return [row["Value"] for row in rows(out) if row["Dimension"] == "GPUUtilization"]

    job = start(out, "--interval", "100ms", command=["cat"], stdin=subprocess.PIPE, PYTHONPATH=str(fake))
    wait_for(lambda: len(use()) >= 3)
    _, errors = job.communicate(timeout=LIMIT_S)

    assert (job.returncode, errors.count("\n")) == (0, 1)
    found = rows(out)
    assert use()[:3] == [10, 20, 30]
    assert {row["Timestamp"] for row in found if row["Type"] == "gpu"} <= {
        row["Timestamp"] for row in found if row["Type"] == "memory"
    }
    assert {"cpu", "gpu", "memory", "network", "i/o", "disk", "process"} <= {row["Type"] for row in found}
    assert "GPU_IS_LOST" in {row["reason"] for row in facts(out)["left_out"]}


def test_the_sampler_does_not_import_modules_of_the_job(tmp_path: Path) -> None:
    for name in ("json", "psutil", "jobrecord", "select", "pynvml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the job')")

    program = Path(sys.executable).with_name("record-job")
    done = subprocess.run(
        [program, "--out", tmp_path / "out", "--", "sh", "-c", until_sampled(tmp_path / "out")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 0
    assert "of the job" not in done.stderr
    assert rows(tmp_path / "out")


#: Prints each signal that it gets, and ends at the end of its input.
LISTENER = """
import os, signal, sys, time
count = {}
def note(number, frame):
    count[number] = count.get(number, 0) + 1
    # A print within a print is an error.
    os.write(1, f"{signal.Signals(number).name} {count[number]}\\n".encode())
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"):
    signal.signal(getattr(signal, name), note)
print("ready", flush=True)
for line in sys.stdin:
    pass
end = time.monotonic() + 0.3
while time.monotonic() < end:
    time.sleep(0.1)
sys.exit(7)
"""


def test_each_signal_is_passed_on_once(tmp_path: Path) -> None:
    names = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"]

    def heed() -> None:
        """Tests in the background, or behind nohup, ignore some of them."""
        for name in names:
            signal.signal(getattr(signal, name), signal.SIG_DFL)

    job = subprocess.Popen(
        [*RECORD_JOB, "--out", tmp_path / "job", "--quiet", "--", PYTHON, "-c", LISTENER],
        env=environment(),
        preexec_fn=heed,  # noqa: PLW1509 -- no thread has a lock here that this needs
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdin is not None
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"

    printed = []
    for name in names:
        job.send_signal(getattr(signal, name))
        printed.append(job.stdout.readline())
    rest, _ = job.communicate(timeout=LIMIT_S)

    assert (printed, rest, job.returncode) == ([f"{name} 1\n" for name in names], "", 7)


def test_what_was_ignored_stays_ignored(tmp_path: Path) -> None:
    program = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"

    done = subprocess.run(
        ["nohup", *RECORD_JOB, "--out", tmp_path / "job", "--quiet", "--", PYTHON, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True\n"


def test_the_whole_process_group_gets_the_signal(tmp_path: Path) -> None:
    job = start(tmp_path / "job", "--quiet", command=["sh", "-c", "sleep 300 & sleep 300 & echo ready; wait"])
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"

    job.terminate()
    rest, _ = job.communicate(timeout=LIMIT_S)

    # The pipe ends only when all processes of the job have ended.
    assert (job.returncode, rest) == (143, "")


@pytest.mark.slow
def test_a_second_interrupt_kills_after_ten_seconds(tmp_path: Path) -> None:
    job = start(tmp_path / "job", command=[PYTHON, "-c", LISTENER], stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"

    for number in (1, 2):
        began = time.monotonic()
        job.send_signal(signal.SIGINT)
        assert job.stdout.readline() == f"SIGINT {number}\n"
    # The job would wait for its input.
    assert job.wait(LIMIT_S) == 137
    assert time.monotonic() - began > 9
    job.communicate()


def test_in_a_terminal_interrupts_go_to_the_job(tmp_path: Path) -> None:
    """Ctrl-C reaches the job once, reading works, and the terminal comes back afterwards."""
    program = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('line', input(), flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('interrupts', len(seen), flush=True)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        shell = f"'{PYTHON}' -m jobrecord --quiet --out job -- '{PYTHON}' -c \"$PROGRAM\"; read after; echo after $after"
        os.execvpe("bash", ["bash", "-mc", shell], environment(PROGRAM=program))
    os.write(terminal, b"hello\n")
    seen = b""
    while b"line hello" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while not re.search(rb"interrupts \d", seen):
        seen += os.read(terminal, 1000)
    os.write(terminal, b"again\n")
    while b"after again" not in seen:
        seen += os.read(terminal, 1000)
    os.waitpid(pid, 0)
    os.close(terminal)

    assert b"interrupts 1" in seen


def test_a_running_process_is_recorded_until_its_end(tmp_path: Path) -> None:
    out = tmp_path / "job"
    with subprocess.Popen(["sleep", "300"]) as process:
        recorder = subprocess.Popen(
            [*RECORD_JOB, "--pid", str(process.pid), "--out", out, "--interval", "100ms"], env=environment()
        )
        wait_for(lambda: f"{process.pid}" in {row["Name"] for row in rows(out) if row["Type"] == "process"})
        process.kill()
        assert recorder.wait(LIMIT_S) == 0

    assert (facts(out)["ended_by"], facts(out)["exit_status"]) == ("exit", None)


def test_an_interrupt_detaches_from_a_running_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as process:
        recorder = subprocess.Popen(
            [*RECORD_JOB, "--pid", str(process.pid), "--out", tmp_path / "job", "--quiet"], env=environment()
        )
        wait_for(lambda: rows(tmp_path / "job"))
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(LIMIT_S) == 0
        assert process.poll() is None
        process.kill()

    assert facts(tmp_path / "job")["ended_by"] == "detached"
    assert not (tmp_path / "job/system/training_job_end.ts").exists()


def test_a_second_recorder_of_the_node_starts_nothing(tmp_path: Path) -> None:
    first = start(tmp_path / "job", command=["sleep", "300"])
    wait_for(lambda: rows(tmp_path / "job"))

    second = record(tmp_path / "job", command=["touch", str(tmp_path / "started")])
    first.terminate()
    first.communicate(timeout=LIMIT_S)
    third = record(tmp_path / "job", command=["true"])
    forced = record(tmp_path / "job", "--force", command=["true"])

    assert (second.returncode, third.returncode, forced.returncode) == (2, 2, 0)
    assert "already recorded" in second.stderr
    assert "already contains a recording" in third.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("trouble", ["full disk", "read only", "no sampler"])
def test_trouble_of_the_recorder_never_changes_the_job(trouble: str, tmp_path: Path) -> None:
    out = tmp_path / "job"
    limit = "ulimit -f 1; " if trouble == "full disk" else ""
    spoil = {
        "full disk": "",
        "read only": f"rm -r {out}/system; touch {out}/system; ",
        "no sampler": "kill -9 $(pgrep -P $PPID -f 'run_sample[r]'); ",
    }[trouble]
    recorder = " ".join([*RECORD_JOB, "--interval", "100ms", "--out", str(out)])
    job = f"{until_sampled(out)}; {spoil}sleep 0.5; echo output; exit 5"

    done = subprocess.run(
        ["bash", "-c", f'{limit}{recorder} -- sh -c "$JOB"'],
        env=environment(JOB=job),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (5, "output\n")
