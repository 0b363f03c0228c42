"""GPU memory over time: how much is in use, where that is told, and for how much of the time it is busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.figures.gpu_memory import NodeMemory, memory_drawing, memory_plot, shared_range
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import covers_time, has_time_lines, heading
from jobreport.sections.time_lines import Block, TimeLines
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models import Plot

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobrules.analyses.gpu_memory import GPUMemory, MemoryRise, MemoryUse, Trend
    from jobrules.analyses.power import GPUState

#: A longer table is folded away.
MOST_OPEN_ROWS = 16
MOST_OPEN_RISES = 12
#: GPUs named in a sentence.
_MOST_NAMES = 4
#: With a p95 below this, memory is busy for the smaller part of the time; with a p5 below that, hardly; in percent.
BUSY, IDLE = 50.0, 5.0
#: From p5 to p95; more swings, in points.
SWING = 50.0


class NodeBlock(Struct, frozen=True, kw_only=True):
    """A node's drawing."""

    id: str
    title: str
    label: str
    drawing: Drawing
    #: Entries of the key: class of the swatch, words, series.
    key: tuple[tuple[str, str, str], ...]


class Row(Struct, frozen=True, kw_only=True):
    """A GPU as printed."""

    node: str
    device: str
    values: tuple[str, ...]
    reading: str


class RiseRow(Struct, frozen=True, kw_only=True):
    """A rise as printed."""

    node: str
    device: str
    values: tuple[str, ...]


@error_boundary
def gpu_memory(report: Report) -> Fragment:
    """Memory in use, then GPU memory utilization: time lines of the GPUs that rise most or are highest, and a table of all."""
    found, place, in_use = report.gpu_memory, heading("gpu-memory", report), _in_use(report)
    if found is None:
        html = render("gpu_memory", heading=place, in_use=in_use, rows=(), why_none=_why_none(report))
        return Fragment(name="gpu-memory", html=html)
    blocks, figures = _draw(report, found) if covers_time(report) else ([], {})
    days = formats.spans_days(report.job.start_us, report.job.end_us)
    several = len({gpu.node for gpu in found.gpus}) > 1
    html = render(
        "gpu_memory",
        heading=place,
        in_use=in_use,
        caption=_caption(found, several=several),
        rule=_rule(found),
        told=_sentences(found, several=several),
        blocks=blocks,
        key=blocks[0].key if len(blocks) > 1 and len({block.key for block in blocks}) == 1 else (),
        figures=document_json("gpu-memory", figures) if figures else "",
        marks=_marks(report, found),
        note=_note(found),
        column=formats.duration(found.columns.width_us),
        rows=[_row(gpu, days=days) for gpu in found.gpus],
        folded=len(found.gpus) > MOST_OPEN_ROWS,
        left_out=found.gpus_left_out,
        several=several,
        loop=found.loop,
        rises=[_rise_row(rise, days=days) for rise in found.rises],
        rises_folded=len(found.rises) > MOST_OPEN_RISES,
        rises_left_out=found.rises_left_out,
        why_none="",
    )
    return Fragment(name="gpu-memory", html=html)


class InUse(Struct, frozen=True, kw_only=True):
    """Memory in use, in bytes, where a source tells it."""

    caption: str
    blocks: list[Block]
    lines: TimeLines
    figures: str
    heads: tuple[str, ...]
    rows: list[tuple[str, str, tuple[str, ...]]]
    folded: bool
    several: bool


def _in_use(report: Report) -> InUse | None:
    states = [state for state in report.power or () if state.memory_max is not None]
    if not states:
        return None
    lines = TimeLines.of(report, (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL))
    blocks, figures = lines.draw("live-memory-in-use") if has_time_lines(report) else ([], {})
    several = len({state.node for state in states}) > 1
    scale = formats.rate_scale((state.memory_total or state.memory_max or 0.0 for state in states), "B")
    return InUse(
        caption=_most_in_use(states, scale, several=several),
        blocks=blocks,
        lines=lines,
        figures=document_json("memory-in-use", figures) if figures else "",
        heads=(*(f"{head} ({scale.unit})" for head in ("Mean", "Highest", "In all")), "Highest (%)"),
        rows=[(state.node, state.device, _bytes(state, scale)) for state in states],
        folded=len(states) > MOST_OPEN_ROWS,
        several=several,
    )


def _bytes(state: GPUState, scale: formats.Scale) -> tuple[str, ...]:
    values = (state.memory_mean, state.memory_max, state.memory_total)
    printed = (formats.known(None if v is None else v / scale.factor) for v in values)
    return (*printed, formats.known(state.memory_percent))


