"""GPU memory over time: memory in use, if it was recorded, and GPU memory activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport import formats
from jobreport.page.figures.gpu_memory import NodeMemory, memory
from jobreport.page.figures.over_time import SharedTime
from jobreport.page.kit import Drawing, Empty, Figure, Sentences, Table
from jobreport.page.kit.table import device_name, node_cells, node_heads
from jobreport.page.sections.outline import covers_time, has_time_lines, section
from jobreport.page.sections.parts.time_lines import AID, TimeLines, profiled_mark
from jobrules.model import Metric
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_memory import GPUMemory, MemoryUse, Trend
    from jobrules.analyses.power import GPUState

#: Rows of tables that are not folded away.
MAX_OPEN_ROWS = 16
MAX_OPEN_JUMPS = 12
#: GPUs named in a sentence.
MAX_NAMES = 4
#: With a p95 below the first, memory traffic is no limit; samples below the second are idle; in percent.
BUSY, IDLE = 50.0, 5.0
#: From p5 to p95; more swings, in points.
SWING = 50.0


@section
def gpu_memory(report: Report) -> Content:
    """Memory in use, then activity: lines of the GPUs that jump most or are highest, and a table of all."""
    blocks = [*_in_use(report), *_activity(report)]
    if blocks:
        return blocks
    if report.gpus_of_debugger:
        return Empty("SageMaker Debugger's rule results hold no samples of GPU memory.")
    return Empty("GPU memory was not recorded.")


def _activity(report: Report) -> list[Block]:
    found = report.gpu_memory
    if found is None:
        return []
    several = len({gpu.node for gpu in found.gpus}) > 1
    caption = _caption(found, _first(report), several=several)
    drawings = _draw(report, found, caption) if covers_time(report) else []
    same = len(drawings) > 1 and len({one.key for one in drawings}) == 1
    note = _note(found)
    return [
        note if drawings else f"{caption} {note}",
        Sentences(_sentences(found, several=several)),
        Figure(
            name="gpu-memory",
            finding=caption,
            aid="Activity is the share of time memory was read or written, not memory in use.",
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
    caption = _most_in_use(states, scale, several=several)
    return [
        Figure(
            name="memory-in-use",
            finding=caption,
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
            caption=f"{'' if drawn else f'{caption} '}GPU memory in use per GPU.",
            fold="memory in use per GPU" if len(states) > MAX_OPEN_ROWS else "",
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
    share = f" ({formats.percent(fullest.memory_percent)})" if fullest.memory_percent is not None else ""
    equal = len({_bytes(state, scale)[1:] for state in states}) == 1 < len(states)
    where = (
        f"each of {formats.count(len(states), 'GPU')}"
        if equal
        else device_name(fullest.node, fullest.device, several=several)
    )
    return f"GPU memory in use peaked at {used}{share} on {where}."


def _names(gpus: Sequence[GPUMemory], *, several: bool) -> str:
    return formats.join_names([device_name(gpu.node, gpu.device, several=several) for gpu in gpus], MAX_NAMES)


def _first(report: Report) -> str:
    """`` after the first 1,000 samples``, of which GPUMemoryIncrease checks none; empty if it did not run."""
    card = report.card(GPUMemoryIncrease.__name__)
    patience = next((p.value for p in card.parameters if p.name == "patience"), None) if card else None
    return f" after the first {_samples(str(patience))}" if patience else ""


def _caption(found: MemoryUse, first: str, *, several: bool) -> str:
    """Jumps before growth, and growth before the highest p95."""
    if found.rises:
        return _jumped(found, several=several)
    growing = [(gpu, gpu.trend) for gpu in found.gpus if gpu.trend and gpu.trend.steady]
    if growing:
        fastest, trend = max(growing, key=lambda pair: pair[1].points_per_hour)
        others = f"{formats.count(len(growing), 'GPU')}, most on " if len(growing) > 1 else ""
        return (
            f"GPU memory activity grows steadily on {others}{device_name(fastest.node, fastest.device, several=several)}: "
            f"by {trend.points_per_hour:.1f} points per hour in the {found.loop}."
        )
    highest = max(found.gpus, key=lambda gpu: gpu.p95)
    high = f"{formats.percent(highest.p95)} ({device_name(highest.node, highest.device, several=several)})"
    compared = sum(gpu.rise is not None for gpu in found.gpus)
    if not compared:
        return f"GPU memory activity has too few samples to detect jumps; highest p95: {high}."
    of = "" if compared == len(found.gpus) else f" on {compared} of {formats.count(len(found.gpus), 'GPU')}"
    return f"GPU memory activity has no jump above {found.limit:g} points{of}{first}; highest p95: {high}."


def _jumped(found: MemoryUse, *, several: bool) -> str:
    largest = max(found.rises, key=lambda one: one.points)
    times = len(found.rises) + found.rises_left_out
    often = "" if times == 1 else f" {formats.number(times, 0)} times, at most"
    return (
        f"GPU memory activity jumped{often} by {largest.points:.1f} points, from "
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


def _sentences(found: MemoryUse, *, several: bool) -> list[str]:
    """What the quantiles in the loop show."""
    sentences = []
    low = [gpu for gpu in found.gpus if gpu.loop_p95 < BUSY]
    if low:
        p95 = formats.spread(gpu.loop_p95 for gpu in low)
        sentences.append(
            f"{_names(low, several=several)}: p95 of {p95} in the {found.loop}, "
            "so memory traffic is probably not the limit."
        )
    idle = [gpu for gpu in found.gpus if gpu.loop_p5 < IDLE <= gpu.loop_p95]
    if idle:
        sentences.append(
            f"{_names(idle, several=several)}: below {IDLE:g}% in at least 5% of samples in the {found.loop}."
        )
    swings = [gpu for gpu in found.gpus if gpu.loop_p95 - gpu.loop_p5 > SWING]
    if swings:
        most = max(gpu.loop_p95 - gpu.loop_p5 for gpu in swings)
        sentences.append(
            f"{_names(swings, several=several)}: {'up to ' if len(swings) > 1 else ''}{most:.1f} points "
            f"between p5 and p95 in the {found.loop}."
        )
    return sentences


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
    sentences = [f"Lines: mean per GPU, in columns of {formats.duration(found.columns.width_us)}."]
    if found.rises:
        sentences.append("Triangle: a jump, at the time and height it reached.")
    if len(report.phases.phases) > 1:
        sentences.append(f"Dotted: start and end of the {found.loop}.")
    sentences += profiled_mark(report)
    gaps = any(gap.node in {band.node for band in found.bands} for gap in report.phases.gaps)
    if gaps or any(None in band.mean for band in found.bands):
        sentences.append("Hatched: not measured.")
    sentences.append(_jump_defined(found))
    sentences.append("Trend: median slope of all pairs of columns (Theil–Sen).")
    return " ".join(sentences)


def _note(found: MemoryUse) -> str:
    """Which nodes and GPUs are drawn; empty if all are."""
    nodes = len({gpu.node for gpu in found.gpus})
    lines = {band.node: sum(line.node == band.node for line in found.lines) for band in found.bands}
    partly = any(band.devices > lines[band.node] for band in found.bands)
    which = "with the largest jumps or the highest p95"
    if found.alike and (nodes > 1 or partly):
        means, p95 = (formats.spread(getattr(gpu, name) for gpu in found.gpus) for name in ("mean", "p95"))
        gpus = formats.count(len(found.gpus) + found.gpus_left_out, "GPU")
        drawn = "the GPU with the highest p95" if partly else "the GPUs"
        of = f" of {formats.escape_name(found.bands[0].node, 40)}" if nodes > 1 else ""
        return f"All {gpus} are similar: mean {means}, p95 {p95}. The figure shows {drawn}{of}."
    if nodes > len(found.bands):
        four = ", four GPUs of each" if partly else ""
        return f"The figure shows the {len(found.bands)} of {formats.count(nodes, 'node')} {which}{four}."
    if partly:
        return f"The lines are the four GPUs {'of each node ' if nodes > 1 else ''}{which}."
    return ""


def _tables(found: MemoryUse, *, days: bool, several: bool) -> list[Table]:
    """All GPUs, and the jumps."""
    zone = "UTC" if formats.dated(found.columns.start_us) else "from the start"
    more = found.gpus_left_out
    every = Table(
        label="GPU memory activity per GPU",
        caption=f"GPU memory activity per GPU (%), largest jump (points), and trend in the {found.loop}."
        + (f" Not shown: {formats.count(more, 'more GPU')}." if more else ""),
        fold="GPU memory activity per GPU" if len(found.gpus) > MAX_OPEN_ROWS else "",
        heads=[
            *node_heads(":GPU", several=several),
            *("Samples", "Mean", "p50", "p95", "Max", "Largest jump", f"At ({zone})", "Jumps"),
            *("Trend (points/h)", ":Growth"),
        ],
        rows=[
            [
                *node_cells(gpu.node, gpu.device, several=several),
                formats.number(gpu.samples, 0),
                *map(formats.number, (gpu.mean, gpu.p50, gpu.p95, gpu.max)),
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
    count, more = len(found.rises), found.rises_left_out
    which = f"The {count} largest jumps" if more else "Jumps"
    return Table(
        label="Jumps of GPU memory activity",
        caption=f"{which}: times at which GPUMemoryIncrease triggers, and means of the two windows."
        + (f" Not shown: {formats.count(more, 'smaller jump')}." if more else ""),
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
