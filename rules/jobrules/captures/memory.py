"""The memory that PyTorch's allocator gave out, over a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.model.captures import MemoryCurve

if TYPE_CHECKING:
    from jobrules.captures.trace import Trace
    from jobrules.model import IntArray

MAX_COLUMNS = 200
#: ``device_type`` of the host.
_HOST = 0


def memory_curves(trace: Trace) -> tuple[MemoryCurve, ...]:
    """The curve of each device, by number."""
    memory = trace.memory
    of_devices = memory.device_type > _HOST
    sizes = {one.device: one.memory_bytes for one in trace.head.devices}
    found = []
    for device in np.unique(memory.device[of_devices]).tolist():
        (rows,) = np.nonzero(of_devices & (memory.device == device))
        rows = rows[np.argsort(memory.time_ns[rows], kind="stable")]
        time, allocated, reserved = memory.time_ns[rows], memory.allocated[rows], memory.reserved[rows]
        has_totals = bool((allocated > 0).any())
        if not has_totals:
            allocated = np.cumsum(memory.bytes[rows])
        most = int(allocated.argmax())
        # Of the moments with most reserved memory the one that used it best.
        most_reserved = int(np.lexsort((allocated, reserved))[-1])
        peak = int(reserved[most_reserved])
        is_reserved = has_totals and peak > 0
        found.append(
            MemoryCurve(
                device=device,
                has_totals=has_totals,
                allocated_peak=int(allocated[most]),
                allocated_peak_ns=int(time[most]),
                reserved_peak=peak if is_reserved else None,
                reserved_peak_ns=int(time[int(reserved.argmax())]) if is_reserved else None,
                fragmentation_percent=100 * (peak - int(allocated[most_reserved])) / peak
                if is_reserved
                else None,
                total=sizes.get(device),
                start_ns=int(time[0]),
                end_ns=int(time[-1]),
                allocated=_thinned(time, allocated),
                reserved=_thinned(time, reserved) if is_reserved else (),
            )
        )
    return tuple(found)


def _thinned(time: IntArray, values: IntArray) -> tuple[tuple[int, int], ...]:
    """Lowest and highest value in each of up to ``MAX_COLUMNS`` equal parts of the time; a value holds until the next."""
    columns = min(MAX_COLUMNS, len(values))
    edges = time[0] + (time[-1] - time[0]) * np.arange(columns + 1) // columns
    begin = np.maximum(np.searchsorted(time, edges[:-1], side="right") - 1, 0)
    end = np.maximum(np.searchsorted(time, edges[1:], side="left"), begin + 1)
    end[-1] = len(values)
    parts = [values[first:last] for first, last in zip(begin.tolist(), end.tolist(), strict=True)]
    return tuple((int(part.min()), int(part.max())) for part in parts)
