"""The utilization of each GPU: boxes, and a table of its idle and busy samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.box_plot import LOOP, MIN_SIMILAR, WHOLE, are_similar, box_plot, key
from jobreport.page.kit import Drawing, Figure, Table, code
from jobreport.page.kit.table import device_name, node_cells, node_heads
from jobreport.page.sections.outline import not_recorded, section, why_not_evaluated
from jobrules.measures.work_span import GLANCE_PERCENT
from jobrules.model import Metric
from jobrules.text import some_of

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_utilization import Box

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
    chosen = _least_used(whole, 1 if similar else MAX_DRAWN)
    figure = box_plot([box for box in boxes if (box.node, box.device) in chosen])
    if figure is None:
        return not_recorded("sample of GPU utilization", in_results=report.gpus_of_debugger)
    return [
        _lead(whole),
        code(_windows(report)),
        Figure(
            name="gpu-utilization",
            title="GPU utilization",
            finding=_caption(whole),
            aid=_aid(whole, chosen, debugger=report.gpus_of_debugger),
            key=key(boxes),
            drawings=[Drawing(figure=figure, style="boxes")],
            reading="Box: p25 to p75; thick line: median; short line: p95; "
            "whiskers: farthest sample within 1.5 box heights.",
        ),
        _table(boxes, debugger=report.gpus_of_debugger),
    ]


def _least_used(whole: list[Box], most: int) -> set[tuple[str, str]]:
    """Node and name of the GPUs that are drawn: those with the lowest utilization."""
    return {(box.node, box.device) for box in sorted(whole, key=_level)[:most]}


def _aid(whole: list[Box], chosen: set[tuple[str, str]], *, debugger: bool) -> str:
    """The source of the numbers, or the GPUs that are drawn; empty if all are."""
    if debugger:
        return "From SageMaker Debugger: GPUs on which LowGPUUtilization triggered, up to the last trigger."
    if len(chosen) == len(whole):
        return ""
    return f"Drawn: {len(chosen)} of {len(whole)} GPUs, from the lowest utilization."


def _lead(boxes: list[Box]) -> str:
    """GPUs that are idle in many samples and active in the others, which means hide."""
    shares = [box.below_10 for box in boxes if box.below_10 is not None]
    idle = [100 * share for share in shares if IDLE_SHARE <= share <= 1 - IDLE_SHARE]
    if not idle:
        return ""
    lead = f"Idle samples (below 10%): {formats.spread(idle)} on {some_of(len(idle), len(boxes), 'GPU')}."
    return Markup('{} When: <a href="#nodes">Nodes</a>.').format(lead)


def _windows(report: Report) -> str:
    """The windows that LowGPUUtilization counted."""
    card = report.card("LowGPUUtilization")
    if card is None or report.gpus_of_debugger:
        return ""
    if not card.was_evaluated:
        return why_not_evaluated(report, card.name)
    windows = formats.count(card.evaluated, "window")
    if card.violating and not card.kinds:
        return f"`LowGPUUtilization`: {windows}, {card.violating} low or fluctuating."
    values = {p.name: formats.plain_number(p.value) for p in card.parameters}
    p95, p5 = values.get("threshold_p95", "–"), values.get("threshold_p5", "–")
    low, fluctuating = (card.kinds.get(kind, 0) for kind in ("low", "fluctuating"))
    return (
        f"`LowGPUUtilization`: {windows}, {low} low (p95 below {p95}%), {fluctuating} fluctuating (p95 at least {p95}%, "
        f"p5 below {p5}%). A window holds only the last samples, a box all."
    )


def _name(box: Box, boxes: list[Box]) -> str:
    return device_name(box.node, box.device, several=len({b.node for b in boxes}) > 1)


def _caption(boxes: list[Box]) -> str:
    """The lowest and the highest utilization."""
    if not boxes:
        return ""
    if all(box.max <= GLANCE_PERCENT for box in boxes):
        return "Every GPU sample is at most 1%."
    what = "p95 of" if any(box.mean is None for box in boxes) else "Mean"
    return f"{what} GPU utilization: {formats.extremes({_name(box, boxes): _level(box) for box in boxes})}."


def _level(box: Box) -> float:
    return box.p95 if box.mean is None else box.mean


def _table(boxes: list[Box], *, debugger: bool) -> Table:
    """All boxes; of very many GPUs, those of the training loop only. SageMaker Debugger's have no shares."""
    whole, loop = ([box for box in boxes if box.basis == basis] for basis in (WHOLE, LOOP))
    listed = loop if len(boxes) > MAX_ROWS and len(loop) == len(whole) else boxes
    several = len({box.node for box in boxes}) > 1
    sampled = [] if debugger else ["Samples", "Mean", "p5"]
    shares = [] if debugger else ["Idle (%)", "Partly busy (%)", "Busy (%)"]
    return Table(
        label="Utilization of each GPU",
        caption=f"Utilization per GPU (%).{formats.not_shown(len(boxes) - len(listed), 'row')}",
        aid="" if debugger else "Share of samples: idle (< 10%), busy (> 90%).",
        heads=[
            *node_heads(":GPU", several=several),
            *([":Over"] if loop else []),
            *sampled,
            *("p25", "p50", "p75", "p95", "Max"),
            *shares,
        ],
        rows=[
            [
                *node_cells(box.node, box.device, several=several),
                *([box.basis] if loop else []),
                *(
                    [formats.known(box.n, 0), formats.known(box.mean), formats.known(box.p5)]
                    if sampled
                    else []
                ),
                *map(formats.number, (box.p25, box.p50, box.p75, box.p95, box.max)),
                *(map(_share, (box.below_10, box.from_10_to_90, box.above_90)) if shares else []),
            ]
            for box in listed
        ],
    )


def _share(part: float | None) -> str:
    return formats.known(None if part is None else 100 * part)
