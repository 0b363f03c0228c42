"""Which nvidia-smi logs are of one machine."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from jobreport.readers.base import SourceFile
from jobreport.readers.nvidia_smi.identity import machines_of
from jobreport.readers.nvidia_smi.logs import Log
from jobreport.readers.nvidia_smi.rows import GPU, Rows
from jobreport.readers.registry import read_job
from jobreport.readers.tally import Tally
from jobrules.model import Metric

HEADER = "timestamp, index, utilization.gpu [%], power.draw [W]\n"


def log(
    gpus: tuple[int, ...] = (0, 1),
    *,
    seed: int = 0,
    first: int = 0,
    rows: int = 30,
    idle: int = 0,
    header: str = HEADER,
) -> str:
    """A row a second and GPU; the seed chooses what is measured after ``idle`` moments."""
    return header + "".join(
        f"2026/01/03 15:{(first + i) // 60:02d}:{(first + i) % 60:02d}.000, {gpu}, "
        + (
            f"{(7 * i + 13 * gpu + 29 * seed) % 101} %, {100 + (i + seed) % 9}.00 W\n"
            if i >= idle
            else "0 %, 60.00 W\n"
        )
        for i in range(rows)
        for gpu in gpus
    )


def part(text: str, begin: int, end: int) -> str:
    """Some of the rows under the same header."""
    head, *lines = text.splitlines()
    return "\n".join([head, *lines[begin:end], ""])


def parts(text: str) -> dict[str, str]:
    """A log of 400 rows that was rotated, with some rows in both parts."""
    return {"gpu.csv.1": part(text, 0, 204), "gpu.csv": part(text, 196, 400)}


def tools(rows: int) -> str:
    """What dmon writes of two GPUs."""
    return "".join(f"15:00:{i:02} {gpu} {2 * i + gpu} 1\n" for i in range(rows) for gpu in (0, 1))


def processes(rows: int = 30) -> str:
    """What pmon writes of one process on each of two GPUs."""
    lines = [f"15:00:{i:02} {gpu} 17 C {i + gpu} 3 - - python" for i in range(rows) for gpu in (0, 1)]
    return "\n".join(["#Time gpu pid type sm mem enc dec command", *lines, ""])


def of(text: str, *, column: int, later_ms: int = 0) -> str:
    """A log of one of the columns only, some milliseconds later."""
    kept = [[line.split(", ")[i] for i in (0, 1, column)] for line in text.splitlines()]
    return "\n".join([*map(", ".join, kept), ""]).replace(".000,", f".{later_ms:03d},")


def with_column(text: str, name: str, values: dict[str, str]) -> str:
    head, *lines = text.splitlines()
    return "\n".join([f"{head}, {name}", *(f"{line}, {values[line.split(', ')[1]]}" for line in lines), ""])


def uuid(text: str, name: str) -> str:
    return with_column(text, "uuid", {"0": name})


def uuids_alone(text: str, machine: str) -> str:
    """The log with a UUID of the machine instead of the number of a GPU."""
    head, *lines = text.replace("index", "uuid").splitlines()
    cells = [line.split(", ") for line in lines]
    return "\n".join([head, *(", ".join([at, f"GPU-{machine}{gpu}", *more]) for at, gpu, *more in cells), ""])


def host(text: str, *names: str) -> str:
    return with_column(text, "hostname", {str(gpu): name for gpu, name in enumerate(names)})


def two_loops(seed: int = 0) -> dict[str, str]:
    text = log(seed=seed)
    return {"util": of(text, column=2), "power": of(text, column=3, later_ms=300)}


def rotated(rows: int) -> dict[str, str]:
    """What two machines wrote at the same times to one log, which was rotated after some rows."""
    (head, *one), (_, *other) = (
        with_column(log(seed=n), "uuid", {"0": f"GPU-{n}0", "1": f"GPU-{n}1"}).splitlines() for n in (1, 2)
    )
    lines = [line for i in range(0, len(one), 2) for mine in (one, other) for line in mine[i : i + 2]]
    parts = {"gpu.csv.1": lines[:rows], "gpu.csv": lines[rows:]}
    return {name: "\n".join([head, *mine, ""]) for name, mine in parts.items()}


def at_once(text: str, moment: int) -> str:
    """The log with both GPUs at full load in one moment."""
    lines = text.splitlines()
    for place in (1 + 2 * moment, 2 + 2 * moment):
        lines[place] = ", ".join([*lines[place].split(", ")[:2], "100 %", "300.00 W"])
    return "\n".join([*lines, ""])


#: Files, and the GPUs of each machine.
MACHINES: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "one": ({"gpu.csv": log()}, {"node": 2}),
    "a file a GPU": ({"gpu0.csv": log((0,)), "gpu1.csv": log((1,))}, {"node": 2}),
    "a folder a machine": ({"a/gpu.csv": log(), "b/gpu.csv": log(seed=1)}, {"a": 2, "b": 2}),
    "a file a machine": (
        {"gpu_log_node-01.csv": log(), "gpu_log_node-02.csv": log(seed=1)},
        {"node-01": 2, "node-02": 2},
    ),
    "a file a GPU of each machine": (
        {f"n{n}-gpu{gpu}.csv": log((gpu,), seed=n) for n in (1, 2) for gpu in (0, 1)},
        {"n1": 2, "n2": 2},
    ),
    "machines called as GPUs": (
        {f"n-gpu{n}.csv": log(seed=n) for n in (1, 2)},
        {"n-gpu1": 2, "n-gpu2": 2},
    ),
    "one after the other": ({"smi_20260103.csv": log(), "smi_20260104.csv": log(first=30)}, {"node": 2}),
    "the same GPUs at the same time": (
        {"smi_1.csv": log(), "smi_2.csv": log(seed=1)},
        {"smi_1": 2, "smi_2": 2},
    ),
    "a log and its copy": ({"early.csv": log(rows=100), "late.csv": log(rows=200)}, {"node": 2}),
    "machines that idle at first": (
        {f"{one}/gpu.csv": log(seed=n, rows=150, idle=60) for n, one in enumerate("ab")},
        {"a": 2, "b": 2},
    ),
    "machines that begin to work at once": (
        {f"{one}/gpu.csv": at_once(log(seed=n, rows=150, idle=60), 60) for n, one in enumerate("ab")},
        {"a": 2, "b": 2},
    ),
    "machines that idle but for the end": (
        {f"util_gpu-a0{n}.txt": log(seed=n, rows=150 + n, idle=148) for n in (1, 2, 3)},
        {"gpu-a01": 2, "gpu-a02": 2, "gpu-a03": 2},
    ),
    "machines that idle": ({f"{one}/gpu.csv": log(rows=150, idle=150) for one in "ab"}, {"a": 2, "b": 2}),
    "a short log and its copy": ({"gpu.csv": log(), "gpu (copy).csv": log()}, {"node": 2}),
    "a log and its end": ({"gpu.csv": log(rows=200), "end.csv": part(log(rows=200), 300, 400)}, {"node": 2}),
    "parts of a log with rows in both": (
        {f"{one}/{name}": rows for one in "ab" for name, rows in parts(log(seed=ord(one), rows=200)).items()},
        {"a": 2, "b": 2},
    ),
    "parts of a log that overlap while it idles": (parts(log(rows=200, idle=150)), {"node": 2}),
    "tools on one machine": (
        {"dmon.log": "#Time gpu sm mem\n" + tools(30), "pmon.log": processes(30)},
        {"node": 2},
    ),
    "the same GPU at another time": (
        {"a.csv": uuid(log((0,)), "GPU-1"), "b.csv": uuid(log((0,), first=500), "GPU-1")},
        {"node": 1},
    ),
    "of one folder in turn": ({"train.csv": log(), "eval.csv": log(first=30)}, {"node": 2}),
    "of two folders in turn": ({"a/gpu.csv": log(), "b/gpu.csv": log(first=30)}, {"node": 2}),
    "machines in a file": ({"all.csv": host(log(), "one", "other")}, {"one": 1, "other": 1}),
    "two loops of one machine": ({f"{name}.csv": text for name, text in two_loops().items()}, {"node": 2}),
    "two loops whatever they are called": (
        {f"{name[0]}.csv": text for name, text in two_loops().items()},
        {"node": 2},
    ),
    "two loops of each machine": (
        {f"n{n}_{name}.csv": text for n in (1, 2) for name, text in two_loops(n).items()},
        {"n1": 2, "n2": 2},
    ),
    "the same name but for its end": (
        {"gpu.csv": log((0,)), "gpu.log": log((0,), seed=1)},
        {"gpu": 1, "gpu.log": 1},
    ),
    "machines called as another's log": (
        {
            "gpu.csv": log((0,)),
            "x.csv": host(log((0,), seed=1), "gpu"),
            "z.csv": host(log((0,), seed=2), "gpu.csv"),
        },
        {"gpu": 1, "gpu 2": 1, "gpu.csv": 1},
    ),
    "equal rows of GPUs with different UUIDs": (
        {f"{n}.csv": uuid(log((0,)), f"GPU-{n}") for n in (1, 2)},
        {"1": 1, "2": 1},
    ),
    "GPUs that have UUIDs only": (
        {f"smi_{n}.csv": uuids_alone(log(seed=n), str(n)) for n in (1, 2)},
        {"smi_1": 2, "smi_2": 2},
    ),
    "machines of one name": (
        {f"{n}.csv": host(uuid(log((0,), seed=n), f"GPU-{n}"), "localhost") for n in (1, 2)},
        {"localhost": 2},
    ),
    "a log of two machines in two parts": (rotated(60), {"log-1": 2, "log-2": 2}),
    "parts of which neither shows the machines": (rotated(61), {"log-1": 4}),
}

#: Rows that are in two of the logs.
REPEATED = {
    "a log and its copy": 200,
    "a short log and its copy": 60,
    "a log and its end": 100,
    "parts of a log with rows in both": 16,
    "parts of a log that overlap while it idles": 8,
    "tools on one machine": 60,
}


@pytest.mark.parametrize("case", MACHINES)
def test_machines(tmp_path: Path, case: str) -> None:
    files, gpus = MACHINES[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    job, quality = read_job(tmp_path)

    assert {facts.node: len(facts.gpus) for facts in job.facts} == gpus
    (source,) = quality.sources
    dropped = sum(remark.count for remark in source.remarks if remark.unit == "rows")
    assert dropped == REPEATED.get(case, 0)
    assert source.rows + dropped == sum(text.count("\n") - 1 for text in files.values())


@pytest.mark.slow
def test_many_logs_take_little_time() -> None:
    hosts = 4_000
    logs = [
        Log(
            file=SourceFile(name="gpu.csv" if named else f"{n}.csv", place=""),
            host=f"n{n}" if named else "",
            gpus=[
                Rows(
                    gpu=GPU(name="gpu0"),
                    time_us=np.arange(2) + n % 10,
                    values={Metric.GPU_UTILIZATION: np.array([0.0, n])},
                )
            ],
        )
        for n in range(hosts)
        for named in (False, True)
    ]
    begin = time.process_time()

    found = machines_of(logs, Tally())

    assert len(found) == len(logs)
    # All pairs of them would take minutes.
    assert time.process_time() - begin < 10


def test_logs_that_only_their_names_separate_are_counted(tmp_path: Path) -> None:
    for part in (1, 2):
        lines = [f"15:00:{i:02} 0 {part * i}" for i in range(1, 31)]
        (tmp_path / f"dmon.{part}.log").write_text("\n".join(["#Time gpu sm", *lines, ""]))

    job, quality = read_job(tmp_path)

    assert len(job.nodes) == 2
    assert {r.code: r.count for r in quality.sources[0].remarks}["nvidia_smi.machines"] == 2
