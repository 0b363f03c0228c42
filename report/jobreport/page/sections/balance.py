"""Similarity of the utilization of a node's GPUs: histograms, and the distances between them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures import theme
from jobreport.page.figures.balance import MAX_LINES, Curve, Histograms, frame, histograms, series
from jobreport.page.kit import Drawing, Figure, Side, Table, code
from jobreport.page.kit.table import Cell, device_name, node_cells, node_heads
from jobreport.page.sections.outline import not_recorded, section, why_not_evaluated
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.text import capitalized

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
READING = (
    "Distance: Jensen–Shannon distance of two histograms; 0 is equal, 0.83 has nothing in common. GPUs with equal means "
    "and a large distance are active at different times. `LoadBalancing` leaves out start-up and wind-down. The last bin "
    "includes 100%. Of many GPUs, those with the largest distances are drawn."
)


class Plot(Struct, frozen=True, kw_only=True):
    """Histograms with their title and text alternative."""

    title: str
    label: str
    histograms: Histograms


@section
def balance(report: Report) -> Content:
    """Histograms, a matrix of distances per node, and the count of the rule."""
    found = report.balance
    if found is None or not any(gpu.histogram for _, gpu in _gpus(found)):
        return not_recorded("GPU utilization during the work", in_results=report.gpus_of_debugger)
    similar = _similar(found) if _is_evaluated(report) else None
    # The single distance of two GPUs is in the caption.
    listed = [node for node in found.nodes if len(node.listed) > 2 and similar in (None, node)]
    others = [node for node in found.nodes if len(node.gpus) > 1 and node not in listed]
    return [
        code(_lead(report, found)),
        _histograms(report, found, similar),
        _distances(found, listed) if listed else None,
        _others(others) if len(found.nodes) > 1 else None,
    ]


def _histograms(report: Report, found: Balance, similar: NodeLoad | None) -> Figure:
    """The GPUs of all nodes, of the node that stands for all, or the GPU that stands for all."""
    together = _shared(found)
    one = _is_evaluated(report) and not together and _are_similar(found)
    plots = _plots(found, [similar] if similar else found.nodes, together=together, one=one)
    axes = frame(plot.histograms for plot in plots)
    caption = _caption(found, report)
    usual = any(plot.histograms.usual for plot in plots)
    return Figure(
        name="balance",
        title="GPU utilization in bins",
        finding=caption,
        aid=f"Share of {_basis(found)} per 2% bin.{_drawn(found, plots)}",
        key=_key(plots) if together else _USUAL if usual else (),
        drawings=[
            Side(
                style="multiples" if len(plots) > 1 and not together else "blocks",
                blocks=[
                    Drawing(
                        figure=histograms(plot.histograms, axes),
                        title=plot.title,
                        label=plot.label if len(plots) > 1 else "",
                        style="" if together else "low",
                    )
                    for plot in plots
                ],
            )
        ],
        reading=code(READING),
        tables=[_data(found)],
    )


def _gpus(found: Balance) -> Iterator[tuple[NodeLoad, Load]]:
    return ((node, gpu) for node in found.nodes for gpu in node.gpus)


def _name(found: Balance, node: NodeLoad, device: str) -> str:
    return device_name(node.node, device, several=len(found.nodes) > 1)


def _shared(found: Balance) -> bool:
    """True if all GPUs of each node fit into one plot."""
    return all(len(node.gpus) <= MAX_LINES for node in found.nodes) and not _is_cut(found)


def _plots(found: Balance, nodes: Sequence[NodeLoad], *, together: bool, one: bool) -> list[Plot]:
    """A plot for each node, or for each GPU with the mean of its node; ``one`` only of the GPU that differs most."""
    drawn = [(node, [gpu for gpu in node.gpus if gpu.histogram]) for node in nodes]
    if together:
        return [_plot_of_node(found, node, gpus) for node, gpus in drawn if gpus]
    pairs = [(node, gpu) for node, gpus in drawn for gpu in gpus]
    if one or _is_cut(found):
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
    usual = node.histogram if len(node.gpus) > 1 else ()
    return Plot(
        title=title,
        label=f"{title}. Mean {formats.percent(gpu.mean or 0)}, distance {formats.known(gpu.mean_distance, 2)}.",
        histograms=Histograms(curves=(_curve(gpu),), usual=usual),
    )


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


def _is_cut(found: Balance) -> bool:
    """True if the analysis kept the histograms of some GPUs only."""
    return any(gpu.tenths and not gpu.histogram for _, gpu in _gpus(found))


def _drawn(found: Balance, plots: Sequence[Plot]) -> str:
    """The number of GPUs that are drawn; empty if all with samples are."""
    drawn = sum(len(plot.histograms.curves) for plot in plots)
    sampled = sum(bool(gpu.tenths) for _, gpu in _gpus(found))
    return f" Drawn: {drawn} of {sampled} GPUs." if drawn < sampled else ""


def _worst(found: Balance) -> tuple[NodeLoad, FarPair] | None:
    """The pair with the largest distance, of those with enough samples if there are any."""
    pairs = [(node, node.farthest) for node in found.nodes if node.farthest]
    return max(pairs, key=lambda one: (one[1].enough, one[1].distance), default=None)


def _lead(report: Report, found: Balance) -> str:
    """The count of LoadBalancing."""
    if all(len(node.gpus) == 1 for node in found.nodes):
        return "Each node has 1 GPU, and GPUs of different nodes are not compared."
    card = report.card("LoadBalancing")
    if card is None or not card.was_evaluated:
        return why_not_evaluated(report, "LoadBalancing")
    of = f"{formats.number(card.violating, 0)} of {formats.count(card.evaluated, 'comparison')}"
    return f"`LoadBalancing`: {of} exceeded the threshold."


def _agrees(found: Balance, report: Report) -> bool:
    """True if the rule, which leaves out start-up and wind-down, finds GPUs as similar as the samples shown."""
    card, worst = report.card("LoadBalancing"), _worst(found)
    if card is None or card.measure is None or worst is None or not _is_evaluated(report):
        return True
    return (card.measure.value > found.limit) == (worst[1].distance > found.limit)


def _caption(found: Balance, report: Report) -> str:
    """The largest distance between two GPUs, or the fullest bin of a GPU alone."""
    worst = _worst(found)
    if not worst:
        return _fullest_bin(found)
    node, pair = worst
    names = f"{_name(found, node, pair.one)} and {formats.escape_name(pair.other, 24)}"
    largest = (
        f"largest distance {formats.number(pair.distance, 2)} ({names}, threshold "
        f"{formats.plain_number(found.limit)}), means {formats.percent(pair.mean)} and {formats.percent(pair.other_mean)}."
    )
    if not (_is_evaluated(report) and pair.enough and _agrees(found, report)):
        return capitalized(largest)
    if pair.distance <= found.limit:
        return f"GPU utilization is similar within each node: {largest}"
    return f"GPU utilization differs within a node: {largest}"


def _fullest_bin(found: Balance) -> str:
    node, gpu = next((node, gpu) for node, gpu in _gpus(found) if gpu.histogram)
    most, width = max(gpu.histogram), 100 // len(gpu.histogram)
    at = gpu.histogram.index(most) * width
    samples = f"{formats.percent(most)} of the samples of {_name(found, node, gpu.device)}"
    return f"The fullest bin holds {samples}: utilization {at} to {at + width}%."


def _is_evaluated(report: Report) -> bool:
    card = report.card("LoadBalancing")
    return card is not None and card.was_evaluated


def _are_similar(found: Balance) -> bool:
    """True if the GPUs of all nodes are similar, in their histograms and their means."""
    pairs = [node.farthest for node in found.nodes]
    means = [gpu.mean for _, gpu in _gpus(found)]
    if any(pair is None or not pair.enough or pair.distance > found.limit for pair in pairs):
        return False
    known = [mean for mean in means if mean is not None]
    return len(known) == len(means) and max(known) - min(known) < ALIKE_POINTS


def _similar(found: Balance) -> NodeLoad | None:
    """The node with the largest distance, if the GPUs of all of several nodes are similar."""
    if len(found.nodes) < 2 or not _are_similar(found):
        return None
    drawn = [node for node in found.nodes if any(gpu.histogram for gpu in node.gpus)]
    return max(drawn, key=lambda node: node.farthest.distance if node.farthest else 0.0)


def _basis(found: Balance) -> str:
    """Samples that the histograms hold; of nodes without steps, those of the whole job."""
    of_loop = all(node.basis == "training loop" for node in found.nodes)
    return "training-loop samples" if of_loop else "samples"


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
    return Table(
        label="Histogram of each GPU",
        fold="samples, mean, and histogram of each GPU",
        caption=f"Percent of {_basis(found)} per 10% bin.{formats.not_shown(len(rows) - MAX_ROWS, 'GPU')}",
        heads=[
            *node_heads(":GPU", several=several),
            *("Samples", "Mean (%)"),
            *(["Mean distance"] if compared else []),
            *(f"{10 * i} to {10 * i + 10}" for i in range(10)),
        ],
        rows=rows[:MAX_ROWS],
    )


def _distances(found: Balance, nodes: Sequence[NodeLoad]) -> Figure:
    """A matrix for each of the nodes."""
    compared = [far for node in nodes for far in _compared(node)]
    over = sum(far > found.limit for far in compared)
    return Figure(
        name="distances",
        title="Distances between GPUs",
        finding=f"{over} of {formats.number(len(compared), 0)} distances between two GPUs of a node exceed "
        f"{formats.plain_number(found.limit)} ({SIGN}).",
        drawings=[Side(style="matrices", blocks=[_matrix(found, node) for node in nodes])],
        of_tables=True,
    )


def _matrix(found: Balance, node: NodeLoad) -> Table:
    gpus = {gpu.device: gpu for gpu in node.gpus}
    listed = [gpus[device] for device in node.listed]
    names = [formats.escape_name(gpu.device, 12) for gpu in listed]
    partly = any(not gpu.enough for gpu in listed)
    name, left = formats.escape_name(node.node, 40), len(node.gpus) - len(listed)
    # The name of the only node says nothing.
    title = f"{name}." if len(found.nodes) > 1 else ""
    return Table(
        label=f"Distances of the GPUs of {name}",
        caption=f"{title}{formats.not_shown(left, 'GPU that differs less', 'GPUs that differ less')}".strip(),
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
