"""A minute of known load: rows against another reader of the same counters at the same times."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.record.recordings import PYTHON, rows, start

pytestmark = pytest.mark.slow

SECONDS = 20
#: One core, half of the time on one core, and 1 GB of memory with 200 MB/s to the disk. Says when each ends.
LOAD = f"""
import os, time

def work(busy, idle):
    end = time.monotonic() + {SECONDS}
    while time.monotonic() < end:
        until = time.monotonic() + busy
        while time.monotonic() < until: pass
        time.sleep(idle)
    print(time.time(), flush=True)

work(0.1, 0)
work(0.05, 0.05)
held = bytearray(10**9)
for page in range(0, len(held), 4096):
    held[page] = 1
file = os.open("written", os.O_WRONLY | os.O_CREAT)
end = time.monotonic() + {SECONDS}
while time.monotonic() < end:
    due = time.monotonic() + 0.1
    os.pwrite(file, held[:20 * 10**6], 0)
    os.fdatasync(file)
    time.sleep(max(0, due - time.monotonic()))
print(time.time())
"""


def test_rows_agree_with_another_reader(tmp_path: Path) -> None:
    job = start(tmp_path / "job", "--interval", "500ms", command=[PYTHON, "-c", LOAD])
    read: list[dict[str, float]] = []
    while job.poll() is None:
        read.append(counters(job.pid))
        time.sleep(0.05)
    ends = [float(line) for line in job.communicate()[0].splitlines()]
    assert len(ends) == 3
    times = [one["time"] for one in read]

    def counted(name: str, at: Any) -> Any:
        """Value of a counter or a gauge of the other reader."""
        return np.interp(at, times, [one.get(name, 0.0) for one in read])

    recorded: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows(tmp_path / "job"):
        recorded[row["Name"], row["Dimension"]].append((row["Timestamp"], row["Value"]))

    def series(name: str, dimension: str, number: int) -> tuple[Any, Any]:
        """Times and values of a sensor in a part of the load."""
        at, values = np.array(recorded[name, dimension]).T
        within = (at > ends[number] - SECONDS) & (at < ends[number])
        return at[within], values[within]

    def mean_rate(at: Any, values: Any) -> float:
        """Mean from the first to the last time; each value is that of the time since the one before."""
        return float(np.average(values[1:], weights=np.diff(at)))

    (own,) = (name for name, dimension in recorded if dimension == "Threads")
    for number, busy in enumerate((100, 50)):
        for core in range(psutil.cpu_count() or 1):
            at, values = series(f"cpu{core}", "CPUUtilization", number)
            spent, passed = (np.diff(counted(f"{what}{core}", at[[0, -1]])) for what in ("busy", "total"))
            assert mean_rate(at, values) == pytest.approx(100 * spent / passed, abs=2)
        at, values = series(own, "CPUUtilization", number)
        spent = np.diff(counted("own cpu", at[[0, -1]]))
        assert mean_rate(at, values) == pytest.approx(100 * spent / (at[-1] - at[0]), abs=2)
        # Other work on this machine may take the core away.
        assert mean_rate(at, values) < busy + 2

    at, values = series("WriteThroughputInBytesPerSecond", "", 2)
    written = np.diff(counted("written", at[[0, -1]]))[0]
    assert mean_rate(at, values) * (at[-1] - at[0]) == pytest.approx(written, rel=0.05)
    for name, dimension, other in (
        ("MemoryUsedInBytes", "", "memory"),
        (own, "ResidentBytes", "own memory"),
    ):
        for number in (1, 2):
            at, values = series(name, dimension, number)
            assert values.mean() == pytest.approx(counted(other, at).mean(), rel=0.05)
        before, after = (series(name, dimension, number)[1].mean() for number in (1, 2))
        assert after - before == pytest.approx(
            np.subtract(*(counted(other, series(name, dimension, number)[0]).mean() for number in (2, 1))),
            rel=0.05,
        )


def counters(recorder: int) -> dict[str, float]:
    """What psutil reads now, of the machine and of the job, the child of the recorder that is not the sampler."""
    memory = psutil.virtual_memory()
    disks = psutil.disk_io_counters()
    found = {
        "time": time.time(),
        "memory": memory.total - memory.available,
        "written": disks.write_bytes if disks else 0,
    }
    for core, spent in enumerate(psutil.cpu_times(percpu=True)):
        found[f"total{core}"] = sum(spent[:8])
        found[f"busy{core}"] = sum(spent[:8]) - spent.idle - spent.iowait
    try:
        for process in psutil.Process(recorder).children():
            if "run_part.py sampler" not in " ".join(process.cmdline()):
                found |= {"own cpu": sum(process.cpu_times()[:2]), "own memory": process.memory_info().rss}
    except psutil.Error:
        pass
    return found
