"""How similar the utilization of a node's GPUs is: histograms, and the distances between them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.figures import theme
from jobreport.page.figures.balance import MAX_LINES, Curve, Histograms, frame, histograms, series
from jobreport.page.kit.table import Table, device_name, node_cells, node_heads
from jobreport.page.sections.outline import heading, section
from jobrules.analyses.balance import MAX_NODES
from jobrules.measures.quartiles import ALIKE_POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment
    from jobrules.analyses.balance import Balance, FarPair, Load, NodeLoad

#: Rows of the table of GPUs; the nodes that differ most come first.
MAX_ROWS = 64
#: Shades up to the threshold, on which dark text is readable; above it, the fullest with light text.
SHADES = 6
FULL = "h9"
SIGN = "▲"


class Panel(Struct, frozen=True, kw_only=True):
    """One plot."""

    title: str
    #: Text alternative.
    label: str
    histograms: Histograms
    #: Mean distance of its GPU to the others of its node; 0 of the GPUs of a node together.
    distance: float = 0.0


class Cell(Struct, frozen=True, kw_only=True):
    """A distance as printed; ``style`` is a shade or that of what is not compared."""

    text: str
    style: str
    over: bool = False


class MatrixRow(Struct, frozen=True, kw_only=True):
    """A GPU's distances from all others listed."""

    device: str
    cells: tuple[Cell, ...]
    mean: str
    enough: bool


class Matrix(Struct, frozen=True, kw_only=True):
    """The distances of one node."""

    node: str
    finding: str
    #: Pairs that were compared, and those above the threshold.
    compared: int
    over: int
    rows: tuple[MatrixRow, ...]
    cut: str
    #: Whether a GPU has too few samples to be compared.
    partly: bool


@section
def balance(report: Report) -> Fragment:
    """Histograms, a matrix of distances per node, and what the rule counted."""
    place, found = heading("balance", report), report.balance
    if found is None or not any(gpu.histogram for _, gpu in _gpus(found)):
        return place.nothing(_why_none(report))
    together = _shared(found)
    evaluated = _is_evaluated(report)
    similar = _similar(found) if evaluated else None
    panels = _panels(found, [similar] if similar else found.nodes, together=together)
    one = evaluated and not together and _are_similar(found)
    if one:
        panels = sorted(panels, key=lambda panel: -panel.distance)[:1]
    axes = frame(panel.histograms for panel in panels)
    figures = [histograms(panel.histograms, axes) for panel in panels]
    # The single distance of two GPUs is a sentence.
    listed = [node for node in found.nodes if len(node.listed) > 2 and similar in (None, node)]
    matrices = [_matrix(node, found.limit) for node in listed]
    return place.section(
        lead=_lead(report, found),
        caption=_caption(found, report, evaluated=evaluated),
        joined="" if one else _joined(found, similar),
        basis=_basis(found),
        drawn=_most_different(found, panels[0]) if one else "" if similar else _drawn(found),
        ordered=len(found.nodes) > MAX_NODES,
        panels=[(panel, figure.drawing) for panel, figure in zip(panels, figures, strict=True)],
        together=together,
        usual=any(panel.histograms.usual for panel in panels),
        key=_key(panels) if together else [],
        several=len(found.nodes) > 1,
        compared=_are_compared(found),
        data=_data(found),
        threshold=formats.plain_number(found.limit),
        sign=SIGN,
        matrices=matrices,
        pairs=_pairs(found, matrices, agrees=_agrees(found, report)),
        two=_two(found),
        others=_others([node for node in found.nodes if len(node.gpus) > 2 and node not in listed]),
        figures={f"live-balance-{i}": figure.live for i, figure in enumerate(figures)},
    )


def _gpus(found: Balance) -> Iterator[tuple[NodeLoad, Load]]:
    return ((node, gpu) for node in found.nodes for gpu in node.gpus)


def _name(found: Balance, node: NodeLoad, device: str) -> str:
    return device_name(node.node, device, several=len(found.nodes) > 1)


def _why_none(report: Report) -> str:
    if report.gpus_of_debugger:
        return "SageMaker Debugger's results hold no samples to compare."
    if report.balance is not None:
        return "GPUs were recorded, but not in the training loop."
    return "GPU utilization was not recorded."


def _shared(found: Balance) -> bool:
    """Whether the GPUs of each node fit into one plot, all of them."""
    return all(len(node.gpus) <= MAX_LINES for node in found.nodes) and not _drawn(found)


