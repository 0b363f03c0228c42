"""What recording costs: ``python benchmarks/recording.py``, a table in Markdown.

CPU time of the sampler's process, so that other work on the machine does not change it much.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil

from jobrecord import facts, settings
from jobrecord.sampler import Sampler
from jobrecord.sensors import Machine, all_sensors
from jobrecord.sensors.cpu import Cores

#: Cores of the large machine, whose ``/proc/stat`` is made up.
MANY_CORES = 96
TICKS = 200
STARTS = 9
SHORT_S = 3.0


def sampler(interval: str, seconds: float, out: Path) -> dict[str, float]:
    """Cost of a sampler beside a job that sleeps."""
    command = [sys.executable, "-m", "jobrecord", "--quiet", "--interval", interval, "--out", str(out), "--"]
    job = subprocess.Popen([*command, "sleep", str(seconds)])
    peak = 0
    while job.poll() is None:
        for process in psutil.Process(job.pid).children():
            if any("run_sampler" in part for part in process.cmdline()):
                peak = max(peak, process.memory_full_info().uss)
        time.sleep(0.5)
    (file,) = (out / facts.FOLDER).glob("*.json")
    found = json.loads(file.read_text())
    return {
        "CPU, s": found["overhead"]["sampler_cpu_s"],
        "tick p50, ms (wall clock)": found["tick_ms"]["p50"],
        "tick p99, ms (wall clock)": found["tick_ms"]["p99"],
        "late ticks": found["late_ticks"],
        "memory (USS), MB": peak / 1e6,
        "files, MB per hour": sum(f.stat().st_size for f in out.rglob("*.json*")) / seconds * 3600 / 1e6,
    }


def import_ms() -> float:
    """CPU time that ``import jobrecord`` adds to the start of Python."""
    program = "import time; a = time.process_time(); import jobrecord; print(time.process_time() - a)"
    return 1000 * statistics.median(float(_output(program)) for _ in range(STARTS))


def tick_cpu_ms(cores: int | None, folder: Path) -> float:
    """CPU time of a tick without GPUs; `cores` of a made-up machine, None for this one."""
    options = replace(settings.read({"JOBRECORD_GPUS": "none", "JOBRECORD_DIR": str(folder)}), interval_s=0.1)
    machine = Machine(pid=os.getpid())
    sensors = all_sensors(options, machine, {})
    if cores:
        sensors[0] = Cores(_machine_of(cores, folder), all_cores=True)
    facts.claim(options, {})
    measured = Sampler(options, machine, sensors)
    began_s = time.process_time()
    for number in range(TICKS):
        if cores:
            _write_stat(folder, cores, number)
        # As at 100 ms: sensors of slower cadences take part in some ticks.
        measured.tick(number * 0.1)
    spent_s = time.process_time() - began_s
    if cores:
        began_s = time.process_time()
        for number in range(TICKS):
            _write_stat(folder, cores, number)
        spent_s -= time.process_time() - began_s
    measured.files.close()
    return 1000 * spent_s / TICKS


def _machine_of(cores: int, folder: Path) -> Machine:
    (folder / "proc").mkdir()
    _write_stat(folder, cores, 0)
    return Machine(pid=os.getpid(), root=folder)


def _write_stat(folder: Path, cores: int, number: int) -> None:
    lines = (
        f"cpu{core} {number * (core % 7)} 0 {number} {number * 5} 0 0 0 0 0 0\n" for core in range(cores)
    )
    (folder / "proc/stat").write_text("".join(lines))


def _output(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of each recording (default 60)")
    seconds = parser.parse_args().seconds
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}\n")
    print("| quantity | measured |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for interval in ("500ms", "100ms"):
            short = sampler(interval, SHORT_S, Path(folder, f"{interval}-short"))
            found = sampler(interval, SHORT_S + seconds, Path(folder, interval))
            # Without start and end, which the short recording has too.
            share = 100 * (found["CPU, s"] - short["CPU, s"]) / seconds
            for name, value in {**found, "CPU, % of one core": share}.items():
                print(f"| {interval}: {name} | {value:.2f} |")
        for cores in (None, MANY_CORES):
            own = Path(folder, f"tick-{cores}")
            own.mkdir()
            print(f"| tick, {cores or os.cpu_count()} cores: CPU, ms | {tick_cpu_ms(cores, own):.2f} |")
    print(f"| import jobrecord: CPU, ms | {import_ms():.1f} |")


if __name__ == "__main__":
    main()
