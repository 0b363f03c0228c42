"""Runs with their facts, and which facts differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from jobreport.comparison.document import Fact
from jobreport.comparison.profiled import profile_of
from jobreport.cost.facts import LABELS, KnownJob, facts_of, joined
from jobreport.document import Origin
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.comparison.profiled import Profile
    from jobreport.cost.document import RunCost
    from jobreport.document import Report
    from jobrules.model.captures import Capture

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
#: How a reason ends that says what of a job's time is not known.
NOT_RECORDED = "not recorded"


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
    found = []
    for key in keys:
        values = {label: facts.get(key) for label, facts in variants.items()}
        known = {value for value in values.values() if value is not None}
        if not known and key not in ("batch_size", "instance_type"):
            continue
        kind = "unknown" if None in values.values() else "different" if len(known) > 1 else "same"
        found.append(Fact(key=key, label=LABELS.get(key, key), kind=kind, values=values))
    order = ("different", "same", "unknown")
    return sorted(found, key=lambda fact: order.index(fact.kind))


def is_older(report: Report) -> bool:
    """True for a report of samples of a version without blocks."""
    return report.blocks is UNSET and report.origin is Origin.SAMPLES
