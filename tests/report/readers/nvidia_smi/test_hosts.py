"""Which nvidia-smi logs are of one machine."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from jobreport.readers.base import SourceFile
from jobreport.readers.nvidia_smi import hosts as smi_hosts
from jobreport.readers.nvidia_smi.hosts import Log, hosts_of
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
            id="told apart by what they say",
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
            id="the same GPU",
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
            id="GPUs that are not the same say the same",
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


def test_logs_that_say_whose_they_are_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: Log) -> None:
        raise AssertionError

    monkeypatch.setattr(smi_hosts, "_moments", never)
    for named in (True, False):
        logs = [
            Log(
                file=SourceFile(name=f"{n}.csv", place=""),
                host=f"n{n}" if named else "",
                uuids=frozenset() if named else frozenset({f"GPU-{n}"}),
                gpus=("gpu0",),
                gpu=np.zeros(9, np.int64),
                time_us=np.arange(9),
                values={Metric.GPU_UTILIZATION: np.full(9, 5.0)},
            )
            for n in range(3)
        ]
        assert hosts_of(logs, Tally()) == (["n0", "n1", "n2"] if named else ["0", "1", "2"])


def test_machines_that_all_have_names_take_no_time() -> None:
    logs = [
        Log(
            file=SourceFile(name="gpu.csv", place=""),
            host=f"n{n}",
            uuids=frozenset(),
            gpus=("gpu0",),
            gpu=np.zeros(2, np.int64),
            time_us=np.arange(2),
            values={Metric.GPU_UTILIZATION: np.full(2, 5.0)},
        )
        for n in range(20_000)
    ]
    begin = time.process_time()

    assert hosts_of(logs, Tally()) == [f"n{n}" for n in range(20_000)]

    # All pairs of them would take minutes.
    assert time.process_time() - begin < 10


def test_parts_of_one_name_without_dates_may_be_of_one_machine(tmp_path: Path) -> None:
    for part in (1, 2):
        lines = [f"15:00:{i:02} 0 {part * i}" for i in range(1, 31)]
        (tmp_path / f"dmon.{part}.log").write_text("\n".join(["#Time gpu sm", *lines, ""]))

    job, quality = read_job(tmp_path)

    assert len(job.nodes) == 2
    told = {r.reason: r.count for r in quality.sources[0].remarks}
    assert [n for reason, n in told.items() if "they may be parts of one log" in reason] == [2]


def test_many_logs_of_one_time_are_not_all_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_hosts, "_MOST_COMPARED", 10)
    for i in range(8):
        rows = "".join(f"{1_700_000_000 + 9 * row + i},0,{i}\n" for row in range(2))
        # Names of logs of one machine, were it not for their rows.
        (tmp_path / f"gpu_log_{i}.csv").write_text(f"timestamp,index,power.draw\n{rows}")

    job, quality = read_job(tmp_path)

    told = {r.reason: r.count for r in quality.sources[0].remarks}
    assert [n for reason, n in told.items() if "not all were compared" in reason] == [8]
    # Nothing is joined that may be of different machines.
    assert len(job.nodes) == 8
    assert quality.sources[0].rows == 16


def test_many_machines_with_two_logs_each_are_not_taken_for_twice_as_many(tmp_path: Path) -> None:
    for node in range(60):
        for kind, column in (("util", "utilization.gpu"), ("power", "power.draw")):
            rows = "".join(
                f"{1_700_000_000 + i},{gpu},{(node + i) % 90}\n" for i in range(4) for gpu in range(8)
            )
            (tmp_path / f"node{node:02d}_{kind}.csv").write_text(f"timestamp,index,{column}\n{rows}")

    job, quality = read_job(tmp_path)

    assert len(job.nodes) == 60
    assert not [r for r in quality.sources[0].remarks if "compared" in r.reason]


def test_logs_of_many_measures_take_the_time_of_what_is_compared(tmp_path: Path) -> None:
    metrics = (
        "utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,temperature.gpu,clocks.sm"
    )
    same = ",".join("1" for _ in metrics.split(","))
    for i in range(300):
        rows = [f"{1_700_000_000 + 1000 * at},0,{same}" for at in (0, 1000 + i, 9000 + i)]
        (tmp_path / f"m{i}.csv").write_text("\n".join([f"timestamp,index,{metrics}", *rows, ""]))
    alike = Mock(wraps=smi_hosts._alike)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smi_hosts, "_MOST_COMPARED", 5000)
        patch.setattr(smi_hosts, "_alike", alike)
        read_job(tmp_path)

    # Each pair is one GPU and seven measures.
    assert 0 < alike.call_count <= 5000 / 8