def _panels(found: Balance, nodes: Sequence[NodeLoad], *, together: bool) -> list[Panel]:
    """A plot for each node, or for each GPU with the mean of its node."""
    drawn = [(node, [gpu for gpu in node.gpus if gpu.histogram]) for node in nodes]
    if together:
        return [_panel_of_node(found, node, gpus) for node, gpus in drawn if gpus]
    pairs = [(node, gpu) for node, gpus in drawn for gpu in gpus]
    if _drawn(found):
        pairs.sort(key=lambda pair: -(pair[1].mean_distance or 0.0))
    return [_panel_of_gpu(found, node, gpu) for node, gpu in pairs]


def _panel_of_node(found: Balance, node: NodeLoad, gpus: Sequence[Load]) -> Panel:
    means = (f"{formats.escape_name(gpu.device, 24)} {formats.percent(gpu.mean or 0)}" for gpu in gpus)
    title = formats.escape_name(node.node, 40) if len(found.nodes) > 1 else ""
    return Panel(
        title=title,
        label=f"{title or 'GPU utilization'}. Means: {', '.join(means)}.",
        histograms=Histograms(curves=tuple(map(_curve, gpus))),
    )


def _panel_of_gpu(found: Balance, node: NodeLoad, gpu: Load) -> Panel:
    title = _name(found, node, gpu.device)
    label = f"{title}. Mean {formats.percent(gpu.mean or 0)}"
    if gpu.mean_distance is not None:
        label += f", mean distance {gpu.mean_distance:.2f} to the others of its node"
    usual = node.histogram if len(node.gpus) > 1 else ()
    histograms = Histograms(curves=(_curve(gpu),), usual=usual)
    return Panel(title=title, label=f"{label}.", histograms=histograms, distance=gpu.mean_distance or 0.0)


def _curve(gpu: Load) -> Curve:
    return Curve(name=gpu.device, values=gpu.histogram)


def _key(panels: Sequence[Panel]) -> list[tuple[str, str, str]]:
    """Swatch, words, and series of each curve; nothing if each plot has one."""
    places = list(itertools.zip_longest(*([curve.name for curve in one.histograms.curves] for one in panels)))
    entries = []
    for i, ((style, _), names) in enumerate(zip(theme.SERIES, places, strict=False)):
        known = set(names) - {None}
        words = formats.escape_name(known.pop(), 24) if len(known) == 1 else f"GPU {i + 1} of each node"
        entries.append((style, words, series(i)))
    return entries if len(entries) > 1 else []


def _drawn(found: Balance) -> str:
    """Which GPUs are drawn, if not all with samples are."""
    sampled, drawn = (
        sum(len(kept) > 0 for kept in column)
        for column in zip(*((gpu.tenths, gpu.histogram) for _, gpu in _gpus(found)), strict=True)
    )
    if drawn == sampled:
        return ""
    return f"Drawn: the {drawn} of {sampled} GPUs that differ most from the others of their node."


def _worst(found: Balance) -> tuple[NodeLoad, FarPair] | None:
    """The pair with the largest distance, of those with enough samples if there are any."""
    pairs = [(node, node.farthest) for node in found.nodes if node.farthest]
    return max(pairs, key=lambda one: (one[1].enough, one[1].distance), default=None)


def _lead(report: Report, found: Balance) -> str:
    """What LoadBalancing counted, and which nodes have a single GPU."""
    alone = [formats.escape_name(node.node, 40) for node in found.nodes if len(node.gpus) == 1]
    if len(alone) == len(found.nodes):
        return (
            "The node has 1 GPU, so there is nothing to compare."
            if len(alone) == 1
            else "Every node has 1 GPU. GPUs of different nodes are not compared."
        )
    if not alone:
        return _comparisons(report, found)
    verb = "has" if len(alone) == 1 else "have"
    return f"{_comparisons(report, found)} {formats.join_names(alone)} {verb} 1 GPU: nothing to compare."


def _comparisons(report: Report, found: Balance) -> str:
    card = report.card("LoadBalancing")
    if card is None:
        return "`LoadBalancing` was not selected; the threshold is its default."
    if not card.was_evaluated:
        return f"`LoadBalancing` was not evaluated: {card.reason}."
    share = f" ({formats.share(card.severity)})" if card.violating else ""
    of = f"{formats.number(card.violating, 0)} of {formats.count(card.evaluated, 'comparison')}{share}"
    worst = _worst(found)
    ended = card.violating and worst and worst[1].distance <= found.limit
    return f"`LoadBalancing`: {of} exceeded the threshold{'; none at the end of the job' if ended else ''}."


def _agrees(found: Balance, report: Report) -> bool:
    """Whether the rule, which leaves out start-up and wind-down, finds GPUs as similar as the samples shown."""
    card, worst = report.card("LoadBalancing"), _worst(found)
    if card is None or card.measure is None or worst is None or not _is_evaluated(report):
        return True
    return (card.measure.value > found.limit) == (worst[1].distance > found.limit)


