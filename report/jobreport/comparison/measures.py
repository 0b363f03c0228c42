"""The measures of a run: what they count, and their values in its report."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.comparison.facts import is_older
from jobreport.comparison.profiled import profile_of
from jobreport.comparison.real_difference import Sample
from jobrules.analyses.blocks import BLOCKS, MIN_STEPS, block_edges
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.facts import RunOf
    from jobreport.comparison.profiled import Profile
    from jobreport.cost.document import RunCost
    from jobreport.document import Report
    from jobrules.analyses.blocks import TimeBlocks

#: Stretches of the training loop with samples that a test of a percentage needs.
MIN_TIME_BLOCKS = 10
OLDER = "made by an older version"
ONE_NUMBER = "one number for each run"
FEW_STEPS = "fewer than 100 steps"
FEW_FOR_QUANTILES = "fewer than 200 steps"
FEW_PROFILED = "fewer than 100 profiled steps"
NO_TRACES = "no trace of PyTorch's profiler was read"
NO_STEPS = "no steps were recorded"
NO_BATCH = "the batch size is not known"
NO_PRICE = "no price was given"
NO_DURATION = "the start or end of the job was not recorded"


class Kind(Struct, frozen=True):
    """What a measure counts."""

    key: str
    label: str
    unit: str
    #: ``lower`` or ``higher`` is better, or ``none``.
    direction: str
    #: Stopped jobs and jobs of other work cannot be compared in it.
    of_whole_job: bool = False
    #: Steps of other batches are other work.
    of_step: bool = False

    @property
    def is_profiled(self) -> bool:
        """True if it is about the stretch that PyTorch's profiler recorded."""
        return self.key.startswith("profiled_")

    @property
    def in_points(self) -> bool:
        """True if changes are points of percent, not ratios."""
        return self.unit == "%"


KINDS = (
    Kind("samples_per_s", "Throughput", "samples/s", "higher"),
    Kind("tokens_per_s", "Throughput", "tokens/s", "higher"),
    Kind("steps_per_s", "Steps per second", "1/s", "higher", of_step=True),
    Kind("cost", "Cost of the run", "money", "lower", of_whole_job=True),
    Kind("cost_per_1000_steps", "Cost of 1,000 steps", "money", "lower", of_step=True),
    Kind("cost_per_million_samples", "Cost of 1 million samples", "money", "lower"),
    Kind("duration_s", "Duration", "s", "lower", of_whole_job=True),
    Kind("step_s", "Step time, mean", "s", "lower", of_step=True),
    Kind("step_p50_s", "Step time, median", "s", "lower", of_step=True),
    Kind("step_p95_s", "Step time, p95", "s", "lower", of_step=True),
    Kind("goodput_percent", "Goodput", "%", "higher"),
    Kind("data_wait_percent", "Data wait in steps", "%", "lower"),
    Kind("outside_percent", "Outside of steps", "%", "lower"),
    Kind("gpu_use_percent", "GPU utilization, mean in the training loop", "%", "higher"),
    Kind("gpu_p50", "GPU utilization, median", "%", "none"),
    Kind("gpu_p95", "GPU utilization, p95", "%", "none"),
    Kind("cpu_p50", "CPU utilization, median", "%", "none"),
    Kind("cpu_p95", "CPU utilization, p95", "%", "none"),
    Kind("io_wait_p95", "I/O wait, p95", "%", "none"),
    Kind("memory_p95", "Host memory in use, p95", "%", "none"),
    Kind("gpu_memory_used_max", "GPU memory in use, maximum", "B", "none"),
    Kind("gpu_hours", "GPU-hours", "GPU-h", "lower", of_whole_job=True),
    Kind("gpu_hours_used", "GPU-hours used", "GPU-h", "none"),
    Kind("gpu_hours_lost", "GPU-hours lost", "GPU-h", "lower", of_whole_job=True),
    Kind("startup_s", "Start-up", "s", "lower"),
    Kind("startup_percent", "Start-up, share of the job", "%", "lower"),
    Kind("loop_s", "Training loop", "s", "lower", of_whole_job=True),
    Kind("loop_percent", "Training loop, share of the job", "%", "higher"),
    Kind("winddown_s", "Wind-down", "s", "lower"),
    Kind("winddown_percent", "Wind-down, share of the job", "%", "lower"),
    Kind("energy_kwh", "Energy of the GPUs", "kWh", "lower", of_whole_job=True),
    Kind("energy_per_1000_steps", "Energy of 1,000 steps", "kWh", "lower", of_step=True),
    # Of the stretch that PyTorch's profiler recorded. Computing has no direction: slower kernels compute for longer.
    Kind("profiled_samples_per_s", "Profiled throughput", "samples/s", "higher"),
    Kind("profiled_step_s", "Profiled step time, mean", "s", "lower", of_step=True),
    Kind("profiled_step_p50_s", "Profiled step time, median", "s", "lower", of_step=True),
    Kind("profiled_step_p95_s", "Profiled step time, p95", "s", "lower", of_step=True),
    Kind("profiled_compute_percent", "Profiled: computing", "%", "none"),
    Kind(
        "profiled_exposed_communication_percent", "Profiled: exposed communication and waiting", "%", "lower"
    ),
    Kind("profiled_waiting_percent", "Profiled: waiting for other ranks", "%", "lower"),
    Kind("profiled_late_rank_percent", "Profiled: waiting for one late rank", "%", "lower"),
    Kind("profiled_exposed_copies_percent", "Profiled: exposed copies", "%", "lower"),
    Kind("profiled_idle_percent", "Profiled: idle", "%", "lower"),
    Kind("profiled_data_loading_percent", "Profiled: idle for data loading", "%", "lower"),
    Kind("profiled_launch_bound_percent", "Profiled: idle for launches", "%", "lower"),
    Kind("profiled_synchronization_percent", "Profiled: idle for synchronization", "%", "lower"),
    Kind("profiled_memory_allocation_percent", "Profiled: idle for memory allocation", "%", "lower"),
    Kind("profiled_kernels", "Profiled kernels and copies", "per step", "none", of_step=True),
)
BY_KEY = {kind.key: kind for kind in KINDS}


