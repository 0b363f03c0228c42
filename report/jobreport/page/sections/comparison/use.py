"""Utilization of GPUs and cores in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import comparison as figures
from jobreport.page.figures.comparison import Line
from jobreport.page.figures.scales import ceiling
from jobreport.page.kit import Drawing, Empty, Figure, Side, Table
from jobreport.page.sections.comparison.outline import section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison
    from jobreport.page.kit.section import Content

#: Variants that are drawn; all are in the table.
MAX_DRAWN = 6
DEVICES = ("GPU", "CPU")


@section
def use(comparison: Comparison) -> Content:
    """A histogram for each variant and device, before the outline of the base."""
    drawings = [drawing for device in DEVICES for drawing in _drawings(comparison, device)]
    if not drawings:
        return Empty("Utilization was not recorded, or the reports were made by an older version.")
    return [
        Figure(
            name="use",
            finding=_finding(comparison),
            aid="Percent of the training loop at each utilization, mean of the devices of a node. Dashed: the base. "
            "Line: the mean." + formats.not_shown(len(comparison.use) - MAX_DRAWN, "variant"),
            drawings=[Side(style="four", blocks=drawings)],
            tables=[_shares(comparison)],
        )
    ]


def _drawings(comparison: Comparison, device: str) -> list[Drawing]:
    rows = {label: one for label, own in comparison.use.items() for one in own if one.device == device}
    top = ceiling(max((value for one in rows.values() for value in one.histogram), default=1.0) or 1.0)
    lines = {label: Line(label=label, values=one.histogram) for label, one in rows.items()}
    base = lines.get(comparison.base)
    return [
        Drawing(
            figure=figures.utilization(
                lines[label], base if lines[label] is not base else None, one.mean, min(100.0, top)
            ),
            title=f"{device}, {label}: mean {formats.percent(one.mean)}",
            label=f"{device} utilization of {label}, mean {formats.percent(one.mean)}",
            style="low",
        )
        for label, one in list(rows.items())[:MAX_DRAWN]
    ]


def _finding(comparison: Comparison) -> str:
    """``GPU utilization: A 9.2%, B 33.1%; CPU utilization: …``."""
    parts = []
    for device in DEVICES:
        means = [
            f"{label} {formats.percent(one.mean)}"
            for label, own in comparison.use.items()
            for one in own
            if one.device == device
        ]
        if means:
            parts.append(f"{device} utilization: {formats.join_names(means)}")
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
