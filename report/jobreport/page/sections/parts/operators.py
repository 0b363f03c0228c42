"""Operators of the framework: which took most self time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.formats import seconds, time_scale
from jobreport.page.figures.framework import MAX_RANKED, Rank, other, ranked
from jobreport.page.figures.names import rows_class
from jobreport.page.kit.table import Table, as_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.framework import FrameworkTime, Operators


#: Rows of a table that are not folded away.
MAX_OPEN = 10


class Shown(Struct, frozen=True, kw_only=True):
    """A figure of the section and its caption."""

    name: str
    title: str
    figure: Figure
    style: str
    caption: str


def operators_basis(time: FrameworkTime) -> str:
    """Which steps the shares of operators describe, and for how long operators ran."""
    known = {one.device: one.ran_s for one in time.operators if one.ran_s is not None}
    scale = time_scale(known.values())
    ran = [f"{scale(ran_s)}{formats.NBSP}{scale.unit} on the {device}" for device, ran_s in known.items()]
    lasted = f": {', '.join(ran)}" if ran else ""
    if time.first_step is None or time.last_step is None:
        return f"Operators were recorded without step numbers{lasted}. Shares may describe a few steps only."
    one = time.first_step == time.last_step
    steps = f"step {time.first_step}" if one else f"steps {time.first_step} to {time.last_step}"
    these = "that step" if one else "those steps"
    return f"Operators were recorded in {steps} only{lasted}. Shares describe {these}, not the job."


def operators_figure(table: Operators) -> Shown:
    """The ten operators with most self time."""
    drawn, rest = table.rows[:MAX_RANKED], table.rows[MAX_RANKED:]
    ranks = [
        Rank(
            name=row.name,
            percent=row.percent,
            detail=f"{seconds(row.self_s)} self, {seconds(row.total_s)} total, "
            + formats.count(row.calls, "call"),
        )
        for row in drawn
    ]
    if left := len(rest) + table.others:
        ranks.append(other(left, table.others_percent + sum(row.percent for row in rest)))
    first = drawn[0]
    name = formats.escape_name(first.name, 60)
    caption = f"Most self time: {name} ({formats.percent(first.percent)})."
    return ranked_figure(table.device.lower(), f"{table.device} operators", caption, ranks)


def operators_tables(found: Operators) -> list[Table]:
    """The operators with most self time, and the others in a fold; one unit for all times of a kind."""
    totals, calls = (
        time_scale(row.total_s for row in found.rows),
        time_scale(row.call_s for row in found.rows),
    )
    rows: list[tuple[str, ...]] = [
        (
            as_code(row.name),
            formats.number(row.calls, 0),
            totals(row.self_s),
            totals(row.total_s),
            calls(row.call_s),
            formats.number(row.percent),
        )
        for row in found.rows
    ]
    if found.others:
        name = formats.count(found.others, "other operator")
        counted = formats.number(found.others_calls, 0), totals(found.others_s)
        rows.append((name, *counted, "–", "–", formats.number(found.others_percent)))
    left = len(found.rows) > MAX_OPEN
    which = (
        f"Top {MAX_OPEN} {found.device} operators. All {found.device} operators"
        if left
        else f"{found.device} operators by self time"
    )
    heads = (
        *(f":{found.device} operator", "Calls", f"Self time ({totals.unit})", f"Total time ({totals.unit})"),
        *(f"Self time per call ({calls.unit})", "Share (%)"),
    )
    sums = (
        f"{formats.count(found.calls, 'call')}, {totals(found.self_s)}{formats.NBSP}{totals.unit} self time"
    )
    shown = Table(
        label=f"{found.device} operators",
        caption=f"{which}: {sums}.",
        heads=heads,
        rows=rows[:MAX_OPEN] if left else rows,
    )
    if not left:
        return [shown]
    more = formats.count(len(found.rows) - MAX_OPEN + found.others, f"more {found.device} operator")
    return [
        shown,
        Table(label=f"More {found.device} operators", fold=more, heads=heads, rows=rows[MAX_OPEN:]),
    ]


def most_self_time(time: FrameworkTime) -> Markup:
    """The operator with most self time of each device."""
    most = [
        Markup("{} on the {} ({})").format(
            as_code(table.rows[0].name), table.device, formats.percent(table.rows[0].percent)
        )
        for table in time.operators
        if table.rows
    ]
    return Markup("Most self time: {}.").format(Markup(", ").join(most))


def operators_fold(time: FrameworkTime) -> str:
    """Both times of an operator, and the device with most self time."""
    text = (
        "Self time excludes called operators, total time includes them. Totals can exceed the elapsed time."
    )
    most = max(time.operators, key=lambda table: table.self_s, default=None)
    if most and most.self_s and len(time.operators) > 1:
        text += f" {formats.percent(most.self_percent)} of all self time was on the {most.device}."
    return text


def ranked_figure(name: str, title: str, caption: str, ranks: Sequence[Rank]) -> Shown:
    """Ranked bars with their caption."""
    style = f"{rows_class(len(ranks))} ranked"
    return Shown(name=name, title=title, figure=ranked(ranks), style=style, caption=caption)