class Measured(Struct, frozen=True, kw_only=True):
    """A measure of one run."""

    value: float | None = None
    #: Blocks within the run, if it can be tested by itself.
    sample: Sample | None = None
    #: Why there is no value, or no sample.
    reason: str = ""


def measured(run: RunOf, cost: RunCost | None) -> dict[str, Measured]:
    """All measures of a run, by key."""
    report = run.report
    older = OLDER if is_older(report) else ""
    profile = profile_of(report)
    if report.only_traces:
        return _profiled(run, profile)
    found: dict[str, Measured] = {
        **_profiled(run, profile),
        "duration_s": Measured(value=run.seconds, reason=ONE_NUMBER),
        **_phases(report),
        **_usage(report),
        **_device_time(run),
    }
    found |= _steps(run, older)
    found["gpu_use_percent"] = _use(report, older)
    goodput = report.goodput or None
    found["goodput_percent"] = (
        Measured(value=goodput.percent, reason=ONE_NUMBER) if goodput else Measured(reason=older or NO_STEPS)
    )
    found |= _per_work(run, "energy_kwh", _energy_kwh(report), {"energy_per_1000_steps": ("steps", 1e3)})
    per_cost = {"cost_per_1000_steps": ("steps", 1e3), "cost_per_million_samples": ("samples", 1e6)}
    no_cost = NO_PRICE if run.finished is not None else NO_DURATION
    found |= _per_work(run, "cost", cost.cost if cost else None, per_cost, no_cost)
    return found


