"""What is kept of each capture, so that a job of a thousand ranks has a report of a few megabytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobrules.captures.own_times import OwnTimes
    from jobrules.model import FloatArray
    from jobrules.model.captures import Capture

#: Captures of which the slowest step and curves of memory are kept.
MAX_DRAWN = 4
#: Captures of which tables by name are kept, and times of steps; and steps of a capture.
MAX_DETAILED, MAX_STEPS = 64, 200


def with_detail(
    captures: Sequence[Capture], stepped: Sequence[Capture], own: OwnTimes, caused: Mapping[int, int]
) -> tuple[Capture, ...]:
    """The captures, each with the detail that is kept of it.

    The slowest step is that of the ranks that others waited for most (``caused``, by rank); tables by name are those of
    captures whose devices computed least, and most; times of steps (``own`` are those of ``stepped``) those farthest from
    the median, and some of the rest; memory that of the captures in which most was in use.
    """
    half = MAX_DETAILED // 2
    able = [one for one in captures if one.step_lines and not one.copy_of]
    able.sort(key=lambda one: (-caused.get(one.rank or 0, 0), -max(step.host_ns for step in one.step_times)))
    computed = sorted(captures, key=lambda one: (_computed_share(one), one.file))
    fullest = sorted((one for one in captures if one.memory and not one.copy_of), key=_peak, reverse=True)
    drawn, tables = _files(able[:MAX_DRAWN]), _files([*computed[:half], *computed[-half:]])
    timed = _files(stepped[i] for i in _odd_and_usual(own.medians_ns))
    curves, peaks = _files(fullest[:MAX_DRAWN]), _files(fullest[:MAX_DETAILED])
    return tuple(
        _reduced(
            one,
            step_lines=one.file in drawn,
            tables=one.file in tables,
            steps=MAX_STEPS if one.file in timed else 0,
            memory=one.file in peaks,
            curves=one.file in curves,
        )
        for one in captures
    )


def _reduced(
    capture: Capture, *, step_lines: bool, tables: bool, steps: int, memory: bool, curves: bool
) -> Capture:
    """A capture with the first steps, and with the rest of what is kept."""
    devices = [replace(one, steps=one.steps[:steps]) for one in capture.devices]
    if not tables:
        capture = replace(capture, operators=(), marks=(), host_parts=())
        devices = [
            replace(
                one,
                kernels=(),
                launches=one.launches and replace(one.launches, kernel_bins=(), call_bins=()),
            )
            for one in devices
        ]
    return replace(
        capture,
        step_lines=capture.step_lines if step_lines else None,
        step_times=capture.step_times[:steps],
        devices=tuple(devices),
        memory=tuple(
            one if curves else replace(one, allocated=(), reserved=()) for one in capture.memory if memory
        ),
    )


def _files(captures: Iterable[Capture]) -> set[str]:
    return {one.file for one in captures}


def _computed_share(capture: Capture) -> float:
    window_ns = sum(one.window_ns for one in capture.devices)
    return sum(one.compute_ns for one in capture.devices) / max(window_ns, 1)


def _peak(capture: Capture) -> int:
    return max(max(curve.allocated_peak, curve.reserved_peak or 0) for curve in capture.memory)


def _odd_and_usual(values: FloatArray) -> list[int]:
    """All positions; of more than ``MAX_DETAILED``, half of so many farthest from the median, half spread over the rest."""
    half = MAX_DETAILED // 2
    if len(values) <= 2 * half:
        return list(range(len(values)))
    order = np.argsort(-np.abs(values - np.median(values)), kind="stable")
    rest = order[half:][np.argsort(values[order[half:]], kind="stable")]
    spread = rest[np.linspace(0, len(rest) - 1, half).round().astype(np.int64)]
    return [*order[:half].tolist(), *spread.tolist()]
