"""Which rows of nvidia-smi logs are of one moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from jobrules.model import Metric, Panel
from tests.report.readers.nvidia_smi.tools import left, read

START = datetime(2026, 1, 3, tzinfo=UTC)


def use_of(folder: Path, header: str, lines: list[str]) -> Panel:
    """The use of the GPUs; no row is lost."""
    job, found = read(folder, "\n".join([header, *lines, ""]))
    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    assert (found.rows, left(found), left(found, unit="values")) == (len(lines), 0, 0)
    return panel


def at(seconds: float, form: str = "%Y/%m/%d %H:%M:%S.%f") -> str:
    return f"{START + timedelta(seconds=seconds):{form}}"


@pytest.mark.parametrize("apart_ms", [0, 1, 15, 30, 60])
def test_gpus_in_turn_are_those_between_two_pauses(apart_ms: int, tmp_path: Path) -> None:
    lines = [f"{at(i + k * apart_ms / 1000)}, {10 * k} %" for i in range(20) for k in range(8)]

    panel = use_of(tmp_path, "timestamp, utilization.gpu [%]", lines)

    assert np.array_equal(panel.values, np.tile(np.arange(8) * 10.0, (20, 1)))


@pytest.mark.parametrize("interval_ms", [40, 50, 100, 1000])
def test_a_quick_loop_over_one_gpu_is_one(interval_ms: int, tmp_path: Path) -> None:
    lines = [f"{at(i * interval_ms / 1000)}, {i % 100} %" for i in range(60)]

    panel = use_of(tmp_path, "timestamp, utilization.gpu [%]", lines)

    assert panel.devices == ("gpu0",)


def test_the_gpus_of_a_single_moment(tmp_path: Path) -> None:
    lines = [f"{at(k / 1000)}, {10 * k} %" for k in range(8)]

    panel = use_of(tmp_path, "timestamp, utilization.gpu [%]", lines)

    assert len(panel.devices) == 8


def test_a_loop_that_became_quicker_loses_nothing(tmp_path: Path) -> None:
    seconds = [*range(0, 1000, 10), *range(1000, 1090)]
    lines = [f"{at(s)}, 0, {s % 2} %" for s in seconds]

    panel = use_of(tmp_path, "timestamp, index, utilization.gpu [%]", lines)

    assert len(panel.values) == len(lines)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("elapsed_s", 1),
        ("elapsed_ms", 1e-3),
        ("elapsed_min", 60),
        ("elapsed [h]", 3600),
        ("time_ms", 1e-3),
        ("time (min)", 60),
        ("time", 1),
    ],
)
def test_times_since_a_start_are_in_the_unit_of_their_column(
    name: str, seconds: float, tmp_path: Path
) -> None:
    panel = use_of(tmp_path, f"{name},index,gpu_util", [f"{2 * i / seconds:.6f},0,50" for i in range(40)])

    assert np.abs(np.diff(panel.time_us) - 2_000_000).max() < 4000
