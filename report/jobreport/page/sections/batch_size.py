"""Utilization of CPU and GPUs, and GPU memory activity, with the thresholds of BatchSize."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures.batch_size import METRICS, thresholds
from jobreport.page.figures.box_plot import LOOP, MIN_SIMILAR, WHOLE, are_similar, key
from jobreport.page.kit import Drawing, Figure, Side, Table, code
from jobreport.page.kit.table import node_cells, node_heads
from jobreport.page.sections.outline import not_recorded, section, why_not_evaluated
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_utilization import Box

#: Nodes that are drawn, GPUs of each, and rows of a table that is not folded away.
MAX_NODES, MAX_GPUS = 4, 16
#: A longer table holds only what is drawn.
MAX_ROWS = 128

#: The parameter of BatchSize that holds the threshold of each metric.
_PARAMETERS = {
    Metric.CPU_UTILIZATION: "cpu_threshold_p95",
    Metric.GPU_UTILIZATION: "gpu_threshold_p95",
    Metric.GPU_MEMORY_ACTIVITY: "gpu_memory_threshold_p95",
}


@section
def batch_size(report: Report) -> Content:
    """Box plots per node, and the table of all boxes."""
    card, boxes = report.card("BatchSize"), _of_gpu_nodes(report)
    if report.gpus_of_debugger or not boxes:
        return not_recorded("sample of GPU utilization", in_results=report.gpus_of_debugger)
    limits = _limits(card)
    nodes, which = _chosen(boxes)
    levels = _levels([box for box in boxes if box.basis == WHOLE], limits)
    return [
        code(_lead(report, card)),
        Figure(
            name="batch-size",
            title="CPU, GPU, and GPU memory activity",
            finding=f"p95 over the whole job: {levels}.",
            aid=which,
            key=key(boxes),
            drawings=[Side(style="blocks", blocks=_drawings(boxes, nodes, limits))],
            reading="Boxes are those of GPU utilization. CPU is the mean of the node's cores; a number is that of a GPU. Dashed: "
            "thresholds.",
            tables=[_table(boxes, [box for found in nodes.values() for box in found], limits)],
        ),
    ]


def _drawings(boxes: list[Box], nodes: dict[str, list[Box]], limits: dict[Metric, float]) -> list[Drawing]:
    """A drawing of each of the nodes that are drawn."""
    drawings = []
    for node, found in nodes.items():
        name, levels = formats.escape_name(node, 40), _levels([b for b in found if b.basis == WHOLE], limits)
        if figure := thresholds(found, limits):
            drawings.append(
                Drawing(
                    figure=figure,
                    title=name if len({box.node for box in boxes}) > 1 else "",
                    label=f"{name}. p95 over the whole job: {levels}.",
                    style="boxes",
                )
            )
    return drawings


def _limits(card: RuleCard | None) -> dict[Metric, float]:
    values = {p.name: p.value for p in card.parameters} if card else {}
    found = {metric: values.get(name) for metric, name in _PARAMETERS.items()}
    return {metric: float(v) for metric, v in found.items() if isinstance(v, int | float)}


def _of_gpu_nodes(report: Report) -> list[Box]:
    """The boxes of nodes with GPUs, by node and then metric."""
    by_node: dict[str, list[Box]] = {b.node: [] for b in report.boxes if b.metric == Metric.GPU_UTILIZATION}
    for box in report.boxes:
        if box.node in by_node and box.metric in METRICS:
            by_node[box.node].append(box)
    return [box for found in by_node.values() for m in METRICS for box in found if box.metric == m]


def _chosen(boxes: list[Box]) -> tuple[dict[str, list[Box]], str]:
    """The boxes that are drawn, by node, and which these are if not all."""
    by_node: dict[str, list[Box]] = {}
    for box in boxes:
        by_node.setdefault(box.node, []).append(box)
    levels: dict[str, dict[str, float]] = {
        node: {b.device: b.p95 for b in found if b.metric == Metric.GPU_UTILIZATION and b.basis == WHOLE}
        for node, found in by_node.items()
    }
    ranked = sorted(levels, key=lambda node: sum(levels[node].values()) / len(levels[node]))
    alike = _alike(by_node)
    drawn = set(ranked[: 1 if alike else MAX_NODES])
    gpus = {node: _drawn_gpus(levels[node], by_node[node]) for node in drawn}
    chosen = {
        node: [b for b in found if b.metric == Metric.CPU_UTILIZATION or b.device in gpus[node]]
        for node, found in by_node.items()
        if node in drawn
    }
    some, every = sum(map(len, gpus.values())), sum(map(len, levels.values()))
    return chosen, f"Drawn: {some} of {every} GPUs, those with the lowest p95." if some < every else ""


def _drawn_gpus(levels: dict[str, float], boxes: list[Box]) -> set[str]:
    """The GPUs of a node with the lowest p95; one if they are similar."""
    of_gpus = [box for box in boxes if box.metric != Metric.CPU_UTILIZATION]
    similar = len(levels) >= MIN_SIMILAR and are_similar(of_gpus)
    return set(sorted(levels, key=levels.__getitem__)[: 1 if similar else MAX_GPUS])


def _alike(by_node: dict[str, list[Box]]) -> bool:
    """True if several nodes have nearly the same p95 of every metric, and the same metrics."""
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


def _lead(report: Report, card: RuleCard | None) -> str:
    """The count of the rule."""
    if card is None or not card.was_evaluated:
        return why_not_evaluated(report, "BatchSize")
    windows = f"{card.violating} of {formats.count(card.evaluated, 'window')}"
    return f"`BatchSize`: CPU, GPU, and GPU memory activity were all low in {windows}."


def _levels(whole: list[Box], limits: dict[Metric, float]) -> str:
    """``CPU 31.0% (threshold 70%), GPU 40.0 to 45.0% (threshold 70%)``, the p95 of each metric."""
    levels = []
    for metric in METRICS:
        p95 = formats.spread(box.p95 for box in whole if box.metric == metric)
        limit = f" (threshold {formats.plain_number(limits[metric])}%)" if p95 and metric in limits else ""
        levels.append(f"{metric.label} {p95 or 'not recorded'}{limit}")
    return ", ".join(levels)


def _table(boxes: list[Box], drawn: list[Box], limits: dict[Metric, float]) -> Table:
    """All boxes; of very many, those that are drawn."""
    several = len({box.node for box in boxes}) > 1
    has_loop = any(box.basis == LOOP for box in boxes)
    listed = boxes if len(boxes) <= MAX_ROWS else drawn
    return Table(
        label="Percentiles of CPU, GPU, and GPU memory activity",
        caption="Utilization of CPU and GPUs, and GPU memory activity (%)."
        + formats.not_shown(len(boxes) - len(listed), "row"),
        heads=[
            *node_heads(":Device", ":Metric", several=several),
            *([":Over"] if has_loop else []),
            *("Samples", "p25", "p50", "p75", "p95"),
            *(["Threshold of p95"] if limits else []),
        ],
        rows=[
            [
                *node_cells(box.node, _device(box), several=several),
                Metric(box.metric).label,
                *([box.basis] if has_loop else []),
                formats.known(box.n, 0),
                *map(formats.number, (box.p25, box.p50, box.p75, box.p95)),
                *([formats.plain_number(limits.get(Metric(box.metric), "–"))] if limits else []),
            ]
            for box in listed
        ],
    )


def _device(box: Box) -> str:
    return "mean of all cores" if box.metric == Metric.CPU_UTILIZATION else box.device
