"""Clock offsets between nodes, inferred from their steps.

Processes that train one model together begin a step at the same moment, so the step of the same number
has the same start on every node; a constant difference is one of the clocks, or of the start of
processes that do not train together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobrules.measures.rows import rows_by_mode
from jobrules.model import SECOND_US, ByNode, IntArray, span_of

if TYPE_CHECKING:
    from jobrules.model import Job

#: Mode → numbers of steps, ascending, and the earliest start of each.
_Starts: TypeAlias = dict[str, tuple[IntArray, IntArray]]

#: Smaller differences are no clock offset: nodes wait for each other that long.
LEAST_US = SECOND_US
#: Common steps that an offset needs.
LEAST_STEPS = 10


class Offset(Struct, frozen=True, kw_only=True):
    """A node whose steps are constantly earlier or later than those of the first node."""

    node: str
    reference: str
    #: Median over the common steps; positive where the node's times are later.
    offset_us: int
    #: Half of the steps lie within so much of the median.
    spread_us: int
    #: Common steps.
    steps: int


def offsets(job: Job) -> tuple[Offset, ...]:
    """The nodes whose steps are off by at least a second, and by at least four times the spread.

    They are compared with the node that is in the middle: with two nodes the one that comes first.
    Raises ``ValueError`` for a part of a job, which has no other node to be compared with.
    """
    return job.once(_offsets)


def _offsets(job: Job) -> tuple[Offset, ...]:
    if job.frame:
        raise ValueError("the clocks of nodes are compared over the whole job")
    if len(job.nodes) < 2:
        return ()
    starts = {node: found for node, found in zip(job.nodes, job.each(_first_starts), strict=True) if found}
    if len(starts) < 2:
        return ()
    nodes = list(starts)
    rough = [(_late(starts[node], starts[nodes[0]]) or _NONE)[0] for node in nodes]
    reference = nodes[rough.index(sorted(rough)[(len(rough) - 1) // 2])]
    result = []
    for node in nodes:
        late = _late(starts[node], starts[reference])
        if late is None:
            continue
        middle, spread, common = late
        if abs(middle) >= max(LEAST_US, 4 * spread):
            result.append(
                Offset(node=node, reference=reference, offset_us=middle, spread_us=spread, steps=common)
            )
    return tuple(result)


class Clocks(Struct, frozen=True, kw_only=True):
    """Start and end of the job, and the clock offset of each node that differs."""

    #: On the clock of the nodes that do not differ.
    start_us: int
    end_us: int
    #: How far the clock of a node is ahead; nodes that do not differ are left out.
    clock_offset_us: ByNode[int] = field(default_factory=ByNode)

    @classmethod
    def of(cls, job: Job) -> Clocks:
        """An offset counts if it explains most of the distance of the ends of the samples.

        Otherwise the processes may have started at different times. ``ValueError`` for a part of a job.
        """
        return job.once(_clocks)

    def of_node(self, node: str) -> Clocks:
        """What the part of one node needs."""
        return replace(self, clock_offset_us=self.clock_offset_us.of_node(node))

    @property
    def length_us(self) -> int:
        """From the first to the last record."""
        return self.end_us - self.start_us

    def late_us(self, node: str) -> int:
        """How far the clock of a node is ahead of that of the job."""
        return self.clock_offset_us.get(node, 0)

    def span_us(self, node: str) -> tuple[int, int]:
        """First and last record of the whole job, in the time of a node."""
        late = self.late_us(node)
        return self.start_us + late, self.end_us + late


def _clocks(job: Job) -> Clocks:
    spans = {part.node: part.samples_us for part in job.facts}
    late = ByNode[int]()
    for one in offsets(job):
        own, theirs = spans[one.node], spans[one.reference]
        if own and theirs and 2 * _distance(own, theirs, one.offset_us) < _distance(own, theirs, 0):
            late[one.node] = one.offset_us
    recorded = []
    for part in job.facts:
        if span := span_of((part.samples_us, part.steps_us, part.events_us)):
            ahead = late.get(part.node, 0)
            recorded.append((span[0] - ahead, span[1] - ahead))
    start_us, end_us = span_of(recorded) or (0, 0)
    return Clocks(start_us=start_us, end_us=end_us, clock_offset_us=late)


def _distance(one: tuple[int, int], other: tuple[int, int], late_us: int) -> int:
    """Sum of the distances of both ends of two spans, with the first one set back."""
    return abs(one[0] - late_us - other[0]) + abs(one[1] - late_us - other[1])


_NONE = (0, 0, 0)


def _late(one: _Starts, other: _Starts) -> tuple[int, int, int] | None:
    """Median of how much later one begins the same steps, half the spread of it, and how many steps."""
    lags = []
    for mode, (numbers, starts) in one.items():
        if mode in other:
            theirs, their_starts = other[mode]
            _, here, there = np.intersect1d(numbers, theirs, assume_unique=True, return_indices=True)
            lags.append(starts[here] - their_starts[there])
    late_us = np.concatenate(lags) if lags else np.empty(0, np.int64)
    if len(late_us) < LEAST_STEPS:
        return None
    low, middle, high = np.quantile(late_us, (0.25, 0.5, 0.75))
    return round(middle), round(max(middle - low, high - middle)), len(late_us)


def _first_starts(part: Job) -> _Starts:
    """When the first rank of a node began each step that has a number."""
    steps = part.steps
    found = {}
    for mode, of_mode in rows_by_mode(steps).items():
        rows = of_mode[np.argsort(steps.number[of_mode], kind="stable")]
        rows = rows[steps.number[rows] >= 0]
        if len(rows):
            first = np.flatnonzero(np.diff(steps.number[rows], prepend=-1))
            found[mode] = steps.number[rows][first], np.minimum.reduceat(steps.start_us[rows], first)
    return found
