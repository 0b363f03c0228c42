"""Record a job while it is killed, restarted, and its disk is full: ``python -m fuzz.outages --help``.

The recording lies on a small file system in memory, which needs root. Every pause in the samples, and in the steps of
each rank, must lie in an outage that was made here, and ``make-report --strict`` must succeed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
#: Two ranks that train, read, and write checkpoints; a rank that fails ends the other one.
TRAINING = """
import os, subprocess, sys, time
from pathlib import Path

if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)}) for rank in (0, 1)]
    while all(rank.poll() is None for rank in ranks):
        time.sleep(0.05)
    for rank in ranks:
        if rank.poll() is None and any(one.returncode for one in ranks):
            rank.terminate()
    sys.exit(any([rank.wait() for rank in ranks]))

import numpy as np
import jobrecord

jobrecord.start()
checkpoint = Path(sys.argv[1], os.environ["RANK"])
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
jobrecord.resume(step)
weights = np.random.default_rng(0).random((200, 200))

def batches():
    while True:
        time.sleep(0.03)
        yield np.ones((200, 200))

for batch in jobrecord.data(batches()):
    if time.time() > float(sys.argv[2]):
        break
    with jobrecord.phase("Forward"):
        result = batch @ weights
    with jobrecord.phase("Backward"):
        for _ in range(5):
            result = result @ weights / 100
    jobrecord.batch(samples=200)
    jobrecord.step()
    step += 1
    if step % 200 == 0:
        with jobrecord.phase("Checkpoint"):
            checkpoint.write_text(str(step))
