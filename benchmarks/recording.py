"""Measure what recording costs, next to other monitors: ``python -m benchmarks.recording --help``."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import psutil

from benchmarks.machine import machine
from jobrecord import __version__, facts, settings
from jobrecord.sampler import Sampler
from jobrecord.sensors import Machine, all_sensors, drivers
from jobrecord.sensors.cpu import Cores

if TYPE_CHECKING:
    from collections.abc import Callable

#: One run of this.
STORED = Path(__file__).with_name("recording.json")
PROGRAMS = str(Path(__file__).with_name("monitors.py"))
#: Cores of the large machine, whose ``/proc/stat`` is made up.
MANY_CORES = 96
TICKS = 200
STARTS = 9
#: File by which a monitor says that it runs, and the time that its first samples take.
STARTED = "started"
START_S = 3.0
EVERY_S = 0.5
#: Titles, and intervals: the same for all, and the monitor's own.
MONITORS = {
    "record_job": ("record-job", (0.5, 0.1)),
    "nvidia_smi": ("nvidia-smi -lms", (0.5,)),
    "wandb": ("W&B, offline", (0.5, 15.0)),
    "mlflow": ("MLflow", (0.5, 10.0)),
}
SMI_COLUMNS = ("utilization.gpu", "utilization.memory", "memory.used", "power.draw", "temperature.gpu", "clocks.sm")  # fmt: skip
#: Keys of the samples in W&B's file, each before its value.
WANDB_KEY = re.compile(rb"\n[\x01-\x40]([a-z][ -~]*)\x82\x01")


class MissingError(Exception):
    """Something that cannot be measured here; its message is fit for a document."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Something with a limit."""

    text: str
    unit: str
    limit: float
    #: None where it could not be measured.
    measured: float | None
    #: Why it could not.
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """What a monitor of the machine costs, and what it records."""

    title: str
    version: str
    interval_s: float
    #: CPU time of all its processes in percent of one core.
    cpu_percent: float
    #: Used by its processes alone, with the Python that they run in.
    memory_mb: float
    snapshots_per_minute: float
    #: Names of what it records.
    values: list[str]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What was measured in one go."""

    command: str
    #: ISO 8601, UTC.
    date: str
    machine: dict[str, str]
    #: Length of each measurement of a monitor.
    seconds: float
    quantities: list[Quantity]
    monitors: list[Monitor]
    #: Monitors that are not installed or failed, a line each with the reason.
    left_out: list[str] = field(default_factory=list)

    def to_json(self) -> bytes:
        """Indented, so that a diff can be read."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @staticmethod
    def load() -> Recording:
        """The stored run."""
        return msgspec.json.decode(STORED.read_bytes(), type=Recording)


