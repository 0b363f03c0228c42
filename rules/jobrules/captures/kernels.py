"""The kernels of a device by name, and what the profiler estimates of its use."""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.captures.kinds import COMMUNICATION, COMPUTE, COPY, tensor_cores
from jobrules.captures.trace import NOT_GIVEN
from jobrules.model.captures import EventClass, Kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.trace import DeviceEvents
    from jobrules.model import IntArray

MAX_ROWS = 25
#: Operators that are named for a kernel.
_MAX_OPERATORS = 2
#: Kernels that are looked at together.
_MANY = 1 << 14
_KINDS: dict[int, EventClass] = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}


class _Groups(Struct, frozen=True, kw_only=True, eq=False):
    """Kernels sorted by name, then length, and where each name begins."""

    rows: IntArray
    begin: IntArray
    end: IntArray
    total_ns: IntArray


def kernel_table(time: DeviceTime, names: Sequence[str], operator: IntArray) -> dict[str, Any]:
    """Fields of ``DeviceCapture`` on kernels; ``operator`` is the position of the name of each event's operator."""
    kernels = _kernels(time)
    length = time.events.end_ns - time.events.start_ns
    first = kernels.rows[kernels.begin]
    of_name = [names[one] for one in time.events.name[first].tolist()]
    uses, lacks = tensor_cores(of_name)
    compute_ns = np.where(time.kind[first] == COMPUTE, kernels.total_ns, 0)
    total_ns = kernels.total_ns.tolist()
    longest = nsmallest(MAX_ROWS, range(len(first)), key=lambda one: (-total_ns[one], of_name[one]))
    return {
        "kernels": tuple(
            _row(
                time,
                names,
                operator,
                length[own := kernels.rows[kernels.begin[one] : kernels.end[one]]],
                own,
                uses_tensor_cores=True if uses[one] else False if lacks[one] else None,
            )
            for one in longest
        ),
        "kernel_names": len(first),
        "kernel_calls": len(kernels.rows),
        "kernel_total_ns": int(kernels.total_ns.sum()),
        "compute_total_ns": int(compute_ns.sum()),
        "tensor_core_ns": int(compute_ns[uses].sum()),
        "no_tensor_core_ns": int(compute_ns[lacks].sum()),
    }


def _kernels(time: DeviceTime) -> _Groups:
    (rows,) = np.nonzero(~time.events.copy)
    length = time.events.end_ns - time.events.start_ns
    rows = rows[np.lexsort((length[rows], time.events.name[rows]))]
    if not len(rows):
        return _Groups(rows=rows, begin=rows, end=rows, total_ns=rows)
    begin = np.flatnonzero(np.append(True, np.diff(time.events.name[rows]) != 0))
    return _Groups(
        rows=rows,
        begin=begin,
        end=np.append(begin[1:], len(rows)),
        total_ns=np.add.reduceat(length[rows], begin),
    )


def _row(
    time: DeviceTime,
    names: Sequence[str],
    operator: IntArray,
    length: IntArray,
    rows: IntArray,
    *,
    uses_tensor_cores: bool | None,
) -> Kernels:
    """The kernels of a name, sorted by length; lengths are theirs."""
    name = names[time.events.name[rows[0]]]
    blocks = time.events.blocks_per_sm[rows]
    known = blocks[~np.isnan(blocks)]
    launched_by = Counter(operator[rows].tolist())
    launched_by.pop(NOT_GIVEN, None)
    return Kernels(
        name=name,
        kind=_KINDS[int(time.kind[rows[0]])],
        calls=len(rows),
        total_ns=int(length.sum()),
        median_ns=(int(length[(len(rows) - 1) // 2]) + int(length[len(rows) // 2])) / 2,
        max_ns=int(length[-1]),
        tensor_cores=uses_tensor_cores,
        blocks_per_sm=float(known.mean()) if len(known) else None,
        operators=tuple(
            names[one]
            for one in sorted(launched_by, key=lambda one: (-launched_by[one], names[one]))[:_MAX_OPERATORS]
        ),
    )


def estimates(time: DeviceTime) -> dict[str, Any]:
    """SM efficiency and occupancy over the window, in percent; None where the profiler recorded neither.

    SM efficiency is the mean of min(1, sum of the blocks per SM of all running kernels), as in the plug-in of
    TensorBoard; occupancy is the mean of the profiler's estimates, weighted with time.
    """
    events, covered, occupied, judged_ns, has_blocks = time.events, 0.0, 0.0, 0, False
    if np.isnan(events.blocks_per_sm).all() and np.isnan(events.occupancy_percent).all():
        return {"sm_efficiency_percent": None, "occupancy_percent": None}
    until = np.maximum.accumulate(events.end_ns)
    for first in range(0, len(events), _MANY):
        own = slice(first, first + _MANY)
        begin, end = (
            column[own].clip(time.start_ns, time.end_ns) for column in (events.start_ns, events.end_ns)
        )
        occupancy = events.occupancy_percent[own].astype(np.float64)
        judged = (end > begin) & ~np.isnan(occupancy)
        occupied += float(occupancy[judged] @ (end - begin)[judged])
        judged_ns += int((end - begin)[judged].sum())
        has_blocks |= bool(((end > begin) & ~np.isnan(events.blocks_per_sm[own])).any())
        # Up to the next ones: all that run then, earlier ones too.
        stop = events.start_ns[own.stop] if own.stop < len(events) else until[-1]
        running = slice(int(np.searchsorted(until, begin[0], side="right")), own.stop)
        covered += _covered_ns(events, running, int(begin[0]), min(int(stop), time.end_ns))
    window_ns = time.end_ns - time.start_ns
    return {
        "sm_efficiency_percent": 100 * covered / window_ns if has_blocks else None,
        "occupancy_percent": occupied / judged_ns if judged_ns else None,
    }


def _covered_ns(events: DeviceEvents, rows: slice, begin: int, end: int) -> float:
    """Time in a stretch, times the SMs that the kernels fill."""
    known = rows.start + np.flatnonzero(~np.isnan(events.blocks_per_sm[rows]))
    moment = np.concatenate([events.start_ns[known], events.end_ns[known]]).clip(begin, max(begin, end))
    order = np.argsort(moment, kind="stable")
    blocks = events.blocks_per_sm[known].astype(np.float64)
    running = np.cumsum(np.concatenate([blocks, -blocks])[order])[:-1]
    return float(np.clip(running, 0, 1) @ np.diff(moment[order]))
