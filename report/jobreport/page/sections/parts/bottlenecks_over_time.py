"""The share of bottlenecks over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.bottlenecks import shares_over_time
from jobreport.page.kit.table import Table
from jobreport.page.sections.outline import heading
from jobreport.page.sections.parts.bottlenecks_tables import time_of
from jobreport.page.sections.parts.panel import Panel
from jobreport.page.sections.parts.time_lines import profiled_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models import Plot

    from jobreport.document import Report
    from jobrules.analyses.bottlenecks import (
        Bottlenecks,
        BottlenecksOverTime,
    )


class Strips(Struct, frozen=True, kw_only=True):
    """The figure of the share over time, one strip per course, and the table of its data."""

    caption: str
    aid: str
    reading: str
    strips: tuple[Panel, ...]
    table: Table


def strips_of(
    found: Bottlenecks, report: Report, name: str, figures: dict[str, Plot], *, limit: float | None
) -> Strips | None:
    """The share of bottlenecks over time; without ``limit``, nothing is compared with it."""
    courses, columns, phases = found.courses, report.columns, report.phases
    if not courses or not columns.count:
        return None
    with_day = report.job.spans_days
    titles = [formats.escape_name(one.node, 60) if one.node else "All nodes" for one in courses]
    percents = [one.percent for one in courses]
    strips = []
    for i, figure in enumerate(shares_over_time(percents, columns, phases, limit)):
        element = f"live-{name}-course{i}"
        figures[element] = figure.live
        finding = _over_time(courses[i : i + 1], titles[i : i + 1], limit, with_day=with_day)
        label = f"Share of bottlenecks over time, {titles[i]}. {finding}"
        strips.append(Panel(id=element, title=titles[i], label=label, drawing=figure.drawing))
    stretch_us = found.stretch * columns.width_us
    stretch = formats.duration(stretch_us)
    place = heading(name, report)
    return Strips(
        caption=_over_time(courses, titles, limit, with_day=with_day),
        aid=f"Columns of {formats.duration(columns.width_us)}.",
        reading=_strips_reading(found, report),
        strips=tuple(strips),
        table=Table(
            label=f"{place.title}: share of bottlenecks over time",
            fold=f"share of bottlenecks per {stretch}",
            heads=(f":From ({place.zone})", *(titles if len(titles) > 1 else ["Share (%)"])),
            rows=[
                (
                    formats.column_time(columns.start_us + i * stretch_us, with_day=with_day),
                    *("not measured" if value is None else formats.number(value) for value in values),
                )
                for i, values in enumerate(zip(*(one.means for one in courses), strict=True))
            ],
        ),
    )


def _strips_reading(found: Bottlenecks, report: Report) -> str:
    sentences = ["Orange: percentage of a column's snapshots that are bottlenecks."]
    if len(report.phases.phases) > 1:
        sentences.append(f"Dotted: {' and '.join(report.phases.bounds)}.")
    sentences += profiled_mark(report)
    if any(value is None for one in found.courses for value in one.percent):
        sentences.append("Hatched: not measured.")
    return " ".join(sentences)


def _over_time(
    courses: Sequence[BottlenecksOverTime], titles: Sequence[str], limit: float | None, *, with_day: bool
) -> str:
    """How long the share of bottlenecks was above the threshold; without one, when bottlenecks were."""
    if limit is None:
        spans = [(one.start_us, one.end_us) for one in courses if one.start_us and one.end_us]
        if not spans:
            return "No bottleneck is in these columns."
        first, last = (time_of(us, with_day) for us in (min(a for a, _ in spans), max(b for _, b in spans)))
        return f"First bottleneck {first}, last {last}."
    above = f"The share of bottlenecks was above {formats.plain_number(limit)}% (dashed)"
    by_length: dict[str, list[str]] = {}
    for one, title in zip(courses, titles, strict=True):
        by_length.setdefault(_above(one), []).append(title)
    if len(by_length) == 1:
        return f"{above} {next(iter(by_length))}."
    clauses = [f"{formats.join_names(names)} {part}" for part, names in by_length.items()]
    return f"{above}: {'; '.join(clauses)}."


def _above(one: BottlenecksOverTime) -> str:
    if not one.known_us:
        return "not measured"
    if not one.above_us:
        return "at no time"
    return f"for {formats.duration(one.above_us)} of {formats.duration(one.known_us)}"
