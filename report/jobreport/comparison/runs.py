"""Runs with what is known of each and of all together, and which facts differ."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct

from jobreport.comparison.document import Fact
from jobreport.cost.document import RunCost  # noqa: TC001 - msgspec reads the annotation
from jobreport.cost.facts import CONFIG, LABELS, OF_WHAT_RAN, KnownJob, facts_of, joined
from jobreport.document import Origin
from jobrules.model.captures import AcrossRanks, Capture  # noqa: TC001 - msgspec reads the annotations
from jobrules.rules.traces.shares import MIN_WINDOW_NS, idle_ns, launch_bound_ns
from jobrules.text import join_names
from jobrules.verdict.observations import CROWDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.document import Report
    from jobrules.analyses.blocks import TimeBlocks
    from jobrules.model import Metric
    from jobrules.model.captures import CaptureStep, DeviceCapture, DeviceStep

#: Those of the stretch that PyTorch's profiler recorded.
OF_TRACES = frozenset(
    {
        "profiled_ranks",
        "profiled_gpus",
        "profiled_steps",
        "profiler_settings",
        "trace_versions",
        "unknown_waits",
    }
)
#: Runs whose steps, or samples, differ by more did not do the same work.
SAME_WORK = 0.02
#: How a reason ends that says what of a job's time is not known.
NOT_RECORDED = "not recorded"
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


class RunOf(KnownJob, frozen=True, kw_only=True):
    """A run of a variant."""

    label: str
    name: str
    #: Report page next to the file that was read; empty if there is none.
    page: str = ""
    #: None without traces.
    profile: Profile | None = None
    #: None if it is not known, as of a part of a job.
    cost: RunCost | None = None
    #: After how many steps the losses of all runs are compared; 0 if there is no such number.
    loss_steps: int = 0

    @property
    def is_older(self) -> bool:
        """True for a report of samples of a version without blocks."""
        return self.report.blocks is UNSET and self.report.origin is Origin.SAMPLES

    def stretches(self, metric: Metric) -> TimeBlocks | None:
        """A metric over the training loop; None if it has no sample there."""
        found = next((one for one in self.report.time_blocks or () if one.metric is metric), None)
        return found if found and any(found.covered_s) else None


def run_of(label: str, name: str, report: Report, given: Mapping[str, str | float], page: str = "") -> RunOf:
    """The run of a report, with the facts that the user gave."""
    profile = profile_of(report)
    of_traces = _of_traces(report, profile) if profile else {}
    return RunOf(
        label=label,
        name=name,
        report=report,
        facts=facts_of(report, given, of_traces),
        page=page,
        profile=profile,
    )


def equal_steps(runs: Sequence[RunOf]) -> int:
    """The largest round number of steps after which the loss of every run that recorded one is known; 0 without any."""
    known = [{one.steps for one in run.report.learning.loss_after} for run in runs if run.report.learning]
    return max(set.intersection(*known), default=0) if known else 0


class Together(Struct, frozen=True, kw_only=True):
    """What is known of runs that are compared, all together."""

    #: ``the start and end of a and b were not recorded``; empty if those of all are known.
    unrecorded: str
    #: Labels of runs that were stopped, or whose end was not recorded.
    stopped: list[str]
    #: Labels of runs that had to share their cores: how much runs differ is not that of other machines.
    crowded: list[str]
    #: Batch sizes; None if that of a run is not known.
    batches: set[float | None]
    have_steps: bool
    #: Whether jobs that ended by themselves did other numbers of steps: perhaps of other batches.
    other_steps: bool
    #: Whether they had other numbers of GPUs: a batch is most often that of a GPU times their number.
    other_gpus: bool
    #: What steps of the optimizer differ in if batches are not known: ``ranks``, ``micro-batches of a step``; or empty.
    other_parts: str
    #: Whether they did the same work: equal samples, or equal steps of equal batches; None if that is not known.
    same_work: bool | None

    @property
    def were_stopped(self) -> str:
        """``A was stopped``, ``A and B were stopped``."""
        return f"{join_names(self.stopped)} {'was' if len(self.stopped) == 1 else 'were'} stopped"


def together(runs: Sequence[RunOf]) -> Together:
    """What is known of the runs.

    Equal steps of batches that nobody knows are the same work on as many GPUs, other steps are not known to be other work.
    """
    stopped = dict.fromkeys(run.label for run in runs if run.finished is False)
    shared = (run.label for run in runs if any(one.key == CROWDED for one in run.report.verdict.findings))
    batches = {run.number("batch_size") for run in runs}
    other_gpus = len({run.number("gpus") for run in runs} - {None}) > 1
    samples, steps = ([run.number(key) or 0 for run in runs] for key in ("samples", "steps"))
    same_work = _alike(steps) or None if all(steps) and batches == {None} and not other_gpus else None
    return Together(
        unrecorded=unrecorded(runs),
        stopped=[*stopped],
        crowded=[*dict.fromkeys(shared)],
        batches=batches,
        have_steps=all(steps),
        other_steps=not stopped and all(steps) and not _alike(steps),
        other_gpus=other_gpus,
        other_parts=_other_parts(runs),
        same_work=_alike(samples) if all(samples) else same_work,
    )


def _other_parts(runs: Sequence[RunOf]) -> str:
    """Ranks and micro-batches of which a step of the optimizer is made, as far as they were recorded with the training."""
    known = [run.report.learning for run in runs if run.report.learning]
    parts: dict[str, set[int | None]] = {
        "ranks": {one.world_size or None for one in known} - {None},
        "micro-batches of a step": {one.accumulation for one in known} - {None},
    }
    return next((what for what, numbers in parts.items() if len(numbers) > 1), "")


def _alike(amounts: Sequence[float]) -> bool:
    return max(amounts) - min(amounts) <= SAME_WORK * max(amounts)


def unrecorded(runs: Iterable[RunOf]) -> str:
    """``the start and end of a and b were not recorded``; empty if those of all are known."""
    labels: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.finished is None:
            what = "start" if run.report.job.finished else "start and end"
            labels.setdefault(what, {})[run.label] = None
    found = [f"the {what} of {join_names([*own])}" for what, own in labels.items()]
    verb = "was" if [*labels] == ["start"] else "were"
    return f"{join_names(found)} {verb} {NOT_RECORDED}" if found else ""


def _of_traces(report: Report, profile: Profile) -> dict[str, str | float | None]:
    captures = profile.captures
    devices = [(_whose(one), device) for one in captures for device in one.devices]
    steps = sorted({one.steps for one in captures})
    settings = {name for one in captures for name in one.recorded}
    if any(one.python_calls for one in captures):
        settings.add("with_stack")
    versions = {
        f"{name.removesuffix('_version')} {number}"
        for one in captures
        for name, number in one.versions.items()
    }
    unknown, others = (
        sum(r.count for source in report.quality.sources for r in source.remarks if r.code == code)
        for code in ("kineto.unknown_wait", "kineto.synchronization")
    )
    return {
        "gpu_model": joined(device.name for _, device in devices),
        "world_size": max((one.world_size for one in captures if one.world_size), default=None),
        "profiled_ranks": len({_whose(one) for one in captures}),
        "profiled_steps": steps[0] if len(steps) == 1 else f"{steps[0]} to {steps[-1]}",
        "profiled_gpus": len({(whose, device.device) for whose, device in devices}),
        "profiler_settings": ", ".join(sorted(settings)) or None,
        "trace_versions": ", ".join(sorted(versions)).replace("_", " ") or None,
        "unknown_waits": f"{unknown} of {unknown + others}" if unknown + others else None,
    }


def _whose(capture: Capture) -> str | int:
    return capture.file if capture.rank is None else capture.rank


def common_facts(runs: Sequence[RunOf]) -> dict[str, str | float | None]:
    """Facts of a variant: those in which its runs agree, ranges of numbers, and texts one after the other."""
    found: dict[str, str | float | None] = {}
    for key in dict.fromkeys(key for run in runs for key in run.facts):
        values = list(dict.fromkeys(run.facts.get(key) for run in runs))
        numbers = [value for value in values if isinstance(value, int | float)]
        if len(values) == 1:
            found[key] = values[0]
        elif len(numbers) == len(values):
            found[key] = f"{min(numbers):,.10g} to {max(numbers):,.10g}"
        else:
            found[key] = " / ".join(str(value) for value in values if value is not None)
    return found


def differences(variants: Mapping[str, Mapping[str, str | float | None]]) -> list[Fact]:
    """Different facts first, unknown ones last; a fact that nobody knows is left out unless it matters."""
    keys = dict.fromkeys(key for facts in variants.values() for key in facts)
    # Where all scripts give settings, one that is missing is a difference.
    configured = all(any(key.startswith(CONFIG) for key in facts) for facts in variants.values())
    found = []
    for key in keys:
        values = {label: facts.get(key) for label, facts in variants.items()}
        known = {value for value in values.values() if value is not None}
        if not known and key not in ("batch_size", "instance_type"):
            continue
        kind = "unknown" if None in values.values() else "different" if len(known) > 1 else "same"
        if key.startswith(CONFIG) and configured and kind == "unknown":
            kind = "different"
        if key.startswith(OF_WHAT_RAN) and kind != "different":
            continue
        found.append(Fact(key=key, label=LABELS.get(key, key), kind=kind, values=values))
    order = ("different", "same", "unknown")
    return sorted(found, key=lambda fact: order.index(fact.kind))
