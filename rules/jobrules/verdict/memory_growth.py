"""Host memory that grows along a line which soon reaches its end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.model import SECOND_US, Finding, FloatArray, IntArray, Job, Metric, Note, Severity, When, Where
from jobrules.text import NBSP, duration, escape_name, number

#: Parts of the last half of the samples, whose minima count: what is freed again does not grow. And how long it lasts at least.
_PARTS, _SHORTEST_US = 10, 60 * SECOND_US
#: The line fits: the minima lie off it by this part of their growth at most, and neither half of them grows by less than this
#: part of it. What levels off, or rose once, is no line.
_OFF, _LASTING = 0.1, 0.3
#: Less growth, as a part of all memory, is none.
_LEAST = 0.01
_GIB, _MINUTE_US = 1 << 30, 60 * SECOND_US


class _Growth(Struct, frozen=True, kw_only=True):
    node: str
    #: Bytes in a microsecond, and microseconds until the memory is full after the last sample.
    slope: float
    full_after_us: float
    #: The process, or the loader processes of a rank, that grew by most of it; empty if none did.
    process: str
    start_us: int
    end_us: int


def memory_growth(job: Job) -> list[Finding]:
    """The node whose memory will be full first, if that is within as long as it was sampled."""
    found = min(job.gathered(_growth), key=lambda one: one.full_after_us, default=None)
    if found is None:
        return []
    speed = f"{number(found.slope * _MINUTE_US / _GIB, 2)}{NBSP}GiB a minute"
    # Two digits are more than a line knows of the future.
    minutes = max(1, round(float(f"{found.full_after_us / _MINUTE_US:.2g}")))
    whose = [Note(f"Most of it is that of process {escape_name(found.process, 40)}")] if found.process else []
    when = f"about {duration(minutes * _MINUTE_US)}"
    when = f"{when} after the end of the recording" if job.finished else f"in {when}"
    return [
        Finding(
            key="memory-growth",
            severity=Severity.INFO,
            title=f"Host memory in use grows by {speed}: out of memory {when}",
            evidence=(
                Where((found.node,)),
                When(found.start_us, found.end_us),
                *whose,
                Note("A straight line through the second half of the recording"),
            ),
            advice=(
                "Look for what is kept: lists of outputs, losses without `.item()`, caches of loader processes.",
                "Save checkpoints before it is full.",
            ),
            rules=(),
            section="utilization",
            start_us=found.start_us,
            end_us=found.end_us,
        )
    ]


def _growth(part: Job) -> Iterator[_Growth]:
    (node,) = part.nodes
    used, total = part.panel(node, Metric.HOST_MEMORY_USED), part.panel(node, Metric.HOST_MEMORY_TOTAL)
    if used is None or total is None:
        return
    time_us, values = used.series(0)
    if not len(time_us):
        return
    length_us = int(time_us[-1] - time_us[0])
    lines = _line(time_us, values, length_us)
    if lines is None:
        return
    slope, reached = lines
    all_bytes = float(np.nanmax(total.values))
    full_after_us = (all_bytes - reached) / slope if slope > 0 else np.inf
    if slope * length_us / 2 < _LEAST * all_bytes or not 0 < full_after_us <= length_us:
        return
    yield _Growth(
        node=node,
        slope=slope,
        full_after_us=full_after_us,
        process=_process(part, node, slope, int(time_us[-1]), length_us),
        start_us=int(time_us[-1]) - length_us // 2,
        end_us=int(time_us[-1]),
    )


def _line(time_us: IntArray, values: FloatArray, length_us: int) -> tuple[float, float] | None:
    """Slope, and value at the end, of the line through the minima of the last half; None if they are on none."""
    rows = time_us >= time_us[-1] - length_us / 2
    time_us, values = time_us[rows], values[rows]
    if length_us / 2 < _SHORTEST_US or len(time_us) < 3 * _PARTS:
        return None
    lowest = np.array([part.min() for part in np.array_split(values, _PARTS)])
    at_us = np.array([float(part.mean()) for part in np.array_split(time_us - time_us[-1], _PARTS)])
    slope, reached = np.polyfit(at_us, lowest, 1)
    grown = slope * (at_us[-1] - at_us[0])
    halves = lowest[_PARTS // 2] - lowest[0], lowest[-1] - lowest[_PARTS // 2]
    is_line = np.std(lowest - (slope * at_us + reached)) <= _OFF * grown and min(halves) >= _LASTING * grown
    return (float(slope), float(reached)) if is_line else None


def _process(part: Job, node: str, slope: float, end_us: int, length_us: int) -> str:
    panel = part.panel(node, Metric.PROCESS_MEMORY)
    if panel is None:
        return ""
    half = panel.time_us >= end_us - length_us / 2
    found = []
    for values, name in zip(panel.values[half].T, panel.devices, strict=True):
        measured = values[~np.isnan(values)]
        found.append((float(measured[-1] - measured[0]) if len(measured) else 0.0, name))
    grown, name = max(found, default=(0.0, ""))
    return name if grown > slope * length_us / 4 else ""
