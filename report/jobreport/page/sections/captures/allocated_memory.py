"""GPU memory that PyTorch's allocator gave out while its profiler recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.captures.allocated_memory import allocated
from jobreport.page.kit import Drawing, Figure, Table
from jobreport.page.sections.captures.parts import (
    CaptureRow,
    captures_of,
    nothing,
    odd_first,
    omitted,
    percent_of,
)
from jobreport.page.sections.outline import section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.model.captures import MemoryCurve

#: Devices that are drawn.
MAX_DRAWN = 2


class Memory(Struct, frozen=True, kw_only=True):
    """Memory of one device, and its name."""

    row: CaptureRow
    name: str
    curve: MemoryCurve


@section
def allocated_memory(report: Report) -> Content:
    """Allocated and reserved memory over time, the fullest devices first, and a table of all."""
    found = [
        Memory(
            row=row,
            name=row.name if len(row.capture.memory) == 1 else f"{row.name}, device {curve.device}",
            curve=curve,
        )
        for row in captures_of(report)
        for curve in row.capture.memory
    ]
    if not found:
        why = "Memory was not recorded. Record it with profile_memory=True."
        return nothing(report, why)
    return [_figure(found)]


def _figure(found: Sequence[Memory]) -> Figure:
    fullest = sorted(found, key=lambda one: -max(one.curve.allocated_peak, one.curve.reserved_peak or 0))
    drawn = [one for one in fullest if one.curve.allocated and one.curve.end_ns > one.curve.start_ns][
        :MAX_DRAWN
    ]
    values = (
        max(one.curve.allocated_peak, one.curve.reserved_peak or 0, one.curve.total or 0) for one in found
    )
    scale = formats.rate_scale(map(float, values), "B")
    reserved = any(one.curve.reserved for one in drawn)
    several = len(found) > 1
    return Figure(
        name="allocated-memory-curve",
        title="Allocated GPU memory",
        finding=_caption(fullest[0], scale),
        aid="Milliseconds from the first recorded allocation.",
        drawings=tuple(
            Drawing(
                figure=allocated(one.curve, scale),
                title=one.name if several else "",
                style="low" if several else "",
            )
            for one in drawn
        ),
        key=(
            ("s1", "allocated" if fullest[0].curve.has_totals else "allocated since the start", "allocated"),
            *((("s2", "reserved", "reserved"),) if reserved else ()),
        ),
        zoom="memory" if drawn else "",
        reading="Band: lowest to highest in a column of time. Reserved memory includes what the allocator keeps for later. "
        "Black line: size of the memory.",
        tables=[_table(found, scale)],
    )


def _caption(fullest: Memory, scale: formats.Scale) -> str:
    curve = fullest.curve
    peak = f"{formats.number(curve.allocated_peak / scale.factor, 2)}{formats.NBSP}{scale.unit}"
    if not curve.has_totals:
        return f"Allocated memory rose to {peak} above the start of the capture on {fullest.name}."
    return f"Allocated memory peaked at {peak} on {fullest.name}."


def _table(found: Sequence[Memory], scale: formats.Scale) -> Table:
    chosen = odd_first(
        [(float(one.curve.allocated_peak), float(one.curve.reserved_peak or 0)) for one in found]
    )
    return Table(
        label="Allocated GPU memory of each device",
        fold="peaks of each device",
        caption="Fragmentation: reserved memory that was not allocated, when most was reserved."
        + omitted(len(chosen), len(found), "device"),
        heads=(
            *(
                ":Device",
                f"Allocated, peak ({scale.unit})",
                "At (ms)",
                f"Reserved, peak ({scale.unit})",
                "At (ms)",
            ),
            *("Fragmentation (%)", f"Size ({scale.unit})", "Reserved (% of size)"),
        ),
        rows=[_cells(found[i], scale) for i in chosen],
    )


def _cells(one: Memory, scale: formats.Scale) -> tuple[str, ...]:
    curve = one.curve

    def size(value: int | None) -> str:
        return formats.known(None if value is None else value / scale.factor, 2)

    def at(ns: int | None) -> str:
        return formats.known(None if ns is None else (ns - curve.start_ns) / 1e6, 2)

    return (
        one.name,
        size(curve.allocated_peak),
        at(curve.allocated_peak_ns),
        size(curve.reserved_peak),
        at(curve.reserved_peak_ns),
        formats.known(curve.fragmentation_percent),
        size(curve.total),
        formats.known(percent_of(curve.reserved_peak, curve.total))
        if curve.total and curve.reserved_peak
        else "–",
    )
