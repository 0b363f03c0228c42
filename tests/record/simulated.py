"""A recording of minutes that the recorder's own code makes in seconds, on a machine, a driver, and a clock of a test.

The job runs in a container that may use 2 of 16 cores and 4 GiB. Its processes use all of that, spread over the machine, so
its GPU waits. Another user's process computes on the GPU, the kernel kills one of the job's for lack of memory, and its
disk is nearly full. A second GPU answers nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobrecord import facts, sampler
from jobrecord.folder import Folder
from jobrecord.sensors import Machine, all_sensors
from jobrecord.settings import Settings
from tests.record.fake_nvml import FakeNVML, gpu
from tests.record.sensors.trees import PID, Clock, fill

NODE, OWNER = "trainer-7", "zoe-quimby"
T0 = 1_700_000_040
SECONDS = 330
CORES, LIMIT = 16, 2
MIB, GIB = 1 << 20, 1 << 30
POD = "sys/fs/cgroup/pod"
#: Percent of each core that is in use: the limit, spread evenly.
CORE_PERCENT = 100 * LIMIT / CORES
OTHERS, PRESSURE, THROTTLED, FREE = 999, {"cpu": 80, "io": 30, "memory": 10}, 60, 100 * MIB
KILLED_AT = 150


def tree(second: int) -> dict[str, str]:
    """Files of the machine, so many seconds after the start; counters are in hundredths of seconds."""
    busy = round(second * CORE_PERCENT)
    cores = "".join(f"cpu{n} {busy} 0 0 {100 * second - busy} 0 0 0 0 0 0\n" for n in range(CORES))
    process = "S {} 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 {} 0 1 0 {}"
    rank, loader = process.format(1, 50 * second, 3, 1000), process.format(PID, 150 * second, 1, 500)
    return {
        "proc/stat": f"cpu 0 0 0 0\n{cores}intr 0\n",
        "proc/meminfo": f"MemTotal: {64 * GIB >> 10} kB\nMemAvailable: {32 * GIB >> 10} kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\n",
        "proc/net/dev": f"x\neth0: {1000 * second} 0 0 0 0 0 0 0 {500 * second} 0 0 0 0 0 0 0\n",
        f"proc/{PID}/cgroup": "0::/pod\n",
        f"proc/{PID}/stat": f"{PID} (python) {rank}",
        f"proc/{PID}/environ": "RANK=0\0",
        "proc/101/stat": f"101 (pt_data_worker) {loader}",
        "sys/block/sda/device/x": "",
        "sys/block/sda/stat": f"{10 * second} 0 {2000 * second} 0 {5 * second} 0 {1000 * second} 0 0 0 0",
        "sys/class/infiniband/mlx/ports/1/counters/port_rcv_data": f"{250 * second}",
        "sys/class/infiniband/mlx/ports/1/counters/port_xmit_data": f"{250 * second}",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        f"{POD}/cpu.max": f"{100_000 * LIMIT} 100000\n",
        f"{POD}/cpu.stat": f"usage_usec {1_000_000 * LIMIT * second}\nnr_periods {10 * second}\nnr_throttled {THROTTLED * second // 10}\n",
        f"{POD}/memory.max": f"{4 * GIB}\n",
        f"{POD}/memory.current": f"{3 * GIB}\n",
        f"{POD}/memory.stat": "inactive_file 0\n",
        f"{POD}/memory.events": f"oom_kill {7 + (second >= KILLED_AT)}\n",
        **{
            f"{POD}/{name}.pressure": f"some avg10=0 avg60=0 avg300=0 total={10_000 * percent * second}\nfull total=0\n"
            for name, percent in PRESSURE.items()
        },
    }


class Time(Clock):
    """Stands for the module ``time``: moves when the test says so."""

    def time(self) -> float:
        return T0 + self.now_s

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def process_time(self) -> float:
        """The sampler takes 2% of a core."""
        return 0.02 * self.now_s


def record(out: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the recording."""
    time = Time(0.0)
    energy = list(range(1_000_000, 1_000_000 + 100_000 * 5 * SECONDS, 100_000 * 5))
    one = gpu(
        utilization=[[5, 2]],
        energy=energy,
        power=[100_000],
        reasons=[0x4],
        activity=[[3.0, 1.0, 2.0]],
        processes=[[PID, OTHERS]],
    ) | {"gpm": 1, "name": "NVIDIA <b>Fake</b>"}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML({"gpus": [one, {"uuid": "GPU-b", "answers": {}}]}))
    monkeypatch.setattr(sampler, "time", time)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=FREE))
    fill(root, tree(0))
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    settings = Settings(
        out=out, node=NODE, run="r", interval_s=1.0, labels={"batch_size": "256", "owner": OWNER}
    )
    facts.claim(settings, {})
    machine = Machine(pid=PID, root=root, clock=time)
    recorder = sampler.Sampler(settings, machine, all_sensors(settings, machine, os.environ))
    written = dict[str, str]()
    for second in range(SECONDS):
        time.now_s = float(second)
        files = tree(second)
        fill(root, dict(files.items() - written.items()))
        written = files
        recorder.tick(second)
    hooks = {
        "pid": PID,
        "worker": "0",
        "steps": 10,
        "hook_s": 0.01 * SECONDS,
        "clock_steps": 0,
        "other_threads": 3,
    }
    hooks |= {"dropped": {"events": 5, "reason": "Permission denied", "since_us": T0 * 10**6}}
    hooks |= {
        "other_lane_events": 4,
        "written": [{"worker": "0", "at_us": T0 * 10**6, "written": "steps only"}],
    }
    with Folder(out, facts.hooks_folder(NODE), make=True) as folder:
        facts.write(folder, "0", hooks)
    recorder.files.close()
    recorder._write_facts()
    known = facts.end(settings, "exit", 1)
    # These are of this machine's clock.
    known |= {"started_us": T0 * 10**6, "ended_us": (T0 + SECONDS) * 10**6}
    with Folder(out, facts.FOLDER) as folder:
        facts.write(folder, NODE, known)
