"""How far CPU, GPUs and GPU memory are used, beside the limits below which BatchSize finds them little used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.batch_size import METRICS, batch_drawing, batch_plot
from jobreport.figures.box_plot import LOOP, WHOLE
from jobreport.figures.embed import document_json
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric, Status

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.figures.static_svg import StillBoxes
    from jobrules.analyses.gpu_utilization import Box

#: Nodes that are drawn, GPUs of each, and rows of a table that stands open.
MOST_NODES, MOST_GPUS, MOST_OPEN_ROWS = 4, 16, 16
#: A longer table holds only what is drawn.
MOST_ROWS = 128

#: The parameter of BatchSize that holds the limit of each metric.
_PARAMETERS = {
    Metric.CPU_UTILIZATION: "cpu_threshold_p95",
    Metric.GPU_UTILIZATION: "gpu_threshold_p95",
    Metric.GPU_MEMORY_ACTIVITY: "gpu_memory_threshold_p95",
}
_NAMES = {
    Metric.CPU_UTILIZATION: "CPU",
    Metric.GPU_UTILIZATION: "GPU use",
    Metric.GPU_MEMORY_ACTIVITY: Metric.GPU_MEMORY_ACTIVITY.label,
}


class Panel(Struct, frozen=True, kw_only=True, weakref=True):
    """The figure of one node."""

    id: str
    node: str
    drawing: StillBoxes
    label: str


class Row(Struct, frozen=True, kw_only=True):
    """A box as printed."""

    node: str
    metric: str
    device: str
    basis: str
    samples: str
    values: tuple[str, ...]
    limit: str


@error_boundary
def batch_size(report: Report) -> Fragment:
    """Box plots a node, and the table of all boxes."""
    card = next((card for card in report.rules if card.name == "BatchSize"), None)
    limits = _limits(card)
    boxes = _of_gpu_nodes(report)
    nodes, cut = _chosen(boxes)
    panels, figures = [], {}
    for i, (node, found) in enumerate(nodes.items()):
        panel = Panel(
            id=f"live-batch-{i}",
            node=node,
            drawing=batch_drawing(found, limits),
            label=f"{formats.escape_name(node, 40)}: {_told([b for b in found if b.basis == WHOLE], limits)}",
        )
        panels.append(panel)
        figures[panel.id] = batch_plot(found, limits)
    told = boxes if len(boxes) <= MOST_ROWS else [box for found in nodes.values() for box in found]
    html = render(
        "batch_size",
        heading=heading("batch-size", report),
        lead=_lead(card) if boxes else "",
        caption=_caption([b for b in boxes if b.basis == WHOLE], limits),
        cut=cut,
        missing=_missing(boxes),
        panels=panels,
        several=len({box.node for box in boxes}) > 1,
        has_loop=any(box.basis == LOOP for box in boxes),
        has_limits=bool(limits),
        rows=[_row(box, limits) for box in told],
        left=len(boxes) - len(told),
        folded=len(told) > MOST_OPEN_ROWS,
        figures=document_json("batch-size", {k: v for k, v in figures.items() if v}) if figures else "",
        why_none=_why_none(report),
    )
    return Fragment(name="batch-size", html=html)


def _limits(card: RuleCard | None) -> dict[Metric, float]:
    values = {p.name: p.value for p in card.parameters} if card else {}
    found = {metric: values.get(name) for metric, name in _PARAMETERS.items()}
    return {metric: float(v) for metric, v in found.items() if isinstance(v, int | float)}


def _of_gpu_nodes(report: Report) -> list[Box]:
    """The boxes of nodes with GPUs, by node and then metric."""
    if report.origin is Origin.DEBUGGER_RESULTS:
        return []
    by_node: dict[str, list[Box]] = {b.node: [] for b in report.boxes if b.metric == Metric.GPU_UTILIZATION}
    for box in report.boxes:
        if box.node in by_node and box.metric in METRICS:
            by_node[box.node].append(box)
    return [box for found in by_node.values() for m in METRICS for box in found if box.metric == m]


def _chosen(boxes: list[Box]) -> tuple[dict[str, list[Box]], str]:
    """The boxes that are drawn by node, and what is left out in words."""
    by_node: dict[str, list[Box]] = {}
    for box in boxes:
        by_node.setdefault(box.node, []).append(box)
    levels: dict[str, dict[str, float]] = {
        node: {b.device: b.p95 for b in found if b.metric == Metric.GPU_UTILIZATION and b.basis == WHOLE}
        for node, found in by_node.items()
    }
    ranked = sorted(levels, key=lambda node: sum(levels[node].values()) / len(levels[node]))
    alike = _alike(by_node)
    drawn = set(ranked[: 1 if alike else MOST_NODES])
    cut = []
    if alike:
        cut.append(f"the node of the lowest GPU p95; the {len(by_node)} nodes are alike")
    elif len(drawn) < len(by_node):
        cut.append(f"the {len(drawn)} nodes of the lowest GPU p95 of {len(by_node)}")
    gpus = {node: set(sorted(levels[node], key=levels[node].__getitem__)[:MOST_GPUS]) for node in drawn}
    if any(len(gpus[node]) < len(levels[node]) for node in drawn):
        cut.append(f"the {MOST_GPUS} GPUs of the lowest p95 of each node")
    chosen = {
        node: [b for b in found if b.metric == Metric.CPU_UTILIZATION or b.device in gpus[node]]
        for node, found in by_node.items()
        if node in drawn
    }
    verb = "is" if alike and len(cut) == 1 else "are"
    return chosen, f"Drawn {verb} {' and '.join(reversed(cut))}; the table has them all." if cut else ""


def _alike(by_node: dict[str, list[Box]]) -> bool:
    """Whether several nodes have nearly the same p95 of every metric, and the same metrics."""
    if len(by_node) < 2:
        return False
    for metric in METRICS:
        found = [
            b.p95 for boxes in by_node.values() for b in boxes if b.metric == metric and b.basis == WHOLE
        ]
        having = sum(any(b.metric == metric for b in boxes) for boxes in by_node.values())
        if having not in (0, len(by_node)) or (found and max(found) - min(found) >= ALIKE_POINTS):
            return False
    return True


def _lead(card: RuleCard | None) -> str:
    """What the rule judged."""
    if card is None:
        return "`BatchSize` was not selected: no limits are drawn, and nothing was judged."
    if card.status in (Status.NOT_EVALUATED, Status.ERROR):
        return f"`BatchSize` gave no answer: {card.reason}."
    window = next((p for p in card.parameters if p.name == "window"), None)
    last = (
        f"the last {formats.plain_number(window.value)} {window.unit}".rstrip()
        if window
        else "the last samples"
    )
    windows = formats.count(card.evaluated, "window")
    if not card.violating:
        found = f"In none of {windows} of a GPU were CPU, GPU and GPU memory all little used."
    else:
        until = f", the last until {formats.date_time(card.last_us)}" if card.last_us else ""
        found = (
            f"In {card.violating} of {windows} of a GPU ({formats.share(card.severity)}) CPU, GPU and GPU "
            f"memory were all little used{until}."
        )
    return (
        f"{found} Once a minute `BatchSize` tests whether the p95 of {last} lies below the limit, for all three; "
        "the boxes hold all samples."
    )


def _caption(whole: list[Box], limits: dict[Metric, float]) -> str:
    """Whether there is room in all three, over the whole job."""
    if not whole or len(limits) < len(METRICS):
        return _told(whole, {})
    gpus = [(b.node, b.device) for b in whole if b.metric == Metric.GPU_UTILIZATION]
    low = {(b.node, b.device, b.metric): b.p95 < limits[Metric(b.metric)] for b in whole}
    cpu = {
        b.node: b.p95 < limits[Metric.CPU_UTILIZATION] for b in whole if b.metric == Metric.CPU_UTILIZATION
    }
    small = sum(
        cpu.get(node, False)
        and low[node, device, Metric.GPU_UTILIZATION]
        and low.get((node, device, Metric.GPU_MEMORY_ACTIVITY), True)
        for node, device in gpus
    )
    told = _told(whole, limits)
    if not small:
        return f"Over the whole job {'the' if len(gpus) == 1 else 'no'} GPU {'does not have' if len(gpus) == 1 else 'has'} every p95 below its limit: {told}"
    which = (
        "The GPU has"
        if len(gpus) == 1
        else f"All {len(gpus)}{formats.NBSP}GPUs have"
        if small == len(gpus)
        else f"{small} of {formats.count(len(gpus), 'GPU')} {'has' if small == 1 else 'have'}"
    )
    return f"{which} every p95 of the whole job below its limit: {told}"


def _told(whole: list[Box], limits: dict[Metric, float]) -> str:
    """``p95 of CPU 31.0%, of GPU use 40.0 to 45.0% …``"""
    told = []
    for metric in METRICS:
        found = [b.p95 for b in whole if b.metric == metric]
        if found:
            limit = f" (limit {formats.plain_number(limits[metric])}%)" if metric in limits else ""
            told.append(f"{_NAMES[metric]} {formats.spread(found)}{limit}")
    return f"{', '.join(told)}." if told else ""


def _missing(boxes: list[Box]) -> str:
    """What was not sampled where."""
    nodes = list(dict.fromkeys(box.node for box in boxes))
    told = []
    for metric, words in (
        (Metric.CPU_UTILIZATION, "The CPU was"),
        (Metric.GPU_MEMORY_ACTIVITY, "GPU memory utilization was"),
    ):
        having = {box.node for box in boxes if box.metric == metric}
        without = [node for node in nodes if node not in having]
        if without:
            where = (
                ""
                if len(without) == len(nodes)
                else f" on {formats.join_names([formats.escape_name(n, 40) for n in without])}"
            )
            told.append(f"{words} not sampled{where}.")
    return " ".join(told)


def _row(box: Box, limits: dict[Metric, float]) -> Row:
    metric = Metric(box.metric)
    return Row(
        node=box.node,
        metric=_NAMES[metric],
        device="all cores, mean" if metric is Metric.CPU_UTILIZATION else box.device,
        basis=box.basis,
        samples=formats.known(box.n, 0),
        values=tuple(formats.number(v) for v in (box.p25, box.p50, box.p75, box.p95)),
        limit=formats.plain_number(limits[metric]) if metric in limits else "–",
    )


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "The vendor's results hold no figures of CPU and GPU memory utilization beside those of the GPUs; its count is on the card of the rule."
    return "No GPU was sampled."