def _most_in_use(states: Sequence[GPUState], scale: formats.Scale, *, several: bool) -> str:
    fullest = max(states, key=lambda state: (state.memory_percent or 0.0, state.memory_max or 0.0))
    used = f"{formats.number((fullest.memory_max or 0.0) / scale.factor)}{formats.NBSP}{scale.unit}"
    part = (
        f", {formats.percent(fullest.memory_percent)} of its memory"
        if fullest.memory_percent is not None
        else ""
    )
    name = _name(fullest, several=several)
    if len({_bytes(state, scale)[1:] for state in states}) == 1 < len(states):
        return f"The {formats.count(len(states), 'GPU')} are alike: at most {used} in use on each{part}."
    if len(states) == 1:
        return f"At most {used} of memory were in use on {name}{part}."
    return f"{name} is the fullest of {formats.count(len(states), 'GPU')}: at most {used} in use{part}."


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "Rule results hold no samples of GPU memory, so there is nothing to draw over time."
    if not any(node.gpus for node in report.job.nodes):
        return "No GPU was sampled."
    return "GPU memory was not sampled."


def _name(gpu: GPUMemory | MemoryRise | GPUState, *, several: bool) -> str:
    device = formats.escape_name(gpu.device, 24)
    return f"{formats.escape_name(gpu.node, 40)} {device}" if several else device


def _names(gpus: Sequence[GPUMemory], *, several: bool) -> str:
    return formats.join_names([_name(gpu, several=several) for gpu in gpus], _MOST_NAMES)


def _caption(found: MemoryUse, *, several: bool) -> str:
    """Rises before growth, and growth before how high it is."""
    if found.rises:
        most = max(found.rises, key=lambda one: one.points)
        times = len(found.rises) + found.rises_left_out
        how = "once" if times == 1 else f"{formats.number(times, 0)} times, the most"
        return (
            f"GPU memory utilization rose {how} by {most.points:.1f} points, from "
            f"{formats.percent(most.from_percent)} to {formats.percent(most.to_percent)} on "
            f"{_name(most, several=several)} at {formats.clock(most.start_us)}."
        )
    growing = [(gpu, gpu.trend) for gpu in found.gpus if gpu.trend and gpu.trend.steady]
    if growing:
        most_of, trend = max(growing, key=lambda pair: pair[1].points_per_hour)
        which = (
            f"on {_name(most_of, several=several)}"
            if len(growing) == 1
            else f"on {formats.count(len(growing), 'GPU')}, most on {_name(most_of, several=several)}"
        )
        return (
            f"GPU memory utilization grows steadily {which}: by {trend.points_per_hour:.1f} points an hour over "
            f"the {found.loop}."
        )
    highest = max(found.gpus, key=lambda gpu: gpu.p95)
    high = (
        f"the p95 of {_name(highest, several=several)} is {formats.percent(highest.p95)}"
        if len(found.gpus) == 1
        else f"it is highest on {_name(highest, several=several)} with a p95 of {formats.percent(highest.p95)}"
    )
    judged = [gpu for gpu in found.gpus if gpu.rise is not None]
    if not judged:
        return f"GPU memory utilization has too few samples to look for rises; {high}."
    where = "did not rise" if len(found.gpus) == 1 else "rose on no GPU"
    if len(judged) < len(found.gpus):
        where = (
            f"rose on none of {len(judged)} of {formats.count(len(found.gpus), 'GPU')} with enough samples"
        )
    return f"GPU memory utilization {where} by more than {found.limit:g} points at once; {high}."


def _rule(found: MemoryUse) -> str:
    """What counts as a rise, with an example that adds up."""
    window = (
        formats.count(int(found.window), "sample") if found.window.isdigit() else f"{found.window} of samples"
    )
    low = 10.0 if found.limit <= 90 else 0.0
    example = f", as from {low:g} to over {low + found.limit:g}%" if found.limit < 100 else ""
    return (
        f"A rise of GPU memory utilization is told where the mean of {window} lies more than {found.limit:g} points above that of the "
        f"{window} before{example}."
    )


def _sentences(found: MemoryUse, *, several: bool) -> list[str]:
    """What the quantiles over the loop say."""
    told = []
    free = [gpu for gpu in found.gpus if gpu.loop_p95 < BUSY]
    if free:
        part = formats.spread(gpu.loop_p95 for gpu in free)
        told.append(
            f"{_names(free, several=several)}: the p95 over the {found.loop} is {part}, so reading and writing "
            "memory is hardly what limits the speed."
        )
    idle = [gpu for gpu in found.gpus if gpu.loop_p5 < IDLE <= gpu.loop_p95]
    if idle:
        told.append(
            f"{_names(idle, several=several)}: at least 5% of the samples in the {found.loop} lie "
            f"under {IDLE:g}%; the memory was hardly read or written then."
        )
    swings = [gpu for gpu in found.gpus if gpu.loop_p95 - gpu.loop_p5 > SWING]
    if swings:
        most = max(gpu.loop_p95 - gpu.loop_p5 for gpu in swings)
        told.append(
            f"{_names(swings, several=several)}: GPU memory utilization varies much over the {found.loop}, by "
            f"{most:.1f} points from p5 to p95{' at most' if len(swings) > 1 else ''}."
        )
    return told


