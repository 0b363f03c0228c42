"""Kernels and the calls that launched them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.captures.trace import NOT_GIVEN
from jobrules.model.captures import BIN_ENDS_NS, Launches

if TYPE_CHECKING:
    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.trace import HostCalls
    from jobrules.model import FloatArray, IntArray

#: Shorter kernels are counted.
SHORT_NS = 10_000
_PERCENTILES = (50, 95)
_BIN_ENDS_NS = np.array(BIN_ENDS_NS)


def launch_statistics(time: DeviceTime, launches: HostCalls) -> Launches | None:
    """How the kernels of a device compare with their launch calls; None without kernels."""
    # What the trace calls a kernel is one here, also if it copies.
    kernels = ~time.events.copy
    linked = kernels & (time.launch != NOT_GIVEN)
    if not kernels.any():
        return None
    mean, highest = _queued(time, launches)
    kernel_ns = (time.events.end_ns - time.events.start_ns)[linked]
    calls = time.launch[linked]
    call_ns = launches.end_ns[calls] - launches.start_ns[calls]
    return Launches(
        linked=int(linked.sum()),
        unlinked=int((kernels & ~linked).sum()),
        shorter_than_call=int((kernel_ns < call_ns).sum()),
        below_10_us=int((kernel_ns < SHORT_NS).sum()),
        kernel_ns=_middle(kernel_ns),
        call_ns=_middle(call_ns),
        delay_ns=_middle(time.events.start_ns[linked] - launches.end_ns[calls]),
        queued_mean=mean,
        queued_max=highest,
        kernel_bins=_bins(kernel_ns),
        call_bins=_bins(call_ns),
    )


def _middle(values: IntArray) -> tuple[float, float]:
    if not len(values):
        return 0.0, 0.0
    found: FloatArray = np.percentile(values, _PERCENTILES)
    return float(found[0]), float(found[1])


def _bins(lengths_ns: IntArray) -> tuple[int, ...]:
    of = np.searchsorted(_BIN_ENDS_NS, lengths_ns, side="right")
    return tuple(np.bincount(of, minlength=len(_BIN_ENDS_NS) + 1).tolist())


def _queued(time: DeviceTime, launches: HostCalls) -> tuple[float, int]:
    """Mean and highest number of events of a stream that were launched and had not ended, over all streams."""
    area, length, highest = 0, 0, 0
    linked = time.launch != NOT_GIVEN
    for stream in np.unique(time.events.stream[linked]).tolist():
        rows = linked & (time.events.stream == stream)
        begin = launches.start_ns[time.launch[rows]]
        end = np.maximum(time.events.end_ns[rows], begin)
        area += int((end - begin).sum())
        begin.sort()
        end.sort()
        length += int(end[-1] - begin[0])
        # Of the events that were launched up to each launch.
        ended = np.searchsorted(end, begin, side="right")
        ended -= np.arange(1, len(begin) + 1)
        highest = max(highest, -int(ended.min()))
    return (round(area / length, 2) if length else 0.0), highest
