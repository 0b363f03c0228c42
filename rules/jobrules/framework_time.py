"""The framework's time as the page tells it: the figures of OverallFrameworkMetrics, typed and rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrules.job import SECOND_US
from jobrules.overall_framework_metrics import OTHERS, STEP
from jobrules.result import FrameworkTime, Operator, Operators, Slice
from jobrules.rounding import apportion

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the time of a worker between its steps is called.
OUTSIDE = "Outside of steps"
_DEVICES = ("GPU", "CPU")


def framework_time(details: Mapping[str, Any]) -> FrameworkTime | None:
    """From the details of OverallFrameworkMetrics; none where they hold no time."""
    steps = {
        OUTSIDE if name == OTHERS else name.removeprefix(STEP): us
        for name, us in details.get("phase_time", {}).items()
    }
    general = details.get("general_time", {})
    operators = [(device, details.get(f"{device}_operators")) for device in _DEVICES]
    profiled = [details["basis"][device] for device in _DEVICES if device in details.get("basis", {})]
    first = [one["first_step"] for one in profiled if "first_step" in one]
    last = [one["last_step"] for one in profiled if "last_step" in one]
    told = FrameworkTime(
        steps=_slices(steps),
        general=_slices(general),
        operators=tuple(_operators(device, table) for device, table in operators if table),
        horovod=_slices(details.get("horovod_time", {})),
        first_step=min(first, default=None),
        last_step=max(last, default=None),
        forward_only=any(name.startswith("Forward") for name in general)
        and not any(name.startswith("Backward") for name in general)
        and "forward_backward" not in details,
    )
    return told if any((told.steps, told.general, told.operators, told.horovod)) else None


def _slices(times_us: Mapping[str, int]) -> tuple[Slice, ...]:
    percents = apportion(list(times_us.values()), 100.0, 1) if sum(times_us.values()) else ()
    return tuple(
        Slice(name=name, seconds=us / SECOND_US, percent=percent)
        for (name, us), percent in zip(times_us.items(), percents, strict=bool(percents))
    )


def _operators(device: str, table: Mapping[str, Any]) -> Operators:
    rows, whole_us = table["rows"], table["self_us"]
    rest_us = whole_us - sum(row["self_us"] for row in rows)
    *percents, rest = apportion([*(row["self_us"] for row in rows), rest_us], 100.0, 1)
    return Operators(
        device=device,
        rows=tuple(
            Operator(
                name=row["name"],
                calls=row["calls"],
                self_s=row["self_us"] / SECOND_US,
                total_s=row["total_us"] / SECOND_US,
                percent=percent,
            )
            for row, percent in zip(rows, percents, strict=True)
        ),
        others=table["names"] - len(rows),
        others_s=rest_us / SECOND_US,
        others_percent=rest,
        self_s=whole_us / SECOND_US,
        calls=table["calls"],
    )