def _caption(found: Balance, report: Report, *, evaluated: bool) -> str:
    """The largest distance between two GPUs, or the fullest bin of a GPU alone."""
    worst = _worst(found)
    if not worst:
        return _fullest_bin(found)
    node, pair = worst
    names = f"{_name(found, node, pair.one)} and {formats.escape_name(pair.other, 24)}"
    distance, threshold = formats.number(pair.distance, 2), formats.plain_number(found.limit)
    if not (evaluated and pair.enough):
        return f"Largest distance {distance} ({names}), not evaluated; {_means(pair)}."
    card = report.card("LoadBalancing")
    if card and card.measure and not _agrees(found, report):
        own = formats.number(card.measure.value, 2)
        return (
            f"Largest distance over the whole job {distance} ({names}); without start-up and wind-down, "
            f"`LoadBalancing` finds {own} (threshold {threshold})."
        )
    within = " within each node" if len(found.nodes) > 1 else ""
    largest = f"largest distance {distance} ({names}, threshold {threshold})"
    if pair.distance <= found.limit:
        return f"GPU utilization is similar{within}: {largest}."
    if abs(pair.mean - pair.other_mean) >= ALIKE_POINTS:
        return f"GPU utilization differs: {largest}, {_means(pair)}."
    means = f"{_means(pair).capitalize()}: the GPUs are active at different times."
    return f"GPU utilization differs: {largest}. {means}"


def _means(pair: FarPair) -> str:
    one, other = formats.percent(pair.mean), formats.percent(pair.other_mean)
    return f"both means {one}" if one == other else f"means {one} and {other}"


def _fullest_bin(found: Balance) -> str:
    node, gpu = next((node, gpu) for node, gpu in _gpus(found) if gpu.histogram)
    most, width = max(gpu.histogram), 100 // len(gpu.histogram)
    at = gpu.histogram.index(most) * width
    whose = "the GPU's" if sum(1 for _ in _gpus(found)) == 1 else f"{_name(found, node, gpu.device)}'s"
    samples = f"{formats.percent(most)} of {whose} samples"
    return f"The fullest bin holds {samples}: utilization {at} to {at + width}%."


def _is_evaluated(report: Report) -> bool:
    card = report.card("LoadBalancing")
    return card is not None and card.was_evaluated


def _are_similar(found: Balance) -> bool:
    """Whether the GPUs of all nodes are similar, in their histograms and their means."""
    pairs = [node.farthest for node in found.nodes]
    means = [gpu.mean for _, gpu in _gpus(found)]
    if any(pair is None or not pair.enough or pair.distance > found.limit for pair in pairs):
        return False
    known = [mean for mean in means if mean is not None]
    return len(known) == len(means) and max(known) - min(known) < ALIKE_POINTS


def _most_different(found: Balance, panel: Panel) -> str:
    gpus = formats.every(sum(1 for _ in _gpus(found)), "GPU")
    return f"{gpus} are similar; drawn: {panel.title}, which differs most from the others of its node."


def _similar(found: Balance) -> NodeLoad | None:
    """The node with the largest distance, if the GPUs of all of several nodes are similar."""
    if len(found.nodes) < 2 or not _are_similar(found):
        return None
    drawn = [node for node in found.nodes if any(gpu.histogram for gpu in node.gpus)]
    return max(drawn, key=lambda node: node.farthest.distance if node.farthest else 0.0)


def _joined(found: Balance, similar: NodeLoad | None) -> str:
    """Which node is drawn for all."""
    if similar is None:
        return ""
    means = formats.spread(gpu.mean for _, gpu in _gpus(found) if gpu.mean is not None)
    name = formats.escape_name(similar.node, 40)
    return (
        f"All {len(found.nodes)} nodes are similar (means {means}); drawn: {name}, with the largest distance."
    )


def _two(found: Balance) -> str:
    """The distances of nodes with two GPUs, which have no table of distances."""
    pairs = [node for node in found.nodes if len(node.gpus) == 2]
    far = [(node, node.farthest) for node in pairs if node.farthest and node.farthest.enough]
    if len(found.nodes) < 2 or not far:
        return ""
    least, most = (formats.number(pick(pair.distance for _, pair in far), 2) for pick in (min, max))
    distances = least if least == most else f"{least} to {most}"
    over = [formats.escape_name(node.node, 40) for node, pair in far if pair.distance > found.limit]
    where = (
        f"above the threshold on {formats.join_names(over, MAX_NODES)}"
        if over
        else "none above the threshold"
    )
    return f"Distances on {formats.count(len(far), 'node')} with 2 GPUs: {distances}, {where}."


def _basis(found: Balance) -> str:
    """Whose samples the histograms hold."""
    bases = {node.basis for node in found.nodes}
    if bases == {"training loop"}:
        return "training-loop samples"
    return "samples" if bases == {"whole job"} else "samples, of the training loop where steps were recorded,"