def _profiled(run: RunOf, profile: Profile | None) -> dict[str, Measured]:
    """Measures of the profiled stretch: shares of the time of all devices, and times of steps on all ranks."""
    if profile is None:
        return {kind.key: Measured(reason=NO_TRACES) for kind in KINDS if kind.is_profiled}
    found = {}
    steps = profile.steps()
    times = sorted(seconds for own in steps.values() for seconds in own)
    if times:
        # A step of all ranks is one step: ranks wait for one another.
        row = [math.fsum(own) / len(own) for own in steps.values()]
        edges = list(pairwise(block_edges(len(row), BLOCKS if len(row) >= MIN_STEPS else 1)))
        step = _mean_of([sum(row[a:b]) for a, b in edges], [b - a for a, b in edges], FEW_PROFILED)
        size = run.number("batch_size")
        found = {
            "profiled_step_s": step,
            "profiled_step_p50_s": Measured(value=float(np.percentile(times, 50)), reason=ONE_NUMBER),
            "profiled_step_p95_s": Measured(value=float(np.percentile(times, 95)), reason=ONE_NUMBER),
            "profiled_samples_per_s": _rate(step, size) if size and step.value else Measured(reason=NO_BATCH),
        }
    if launched := profile.device_steps():
        events = sum(step.events for step in launched) / len(launched)
        found["profiled_kernels"] = Measured(value=events, reason=ONE_NUMBER)
    return found | {
        f"profiled_{key}_percent": Measured(value=share, reason=ONE_NUMBER)
        for key, share in profile.percents().items()
    }


def _phases(report: Report) -> dict[str, Measured]:
    found = {}
    names = {"before": "startup", "loop": "loop", "after": "winddown"}
    phases = {phase.key: phase for phase in report.phases.phases}
    for key, name in names.items():
        phase = phases.get(key)
        # With a loop, a phase that is missing took no time.
        if phase or "loop" in phases:
            seconds = (phase.end_us - phase.start_us) / 1e6 if phase else 0.0
            found[f"{name}_s"] = Measured(value=seconds, reason=ONE_NUMBER)
            found[f"{name}_percent"] = Measured(value=phase.percent if phase else 0.0, reason=ONE_NUMBER)
    return found


def _usage(report: Report) -> dict[str, Measured]:
    """Percentiles of the node means over the whole job; of several nodes their mean, weighted by the snapshots."""
    rows = {
        "gpu": Metric.GPU_UTILIZATION,
        "cpu": Metric.CPU_UTILIZATION,
        "io_wait": Metric.IO_WAIT,
        "memory": Metric.HOST_MEMORY,
    }
    found = {}
    for name, metric in rows.items():
        own = [row for row in report.utilization if row.label == metric.label]
        weight = sum(row.n or 1 for row in own)
        for quantile in ("p50", "p95"):
            key = f"{name}_{quantile}"
            if own and key in BY_KEY:
                value = math.fsum(getattr(row, quantile) * (row.n or 1) for row in own) / weight
                found[key] = Measured(value=value, reason=ONE_NUMBER)
    if report.demand and report.demand.gpu_memory is not None:
        found["gpu_memory_used_max"] = Measured(value=report.demand.gpu_memory, reason=ONE_NUMBER)
    return found


def _device_time(run: RunOf) -> dict[str, Measured]:
    gpus, use = run.number("gpus"), run.report.verdict.use
    values = {"gpu_hours": gpus * run.seconds / 3600} if gpus else {}
    if use and use.device == "GPU":
        values |= {"gpu_hours_used": use.of("used")[0], "gpu_hours_lost": use.of("lost")[0]}
    return {key: Measured(value=value, reason=ONE_NUMBER) for key, value in values.items()}


def _steps(run: RunOf, older: str) -> dict[str, Measured]:
    blocks = run.report.blocks or None
    rates = {"samples_per_s": run.number("batch_size"), "tokens_per_s": run.number("tokens_per_step")}
    if blocks is None:
        keys = (
            "step_s",
            "step_p50_s",
            "step_p95_s",
            "steps_per_s",
            "samples_per_s",
            "data_wait_percent",
            "outside_percent",
        )
        return {key: Measured(reason=older or NO_STEPS) for key in keys}
    step = _mean_of(blocks.sum_s, blocks.n, FEW_STEPS)
    found = {
        "step_s": step,
        "step_p50_s": _quantile(blocks.quantiles_s[50], blocks.p50_s),
        "step_p95_s": _quantile(blocks.quantiles_s[95], blocks.p95_s),
        "steps_per_s": _rate(step, 1.0),
    }
    for key, size in rates.items():
        found[key] = _rate(step, size) if size and step.value else Measured(reason=NO_BATCH)
    if not rates["tokens_per_s"]:
        del found["tokens_per_s"]
    if blocks.fetch_s:
        found["data_wait_percent"] = _share([100 * part for part in blocks.fetch_s], blocks.sum_s, FEW_STEPS)
    else:
        found["data_wait_percent"] = Measured(reason="batch fetches were not recorded")
    if blocks.loop_s:
        found["outside_percent"] = Measured(value=100 * blocks.outside_s / blocks.loop_s, reason=ONE_NUMBER)
    return found


