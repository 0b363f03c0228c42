"""Traces as PyTorch's profiler writes them, made event by event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobreport.readers.base import Found, SourceFile
from jobreport.readers.kineto.reader import Kineto
from jobrules.captures.across import joined
from jobrules.model.captures import AcrossRanks, Capture, DeviceCapture

#: Process of the host, and the device.
PROCESS, DEVICE = 100, 0


class Recording:
    """The events of one rank. Times are microseconds; ``clock`` is added to all."""

    def __init__(self, rank: int | None = None, *, clock: float = 0, world: int | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.clock = clock
        known = {key: value for key, value in (("rank", rank), ("world_size", world)) if value is not None}
        self.top: dict[str, Any] = {"schemaVersion": 1} | ({"distributedInfo": known} if known else {})
        self._correlation = 0

    def add(self, category: str, name: str, start: float, end: float, tid: Any = 1, **args: Any) -> None:
        """Any complete event of the host."""
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": PROCESS,
                "tid": tid,
                "ts": start + self.clock,
                "dur": end - start,
                "args": args,
            }
        )

    def call(self, name: str, start: float, end: float, thread: int = 1, **args: Any) -> None:
        """A call of the runtime."""
        self.add("cuda_runtime", name, start, end, thread, **args)

    def operator(self, name: str, start: float, end: float, thread: int = 1, **args: Any) -> None:
        """An operator of PyTorch."""
        self.add("cpu_op", name, start, end, thread, **args)

    def mark(self, name: str, start: float, end: float, thread: int = 1) -> None:
        """A mark of the user's program, or a step."""
        self.add("user_annotation", name, start, end, thread)

    def step(self, number: int, start: float, end: float) -> None:
        """A step of the profiler."""
        self.mark(f"ProfilerStep#{number}", start, end)

    def kernel(
        self,
        name: str,
        start: float,
        end: float,
        stream: int = 7,
        launch: tuple[float, float] | None = None,
        *,
        thread: int = 1,
        category: str = "kernel",
        correlation: int | None = None,
        device: int = DEVICE,
        **args: Any,
    ) -> int:
        """A kernel or a copy, and the call that launched it; returns their correlation."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        if launch is not None:
            self.call("cudaLaunchKernel", *launch, thread, correlation=correlation)
        args = {"device": device, "stream": stream, "correlation": correlation, **args}
        self.add(category, name, start, end, stream, **args)
        self.events[-1]["pid"] = device
        return correlation

    def memory(self, time: float, size: int, **args: Any) -> None:
        """An event of the allocator of the device."""
        known = {"Device Type": 1, "Device Id": DEVICE, "Bytes": size, "Addr": 1, **args}
        self.events.append(
            {"ph": "i", "name": "[memory]", "pid": PROCESS, "tid": 1, "ts": time + self.clock, "args": known}
        )

    def text(self) -> bytes:
        """The file, as the profiler lays it out."""
        return json.dumps(self.top | {"traceEvents": self.events}, indent=1).encode()


def read_text(folder: Path, **texts: bytes) -> Found:
    """What the reader finds in files of these names and texts."""
    files = []
    for name, text in texts.items():
        path = folder / f"{name}.pt.trace.json"
        path.write_bytes(text)
        files.append(SourceFile(name=path.name, place=str(path), size=len(text)))
    assert all(map(Kineto().matches_content, files))
    return Kineto().read(files)


def capture(folder: Path, recording: Recording) -> Capture:
    """The numbers of one trace."""
    (found,) = read_text(folder, trace=recording.text()).captures
    return found


def across(folder: Path, *recordings: Recording) -> tuple[tuple[Capture, ...], AcrossRanks]:
    """The numbers of several ranks."""
    found = read_text(folder, **{f"rank{i}": one.text() for i, one in enumerate(recordings)})
    captures, ranks = joined(found.captures, found.communication)
    assert ranks is not None
    return captures, ranks


def adds_up(device: DeviceCapture) -> bool:
    """Whether the parts of a device's time are all of it."""
    exposed = device.exposed_communication_ns + device.exposed_copies_ns
    return (
        device.compute_ns + exposed + device.idle_ns == device.window_ns
        and sum(device.idle_by_cause_ns.values()) == device.idle_ns
        and sum(step.window_ns for step in device.steps) in (0, device.window_ns)
    )
