"""Damaged nvidia-smi logs: every row is in use or counted, and sound rows next to the damage keep their values."""

from __future__ import annotations

import gzip
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
from jobrules.model import Job, Metric
from tests.report.readers.nvidia_smi.tools import left, read

NAMES = (
    "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], clocks.current.sm [MHz],"
    " clocks_event_reasons.active"
)


def row(second: int, gpu: int = 0, **changed: str) -> str:
    """A row with values of its own."""
    cells = {
        "time": f"2026/01/03 15:{second // 60:02}:{second % 60:02}.000",
        "index": str(gpu),
        "use": f"{second % 50 + 10 * gpu} %",
        "memory": f"{1000 + second} MiB",
        "power": f"{100 + second}.50 W",
        "clock": "1410 MHz",
        "reasons": "0x0000000000000000",
        **changed,
    }
    return ", ".join(cells.values())


def rows(first: int, count: int) -> list[str]:
    return [row(second, gpu) for second in range(first, first + count) for gpu in (0, 1)]


def text_of(*lines: str) -> str:
    return "\n".join([NAMES, *lines]) + "\n"


def use_of(job: Job) -> dict[int, float]:
    """Use of the first GPU by the second of its row."""
    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    first = int(panel.time_us[0])
    return dict(zip(((panel.time_us - first) // 10**6).tolist(), panel.values[:, 0].tolist(), strict=True))


@pytest.mark.parametrize(
    "lines",
    [
        ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 535.183"],
        ["Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error"],
        ["[2026-01-03 15:00:20] restarting the loop, attempt 2"],
        [row(20, 0).rsplit(", ", 1)[0]],
        [row(20, 0) + ", 17, 4"],
        [row(20, 0) + row(20, 1)],
        ["\x00" * 200 + "garbage"],
        [row(20, time="[N/A]")],
        [row(20, time="2026/13/45 99:00:00")],
        [row(20, time="1767452420")],
        [row(20, use="[N/A]", memory="[N/A]", power="[N/A]", clock="[N/A]", reasons="[N/A]")],
        [row(20, use="ERR!", memory="ERR!", power="ERR!", clock="ERR!", reasons="ERR!")],
        [row(20, index="")],
        [row(20, index="[N/A]")],
        [row(5, 0)],
        [row(5, 0, use="77 %")],
    ],
    ids=[
        "driver",
        "handle",
        "message",
        "field short",
        "fields more",
        "two in one",
        "NUL bytes",
        "no time",
        "no date",
        "another kind of time",
        "no value",
        "nothing but errors",
        "no GPU",
        "GPU not available",
        "again",
        "again with another value",
    ],
)
def test_a_line_that_is_no_row_is_counted_and_costs_nothing_else(lines: list[str], tmp_path: Path) -> None:
    job, found = read(tmp_path, text_of(*rows(0, 20), *lines, *rows(30, 20)))

    assert found.rows == 80
    assert left(found) == len(lines)
    use = use_of(job)
    assert use == {second: second % 50 for second in [*range(20), *range(30, 50)]}
    assert job.panels_of(Metric.GPU_UTILIZATION)[0].devices == ("gpu0", "gpu1")


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_cut_last_line_is_counted_wherever_it_is_cut(cut: int, tmp_path: Path) -> None:
    text = text_of(*rows(0, 10))

    job, found = read(tmp_path, text[:-cut])

    assert (found.rows, left(found)) == (19, 1)
    (panel,) = job.panels_of(Metric.GPU_POWER)
    assert np.isnan(panel.values[-1, 1])
    assert panel.values[-1, 0] == 109.5


def test_headers_that_come_again_are_no_rows_whatever_their_columns(tmp_path: Path) -> None:
    other = "timestamp, index, power.draw [W]"
    lines = [*rows(0, 10), NAMES, *rows(10, 5), "", other, "2026/01/03 15:00:40.000, 0, 71.25 W", NAMES]

    job, found = read(tmp_path, text_of(*lines, *rows(50, 5)))

    assert (found.rows, left(found)) == (41, 0)
    (power,) = job.panels_of(Metric.GPU_POWER)
    assert 71.25 in power.values
    assert len(job.panels_of(Metric.GPU_UTILIZATION)[0].time_us) == 20


@pytest.mark.parametrize(
    "nothing",
    ["[N/A]", "N/A", "[Not Supported]", "Not Supported", "ERR!", "[Unknown Error]", "", "-", "twelve"],
)
def test_a_cell_without_a_number_costs_that_cell(nothing: str, tmp_path: Path) -> None:
    lines = rows(0, 10)
    lines[6] = row(3, 0, power=nothing)

    job, found = read(tmp_path, text_of(*lines))

    assert (found.rows, left(found)) == (20, 0)
    (power,) = job.panels_of(Metric.GPU_POWER)
    assert np.isnan(power.values[3, 0])
    assert np.isnan(power.values).sum() == 1
    assert use_of(job)[3] == 3
    assert sum(r.count for r in found.remarks if r.unit == "values" and r.action == "dropped") == 1


@pytest.mark.parametrize(
    ("mask", "thermal", "cap", "hardware"),
    [
        ("0x0000000000000000", 0, 0, 0),
        ("0x0000000000000001", 0, 0, 0),
        ("0x0000000000000004", 0, 100, 0),
        ("0x0000000000000020", 100, 0, 0),
        ("0x0000000000000080", 0, 0, 100),
        ("0x00000000000000A4", 100, 100, 100),
        ("36", 100, 100, 0),
    ],
)
def test_a_mask_has_each_of_its_reasons(
    mask: str, thermal: int, cap: int, hardware: int, tmp_path: Path
) -> None:
    job, _ = read(tmp_path, text_of(*rows(0, 3), row(3, reasons=mask)))

    slowdowns = [
        job.panels_of(metric)[0].values[3, 0]
        for metric in (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_POWER_CAP, Metric.GPU_HARDWARE_SLOWDOWN)
    ]
    assert slowdowns == [thermal, cap, hardware]


def test_a_line_break_in_a_quoted_cell_costs_its_row(tmp_path: Path) -> None:
    lines = rows(0, 10)
    lines[6] = row(3, 0, power='"103.50\n0"')

    _, found = read(tmp_path, text_of(*lines))

    assert (found.rows, left(found)) == (19, 2)


def test_a_quote_that_is_never_closed_costs_its_row(tmp_path: Path) -> None:
    lines = rows(0, 200)
    lines[6] = row(3, 0, power='"103.50')

    _, found = read(tmp_path, text_of(*lines))

    assert found.rows + left(found) == 400
    assert found.rows >= 399


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"use": '1"0 %'}, {"use": '1"0 %'}),
        ({"use": '1"0 %'}, {"time": '2026/01/03 "15:00:03.000'}),
        ({"reasons": '0x0"'}, {"time": '"2026/01/03 15:00:03.000'}),
        ({"reasons": '"0x0'}, {"time": '"2026/01/03 15:00:03.000'}),
    ],
)
def test_quotes_too_many_in_two_rows_join_no_lines(
    first: dict[str, str], second: dict[str, str], tmp_path: Path
) -> None:
    lines = rows(0, 10)
    lines[6:8] = row(3, 0, **first), row(3, 1, **second)

    _, found = read(tmp_path, text_of(*lines))

    assert found.rows + left(found) == 20


