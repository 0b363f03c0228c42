"""Operators of the framework: which took most self time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.formats import seconds, time_scale
from jobreport.page.figures.framework import MAX_RANKED, Rank, other, ranked
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure, Side, Subsection, Table
from jobreport.page.kit.table import as_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.analyses.framework import FrameworkTime, Operators


#: Rows of a table that are not folded away.
MAX_OPEN = 10


def operators(time: FrameworkTime) -> Subsection | None:
    """The operators with most self time of each device; None without any."""
    tables = [table for table in time.operators if table.rows]
    if not tables:
        return None
    return Subsection(
        title="Operators",
        blocks=[
            _basis(time),
            Figure(
                name="framework-operators",
                title="Operators by self time",
                finding=_most_self_time(tables),
                aid="Percent of self time per device, ten operators with most.",
                drawings=[Side(blocks=list(map(_drawing, tables)))],
                reading=_reading(time),
            ),
            *(one for table in tables for one in _tables(table)),
        ],
    )


def _basis(time: FrameworkTime) -> str:
    """Steps that the shares of operators describe, and the time that operators ran."""
    known = {one.device: one.ran_s for one in time.operators if one.ran_s is not None}
    scale = time_scale(known.values())
    ran = [f"{scale(ran_s)}{formats.NBSP}{scale.unit} on the {device}" for device, ran_s in known.items()]
    lasted = f": {', '.join(ran)}" if ran else ""
    if time.first_step is None or time.last_step is None:
        return f"Operators were recorded without step numbers{lasted}. Shares may describe a few steps only."
    steps = f"from step {time.first_step} to step {time.last_step}"
    return f"Operators were recorded {steps} only{lasted}. Shares describe these steps, not the job."


def _drawing(table: Operators) -> Drawing:
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
    return ranked_bars(
        ranks,
        title=table.device,
        label=f"{table.device} operators. Most self time: {name} ({formats.percent(first.percent)}).",
    )


def _tables(found: Operators) -> list[Table]:
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
    heads = (
        *(f":{found.device} operator", "Calls", f"Self time ({totals.unit})", f"Total time ({totals.unit})"),
        *(f"Self time per call ({calls.unit})", "Share (%)"),
    )
    sums = (
        f"{formats.count(found.calls, 'call')}, {totals(found.self_s)}{formats.NBSP}{totals.unit} self time"
    )
    shown = Table(
        label=f"{found.device} operators",
        caption=f"{found.device} operators by self time, in all {sums}.",
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


def _most_self_time(tables: Sequence[Operators]) -> Markup:
    """The operator with most self time of each device."""
    most = [
        Markup("{} on the {} ({})").format(
            as_code(table.rows[0].name), table.device, formats.percent(table.rows[0].percent)
        )
        for table in tables
    ]
    return Markup("Most self time: {}.").format(Markup(", ").join(most))


def _reading(time: FrameworkTime) -> str:
    """Both times of an operator, and the self time of each device."""
    devices = [f"{formats.percent(table.self_percent)} on the {table.device}" for table in time.operators]
    return (
        "Self time excludes called operators, total time includes them. Totals can exceed the elapsed time. "
        f"All self time: {', '.join(devices)}."
    )


def ranked_bars(ranks: Sequence[Rank], *, title: str = "", label: str = "") -> Drawing:
    """Bars ranked by their length."""
    return Drawing(figure=ranked(ranks), title=title, label=label, style=f"{rows_class(len(ranks))} ranked")
