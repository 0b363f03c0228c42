"""Step times: blocks, the typical against the slow step, and the course."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.comparison import words
from jobreport.comparison.comparing import changed_course
from jobreport.formats import time_scale
from jobreport.page.figures import comparison as figures
from jobreport.page.figures.comparison import Blocks, Line
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.names import rows_class
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table
from jobreport.page.sections.comparison.outline import heading, section
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.comparison.document import Comparison, Steps
    from jobreport.formats import TimeScale

#: Columns of the table of quantiles.
QUANTILES = (5, 25, 50, 75, 95, 99)


@section
def steps(comparison: Comparison) -> Fragment:
    """Three figures; with other batch sizes, times of 1,000 samples."""
    batches = {one.label: one.facts.get("batch_size") for one in comparison.variants}
    sizes = {label: float(size) for label, size in batches.items() if isinstance(size, int | float)}
    per_sample = len(set(batches.values())) > 1 and len(sizes) == len(batches)
    shown = {
        label: _scaled(own, 1000 / sizes[label] if per_sample else 1.0)
        for label, own in comparison.steps.items()
    }
    place = heading("steps")
    if not shown:
        html = render("comparison/steps", heading=place, shown={})
        return Fragment(name="steps", html=html)
    scale = time_scale(own.quantiles_s[95] for own in shown.values())
    lines = list(shown)[: figures.MAX_LINES]
    with_blocks = {label: own for label, own in shown.items() if own.means_s}
    curves = {
        "live-steps-cumulated": figures.cumulated(
            [Line(label=label, values=shown[label].quantiles_s) for label in lines], scale.factor, scale.unit
        ),
    }
    courses = [label for label in lines if label in with_blocks]
    if courses:
        curves["live-steps-course"] = figures.over_loop(
            [Line(label=label, values=with_blocks[label].means_s) for label in courses],
            scale.factor,
            scale.unit,
        )
        curves["live-steps-blocks"] = figures.blocks(_blocks(with_blocks, scale), scale.unit)
    html = render(
        "comparison/steps",
        heading=place,
        shown=shown,
        lead="The batch sizes differ, so all times are those of 1,000 samples." if per_sample else "",
        curves=curves,
        key=[
            (style, label, figures.series(i))
            for i, (label, style) in enumerate(zip(lines, figures.STYLES, strict=False))
        ],
        left_out=len(shown) - len(lines),
        typical=_typical(shown, scale),
        course=" ".join([_course(comparison), *_stalls(comparison)]),
        basis=_basis(comparison),
        rows=rows_class(len(with_blocks)),
        table=_quantiles(shown, scale),
        blocks=_means(with_blocks, scale) if with_blocks else None,
        json=document_json("steps", {name: one.live for name, one in curves.items()}),
    )
    return Fragment(name="steps", html=html)


def _scaled(own: Steps, factor: float) -> Steps:
    return type(own)(
        quantiles_s=tuple(value * factor for value in own.quantiles_s),
        means_s=tuple(value * factor for value in own.means_s),
    )


def _blocks(found: Mapping[str, Steps], scale: TimeScale) -> list[Blocks]:
    return [
        Blocks(
            label=label,
            values=[value * scale.factor for value in own.means_s],
            mean=scale.factor * sum(own.means_s) / len(own.means_s),
        )
        for label, own in found.items()
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


def _course(comparison: Comparison) -> str:
    changed = changed_course(comparison.measures)
    return f"{join_names(changed) if changed else 'No variant'} changed its course."


def _stalls(comparison: Comparison) -> list[str]:
    """Of each variant, how few steps carry its difference from the base."""
    base = comparison.steps.get(comparison.base)
    clauses = {label: words.of_stalls(base, comparison.steps.get(label)) for label in comparison.others}
    return [f"{label}: {clause}." for label, clause in clauses.items() if clause]


def _basis(comparison: Comparison) -> str:
    """What the blocks are; of repeats the runs are tested, not the blocks."""
    if all(len(variant.runs) == 1 for variant in comparison.variants):
        return "Means of 20 blocks of neighboring steps: their spread is the basis of the test."
    return "Means of 20 blocks of neighboring steps, averaged over the runs of each variant."


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
