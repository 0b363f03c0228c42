"""Steps as the device sees them, on a device that is behind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobrecord.hooks.device import DeviceSteps
from jobrecord.traces import Trace
from tests.record.hooks.written import events

MS = 1_000_000


class Event:
    """An event of a device that ends step n at ``30 * n`` ms, and is asked at `clock` ms."""

    clock = 0
    recorded = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.done = 30 * Event.recorded
        Event.recorded += 1

    def query(self) -> bool:
        return self.done <= Event.clock

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return float(end.done - self.done)


@pytest.mark.parametrize("host_ms", [10, 30], ids=["device behind", "host waits"])
def test_steps_of_the_device_are_read_when_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_ms: int
) -> None:
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, Event=Event)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(Event, "recorded", 0)
    trace = Trace(tmp_path, "node-1")
    device, begin_ns = DeviceSteps(trace), trace._perf_ns
    for step in range(30):
        monkeypatch.setattr(Event, "clock", host_ms * step)
        device.mark(step, begin_ns + host_ms * step * MS)
    trace.close()

    found = events(tmp_path, "Device step")
    assert [(event.end_us - event.start_us) for event in found] == [30_000] * len(found)
    assert [event.step for event in found] == list(range(1, 1 + len(found)))
    # The device has ended a third of the steps, or is two steps behind because it is not asked earlier.
    assert len(found) == (9 if host_ms == 10 else 27)


def test_no_device_has_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    )
    trace = Trace(tmp_path, "node-1")
    device = DeviceSteps(trace)
    for step in range(5):
        device.mark(step, trace._perf_ns)
    trace.close()

    assert not events(tmp_path)
