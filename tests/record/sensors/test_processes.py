from __future__ import annotations

import os
from pathlib import Path

from jobrecord.sensors.base import Machine
from jobrecord.sensors.processes import Processes, tree
from tests.record.sensors.trees import PID, machine, read, read_later

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def process(
    pid: int, parent: int, name: str = "python", cpu_s: float = 0, rank: str | None = None
) -> dict[str, str]:
    ticks = int(cpu_s * TICKS)
    files = {
        f"proc/{pid}/stat": f"{pid} ({name}) S {parent} 1 1 0 -1 4 0 0 0 0 {ticks} 0 0 0 20 0 3 0 5 999 10 0\n"
    }
    if rank is not None:
        files[f"proc/{pid}/environ"] = f"HOME=/\0RANK={rank}\0"
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


def test_processes_that_end_or_are_hidden_are_left_out(tmp_path: Path) -> None:
    of = machine(
        tmp_path, process(PID, 1) | {"proc/101/stat": "", "proc/102/status": "", "proc/103/stat": "103 ("}
    )

    assert [found.pid for found in tree(of)] == [PID]
    assert tree(machine(tmp_path / "empty", {"proc/meminfo": ""})) == []


def test_the_own_process_agrees_with_the_kernel() -> None:
    (own, *_) = tree(Machine(pid=os.getpid()))

    assert own.pid == os.getpid()
    assert own.parent == os.getppid()
    assert own.resident_bytes > 5 << 20
    assert read(Processes(Machine(pid=os.getpid())))
