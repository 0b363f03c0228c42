"""The share of bottlenecks over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures.bottlenecks import shares_over_time as drawn_over_time
from jobreport.page.kit import Drawing, Figure, Table
from jobreport.page.sections.outline import zone
from jobreport.page.sections.parts.bottlenecks_tables import time_of
from jobreport.page.sections.parts.time_lines import profiled_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.analyses.bottlenecks import (
        Bottlenecks,
        BottlenecksOverTime,
    )


def shares_over_time(found: Bottlenecks, report: Report, title: str, *, limit: float | None) -> Figure | None:
    """The share of bottlenecks over time; without ``limit``, nothing is compared with it."""
    courses, columns = found.courses, report.columns
    if not courses or not columns.count:
        return None
    with_day = report.job.spans_days
    titles = [formats.escape_name(one.node, 60) if one.node else "All nodes" for one in courses]
    findings = [_over_time([one], limit, with_day=with_day) for one in courses]
    figures = drawn_over_time([one.percent for one in courses], columns, report.phases, limit)
    stretch_us = found.stretch * columns.width_us
    return Figure(
        name=f"{found.key}-bottlenecks-time",
        title="Bottlenecks over time",
        finding=_over_time(courses, limit, with_day=with_day),
        aid=f"Columns of {formats.duration(columns.width_us)}.",
        drawings=[
            Drawing(
                figure=figure,
                title=name if len(found.nodes) > 1 else "",
                label=f"Share of bottlenecks over time, {name}. {finding}",
                style="low",
            )
            for figure, name, finding in zip(figures, titles, findings, strict=True)
        ],
        zoom=title,
        reading=_reading(report),
        tables=[
            Table(
                label=f"{title}: share of bottlenecks over time",
                fold=f"share of bottlenecks per {formats.duration(stretch_us)}",
                heads=(f":From ({zone(report)})", *(titles if len(titles) > 1 else ["Share (%)"])),
                rows=[
                    (
                        formats.column_time(columns.start_us + i * stretch_us, with_day=with_day),
                        *("not measured" if value is None else formats.number(value) for value in values),
                    )
                    for i, values in enumerate(zip(*(one.means for one in courses), strict=True))
                ],
            )
        ],
    )


def _reading(report: Report) -> str:
    sentences = [
        f"Orange: percentage of a column's snapshots that are bottlenecks. Dotted: start and end of the {report.phases.middle}. "
        "Hatched: not measured.",
        *profiled_mark(report),
    ]
    return " ".join(sentences)


def _over_time(courses: Sequence[BottlenecksOverTime], limit: float | None, *, with_day: bool) -> str:
    """The time above the threshold of the node with most of it; without a threshold, the first and the last bottleneck."""
    if limit is None:
        spans = [(one.start_us, one.end_us) for one in courses if one.start_us and one.end_us]
        if not spans:
            return "No bottleneck is in these columns."
        first, last = (time_of(us, with_day) for us in (min(a for a, _ in spans), max(b for _, b in spans)))
        return f"First bottleneck {first}, last {last}."
    most = max(courses, key=lambda one: one.above_us)
    where = f" on {formats.escape_name(most.node, 40)}" if len(courses) > 1 else ""
    return (
        f"The share of bottlenecks was above {formats.plain_number(limit)}% (dashed) for "
        f"{formats.duration(most.above_us)} of {formats.duration(most.known_us)}{where}."
    )
