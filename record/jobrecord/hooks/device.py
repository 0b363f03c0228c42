"""Steps as the device sees them: an event at the end of each step, read when it is done."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobrecord.traces import Trace

#: Events that wait for a device that is far behind; more are not recorded.
MAX_EVENTS = 64
#: Steps that the device is left alone with an event.
DELAY_STEPS = 2


class DeviceSteps:
    """Times between events on the current stream. The device is asked, never waited for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._events: deque[tuple[Any, int]] = deque()
        #: Time of the first event that waits: that of the host for the first of all, then by differences.
        self._begin_ns = 0

    def mark(self, step: int, at_ns: int) -> None:
        """Record an event at the end of `step`, and write the steps that the device has ended."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_available() or not cuda.is_initialized():
            return
        if len(self._events) < MAX_EVENTS:
            event = cuda.Event(enable_timing=True)
            event.record()
            self._begin_ns = self._begin_ns or at_ns
            self._events.append((event, step))
        while len(self._events) > DELAY_STEPS + 1 and self._events[1][0].query():
            (begun, _), (ended, number) = self._events.popleft(), self._events[0]
            begin_ns, self._begin_ns = self._begin_ns, self._begin_ns + int(begun.elapsed_time(ended) * 1e6)
            self._trace.add("Device step", "Device step", begin_ns, self._begin_ns, number)
