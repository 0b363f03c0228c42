"""Rows against an independent reader of the same machine, under a known load."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.record.recordings import PYTHON, rows, start

pytestmark = pytest.mark.slow

#: Half of the time on one core, then a large allocation and a file that is written through to the disk.
LOAD = """
import os, time
end = time.monotonic() + 8
while time.monotonic() < end:
    busy = time.monotonic() + 0.05
    while time.monotonic() < busy: pass
    time.sleep(0.05)
block = bytearray(os.urandom(1 << 20)) * 1024
file = os.open("written", os.O_WRONLY | os.O_CREAT)
for _ in range(200):
    os.write(file, block[: 1 << 20])
os.fsync(file)
time.sleep(6)
"""


def test_rows_agree_with_psutil(tmp_path: Path) -> None:
    job = start(tmp_path / "job", "--interval", "500ms", command=[PYTHON, "-c", LOAD])
    cores, disks, memory, spent = psutil.cpu_times(percpu=True), psutil.disk_io_counters(), [], []
    while job.poll() is None:
        memory.append(psutil.virtual_memory())
        spent += _spent(job.pid)
        time.sleep(0.2)
    job.communicate()
    cores_after, disks_after = psutil.cpu_times(percpu=True), psutil.disk_io_counters()

    found = rows(tmp_path / "job")
    values: dict[tuple[str, str], list[float]] = {}
    for row in found:
        values.setdefault((row["Name"], row["Dimension"]), []).append(row["Value"])

    for number, (before, after) in enumerate(zip(cores, cores_after, strict=True)):
        total = sum(after[:8]) - sum(before[:8])
        idle = after.idle + after.iowait - before.idle - before.iowait
        mean = statistics.fmean(values[f"cpu{number}", "CPUUtilization"])
        assert mean == pytest.approx(100 * (1 - idle / total), abs=4)
    used = values["MemoryUsedInBytes", ""]
    assert max(used) == pytest.approx(max(one.total - one.available for one in memory), rel=0.05)
    assert max(used) - min(used) > 0.9 * (1 << 30)
    times = sorted({row["Timestamp"] for row in found})
    written = sum(
        value * (b - a)
        for value, a, b in zip(values["WriteThroughputInBytesPerSecond", ""], times, times[1:], strict=False)
    )
    assert disks
    assert disks_after
    assert written == pytest.approx(disks_after.write_bytes - disks.write_bytes, rel=0.1)
    process = max(
        value for (_, dimension), list_ in values.items() if dimension == "ResidentBytes" for value in list_
    )
    assert process == pytest.approx(1 << 30, rel=0.1)
    (own,) = {row["Name"] for row in found if row["Type"] == "process"}
    begin, end = [row["Timestamp"] for row in found if row["Name"] == own and row["Dimension"] == "Threads"][
        :2
    ]
    cpu_s = np.interp([begin, end], [when for when, _ in spent], [cpu for _, cpu in spent])
    assert values[own, "CPUUtilization"][0] == pytest.approx(
        100 * (cpu_s[1] - cpu_s[0]) / (end - begin), abs=4
    )


def _spent(recorder: int) -> list[tuple[float, float]]:
    """Time and CPU seconds of the job, the child of the recorder that is not the sampler."""
    try:
        job = [
            one for one in psutil.Process(recorder).children() if "run_sampler" not in " ".join(one.cmdline())
        ]
        return [(time.time(), sum(one.cpu_times()[:2])) for one in job]
    except psutil.Error:
        return []
