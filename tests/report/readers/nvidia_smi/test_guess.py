"""Logs of nvidia-smi that do not name their columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobreport.errors import NothingReadableError
from jobreport.readers.nvidia_smi.guess import guessed
from jobreport.readers.registry import read_job
from jobrules.model import Metric

WHEN = "2026/01/03 15:36:5{0}.507"


def rows(*cells: str, count: int = 8) -> list[list[str]]:
    """Rows of two GPUs in turn; ``{0}`` is the second, ``{1}`` the number of the GPU, ``{2}`` what varies."""
    return [[cell.format(i // 2, i % 2, 17 * i % 90 + 5) for cell in cells] for i in range(count)]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (
            (WHEN, " NVIDIA GeForce RTX 4090", " {2} %", " 2 %", " 11{2} MiB", " 33.{2} W"),
            ("timestamp", "?", "utilization.gpu", "utilization.memory", "?", "power.draw"),
        ),
        (
            (WHEN, " {1}", " {2} %", " 450.00 W", " 81559 MiB"),
            ("timestamp", "index", "utilization.gpu", "?", "?"),
        ),
        (
            (
                WHEN,
                " GPU-8389f9cb-8c5a-b10f-6005-c6ff7eb00db{1}",
                " 00000000:3B:00.{1}",
                " P0",
                " 0x0000000000000004",
                " {2}.10 W",
            ),
            ("timestamp", "uuid", "pci.bus_id", "?", "clocks_event_reasons.active", "power.draw"),
        ),
        # Fan, GPU and memory, or in another order: nothing says which.
        ((WHEN, " {2} %", " 3{1} %", " 4{1} %", " {2}.10 W"), ("timestamp", "?", "?", "?", "power.draw")),
        # The fan is in front: the memory would be at work longer than the GPU.
        ((WHEN, " 4 %", " {2} %", " {2}.10 W"), ("timestamp", "?", "?", "power.draw")),
        # Nor are two that are not next to each other sure to be of the GPU and its memory.
        ((WHEN, " {2} %", " 5{1}", " 2 %", " {2}.10 W"), ("timestamp", "?", "?", "?", "power.draw")),
        # A GPU that is cut into several has no use of its own.
        ((WHEN, " [N/A]", " {2} %", " {2}.10 W"), ("timestamp", "?", "?", "power.draw")),
        # In use, free, and in all.
        (
            (WHEN, " {2} %", " 1{2} MiB", " 2{2} MiB", " 81559 MiB"),
            ("timestamp", "utilization.gpu", "?", "?", "?"),
        ),
    ],
)
def test_what_is_as_good_as_certain_is_named(cells: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert guessed(rows(*cells)) == names


@pytest.mark.parametrize(
    "cells",
    [
        (WHEN, " {1}", " {2}", " 40000"),  # no units
        ("1767454613", " {2} %"),  # no time of the tool's
        (WHEN, " P0", " {1}"),
        (WHEN, " {1}", " 7{2} MiB", " 81559 MiB"),  # in use or free
        ("a", "b"),
        (" {2} %", " {2} MiB"),
    ],
)
def test_what_is_not_certain_is_no_log(cells: tuple[str, ...]) -> None:
    assert guessed(rows(*cells)) is None


def test_a_log_without_header_is_read_and_says_as_what(tmp_path: Path) -> None:
    lines = [",".join(row) for row in rows(WHEN, " {1}", " {2} %", " 11{2} MiB", count=10)]
    (tmp_path / "gpu.csv").write_text("\n".join([*lines[:5], "Unknown Error", *lines[5:], ""]))

    job, quality = read_job(tmp_path)

    assert job.gpu_count == 2
    panel = job.panel("node", Metric.GPU_UTILIZATION)
    assert panel
    assert panel.values.ravel().tolist() == [17 * i % 90 + 5 for i in range(10)]
    (source,) = quality.sources
    assert source.rows == 10
    assert [(r.count, r.unit) for r in source.remarks if r.action == "skipped"] == [(1, "rows")]
    assert any("timestamp, index, utilization.gpu;" in r.reason for r in source.remarks)


def test_a_log_without_header_and_units_is_refused(tmp_path: Path) -> None:
    lines = [",".join(row) for row in rows(WHEN, " {1}", " {2}", " 11{2}")]
    (tmp_path / "gpu.csv").write_text("\n".join([*lines, ""]))

    with pytest.raises(NothingReadableError, match="line that names the columns"):
        read_job(tmp_path)
