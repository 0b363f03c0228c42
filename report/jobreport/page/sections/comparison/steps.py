"""Step times, and utilization of GPUs and cores in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.comparison import words
from jobreport.comparison.advice import changed_course
from jobreport.formats import time_scale
from jobreport.page.figures import comparison as figures
from jobreport.page.figures.comparison import Blocks, Line
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.scales import ceiling
from jobreport.page.kit import Drawing, Empty, Figure, Side, Table
from jobreport.page.sections.comparison.outline import section
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison, Steps
    from jobreport.formats import TimeScale
    from jobreport.page.kit.section import Content

#: Columns of the table of quantiles.
QUANTILES = (5, 25, 50, 75, 95, 99)
#: Variants that are drawn; all are in the table.
MAX_DRAWN = 6
DEVICES = ("GPU", "CPU")


@section
def steps(comparison: Comparison) -> Content:
    """Three figures; with other batch sizes, times of 1,000 samples."""
    if not comparison.steps:
        return Empty("No steps were recorded, or the reports were made by an older version.")
    batches = _other_batches(comparison)
    shown = {
        label: _scaled(own, 1000 / batches[label] if batches else 1.0)
        for label, own in comparison.steps.items()
    }
    scale = time_scale(own.quantiles_s[95] for own in shown.values())
    return [
        "The batch sizes differ, so all times are those of 1,000 samples." if batches else "",
        _blocks({label: own for label, own in shown.items() if own.means_s}, scale),
        Side(blocks=[_cumulated(shown, scale), _course(comparison, shown, scale)]),
    ]


def _other_batches(comparison: Comparison) -> dict[str, float]:
    """The batch size of each variant; empty if they are equal, or not all known."""
    batches = {one.label: one.facts.get("batch_size") for one in comparison.variants}
    sizes = {label: float(size) for label, size in batches.items() if isinstance(size, int | float)}
    return sizes if len(set(batches.values())) > 1 and len(sizes) == len(batches) else {}


def _scaled(own: Steps, factor: float) -> Steps:
    return type(own)(
        quantiles_s=tuple(value * factor for value in own.quantiles_s),
        means_s=tuple(value * factor for value in own.means_s),
    )


def _blocks(found: Mapping[str, Steps], scale: TimeScale) -> Figure | None:
    if not found:
        return None
    rows = [
        Blocks(
            label=label,
            values=[value * scale.factor for value in own.means_s],
            mean=scale.factor * sum(own.means_s) / len(own.means_s),
        )
        for label, own in found.items()
    ]
    return Figure(
        name="steps-blocks",
        title="Means of blocks of steps",
        finding="Means of 20 blocks of neighboring steps, averaged over the runs of each variant.",
        aid="Tick: the mean.",
        drawings=[
            Drawing(
                figure=figures.blocks(rows, scale.unit),
                label="Means of the blocks of steps",
                style=f"names {rows_class(len(found))}",
            )
        ],
        tables=[_means(found, scale)],
    )


def _cumulated(shown: Mapping[str, Steps], scale: TimeScale) -> Figure:
    lines = [
        Line(label=label, values=own.quantiles_s) for label, own in list(shown.items())[: figures.MAX_LINES]
    ]
    return Figure(
        name="steps-cumulated",
        title="Share of steps by duration",
        finding=_typical(shown, scale),
        aid="Percent of the steps that took at most so long, up to p99."
        + formats.not_shown(len(shown) - figures.MAX_LINES, "variant"),
        key=_key(lines),
        drawings=[Drawing(figure=figures.cumulated(lines, scale.factor, scale.unit))],
        tables=[_quantiles(shown, scale)],
    )


def _course(comparison: Comparison, shown: Mapping[str, Steps], scale: TimeScale) -> Figure | None:
    first = list(shown.items())[: figures.MAX_LINES]
    lines = [Line(label=label, values=own.means_s) for label, own in first if own.means_s]
    if not lines:
        return None
    changed = changed_course(comparison.measures)
    course = f"{join_names(changed) if changed else 'No variant'} changed its course."
    return Figure(
        name="steps-course",
        title="Step time in the order of the steps",
        finding=" ".join([course, *_stalls(comparison)]),
        aid="Means of the blocks, in the order of the steps."
        + formats.not_shown(len(shown) - figures.MAX_LINES, "variant"),
        key=_key(lines),
        drawings=[Drawing(figure=figures.over_loop(lines, scale.factor, scale.unit))],
    )


def _key(lines: Sequence[Line]) -> list[tuple[str, str, str]]:
    return [
        (style, line.label, figures.series(i))
        for i, (line, style) in enumerate(zip(lines, figures.STYLES, strict=False))
    ]


def _typical(shown: Mapping[str, Steps], scale: TimeScale) -> str:
    """``Median step: A 45.9, B 92.0 ms; p95: A 53.1, B 101.0 ms``."""
    parts = []
    for name, quantile in (("Median", 50), ("p95", 95)):
        values = ", ".join(
            f"{label} {scale(own.quantiles_s[quantile])}" for label, own in list(shown.items())[:3]
        )
        parts.append(f"{name}: {values}{formats.NBSP}{scale.unit}")
    return f"{'; '.join(parts)}."


def _stalls(comparison: Comparison) -> list[str]:
    """Number of steps that carry the difference of each variant from the base."""
    base = comparison.steps.get(comparison.base)
    clauses = {label: words.of_stalls(base, comparison.steps.get(label)) for label in comparison.others}
    return [f"{label}: {clause}." for label, clause in clauses.items() if clause]


def _quantiles(shown: Mapping[str, Steps], scale: TimeScale) -> Table:
    return Table(
        label="Quantiles of the step time",
        heads=[":Variant", *(f"p{quantile} ({scale.unit})" for quantile in QUANTILES)],
        rows=[
            [label, *(scale(own.quantiles_s[quantile]) for quantile in QUANTILES)]
            for label, own in shown.items()
        ],
        fold="quantiles",
    )


def _means(found: Mapping[str, Steps], scale: TimeScale) -> Table:
    longest = max(len(own.means_s) for own in found.values())
    rows = [
        [str(i + 1), *(scale(own.means_s[i]) if i < len(own.means_s) else "–" for own in found.values())]
        for i in range(longest)
    ]
    return Table(
        label="Means of the blocks",
        heads=["Block", *(f"{label} ({scale.unit})" for label in found)],
        rows=rows,
        fold="means of the blocks",
    )


@section
def use(comparison: Comparison) -> Content:
    """A histogram for each variant and device, before the outline of the base."""
    drawings = [drawing for device in DEVICES for drawing in _drawings(comparison, device)]
    if not drawings:
        return Empty("Utilization was not recorded, or the reports were made by an older version.")
    return [
        Figure(
            name="use",
            title="Shares of utilization",
            finding=_mean_use(comparison),
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


def _mean_use(comparison: Comparison) -> str:
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
