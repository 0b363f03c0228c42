"""Rows of the sections on traces of PyTorch's profiler, and their order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.names import cut_apart
from jobreport.page.kit import Empty, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.model.captures import Capture, DeviceCapture

#: Bars and rows that are shown at most; of more, these that differ most from the median.
MAX_ALL, MAX_ODD = 64, 32
NS = 1e-9
NO_DEVICE = "The traces hold no GPU activity. Record ProfilerActivity.CUDA."


class CaptureRow(Struct, frozen=True, kw_only=True):
    """A capture under the name that all sections call it by."""

    name: str
    capture: Capture


class DeviceRow(Struct, frozen=True, kw_only=True):
    """A device of a capture, also under one name."""

    name: str
    capture: Capture
    device: DeviceCapture


def captures_of(report: Report) -> list[CaptureRow]:
    """All captures but copies of others, by rank and file."""
    found = [one for one in report.captures or () if not one.copy_of]
    ranks = Counter(one.rank for one in found)
    seen: Counter[int | None] = Counter()
    files = [one.file for one in found if one.rank is None]
    shown = dict(zip(files, cut_apart(files, lambda file: formats.escape_name(file, 40)), strict=True))
    rows = []
    for one in sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.file)):
        seen[one.rank] += 1
        name = shown[one.file] if one.rank is None else f"rank {one.rank}"
        if one.rank is not None and ranks[one.rank] > 1:
            name += f" ({seen[one.rank]})"
        rows.append(CaptureRow(name=name, capture=one))
    return rows


def devices_of(report: Report) -> list[DeviceRow]:
    """All devices of these captures."""
    return [
        DeviceRow(
            name=row.name if len(row.capture.devices) == 1 else f"{row.name}, device {device.device}",
            capture=row.capture,
            device=device,
        )
        for row in captures_of(report)
        for device in row.capture.devices
    ]


def odd_first(values: Sequence[Sequence[float]], most: int = MAX_ALL) -> list[int]:
    """Indices of the rows to show: all in their order, or of more than ``most`` those farthest from the median."""
    if len(values) <= most:
        return list(range(len(values)))
    table = np.array(values, np.float64)
    far = np.abs(table - np.median(table, axis=0)).max(axis=1)
    return [int(i) for i in np.argsort(-far, kind="stable")[: min(most, MAX_ODD)]]


def omitted(shown: int, total: int, what: str) -> str:
    """`` Not shown: 960 ranks closer to the median.``; empty if all are shown."""
    return f" Not shown: {formats.count(total - shown, what)} closer to the median." if shown < total else ""


def without_empty(
    *, label: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], fold: str = ""
) -> Table:
    """A table without the columns that hold nothing but dashes."""
    kept = [i for i in range(len(heads)) if any(row[i] != "–" for row in rows)]
    return Table(
        label=label,
        caption=caption,
        fold=fold,
        heads=[heads[i] for i in kept],
        rows=[[row[i] for i in kept] for row in rows],
    )


def ns_scale(values: Sequence[int]) -> formats.TimeScale:
    """The unit of a column of nanoseconds."""
    return formats.time_scale(value * NS for value in values)


def ns_text(ns: float) -> str:
    """``69.1 ms``."""
    return formats.seconds(ns * NS)


def percent_of(part: float, whole: float) -> float:
    """Percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def nothing(report: Report, why: str) -> Empty:
    """A section without content; a page without traces does not have it at all."""
    if report.captures:
        return Empty(why)
    return Empty("No trace of PyTorch's profiler was found.", absent=True)
