"""Logs beside samples: of which machine they are, and how far its clock is apart."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from jobreport.pipeline import make_report
from jobreport.readers import joining
from jobreport.readers.registry import read_directory, read_job
from jobreport.tables.engine import LocalEngine
from jobrules.model import SECOND_US, Metric

START_S = 1_767_441_600


def use(node: int, gpu: int) -> np.ndarray:
    """A quarter of an hour, a value a second: work in stretches of uneven length."""
    ends = np.cumsum(np.random.default_rng(10 * node + gpu).uniform(5, 60, 60))
    return np.where(np.searchsorted(ends, np.arange(900)) % 2, 95, 5)


def write_samples(folder: Path, *nodes: int) -> None:
    for node in nodes:
        rows = [
            {
                "Type": "gpu",
                "Name": f"gpu{gpu}",
                "Dimension": "GPUUtilization",
                "Value": float(value),
                "NodeId": f"algo-{node}",
                "Timestamp": START_S + second,
            }
            for gpu in (0, 1)
            for second, value in enumerate(use(node, gpu).tolist())
        ]
        path = folder / "system" / "incremental" / f"{START_S}.algo-{node}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_log(
    folder: Path,
    node: int,
    *,
    later_s: float = 0.0,
    name: str = "gpu.csv",
    flat: bool = False,
    dated: bool = True,
) -> None:
    folder.mkdir(exist_ok=True)
    lines = [
        "timestamp, index, utilization.gpu [%], power.draw [W]"
        if dated
        else "elapsed_sec,index,gpu_util,power_w"
    ]
    for second in range(0, 900, 2):
        at = datetime.fromtimestamp(START_S + second + later_s, UTC)
        when = f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}" if dated else f"{second:.2f}"
        lines += [f"{when}, {gpu}, {100 if flat else use(node, gpu)[second]} %, 300.00 W" for gpu in (0, 1)]
    (folder / name).write_text("\n".join(lines) + "\n")


def told(folder: Path) -> tuple[tuple[str, ...], list[str]]:
    job, quality = read_job(folder)
    return job.nodes, [r.reason for s in quality.sources for r in s.remarks if r.unit == "logs"]


@pytest.mark.parametrize("later_s", [0.0, 3.25, -40.0, 7200.5, -19800.0])
def test_a_log_becomes_part_of_its_machine(tmp_path: Path, later_s: float) -> None:
    write_samples(tmp_path, 1, 2)
    write_log(tmp_path, 2, later_s=later_s)
    job, quality = read_job(tmp_path)
    assert job.nodes == ("algo-1", "algo-2")
    power = job.panel("algo-2", Metric.GPU_POWER)
    assert power
    assert job.panel("algo-1", Metric.GPU_POWER) is None
    assert abs(int(power.time_us[0]) - START_S * SECOND_US) <= SECOND_US
    (reason,) = (r.reason for s in quality.sources for r in s.remarks if r.unit == "logs")
    assert ("behind" if later_s < 0 else "ahead") in reason or later_s == 0
    assert "\u00b1 1.0" in reason
    # Its use of GPUs is known already.
    gpu = job.panel("algo-2", Metric.GPU_UTILIZATION)
    assert gpu
    assert len(gpu.time_us) == 900
    assert [(r.count, r.unit) for r in quality.remarks] == [(900, "samples")]


def test_logs_of_two_machines_find_theirs(tmp_path: Path) -> None:
    write_samples(tmp_path, 1, 2)
    write_log(tmp_path / "x", 2)
    write_log(tmp_path / "y", 1)
    nodes, reasons = told(tmp_path)
    assert nodes == ("algo-1", "algo-2")
    assert sum("joined to the samples of its machine by the use" in one for one in reasons) >= 1


def test_a_log_without_dates_gets_them(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1, dated=False)
    job, _ = read_job(tmp_path)
    power = job.panel("algo-1", Metric.GPU_POWER)
    assert power
    assert abs(int(power.time_us[0]) - START_S * SECOND_US) <= SECOND_US


def test_a_log_of_another_machine_stays_apart(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 3)
    nodes, (reason,) = told(tmp_path)
    assert nodes == ("algo-1", "node")
    assert reason.startswith("a machine of its own")
    assert "not alike" in reason


def test_a_log_that_fits_two_machines_stays_apart(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    copy = tmp_path / "system" / "incremental" / f"{START_S}.algo-2.json"
    copy.write_text((copy.parent / f"{START_S}.algo-1.json").read_text().replace("algo-1", "algo-2"))
    write_log(tmp_path, 1)
    nodes, (reason,) = told(tmp_path)
    assert nodes == ("algo-1", "algo-2", "node")
    assert "2 machines" in reason


def test_a_log_that_names_the_machine_is_of_it(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path / "algo-1", 1, flat=True)
    write_log(tmp_path / "algo-2", 2)
    nodes, reasons = told(tmp_path)
    assert nodes == ("algo-1", "algo-2")
    assert any("by its name" in one and "varies too little" in one for one in reasons)


def test_where_the_tables_lie_does_not_matter(tmp_path: Path) -> None:
    write_samples(tmp_path, 1, 2)
    write_log(tmp_path, 2, later_s=3600)
    expected, quality = read_job(tmp_path)
    with LocalEngine(2) as engine:
        reading = read_directory(tmp_path, engine=engine)
        assert reading.quality == quality
        assert [(p.node, p.metric, p.values.tobytes()) for p in reading.job.panels] == [
            (p.node, p.metric, p.values.tobytes()) for p in expected.panels
        ]


def test_a_log_joins_a_job_with_traces(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1)
    rows = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {"start_time_since_epoch_in_micros": START_S * 10**6},
        },
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
        *({"name": "Step", "ph": "X", "pid": 1, "ts": 10**6 * i, "dur": 900_000} for i in range(1, 50)),
    ]
    path = tmp_path / "framework" / "pevents" / f"{START_S}000000_33-algo-1_pythontimeline.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(rows))

    job, _ = read_job(tmp_path)

    assert job.nodes == ("algo-1",)
    assert job.event_count == 49
    assert job.panel("algo-1", Metric.GPU_POWER)


def test_a_log_of_a_machine_without_samples_of_its_gpus_joins_by_name(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    path = tmp_path / "system" / "incremental" / f"{START_S}.algo-1.json"
    path.write_text(path.read_text().replace("GPUUtilization", "CPUUtilization").replace("gpu", "cpu"))
    write_log(tmp_path / "algo-1", 1, name="a.csv")
    lines = (tmp_path / "algo-1" / "a.csv").read_text().splitlines()
    named = [f"{lines[0]}, hostname", *(f"{line}, algo-1" for line in lines[101:])]
    (tmp_path / "algo-1" / "a.csv").write_text("\n".join([*named, ""]))

    job, _ = read_job(tmp_path)

    cpu, gpu = job.panel("algo-1", Metric.CPU_UTILIZATION), job.panel("algo-1", Metric.GPU_UTILIZATION)
    assert cpu
    assert gpu
    # The log begins 100 s later, and its snapshots lie among those of the samples.
    assert int(np.sum(cpu.snapshot < gpu.snapshot[0])) in (100, 101)


def test_a_damaged_date_does_not_keep_a_log_apart(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1)
    with (tmp_path / "gpu.csv").open("a") as file:
        file.write("1999/01/01 00:00:00.000, 0, 50 %, 300.00 W\n")
        file.write("2099/01/01 00:00:00.000, 1, 50 %, 300.00 W\n")

    job, _ = read_job(tmp_path)

    assert job.nodes == ("algo-1",)
    power = job.panel("algo-1", Metric.GPU_POWER)
    assert power
    assert len(power.time_us) == 450


def test_logs_one_after_the_other_become_one(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1)
    head, *lines = (tmp_path / "gpu.csv").read_text().splitlines()
    (tmp_path / "gpu.csv").unlink()
    for name, some in (("train", lines[:500]), ("resume", lines[500:])):
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *some, ""]))

    job, quality = read_job(tmp_path)

    power = job.panel("algo-1", Metric.GPU_POWER)
    assert power
    assert (job.nodes, power.values.size) == (("algo-1",), len(lines))
    assert sum(r.count for s in quality.sources for r in s.remarks if r.action == "dropped") == 0


def test_snapshots_of_all_tables_of_a_machine_are_numbered_in_the_order_of_time(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path / "algo-1", 1, later_s=3.25, name="one.csv")
    write_log(tmp_path / "algo-1", 1, later_s=-7.5, name="other_log_algo-1.csv")

    job, _ = read_job(tmp_path)

    assert job.nodes == ("algo-1",)
    moments = sorted(
        {(int(n), int(t)) for p in job.panels for n, t in zip(p.snapshot, p.time_us, strict=True)}
    )
    numbers, times = zip(*moments, strict=True)
    assert list(times) == sorted(times)
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) == len(numbers) - 1
    assert make_report(tmp_path, tmp_path.with_name("out"), formats=["json"], strict=True).failure is None


def test_of_very_many_logs_and_machines_the_first_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each log has two GPUs, which may be those of two machines: 900 s in cells of 2 s for each of four pairs.
    monkeypatch.setattr(joining, "_MOST_CELLS", 2000)
    monkeypatch.setattr(joining, "_CELLS_A_MOMENT", 0)
    write_samples(tmp_path, 1, 2)
    write_log(tmp_path, 1, name="a-host.csv")
    write_log(tmp_path, 2, name="b-host.csv", later_s=0.4)

    nodes, reasons = told(tmp_path)

    assert len(nodes) == 3
    left, joined = sorted(reasons)
    assert joined.startswith("joined to the samples of its machine")
    assert left.endswith("too many logs and machines to compare each with each")


def test_few_samples_of_a_long_time_take_little_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for machine in range(16):
        path = tmp_path / "system" / "incremental" / f"{START_S}.algo-{machine}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "Type": "gpu",
                "Name": f"gpu{gpu}",
                "Dimension": "GPUUtilization",
                "Value": float(rng.integers(100)),
                "NodeId": f"algo-{machine}",
                "Timestamp": START_S + 2700 * i + machine,
            }
            for i in range(24)
            for gpu in (0, 1)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        lines = [
            f"{START_S + 2700 * i + machine},{gpu},{rng.integers(100)}" for i in range(24) for gpu in (0, 1)
        ]
        (tmp_path / f"host{machine}.csv").write_text(
            "\n".join(["timestamp,index,utilization.gpu", *lines, ""])
        )
    begin = time.process_time()

    nodes, _ = told(tmp_path)

    assert len(nodes) >= 16
    # All with all would take a quarter of a minute.
    assert time.process_time() - begin < 10
