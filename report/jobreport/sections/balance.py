"""How alike the GPUs of a node are loaded: histograms of their use, and the distances between these."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures import theme
from jobreport.figures.balance import MOST_LINES, Curve, Histograms, frame, load_drawing, load_plot, series
from jobreport.figures.embed import document_json
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.analyses.balance import MOST_NODES
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobrules.analyses.balance import Balance, FarPair, Load, NodeLoad

#: A longer table is folded away.
MOST_OPEN_ROWS = 16
#: Rows of the table of GPUs; the nodes that differ most come first.
MOST_ROWS = 64
#: Shades up to the limit: text in ink is readable on each; above the limit stands the fullest, with paper.
SHADES = 6
FULL = "h9"
SIGN = "▲"


class Panel(Struct, frozen=True, kw_only=True, weakref=True):
    """One plot."""

    id: str
    title: str
    drawing: Drawing
    label: str


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
    told: str
    #: Pairs that were compared, and those above the limit.
    compared: int
    over: int
    rows: tuple[MatrixRow, ...]
    cut: str
    #: Whether a GPU has too few samples to be compared.
    partly: bool


class Row(Struct, frozen=True, kw_only=True):
    """A GPU in the data of the figure."""

    node: str
    device: str
    samples: str
    mean: str
    apart: str
    tenths: tuple[str, ...]


class Other(Struct, frozen=True, kw_only=True):
    """A node whose distances are not listed."""

    node: str
    gpus: str
    means: str
    pair: str
    distance: str


@error_boundary
def balance(report: Report) -> Fragment:
    """Histograms, a matrix of distances a node, and how both were judged."""
    found = report.balance
    if found is None or not any(gpu.histogram for _, gpu in _gpus(found)):
        html = render("balance", heading=heading("balance", report), panels=(), why_none=_why_none(report))
        return Fragment(name="balance", html=html)
    together = _shared(found)
    judged = _is_judged(report)
    alike = _alike(found) if judged else None
    plots = list(_plots(found, alike, together=together))
    axes = frame(plot for _, _, plot in plots)
    panels = [
        Panel(id=f"live-balance-{i}", title=title, drawing=load_drawing(plot, axes), label=label)
        for i, (title, label, plot) in enumerate(plots)
    ]
    figures = {panel.id: load_plot(plot, axes) for panel, (_, _, plot) in zip(panels, plots, strict=True)}
    # The one distance of two GPUs is a sentence.
    listed = [node for node in found.nodes if len(node.listed) > 2 and alike in (None, node)]
    matrices = [_matrix(node, found.limit) for node in listed]
    pairs = [node for node in found.nodes if len(node.gpus) == 2]
    html = render(
        "balance",
        heading=heading("balance", report),
        lead=_lead(report, found),
        caption=_caption(found, judged=judged),
        joined=_joined(found, alike),
        basis=_basis(found),
        cut="" if alike else _cut(found),
        ordered=len(found.nodes) > MOST_NODES,
        panels=panels,
        together=together,
        usual=any(plot.usual for _, _, plot in plots),
        key=_key(found, alike) if together else [],
        several=len(found.nodes) > 1,
        compared=any(gpu.apart is not None for _, gpu in _gpus(found)),
        rows=[_row(node, gpu) for node, gpu in itertools.islice(_gpus(found), MOST_ROWS)],
        left=max(0, sum(len(node.gpus) for node in found.nodes) - MOST_ROWS),
        limit=formats.number(found.limit, 2),
        sign=SIGN,
        matrices=matrices,
        told=_pairs_told(found, matrices),
        two=_two(found, pairs),
        others=[_other(node) for node in found.nodes if len(node.gpus) > 2 and node not in listed],
        figures=document_json("balance", figures),
    )
    return Fragment(name="balance", html=html)


def _gpus(found: Balance) -> Iterator[tuple[NodeLoad, Load]]:
    return ((node, gpu) for node in found.nodes for gpu in node.gpus)


def _name(found: Balance, node: NodeLoad, device: str) -> str:
    name = formats.escape_name(device, 24)
    return name if len(found.nodes) == 1 else f"{formats.escape_name(node.node, 40)} {name}"


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "The vendor's results hold no samples to compare; what its rule counted is on the card of LoadBalancing."
    if report.balance is not None:
        return "GPUs were sampled, but none in the training loop."
    return "No GPU was sampled."


def _shared(found: Balance) -> bool:
    """Whether the GPUs of each node fit into one plot, all of them."""
    return all(len(node.gpus) <= MOST_LINES for node in found.nodes) and not _cut(found)


def _plots(
    found: Balance, alike: NodeLoad | None, *, together: bool
) -> Iterator[tuple[str, str, Histograms]]:
    """Title, text alternative and content of each plot."""
    nodes = [alike] if alike else found.nodes
    if together:
        for node in nodes:
            gpus = [gpu for gpu in node.gpus if gpu.histogram]
            if gpus:
                title = formats.escape_name(node.node, 40) if len(found.nodes) > 1 else ""
                means = ", ".join(
                    f"{formats.escape_name(g.device, 24)} {formats.percent(g.mean or 0)}" for g in gpus
                )
                yield title, f"{title or 'The node'}, mean use: {means}.", Histograms(curves=_curves(gpus))
        return
    drawn = [(node, gpu) for node in nodes for gpu in node.gpus if gpu.histogram]
    if _cut(found):
        drawn.sort(key=lambda one: -(one[1].apart or 0.0))
    for node, gpu in drawn:
        title = _name(found, node, gpu.device)
        apart = "" if gpu.apart is None else f"; mean distance {gpu.apart:.2f} from the others of its node"
        usual = node.histogram if len(node.gpus) > 1 else ()
        label = f"{title}, mean use {formats.percent(gpu.mean or 0)}{apart}."
        yield title, label, Histograms(curves=_curves([gpu]), usual=usual)


def _curves(gpus: Sequence[Load]) -> tuple[Curve, ...]:
    return tuple(Curve(name=gpu.device, values=gpu.histogram) for gpu in gpus)


def _key(found: Balance, alike: NodeLoad | None) -> list[tuple[str, str, str]]:
    """Swatch, words and series of each line; nothing where each plot has one."""
    drawn = [
        [gpu.device for gpu in node.gpus if gpu.histogram] for node in ([alike] if alike else found.nodes)
    ]
    most = max(len(names) for names in drawn)
    if most < 2:
        return []
    entries = []
    for i, (style, _) in enumerate(theme.SERIES[:most]):
        names = {names[i] for names in drawn if len(names) > i}
        words = formats.escape_name(names.pop(), 24) if len(names) == 1 else f"GPU {i + 1} of each node"
        entries.append((style, words, series(i)))
    return entries


def _cut(found: Balance) -> str:
    held, drawn = (
        sum(len(kept) > 0 for kept in column)
        for column in zip(*((gpu.tenths, gpu.histogram) for _, gpu in _gpus(found)), strict=True)
    )
    if drawn == held:
        return ""
    return (
        f"Drawn are the {drawn} GPUs that lie farthest from the others of their node, of {held}, the farthest first; "
        "the table has them all."
    )


def _worst(found: Balance) -> tuple[NodeLoad, FarPair] | None:
    """The pair that lies farthest apart, of those with samples enough if there are any."""
    pairs = [(node, node.farthest) for node in found.nodes if node.farthest]
    return max(pairs, key=lambda one: (one[1].enough, one[1].distance), default=None)


def _lead(report: Report, found: Balance) -> str:
    """What there is to balance, and what LoadBalancing said of it."""
    alone = [node for node in found.nodes if len(node.gpus) == 1]
    if len(alone) == len(found.nodes):
        return (
            "The node has one GPU: there is nothing to balance."
            if len(alone) == 1
            else "Every node has one GPU: there is nothing to balance. GPUs of different nodes are not compared."
        )
    aside = ""
    if alone:
        names = formats.join_names([formats.escape_name(node.node, 40) for node in alone])
        aside = f" {names} {'has' if len(alone) == 1 else 'have'} one GPU: there is nothing to balance."
    return _judged(report, found) + aside


def _judged(report: Report, found: Balance) -> str:
    card = next((card for card in report.rules if card.name == "LoadBalancing"), None)
    if card is None:
        return "`LoadBalancing` was not selected; the limit is its default."
    if card.status in (Status.NOT_EVALUATED, Status.ERROR):
        return f"`LoadBalancing` gave no answer: {card.reason}. The distances are those of the samples there are."
    pairs = formats.count(card.evaluated, "comparison")
    if not card.violating:
        return f"`LoadBalancing` compared any two GPUs once a minute: in none of {pairs} was the distance above the limit."
    told = (
        f"`LoadBalancing` compared any two GPUs once a minute: in {formats.number(card.violating, 0)} of {pairs} "
        f"({formats.share(card.severity)}) the distance was above the limit"
    )
    until = f", the last until {formats.date_time(card.last_us)}" if card.last_us else ""
    worst = _worst(found)
    over = " At the end of the job no pair is." if worst and worst[1].distance <= found.limit else ""
    return f"{told}{until}.{over}"


def _caption(found: Balance, *, judged: bool) -> str:
    """The finding: how far the two GPUs lie apart that are least alike, or what one GPU did most."""
    worst = _worst(found)
    if not worst:
        node, gpu = next((node, gpu) for node, gpu in _gpus(found) if gpu.histogram)
        best = max(gpu.histogram)
        at = gpu.histogram.index(best) * 100 // len(gpu.histogram)
        who = "the GPU's" if sum(1 for _ in _gpus(found)) == 1 else f"{_name(found, node, gpu.device)}'s"
        return f"The fullest bin holds {formats.percent(best)} of {who} samples: a use of {at} to {at + 100 // len(gpu.histogram)}%."
    node, pair = worst
    one, other = _name(found, node, pair.one), formats.escape_name(pair.other, 24)
    limit = formats.number(found.limit, 2)
    side = "above" if pair.distance > found.limit else "within"
    far = f"{formats.number(pair.distance, 2)} apart, "
    far += f"{side} the limit of {limit}" if judged else "which was not judged"
    points = abs(pair.mean - pair.other_mean)
    both = formats.percent(pair.mean), formats.percent(pair.other_mean)
    means = f"{both[0]} on both" if both[0] == both[1] else " and ".join(both)
    means += " in the training loop" if node.basis == "training loop" else ""
    if judged and pair.distance <= found.limit and pair.enough:
        of = " of each node" if len(found.nodes) > 1 else ""
        start = f"The GPUs{of} are loaded alike: {one} and {other}, the least alike, lie {far}"
    else:
        start = f"{one} and {other} are loaded least alike, {far}"
    if points >= ALIKE_POINTS:
        return f"{start}; their mean use differs, {means}."
    if pair.distance > found.limit:
        return f"{start}; they do not differ in mean use, {means}: they work at different moments, or in another rhythm."
    return f"{start}; their mean use is {means}."


def _is_judged(report: Report) -> bool:
    """Whether LoadBalancing gave an answer."""
    card = next((card for card in report.rules if card.name == "LoadBalancing"), None)
    return card is not None and card.status not in (Status.NOT_EVALUATED, Status.ERROR)


def _alike(found: Balance) -> NodeLoad | None:
    """Of several nodes that are all alike, within and among one another, the one whose GPUs lie farthest apart."""
    if len(found.nodes) < 2:
        return None
    pairs = [node.farthest for node in found.nodes]
    means = [gpu.mean for _, gpu in _gpus(found)]
    if any(pair is None or not pair.enough or pair.distance > found.limit for pair in pairs):
        return None
    known = [mean for mean in means if mean is not None]
    if len(known) < len(means) or max(known) - min(known) >= ALIKE_POINTS:
        return None
    drawn = [node for node in found.nodes if any(gpu.histogram for gpu in node.gpus)]
    return max(drawn, key=lambda node: node.farthest.distance if node.farthest else 0.0)


def _joined(found: Balance, alike: NodeLoad | None) -> str:
    """Which node stands for all."""
    if alike is None:
        return ""
    means = formats.spread(gpu.mean for _, gpu in _gpus(found) if gpu.mean is not None)
    return (
        f"The {len(found.nodes)} nodes are alike, mean use {means}; drawn is "
        f"{formats.escape_name(alike.node, 40)}, whose GPUs lie farthest apart."
    )


def _two(found: Balance, pairs: Sequence[NodeLoad]) -> str:
    """The distances of nodes with two GPUs, where the caption does not say all."""
    far = [(node, node.farthest) for node in pairs if node.farthest and node.farthest.enough]
    if len(found.nodes) < 2 or not far:
        return ""
    least, most = (formats.number(pick(pair.distance for _, pair in far), 2) for pick in (min, max))
    over = [formats.escape_name(node.node, 40) for node, pair in far if pair.distance > found.limit]
    where = f"on {formats.join_names(over, MOST_NODES)} above the limit" if over else "none above the limit"
    whose = "of the node with two" if len(far) == 1 else f"of the {len(far)} nodes with two"
    return f"The GPUs {whose} lie {least if least == most else f'{least} to {most}'} apart, {where} of {formats.number(found.limit, 2)}."


def _basis(found: Balance) -> str:
    bases = {node.basis for node in found.nodes}
    if bases == {"training loop"}:
        return "samples in the training loop"
    return (
        "samples"
        if bases == {"whole job"}
        else "samples in the training loop where its node recorded steps, else of all"
    )


def _row(node: NodeLoad, gpu: Load) -> Row:
    return Row(
        node=node.node,
        device=gpu.device,
        samples=formats.number(gpu.samples, 0),
        mean=formats.known(gpu.mean),
        apart=formats.known(gpu.apart, 2),
        tenths=tuple(formats.number(v) for v in gpu.tenths) or ("–",) * 10,
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
    pairs = [c for i, row in enumerate(rows) for c in row.cells[i + 1 :] if c.style != "m"]
    over = sum(c.over for c in pairs)
    told = f"{over or 'none'} of {formats.count(len(pairs), 'pair')} above the limit"
    if not pairs:
        told = "too few samples to be compared"
    left = len(node.gpus) - len(names)
    cut = (
        f"The {len(names)} GPUs that lie farthest from the others; {left} more are in the data above."
        if left
        else ""
    )
    return Matrix(
        node=node.node,
        told=told,
        compared=len(pairs),
        over=over,
        rows=rows,
        cut=cut,
        partly=any(not row.enough for row in rows),
    )


def _pairs_told(found: Balance, matrices: Sequence[Matrix]) -> str:
    """How many pairs of those listed lie above the limit."""
    compared, over = (sum(getattr(m, name) for m in matrices) for name in ("compared", "over"))
    with_pairs = sum(len(node.gpus) > 1 for node in found.nodes)
    where = ""
    if len(matrices) < with_pairs:
        most = f"{len(matrices)} nodes of {with_pairs} that differ most"
        where = (
            f" on {formats.escape_name(matrices[0].node, 40)}" if len(matrices) == 1 else f" on the {most}"
        )
    if not compared:
        return "No GPU has samples enough to be compared with another: the distances are not judged."
    lies = "lies" if over < 2 else "lie"
    return f"At the end of the job {over or 'none'} of {formats.count(compared, 'pair')}{where} {lies} above the limit."


def _other(node: NodeLoad) -> Other:
    means = [gpu.mean for gpu in node.gpus if gpu.mean is not None]
    far = node.farthest
    return Other(
        node=node.node,
        gpus=formats.number(len(node.gpus), 0),
        means=formats.spread(means) or "not measured",
        pair=f"{formats.escape_name(far.one, 24)} and {formats.escape_name(far.other, 24)}" if far else "–",
        distance=formats.number(far.distance, 2) if far else "–",
    )
