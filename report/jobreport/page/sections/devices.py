"""Every GPU and core over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.box_plot import WHOLE
from jobreport.page.figures.devices.heat_map import cells, has_holes, map_figure
from jobreport.page.figures.devices.lines import defaults, lines_figure
from jobreport.page.figures.devices.rows import HeatMap, full_name, heat_map, not_drawn
from jobreport.page.figures.theme import SERIES
from jobreport.page.kit import Drawing, Figure, Html, Table
from jobreport.page.kit.fragment import place
from jobreport.page.kit.table import node_cells, node_heads, swatch
from jobreport.page.sections.outline import covers_time, not_recorded, section
from jobreport.page.sections.parts.time_lines import profiled_mark
from jobrules.model import Metric
from jobrules.text import capitalized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.figures.devices.rows import Row
    from jobreport.page.kit.section import Content
    from jobrules.analyses.devices import CoreUse, DeviceGrid
    from jobrules.analyses.gpu_utilization import Box

#: Rows of the table; of more cores, the busiest are in it.
MAX_ROWS = 200


@section
def devices(report: Report) -> Content:
    """The heat map of all devices, single ones as lines, and the table per device."""
    if report.devices is None or not covers_time(report):
        return not_recorded("sample of GPU or CPU utilization over time", in_results=report.of_debugger)
    heat = heat_map(report.devices, report.phases, _means(report, report.devices))
    chosen = defaults(heat)
    shared = heat.shared_range()
    devices_map, sources = map_figure(heat, shared)
    return [
        not_drawn(heat),
        Figure(
            name="devices-map",
            title="Devices over time",
            finding=_caption(report, report.devices),
            aid=_aid(heat, report.devices),
            key=_key(heat),
            drawings=[
                Drawing(figure=devices_map, style=f"names tall-{heat.height}", cells=_cells(heat)),
            ],
            zoom="the devices",
            together="both figures together",
            reading=_reading(report, heat),
        ),
        Figure(
            name="devices-lines",
            title="Single devices over time",
            finding=_lines_caption(heat, chosen),
            aid="Lines break at sampling pauses.",
            drawings=[
                Html(_picks(heat, chosen)),
                Drawing(figure=lines_figure(heat, shared, chosen, sources), style="names low"),
                Html(Markup('<p class="hint" hidden>Choose up to four devices.</p>')),
            ],
        ),
        _table(report, heat),
    ]


def _aid(heat: HeatMap, grid: DeviceGrid) -> str:
    """What a color is of, in the live figure and in the static one."""
    if not heat.samples:
        return f"Color: mean per {formats.duration(grid.columns.width_us)}."
    return f"Color: each sample{f', in print the mean of {heat.bundle}' if heat.bundle > 1 else ''}."


def _key(heat: HeatMap) -> list[Markup]:
    """The scale of the colors, and what else is drawn."""
    return [
        color_scale("0%", "100%"),
        *([swatch("l", f"core at {heat.limit:g}% or more")] if heat.of("core") else []),
        *([swatch("x", "not measured")] if has_holes(heat) else []),
    ]


def color_scale(low: str, high: str) -> Markup:
    """The colors of a heat map between what their ends stand for."""
    steps = Markup("").join(
        Markup('<rect class="q{}" x="{}" width="10" height="10"/>').format(i, 10 * i) for i in range(10)
    )
    scale = Markup(
        '{} <svg class="steps" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg> {}'
    )
    return scale.format(low, steps, high)


def _cells(heat: HeatMap) -> Markup:
    """The rows of the map as lines of cells."""
    rows = Markup("").join(
        Markup('<g class="cells" stroke-width="{}">{}</g>').format(
            place(part.thickness),
            Markup("").join(Markup('<path class="q{}" d="{}"/>').format(*path) for path in part.paths),
        )
        for part in cells(heat)
    )
    return Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" width="100%" height="100%">{}</svg>'
    ).format(heat.columns, place(10 * heat.units), rows)


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
    """Shares of idle and busy samples of the GPUs, and of samples of the cores at the threshold."""
    gpus = _gpus(report)
    idle = [100 * box.below_10 for box in gpus if box.below_10 is not None]
    busy = [100 * box.above_90 for box in gpus if box.above_90 is not None]
    clauses = []
    if idle and busy:
        clauses.append(f"GPUs: idle in {formats.spread(idle)} and busy in {formats.spread(busy)} of samples")
    if grid.cores:
        at = formats.spread(100 * core.at_limit for core in grid.cores)
        clauses.append(f"{_cores(report)}: {grid.limit:g}% or more in {at} of samples")
    return f"{capitalized('; '.join(clauses))}."


def _gpus(report: Report) -> list[Box]:
    """The utilization of each GPU over the whole job."""
    return [box for box in report.boxes if box.basis == WHOLE and box.metric == Metric.GPU_UTILIZATION]


def _cores(report: Report) -> str:
    """The subject of the cores' clause; SageMaker Debugger's results have only their mean."""
    cores = sum(node.cores for node in report.job.nodes) if report.has_debugger else 1
    return f"mean of {cores} cores" if cores > 1 else "cores"


def _reading(report: Report, heat: HeatMap) -> str:
    sentences = [
        "Tall rows: GPUs; thin rows: the cores of the node. Each color is a step of 10%; orange: a core that is at "
        f"{heat.limit:g}% or more in half of the samples. Dotted: start and end "
        f"of the {report.phases.middle}.",
        *profiled_mark(report),
    ]
    return " ".join(sentences)


def _lines_caption(heat: HeatMap, chosen: Sequence[Row]) -> str:
    names = [f"{full_name(row, several=heat.nodes > 1)} ({formats.percent(row.mean)})" for row in chosen]
    return f"Mean utilization: {formats.join_names(names) or 'not measured'}."


def _picks(heat: HeatMap, chosen: Sequence[Row]) -> Markup:
    """The places of the lists to choose lines from, with the names of the chosen devices."""
    names = [full_name(row, several=heat.nodes > 1) for row in chosen]
    names += [""] * (len(SERIES) - len(names))
    looks = {"dotdash": "dash-dot"}
    places = [
        Markup(
            '<span class="pick{}" data-line="Line {}, {}"><svg class="sw" viewBox="0 0 20 10" aria-hidden="true">'
            '<path class="{}" d="M0 5H20"/></svg><span class="text">{}</span></span>'
        ).format("" if name else " spare", i, looks.get(dash, dash), style, name)
        for i, ((style, dash), name) in enumerate(zip(SERIES, names, strict=True), start=1)
    ]
    return Markup('<p class="picks">{}</p>').format(Markup("").join(places))


def _table(report: Report, heat: HeatMap) -> Table:
    """The drawn devices, GPUs before cores of each node; of more than ``MAX_ROWS``, the busiest cores."""
    several, grid = heat.nodes > 1, report.devices
    gpus = [box for box in _gpus(report) if box.node in heat.drawn]
    drawn = {row.node for row in heat.of("core")}
    cores = [core for core in (grid.cores if grid else ()) if core.node in drawn]
    busiest = sorted(cores, key=lambda core: -core.mean)[: max(0, MAX_ROWS - len(gpus))]
    kept = {(core.node, core.device) for core in busiest}
    shown: list[Box | CoreUse] = [*gpus, *(core for core in cores if (core.node, core.device) in kept)]
    return Table(
        label="Utilization per device",
        fold="utilization per device",
        caption="Utilization per GPU and core (%), and its share of idle (< 10%), partly busy, and busy (> 90%) samples."
        + formats.not_shown(heat.nodes - len(heat.drawn), "node")
        + formats.not_shown(len(cores) - len(busiest), "less utilized core"),
        heads=[
            *node_heads(":Device", several=several),
            *("Samples", "Mean", "p50", "p95", "p99", "Max"),
            *("Idle (%)", "Partly busy (%)", "Busy (%)"),
        ],
        rows=[_line(one, several=several) for node in heat.drawn for one in shown if one.node == node],
    )


def _line(use: Box | CoreUse, *, several: bool) -> list[str]:
    shares = (use.below_10, use.from_10_to_90, use.above_90)
    return [
        *node_cells(use.node, use.device, several=several),
        formats.known(use.n, 0),
        *(formats.known(value) for value in (use.mean, use.p50, use.p95, use.p99, use.max)),
        *(formats.known(None if share is None else 100 * share) for share in shares),
    ]
