"""Logs next to samples: which machine they are of."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.options import Options
from jobreport.output import summary
from jobreport.pipeline import make_report
from jobreport.readers.registry import read_directory, read_job
from jobreport.sentences import unread
from jobrules.model import SECOND_US, Metric
from tests.report.readers import events

START_S = 1_767_441_600


def use(node: int, gpu: int) -> np.ndarray:
    """A quarter of an hour, a value a second: work in stretches of uneven length."""
    ends = np.cumsum(np.random.default_rng(10 * node + gpu).uniform(5, 60, 60))
    return np.where(np.searchsorted(ends, np.arange(900)) % 2, 95, 5)


@cache
def samples_of(node: int) -> str:
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
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_samples(folder: Path, *nodes: int) -> None:
    for node in nodes:
        path = folder / "system" / "incremental" / f"{START_S}.algo-{node}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(samples_of(node))


@cache
def log_of(node: int, later_s: float, gpus: tuple[int, ...]) -> str:
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W]"]
    busy = {gpu: use(node, gpu) for gpu in gpus}
    for second in range(0, 900, 2):
        at = datetime.fromtimestamp(START_S + second + later_s, UTC)
        when = f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}"
        lines += [f"{when}, {gpu}, {busy[gpu][second]} %, 300.00 W" for gpu in gpus]
    return "\n".join(lines) + "\n"


def write_log(
    folder: Path,
    node: int,
    *,
    later_s: float = 0.0,
    name: str = "gpu.csv",
    gpus: tuple[int, ...] = (0, 1),
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(log_of(node, later_s, gpus))


def codes(folder: Path, timezone: str = "UTC") -> tuple[tuple[str, ...], list[str]]:
    """The nodes, and the codes of the remarks on logs next to samples."""
    reading = read_directory(folder, Options(timezone=timezone))
    remarks = [remark for source in reading.quality.sources for remark in source.remarks]
    return reading.job.nodes, [one.code for one in remarks if one.code.startswith("machines.")]


@pytest.mark.parametrize("later_s", [0.0, 3.25, -40.0, 600.5])
def test_the_log_of_the_only_machine_is_part_of_it(tmp_path: Path, later_s: float) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1, later_s=later_s)

    job, quality = read_job(tmp_path)

    assert codes(tmp_path) == (("algo-1",), ["machines.joined"])
    power, gpu = (job.panel("algo-1", metric) for metric in (Metric.GPU_POWER, Metric.GPU_UTILIZATION))
    assert power
    assert gpu
    assert abs(int(power.time_us[0]) - round((START_S + later_s) * SECOND_US)) < SECOND_US / 100
    # Its utilization is known already.
    assert len(gpu.time_us) == 900
    assert [(r.count, r.unit) for r in quality.remarks] == [(900, "samples")]


@pytest.mark.parametrize("folder", ["algo-2", "logs/algo-2"])
def test_a_log_is_of_the_machine_that_its_path_names(tmp_path: Path, folder: str) -> None:
    write_samples(tmp_path, 1, 2)
    write_log(tmp_path / folder, 2)

    job, _ = read_job(tmp_path)

    assert codes(tmp_path) == (("algo-1", "algo-2"), [])
    assert [panel.node for panel in job.panels_of(Metric.GPU_POWER)] == ["algo-2"]


def test_the_table_of_logs_names_the_machine_that_a_log_was_joined_to(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1)

    _, quality = read_job(tmp_path)

    assert [
        (log.file, log.node, log.gpus, log.rows) for source in quality.sources for log in source.logs
    ] == [("gpu.csv", "algo-1", 2, 900)]


@pytest.mark.parametrize("name", ["gpu_{}.csv", "nvidia-smi-{}.csv", "{}/gpu.csv"])
def test_logs_of_two_machines_find_theirs_by_name(tmp_path: Path, name: str) -> None:
    write_samples(tmp_path, 1, 2)
    for node in (1, 2):
        path = tmp_path / name.format(f"algo-{node}")
        write_log(path.parent, node, name=path.name)

    assert codes(tmp_path) == (("algo-1", "algo-2"), [])


def test_machines_with_samples_stay_what_they_are_called(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    first = tmp_path / "system" / "incremental" / f"{START_S}.algo-1.json"
    first.with_name(f"{START_S}.gpu-algo-1.json").write_text(
        first.read_text().replace("algo-1", "gpu-algo-1")
    )

    assert codes(tmp_path) == (("algo-1", "gpu-algo-1"), [])


@pytest.mark.parametrize(
    ("log", "nodes", "code"),
    [
        ({}, (1, 2), "machines.several"),
        ({"gpus": (0,)}, (1,), "machines.other_gpus"),
    ],
)
def test_any_other_log_is_a_machine_of_its_own(
    tmp_path: Path, log: dict[str, Any], nodes: tuple[int, ...], code: str
) -> None:
    write_samples(tmp_path, *nodes)
    write_log(tmp_path, 1, **log)

    found, remarks = codes(tmp_path)

    assert len(found) == len(nodes) + 1
    assert remarks == [code]


@pytest.mark.parametrize(
    ("later_s", "code"),
    [
        (-4000.0, "machines.other_zone"),
        (86400.0, "machines.other_times"),
        (100 * 86400.0, "machines.other_times"),
        (-START_S, "machines.other_times"),
    ],
)
@pytest.mark.parametrize("nodes", [(1,), (1, 2)])
def test_a_log_of_other_times_changes_nothing_but_a_remark(
    tmp_path: Path, nodes: tuple[int, ...], later_s: float, code: str
) -> None:
    write_samples(tmp_path / "job", *nodes)
    before = make_report(tmp_path / "job", tmp_path / "before", Options(formats=["json"])).report
    write_log(tmp_path / "job" / "old", 1, later_s=later_s)
    if later_s == -START_S:
        path = tmp_path / "job" / "old" / "gpu.csv"
        path.write_text(path.read_text().replace("1970/01/01 ", ""))

    after = make_report(tmp_path / "job", tmp_path / "after", Options(formats=["json"])).report

    source = next(one for one in after.quality.sources if one.source == "nvidia-smi logs")
    dropped = [(one.count, one.unit) for one in source.remarks if one.code == "times.other_job"]
    assert (source.rows, dropped) == (0, [(900, "rows")])
    assert [one.code for one in source.remarks if one.code.startswith("machines.")] == [code]
    assert (after.verdict, after.job.nodes) == (before.verdict, before.job.nodes)
    assert " is not in use, recorded at other times" in unread(after)
    assert unread(after) in summary.terminal(after)


def test_events_without_dates_hide_no_log_of_other_times(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    (tmp_path / "horovod_timeline_raw.json").write_text(events.text([events.x(ts=77_000_000_000)]))
    write_log(tmp_path, 1, later_s=-86400.0)

    assert codes(tmp_path)[1] == ["machines.other_times"]


@pytest.mark.parametrize(
    ("later_s", "used", "codes"),
    [
        ((-4000.0, 86400.0), 0, ["machines.other_times", "machines.other_zone"]),
        ((-86400.0, 0.0), 900, ["machines.joined", "machines.other_times"]),
        # Parts of one log, which began before the job.
        ((-905.0, -5.0), 1800, ["machines.joined"]),
    ],
)
def test_each_log_of_a_machine_is_of_its_own_times(
    tmp_path: Path, later_s: tuple[float, ...], used: int, codes: list[str]
) -> None:
    write_samples(tmp_path, 1)
    for number, later in enumerate(later_s):
        write_log(tmp_path, 1, later_s=later, name=f"gpu.csv.{number}")

    report = make_report(tmp_path, tmp_path / "out", Options(formats=["json"])).report

    source = next(one for one in report.quality.sources if one.source == "nvidia-smi logs")
    assert (source.rows, len(source.logs)) == (used, used // 900)
    assert sorted(one.code for one in source.remarks if one.code.startswith("machines.")) == codes
    assert [node.name for node in report.job.nodes] == ["algo-1"]
    assert unread(report).count("log is not in use") == 2 - used // 900


@pytest.mark.parametrize(
    ("later_s", "offset"),
    [(7200, "+02:00"), (-19800 + 30, "-05:30"), (20700 - 30, "+05:45"), (3600 + 30, "+01:00")],
)
def test_a_log_in_another_zone_is_joined_with_the_offset_that_the_remark_names(
    tmp_path: Path, later_s: float, offset: str
) -> None:
    write_samples(tmp_path, 1)
    write_log(tmp_path, 1, later_s=later_s)

    for read_in in ("UTC", "+09:00", "America/New_York"):
        reading = read_directory(tmp_path, Options(timezone=read_in))
        remarks = [one for source in reading.quality.sources for one in source.remarks]
        (remark,) = [one for one in remarks if one.code.startswith("machines.")]
        assert (remark.fields, remark.place) == ({"offset": offset}, "gpu.csv")

    assert codes(tmp_path, offset) == (("algo-1",), ["machines.joined"])


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
    write_log(tmp_path / "algo-1", 1, later_s=3.25)

    job, _ = read_job(tmp_path)

    assert job.nodes == ("algo-1",)
    moments = sorted(
        {(int(n), int(t)) for p in job.panels for n, t in zip(p.snapshot, p.time_us, strict=True)}
    )
    numbers, times = zip(*moments, strict=True)
    assert list(times) == sorted(times)
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) == len(numbers) - 1
    assert (
        make_report(tmp_path, tmp_path.with_name("out"), Options(formats=["json"], strict=True)).failure
        is None
    )