def test_compressed_data_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    packed = gzip.compress(text_of(*rows(0, 400)).encode())
    (tmp_path / "gpu.csv.gz").write_bytes(packed[: len(packed) // 2])

    job, quality = read_job(tmp_path, strict=True)

    (found,) = quality.sources
    assert 100 < found.rows < 700
    assert any("cut short" in remark.reason for remark in found.remarks)
    assert use_of(job)[7] == 7


@pytest.mark.parametrize("other_log", [False, True])
@pytest.mark.parametrize("damage", [{"use": "[N/A]"}, {"time": "[N/A]"}], ids=["no value", "no time"])
def test_a_machine_without_a_row_costs_no_other(
    damage: dict[str, str], other_log: bool, tmp_path: Path
) -> None:
    lines = [f"{line}, a" for line in rows(0, 20)]
    other = row(3, 0, **{"use": "", "memory": "", "power": "", "clock": "", "reasons": "", **damage})
    text = "\n".join([f"{NAMES}, hostname", *lines, f"{other}, b", ""])
    if other_log:
        (tmp_path / "good.csv").write_text(text_of(*rows(0, 20)))

    _, found = read(tmp_path, text)

    assert (found.rows, left(found)) == (80 if other_log else 40, 1)


def test_a_short_part_with_another_kind_of_time_costs_no_other_row(tmp_path: Path) -> None:
    text = "\n".join(["timestamp, index, power.draw [W]", "1767452400, 0, 71.25 W", text_of(*rows(0, 20))])

    job, found = read(tmp_path, text)

    assert (found.rows, left(found)) == (40, 1)
    assert len(use_of(job)) == 20


def test_a_new_identifier_in_each_row_takes_no_time() -> None:
    n = 20_000
    gpus = [Rows(gpu=GPU(uuid=str(i)), line=n - i, time_us=np.array([n - i]), values={}) for i in range(n)]
    log = Log(file=SourceFile(name="gpu.csv", place=""), host="", gpus=gpus)
    begin = time.process_time()

    (found,) = machines_of([log], Tally())

    assert [found.gpus[rows.gpu] for rows in gpus[::-1]] == [f"gpu{i}" for i in range(n)]
    # To look for a free number from 0 each time would take half a minute.
    assert time.process_time() - begin < 5


def test_what_is_no_number_among_the_indices_is_no_gpu(tmp_path: Path) -> None:
    damaged = ["1e308", "१२", "-1", "0x3", "inf"]
    index = [f"{i % 2}" if i % 23 else damaged[i // 23 % len(damaged)] for i in range(460)]
    rows = [
        f"2026/01/03 15:{i // 120:02}:{i // 2 % 60:02}.417, {gpu}, {i % 101} %" for i, gpu in enumerate(index)
    ]
    (tmp_path / "gpu.csv").write_text("\n".join(["timestamp, index, utilization.gpu [%]", *rows, ""]))

    job, quality = read_job(tmp_path)

    assert [facts.gpus for facts in job.facts] == [{"gpu0", "gpu1"}]
    (source,) = quality.sources
    assert {one.code: one.count for one in source.remarks}["nvidia_smi.no_number"] == 20
    assert source.rows == 440


@pytest.mark.parametrize(
    ("names", "cells", "code"),
    [("uuid", "GPU-{}", "samples.devices"), ("hostname, index", "node-{}, 0", "nvidia_smi.many_nodes")],
)
def test_rows_of_too_many_gpus_or_nodes_are_left_out(
    tmp_path: Path, names: str, cells: str, code: str
) -> None:
    count = 1100
    lines = [f"2026/01/03 15:00:{i // 50:02}.000, {cells.format(i)}, 50 %" for i in range(count)]

    _, found = read(tmp_path, "\n".join([f"timestamp, {names}, utilization.gpu [%]", *lines, ""]))

    (surplus,) = (r.count for r in found.remarks if r.code == code)
    assert surplus + found.rows == count