def _draw(report: Report, found: MemoryUse) -> tuple[list[NodeBlock], dict[str, Plot]]:
    blocks, figures = [], {}
    x_range = shared_range(found.columns)
    # Lines of the same GPUs on every node have one key, which switches them all.
    same = (
        len({tuple(line.device for line in found.lines if line.node == band.node) for band in found.bands})
        == 1
    )
    same = same and len(found.bands) > 1 and len({band.devices for band in found.bands}) == 1
    for i, band in enumerate(found.bands):
        node = NodeMemory(
            key="n" if same else f"n{i}",
            band=band,
            lines=tuple(line for line in found.lines if line.node == band.node),
            rises=tuple(rise for rise in found.rises if rise.node == band.node),
        )
        element = f"live-gpu-memory-{i}"
        figures[element] = memory_plot(node, found.columns, report.phases, x_range)
        means = [gpu.mean for gpu in found.gpus if gpu.node == band.node]
        label = (
            f"GPU memory utilization of {formats.count(band.devices, 'GPU')} of {formats.escape_name(band.node, 40)} over time: mean "
            f"{formats.spread(means)}, lowest sample "
            f"{formats.percent(min(v for v in band.low if v is not None))}, highest "
            f"{formats.percent(max(v for v in band.high if v is not None))}, "
            f"{formats.count(len(node.rises), 'rise')}."
        )
        blocks.append(
            NodeBlock(
                id=element,
                title=f"{formats.escape_name(band.node, 60)}, GPU memory utilization, %",
                label=label,
                drawing=memory_drawing(node, found.columns, report.phases),
                key=_key(node),
            )
        )
    return blocks, figures


def _key(node: NodeMemory) -> tuple[tuple[str, str, str], ...]:
    names = ((f"s{i}", line.device) for i, line in enumerate(node.lines, start=1))
    key = [(token, formats.escape_name(device, 24), node.series(token)) for token, device in names]
    if node.has_mean:
        key.append(("n2", f"mean of {formats.count(node.band.devices, 'GPU')}", node.series("mean")))
    key.append(("u3", "lowest to highest sample", node.series("band")))
    return tuple(key)


def _marks(report: Report, found: MemoryUse) -> list[str]:
    """What the marks mean that this figure has."""
    told = ["lines: mean of a GPU in a column", "band: lowest to highest sample of any GPU of the node"]
    if found.rises:
        told.append("triangle: a rise, at the moment and height it reached")
    if len(report.phases.phases) > 1:
        told.append(f"dotted: the ends of the {found.loop}")
    gaps = any(gap.node in {band.node for band in found.bands} for gap in report.phases.gaps)
    if gaps or any(None in band.mean for band in found.bands):
        told.append("hatched: not measured")
    return told


def _note(found: MemoryUse) -> str:
    nodes = len({gpu.node for gpu in found.gpus})
    lines = {band.node: sum(line.node == band.node for line in found.lines) for band in found.bands}
    folded = any(band.devices > lines[band.node] for band in found.bands)
    which = "that rise most or are highest"
    if found.alike and (nodes > 1 or folded):
        means, full = (formats.spread(getattr(gpu, name) for gpu in found.gpus) for name in ("mean", "p95"))
        gpus = formats.count(len(found.gpus) + found.gpus_left_out, "GPU")
        what = "the GPU with the highest p95, the mean and the band" if folded else "the GPUs"
        where = (
            f" of {formats.escape_name(found.bands[0].node, 40)}, one of {nodes}{formats.NBSP}nodes"
            if nodes > 1
            else ""
        )
        return (
            f"All {gpus} are alike: mean {means}, p95 {full}. Drawn are {what}{where}; the table holds all."
        )
    if nodes > len(found.bands):
        more = ", of each four GPUs, the band and the mean of all" if folded else ""
        return f"Drawn are the {len(found.bands)} of {nodes}{formats.NBSP}nodes {which}{more}; the table holds the others."
    if folded:
        return f"Drawn as lines are the four GPUs {'of each node ' if nodes > 1 else ''}{which}; the table holds all."
    return ""


def _row(gpu: GPUMemory, *, days: bool) -> Row:
    trend = gpu.trend
    return Row(
        node=gpu.node,
        device=gpu.device,
        values=(
            formats.number(gpu.samples, 0),
            *(formats.number(value) for value in (gpu.mean, gpu.p50, gpu.p95, gpu.max)),
            formats.known(gpu.rise),
            "–" if gpu.rise_us is None else formats.column_time(gpu.rise_us, with_day=days),
            formats.number(gpu.events, 0) if gpu.rise is not None else "–",
            "–" if trend is None else _signed(trend.points_per_hour),
        ),
        reading=_reading(trend),
    )


def _signed(value: float) -> str:
    """``+1.5``, ``−0.4``, ``0.0``."""
    size = formats.number(abs(value))
    return size if size == "0.0" else f"{'+' if value > 0 else '−'}{size}"


def _reading(trend: Trend | None) -> str:
    if trend is None:
        return "–"
    return "grows steadily" if trend.steady else "no steady growth"


def _rise_row(rise: MemoryRise, *, days: bool) -> RiseRow:
    return RiseRow(
        node=rise.node,
        device=rise.device,
        values=(
            formats.column_time(rise.start_us, with_day=days),
            formats.column_time(rise.end_us, with_day=days),
            formats.number(rise.from_percent),
            formats.number(rise.to_percent),
            formats.number(rise.points),
        ),
    )