def monitor(name: str, interval_s: float, seconds: float, python: str, folder: Path) -> Monitor:
    """Measure a monitor once it has started. Raises MissingError."""
    process = subprocess.Popen(
        command(name, interval_s, START_S + seconds, python),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (folder / STARTED).exists():
        time.sleep(EVERY_S)
    time.sleep(START_S)
    begin_s, before_s, memory = time.monotonic(), cpu_s(process.pid), 0
    while time.monotonic() < begin_s + seconds - EVERY_S and process.poll() is None:
        memory = max(memory, memory_bytes(process.pid))
        time.sleep(EVERY_S)
    share = (cpu_s(process.pid) - before_s) / (time.monotonic() - begin_s)
    output, errors = process.communicate()
    if process.returncode:
        raise MissingError((errors.splitlines() or ["failed"])[-1])
    counts = recorded(name, folder)
    return Monitor(
        title=MONITORS[name][0],
        version=__version__ if name == "record_job" else json.loads(output or '""'),
        interval_s=interval_s,
        cpu_percent=100 * share,
        memory_mb=memory / 1e6,
        snapshots_per_minute=60 * max(counts.values(), default=0) / (START_S + seconds),
        values=sorted(counts),
    )


def command(name: str, interval_s: float, seconds: float, python: str) -> list[str]:
    """What runs for some time. Raises MissingError."""
    if name == "record_job":
        options = ["--quiet", "--interval", f"{1000 * interval_s:g}ms", "--out", "job"]
        job = ["sh", "-c", f"touch {STARTED}; sleep {seconds}"]
        return [sys.executable, "-m", "jobrecord", *options, "--", *job]
    if name == "nvidia_smi":
        if not shutil.which("nvidia-smi"):
            raise MissingError("not installed")
        query = f"nvidia-smi --query-gpu=index,{','.join(SMI_COLUMNS)} --format=csv,noheader"
        return [
            "sh",
            "-c",
            f"touch {STARTED}; timeout {seconds} {query} -lms {1000 * interval_s:.0f} > log.csv; true",
        ]
    found = subprocess.run(
        [python, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({name!r}))"],
        check=False,
    )
    if found.returncode:
        raise MissingError("not installed")
    return [python, PROGRAMS, name, str(interval_s), str(seconds)]


def recorded(name: str, folder: Path) -> Counter[str]:
    """How often each value was recorded."""
    if name == "record_job":
        return Counter(
            " ".join(filter(None, (row["Type"], row["Name"] * (row["Type"] != "process"), row["Dimension"])))
            for row in rows(folder / "job")
        )
    if name == "nvidia_smi":
        gpus = [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()]
        return Counter(f"gpu{gpu} {column}" for gpu in gpus for column in SMI_COLUMNS)
    if name == "wandb":
        (file,) = folder.glob("wandb/offline*/*.wandb")
        return Counter(key.decode() for key in WANDB_KEY.findall(file.read_bytes()))
    with sqlite3.connect(folder / "mlflow.db") as database:
        counts = database.execute("SELECT key, count(*) FROM metrics GROUP BY key").fetchall()
    return Counter({key.removeprefix("system/"): count for key, count in counts})


def rows(job: Path) -> list[dict[str, Any]]:
    """Samples of a closed recording."""
    files = sorted(job.glob("system/incremental/*/*.json.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def cpu_s(pid: int) -> float:
    """CPU time of a process and of all below it, those that have ended included."""
    return sum(sum(process.cpu_times()[:4]) for process in tree(pid))


def memory_bytes(pid: int) -> int:
    """Memory that a process and those below it use alone."""
    return sum(process.memory_full_info().uss for process in tree(pid))


def tree(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def lateness_ms(times: list[float], interval_s: float) -> float:
    """How late the latest of 99 in 100 ticks is, against a grid that begins with the first."""
    passed = np.array(times) - times[0]
    late = passed - np.round(passed / interval_s) * interval_s
    return 1000 * float(np.percentile(np.abs(late), 99))


def first_sample_ms(interval_s: float, folder: Path) -> float:
    """Time from the start of ``record-job`` to its first sample."""
    passed_s = []
    # As installed: with modules that are compiled, in the first run.
    compiled = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for number in range(1 + STARTS):
        job = folder / f"start-{interval_s}-{number}"
        options = ["--quiet", "--interval", f"{1000 * interval_s:g}ms", "--out", str(job)]
        command = [sys.executable, "-m", "jobrecord", *options, "--", "sleep", "1"]
        subprocess.run(command, env=compiled, check=True)
        passed_s.append(rows(job)[0]["Timestamp"] - node_facts(job)["started_us"] / 1e6)
    return 1000 * float(statistics.median(passed_s[1:]))


def node_facts(job: Path) -> dict[str, Any]:
    """Facts of the node of a recording."""
    (file,) = (job / facts.FOLDER).glob("*.json")
    return facts.of_node(job, file.stem)


def import_ms() -> float:
    """CPU time that ``import jobrecord`` adds to the start of Python."""
    program = "import time; a = time.process_time(); import jobrecord; print(time.process_time() - a)"
    run = [sys.executable, "-c", program]
    return 1000 * statistics.median(float(subprocess.check_output(run)) for _ in range(STARTS))


def tick_cpu_ms(cores: int | None, folder: Path) -> float:
    """CPU time of a tick without GPUs; `cores` of a made-up machine, None for this one."""
    folder.mkdir()
    options = replace(settings.read({"JOBRECORD_GPUS": "none", "JOBRECORD_DIR": str(folder)}), interval_s=0.1)
    here = Machine(pid=os.getpid())
    sensors = all_sensors(options, here, {})
    if cores:
        (folder / "proc").mkdir()
        _write_stat(folder, cores, 0)
        sensors[0] = Cores(Machine(pid=os.getpid(), root=folder), all_cores=True)
    facts.claim(options, {})
    measured = Sampler(options, here, sensors)
    spent_s = 0.0
    for number in range(TICKS):
        if cores:
            _write_stat(folder, cores, number)
        began_s = time.process_time()
        # As at 100 ms: sensors of slower cadences take part in some ticks.
        measured.tick(number * 0.1)
        spent_s += time.process_time() - began_s
    measured.files.close()
    return 1000 * spent_s / TICKS


def _write_stat(folder: Path, cores: int, number: int) -> None:
    lines = (
        f"cpu{core} {number * (core % 7)} 0 {number} {number * 5} 0 0 0 0 0 0\n" for core in range(cores)
    )
    (folder / "proc/stat").write_text("".join(lines))


def gpu_tick_ms(folder: Path) -> float:
    """Time of a tick of all GPU sensors. Raises MissingError."""
    options = settings.read({"JOBRECORD_DIR": str(folder)})
    here = Machine(pid=os.getpid())
    sensors = drivers.sensors(options, here, os.environ)
    if not sensors:
        raise MissingError(str(here.facts["gpu_reason"]))
    began_s = time.perf_counter()
    for _ in range(TICKS):
        for sensor in sensors:
            list(sensor.rows())
    return 1000 * (time.perf_counter() - began_s) / TICKS


def stacks_percent(folder: Path) -> float:
    """CPU time that samples of stacks take, of one core."""
    return hooks_us("stacks", sys.executable, folder, "60") / 1e4


def py_spy_percent(folder: Path) -> float:
    """CPU time that py-spy takes for the same number of samples. Raises MissingError."""
    if (
        program := shutil.which(
            "py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
    ) is None:
        raise MissingError("py-spy is not installed")
    seconds = 30
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"]) as process:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        options = (
            "--rate",
            "10",
            "--duration",
            str(seconds),
            "--format",
            "raw",
            "--output",
            str(folder / "py-spy"),
        )
        done = subprocess.run(
            [program, "record", *options, "--pid", str(process.pid)], capture_output=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        process.kill()
    if done.returncode:
        raise MissingError(done.stderr.decode(errors="replace").splitlines()[-1])
    return 100 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / seconds


def hooks_us(program: str, python: str, folder: Path, *arguments: str) -> float:
    """CPU time that the hooks add to a step. Raises MissingError."""
    done = subprocess.run(
        [python, PROGRAMS, program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(facts.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingError(done.stderr.splitlines()[-1])
    return 1e6 * float(done.stdout)


def of_recordings(found: dict[float, Monitor], folders: dict[float, Path]) -> list[Quantity]:
    """What the recordings of ``record-job`` show, by their intervals."""
    quantities = []
    for interval_s, cpu_limit in ((0.5, 1.0), (0.1, 3.0)):
        ran, job = found[interval_s], folders[interval_s] / "job"
        times = sorted({row["Timestamp"] for row in rows(job)})
        at = f"{1000 * interval_s:g} ms"
        quantities += [
            Quantity(text=f"{at}: CPU of one core", unit="%", limit=cpu_limit, measured=ran.cpu_percent),
            Quantity(text=f"{at}: memory", unit=" MB", limit=40, measured=ran.memory_mb),
            Quantity(
                text=f"{at}: lateness of a tick, 99 in 100 (limit: idle machine)",
                unit=" ms",
                limit=200 * interval_s,
                # The last tick is when the job ends.
                measured=lateness_ms(times[:-1], interval_s),
            ),
            Quantity(
                text=f"{at}: first sample after the start",
                unit=" ms",
                limit=1000 * interval_s,
                measured=first_sample_ms(interval_s, folders[interval_s]),
            ),
        ]
    return quantities


def of_parts(python: str, folder: Path) -> list[Quantity]:
    """What is measured without a recording of some length."""
    quantities = [
        Quantity(
            text=f"tick without GPUs, {cores or os.cpu_count()} cores: CPU",
            unit=" ms",
            limit=2,
            measured=tick_cpu_ms(cores, folder / f"tick-{cores}"),
        )
        for cores in (None, MANY_CORES)
    ]
    quantities.append(Quantity(text="`import jobrecord`: CPU", unit=" ms", limit=30, measured=import_ms()))
    parts: dict[str, tuple[float, Callable[[], float]]] = {
        "tick of the GPUs' sensors": (10, lambda: gpu_tick_ms(folder)),
        "hooks, a step with `data` and 2 phases (4 events): CPU": (
            38,
            lambda: hooks_us("steps", sys.executable, folder),
        ),
        "hooks, a step with `data` and `watch` (5 events): CPU": (
            40,
            lambda: hooks_us("watched_steps", python, folder),
        ),
    }
    beside = ""
    try:
        beside = f" (`py-spy record -r 10`: {py_spy_percent(folder):.2f}%)"
    except MissingError as error:
        beside = f" ({error})"
    parts[f"stacks, 10 a second, 20 frames: CPU of one core{beside}"] = 0.3, lambda: stacks_percent(folder)
    for text, (limit, measure) in parts.items():
        measured, note = None, ""
        try:
            measured = measure()
        except MissingError as error:
            note = str(error)
        unit = {"hooks": " µs", "stack": "%"}.get(text[:5], " ms")
        quantities.append(Quantity(text=text, unit=unit, limit=limit, measured=measured, note=note))
    return quantities


def measured(seconds: float, python: str, folder: Path) -> Recording:
    """Measure everything, one after the other."""
    monitors, left_out, folders = [], [], {}
    for name, (title, intervals) in MONITORS.items():
        for interval_s in intervals:
            print(f"{title}, {interval_s:g} s", file=sys.stderr, flush=True)
            (scratch := folder / f"{name}-{interval_s}").mkdir()
            try:
                monitors.append(monitor(name, interval_s, seconds, python, scratch))
            except MissingError as error:
                left_out.append(f"{title}: {error}")
                break
            if name == "record_job":
                folders[interval_s] = scratch
    own = {found.interval_s: found for found in monitors if found.title == MONITORS["record_job"][0]}
    return Recording(
        command="python -m benchmarks.recording",
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(("psutil",)),
        seconds=seconds,
        quantities=[*of_recordings(own, folders), *of_parts(python, folder)],
        monitors=monitors,
        left_out=left_out,
    )


def main() -> None:
    """Measure and print, or store."""
    from benchmarks import document
    from benchmarks.results import Results

    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of each measurement (default 60)")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="interpreter that has the other monitors and PyTorch (default: this one)",
    )
    parser.add_argument(
        "--store", action="store_true", help="write benchmarks/recording.json and docs/performance.md"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(options.seconds, options.python, Path(folder))
    if options.store:
        STORED.write_bytes(found.to_json())
        document.PAGE.write_text(document.render(Results.load(), found), "utf-8")
    print("\n\n".join(document.recording(found)))


if __name__ == "__main__":
    main()
