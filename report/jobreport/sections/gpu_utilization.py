"""The use of every GPU: boxes, and a table of how its time was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.box_plot import LOOP, WHOLE, box_plot
from jobreport.figures.embed import document_json
from jobreport.figures.static_svg import still_boxes
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric, Status

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobrules.analyses.gpu_utilization import Box

#: A longer table is folded away.
MOST_OPEN_ROWS = 16
#: A longer table tells of the training loop only.
MOST_ROWS = 128
#: Boxes of more GPUs are too narrow to read.
MOST_DRAWN = 32
#: Idle in at least this share of the samples, and at work in at least this share: worth a sentence.
IDLE_SHARE = 0.2


class Row(Struct, frozen=True, kw_only=True):
    """A GPU as printed."""

    node: str
    device: str
    basis: str
    samples: str
    #: Mean and p5.
    first: tuple[str, ...]
    values: tuple[str, ...]
    #: Idle, partly used, busy; percent of its samples.
    shares: tuple[str, ...]


@error_boundary
def gpu_utilization(report: Report) -> Fragment:
    """Box plots per GPU and the table per device."""
    boxes = [box for box in report.boxes if box.metric == Metric.GPU_UTILIZATION]
    whole = [box for box in boxes if box.basis == WHOLE]
    chosen = _least_used(whole)
    drawn = [box for box in boxes if (box.node, box.device) in chosen]
    figure = box_plot(drawn)
    loop = [box for box in boxes if box.basis == LOOP]
    # Of very many GPUs the loop is enough.
    told = loop if len(boxes) > MOST_ROWS and len(loop) == len(whole) else boxes
    html = render(
        "gpu_utilization",
        heading=heading("gpu-utilization", report),
        caption=_caption(whole),
        lead=_lead(whole),
        judged=_judged(report),
        cut=_cut(len(whole), len(chosen)),
        has_loop=any(box.basis == LOOP for box in boxes),
        drawing=still_boxes(drawn) if figure else None,
        rows=[_row(box) for box in told],
        one_basis=len(told) < len(boxes),
        nodes=len({box.node for box in boxes}),
        folded=len(boxes) > MOST_OPEN_ROWS,
        figures=document_json("gpu-utilization", {"live-gpu-utilization": figure}) if figure else "",
        vendor=report.origin is Origin.DEBUGGER_RESULTS,
        why_none=_why_none(report),
    )
    return Fragment(name="gpu-utilization", html=html)


def _least_used(whole: list[Box]) -> set[tuple[str, str]]:
    """The GPUs that are drawn, by node and name: all of few, else those used least."""
    return {(box.node, box.device) for box in sorted(whole, key=_level)[:MOST_DRAWN]}


def _cut(gpus: int, drawn: int) -> str:
    if drawn == gpus:
        return ""
    return f"Drawn are the {formats.count(drawn, 'GPU')} used least of {gpus}; the table has them all."


def _judged(report: Report) -> str:
    """What LowGPUUtilization counted, which is not what the boxes hold."""
    card = next((card for card in report.rules if card.name == "LowGPUUtilization"), None)
    if card is None or report.origin is Origin.DEBUGGER_RESULTS:
        return ""
    if card.status in (Status.NOT_EVALUATED, Status.ERROR):
        return f"`LowGPUUtilization` gave no answer: {card.reason}."
    window = next((p for p in card.parameters if p.name == "window"), None)
    last = (
        f"the last {formats.plain_number(window.value)} {window.unit}".rstrip()
        if window
        else "its last samples"
    )
    until = f", the last until {formats.date_time(card.last_us)}" if card.violating and card.last_us else ""
    return (
        f"`LowGPUUtilization`: {_counted(card)}{until}. It judges {last} of each GPU once a minute; "
        "the boxes hold all samples."
    )


def _counted(card: RuleCard) -> str:
    """How many windows were low, and how many fluctuated."""
    windows = formats.count(card.evaluated, "window")
    if not card.violating:
        return f"none of {windows} of a GPU is low or fluctuates"
    limits = {
        p.name: f"{formats.plain_number(p.value)}%"
        for p in card.parameters
        if isinstance(p.value, int | float)
    }
    p95, p5 = limits.get("threshold_p95", "its limit"), limits.get("threshold_p5", "its limit")
    low, swings = (card.kinds.get(kind, 0) for kind in ("low", "fluctuating"))
    is_low = f"low (p95 below {p95})"
    swing = f"(p95 of {p95} or more, p5 below {p5})"
    if not low and not swings:
        low, is_low = card.violating, "low or fluctuating"
    found = low or swings
    which = f"all {windows}" if found == card.evaluated else f"{found} of {windows}"
    one = found == 1
    if not low:
        return f"{which} of a GPU {'fluctuates' if one else 'fluctuate'} {swing}"
    told = f"{which} of a GPU {'is' if one else 'are'} {is_low}"
    return f"{told} and {swings} {'fluctuates' if swings == 1 else 'fluctuate'} {swing}" if swings else told


def _name(box: Box, boxes: list[Box]) -> str:
    device = formats.escape_name(box.device, 24)
    return device if len({b.node for b in boxes}) == 1 else f"{formats.escape_name(box.node, 40)} {device}"


def _caption(boxes: list[Box]) -> str:
    """Which GPU stands out, or that none does."""
    if not boxes:
        return ""
    lowest, highest = min(boxes, key=_level), max(boxes, key=_level)
    means = all(box.mean is not None for box in boxes)
    average, of = ("on average", "mean use") if means else ("by the p95", "p95")
    if highest.max <= 0:
        return "Every sample of GPU use is 0."
    half = f"the middle half of its samples {formats.span(lowest.p25, lowest.p75)}"
    if len(boxes) == 1:
        return f"The GPU's median use is {formats.percent(lowest.p50)}; {half}."
    idle = [box for box in boxes if box.max <= 0]
    if idle:
        names = formats.join_names([_name(box, boxes) for box in idle])
        return f"{names} never worked; {_name(highest, boxes)} was used most, {formats.percent(_level(highest))} {average}."
    levels = _level(lowest), _level(highest)
    if levels[1] - levels[0] < ALIKE_POINTS:
        low, high = (formats.percent(level) for level in levels)
        told = f"all at {low} {average}" if low == high else f"their {of} {formats.span(*levels)}"
        return f"The {len(boxes)}{formats.NBSP}GPUs are alike: {told}."
    return (
        f"{_name(lowest, boxes)} is used least, {formats.percent(levels[0])} {average}; "
        f"{_name(highest, boxes)} most, {formats.percent(levels[1])}."
    )


def _level(box: Box) -> float:
    return box.p95 if box.mean is None else box.mean


def _why_none(report: Report) -> str:
    if report.origin is Origin.SAMPLES:
        return "No GPU was sampled."
    if not any(node.gpus for node in report.job.nodes) and not any(
        r.label == "GPU" for r in report.utilization
    ):
        return "The vendor's results name no GPU."
    return "The vendor's results hold figures of single GPUs only where LowGPUUtilization triggered."


def _lead(boxes: list[Box]) -> str:
    """What the means hide: GPUs that are idle for a good part of their samples and at work in the others."""
    shares = [box.below_10 for box in boxes if box.below_10 is not None]
    idle = [share for share in shares if IDLE_SHARE <= share <= 1 - IDLE_SHARE]
    if not idle:
        return ""
    which = (
        "The GPU was"
        if len(boxes) == 1
        else f"{'Both' if len(boxes) == 2 else f'All {len(boxes)}'}{formats.NBSP}GPUs were"
        if len(idle) == len(boxes)
        else f"{len(idle)} of {formats.count(len(boxes), 'GPU')} {'was' if len(idle) == 1 else 'were'}"
    )
    least, most = (100 * pick(idle) for pick in (min, max))
    part = formats.percent(most) if most - least < 0.05 else f"{least:.1f} to {formats.percent(most)}"
    return (
        f"{which} idle, under 10%, in {part} of the samples and at work in the others. "
        "The mean alone does not show that:"
    )


def _row(box: Box) -> Row:
    values = (box.p25, box.p50, box.p75, box.p95, box.max)
    return Row(
        node=box.node,
        device=box.device,
        basis=box.basis,
        samples=formats.known(box.n, 0),
        first=tuple(formats.known(v) for v in (box.mean, box.p5)),
        values=tuple(formats.number(v) for v in values),
        shares=tuple(
            formats.known(None if part is None else 100 * part)
            for part in (box.below_10, box.from_10_to_90, box.above_90)
        ),
    )
