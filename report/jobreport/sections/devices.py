"""Every GPU and core over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.box_plot import WHOLE
from jobreport.figures.devices import (
    GPU,
    HeatMap,
    cells,
    defaults,
    drawn_words,
    full_name,
    has_holes,
    heat_map,
    live_heat_map,
    live_lines,
    shared_range,
    still_heat_map,
    still_lines,
)
from jobreport.figures.embed import document_json
from jobreport.figures.theme import SERIES
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import covers_time, heading
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.figures.devices import Row
    from jobrules.analyses.devices import CoreUse, DeviceGrid
    from jobrules.analyses.gpu_utilization import Box

#: Rows of the table; of more cores, those used most are in it.
MOST_ROWS = 200
#: Shares of samples that lie closer are told together, as 0.05 of them.
ALIKE_SHARE = ALIKE_POINTS / 100
#: A core that is full in so many of its samples is named.
OFTEN = 0.5


class Line(Struct, frozen=True, kw_only=True):
    """A device as printed."""

    node: str
    device: str
    values: tuple[str, ...]
    #: Idle, partly used, busy; percent of its samples.
    shares: tuple[str, ...]


class Pick(Struct, frozen=True, kw_only=True):
    """One of the lines of the second figure."""

    style: str
    words: str
    name: str


@error_boundary
def devices(report: Report) -> Fragment:
    """The heat map of all devices, single ones as lines, and the table per device."""
    place = heading("devices", report)
    if report.devices is None or not covers_time(report):
        html = render("devices", heading=place, heat=None, why_none=_why_none(report))
        return Fragment(name="devices", html=html)
    heat = heat_map(report.devices, report.phases, _means(report, report.devices))
    chosen = defaults(heat)
    shared = shared_range(heat)
    live, sources = live_heat_map(heat, shared)
    figures = {
        "live-devices-map": live,
        "live-devices-lines": live_lines(heat, shared, chosen, sources),
    }
    rows, left_out = _table(report, heat)
    html = render(
        "devices",
        heading=place,
        heat=heat,
        note=drawn_words(heat),
        caption=_caption(report, report.devices),
        read=_read(report, heat),
        limit=f"{heat.limit:g}",
        holes=has_holes(heat),
        cells=cells(heat),
        drawing=still_heat_map(heat),
        lines=still_lines(heat, chosen),
        lines_caption=_lines_caption(heat, chosen),
        phases=_phases(report),
        picks=_picks(heat, chosen),
        rows=rows,
        table=_table_words(heat, left_out),
        nodes=heat.nodes,
        figures=document_json("devices", figures),
    )
    return Fragment(name="devices", html=html)


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "Rule results hold no samples, so there is no use of single devices over time."
    if report.devices is None:
        return "No use of a GPU or core was sampled."
    return "The samples cover no time, so there is nothing to draw over it."


def _means(report: Report, grid: DeviceGrid) -> dict[tuple[str, str, str], float]:
    """The mean of the samples of each (node, metric, device): the columns hold rounded ones."""
    boxes = {
        (box.node, str(box.metric), box.device): box.mean
        for box in report.boxes
        if box.basis == WHOLE and box.mean is not None
    }
    cores = {(core.node, str(Metric.CPU_UTILIZATION), core.device): core.mean for core in grid.cores}
    return boxes | cores


def _caption(report: Report, grid: DeviceGrid) -> str:
    """In how many of their samples the GPUs idle, and in how many the cores are full."""
    gpus = [box for box in report.boxes if box.basis == WHOLE and box.metric == Metric.GPU_UTILIZATION]
    idle = [box.below_10 for box in gpus if box.below_10 is not None]
    busy = [box.above_90 for box in gpus if box.above_90 is not None]
    told = []
    if idle and busy:
        subject, whose = _subject(len(gpus), "GPU")
        told.append(
            f"{subject} {_often('under 10%', idle, f' of {whose} samples')} and "
            f"{_often('above 90%', busy, '' if max(idle) else f' of {whose} samples')}."
        )
    if grid.cores:
        told.append(_full(grid, several=len({core.node for core in grid.cores}) > 1))
    return " ".join(told)


def _subject(devices: int, what: str) -> tuple[str, str]:
    """The words for all devices, and whose their samples are."""
    return (f"The {what} is", "its") if devices == 1 else (f"The {devices}{formats.NBSP}{what}s are", "their")


def _often(what: str, shares: Sequence[float], of: str) -> str:
    if not max(shares):
        return f"never {what}"
    return f"{what} in {formats.spread(100 * share for share in shares)}{of}"


def _full(grid: DeviceGrid, *, several: bool) -> str:
    """How often the cores are at the limit: all alike, or those that often are."""
    shares = [core.at_limit for core in grid.cores]
    at = f"at {grid.limit:g}% or more"
    subject, whose = _subject(len(shares), "core")
    if not max(shares):
        return f"{subject} never {at}."
    if max(shares) - min(shares) < ALIKE_SHARE:
        return f"{subject} {_often(at, shares, f' of {whose} samples')}."
    most = max(grid.cores, key=lambda core: core.at_limit)
    device = formats.escape_name(most.device, 24)
    name = f"{formats.escape_name(most.node, 40)} {device}" if several else device
    top = formats.percent(100 * most.at_limit)
    often = sum(share >= OFTEN for share in shares)
    cores = formats.count(len(shares), "core")
    if not often:
        return f"No core is {at} in half of its samples; the fullest, {name}, in {top}."
    if often == 1:
        return f"One of {cores}, {name}, is {at} in {top} of its samples."
    which = "All" if often == len(shares) else f"{often} of"
    return f"{which} {cores} are {at} in at least half of their samples; the fullest, {name}, in {top}."


def _phases(report: Report) -> str:
    """What the dotted lines are; empty without any."""
    kind = "step" if report.phases.basis == "steps" else "GPU work"
    words = {"loop": f"first {kind}", "after": f"last {kind}"}
    return " and ".join(words[phase.key] for phase in report.phases.phases[1:])


def _read(report: Report, heat: HeatMap) -> str:
    """How to read the rows."""
    gpu, core = bool(heat.of("gpu")), bool(heat.of("core"))
    told = []
    if gpu and core and any(row.kind == "gpu" for row in heat.rows):
        told.append("Tall rows are GPUs, thin rows the cores of the same node.")
    width = formats.duration(report.devices.columns.width_us) if report.devices else ""
    told.append(
        f"Each cell is the mean of a column of {width}, in ten steps of 10%: a column hides "
        "changes that are faster."
    )
    if core:
        told.append(
            f"Orange: at least half of the core's samples in the column are at {heat.limit:g}% or more."
        )
    phases = _phases(report)
    if phases:
        told.append(f"Dotted: {phases}.")
    return f"{' '.join(told)} {formats.times(report.job.end_us)}"


def _lines_caption(heat: HeatMap, chosen: Sequence[Row]) -> str:
    if not chosen:
        return "No device was measured."
    names = [full_name(row, several=heat.nodes > 1) for row in chosen]
    if len(chosen) == 1:
        return f"{names[0]} is used {formats.percent(chosen[0].mean)} on average."
    if chosen[0].what != chosen[1].what:
        return (
            f"{names[0]} is used {formats.percent(chosen[0].mean)} on average; the core used most, {names[1]}, "
            f"{formats.percent(chosen[1].mean)}."
        )
    kind, plural = ("GPU", "GPUs") if chosen[0].what == GPU else ("core", "cores")
    count = sum(row.what == chosen[0].what for row in heat.choices)
    low, high = (formats.percent(row.mean) for row in chosen)
    if low == high:
        which = f"Both {plural}" if count == 2 else f"All {formats.count(count, kind)}"
        return f"{which} are used {low} on average; drawn are {names[0]} and {names[1]}."
    if chosen[1].mean - chosen[0].mean < ALIKE_POINTS:
        return f"The {plural} are alike: {names[0]}, used least, is at {low} on average, {names[1]}, used most, at {high}."
    return f"Of the {plural}, {names[0]} is used least, {low} on average, and {names[1]} most, {high}."


def _picks(heat: HeatMap, chosen: Sequence[Row]) -> list[Pick]:
    names = [full_name(row, several=heat.nodes > 1) for row in chosen]
    names += [""] * (len(SERIES) - len(names))
    looks = {"dotdash": "dash-dot"}
    return [
        Pick(style=style, words=f"Line {i + 1}, {looks.get(dash, dash)}", name=name)
        for i, ((style, dash), name) in enumerate(zip(SERIES, names, strict=True))
    ]


def _table(report: Report, heat: HeatMap) -> tuple[list[Line], int]:
    """The drawn devices, GPUs before cores of each node, and how many cores are left out."""
    grid = report.devices
    gpus = [
        box
        for box in report.boxes
        if box.basis == WHOLE and box.metric == Metric.GPU_UTILIZATION and box.node in heat.drawn
    ]
    drawn = {row.node for row in heat.of("core")}
    cores = [core for core in (grid.cores if grid else ()) if core.node in drawn]
    most = max(0, MOST_ROWS - len(gpus))
    kept = {id(core) for core in sorted(cores, key=lambda core: -core.mean)[:most]}
    rows: list[Line] = []
    for node in heat.drawn:
        rows += [_line(box) for box in gpus if box.node == node]
        rows += [_line(core) for core in cores if core.node == node and id(core) in kept]
    return rows, len(cores) - len(kept)


def _line(use: Box | CoreUse) -> Line:
    return Line(
        node=formats.escape_name(use.node, 32),
        device=formats.escape_name(use.device, 24),
        values=(
            formats.known(use.n, 0),
            *(formats.known(value) for value in (use.mean, use.p50, use.p95, use.p99, use.max)),
        ),
        shares=tuple(
            formats.known(None if part is None else 100 * part)
            for part in (use.below_10, use.from_10_to_90, use.above_90)
        ),
    )


def _table_words(heat: HeatMap, left_out: int) -> str:
    """What the table leaves out."""
    told = []
    if heat.nodes > len(heat.drawn):
        told.append(f"Of the {len(heat.drawn)}{formats.NBSP}nodes that are drawn with each device.")
    if left_out:
        told.append(
            f"Left out are {formats.count(left_out, 'core')}, those used least; report.json holds them."
        )
    return " ".join(told)
