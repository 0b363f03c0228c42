"""Every GPU and core over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.box_plot import WHOLE
from jobreport.figures.embed import document_json
from jobreport.figures.heat_map import (
    CORE,
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
from jobreport.figures.theme import SERIES
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import covers_time, heading
from jobrules.job import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.figures.heat_map import Row
    from jobrules.device_grid import CoreUse, DeviceGrid
    from jobrules.result import Box

#: Rows of the table; of more cores, those used most are in it.
MOST_ROWS = 200
#: Where CPUBottleneck was not run, its own default.
CORE_LIMIT = 90.0
#: GPUs whose means lie closer are told as alike, in points.
ALIKE_POINTS = 10.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A device as printed."""

    node: str
    device: str
    values: tuple[str, ...]
    #: Idle, partly used, busy; percent of its samples.
    shares: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One of the lines of the second figure."""

    style: str
    words: str
    name: str


def devices(report: Report) -> Fragment:
    """The heat map of all devices, single ones as lines, and the table per device."""
    place = heading("devices")
    if report.devices is None or not covers_time(report):
        html = render("devices", heading=place, heat=None, why_none=_why_none(report))
        return Fragment(name="devices", html=html)
    heat = heat_map(report.devices, report.course, _limit(report))
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
        caption=_caption(report.devices, heat),
        marks=_marks(report, heat),
        column=formats.duration(report.devices.columns.width_us),
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
    if report.origin is Origin.VENDOR:
        return "Rule results hold no samples, so there is no use of single devices over time."
    if report.devices is None:
        return "No use of a GPU or core was sampled."
    return "The samples cover no time, so there is nothing to draw over it."


def _limit(report: Report) -> float:
    """Above what CPUBottleneck calls a core full, in percent."""
    for card in report.rules:
        for parameter in card.parameters:
            if card.name == "CPUBottleneck" and parameter.name == "cpu_threshold":
                return float(parameter.value) if isinstance(parameter.value, int | float) else CORE_LIMIT
    return CORE_LIMIT


def _caption(grid: DeviceGrid, heat: HeatMap) -> str:
    """How much of the time the GPUs idle, and how many cores are full."""
    told = []
    gpus = [row for row in heat.choices if row.what == GPU]
    idle, busy = grid.gpus_idle_percent, grid.gpus_busy_percent
    if idle is not None and busy is not None:
        subject = "The GPU is" if len(gpus) == 1 else f"The {len(gpus)}{formats.NBSP}GPUs are"
        columns = " of the measured columns"
        told.append(
            f"{subject} {_often(f'under 10{formats.NBSP}%', idle, columns)} and "
            f"{_often(f'at 90{formats.NBSP}% or more', busy, columns if idle == 0 else '')}."
        )
    cores = [row for row in heat.choices if row.what == CORE and len(row.measured)]
    if cores:
        often = [row for row in cores if float((row.measured >= heat.limit).mean()) >= 0.5]
        at = f"at {heat.limit:g}{formats.NBSP}% or more in at least half of the columns"
        if not often:
            told.append(f"No core stands {at}." if len(cores) > 1 else f"The core does not stand {at}.")
        elif len(often) == 1:
            name = full_name(often[0], several=heat.nodes > 1)
            told.append(f"One of {formats.count(len(cores), 'core')}, {name}, stands {at}.")
        else:
            which = "All" if len(often) == len(cores) else f"{len(often)} of"
            told.append(f"{which} {formats.count(len(cores), 'core')} stand {at}.")
    return " ".join(told)


def _often(what: str, percent: float, of: str) -> str:
    return f"in {formats.percent(percent)}{of} {what}" if percent else f"never {what}"


def _phases(report: Report) -> str:
    """What the dotted lines are; empty without any."""
    kind = "step" if report.course.basis == "steps" else "GPU work"
    words = {"loop": f"first {kind}", "after": f"last {kind}"}
    return " and ".join(words[phase.key] for phase in report.course.phases[1:])


def _marks(report: Report, heat: HeatMap) -> list[str]:
    """How to read the rows."""
    gpu, core = bool(heat.of("gpu")), bool(heat.of("core"))
    told = []
    if gpu and core and any(row.kind == "gpu" for row in heat.rows):
        told.append("Tall rows are GPUs, thin rows the cores of the same node.")
    told.append("Each cell is the mean of a column, in ten steps of 10\u00a0%.")
    phases = _phases(report)
    if phases:
        told.append(f"Dotted: {phases}.")
    return told


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
    kind = "GPUs" if chosen[0].what == GPU else "cores"
    low, high = (formats.percent(row.mean) for row in chosen)
    if chosen[1].mean - chosen[0].mean < ALIKE_POINTS:
        return f"The {kind} are alike: {names[0]}, used least, is at {low} on average, {names[1]}, used most, at {high}."
    return f"Of the {kind}, {names[0]} is used least, {low} on average, and {names[1]} most, {high}."


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
        if box.basis == WHOLE and box.metric == Metric.GPU_USE and box.node in heat.drawn
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
        node=formats.shown(use.node, 32),
        device=formats.shown(use.device, 24),
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
