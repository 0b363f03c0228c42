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
    """The nodes whose steps are off by at least a second, and by at least four times the spread."""
    steps = job.steps
    nodes = [node for node in job.nodes if (steps.node == node).any()]
    if len(nodes) < 2 or not (steps.number >= 0).any():
        return ()
    _, phase = np.unique(steps.phase, return_inverse=True)
    key = phase * (int(steps.number.max()) + 1) + steps.number
    known = {
        node: _first_starts(key, steps.start_us, (steps.node == node) & (steps.number >= 0)) for node in nodes
    }
    reference = nodes[0]
    result = []
    for node in nodes[1:]:
        _, mine, theirs = np.intersect1d(known[node][0], known[reference][0], return_indices=True)
        if len(mine) < LEAST_STEPS:
            continue
        late = known[node][1][mine] - known[reference][1][theirs]
        low, middle, high = np.quantile(late, (0.25, 0.5, 0.75))
        spread = max(middle - low, high - middle)
        if abs(middle) >= max(LEAST_US, 4 * spread):
            result.append(
                Offset(
                    node=node, reference=reference, us=round(middle), spread_us=round(spread), steps=len(mine)
                )
            )
    return tuple(result)


def _first_starts(key: IntArray, start_us: IntArray, rows: np.ndarray) -> tuple[IntArray, IntArray]:
    """Distinct keys of the chosen rows, ascending, with the earliest start of each."""
    order = np.lexsort((start_us[rows], key[rows]))
    keys, first = np.unique(key[rows][order], return_index=True)
    return keys, start_us[rows][order][first]
