"""Box plots of devices: p25 to p75 with the median, p95, and whiskers, in groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name, known
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.chart import Axis, quantity, upward
from jobreport.page.figures.scales import Tick
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.analyses.gpu_utilization import Box

WHOLE, LOOP = "whole job", "training loop"
#: Class of a box by what it covers.
_STYLES = {WHOLE: "box-whole", LOOP: "box-loop"}
#: So many similar GPUs are drawn as one.
MIN_SIMILAR = 3
#: Labels that fit next to each other.
_MAX_LABELS = 24


class Slot(Struct, frozen=True, kw_only=True):
    """A place on the x axis for one device, with its boxes from left to right."""

    #: Name of the node or metric whose slots are next to each other.
    group: str
    device: str
    boxes: tuple[Box, ...]


#: Group of a box, and the name of its slot.
Grouping = Callable[["Box"], tuple[str, str]]


def by_node(box: Box) -> tuple[str, str]:
    """Devices are grouped by node."""
    return box.node, box.device


def slots(boxes: Sequence[Box], grouping: Grouping = by_node) -> tuple[Slot, ...]:
    """One slot per device in the order of the boxes, the whole job before the training loop."""
    by_device: dict[tuple[str, str], list[Box]] = {}
    for box in boxes:
        by_device.setdefault(grouping(box), []).append(box)
    return tuple(
        Slot(group=group, device=device, boxes=tuple(sorted(found, key=lambda b: b.basis != WHOLE)))
        for (group, device), found in by_device.items()
    )


def are_similar(boxes: Sequence[Box]) -> bool:
    """Whether all boxes of one metric and basis look the same, so that one GPU stands for all."""
    by_kind: dict[tuple[str, str], list[Box]] = {}
    for box in boxes:
        by_kind.setdefault((box.metric, box.basis), []).append(box)
    return all(
        max(values) - min(values) < ALIKE_POINTS
        for found in by_kind.values()
        for values in ([getattr(box, q) for box in found] for q in ("p25", "p50", "p75", "p95"))
    )


def key(boxes: Sequence[Box]) -> list[tuple[str, str, str]]:
    """What the boxes cover, if some cover only the training loop."""
    if all(box.basis == WHOLE for box in boxes):
        return []
    return [("n1", WHOLE, ""), ("u2", LOOP, "")]


def extent(slot: int, place: int, of: int, slots: int) -> tuple[float, float]:
    """Left and right edge of one of the ``of`` boxes of a slot; slots are 1 wide, less filled if few."""
    width = min(0.64 if of > 1 else 0.5, 0.12 * slots) / of
    left = slot + 0.5 - width * of / 2 + width * place
    margin = width / 10 if of > 1 else 0
    return left + margin, left + width - margin


def borders(places: Sequence[Slot]) -> tuple[int, ...]:
    """Numbers of the slots at which a new group begins."""
    return tuple(i for i in range(1, len(places)) if places[i].group != places[i - 1].group)


def limit_lines(places: Sequence[Slot], limits: Mapping[str, float]) -> tuple[tuple[int, int, float], ...]:
    """(first slot, end, value) of the limit of each group that has one."""
    edges = [0, *borders(places), len(places)]
    return tuple(
        (start, end, limits[places[start].group])
        for start, end in itertools.pairwise(edges)
        if places and places[start].group in limits
    )


def box_plot(
    boxes: Sequence[Box], grouping: Grouping = by_node, limits: Mapping[str, float] | None = None
) -> Figure | None:
    """Boxes from p25 to p75 with the median, whiskers, and p95; None without a box.

    ``limits`` are drawn as lines over their group, by its name.
    """
    places = slots(boxes, grouping)
    if not places:
        return None
    n = len(places)
    ticks = tuple(Tick(at=(i + 0.5) / n, label=text) for i, text in labels(places).items())
    canvas = Canvas(Axis(start=0, end=n, ticks=ticks, names=True), upward(100, 4, unit="%"))
    canvas.upright("rail", borders(places))
    quantities = ["lower", "p25", "p50", "p75", "p95", "upper"]
    quantities += ["mean"] if all(box.mean is not None for box in boxes) else []
    drawn = []
    for basis, style in _STYLES.items():
        chosen = [
            (box, extent(i, j, len(slot.boxes), n))
            for i, slot in enumerate(places)
            for j, box in enumerate(slot.boxes)
            if box.basis == basis
        ]
        if not chosen:
            continue
        left, right = np.array([edges for _, edges in chosen]).T
        middle, quarter = (left + right) / 2, (right - left) / 4
        found = {q: np.array([getattr(box, q) for box, _ in chosen], np.float32) for q in quantities}
        names = {"name": [_name(box) for box, _ in chosen], "samples": [known(box.n, 0) for box, _ in chosen]}
        columns = {name: values for name, values in found.items() if name not in ("p25", "p75")}
        sides = (left, right, found["p25"], found["p75"])
        drawn.append(canvas.bars(style, sides, columns | names))
        whiskers = (np.r_[found["lower"], found["p75"]], np.r_[found["p25"], found["upper"]])
        canvas.segments(style, (np.r_[middle, middle], np.r_[middle, middle], *whiskers))
        canvas.segments("median", (left, right, found["p50"], found["p50"]))
        canvas.segments("tick95", (left + quarter, right - quarter, found["p95"], found["p95"]))
    if lines := limit_lines(places, limits or {}):
        start, end, limit = np.array(lines).T
        canvas.segments("limit", (start, end, limit, limit))
    rows = [("p95", "p95"), ("p75", "top"), ("Median", "p50"), ("p25", "bottom")]
    rows += [("Mean", "mean")] if "mean" in quantities else []
    known_rows = [(words, quantity(name, "%")) for words, name in rows]
    whiskers_row = ("Whiskers", f"{quantity('lower', '%')} to {quantity('upper', '%')}")
    canvas.tooltip([("Of", "@name"), *known_rows, whiskers_row, ("Samples", "@samples")], drawn)
    return canvas.figure


def _name(box: Box) -> str:
    memory = " memory activity" if box.metric == Metric.GPU_MEMORY_ACTIVITY else ""
    return f"{escape_name(box.node, 40)} {escape_name(box.device, 24)}{memory}, {box.basis}"


def labels(places: Sequence[Slot]) -> dict[int, str]:
    """Slot → label: the device, and with several groups, the group's name below its middle device.

    If there are too many devices, only groups are named.
    """
    several = bool(borders(places))
    middle = {}
    edges = [0, *borders(places), len(places)]
    for start, end in itertools.pairwise(edges):
        name = escape_name(places[start].group, 20)
        # A device with the name of its group, such as the CPU, needs no second label.
        if end - start > 1 or places[start].device != places[start].group or len(places) > _MAX_LABELS:
            middle[(start + end - 1) // 2] = name
    if len(places) <= _MAX_LABELS:
        return {
            i: escape_name(slot.device, 12) + ("\n" + middle[i] if several and i in middle else "")
            for i, slot in enumerate(places)
        }
    if several:
        return {i: "\n" + name for i, name in middle.items()}
    step = -(-len(places) // _MAX_LABELS)
    return {i: escape_name(places[i].device, 12) for i in range(0, len(places), step)}
