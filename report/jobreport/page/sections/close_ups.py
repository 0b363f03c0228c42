"""Samples above events, in short stretches of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.formats import seconds, time_scale
from jobreport.page.figures.close_ups import KIND_NAMES, KINDS, SERIES, panels, readable
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure, Subsection, Table
from jobreport.page.kit.table import as_code
from jobreport.page.sections.outline import not_recorded, section
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.close_ups import CloseUp, WorstMinute

_TITLES = {
    "first-steps": "First steps",
    "last-steps": "Last steps",
    "first-events": "First minute of events",
}
_WHILE = {"cpu": "a CPU core was saturated", "io": "a core waited for I/O"}


@section
def close_ups(report: Report) -> Content:
    """Samples above events, in short stretches of the job."""
    if not report.close_ups:
        return not_recorded("single step or event", in_results=report.gpus_of_debugger)
    nodes = formats.join_names(list(dict.fromkeys(close_up.node for close_up in report.close_ups)))
    return [
        f"Samples (mean of the devices of {nodes}) above events, on one time axis.",
        *(Subsection(title=_title(one), blocks=[_figure(one)]) for one in report.close_ups),
    ]


def _figure(close_up: CloseUp) -> Figure:
    caption, title, drawn = _caption(close_up), _title(close_up), panels(close_up)
    drawings = [
        Drawing(
            figure=drawn.samples,
            label=f"{title}, samples. {caption}",
            style="ranked",
            key=[
                (SERIES[one.key], _curve_name(one.label, one.devices), one.key)
                for one in close_up.curves
                if one.samples
            ],
        )
        if drawn.samples
        else None,
        Drawing(
            figure=drawn.lanes,
            label=f"{title}, events. {caption}",
            style=f"ranked {rows_class(len(close_up.lanes))}",
            key=[
                (style, KIND_NAMES[kind], kind)
                for kind, style in KINDS.items()
                if any(lane.kind == kind for lane in close_up.lanes)
            ],
        )
        if drawn.lanes
        else None,
    ]
    return Figure(
        name=f"close-ups-{close_up.key}",
        title=title,
        finding=caption,
        drawings=drawings,
        zoom=title if any(drawings) else "",
        together="both drawings together" if all(drawings) else "",
        reading=_reading(close_up),
        tables=[_table(close_up, title)],
    )


def _curve_name(label: str, devices: int) -> str:
    return label if devices == 1 else f"{label}, mean of {devices}"


def _table(close_up: CloseUp, title: str) -> Table:
    scale = time_scale(lane.total_us / SECOND_US for lane in close_up.lanes)
    return Table(
        label=f"{title}: time per row",
        fold="time per row",
        heads=(":Row", ":Recorded as", ":Rank", "Events", f"Time ({scale.unit})", "Covers (%)"),
        rows=[
            (
                formats.escape_name(readable(lane.event_type), 60),
                "–" if lane.kind == "steps" else as_code(lane.event_type),
                formats.escape_name(lane.rank, 24) or "–",
                formats.number(lane.events, 0),
                scale(lane.total_us / SECOND_US),
                formats.number(lane.percent),
            )
            for lane in close_up.lanes
        ],
    )


def _title(close_up: CloseUp) -> str:
    if close_up.worst is None:
        return _TITLES[close_up.key]
    what = "the most bottlenecks" if close_up.worst.hits else "the lowest GPU utilization"
    return f"{'Training-loop minute' if close_up.worst.in_loop else 'Minute of GPU work'} with {what}"


def _caption(close_up: CloseUp) -> str:
    """The steps or the bottlenecks, then the mean GPU utilization."""
    lasted = seconds((close_up.end_us - close_up.start_us) / SECOND_US)
    if close_up.worst:
        found = _bottlenecks(close_up.worst) if close_up.worst.snapshots else f"{lasted} of samples."
    elif close_up.key == "first-events":
        found = f"The first {lasted} of events."
    else:
        longest = f"the longest ({close_up.longest_step}) {seconds(close_up.longest_us / SECOND_US)}"
        found = f"{formats.count(close_up.steps, 'step')} took {lasted}, {longest}."
    gpu = next((one.mean for one in close_up.curves if one.key == "gpu_utilization"), None)
    if gpu is None:
        return found
    usual = f", usual {formats.percent(close_up.worst.usual)}" if close_up.worst else ""
    return f"{found} Mean GPU utilization: {formats.percent(gpu)}{usual}."


def _bottlenecks(worst: WorstMinute) -> str:
    """How often a GPU was idle for which reason."""
    found = [f"in {one.snapshots} while {_WHILE[one.kind]}" for one in worst.bottlenecks]
    of = formats.count(worst.snapshots, "snapshot")
    return f"Of {of}, a GPU was idle {' and '.join(found)}." if found else f"No bottleneck in {of}."


def _reading(close_up: CloseUp) -> str:
    """Time and number of snapshots, and the marks."""
    snapshots = formats.count(max((one.samples for one in close_up.curves), default=0), "snapshot")
    return (
        f"{_when(close_up)}, {snapshots}. Hatched: not measured. Of many samples, the lowest and the highest of a column are "
        "drawn; short events next to each other are one bar. Not drawn: lifetimes of loader processes."
        f"{formats.not_shown(close_up.lanes_left, 'row with less time', 'rows with less time')}"
    )


def _when(close_up: CloseUp) -> str:
    same_second = close_up.start_us // SECOND_US == close_up.end_us // SECOND_US
    when = (
        formats.date_time(close_up.start_us)
        if same_second
        else formats.between(close_up.start_us, close_up.end_us)
    )
    return when.removesuffix(f"{formats.NBSP}UTC")
