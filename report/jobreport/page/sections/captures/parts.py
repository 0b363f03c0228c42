"""What the sections on traces of PyTorch's profiler share: their rows, the order of these, and figures with tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.names import cut_apart
from jobreport.page.sections.fragment import Fragment, render
from jobreport.page.sections.outline import heading
from jobreport.page.sections.parts.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.figures.canvas import Figure
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


class Drawing(Struct, frozen=True, kw_only=True):
    """One drawing of a figure; a title tells several apart."""

    figure: Figure
    #: Classes of its frame.
    style: str = ""
    title: str = ""


class CaptureFigure(Struct, frozen=True, kw_only=True):
    """A figure with its caption, key, and table."""

    name: str
    title: str
    caption: str
    aid: str
    drawings: tuple[Drawing, ...]
    key: tuple[tuple[str, str, str], ...] = ()
    reading: str = ""
    #: What a reader can zoom into; empty for figures without such an axis.
    zoom: str = ""
    table: Table | None = None


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
    """Which rows of values are shown: all in their order, or of more than ``most`` those farthest from the median."""
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


def section(
    anchor: str,
    report: Report,
    *,
    lead: Sequence[str] = (),
    figures: Sequence[CaptureFigure] = (),
    tables: Sequence[Table] = (),
    parts: Sequence[tuple[str, Sequence[CaptureFigure | Table]]] = (),
    why_none: str = "",
) -> Fragment:
    """A section on captures: sentences, figures, tables, and parts with titles of their own.

    ``why_none`` is the reason for an empty section.
    """
    inner = [one for _, items in parts for one in items if isinstance(one, CaptureFigure)]
    plots = {
        f"live-{anchor}-{one.name}-{i}": drawing.figure.live
        for one in (*figures, *inner)
        for i, drawing in enumerate(one.drawings)
    }
    html = render(
        "captures",
        heading=heading(anchor, report),
        has_captures=bool(report.captures),
        why_none=why_none,
        lead=lead,
        sections=[("", (*figures, *tables)), *parts],
        json=document_json(anchor, plots) if plots else "",
    )
    return Fragment(name=anchor, html=html)
