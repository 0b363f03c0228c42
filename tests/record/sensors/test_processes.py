from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

from jobrecord.sensors.base import Machine
from jobrecord.sensors.processes import Processes, of_job
from tests.record.sensors.trees import PID, fill, machine, read, read_later

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def process(
    pid: int,
    parent: int,
    name: str = "python",
    cpu_s: float = 0,
    rank: str | None = None,
    ended_s: float = 0,
    run: str = "",
) -> dict[str, str]:
    ticks, ended = int(cpu_s * TICKS), int(ended_s * TICKS)
    files = {
        f"proc/{pid}/stat": f"{pid} ({name}) S {parent} 1 1 0 -1 4 0 0 0 0 {ticks} 0 {ended} 0 20 0 3 0 5 999 10 0\n"
    }
    if rank is not None or run:
        files[f"proc/{pid}/environ"] = f"HOME=/\0RANK={rank}\0JOBRECORD_RUN={run}\0"
    return files


def test_rows_by_rank_and_loaders_by_their_rank(tmp_path: Path) -> None:
    def files(cpu_s: float) -> dict[str, str]:
        return {
            **process(PID, 1, "torchrun", cpu_s / 10),
            **process(101, PID, cpu_s=cpu_s, rank="0"),
            **process(102, 101, "pt_data_worker", cpu_s / 2, rank="0"),
            **process(103, 101, "pt_data_worker", cpu_s / 2, rank="0"),
            # A name that looks like the end of the name.
            **process(104, PID, "x) S 1 (", cpu_s),
            **process(900, 1, "other", 50),
        }

    of = machine(tmp_path, files(1))
    rows = read_later(Processes(of), of, files(3), seconds=4)

    cpu = {name: value for (_, name, dimension), value in rows.items() if dimension == "CPUUtilization"}
    assert cpu == {"100": 5.0, "0": 50.0, "loaders-0": 50.0, "104": 50.0}
    assert rows["process", "loaders-0", "ResidentBytes"] == 20 * PAGE
    assert rows["process", "0", "Threads"] == 3


def test_the_job_has_the_time_of_processes_that_ended(tmp_path: Path) -> None:
    # Process 101 uses 1 s more and ends; process 102 begins and ends between the readings and uses 2 s.
    before = {**process(PID, 1, cpu_s=1), **process(101, PID, cpu_s=5)}
    of = machine(tmp_path, before)
    rows = read_later(
        Processes(of), of, process(PID, 1, cpu_s=2, ended_s=8) | {"proc/101/stat": ""}, seconds=4
    )

    assert rows["process", "job", "CPUUsedCores"] == 1.0
    assert rows["process", "100", "CPUUtilization"] == 25.0


def test_a_number_that_another_process_had_is_a_new_process(tmp_path: Path) -> None:
    def reading(files: dict[str, str]) -> dict[str, float]:
        fill(tmp_path, files)
        of.clock.now_s += 5  # type: ignore[attr-defined]
        return {name: value for (_, name, kind), value in read(sensor).items() if kind == "CPUUtilization"}

    of = machine(tmp_path, process(PID, 1))
    sensor = Processes(of)

    assert reading(process(101, PID, cpu_s=1, rank="0")) == {}
    assert reading({"proc/101/stat": ""}) == {"100": 0.0}
    assert reading(process(101, PID, cpu_s=9, rank="1")) == {"100": 0.0}
    assert reading(process(101, PID, cpu_s=10, rank="1")) == {"100": 0.0, "1": 20.0}


def test_processes_that_end_or_are_hidden_are_left_out(tmp_path: Path) -> None:
    of = machine(
        tmp_path, process(PID, 1) | {"proc/101/stat": "", "proc/102/status": "", "proc/103/stat": "103 ("}
    )

    assert [found.pid for found in of_job(of)] == [PID]
    assert of_job(machine(tmp_path / "empty", {"proc/meminfo": ""})) == []


def test_processes_with_the_run_in_their_environment_are_the_jobs_wherever_they_are(tmp_path: Path) -> None:
    files = {
        **process(PID, 1, "sh", run="17"),
        # A rank in a step of the scheduler's own, with a loader whose environment was emptied.
        **process(201, 200, rank="0", run="17"),
        **process(202, 201, "pt_data_worker"),
        **process(301, 300, rank="0", run="18"),
        **process(302, 300, rank="0"),
        # This is the sampler.
        **process(os.getpid(), 1, run="17"),
    }
    of = replace(machine(tmp_path, files), run="17")

    assert {found.pid for found in of_job(of)} == {PID, 201, 202}
    assert [found.pid for found in of_job(replace(of, run="", seen={}))] == [PID]
    # Its number is another process's now.
    (tmp_path / "proc/201/stat").unlink()
    (tmp_path / "proc/201/environ").unlink()
    (tmp_path / "proc/201").rmdir()
    of_job(of)
    fill(tmp_path, process(201, 200, run="18"))
    assert [found.pid for found in of_job(of)] == [PID]


def test_a_real_process_agrees_with_the_kernel() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(); input()"], stdin=PIPE, stdout=PIPE) as real:
        assert real.stdin
        assert real.stdout
        real.stdout.readline()
        (own,) = of_job(Machine(pid=real.pid))
        assert own.pid == real.pid
        assert own.parent == os.getpid()
        assert own.resident_bytes > 5 << 20
        assert read(Processes(Machine(pid=real.pid)))
        real.stdin.close()
