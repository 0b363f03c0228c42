"""The tables of the longest bottlenecks, of their cores, and of the event types that ran."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.kit.table import PERCENT_SCALE, Table, bar, node_heads, swatch
from jobreport.page.sections.outline import zone
from jobrules.rules.overall_framework_metrics import STEP
from jobrules.text import some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.analyses.bottlenecks import (
        Bottlenecks,
        NodeCores,
        Ran,
        StepSpan,
    )


MAX_OPEN_CORES = 32


def time_of(us: int, with_day: bool) -> str:
    """A time of day in a sentence."""
    return formats.column_time(us, with_day=with_day).replace(" ", formats.NBSP)


def longest_runs(found: Bottlenecks, report: Report, title: str) -> Table:
    """The longest bottlenecks."""
    with_day, several = report.job.spans_days, len(found.nodes) > 1
    node = [":Node"] if several else []
    return Table(
        label=f"{title}: longest bottlenecks",
        caption=f"The longest bottleneck lasted {formats.duration(found.runs[0].end_us - found.runs[0].start_us)}.",
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


def cores_of(found: Bottlenecks, did: str, title: str) -> Table:
    """The cores of each node, those with the same share in one row, and how many are left out."""
    several = len(found.cores) > 1
    rows: list[list[str]] = []
    for one in found.cores:
        node = [formats.escape_name(one.node, 40)] if several else []
        for percent, equal in groupby(one.cores, key=lambda core: core.percent):
            names = ", ".join(formats.escape_name(core.core, 24) for core in equal)
            rows.append([*node, names, formats.number(percent), bar(("l", percent))])
        rows += [[*node, other, "–", ""] for other in _other_cores(one)]
    return Table(
        label=f"{title}: cores",
        caption=_core_caption(found.cores[0], did)
        + formats.not_shown(found.more_cores, "node with fewer bottlenecks", "nodes with fewer bottlenecks"),
        fold="cores by node" if len(rows) > MAX_OPEN_CORES else "",
        heads=node_heads(":Core", "Share of bottlenecks (%)", PERCENT_SCALE, several=several),
        rows=rows,
        style="named",
    )


def _other_cores(one: NodeCores) -> list[str]:
    """Cores that are not listed, and cores that never were above the threshold."""
    counts = (one.ever - len(one.cores), "less often"), (one.count - one.ever, "never")
    return [f"{formats.count(n, 'other core')} {often}" for n, often in counts if n]


def _core_caption(one: NodeCores, did: str) -> str:
    """The cores with most bottlenecks, of the node with most."""
    percent = one.cores[0].percent
    equal = sum(core.percent == percent for core in one.cores)
    return (
        f"Most often {did}: {some_of(equal, one.count, 'core')} of {formats.escape_name(one.node, 40)}, in "
        f"{formats.percent(percent)} of bottlenecks."
    )


def _event_type(name: str) -> str:
    return f"{name.removeprefix(STEP)} steps" if name.startswith(STEP) else name


def event_types(found: Bottlenecks, title: str) -> Table:
    """Event types during bottlenecks and in other time."""
    return Table(
        label=f"{title}: event types",
        caption=_ran_caption(found.ran[0]) + formats.not_shown(found.more_ran, "event type"),
        aid="Event types can overlap.",
        heads=(
            *(":Event type", swatch("l", "During bottlenecks (%)"), swatch("u", "Other time (%)")),
            *("Difference (points)", PERCENT_SCALE),
        ),
        rows=[
            (
                formats.escape_name(_event_type(one.name), 60),
                *map(formats.number, (one.during, one.otherwise)),
                formats.number(one.points),
                bar(("l", one.during), ("u", one.otherwise)),
            )
            for one in found.ran
        ],
    )


def _ran_caption(first: Ran) -> str:
    return (
        f"{formats.escape_name(_event_type(first.name), 60)} ran during {formats.percent(first.during)} of bottleneck "
        f"time and {formats.percent(first.otherwise)} of other time."
    )
