"""The tables of the longest bottlenecks, of their cores, and of the event types that ran."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.kit.table import PERCENT_SCALE, Table, bar, node_heads, swatch
from jobreport.page.sections.outline import zone
from jobrules.rules.overall_framework_metrics import STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.analyses.bottlenecks import (
        BottleneckRun,
        Bottlenecks,
        NodeCores,
        Ran,
        StepSpan,
    )


MAX_OPEN_CORES = 32


#: Two shares of time that differ by less are similar, in points.
SIMILAR_POINTS = 5.0


def time_of(us: int, with_day: bool) -> str:
    """A time of day in a sentence."""
    return formats.column_time(us, with_day=with_day).replace(" ", formats.NBSP)


def longest_runs(found: Bottlenecks, report: Report, title: str) -> Table:
    """The longest bottlenecks."""
    with_day, several = report.job.spans_days, len(found.nodes) > 1
    node = [":Node"] if several else []
    return Table(
        label=f"{title}: longest bottlenecks",
        caption=_run_caption(found.runs, several=several, with_day=with_day),
        heads=(f":Start ({zone(report)})", *node, "Length (s)", "Snapshots", "Most cores", ":Steps"),
        rows=[
            (
                formats.column_time(run.start_us, with_day=with_day),
                *([formats.escape_name(run.node, 40)] if several else []),
                formats.number((run.end_us - run.start_us) / 1e6),
                formats.number(run.snapshots, 0),
                formats.number(run.most_cores, 0),
                _steps(run.place, run.steps),
            )
            for run in found.runs
        ],
    )


def _steps(place: str, steps: Sequence[StepSpan]) -> str:
    """``TRAIN steps 240 to 243``, ``between TRAIN steps 242 and 243``; ``–`` if the node has no steps."""
    if not steps:
        return "–"
    if place == "in":
        return " and ".join(_span(one) for one in steps)
    if place == "between":
        before, after = steps
        if before.mode == after.mode and before.last is not None and after.first is not None:
            return f"between {formats.escape_name(before.mode, 20)} steps {before.last} and {after.first}"
        return f"between {_span(before)} and {_span(after)}"
    return f"{place} {_span(steps[0])}"


def _span(one: StepSpan) -> str:
    phase = formats.escape_name(one.mode, 20)
    if one.first is None:
        return f"{phase} step"
    return (
        f"{phase} step {one.first}" if one.first == one.last else f"{phase} steps {one.first} to {one.last}"
    )


def _run_caption(runs: Sequence[BottleneckRun], *, several: bool, with_day: bool) -> str:
    lasted = [formats.duration(run.end_us - run.start_us) for run in runs]
    equal = lasted.count(lasted[0])
    if equal > 1:
        return f"The {formats.count(equal, 'longest bottleneck')} lasted {lasted[0]} each."
    where = f" on {formats.escape_name(runs[0].node, 40)}" if several else ""
    return f"The longest bottleneck lasted {lasted[0]}, from {time_of(runs[0].start_us, with_day)}{where}."


def cores_of(found: Bottlenecks, did: tuple[str, str], title: str) -> Table:
    """The cores of each node, those with the same share in one row, and how many are left out."""
    several = len(found.cores) > 1
    rows: list[list[str]] = []
    for one in found.cores:
        node = [formats.escape_name(one.node, 40)] if several else []
        for percent, equal in groupby(one.cores, key=lambda core: core.percent):
            names = ", ".join(formats.escape_name(core.core, 24) for core in equal)
            rows.append([*node, names, formats.number(percent), bar(("l", percent))])
        if several and (others := _other_cores(one)):
            rows.append([*node, others, "–", ""])
    caption = _core_caption(found.cores, did, more=found.more_cores)
    if found.more_cores:
        caption += f" Not shown: {formats.count(found.more_cores, 'node')} with fewer bottlenecks."
    elif not several and (others := _other_cores(found.cores[0])):
        caption += f" Not shown: {others}."
    return Table(
        label=f"{title}: cores",
        caption=caption,
        fold="cores by node" if len(rows) > MAX_OPEN_CORES else "",
        heads=node_heads(":Core", "Share of bottlenecks (%)", PERCENT_SCALE, several=several),
        rows=rows,
        style="named",
    )


def _other_cores(one: NodeCores) -> str:
    more, never = one.ever - len(one.cores), one.count - one.ever
    others = [
        f"{formats.count(more, 'other core')} less often" if more else "",
        f"{formats.number(never, 0)} of {formats.count(one.count, 'core')} never" if never else "",
    ]
    return "; ".join(filter(None, others))


def _core_caption(cores: Sequence[NodeCores], did: tuple[str, str], *, more: int) -> str:
    """The cores of the node with most bottlenecks, and the other nodes of which the same is true."""
    facts = [_most_often(one, did) for one in cores]
    names = [
        formats.escape_name(one.node, 40) for one, fact in zip(cores, facts, strict=True) if fact == facts[0]
    ]
    if len(cores) == 1:
        where = ""
    elif len(names) == len(cores) and not more:
        where = f" on each of {formats.count(len(names), 'node')}"
    else:
        where = f" on {formats.join_names(names)}"
    return f"{facts[0]}{where}."


def _most_often(one: NodeCores, did: tuple[str, str]) -> str:
    percent = one.cores[0].percent
    equal = [core for core in one.cores if core.percent == percent]
    if len(equal) == one.count > 1:
        who = f"All {formats.count(one.count, 'core')}"
    else:
        who = formats.join_names([formats.escape_name(core.core, 24) for core in equal])
    share = "every bottleneck" if percent == 100 else f"{formats.percent(percent)} of bottlenecks"
    return f"{who} {did[len(equal) > 1]} in {share}"


def _event_type(name: str) -> str:
    return f"{name.removeprefix(STEP)} steps" if name.startswith(STEP) else name


def event_types(found: Bottlenecks, title: str) -> Table:
    """Event types during bottlenecks and in other time."""
    left = f" Not shown: {formats.count(found.more_ran, 'more event type')}." if found.more_ran else ""
    return Table(
        label=f"{title}: event types",
        caption=f"{_ran_caption(found.ran)} Event types can overlap.{left}",
        heads=(
            *(":Event type", swatch("l", "During bottlenecks (%)"), swatch("u", "Other time (%)")),
            *("Difference (points)", PERCENT_SCALE),
        ),
        rows=[
            (
                formats.escape_name(_event_type(one.name), 60),
                *map(formats.number, (one.during, one.otherwise)),
                formats.number(one.points).replace("-", "−"),
                bar(("l", one.during), ("u", one.otherwise)),
            )
            for one in found.ran
        ],
    )


def _ran_caption(ran: Sequence[Ran]) -> str:
    first = ran[0]
    if first.points < SIMILAR_POINTS:
        return "No event type ran notably more during bottlenecks."
    equal = [one for one in ran if (one.during, one.otherwise) == (first.during, first.otherwise)]
    names = formats.join_names([formats.escape_name(_event_type(one.name), 60) for one in equal])
    return (
        f"{names} ran during {formats.percent(first.during)} of bottleneck time and "
        f"{formats.percent(first.otherwise)} of other time."
    )
