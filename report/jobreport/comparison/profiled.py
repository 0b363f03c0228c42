"""What traces of PyTorch's profiler say of a run: the parts of a short stretch, never mixed with the whole job."""

from __future__ import annotations

from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.comparison.document import Profiled
from jobreport.comparison.profiled_work import changed_work
from jobrules.model.captures import AcrossRanks, Capture  # noqa: TC001 - msgspec reads the annotations
from jobrules.model.time_parts import TimePart, named
from jobrules.rules.traces.shares import MIN_WINDOW_NS, idle_ns, launch_bound_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.facts import RunOf
    from jobreport.document import Report
    from jobrules.model.captures import CaptureStep, DeviceCapture, DeviceStep

#: The parts of the profiled time, in the order in which they are drawn.
PARTS = (
    "computing",
    "communication",
    "waiting",
    "copies",
    "data-loading",
    "launches",
    "synchronization",
    "memory-allocation",
    "profiler",
    "idle-unknown",
)
#: Measures of the causes of idle time.
IDLE = {
    "data_loading": "data-loading",
    "launch_bound": "launches",
    "synchronization": "synchronization",
    "memory_allocation": "memory-allocation",
}
NS_PER_S = 1e9


class Profile(Struct, frozen=True, kw_only=True, dict=True):
    """All captures of a run, without copies."""

    captures: tuple[Capture, ...]
    across: AcrossRanks | None

    @property
    def devices(self) -> list[DeviceCapture]:
        """The devices of all captures."""
        return [device for capture in self.captures for device in capture.devices]

    @property
    def window_ns(self) -> int:
        """Time of all devices."""
        return sum(device.window_ns for device in self.devices)

    @property
    def longest_s(self) -> float:
        """Time of the device that was profiled longest, in seconds."""
        return max((device.window_ns for device in self.devices), default=0) / NS_PER_S

    @cached_property
    def steps(self) -> dict[int, list[float]]:
        """Seconds of each whole step on each rank, by its number, in the order of numbers."""
        found: dict[int, list[float]] = {}
        for capture in self.captures:
            for step in _whole(capture):
                found.setdefault(step.number, []).append(step.host_ns / NS_PER_S)
        return dict(sorted(found.items()))

    def device_steps(self) -> list[DeviceStep]:
        """The whole steps of all devices."""
        return [
            step for device in self.devices for step in device.steps if step.number != device.incomplete_step
        ]

    def parts_ns(self) -> dict[str, int]:
        """Time of all devices in parts, which add up to ``window_ns``."""
        found = dict.fromkeys(PARTS, 0)
        for device in self.devices:
            for key, amount in _parts_ns(device).items():
                found[key] += amount
        return found

    @cached_property
    def percents(self) -> dict[str, float]:
        """Shares of the profiled time by part, as far as they are known; none of a time too short to be judged."""
        if not any(device.window_ns >= MIN_WINDOW_NS for device in self.devices):
            return {}
        parts = self.parts_ns()
        found = {
            "compute": parts["computing"],
            "exposed_communication": parts["communication"] + parts["waiting"],
            "exposed_copies": parts["copies"],
            "idle": sum(device.idle_ns for device in self.devices),
        }
        # Causes of idle time are not known of a trace that lacks events.
        if all(device.complete for device in self.devices):
            found |= {key: parts[part] for key, part in IDLE.items()}
        if self.across and self.across.matched:
            found["waiting"] = parts["waiting"]
            found["late_rank"] = max((one.caused_ns for one in self.across.waiting), default=0)
        return {key: 100 * amount / self.window_ns for key, amount in found.items()}


def profile_of(report: Report) -> Profile | None:
    """What was profiled of a job; None without traces."""
    captures = tuple(one for one in report.captures or () if not one.copy_of)
    return Profile(captures=captures, across=report.across_ranks or None) if captures else None


def _whole(capture: Capture) -> list[CaptureStep]:
    cut = {device.incomplete_step for device in capture.devices}
    return [step for step in capture.step_times if step.number not in cut]


def _parts_ns(device: DeviceCapture) -> dict[str, int]:
    waiting = device.exposed_waiting_ns or 0
    found = {
        "computing": device.compute_ns,
        "communication": device.exposed_communication_ns - waiting,
        "waiting": waiting,
        "copies": device.exposed_copies_ns,
    }
    if device.complete:
        found["launches"] = launch_bound_ns(device)
        found["data-loading"] = idle_ns(device, "data_loading")
        found["synchronization"] = idle_ns(device, "synchronisation")
        found["memory-allocation"] = idle_ns(device, "memory_allocation")
        found["profiler"] = idle_ns(device, "profiler")
    return found | {"idle-unknown": device.window_ns - sum(found.values())}


def profiled(variants: Mapping[str, Sequence[RunOf]]) -> Profiled | None:
    """The profiled stretch of all variants; None if a run of any has no traces."""
    known = {label: [run.profile for run in runs if run.profile] for label, runs in variants.items()}
    if any(len(known[label]) < len(runs) for label, runs in variants.items()):
        return None
    per_step = all(capture.steps for own in known.values() for one in own for capture in one.captures)
    work, compared = changed_work(
        {label: [capture for one in own for capture in one.captures] for label, own in known.items()},
        per_step=per_step,
    )
    return Profiled(
        per_step=per_step,
        seconds={label: fmean([one.longest_s for one in own]) for label, own in known.items()},
        time={
            label: _time(own, per_step=per_step)
            for label, own in known.items()
            if all(p.window_ns for p in own)
        },
        work=work,
        compared=compared,
    )


def _time(profiles: Sequence[Profile], *, per_step: bool) -> tuple[TimePart, ...]:
    """Of repeats the mean of each part."""
    parts = [one.parts_ns() for one in profiles]
    # Of a step of one device; without steps, of one device.
    wholes = [
        sum((capture.steps if per_step else 1) * len(capture.devices) for capture in one.captures)
        for one in profiles
    ]
    return tuple(
        TimePart(
            key=key,
            label=named(key).title,
            role=named(key).role,
            amount=fmean([own[key] / whole / NS_PER_S for own, whole in zip(parts, wholes, strict=True)]),
            percent=fmean(
                [100 * own[key] / profile.window_ns for own, profile in zip(parts, profiles, strict=True)]
            ),
        )
        for key in PARTS
        if any(own[key] for own in parts)
    )
