"""GPU memory over time: memory in use, if it was recorded, and GPU memory activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport import formats
from jobreport.page.figures.gpu_memory import NodeMemory, memory
from jobreport.page.figures.over_time import SharedTime
from jobreport.page.kit import Drawing, Figure, Sentences, Table
from jobreport.page.kit.table import device_name, node_cells, node_heads
from jobreport.page.sections.outline import covers_time, has_time_lines, not_recorded, section
from jobreport.page.sections.parts.time_lines import AID, TimeLines, profiled_mark
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_memory import GPUMemory, MemoryUse, Trend
    from jobrules.analyses.power import GPUState

#: Rows of a table that is not folded away.
MAX_OPEN_JUMPS = 12
#: GPUs named in a sentence.
MAX_NAMES = 4
#: With a p95 below this, memory traffic is no limit; in percent.
BUSY = 50.0


@section
def gpu_memory(report: Report) -> Content:
    """Memory in use, then activity: lines of the GPUs that jump most or are highest, and a table of all."""
    blocks = [*_in_use(report), *_activity(report)]
    return blocks or not_recorded("sample of GPU memory", in_results=report.gpus_of_debugger)


def _activity(report: Report) -> list[Block]:
    found = report.gpu_memory
    if found is None:
        return []
    several = len({gpu.node for gpu in found.gpus}) > 1
    caption = _caption(found, several=several)
    drawings = _draw(report, found, caption) if covers_time(report) else []
    same = len(drawings) > 1 and len({one.key for one in drawings}) == 1
    return [
        Sentences(_low(found, several=several)),
        Figure(
            name="gpu-memory",
            title="GPU memory activity",
            finding=caption,
            aid=f"Activity: share of time in which memory was read or written.{_drawn(found)}",
            key=drawings[0].key if same else (),
            drawings=[replace(one, key=()) if same else one for one in drawings],
            zoom="GPU memory activity",
            reading=_how_to_read(report, found),
        )
        if drawings
        else None,
        *_tables(found, days=report.job.spans_days, several=several),
    ]


def _in_use(report: Report) -> list[Block]:
    """Memory in use over time, and the table of all GPUs."""
    states = [state for state in report.power or () if state.memory_max is not None]
    if not states:
        return []
    lines = TimeLines.of(report, (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL))
    drawn = has_time_lines(report) and bool(lines.names)
    several = len({state.node for state in states}) > 1
    scale = formats.rate_scale((state.memory_total or state.memory_max or 0.0 for state in states), "B")
    return [
        Figure(
            name="memory-in-use",
            title="GPU memory in use",
            finding=_most_in_use(states, scale, several=several),
            aid=AID,
            key=lines.key,
            drawings=[lines.side("memory-in-use", named=several)],
            zoom="GPU memory in use",
            together="all lines together",
            reading=lines.reading,
        )
        if drawn
        else None,
        Table(
            label="GPU memory in use per GPU",
            caption="GPU memory in use per GPU.",
            heads=[
                *node_heads(":GPU", several=several),
                *(f"{head} ({scale.unit})" for head in ("Mean", "Peak", "Size")),
                "Peak (%)",
            ],
            rows=[
                [*node_cells(state.node, state.device, several=several), *_bytes(state, scale)]
                for state in states
            ],
        ),
    ]


def _bytes(state: GPUState, scale: formats.Scale) -> tuple[str, ...]:
    values = (state.memory_mean, state.memory_max, state.memory_total)
    printed = (formats.known(None if v is None else v / scale.factor) for v in values)
    return (*printed, formats.known(state.memory_percent))


def _most_in_use(states: Sequence[GPUState], scale: formats.Scale, *, several: bool) -> str:
    fullest = max(states, key=lambda state: (state.memory_percent or 0.0, state.memory_max or 0.0))
    used = f"{formats.number((fullest.memory_max or 0.0) / scale.factor)}{formats.NBSP}{scale.unit}"
    name = device_name(fullest.node, fullest.device, several=several)
    return f"GPU memory in use peaked at {used} on {name}."


def _names(gpus: Sequence[GPUMemory], *, several: bool) -> str:
    return formats.join_names([device_name(gpu.node, gpu.device, several=several) for gpu in gpus], MAX_NAMES)


def _caption(found: MemoryUse, *, several: bool) -> str:
    """The largest jump, otherwise the fastest growth, otherwise the highest p95."""
    if found.rises:
        return _jumped(found, several=several)
    growing = [(gpu, gpu.trend) for gpu in found.gpus if gpu.trend and gpu.trend.steady]
    if growing:
        fastest, trend = max(growing, key=lambda pair: pair[1].points_per_hour)
        return (
            f"GPU memory activity grows steadily on {device_name(fastest.node, fastest.device, several=several)}: "
            f"by {trend.points_per_hour:.1f} points per hour in the {found.loop}."
        )
    highest = max(found.gpus, key=lambda gpu: gpu.p95)
    name = device_name(highest.node, highest.device, several=several)
    return f"Highest p95 of GPU memory activity: {formats.percent(highest.p95)} ({name})."


def _jumped(found: MemoryUse, *, several: bool) -> str:
    largest = max(found.rises, key=lambda one: one.points)
    return (
        f"Largest jump of GPU memory activity: {largest.points:.1f} points, from "
        f"{formats.percent(largest.from_percent)} to {formats.percent(largest.to_percent)} on "
        f"{device_name(largest.node, largest.device, several=several)} at {formats.column_time(largest.start_us, with_day=False)}."
    )


def _samples(amount: str) -> str:
    """``10 samples``, ``30s of samples``."""
    return f"{int(amount):,} samples" if amount.isdigit() else f"{amount} of samples"


def _jump_defined(found: MemoryUse) -> str:
    window = _samples(found.window)
    points = f"{found.limit:g} points"
    return f"Jump: the mean of {window} is more than {points} above the mean of the {window} before."


def _low(found: MemoryUse, *, several: bool) -> list[str]:
    """GPUs whose memory traffic is no limit."""
    low = [gpu for gpu in found.gpus if gpu.loop_p95 < BUSY]
    if not low:
        return []
    p95 = formats.spread(gpu.loop_p95 for gpu in low)
    return [
        f"{_names(low, several=several)}: p95 of {p95} in the {found.loop}, "
        "so memory traffic is probably not the limit."
    ]


def _draw(report: Report, found: MemoryUse, caption: str) -> list[Drawing]:
    """A drawing for each node."""
    time = SharedTime(found.columns)
    # Lines of the same GPUs on every node have one key, which switches them all.
    drawn = {
        (band.devices, *(line.device for line in found.lines if line.node == band.node))
        for band in found.bands
    }
    same = len(drawn) == 1 < len(found.bands)
    drawings = []
    for i, band in enumerate(found.bands):
        node = NodeMemory(
            key="n" if same else f"n{i}",
            band=band,
            lines=tuple(line for line in found.lines if line.node == band.node),
            rises=tuple(rise for rise in found.rises if rise.node == band.node),
        )
        drawings.append(
            Drawing(
                name=f"gpu-memory-{i}",
                figure=memory(node, time, report.phases),
                title=f"{formats.escape_name(band.node, 60)}, GPU memory activity, %",
                label=f"GPU memory activity over time, {formats.escape_name(band.node, 40)}. {caption}",
                key=_key(node),
            )
        )
    return drawings


def _key(node: NodeMemory) -> tuple[tuple[str, str, str], ...]:
    names = ((f"s{i}", line.device) for i, line in enumerate(node.lines, start=1))
    key = [(token, formats.escape_name(device, 24), node.series(token)) for token, device in names]
    if node.has_mean:
        key.append(("n2", f"mean of {formats.count(node.band.devices, 'GPU')}", node.series("mean")))
    key.append(("u3", "lowest to highest sample", node.series("band")))
    return tuple(key)


def _how_to_read(report: Report, found: MemoryUse) -> str:
    sentences = [
        f"Lines: mean per GPU, in columns of {formats.duration(found.columns.width_us)}. Triangle: a jump, at the time and "
        f"height it reached. Dotted: start and end of the {found.loop}. Hatched: not measured.",
        *profiled_mark(report),
        _jump_defined(found),
        "Trend: median slope of all pairs of columns (Theil–Sen).",
    ]
    return " ".join(sentences)


def _drawn(found: MemoryUse) -> str:
    """The number of GPUs that are drawn; empty if all are."""
    gpus, nodes = len(found.gpus) + found.gpus_left_out, len({gpu.node for gpu in found.gpus})
    if len(found.lines) == gpus:
        return ""
    on = f"{len(found.lines)} of {gpus} GPUs on {len(found.bands)} of {formats.count(nodes, 'node')}"
    return f" Drawn: {on}, by jumps and p95."


def _tables(found: MemoryUse, *, days: bool, several: bool) -> list[Table]:
    """All GPUs, and the jumps."""
    zone = "UTC" if formats.dated(found.columns.start_us) else "from the start"
    every = Table(
        label="GPU memory activity per GPU",
        caption=f"GPU memory activity per GPU (%), largest jump (points), and trend in the {found.loop}."
        + formats.not_shown(found.gpus_left_out, "GPU"),
        heads=[
            *node_heads(":GPU", several=several),
            *("Samples", "Mean", "p50", "p95", "Max", "p5, loop", "p95, loop"),
            *("Largest jump", f"At ({zone})", "Jumps"),
            *("Trend (points/h)", ":Growth"),
        ],
        rows=[
            [
                *node_cells(gpu.node, gpu.device, several=several),
                formats.number(gpu.samples, 0),
                *map(formats.number, (gpu.mean, gpu.p50, gpu.p95, gpu.max, gpu.loop_p5, gpu.loop_p95)),
                formats.known(gpu.rise),
                "–" if gpu.rise_us is None else formats.column_time(gpu.rise_us, with_day=days),
                formats.number(gpu.events, 0) if gpu.rise is not None else "–",
                formats.signed(gpu.trend.points_per_hour if gpu.trend else None),
                _growth(gpu.trend),
            ]
            for gpu in found.gpus
        ],
    )
    return [every, _jumps(found, zone, days=days, several=several)] if found.rises else [every]


def _jumps(found: MemoryUse, zone: str, *, days: bool, several: bool) -> Table:
    count = len(found.rises)
    return Table(
        label="Jumps of GPU memory activity",
        caption="Jumps: times at which GPUMemoryIncrease triggers, and means of the two windows."
        + formats.not_shown(found.rises_left_out, "smaller jump"),
        fold=f"{count} jumps" if count > MAX_OPEN_JUMPS else "",
        heads=[
            *node_heads(":GPU", several=several),
            *(f"Start ({zone})", f"End ({zone})", "Before (%)", "After (%)", "Jump (points)"),
        ],
        rows=[
            [
                *node_cells(jump.node, jump.device, several=several),
                formats.column_time(jump.start_us, with_day=days),
                formats.column_time(jump.end_us, with_day=days),
                *map(formats.number, (jump.from_percent, jump.to_percent, jump.points)),
            ]
            for jump in found.rises
        ],
    )


def _growth(trend: Trend | None) -> str:
    if trend is None:
        return "–"
    return "grows steadily" if trend.steady else "no steady growth"
