"""Which nvidia-smi logs are of one machine."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jobreport.readers.base import SourceFile
from jobreport.readers.nvidia_smi.hosts import logs_by_host
from jobreport.readers.nvidia_smi.logs import Log
from jobreport.readers.nvidia_smi.rows import Rows
from jobreport.readers.registry import read_job
from jobreport.readers.tally import Tally
from jobrules.model import Metric

HEADER = "timestamp, index, utilization.gpu [%], power.draw [W]\n"


def log(
    gpus: tuple[int, ...] = (0, 1), *, seed: int = 0, first: int = 0, rows: int = 30, header: str = HEADER
) -> str:
    """A row a second and GPU; the seed chooses what is measured."""
    return header + "".join(
        f"2026/01/03 15:{(first + i) // 60:02d}:{(first + i) % 60:02d}.000, {gpu}, {(7 * i + 13 * gpu + 29 * seed) % 101} %, {100 + (i + seed) % 9}.00 W\n"
        for i in range(rows)
        for gpu in gpus
    )


def of(text: str, *, column: int, later_ms: int = 0) -> str:
    """A log of one of the columns only, some milliseconds later."""
    kept = [[line.split(", ")[i] for i in (0, 1, column)] for line in text.splitlines()]
    return "\n".join([*map(", ".join, kept), ""]).replace(".000,", f".{later_ms:03d},")


def with_column(text: str, name: str, values: dict[str, str]) -> str:
    head, *lines = text.splitlines()
    return "\n".join([f"{head}, {name}", *(f"{line}, {values[line.split(', ')[1]]}" for line in lines), ""])


@pytest.mark.parametrize(
    ("files", "nodes", "gpus", "rows"),
    [
        pytest.param({"gpu.csv": log()}, ("node",), 2, 60, id="one"),
        pytest.param({"gpu0.csv": log((0,)), "gpu1.csv": log((1,))}, ("node",), 2, 60, id="a file a GPU"),
        pytest.param(
            {"a/gpu.csv": log(), "b/gpu.csv": log(seed=1)}, ("a", "b"), 4, 120, id="a folder a machine"
        ),
        pytest.param(
            {"gpu_log_node-01.csv": log(), "gpu_log_node-02.csv": log(seed=1)},
            ("node-01", "node-02"),
            4,
            120,
            id="a file a machine",
        ),
        pytest.param(
            {"smi_20260103.csv": log(), "smi_20260104.csv": log(first=30)},
            ("node",),
            2,
            120,
            id="one after the other",
        ),
        pytest.param(
            {"smi_1.csv": log(), "smi_2.csv": log(seed=1)},
            ("smi_1", "smi_2"),
            4,
            120,
            id="the same GPUs at the same time",
        ),
        pytest.param(
            {"early.csv": log(rows=10), "late.csv": log()}, ("node",), 2, 60, id="a log and its copy"
        ),
        pytest.param(
            {
                "a.csv": with_column(log((0,)), "uuid", {"0": "GPU-1"}),
                "b.csv": with_column(log((0,), first=500), "uuid", {"0": "GPU-1"}),
            },
            ("node",),
            1,
            60,
            id="the same GPU at another time",
        ),
        pytest.param(
            {"train.csv": log(), "eval.csv": log(first=30)}, ("node",), 2, 120, id="of one folder in turn"
        ),
        pytest.param(
            {"a/gpu.csv": log(), "b/gpu.csv": log(first=30)}, ("a", "b"), 4, 120, id="of two folders in turn"
        ),
        pytest.param(
            {"all.csv": with_column(log(), "hostname", {"0": "one", "1": "other"})},
            ("one", "other"),
            2,
            60,
            id="machines in a file",
        ),
        pytest.param(
            {"util.csv": of(log(), column=2), "power.csv": of(log(), column=3, later_ms=300)},
            ("node",),
            2,
            120,
            id="two loops of one machine",
        ),
        pytest.param(
            {"u.csv": of(log(), column=2), "p.csv": of(log(), column=3, later_ms=300)},
            ("node",),
            2,
            120,
            id="two loops of one machine whatever they are called",
        ),
        pytest.param(
            {
                f"n{n}_{name}.csv": of(log(seed=n), column=column, later_ms=later_ms)
                for n in (1, 2)
                for name, column, later_ms in (("util", 2, 0), ("power", 3, 300))
            },
            ("n1", "n2"),
            4,
            240,
            id="two loops of each machine",
        ),
        pytest.param(
            {"gpu.csv": log((0,)), "gpu.log": log((0,), seed=1)},
            ("gpu", "gpu.log"),
            2,
            60,
            id="the same name but for its end",
        ),
        pytest.param(
            {
                "gpu.csv": log((0,)),
                "x.csv": with_column(log((0,), seed=1), "hostname", {"0": "gpu"}),
                "z.csv": with_column(log((0,), seed=2), "hostname", {"0": "gpu.csv"}),
            },
            ("gpu", "gpu 2", "gpu.csv"),
            3,
            90,
            id="machines called as another's log",
        ),
        pytest.param(
            {f"{n}.csv": with_column(log((0,)), "uuid", {"0": f"GPU-{n}"}) for n in (1, 2)},
            ("1", "2"),
            2,
            60,
            id="equal rows of GPUs with different UUIDs",
        ),
    ],
)
def test_machines(
    tmp_path: Path, files: dict[str, str], nodes: tuple[str, ...], gpus: int, rows: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    job, quality = read_job(tmp_path)

    assert job.nodes == nodes
    assert job.gpu_count == gpus
    assert quality.sources[0].rows == rows
    written = sum(text.count("\n") - 1 for text in files.values())
    assert rows + sum(r.count for r in quality.sources[0].remarks if r.unit == "rows") == written


def test_many_logs_take_little_time() -> None:
    hosts = 10_000
    none = np.zeros(2, np.int64)
    rows = Rows(
        time_us=np.arange(2),
        kind="zoned",
        gpus=("gpu0",),
        gpu=none,
        hosts=(),
        host=none,
        uuids=frozenset(),
        values={},
    )
    logs = [
        Log(
            file=SourceFile(name="gpu.csv" if named else f"{n}.csv", place=""),
            host=f"n{n}" if named else "",
            rows=replace(rows, values={Metric.GPU_UTILIZATION: np.array([5.0, n])}),
        )
        for named in (True, False)
        for n in range(hosts)
    ]
    begin = time.process_time()

    found = logs_by_host(logs, Tally())

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