def _mean_of(totals: Sequence[float], sizes: Sequence[float], few: str) -> Measured:
    """A positive mean by its blocks, tested by its logarithm."""
    value = math.fsum(totals) / math.fsum(sizes)
    if len(sizes) < MIN_TIME_BLOCKS or value <= 0:
        return Measured(value=value, reason=few)
    return Measured(value=value, sample=Sample.of_ratio(totals, sizes, in_logarithms=True))


def _rate(step: Measured, size: float) -> Measured:
    """So much in each step."""
    value = size / step.value if step.value else None
    sample = step.sample and replace(step.sample, mean=math.log(size) - step.sample.mean)
    return Measured(value=value, sample=sample, reason=step.reason)


def _share(totals: Sequence[float], sizes: Sequence[float], few: str) -> Measured:
    """In percent, by its blocks."""
    if len(sizes) < MIN_TIME_BLOCKS:
        return Measured(value=math.fsum(totals) / math.fsum(sizes), reason=few)
    sample = Sample.of_ratio(totals, sizes, in_logarithms=False)
    return Measured(value=sample.mean, sample=sample)


def _quantile(value: float, blocks: Sequence[float]) -> Measured:
    """Of the run, around which those of its blocks scatter."""
    if not blocks or min(blocks) <= 0:
        return Measured(value=value, reason=FEW_FOR_QUANTILES)
    return Measured(value=value, sample=Sample.of_blocks(list(map(math.log, blocks)), math.log(value)))


def stretches(report: Report, metric: Metric) -> TimeBlocks | None:
    """A metric over the training loop; None if it has no sample there."""
    found = next((one for one in report.time_blocks or () if one.metric is metric), None)
    return found if found and any(found.covered_s) else None


def _use(report: Report, older: str) -> Measured:
    """Time-weighted mean utilization of the GPUs in the training loop."""
    blocks = stretches(report, Metric.GPU_UTILIZATION)
    if blocks is None:
        return Measured(reason=older or "GPU utilization was not recorded")
    pairs = [(m * s, s) for m, s in zip(blocks.mean, blocks.covered_s, strict=True) if m is not None]
    totals, sizes = zip(*pairs, strict=True)
    return _share(totals, sizes, "less than half of the training loop was sampled")


def mean_over(blocks: TimeBlocks) -> float:
    """The mean over the training loop, as far as it was sampled."""
    pairs = [(m, s) for m, s in zip(blocks.mean, blocks.covered_s, strict=True) if m is not None]
    return math.fsum(m * s for m, s in pairs) / math.fsum(s for _, s in pairs)


def _energy_kwh(report: Report) -> float | None:
    rows = report.power or ()
    known = [row.energy_wh for row in rows if row.energy_wh is not None]
    of_all = known and len(known) == sum(node.gpus for node in report.job.nodes)
    return math.fsum(known) / 1000 if of_all else None


def _per_work(
    run: RunOf,
    key: str,
    amount: float | None,
    per: dict[str, tuple[str, float]],
    missing: str = "GPU power was not recorded",
) -> dict[str, Measured]:
    """An amount of the whole run, and of so much work."""
    if amount is None:
        return {one: Measured(reason=missing) for one in (key, *per)}
    found = {key: Measured(value=amount, reason=ONE_NUMBER)}
    for one, (fact, size) in per.items():
        work = run.number(fact)
        lacks = NO_STEPS if fact == "steps" or run.number("batch_size") else NO_BATCH
        found[one] = (
            Measured(value=size * amount / work, reason=ONE_NUMBER) if work else Measured(reason=lacks)
        )
    return found
