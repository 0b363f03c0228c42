"""Whether the clocks of the nodes agree, as far as their steps tell.

Processes that train one model together begin a step at the same moment, so the step of the same number
has the same start on every node; a constant difference is one of the clocks, or of the start of
processes that do not train together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from jobrules.job import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrules.job import IntArray, Job

_T = TypeVar("_T")

#: Differences below this are told by nobody's clock: nodes wait for one another that long.
LEAST_US = SECOND_US
#: So many steps of the same phase and number are wanted.
LEAST_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Offset:
    """A node whose steps are constantly earlier or later than those of the first node."""

    node: str
    reference: str
    #: Median over the common steps; positive where the node's times are later.
    us: int
    #: Half of the steps lie within so much of the median.
    spread_us: int
    #: Common steps.
    steps: int


def _once(of: Callable[[Job], _T]) -> Callable[[Job], _T]:
    """Computed once for a job: millions of steps are compared, and many ask."""
    known: WeakKeyDictionary[Job, _T] = WeakKeyDictionary()

    @wraps(of)
    def asked(job: Job) -> _T:
        if job not in known:
            known[job] = of(job)
        return known[job]

    return asked


@_once
def offsets(job: Job) -> tuple[Offset, ...]:
    """The nodes whose steps are off by at least a second, and by at least four times the spread.

    They are compared with the node that is in the middle: with two nodes the one that comes first.
    """
    steps = job.steps
    if len(job.nodes) < 2:
        return ()
    numbered = steps.number >= 0
    nodes = [node for node in job.nodes if (numbered & (steps.node == node)).any()]
    if len(nodes) < 2:
        return ()
    _, phase = np.unique(steps.phase, return_inverse=True)
    numbers, number = np.unique(steps.number, return_inverse=True)
    key = phase * len(numbers) + number
    starts = {node: _first_starts(key, steps.start_us, numbered & (steps.node == node)) for node in nodes}
    rough = [(_late(starts[node], starts[nodes[0]]) or _NONE)[0] for node in nodes]
    reference = nodes[rough.index(sorted(rough)[(len(rough) - 1) // 2])]
    result = []
    for node in nodes:
        late = _late(starts[node], starts[reference])
        if late is None:
            continue
        middle, spread, common = late
        if abs(middle) >= max(LEAST_US, 4 * spread):
            result.append(Offset(node=node, reference=reference, us=middle, spread_us=spread, steps=common))
    return tuple(result)


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The job's first and last record as each node's own clock tells them."""

    #: On the clock of the nodes that do not differ.
    start_us: int
    end_us: int
    #: How far the clock of a node is ahead; nodes that do not differ are left out.
    late_us: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job) -> Clocks:
        """Clocks count as apart where that explains most of how far the samples' ends are apart.

        Else the processes may be what is apart.
        """
        return _clocks(job)

    def ahead_us(self, job: Job) -> IntArray | int:
        """(steps,) how far the clock of each step's node is ahead; 0 where none is."""
        if not self.late_us:
            return 0
        names, node = np.unique(job.steps.node, return_inverse=True)
        return np.array([self.late_us.get(name, 0) for name in names.tolist()], np.int64)[node]

    @property
    def length_us(self) -> int:
        """From the first to the last record."""
        return self.end_us - self.start_us

    def span_us(self, node: str) -> tuple[int, int]:
        """First and last record of the whole job, in the time of a node."""
        late = self.late_us.get(node, 0)
        return self.start_us + late, self.end_us + late


@_once
def _clocks(job: Job) -> Clocks:
    found = offsets(job)
    spans = _sampled(job) if found else {}
    late = {
        one.node: one.us
        for one in found
        if one.node in spans and one.reference in spans
        if 2 * _apart(spans[one.node], spans[one.reference], one.us)
        < _apart(spans[one.node], spans[one.reference], 0)
    }
    start_us, end_us = job.span_us
    if not late:
        return Clocks(start_us=start_us, end_us=end_us)
    firsts = [span[0] - late.get(node, 0) for node, span in spans.items()]
    lasts = [span[1] - late.get(node, 0) for node, span in spans.items()]
    ahead = Clocks(start_us=start_us, end_us=end_us, late_us=late).ahead_us(job)
    firsts.append(int((job.steps.start_us - ahead).min()))
    lasts.append(int((job.steps.end_us - ahead).max()))
    if len(job.events):
        by_lane = np.array([late.get(lane.node, 0) for lane in job.events.lanes], np.int64)
        firsts.append(int((job.events.start_us - by_lane[job.events.lane]).min()))
        lasts.append(int((job.events.end_us - by_lane[job.events.lane]).max()))
    return Clocks(start_us=min(firsts), end_us=max(lasts), late_us=late)


def _sampled(job: Job) -> dict[str, tuple[int, int]]:
    """First and last sample of each node."""
    spans: dict[str, tuple[int, int]] = {}
    for panel in job.panels:
        first, last = spans.get(panel.node, (int(panel.time_us[0]), panel.last_us))
        spans[panel.node] = min(first, int(panel.time_us[0])), max(last, panel.last_us)
    return spans


def _apart(one: tuple[int, int], other: tuple[int, int], late_us: int) -> int:
    """How far two spans are apart at both ends, once the first is set back."""
    return abs(one[0] - late_us - other[0]) + abs(one[1] - late_us - other[1])


_NONE = (0, 0, 0)


def _late(one: tuple[IntArray, IntArray], other: tuple[IntArray, IntArray]) -> tuple[int, int, int] | None:
    """Median of how much later one begins the same steps, half the spread of it, and how many steps."""
    _, mine, theirs = np.intersect1d(one[0], other[0], return_indices=True)
    if len(mine) < LEAST_STEPS:
        return None
    low, middle, high = np.quantile(one[1][mine] - other[1][theirs], (0.25, 0.5, 0.75))
    return round(middle), round(max(middle - low, high - middle)), len(mine)


def _first_starts(key: IntArray, start_us: IntArray, rows: np.ndarray) -> tuple[IntArray, IntArray]:
    """Distinct keys of the chosen rows, ascending, with the earliest start of each."""
    order = np.lexsort((start_us[rows], key[rows]))
    keys, first = np.unique(key[rows][order], return_index=True)
    return keys, start_us[rows][order][first]
