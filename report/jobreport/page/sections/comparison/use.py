"""How busy GPUs and cores were in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import comparison as figures
from jobreport.page.figures.comparison import Line
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.scales import ceiling
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table
from jobreport.page.sections.comparison.outline import heading, section
from jobreport.page.sections.parts.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison

#: Variants that are drawn; all are in the table.
MAX_DRAWN = 6


@section
def use(comparison: Comparison) -> Fragment:
    """A histogram for each variant and device, before the outline of the base."""
    found = comparison.use
    place = heading("use")
    panels: list[Panel] = []
    live = {}
    for device in ("GPU", "CPU"):
        rows = [(label, one) for label, own in found.items() for one in own if one.device == device]
        top = ceiling(max((value for _, one in rows for value in one.histogram), default=1.0) or 1.0)
        base = next((one for label, one in rows if label == comparison.base), None)
        for label, one in rows[:MAX_DRAWN]:
            is_base = label == comparison.base
            outline = Line(label=comparison.base, values=base.histogram) if base and not is_base else None
            drawn = figures.utilization(
                Line(label=label, values=one.histogram), outline, one.mean, min(100.0, top)
            )
            name = f"live-use-{len(panels)}"
            live[name] = drawn.live
            panels.append(
                Panel(
                    id=name,
                    title=f"{device}, {label}: mean {formats.percent(one.mean)}",
                    label=f"{device} utilization of {label}, mean {formats.percent(one.mean)}",
                    drawing=drawn.drawing,
                )
            )
    html = render(
        "comparison/use",
        heading=place,
        panels=panels,
        finding=_finding(comparison),
        table=_shares(comparison) if panels else None,
        left_out=max(0, len(found) - MAX_DRAWN),
        json=document_json("use", live),
    )
    return Fragment(name="use", html=html)


def _finding(comparison: Comparison) -> str:
    """``GPU utilization: A 9.2%, B 33.1%; CPU utilization: …``."""
    parts = []
    for device in ("GPU", "CPU"):
        means = [
            f"{label} {formats.percent(one.mean)}"
            for label, own in comparison.use.items()
            for one in own
            if one.device == device
        ]
        if means:
            more = f", and {len(means) - 3} more" if len(means) > 3 else ""
            parts.append(f"{device} utilization: {', '.join(means[:3])}{more}")
    return f"Mean {'; '.join(parts)}."


def _shares(comparison: Comparison) -> Table:
    """Idle, active, and busy time, as the report counts it."""
    rows = [
        [
            label,
            one.device,
            formats.percent(one.mean),
            *(formats.percent(share) for share in _states(one.histogram)),
        ]
        for label, own in comparison.use.items()
        for one in own
    ]
    return Table(
        label="Utilization in the training loop",
        heads=[":Variant", ":Device", "Mean", "below 10%", "10 to 90%", "90% or more"],
        rows=rows,
        fold="idle, active, and busy time",
    )


def _states(histogram: Sequence[float]) -> tuple[float, float, float]:
    n = len(histogram)
    return sum(histogram[: n // 10]), sum(histogram[n // 10 : n - n // 10]), sum(histogram[n - n // 10 :])
