"""Samples above events, in short stretches of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.formats import seconds, time_scale
from jobreport.page.figures.close_ups import KINDS, SERIES, panels, readable
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Empty, Figure, Subsection, Table
from jobreport.page.kit.table import as_code
from jobreport.page.sections.outline import section
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
_KIND_NAMES = {"steps": "step", "waiting": "waiting for data", "work": "other work"}


@section
def close_ups(report: Report) -> Content:
    """Samples above events, in short stretches of the job."""
    if not report.close_ups:
        return Empty(_why_none(report))
    with_events = any(one.lanes for one in report.close_ups)
    drawn = ", top) and events (bottom) on one time axis" if with_events else ")"
    return [
        f"Samples (mean of the devices{drawn}{_nodes(report)}.",
        *(Subsection(title=_title(one), blocks=[_figure(one)]) for one in report.close_ups),
    ]


def _nodes(report: Report) -> str:
    """``, on algo-1``: the nodes of the close-ups, if the job has others."""
    names = list(dict.fromkeys(close_up.node for close_up in report.close_ups))
    return f", on {formats.join_names(names)}" if len(report.job.nodes) > 1 else ""


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
            label=f"{title}, events. {' '.join(_coverage(close_up)) or caption}",
            style=f"ranked {rows_class(len(close_up.lanes))}",
            key=[
                (style, _KIND_NAMES[kind], kind)
                for kind, style in KINDS.items()
                if any(lane.kind == kind for lane in close_up.lanes)
            ],
        )
        if drawn.lanes
        else None,
    ]
    return Figure(
        name=f"close-ups-{close_up.key}",
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
    """The steps or the bottlenecks, then what covers most of the time, then the mean GPU utilization."""
    gpu = next((one.mean for one in close_up.curves if one.key == "gpu_utilization"), None)
    if close_up.worst:
        found = _bottlenecks(close_up.worst)
    elif close_up.key == "first-events":
        lasted = seconds((close_up.end_us - close_up.start_us) / SECOND_US)
        found = [f"First {lasted} of events; steps were not recorded."]
    else:
        found = [_steps(close_up)]
    return " ".join([*found, *_coverage(close_up), *_utilization(close_up.worst, gpu)])


def _bottlenecks(worst: WorstMinute) -> list[str]:
    if not worst.hits:
        return []
    kinds = [f"{one.snapshots} {'CPU' if one.kind == 'cpu' else 'I/O'}" for one in worst.bottlenecks]
    by_kind = f" ({', '.join(kinds)})" if len(kinds) > 1 else ""
    are = "is a bottleneck" if worst.hits == 1 else "are bottlenecks"
    return [f"{worst.hits} of {formats.count(worst.snapshots, 'snapshot')} {are}{by_kind}."]


def _steps(close_up: CloseUp) -> str:
    which = "first" if close_up.key == "first-steps" else "last"
    lasted = seconds((close_up.end_us - close_up.start_us) / SECOND_US)
    if close_up.steps == 1:
        return f"The {which} step took {lasted}."
    longest = f"the longest ({close_up.longest_step}) {seconds(close_up.longest_us / SECOND_US)}"
    return f"The {which} {formats.count(close_up.steps, 'step')} took {lasted}, {longest}."


def _coverage(close_up: CloseUp) -> list[str]:
    """How much of the time the steps of the first rank cover, and the event type that covers most."""
    found = [("steps", lane) for lane in close_up.lanes if lane.kind == "steps"][:1]
    events = [lane for lane in close_up.lanes if lane.kind != "steps"]
    if events:
        most = max(events, key=lambda lane: lane.covered_us)
        found.append((formats.escape_name(readable(most.event_type), 60), most))
    if not found:
        return []
    cover = "cover" if found[0][0] == "steps" else "covers"
    parts = [f"{what} {cover} {formats.percent(lane.percent)}" for what, lane in found[:1]]
    parts += [f"{what} {formats.percent(lane.percent)}" for what, lane in found[1:]]
    several = len({lane.rank for lane in close_up.lanes}) > 1
    ranks = [formats.escape_name(lane.rank, 24) for _, lane in found]
    if several and len(set(ranks)) > 1:
        first, second = (f"on rank {rank}" for rank in ranks)
        sentence = f"{parts[0]} of the time {first}, {parts[1]} {second}."
    elif several:
        return [f"Rank {ranks[0]}: {', '.join(parts)}."]
    else:
        sentence = f"{', '.join([f'{parts[0]} of the time', *parts[1:]])}."
    return [f"{sentence[:1].upper()}{sentence[1:]}"]


def _utilization(worst: WorstMinute | None, gpu: float | None) -> list[str]:
    if gpu is None:
        return []
    if worst is None:
        return [f"Mean GPU utilization: {formats.percent(gpu)}."]
    whole = "training loop" if worst.in_loop else "GPU work"
    return [f"Mean GPU utilization: {formats.percent(gpu)} ({whole} {formats.percent(worst.usual)})."]


def _reading(close_up: CloseUp) -> str:
    """When it was, what lines and bars are, and what is not drawn."""
    sentences = [f"{_when(close_up)}.", *_lines(close_up)]
    if close_up.unmeasured_us:
        sentences.append("Hatched: not measured.")
    return " ".join([*sentences, *_bars(close_up)])


def _when(close_up: CloseUp) -> str:
    same_second = close_up.start_us // SECOND_US == close_up.end_us // SECOND_US
    when = (
        formats.date_time(close_up.start_us)
        if same_second
        else formats.between(close_up.start_us, close_up.end_us)
    )
    return when.removesuffix(f"{formats.NBSP}UTC")


def _lines(close_up: CloseUp) -> list[str]:
    sampled = [one for one in close_up.curves if one.samples]
    if not close_up.curves:
        return ["Not recorded: GPU, CPU, and I/O wait."]
    if not sampled:
        return ["No samples in this time."]
    snapshots = formats.count(max(one.samples for one in sampled), "snapshot")
    reduced = any(len(one.ticks) // 4 < one.samples for one in sampled)
    peaks = ", reduced to the lowest and highest per column" if reduced else ""
    return [f"{snapshots}{peaks}."]


def _bars(close_up: CloseUp) -> list[str]:
    if not close_up.lanes:
        return ["Not recorded in this time: steps and events."]
    sentences = []
    if all(lane.kind == "steps" for lane in close_up.lanes):
        sentences.append("No events other than steps were recorded.")
    if close_up.cell_us:
        sentences.append(f"Short events within {seconds(close_up.cell_us / SECOND_US)} are one bar.")
    left_out = [
        formats.count(close_up.lanes_left, "row") + " with less time" if close_up.lanes_left else "",
        f"lifetimes of {formats.count(close_up.lifetimes, 'loader process', 'loader processes')}"
        if close_up.lifetimes
        else "",
    ]
    if any(left_out):
        sentences.append(f"Not drawn: {', '.join(filter(None, left_out))}.")
    return sentences


def _why_none(report: Report) -> str:
    if report.gpus_of_debugger:
        return "SageMaker Debugger's rule results hold neither samples nor events."
    if any(row.label == "GPU" for row in report.utilization):
        steps = "Single steps" if report.has_debugger and report.job.steps else "Steps"
        return f"{steps} and events were not recorded, and no minute of GPU work stands out."
    return "Steps, events, and GPU utilization were not recorded."
