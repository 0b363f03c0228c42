"""Every GPU and core over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.box_plot import WHOLE
from jobreport.page.figures.devices import (
    GPU,
    HeatMap,
    cells,
    defaults,
    full_name,
    has_holes,
    heat_map,
    lines_figure,
    map_figure,
    not_drawn,
    shared_range,
)
from jobreport.page.figures.theme import SERIES
from jobreport.page.kit import Drawing, Empty, Figure, Html, Table
from jobreport.page.kit.fragment import place
from jobreport.page.kit.table import device_name, node_cells, node_heads, swatch
from jobreport.page.sections.outline import covers_time, section
from jobreport.page.sections.parts.time_lines import profiled_mark
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.figures.devices import Row
    from jobreport.page.kit.section import Content
    from jobrules.analyses.devices import CoreUse, DeviceGrid
    from jobrules.analyses.gpu_utilization import Box

#: Rows of the table; of more cores, the busiest are in it.
MAX_ROWS = 200
#: Shares of samples that differ by less are one range.
SIMILAR_SHARE = ALIKE_POINTS / 100
#: Share of its samples from which a core is often at the threshold.
OFTEN = 0.5


@section
def devices(report: Report) -> Content:
    """The heat map of all devices, single ones as lines, and the table per device."""
    if report.devices is None or not covers_time(report):
        return Empty(_why_none(report))
    heat = heat_map(report.devices, report.phases, _means(report, report.devices))
    chosen = defaults(heat)
    shared = shared_range(heat)
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


def _key(heat: HeatMap) -> list[Markup]:
    """The scale of the colors, and what else is drawn."""
    steps = Markup("").join(
        Markup('<rect class="q{}" x="{}" width="10" height="10"/>').format(i, 10 * i) for i in range(10)
    )
    scale = Markup(
        '0% <svg class="steps" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg> 100%'
    )
    return [
        scale.format(steps),
        *([swatch("l", f"core at {heat.limit:g}% or more")] if heat.of("core") else []),
        *([swatch("x", "not measured")] if has_holes(heat) else []),
    ]


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


def _why_none(report: Report) -> str:
    if report.of_debugger:
        return "SageMaker Debugger's rule results hold no samples."
    if report.devices is None:
        return "GPU and CPU utilization were not recorded."
    return "All samples were taken at one moment."


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
    """How often GPUs were idle and busy, and how often cores were at the threshold."""
    # Of a mean, only SageMaker Debugger's results name the cores.
    cores = sum(node.cores for node in report.job.nodes) if report.has_debugger else 1
    clauses = [*_gpu_clause(report), *_core_clause(grid, cores)]
    caption = "; ".join(clauses)
    return f"{caption[:1].upper()}{caption[1:]}."


def _gpus(report: Report) -> list[Box]:
    """The utilization of each GPU over the whole job."""
    return [box for box in report.boxes if box.basis == WHOLE and box.metric == Metric.GPU_UTILIZATION]


def _gpu_clause(report: Report) -> list[str]:
    gpus = _gpus(report)
    idle = [box.below_10 for box in gpus if box.below_10 is not None]
    busy = [box.above_90 for box in gpus if box.above_90 is not None]
    if not (idle and busy):
        return []
    subject = "the GPU was" if len(gpus) == 1 else "GPUs were"
    of = "" if not max(idle) else " of samples"
    of_busy = "" if of else " of samples"
    return [f"{subject} {_often('idle', idle, of)} and {_often('busy', busy, of_busy)}"]


def _often(state: str, shares: Sequence[float], of: str = "") -> str:
    if not max(shares):
        return f"never {state}"
    return f"{state} in {formats.spread(100 * share for share in shares)}{of}"


def _core_clause(grid: DeviceGrid, cores_of_job: int) -> list[str]:
    """One range for similar cores, otherwise how many of them often are at the threshold."""
    if not grid.cores:
        return []
    shares = [core.at_limit for core in grid.cores]
    at = f"at {grid.limit:g}% or more"
    if max(shares) - min(shares) < SIMILAR_SHARE or not max(shares):
        one = f"the mean of {cores_of_job} cores was" if cores_of_job > 1 else "the core was"
        return [f"{one if len(shares) == 1 else 'cores were'} {_often(at, shares)}"]
    most = max(grid.cores, key=lambda core: core.at_limit)
    name = device_name(most.node, most.device, several=len({core.node for core in grid.cores}) > 1)
    highest = f"{name}: {formats.percent(100 * most.at_limit)}"
    often = sum(share >= OFTEN for share in shares)
    cores = formats.count(len(shares), "core")
    if not often:
        return [f"no core was {at} in half of its samples (most often {highest})"]
    which = "all" if often == len(shares) else f"{often} of"
    were = "was" if often == 1 else "were"
    return [f"{which} {cores} {were} {at} in half of the samples or more (most often {highest})"]


def _phases(report: Report) -> str:
    """What the dotted lines are; empty without any."""
    return " and ".join(report.phases.bounds)


def _aid(heat: HeatMap, grid: DeviceGrid) -> str:
    color = f"Color: mean per {formats.duration(grid.columns.width_us)}"
    if not heat.of("core"):
        return f"{color}."
    return f"{color}; orange: core at {heat.limit:g}% or more in half of the samples."


def _reading(report: Report, heat: HeatMap) -> str:
    sentences = []
    if heat.of("core") and any(row.kind == "gpu" for row in heat.rows):
        sentences.append("Tall rows: GPUs; thin rows: the cores of the node.")
    sentences.append("Each color is a step of 10%. Changes faster than a column are not visible.")
    if phases := _phases(report):
        sentences.append(f"Dotted: {phases}.")
    sentences += profiled_mark(report)
    return " ".join(sentences)


def _lines_caption(heat: HeatMap, chosen: Sequence[Row]) -> str:
    if not chosen:
        return "No device was measured."
    names = [f"{full_name(row, several=heat.nodes > 1)} ({formats.percent(row.mean)})" for row in chosen]
    if len(chosen) == 1:
        return f"Mean utilization: {names[0]}."
    if chosen[0].what != chosen[1].what:
        return f"Mean utilization: {names[0]} and the most utilized core, {names[1]}."
    kind = "GPU" if chosen[0].what == GPU else "core"
    return f"Least and most utilized {kind}: {names[0]} and {names[1]}."


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
    nodes = ""
    if len(heat.drawn) < heat.nodes:
        nodes = f" {len(heat.drawn)} of {formats.count(heat.nodes, 'node')}."
    left_out = len(cores) - len(busiest)
    more = f" Not shown: {formats.count(left_out, 'less utilized core')}." if left_out else ""
    return Table(
        label="Utilization per device",
        fold="utilization per device",
        caption="Utilization per GPU and core (%), and its share of idle (< 10%), partly busy, and busy "
        f"(> 90%) samples.{nodes}{more}",
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
