"""The utilization of each GPU: boxes, and a table of its idle and busy samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.box_plot import LOOP, MIN_SIMILAR, WHOLE, are_similar, box_plot, key
from jobreport.page.kit import Drawing, Empty, Figure, Table, code
from jobreport.page.kit.table import device_name, node_cells, node_heads
from jobreport.page.sections.outline import section
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.measures.work_span import GLANCE_PERCENT
from jobrules.model import Metric

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_utilization import Box

#: A longer table is folded away.
MAX_OPEN_ROWS = 16
#: A longer table shows the training loop only.
MAX_ROWS = 128
#: Boxes of more GPUs are too narrow to read.
MAX_DRAWN = 32
#: Idle in at least this share of samples and active in at least this share: worth a sentence.
IDLE_SHARE = 0.2


@section
def gpu_utilization(report: Report) -> Content:
    """Box plots per GPU and the table per device."""
    boxes = [box for box in report.boxes if box.metric == Metric.GPU_UTILIZATION]
    whole = [box for box in boxes if box.basis == WHOLE]
    similar = len(whole) >= MIN_SIMILAR and are_similar(boxes)
    chosen = {(whole[0].node, whole[0].device)} if similar else _least_used(whole)
    figure = box_plot([box for box in boxes if (box.node, box.device) in chosen])
    if figure is None:
        return Empty(_why_none(report))
    return [
        _lead(whole),
        code(_windows(report)),
        Figure(
            name="gpu-utilization",
            title="GPU utilization",
            finding=_caption(whole),
            aid=_aid(whole, chosen, debugger=report.gpus_of_debugger, similar=similar),
            key=key(boxes),
            drawings=[Drawing(figure=figure, style="boxes")],
            reading="Box: p25 to p75; thick line: median; short line: p95; "
            "whiskers: farthest sample within 1.5 box heights.",
        ),
        _table(boxes, debugger=report.gpus_of_debugger),
    ]


def _least_used(whole: list[Box]) -> set[tuple[str, str]]:
    """Node and name of the GPUs that are drawn: all of few, otherwise those with the lowest utilization."""
    return {(box.node, box.device) for box in sorted(whole, key=_level)[:MAX_DRAWN]}


def _aid(whole: list[Box], chosen: set[tuple[str, str]], *, debugger: bool, similar: bool) -> str:
    """Which GPUs are drawn, if not all are."""
    if debugger:
        return "From SageMaker Debugger: GPUs on which LowGPUUtilization triggered, up to the last trigger."
    if similar:
        return f"{formats.every(len(whole), 'GPU')} have similar boxes; drawn: {_name(whole[0], whole)}."
    if len(chosen) == len(whole):
        return ""
    return f"Drawn: {len(chosen)} of {len(whole)} GPUs, those with the lowest utilization."


def _lead(boxes: list[Box]) -> str:
    """What means hide: GPUs that are idle in many samples and active in the others."""
    shares = [box.below_10 for box in boxes if box.below_10 is not None]
    idle = [100 * share for share in shares if IDLE_SHARE <= share <= 1 - IDLE_SHARE]
    if not idle:
        return ""
    some = f"{len(idle)} of {formats.count(len(boxes), 'GPU')}"
    which = formats.every(len(boxes), "GPU") if len(idle) == len(boxes) else some
    verb = "was" if len(idle) == 1 else "were"
    lead = f"{which} {verb} idle (below 10%) in {formats.spread(idle)} of samples."
    return Markup('{} When: <a href="#nodes">Nodes</a>.').format(lead)


def _windows(report: Report) -> str:
    """What LowGPUUtilization counted, which is not what the boxes hold."""
    card = report.card("LowGPUUtilization")
    if card is None or report.gpus_of_debugger:
        return ""
    if not card.was_evaluated:
        return f"`LowGPUUtilization` was not evaluated: {card.reason}."
    window = next((p for p in card.parameters if p.name == "window"), None)
    size = f" A window is the last {formats.plain_number(window.value)} samples;" if window else ""
    return f"`LowGPUUtilization`: {_counted(card)}.{size} boxes show all samples."


def _counted(card: RuleCard) -> str:
    """How many windows were low, and how many fluctuated."""
    of = f"of {formats.count(card.evaluated, 'window')}"
    low, fluctuating = (card.kinds.get(kind, 0) for kind in ("low", "fluctuating"))
    if not low and not fluctuating:
        verbs = ("is low or fluctuates", "are low or fluctuate")
        return f"{card.violating} {of} {verbs[card.violating != 1]}"
    values = {p.name: formats.plain_number(p.value) for p in card.parameters}
    p95, p5 = values.get("threshold_p95", "–"), values.get("threshold_p5", "–")
    counts = []
    if low:
        counts.append(f"{low} {of} {'is' if low == 1 else 'are'} low (p95 below {p95}%)")
    if fluctuating:
        verb = "fluctuates" if fluctuating == 1 else "fluctuate"
        counts.append(f"{fluctuating} {of} {verb} (p95 at least {p95}%, p5 below {p5}%)")
    return ", ".join(counts)


def _name(box: Box, boxes: list[Box]) -> str:
    return device_name(box.node, box.device, several=len({b.node for b in boxes}) > 1)


def _caption(boxes: list[Box]) -> str:
    """Which GPU differs, or that none does."""
    if not boxes:
        return ""
    lowest, highest = min(boxes, key=_level), max(boxes, key=_level)
    if highest.max <= GLANCE_PERCENT or lowest.min == highest.max:
        level = "at most 1" if highest.max <= GLANCE_PERCENT else formats.plain_number(highest.max)
        return f"Every GPU sample is {level}%."
    if len(boxes) == 1:
        half = formats.spread((lowest.p25, lowest.p75))
        median = formats.percent(lowest.p50)
        return f"The GPU's median utilization is {median}; the middle half of samples is {half}."
    of = "on average" if all(box.mean is not None for box in boxes) else "at p95"
    level = formats.percent(_level(highest))
    if unused := [box for box in boxes if box.max <= GLANCE_PERCENT]:
        names = formats.join_names([_name(box, boxes) for box in unused])
        verb = "was" if len(unused) == 1 else "were"
        return f"{names} {verb} never used; {_name(highest, boxes)} was used most, {level} {of}."
    levels = _level(lowest), _level(highest)
    if levels[1] - levels[0] < ALIKE_POINTS:
        verb = "average" if of == "on average" else "have a p95 of"
        return f"{formats.every(len(boxes), 'GPU')} {verb} {formats.spread(levels)}."
    return (
        f"{_name(lowest, boxes)} has the lowest utilization, {formats.percent(levels[0])} {of}; "
        f"{_name(highest, boxes)} has the highest, {level}."
    )


def _level(box: Box) -> float:
    return box.p95 if box.mean is None else box.mean


def _why_none(report: Report) -> str:
    if not report.gpus_of_debugger:
        return "GPU utilization was not recorded."
    if not any(node.gpus for node in report.job.nodes) and not any(
        r.label == "GPU" for r in report.utilization
    ):
        return "SageMaker Debugger's results name no GPU."
    return "SageMaker Debugger's results hold numbers of single GPUs only if LowGPUUtilization triggered."


def _table(boxes: list[Box], *, debugger: bool) -> Table:
    """All boxes; of very many GPUs, those of the training loop only. SageMaker Debugger's have no shares."""
    whole, loop = ([box for box in boxes if box.basis == basis] for basis in (WHOLE, LOOP))
    one_basis = len(boxes) > MAX_ROWS and len(loop) == len(whole)
    both = bool(loop) and not one_basis
    several = len({box.node for box in boxes}) > 1
    sampled = [] if debugger else ["Samples", "Mean", "p5"]
    shares = [] if debugger else ["Idle (%)", "Partly busy (%)", "Busy (%)"]
    caption = f"Utilization per GPU{' in the training loop' if one_basis else ''} (%)"
    if not debugger:
        caption += ", and its share of idle (< 10%), partly busy, and busy (> 90%) samples"
    return Table(
        label="Utilization of each GPU",
        caption=f"{caption}.{' The whole job is in report.json.' if one_basis else ''}",
        fold="distribution and share of time per GPU" if len(boxes) > MAX_OPEN_ROWS else "",
        heads=[
            *node_heads(":GPU", several=several),
            *([":Over"] if both else []),
            *sampled,
            *("p25", "p50", "p75", "p95", "Max"),
            *shares,
        ],
        rows=[
            [
                *node_cells(box.node, box.device, several=several),
                *([box.basis] if both else []),
                *(
                    [formats.known(box.n, 0), formats.known(box.mean), formats.known(box.p5)]
                    if sampled
                    else []
                ),
                *map(formats.number, (box.p25, box.p50, box.p75, box.p95, box.max)),
                *(map(_share, (box.below_10, box.from_10_to_90, box.above_90)) if shares else []),
            ]
            for box in (loop if one_basis else boxes)
        ],
    )


def _share(part: float | None) -> str:
    return formats.known(None if part is None else 100 * part)
