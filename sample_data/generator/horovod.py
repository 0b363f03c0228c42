"""The rows of a Horovod timeline: what becomes of each gradient while all processes agree on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from generator.trace import Rows, rows

if TYPE_CHECKING:
    from generator.arrays import IntArray

TENSORS = tuple(
    f"DistributedSGD_Allreduce/allreduce.layer{layer}.{part}"
    for layer in range(4, 0, -1)
    for part in ("conv.weight", "bn.weight")
)
#: What is done with a tensor once all processes have it, and the share of the time at which it ends.
ACTIVITIES = (
    ("WAIT_FOR_DATA", 0.1),
    ("MEMCPY_IN_FUSION_BUFFER", 0.2),
    ("NCCL_ALLREDUCE", 0.9),
    ("MEMCPY_OUT_FUSION_BUFFER", 1.0),
)
#: Share of a tensor's time until all processes have it.
NEGOTIATED = 0.3


def horovod_rows(begin_us: IntArray, end_us: IntArray, ranks: int) -> list[Rows]:
    """Return the rows of the backward passes from ``begin_us`` to ``end_us``, tensor after tensor."""
    found = []
    for tensor, lane in enumerate(TENSORS):
        pid = tensor + 1
        for share, kind, name in _story(ranks):
            at_us = (begin_us + (end_us - begin_us) * ((tensor + share) / len(TENSORS))).astype(np.int64)
            dur = ', "dur": 0' if kind == "X" else ""
            template = f'{{"name": "{name}", "pid": {pid}, "ph": "{kind}", "ts": %d{dur}}}'
            found.append(rows(pid, lane, at_us, template, at_us))
    # As in real files, the lane of the cycle marks has no name.
    pid = len(TENSORS) + 1
    mark = f'{{"name": "CYCLE_START", "pid": {pid}, "ph": "i", "ts": %d, "s": "g"}}'
    for share in (0.0, 0.5):
        at_us = (begin_us + (end_us - begin_us) * share).astype(np.int64)
        found.append(rows(pid, "", at_us, mark, at_us))
    return found


def _story(ranks: int) -> list[tuple[float, str, str]]:
    """Return share of the time, kind and name of a tensor's rows, in order."""
    story = [(0.0, "B", "NEGOTIATE_ALLREDUCE")]
    story += [(NEGOTIATED * (rank + 1) / (ranks + 1), "X", str(rank)) for rank in range(ranks)]
    story += [(NEGOTIATED, "E", ""), (NEGOTIATED, "B", "ALLREDUCE")]
    begin = 0.0
    for name, end in ACTIVITIES:
        story += [(_active(begin), "B", name), (_active(end), "E", "")]
        begin = end
    # The next tensor begins where this one ends; both rows at one time would still be told apart by lane.
    return [*story, (0.99, "E", "")]


def _active(share: float) -> float:
    return NEGOTIATED + (0.99 - NEGOTIATED) * share
