"""How similar the utilization of a node's GPUs is: histograms, and the distances between them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures import theme
from jobreport.page.figures.balance import MAX_LINES, Curve, Histograms, frame, histograms, series
from jobreport.page.kit import Drawing, Empty, Figure, Side, Table, code
from jobreport.page.kit.table import Cell, device_name, node_cells, node_heads
from jobreport.page.sections.outline import section
from jobrules.analyses.balance import MAX_NODES
from jobrules.measures.quartiles import ALIKE_POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.balance import Balance, FarPair, Load, NodeLoad

#: Rows of the table of GPUs; the nodes that differ most come first.
MAX_ROWS = 64
#: Shades up to the threshold, on which dark text is readable; above it, the fullest with light text.
SHADES = 6
FULL = "h9"
SIGN = "▲"
_OVER = Markup('<span aria-hidden="true">{}</span> {}<span class="vh"> above the threshold</span>')
_USUAL = (("s1", "the GPU", "gpu-1"), ("n1", "mean of its node", ""))


class Plot(Struct, frozen=True, kw_only=True):
    """Histograms with their title and text alternative."""

    title: str
    label: str
    histograms: Histograms


@section
def balance(report: Report) -> Content:
    """Histograms, a matrix of distances per node, and what the rule counted."""
    found = report.balance
    if found is None or not any(gpu.histogram for _, gpu in _gpus(found)):
        return Empty(_why_none(report))
    similar = _similar(found) if _is_evaluated(report) else None
    # The single distance of two GPUs is a sentence.
    listed = [node for node in found.nodes if len(node.listed) > 2 and similar in (None, node)]
    return [
        code(_lead(report, found)),
        _histograms(report, found, similar),
        _two(found),
        _distances(report, found, listed) if listed else None,
        _others([node for node in found.nodes if len(node.gpus) > 2 and node not in listed]),
    ]


def _histograms(report: Report, found: Balance, similar: NodeLoad | None) -> Figure:
    """The GPUs of all nodes, of the node that stands for all, or the GPU that stands for all."""
    evaluated, together = _is_evaluated(report), _shared(found)
    one = evaluated and not together and _are_similar(found)
    plots = _plots(found, [similar] if similar else found.nodes, together=together, one=one)
    axes = frame(plot.histograms for plot in plots)
    caption = _caption(found, report, evaluated=evaluated)
    joined = "" if one else _joined(found, similar)
    drawn = _most_different(found, plots[0]) if one else "" if similar else _drawn(found)
    usual = any(plot.histograms.usual for plot in plots)
    return Figure(
        name="balance",
        finding=code(caption) + (f" {joined}" if joined else ""),
        aid=f"Share of {_basis(found)} per 2% bin. {drawn}".rstrip(),
        key=_key(plots) if together else _USUAL if usual else (),
        drawings=[
            Side(
                style="multiples" if len(plots) > 1 and not together else "blocks",
                blocks=[
                    Drawing(
                        figure=histograms(plot.histograms, axes),
                        title=plot.title,
                        label=plot.label if len(plots) > 1 else f"GPU utilization in bins. {caption}",
                        style="" if together else "low",
                    )
                    for plot in plots
                ],
            )
        ],
        reading=_reading(found, joined=bool(joined)),
        tables=[_data(found)],
    )


def _reading(found: Balance, *, joined: bool) -> str:
    sentences = [
        "Distance: Jensen–Shannon distance of two histograms; 0 is equal, 0.83 has nothing in common."
        if _are_compared(found)
        else "",
        "The last bin includes 100%.",
        "Nodes with the largest distance come first." if len(found.nodes) > MAX_NODES and not joined else "",
    ]
    return " ".join(filter(None, sentences))


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


def _plots(found: Balance, nodes: Sequence[NodeLoad], *, together: bool, one: bool) -> list[Plot]:
    """A plot for each node, or for each GPU with the mean of its node; ``one`` only of the GPU that differs most."""
    drawn = [(node, [gpu for gpu in node.gpus if gpu.histogram]) for node in nodes]
    if together:
        return [_plot_of_node(found, node, gpus) for node, gpus in drawn if gpus]
    pairs = [(node, gpu) for node, gpus in drawn for gpu in gpus]
    if one or _drawn(found):
        pairs.sort(key=lambda pair: -(pair[1].mean_distance or 0.0))
    return [_plot_of_gpu(found, node, gpu) for node, gpu in (pairs[:1] if one else pairs)]


def _plot_of_node(found: Balance, node: NodeLoad, gpus: Sequence[Load]) -> Plot:
    means = (f"{formats.escape_name(gpu.device, 24)} {formats.percent(gpu.mean or 0)}" for gpu in gpus)
    title = formats.escape_name(node.node, 40) if len(found.nodes) > 1 else ""
    return Plot(
        title=title,
        label=f"{title or 'GPU utilization'}. Means: {', '.join(means)}.",
        histograms=Histograms(curves=tuple(map(_curve, gpus))),
    )


def _plot_of_gpu(found: Balance, node: NodeLoad, gpu: Load) -> Plot:
    title = _name(found, node, gpu.device)
    label = f"{title}. Mean {formats.percent(gpu.mean or 0)}"
    if gpu.mean_distance is not None:
        label += f", mean distance {gpu.mean_distance:.2f} to the others of its node"
    usual = node.histogram if len(node.gpus) > 1 else ()
    return Plot(title=title, label=f"{label}.", histograms=Histograms(curves=(_curve(gpu),), usual=usual))


def _curve(gpu: Load) -> Curve:
    return Curve(name=gpu.device, values=gpu.histogram)


def _key(plots: Sequence[Plot]) -> list[tuple[str, str, str]]:
    """Swatch, words, and series of each curve; nothing if each plot has one."""
    places = list(itertools.zip_longest(*([curve.name for curve in one.histograms.curves] for one in plots)))
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


def _most_different(found: Balance, plot: Plot) -> str:
    gpus = formats.every(sum(1 for _ in _gpus(found)), "GPU")
    return f"{gpus} are similar; drawn: {plot.title}, which differs most from the others of its node."


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


def _distances(report: Report, found: Balance, nodes: Sequence[NodeLoad]) -> Figure:
    """A matrix for each of the nodes."""
    return Figure(
        name="distances",
        finding=_pairs(report, found, nodes),
        aid=f"Distance of any two GPUs of a node; {SIGN} and bold: above the threshold of "
        f"{formats.plain_number(found.limit)}.",
        drawings=[Side(style="matrices", blocks=[_matrix(found, node) for node in nodes])],
        of_tables=True,
    )


def _matrix(found: Balance, node: NodeLoad) -> Table:
    gpus = {gpu.device: gpu for gpu in node.gpus}
    listed = [gpus[device] for device in node.listed]
    names = [formats.escape_name(gpu.device, 12) for gpu in listed]
    partly = any(not gpu.enough for gpu in listed)
    name, left = formats.escape_name(node.node, 40), len(node.gpus) - len(listed)
    cut = f"The {len(listed)} GPUs that differ most; {left} more are in the data above." if left else ""
    return Table(
        label=f"Distances of the GPUs of {name}",
        caption=f"{name}: {_above(found, node)}. {cut}".rstrip() if len(found.nodes) > 1 else cut,
        style="matrix",
        heads=[":GPU", *names, "Mean (%)", *([":Compared"] if partly else [])],
        rows=[
            [
                names[i],
                *(_cell(found, node, gpus, i, j) for j in range(len(listed))),
                formats.known(gpu.mean),
                *(["yes" if gpu.enough else "too few samples"] if partly else []),
            ]
            for i, gpu in enumerate(listed)
        ],
    )


def _cell(found: Balance, node: NodeLoad, gpus: Mapping[str, Load], i: int, j: int) -> Cell:
    """A distance in its shade; gray if it is not compared."""
    far = node.distances[min(i, j)][abs(i - j) - 1] if i != j else None
    if far is None:
        return Cell("–" if i == j else "not measured", "m")
    text = formats.number(far, 2)
    if not (gpus[node.listed[i]].enough and gpus[node.listed[j]].enough):
        return Cell(text, "m")
    if far > found.limit:
        return Cell(_OVER.format(SIGN, text), FULL)
    return Cell(text, f"h{min(SHADES - 1, int(SHADES * far / found.limit)) if found.limit > 0 else 0}")


def _compared(node: NodeLoad) -> list[float]:
    """The distances of all listed pairs with enough samples."""
    enough = {gpu.device for gpu in node.gpus if gpu.enough}
    return [
        far
        for i, (device, distances) in enumerate(zip(node.listed, node.distances, strict=True), start=1)
        for other, far in zip(node.listed[i:], distances, strict=True)
        if far is not None and {device, other} <= enough
    ]


def _above(found: Balance, node: NodeLoad) -> str:
    compared = _compared(node)
    over = sum(far > found.limit for far in compared)
    if not compared:
        return "too few samples to compare"
    return f"{over or 'none'} of {formats.count(len(compared), 'pair')} above the threshold"


def _pairs(report: Report, found: Balance, nodes: Sequence[NodeLoad]) -> str:
    """How many pairs of those listed are above the threshold; nothing if the rule finds otherwise during the work."""
    if not _agrees(found, report):
        return "Distances over the whole job."
    compared = [far for node in nodes for far in _compared(node)]
    if not compared:
        return "No GPU has enough samples to be compared."
    over = sum(far > found.limit for far in compared)
    with_pairs = sum(len(node.gpus) > 1 for node in found.nodes)
    where = ""
    if len(nodes) < with_pairs:
        most = f"the {len(nodes)} of {with_pairs} nodes that differ most"
        where = f" on {formats.escape_name(nodes[0].node, 40) if len(nodes) == 1 else most}"
    verb = "is" if over < 2 else "are"
    pairs = f"{over or 'None'} of {formats.count(len(compared), 'pair')}{where}"
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