def _are_compared(found: Balance) -> bool:
    return any(gpu.mean_distance is not None for _, gpu in _gpus(found))


def _data(found: Balance) -> Table:
    """Samples, mean, mean distance, and histogram of each GPU."""
    several, compared = len(found.nodes) > 1, _are_compared(found)
    rows = [
        [
            *node_cells(node.node, gpu.device, several=several),
            formats.number(gpu.samples, 0),
            formats.known(gpu.mean),
            *([formats.known(gpu.mean_distance, 2)] if compared else []),
            *(map(formats.number, gpu.tenths) if gpu.tenths else ["–"] * 10),
        ]
        for node, gpu in _gpus(found)
    ]
    distance = ", and mean distance to the other GPUs of the node" if compared else ""
    left = (
        f" {formats.count(len(rows) - MAX_ROWS, 'more GPU')} in report.json." if len(rows) > MAX_ROWS else ""
    )
    return Table(
        label="Histogram of each GPU",
        fold="samples, mean, and histogram of each GPU",
        caption=f"Percent of {_basis(found)} per 10% bin{distance}.{left}",
        heads=[
            *node_heads(":GPU", several=several),
            *("Samples", "Mean (%)"),
            *(["Distance"] if compared else []),
            *(f"{10 * i} to {10 * i + 10}" for i in range(10)),
        ],
        rows=rows[:MAX_ROWS],
    )


def _matrix(node: NodeLoad, limit: float) -> Matrix:
    gpus = {gpu.device: gpu for gpu in node.gpus}
    names = node.listed

    def cell(i: int, j: int) -> Cell:
        if i == j:
            return Cell(text="–", style="m")
        far = node.distances[min(i, j)][abs(i - j) - 1]
        if far is None:
            return Cell(text="not measured", style="m")
        text = formats.number(far, 2)
        if not (gpus[names[i]].enough and gpus[names[j]].enough):
            return Cell(text=text, style="m")
        if far > limit:
            return Cell(text=text, style=FULL, over=True)
        return Cell(text=text, style=f"h{min(SHADES - 1, int(SHADES * far / limit)) if limit > 0 else 0}")

    rows = tuple(
        MatrixRow(
            device=name,
            cells=tuple(cell(i, j) for j in range(len(names))),
            mean=formats.known(gpus[name].mean),
            enough=gpus[name].enough,
        )
        for i, name in enumerate(names)
    )
    compared = [c for i, row in enumerate(rows) for c in row.cells[i + 1 :] if c.style != "m"]
    over = sum(c.over for c in compared)
    left = len(node.gpus) - len(names)
    return Matrix(
        node=node.node,
        finding=f"{over or 'none'} of {formats.count(len(compared), 'pair')} above the threshold"
        if compared
        else "too few samples to compare",
        compared=len(compared),
        over=over,
        rows=rows,
        cut=f"The {len(names)} GPUs that differ most; {left} more are in the data above." if left else "",
        partly=any(not row.enough for row in rows),
    )


def _pairs(found: Balance, matrices: Sequence[Matrix], *, agrees: bool) -> str:
    """How many pairs of those listed are above the threshold; nothing if the rule finds otherwise during the work."""
    if not agrees:
        return "Distances over the whole job."
    compared, over = (sum(getattr(m, name) for m in matrices) for name in ("compared", "over"))
    if not compared:
        return "No GPU has enough samples to be compared."
    with_pairs = sum(len(node.gpus) > 1 for node in found.nodes)
    where = ""
    if len(matrices) < with_pairs:
        most = f"the {len(matrices)} of {with_pairs} nodes that differ most"
        where = f" on {formats.escape_name(matrices[0].node, 40) if len(matrices) == 1 else most}"
    verb = "is" if over < 2 else "are"
    pairs = f"{over or 'None'} of {formats.count(compared, 'pair')}{where}"
    return f"{pairs} {verb} above the threshold at the end of the job."


def _others(nodes: Sequence[NodeLoad]) -> Table:
    """The largest distance of each node without a table of distances."""
    rows = []
    for node in nodes:
        means = formats.spread(gpu.mean for gpu in node.gpus if gpu.mean is not None)
        far = node.farthest
        pair = f"{formats.escape_name(far.one, 24)} and {formats.escape_name(far.other, 24)}" if far else "–"
        distance = formats.number(far.distance, 2) if far else "–"
        name = formats.escape_name(node.node, 32)
        rows.append([name, str(len(node.gpus)), means or "not measured", pair, distance])
    return Table(
        label="Largest distance on the other nodes",
        fold=f"the largest distance on {formats.count(len(nodes), 'other node')}",
        caption="Other nodes, largest distance first.",
        heads=[":Node", "GPUs", "Means of its GPUs", ":Most different", "Distance"],
        rows=rows,
    )
