"""Samples above events, at moments worth a close look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.close_ups import FILLS, SERIES, Panels, panels, readable
from jobreport.figures.embed import document_json
from jobreport.figures.names import rows_class
from jobreport.formats import seconds, time_scale
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobrules.analyses.close_ups import BottleneckCount, CloseUp, CloseUpLane, WorstMinute

_TITLES = {
    "first-steps": "First steps",
    "last-steps": "Last steps",
    "first-events": "First minute of events",
}
_KINDS = {"steps": "step", "waiting": "waiting for data", "work": "other work"}


class Row(Struct, frozen=True, kw_only=True):
    """A lane as printed."""

    rank: str
    event_type: str
    #: What the files call it; empty for steps.
    recorded: str
    events: str
    total: str
    share: str


class View(Struct, frozen=True, kw_only=True):
    """A moment as the template wants it."""

    key: str
    title: str
    caption: str
    reading: str
    drawn: Panels
    samples_label: str
    lanes_label: str
    #: Class of the lower drawing.
    style: str
    #: Entries of the two keys.
    curves: list[tuple[str, str, str]]
    kinds: list[tuple[str, str, str]]
    several: bool
    scale: formats.TimeScale
    rows: list[Row]

    @property
    def plots(self) -> dict[str, Plot]:
        """The live plots by the element that each is drawn in."""
        found = {
            f"live-close-ups-{self.key}-samples": self.drawn.live_samples,
            f"live-close-ups-{self.key}-lanes": self.drawn.live_lanes,
        }
        return {name: plot for name, plot in found.items() if plot is not None}


@error_boundary
def close_ups(report: Report) -> Fragment:
    """Samples above events, at moments worth a close look."""
    views = [_view(moment) for moment in report.close_ups]
    plots = {name: plot for view in views for name, plot in view.plots.items()}
    html = render(
        "close_ups",
        heading=heading("close-ups", report),
        views=views,
        node=_node(report),
        figures=document_json("close-ups", plots) if plots else "",
        why_none=_why_none(report),
    )
    return Fragment(name="close-ups", html=html)


def _node(report: Report) -> str:
    """The nodes of the moments, where the job has others."""
    names = list(dict.fromkeys(moment.node for moment in report.close_ups))
    return formats.join_names(names) if len(report.job.nodes) > 1 else ""


def _view(moment: CloseUp) -> View:
    scale = time_scale(lane.total_us / SECOND_US for lane in moment.lanes)
    caption, title = _caption(moment), _title(moment)
    return View(
        key=moment.key,
        title=title,
        caption=caption,
        reading=_reading(moment),
        drawn=panels(moment),
        samples_label=f"{title}, samples. {caption}",
        lanes_label=f"{title}, events. {_lanes_told(moment) or caption}",
        style=f"ranked {rows_class(len(moment.lanes))}",
        curves=[
            (SERIES[one.key], _curve_name(one.label, one.devices), one.key)
            for one in moment.curves
            if one.samples
        ],
        kinds=[
            (fill, _KINDS[kind], kind)
            for kind, (fill, _) in FILLS.items()
            if any(lane.kind == kind for lane in moment.lanes)
        ],
        several=len({lane.rank for lane in moment.lanes}) > 1,
        scale=scale,
        rows=[_row(lane, scale) for lane in moment.lanes],
    )


def _curve_name(label: str, devices: int) -> str:
    return label if devices == 1 else f"{label}, mean of {devices}"


def _row(lane: CloseUpLane, scale: formats.TimeScale) -> Row:
    return Row(
        rank=formats.escape_name(lane.rank, 24) or "–",
        event_type=formats.escape_name(readable(lane.event_type), 60),
        recorded="" if lane.kind == "steps" else formats.escape_name(lane.event_type, 60),
        events=formats.number(lane.events, 0),
        total=scale(lane.total_us / SECOND_US),
        share=formats.number(lane.percent),
    )


def _title(moment: CloseUp) -> str:
    if moment.worst is None:
        return _TITLES[moment.key]
    what = "most bottlenecks" if moment.worst.hits else "the lowest GPU use"
    return f"The minute {_where(moment.worst)} with {what}"


def _where(worst: WorstMinute) -> str:
    """Among which minutes it was looked for."""
    return "of the training loop" if worst.in_loop else "from first to last GPU work"


def _worst_told(worst: WorstMinute, gpu: float) -> str:
    """The bottlenecks by kind with their limits, or the low GPU use; and what is usual."""
    usual = f"the mean {_where(worst)} is {formats.percent(worst.usual)}"
    if not worst.hits:
        lowest = f"the lowest GPU use, {formats.percent(gpu)}"
        return f"The minute {_where(worst)} with {lowest}; {usual}"
    whole = formats.count(worst.snapshots, "snapshot")
    kinds = [_bottlenecks_told(one) for one in worst.bottlenecks]
    if len(kinds) == 1:
        found = f"In {worst.hits} of {whole} {kinds[0]}"
    else:
        parts = [f"in {one.snapshots} {kind}" for one, kind in zip(worst.bottlenecks, kinds, strict=True)]
        found = f"{worst.hits} of {whole} are bottlenecks: {' and '.join(parts)}"
    return f"{found}; GPU use was {formats.percent(gpu)}, {usual}"


def _bottlenecks_told(one: BottleneckCount) -> str:
    low, high = (f"{limit:g}%" for limit in (one.gpu_threshold, one.core_threshold))
    core = f"was above {high}" if one.kind == "cpu" else f"waited for I/O above {high}"
    return f"a GPU was below {low} while a core {core}"


def _caption(moment: CloseUp) -> str:
    """What happened: the steps or the bottlenecks, then what covers most of the time."""
    lasted = seconds((moment.end_us - moment.start_us) / SECOND_US)
    means = {one.key: one.mean for one in moment.curves if one.mean is not None}
    gpu = means.get("gpu_utilization")
    used = f"; GPU use was {formats.percent(gpu)} on average" if gpu is not None else ""
    if moment.worst:
        found = _worst_told(moment.worst, gpu or 0.0)
    elif moment.key == "first-events":
        found = f"No step was recorded; the first events cover {lasted}{used}"
    else:
        which = "first" if moment.key == "first-steps" else "last"
        steps = (
            f"{which}{formats.NBSP}step"
            if moment.steps == 1
            else f"{which} {moment.steps}{formats.NBSP}steps"
        )
        longest = (
            f"; the longest, {moment.longest_step}, took {seconds(moment.longest_us / SECOND_US)}"
            if moment.steps > 1
            else ""
        )
        found = f"The {steps} took {lasted} from start to end{longest}{used}"
    return " ".join(filter(None, (f"{found}.", _lanes_told(moment))))


def _lanes_told(moment: CloseUp) -> str:
    """How much of the time the steps of the first worker cover, and the row of work that covers most."""
    several = len({lane.rank for lane in moment.lanes}) > 1

    def covers(what: str, lane: CloseUpLane) -> str:
        of = f" of worker {formats.escape_name(lane.rank, 24)}" if several else ""
        return f"{what}{of} {'cover' if what == 'steps' else 'covers'} {formats.percent(lane.percent)}"

    told = [covers("steps", lane) for lane in moment.lanes if lane.kind == "steps"][:1]
    work = [lane for lane in moment.lanes if lane.kind != "steps"]
    if work:
        most = max(work, key=lambda lane: lane.covered_us)
        name = readable(most.event_type)
        told.append(covers(formats.escape_name(name, 60), most))
    if not told:
        return ""
    sentence = ", ".join((f"{told[0]} of the time", *told[1:]))
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _reading(moment: CloseUp) -> str:
    """How to read the drawings, and what is not in them."""
    sampled = [one for one in moment.curves if one.samples]
    same_second = moment.start_us // SECOND_US == moment.end_us // SECOND_US
    when = (
        formats.date_time(moment.start_us) if same_second else formats.between(moment.start_us, moment.end_us)
    )
    told = [
        f"{'At' if same_second else 'From'} {when.removesuffix(f'{formats.NBSP}UTC')}. {formats.times(moment.end_us)}"
    ]
    if sampled:
        most = max(one.samples for one in sampled)
        told.append(
            f"Lines: percent, the mean over the devices in each of {formats.count(most, 'snapshot')}"
            + (
                ", reduced to the lowest and the highest of each column."
                if any(len(one.ticks) // 4 < one.samples for one in sampled)
                else "."
            )
        )
    elif moment.curves:
        told.append("No sample was taken in this time.")
    else:
        told.append("No GPU, CPU or I/O wait was sampled on this node.")
    if moment.unmeasured_us:
        told.append("Hatched: not measured.")
    if not moment.lanes:
        return " ".join([*told, "Neither steps nor events were recorded in it."])
    rows = "Rows: a bar from start to end of an event"
    told.append(f"{rows}; the first row of a worker holds its steps." if moment.steps else f"{rows}.")
    if all(lane.kind == "steps" for lane in moment.lanes):
        told.append("No other event was recorded in it.")
    if moment.cell_us:
        told.append(f"Shorter events within {seconds(moment.cell_us / SECOND_US)} of a row are one bar.")
    left = [
        f"{formats.count(moment.lanes_left, 'other row')} with less time" if moment.lanes_left else "",
        f"the lives of {formats.count(moment.lifetimes, 'loader process', 'loader processes')}"
        if moment.lifetimes
        else "",
    ]
    if any(left):
        told.append(f"Not drawn: {' and '.join(filter(None, left))}.")
    return " ".join(told)


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "The vendor's results hold neither samples nor events."
    if any(row.label == "GPU" for row in report.utilization):
        return "Neither steps nor events were recorded, and no minute of the GPUs' work stands out."
    return "Neither steps nor events nor GPU samples were recorded."
