"""Profiles of chosen steps: PyTorch's operators, and Python functions."""

from __future__ import annotations

import json
import marshal
import os
import sys
from typing import TYPE_CHECKING, Any

from jobrecord.folder import Folder
from jobrecord.traces import RECORDER_LANE, now, warn

if TYPE_CHECKING:
    from jobrecord.traces import Trace

CLOCK = "jobreport clock"


class Operators:
    """PyTorch's profiler for `steps`, and for the step before each stretch of them, which warms it up."""

    def __init__(self, trace: Trace, steps: tuple[int, ...]) -> None:
        self._trace, self._steps = trace, set(steps)
        self._profile: Any = None
        #: Step and time of each mark of the clock.
        self._marks: list[tuple[int, int]] = []

    def begin(self, step: int) -> str:
        """Start, go on, or stop as `step` begins. Returns how its row is marked."""
        if self._profile is None and not self._steps & {step, step + 1}:
            return ""
        began = now()
        if self._profile is not None and step not in self._steps:
            self._stop()
        if self._profile is None and self._steps & {step, step + 1}:
            self._start(step)
        elif self._profile is not None:
            self._profile.step()
            self._mark(step)
        self._trace.add(RECORDER_LANE, "torch.profiler", began, now())
        return "operators" if self._profile is not None else ""

    def close(self) -> None:
        """Stop in the middle of a stretch."""
        if self._profile is not None:
            self._stop()

    def _start(self, step: int) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if torch.autograd._profiler_enabled():
            warn("operators are not recorded: the script uses a profiler of its own")
            self._steps.clear()
            return
        from torch.profiler import ProfilerAction, profile  # noqa: PLC0415

        def schedule(number: int) -> Any:
            return ProfilerAction.RECORD if step + number in self._steps else ProfilerAction.WARMUP

        self._marks.clear()
        self._profile = profile(schedule=schedule)
        self._profile.start()
        self._mark(step)

    def _mark(self, step: int) -> None:
        from torch.profiler import record_function  # noqa: PLC0415

        if step in self._steps:
            self._marks.append((step, now()))
            with record_function(CLOCK):
                pass

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        profile.stop()
        events = list(profile.events())
        clocks = sorted(
            event.time_range.start for event in events if event.name == CLOCK and _is_on_cpu(event)
        )
        if clocks:
            # The profiler's own begin, by each mark; the shortest way from mark to event is the most exact.
            pairs = zip(self._marks, clocks, strict=False)
            self._trace.restart_share()
            self._write(events, max(at_ns - int(us * 1000) for (_, at_ns), us in pairs))
            self._trace.flush()
            self._trace.restart_share()

    def _write(self, events: list[Any], offset_ns: int) -> None:
        for event in events:
            if event.name == CLOCK or event.name.startswith("ProfilerStep"):
                continue
            begin_ns = offset_ns + int(event.time_range.start * 1000)
            end_ns = offset_ns + int(event.time_range.end * 1000)
            step = next(
                (step for step, at_ns in reversed(self._marks) if at_ns <= begin_ns), self._marks[0][0]
            )
            if _is_on_cpu(event):
                lane, args = "cpu_functions", {"tid": event.thread, "device": "cpu"}
            else:
                lane = f"gpu_functions-dev:{event.device_index}"
                args = {"tid": event.device_index, "device": f"gpu:{event.device_index}"}
            self._trace.add(lane, event.name, begin_ns, end_ns, step, args)


def _is_on_cpu(event: Any) -> bool:
    return str(event.device_type).endswith("CPU")


class PythonProfile:
    """cProfile or Pyinstrument for each of the steps from `first` to `last`."""

    def __init__(self, trace: Trace, stretch: tuple[int, int], profiler: str) -> None:
        self._trace, self._stretch, self._profiler = trace, stretch, profiler
        self._running: Any = None
        self._step, self._begin_us = 0, 0

    def begin(self, step: int) -> str:
        """Stop the profile of the step before, and start that of `step`. Returns how its row is marked."""
        first, last = self._stretch
        if not (self._running or first <= step <= last):
            return ""
        began = now()
        self.close()
        if first <= step <= last:
            self._start(step)
        self._trace.add(RECORDER_LANE, self._profiler, began, now())
        return self._profiler if self._running else ""

    def close(self) -> None:
        """Stop, and write what was measured."""
        if self._running is None:
            return
        running, self._running = self._running, None
        end_us = self._trace.wall_us(now())
        (running.disable if self._profiler == "cprofile" else running.stop)()
        is_binary = self._profiler == "cprofile"
        with Folder(self._trace.out, self._folder(end_us), make=True) as folder:
            file = folder.create("python_stats" if is_binary else "python_stats.json")
        with os.fdopen(file, "wb") as stream:
            stream.write(_as_marshal(running) if is_binary else _as_json(running).encode())

    def _start(self, step: int) -> None:
        try:
            running = _profiler(self._profiler)
            self._step, self._begin_us = step, self._trace.wall_us(now())
            (running.enable if self._profiler == "cprofile" else running.start)()
        except (ImportError, RuntimeError, ValueError) as error:
            # Another profiler is at work, or Pyinstrument is not installed.
            warn(f"no Python profile: {error}")
            self._stretch = 0, -1
            return
        self._running = running

    def _folder(self, end_us: int) -> str:
        who = f"{self._trace.worker_or_name()}-{self._trace.node}"
        begin = f"train-{self._step}-stepstart-{self._begin_us}.0"
        end = f"train-{self._step}-stepend-{end_us}.0"
        return f"framework/pytorch/{self._profiler}/{who}/{begin}_{end}"


def _profiler(name: str) -> Any:
    if name == "cprofile":
        from cProfile import Profile  # noqa: PLC0415 - only for chosen steps

        return Profile()
    from pyinstrument import Profiler  # noqa: PLC0415

    return Profiler(async_mode="disabled")


def _as_marshal(profiler: Any) -> bytes:
    """What its `dump_stats` writes."""
    profiler.create_stats()
    return marshal.dumps(profiler.stats)


def _as_json(profiler: Any) -> str:
    from pyinstrument.renderers import JSONRenderer  # noqa: PLC0415

    text = profiler.output(JSONRenderer())
    return text if isinstance(text, str) else json.dumps(text)
