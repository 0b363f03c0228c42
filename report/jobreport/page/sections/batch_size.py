"""Utilization of CPU and GPUs, and GPU memory activity, with the thresholds of BatchSize."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures.batch_size import METRICS, thresholds
from jobreport.page.figures.box_plot import LOOP, MIN_SIMILAR, WHOLE, are_similar, key
from jobreport.page.kit import Drawing, Empty, Figure, Side, Table, code
from jobreport.page.kit.table import node_cells, node_heads
from jobreport.page.sections.outline import has_edges, section
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_utilization import Box

#: Nodes that are drawn, GPUs of each, and rows of a table that is not folded away.
MAX_NODES, MAX_GPUS, MAX_OPEN_ROWS = 4, 16, 16
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
    if report.gpus_of_debugger:
        return Empty("SageMaker Debugger's results hold no p95 of the CPU and of GPU memory activity.")
    card, boxes = report.card("BatchSize"), _of_gpu_nodes(report)
    if not boxes:
        return Empty("GPU utilization was not recorded.")
    limits = _limits(card)
    nodes, which = _chosen(boxes)
    caption = _caption([b for b in boxes if b.basis == WHOLE], limits, card)
    if caption and has_edges(report):
        caption = (
            f"Over the whole job: {caption[0].lower() if caption[1].islower() else caption[0]}{caption[1:]}"
        )
    return [
        code(_lead(card)),
        Figure(
            name="batch-size",
            finding=" ".join(filter(None, [caption, _missing(boxes)])),
            aid=which,
            key=key(boxes),
            drawings=[Side(style="blocks", blocks=_drawings(boxes, nodes, limits, caption))],
            reading="Boxes are those of section 6. CPU is the mean of the node's cores; a number is that of a GPU.",
            tables=[_table(boxes, [box for found in nodes.values() for box in found], limits)],
        ),
    ]


def _drawings(
    boxes: list[Box], nodes: dict[str, list[Box]], limits: dict[Metric, float], caption: str
) -> list[Drawing]:
    """A drawing of each of the nodes that are drawn."""
    drawings = []
    for node, found in nodes.items():
        name, levels = formats.escape_name(node, 40), _levels([b for b in found if b.basis == WHOLE], limits)
        if figure := thresholds(found, limits):
            drawings.append(
                Drawing(
                    figure=figure,
                    title=name if len({box.node for box in boxes}) > 1 else "",
                    label=f"{name}. {caption if len(nodes) == 1 else f'p95: {levels}.'}",
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
    which = []
    if alike:
        which.append(f"1 of {len(by_node)} similar nodes")
    elif len(drawn) < len(by_node):
        which.append(f"{len(drawn)} of {len(by_node)} nodes")
    fewer = [node for node in drawn if len(gpus[node]) < len(levels[node])]
    if any(len(gpus[node]) == MAX_GPUS for node in fewer):
        which.append(f"{MAX_GPUS} GPUs per node")
    drawn_of = f"Drawn: {', '.join(which)} (lowest GPU p95)." if which else ""
    if fewer and any(len(gpus[node]) < MAX_GPUS for node in fewer):
        drawn_of = " ".join(filter(None, [drawn_of, "Similar GPUs are drawn as one."]))
    return chosen, drawn_of


def _drawn_gpus(levels: dict[str, float], boxes: list[Box]) -> set[str]:
    """The GPUs of a node with the lowest p95; one if they are similar."""
    of_gpus = [box for box in boxes if box.metric != Metric.CPU_UTILIZATION]
    similar = len(levels) >= MIN_SIMILAR and are_similar(of_gpus)
    return set(sorted(levels, key=levels.__getitem__)[: 1 if similar else MAX_GPUS])


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
    """What the rule counted."""
    if card is None:
        return "`BatchSize` was not selected, so no threshold is drawn."
    if not card.was_evaluated:
        return f"`BatchSize` was not evaluated: {card.reason}."
    share = f" ({formats.share(card.severity)})" if card.violating else ""
    windows = f"{card.violating} of {formats.count(card.evaluated, 'window')}{share}"
    return f"`BatchSize`: CPU, GPU, and GPU memory activity were all low in {windows}."


def _caption(whole: list[Box], limits: dict[Metric, float], card: RuleCard | None) -> str:
    """Which GPUs have every p95 of the whole job below its threshold, and all p95.

    Only the p95 where the rule, which tests windows during the work, finds otherwise.
    """
    if not whole or len(limits) < len(METRICS):
        return f"p95: {_levels(whole, {})}." if whole else ""
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
    common = formats.plain_number(next(iter(limits.values()))) if len(set(limits.values())) == 1 else ""
    threshold = f"its threshold{f' of {common}%' if common else ''} (dashed)"
    levels = _levels(whole, {} if common else limits)
    if card and card.was_evaluated and (card.violating > 0) != (small > 0):
        return f"p95: {levels}."
    if not any(low.values()):
        return f"No p95 is below {threshold}: {levels}."
    if small == len(gpus):
        verb = "has" if small == 1 else "have"
        return f"{formats.every(small, 'GPU')} {verb} every p95 below {threshold}: {levels}."
    some = f"{small or 'None'} of {formats.count(len(gpus), 'GPU')}" if len(gpus) > 1 else "The GPU"
    verb = "does not have" if len(gpus) == 1 else "has" if small < 2 else "have"
    return f"{some} {verb} every p95 below {threshold}: {levels}."


def _levels(whole: list[Box], limits: dict[Metric, float]) -> str:
    """``CPU 31.0%, GPU 40.0 to 45.0% (threshold 70%), GPU memory activity 30.0%``, the p95 of each metric."""
    levels = []
    for metric in METRICS:
        found = [b.p95 for b in whole if b.metric == metric]
        if found:
            limit = f" (threshold {formats.plain_number(limits[metric])}%)" if metric in limits else ""
            levels.append(f"{metric.label} {formats.spread(found)}{limit}")
    return ", ".join(levels)


def _missing(boxes: list[Box]) -> str:
    """Metrics that were not recorded, and on which nodes."""
    nodes = list(dict.fromkeys(box.node for box in boxes))
    sentences = []
    for metric in (Metric.CPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY):
        having = {box.node for box in boxes if box.metric == metric}
        without = [formats.escape_name(node, 40) for node in nodes if node not in having]
        if without:
            where = "" if len(without) == len(nodes) else f" on {formats.join_names(without)}"
            sentences.append(f"{metric.label} was not recorded{where}.")
    return " ".join(sentences)


def _table(boxes: list[Box], drawn: list[Box], limits: dict[Metric, float]) -> Table:
    """All boxes; of very many, those that are drawn."""
    several = len({box.node for box in boxes}) > 1
    has_loop = any(box.basis == LOOP for box in boxes)
    listed = boxes if len(boxes) <= MAX_ROWS else drawn
    left = len(boxes) - len(listed)
    caption = "Utilization of CPU and GPUs, and GPU memory activity (%)"
    caption += ", with the threshold of p95." if limits else "."
    return Table(
        label="Percentiles of CPU, GPU, and GPU memory activity",
        caption=f"{caption} {formats.count(left, 'more row')} in report.json." if left else caption,
        fold="percentiles of CPU, GPU, and GPU memory activity" if len(listed) > MAX_OPEN_ROWS else "",
        heads=[
            *node_heads(":Device", ":Metric", several=several),
            *([":Over"] if has_loop else []),
            *("Samples", "p25", "p50", "p75", "p95"),
            *(["Threshold"] if limits else []),
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
