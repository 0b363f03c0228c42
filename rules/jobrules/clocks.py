"""Whether the clocks of the nodes agree, as far as their steps tell.

Processes that train one model together begin a step at the same moment, so the step of the same number
has the same start on every node; a constant difference is one of the clocks, or of the start of
processes that do not train together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobrules.job import SECOND_US

if TYPE_CHECKING:
    from jobrules.job import IntArray, Job

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


def offsets(job: Job) -> tuple[Offset, ...]:
    """The nodes whose steps are off by at least a second, and by at least four times the spread.

    They are compared with the node that is in the middle: with two nodes the one that comes first.
    """
    steps = job.steps
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