"""
FULL = "No space left on device"


@dataclass(frozen=True)
class Fault:
    """What happens to the job."""

    name: str
    #: Length of a pause that it makes, as a share of the whole time.
    share: float
    #: What the recording that it ends leaves as facts; none if the recording goes on.
    facts: dict[str, Any] = field(default_factory=dict)


FAULTS = (
    Fault("a rank is killed", 1 / 360, {"ended_by": "exit", "exit_status": 1}),
    Fault("the command is killed", 1 / 40, {"ended_by": "signal:9", "exit_status": 137}),
    Fault("the sampler is killed", 1 / 40, {"ended_by": "signal:15", "sampler_ended_by": "signal:9"}),
    Fault("the disk is full", 1 / 20),
    Fault("record-job is killed", 1 / 40, {"ended_by": "parent gone", "reason": FULL}),
    Fault("all processes are killed", 1 / 40, {"ended_by": None}),
    Fault("the disk is full, and the command is killed", 1 / 20, {"ended_by": "signal:9", "reason": FULL}),
    Fault("record-job is asked to end", 1 / 360, {"ended_by": "signal:15", "reason": None}),
)
#: What the page says of them.
WORDS = (
    "The job was started again",
    "exit status 1",
    "killed by signal 9",
    "killed by signal 15",
    "The sampler was killed by signal 9",
    "record-job was killed",
    "killed with record-job",
    FULL,
)
DISK_BYTES = 300 << 20
INTERVAL_S = 0.1
#: Time that a start takes, and that a late tick and a killed process lose; training processes that were slow to write
#: lose more.
GRACE_S, STEP_GRACE_S = 4.0, 14.0
#: A recorder tries again this long after its disk was full.
RETRY_S = 60.0


@dataclass
class Outage:
    """A fault, and the time in which no samples or steps are expected because of it, in seconds since the epoch."""

    fault: str
    begin_s: float
    end_s: float


class Recording:
    """``record-job`` with its processes."""

    def __init__(self, out: Path, scratch: Path, end_s: float) -> None:
        arguments = ["--force", "--quiet", "--interval", f"{INTERVAL_S * 1000:g}ms", "--out", str(out), "--"]
        training = [sys.executable, str(scratch / "train.py"), str(scratch), str(end_s)]
        self.command = subprocess.Popen(
            [sys.executable, "-m", "jobrecord", *arguments, *training],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "record")},
            start_new_session=True,
        )
        recorder = psutil.Process(self.command.pid)
        found, samplers = list[psutil.Process](), list[psutil.Process]()
        while len(found) < 4 or not samplers:
            if self.command.poll() is not None:
                raise RuntimeError(f"record-job ended with {self.command.returncode}")
            time.sleep(0.01)
            found = recorder.children(recursive=True)
            # A process that has just been started has the command line of its parent.
            samplers = [one for one in found if "run_part.py sampler" in " ".join(one.cmdline())]
        (self.sampler,) = samplers
        self.job, *self.ranks = (one for one in found if one != self.sampler)

    def kill(self, *processes: psutil.Process) -> None:
        """End these processes at once."""
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def wait(self) -> int:
        """Wait until nothing of it runs, ranks without a parent included. Returns the exit status."""
        status = self.command.wait()
        self.kill(self.job, *self.ranks)
        psutil.wait_procs([self.sampler, self.job, *self.ranks], 20)
        return status


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no room on the file system."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    yield
    ballast.unlink()


def hurt(recording: Recording, fault: str, pause_s: float, disk: Path) -> None:
    """Let one fault happen for some time."""
    if fault == "the disk is full":
        with full(disk):
            time.sleep(pause_s)
        return
    if fault == "the disk is full, and the command is killed":
        with full(disk):
            time.sleep(pause_s)
            recording.kill(recording.job)
            recording.wait()
        return
    if fault == "a rank is killed":
        recording.kill(recording.ranks[1])
    elif fault == "the command is killed":
        recording.kill(recording.job)
    elif fault == "the sampler is killed":
        recording.kill(recording.sampler)
        time.sleep(pause_s)
        recording.command.send_signal(signal.SIGTERM)
    elif fault == "record-job is killed":
        recording.command.kill()
        time.sleep(pause_s)
    elif fault == "all processes are killed":
        recording.kill(
            recording.sampler, psutil.Process(recording.command.pid), recording.job, *recording.ranks
        )
        for file in disk.glob("job/system/incremental/*/*.json"):
            with file.open("ab") as stream:
                stream.write(b'{"Type":"cpu","Na')
    elif fault == "record-job is asked to end":
        recording.command.send_signal(signal.SIGTERM)
    recording.wait()
    time.sleep(pause_s)


def record(disk: Path, scratch: Path, seconds: float) -> list[Outage]:
    """Record a job for some time, with all faults at even distances. Returns them."""
    (scratch / "train.py").write_text(TRAINING)
    begin_s = time.time()
    end_s = begin_s + seconds
    recording = Recording(disk / "job", scratch, end_s)
    outages = []
    try:
        for number, fault in enumerate(FAULTS):
            time.sleep(max(0.0, begin_s + seconds * (number + 0.5) / len(FAULTS) - time.time()))
            outage_s = time.time()
            hurt(recording, fault.name, seconds * fault.share, disk)
            if fault.facts:
                recording = Recording(disk / "job", scratch, end_s)
            outages.append(Outage(fault.name, outage_s, time.time()))
            say(f"{outage_s - begin_s:7.1f} s: {fault.name}, for {outages[-1].end_s - outage_s:.1f} s")
        status = recording.wait()
        say(f"{time.time() - begin_s:7.1f} s: the job ended with {status}")
    finally:
        recording.command.kill()
        recording.wait()
    return outages


def sample_times(job: Path) -> list[float]:
    """Time of each snapshot, of all whole lines."""
    found = set()
    for path in job.glob("system/incremental/*/*.json*"):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.split(b"\n"):
            with suppress(ValueError):
                found.add(json.loads(line)["Timestamp"])
    return sorted(found)


def step_times(job: Path, rank: int) -> list[float]:
    """Time of the end of each training step of a rank."""
    found = []
    for path in [
        *job.glob(f"framework/pevents/*/*_{rank}-*.json"),
        *job.glob(f"framework/{rank}-*_pythontimeline.tmp"),
    ]:
        base_s, lane = 0.0, None
        for line in path.read_text().split("\n"):
            with suppress(ValueError):
                row = json.loads(line.rstrip(","))
                if row["ph"] == "M":
                    base_s = row["args"].get("start_time_since_epoch_in_micros", base_s * 1e6) / 1e6
                    lane = row["pid"] if row["args"].get("name") == "Step:ModeKeys.TRAIN" else lane
                elif row["pid"] == lane:
                    found.append(base_s + (row["ts"] + row["dur"]) / 1e6)
    return sorted(found)


def unexplained(times: list[float], outages: list[Outage], grace_s: float) -> list[tuple[float, float]]:
    """Pauses of more than the grace that do not lie in outages, of which one may follow another at once."""
    spans: list[tuple[float, float]] = []
    for one in outages:
        retry_s = RETRY_S * one.fault.startswith("the disk is full")
        begin_s, end_s = one.begin_s - grace_s, one.end_s + grace_s + retry_s
        if spans and begin_s < spans[-1][1]:
            begin_s, before_s = spans.pop()
            end_s = max(before_s, end_s)
        spans.append((begin_s, end_s))
    return [
        (begin_s, end_s)
        for begin_s, end_s in pairwise(times)
        if end_s - begin_s > grace_s and not any(a < begin_s and end_s < b for a, b in spans)
    ]


def wrong_facts(job: Path) -> list[str]:
    """Faults that the facts do not show."""
    (file,) = (job / "jobrecord").glob("*.json")
    last = json.loads(file.read_text())
    ended = [one | (one["dropped"] or {}) for one in last["earlier"]]
    ending = [fault for fault in FAULTS if fault.facts]
    return [
        f"{fault.name}: {found}"
        for fault, found in zip(ending, ended, strict=True)
        if not fault.facts.items() <= found.items()
    ] + [f"the end: {last}" for _ in range(last["ended_by"] != "exit" or last["exit_status"] != 0)]


def report(job: Path, out: Path) -> int:
    """``make-report --strict``, with what it cost. Returns its exit status."""
    began_s = time.monotonic()
    made = subprocess.Popen(
        [sys.executable, "-m", "jobreport.cli", "--job-dir", job, "--out", out, "--strict", "--force"]
    )
    _, status, usage = os.wait4(made.pid, 0)
    made.returncode = os.waitstatus_to_exitcode(status)
    say(
        f"make-report --strict: exit status {made.returncode}, {time.monotonic() - began_s:.1f} s, "
        f"largest process {usage.ru_maxrss / 1e3:.0f} MB"
    )
    return made.returncode


def say(line: str) -> None:
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Record, look for what the recording lacks, and make the report; exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.outages", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="length of the recording (default 3600)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recording and its report")
    options = parser.parse_args()
    job, wrong = options.out / "job", []
    if os.geteuid():
        parser.error("only root can make a small file system")
    if job.exists():
        parser.error(f"{job} exists")
    with tempfile.TemporaryDirectory() as folder:
        disk, scratch = Path(folder, "disk"), Path(folder, "scratch")
        disk.mkdir()
        scratch.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk], check=True)  # noqa: S607
        try:
            outages = record(disk, scratch, options.seconds)
            shutil.copytree(disk / "job", job)
        finally:
            subprocess.run(["umount", disk], check=True)  # noqa: S607
    for what, times, grace_s in (
        ("samples", sample_times(job), GRACE_S),
        ("steps of rank 0", step_times(job, 0), STEP_GRACE_S),
        ("steps of rank 1", step_times(job, 1), STEP_GRACE_S),
    ):
        pauses = unexplained(times, outages, grace_s)
        wrong += pauses
        say(f"{len(times):,} {what}; pauses that no outage explains: {pauses or 'none'}")
        wrong += [] if times else [(0, 0)]
    unsaid = wrong_facts(job)
    say(f"faults that the facts do not show: {unsaid or 'none'}")
    status = report(job, options.out / "report")
    page = (options.out / "report" / "report.html").read_text("utf-8")
    missing = [words for words in WORDS if words not in page]
    say(f"what the page does not say: {missing or 'nothing'}")
    sys.exit(1 if status or wrong or unsaid or missing else 0)


if __name__ == "__main__":
    main()
