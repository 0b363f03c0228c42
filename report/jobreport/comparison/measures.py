"""The measures of a comparison: what each counts, and its value in a run."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.comparison.real_difference import Sample
from jobreport.comparison.runs import NOT_RECORDED
from jobreport.cost.facts import samples_per_step
from jobrules.analyses.blocks import BLOCKS, MIN_STEPS, block_edges
from jobrules.analyses.learning.plots import PIECES
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.comparison.runs import Profile, RunOf, Together
    from jobrules.analyses.blocks import StepBlocks, TimeBlocks

    #: Value of a run: a number is one number for each run, None was not recorded.
    Value = Callable[[RunOf], "Measured | float | None"]

#: Stretches of the training loop with samples that a test of a percentage needs.
MIN_TIME_BLOCKS = 10
OLDER = "made by an older version"
ONE_NUMBER = "one number for each run"
FEW_STEPS = "fewer than 100 steps"
NO_STEPS = "no steps were recorded"
NO_BATCH = "the batch size is not known"
JOB, ENDS, STEP = "job", "ends", "step"
LOSS = "loss_after_equal_steps"


class Measured(Struct, frozen=True, kw_only=True):
    """A measure of one run."""

    value: float | None = None
    #: Blocks within the run, if it can be tested by itself.
    sample: Sample | None = None
    #: Why there is no value, or no sample.
    reason: str = ""


class Kind(Struct, frozen=True):
    """What a measure counts."""

    key: str
    label: str
    unit: str
    #: ``lower`` or ``higher`` is better, or ``none``.
    direction: str
    value: Value
    #: What it is of: a ``job``, so that stopped jobs and jobs of other work cannot be compared in it; its ``ends``, so that
    #: jobs of unknown start or end cannot; a ``step``, so that steps of other batches cannot; otherwise empty.
    whole: str = ""

    @property
    def is_profiled(self) -> bool:
        """True if it is about the stretch that PyTorch's profiler recorded."""
        return self.key.startswith("profiled_")

    @property
    def in_points(self) -> bool:
        """True if changes are points of percent, not ratios."""
        return self.unit == "%"

    def not_whole(self, runs: Together) -> str:
        """Why its value in the runs is not that of their whole jobs; empty if it is, or need not be."""
        if self.whole in (JOB, ENDS) and runs.unrecorded:
            return runs.unrecorded
        if self.whole == JOB and runs.stopped:
            return f"{runs.were_stopped}, or the end was {NOT_RECORDED}"
        return ""

    def of(self, run: RunOf) -> Measured:
        """Its value in a run."""
        found = self.value(run) if self.is_profiled or not run.report.only_traces else None
        return found if isinstance(found, Measured) else _one_number(found, NOT_RECORDED)


class Column(Struct, frozen=True, kw_only=True):
    """A measure of all runs, by variant; the first is the base."""

    kind: Kind
    rows: dict[str, list[Measured]]


def _one_number(value: float | None, reason: str) -> Measured:
    """A number that cannot be tested within a run; ``reason`` is why there is none."""
    return Measured(reason=reason) if value is None else Measured(value=value, reason=ONE_NUMBER)


def _by_blocks(
    totals: Sequence[float], sizes: Sequence[float], few: str, *, in_logarithms: bool = False
) -> Measured:
    """The sum of totals over that of sizes, tested by blocks; ``in_logarithms`` only if it is positive."""
    value = math.fsum(totals) / math.fsum(sizes)
    if len(sizes) < MIN_TIME_BLOCKS or (in_logarithms and value <= 0):
        return Measured(value=value, reason=few)
    return Measured(value=value, sample=Sample.of_ratio(totals, sizes, in_logarithms=in_logarithms))


def _rate(step: Measured, size: float | None) -> Measured:
    """So much in each step."""
    if not size or not step.value:
        return Measured(reason=NO_BATCH)
    sample = step.sample and replace(step.sample, mean=math.log(size) - step.sample.mean)
    return Measured(value=size / step.value, sample=sample, reason=step.reason)


# --- of steps


def _of_steps(value: Callable[[RunOf, StepBlocks], Measured | float | None]) -> Value:
    """A measure of steps."""

    def of(run: RunOf) -> Measured | float | None:
        blocks = run.report.blocks or None
        return value(run, blocks) if blocks else Measured(reason=OLDER if run.is_older else NO_STEPS)

    return of


def _step(_: RunOf, blocks: StepBlocks) -> Measured:
    return _by_blocks(blocks.sum_s, blocks.n, FEW_STEPS, in_logarithms=True)


def _per_step(fact: str = "") -> Value:
    """How much of a fact a second has, or how many steps."""
    return _of_steps(lambda run, blocks: _rate(_step(run, blocks), run.number(fact) if fact else 1.0))


def _samples(run: RunOf, blocks: StepBlocks) -> Measured:
    size = samples_per_step(run.report, run.number("batch_size"))
    return _rate(_step(run, blocks), size if isinstance(size, int | float) else None)


def _tokens(run: RunOf) -> Measured | float | None:
    return _per_step("tokens_per_step")(run) if run.report.blocks and run.number("tokens_per_step") else None


def _mfu(run: RunOf, blocks: StepBlocks) -> Measured:
    found = run.report.share_of_peak or None
    if not found or not found.peak_flops_per_second:
        return Measured(reason="the operations of a step, or the peak of the GPUs, are not known")
    per_step = 100 * found.flops_per_step / found.peak_flops_per_second
    return _by_blocks([per_step * n for n in blocks.n], blocks.sum_s, FEW_STEPS)


def _step_quantile(percent: int) -> Value:
    """Of the run, around which those of its blocks scatter."""

    def of(_: RunOf, blocks: StepBlocks) -> Measured:
        value, own = blocks.quantiles_s[percent], {50: blocks.p50_s, 95: blocks.p95_s}[percent]
        if not own or min(own) <= 0:
            return Measured(value=value, reason="fewer than 200 steps")
        return Measured(value=value, sample=Sample.of_blocks(list(map(math.log, own)), math.log(value)))

    return _of_steps(of)


def _data_wait(_: RunOf, blocks: StepBlocks) -> Measured:
    if not blocks.fetch_s:
        return Measured(reason="batch fetches were not recorded")
    return _by_blocks([100 * part for part in blocks.fetch_s], blocks.sum_s, FEW_STEPS)


def _outside(_: RunOf, blocks: StepBlocks) -> float | None:
    return 100 * blocks.outside_s / blocks.loop_s if blocks.loop_s else None


def _loss(run: RunOf) -> Measured:
    known = run.report.learning.loss_after if run.report.learning else ()
    after = next((one for one in known if one.steps == run.loss_steps), None)
    if after is None:
        return Measured(reason="the loss of all runs after equal steps was not recorded")
    if min((after.loss, *after.pieces)) <= 0:
        return Measured(reason="the loss is not positive")
    if not after.pieces:
        return Measured(value=after.loss, reason=f"fewer than {PIECES} values of the loss")
    sample = Sample.of_blocks([math.log(one) for one in after.pieces], math.log(after.loss))
    return Measured(value=after.loss, sample=sample)


# --- of the whole job


def _cost(run: RunOf) -> Measured:
    no_cost = (
        "no price was given" if run.finished is not None else "the start or end of the job was not recorded"
    )
    return _one_number(run.cost.cost if run.cost else None, no_cost)


def _energy(run: RunOf) -> Measured:
    rows = run.report.power or ()
    known = [row.energy_wh for row in rows if row.energy_wh is not None]
    of_all = known and len(known) == sum(node.gpus for node in run.report.job.nodes)
    return _one_number(math.fsum(known) / 1000 if of_all else None, "GPU power was not recorded")


def _per(fact: str, size: float, whole: Callable[[RunOf], Measured]) -> Value:
    """An amount of the whole run, of so much work."""

    def of(run: RunOf) -> Measured:
        amount = whole(run)
        lacks = NO_STEPS if fact == "steps" or run.number("batch_size") else NO_BATCH
        per_work = run.per_work(amount.value, fact, size)
        return amount if amount.value is None else _one_number(per_work, lacks)

    return of


def _goodput(run: RunOf) -> Measured:
    goodput = run.report.goodput or None
    return _one_number(goodput.percent if goodput else None, OLDER if run.is_older else NO_STEPS)


def _gpu_hours(run: RunOf) -> float | None:
    gpus = run.number("gpus")
    return gpus * run.seconds / 3600 if gpus else None


def _gpu_hours_of(role: str) -> Value:
    def of(run: RunOf) -> float | None:
        use = run.report.verdict.use
        return use.of(role)[0] if use and use.device == "GPU" else None

    return of


def _phase(key: str, unit: str) -> Value:
    """Of a phase; with a loop, a phase that is missing took no time."""

    def of(run: RunOf) -> float | None:
        phases = {phase.key: phase for phase in run.report.phases.phases}
        if key not in phases:
            return 0.0 if "loop" in phases else None
        found = phases[key]
        return found.percent if unit == "%" else (found.end_us - found.start_us) / 1e6

    return of


# --- of samples


def sums(blocks: TimeBlocks) -> tuple[list[float], list[float]]:
    """Of each stretch with samples: the mean times the time, and the time."""
    pairs = [(m, s) for m, s in zip(blocks.mean, blocks.covered_s, strict=True) if m is not None]
    return [m * s for m, s in pairs], [s for _, s in pairs]


def _gpu_use(run: RunOf) -> Measured:
    """Time-weighted mean utilization of the GPUs in the training loop."""
    blocks = run.stretches(Metric.GPU_UTILIZATION)
    if blocks is None:
        return Measured(reason=OLDER if run.is_older else "GPU utilization was not recorded")
    return _by_blocks(*sums(blocks), "less than half of the training loop was sampled")


def _percentile(metric: Metric, quantile: str) -> Value:
    """Of the node mean over the whole job; of several nodes their mean, weighted by the snapshots."""

    def of(run: RunOf) -> float | None:
        rows = [row for row in run.report.utilization if row.label == metric.label]
        weight = sum(row.n or 1 for row in rows)
        return math.fsum(getattr(row, quantile) * (row.n or 1) for row in rows) / weight if rows else None

    return of


# --- of the stretch that PyTorch's profiler recorded


def _of_traces(value: Callable[[RunOf, Profile], Measured | float | None]) -> Value:
    def of(run: RunOf) -> Measured | float | None:
        return (
            value(run, run.profile)
            if run.profile
            else Measured(reason="no trace of PyTorch's profiler was read")
        )

    return of


def _profiled_step(_: RunOf, profile: Profile) -> Measured | None:
    # A step of all ranks is one step: ranks wait for one another.
    row = [math.fsum(own) / len(own) for own in profile.steps.values()]
    edges = list(pairwise(block_edges(len(row), BLOCKS if len(row) >= MIN_STEPS else 1)))
    if not row:
        return None
    totals, sizes = [sum(row[a:b]) for a, b in edges], [b - a for a, b in edges]
    return _by_blocks(totals, sizes, "fewer than 100 profiled steps", in_logarithms=True)


def _profiled_samples(run: RunOf, profile: Profile) -> Measured | None:
    step = _profiled_step(run, profile)
    return _rate(step, run.number("batch_size")) if step else None


def _profiled_quantile(percent: float) -> Value:
    """Of the steps on all ranks."""

    def of(_: RunOf, profile: Profile) -> float | None:
        times = [seconds for own in profile.steps.values() for seconds in own]
        return float(np.percentile(times, percent)) if times else None

    return _of_traces(of)


def _kernels(_: RunOf, profile: Profile) -> float | None:
    launched = profile.device_steps()
    return sum(step.events for step in launched) / len(launched) if launched else None


def _profiled_share(key: str) -> Value:
    """Of the profiled time of all devices."""
    return _of_traces(lambda _, profile: profile.percents.get(key))


KINDS = (
    Kind("samples_per_s", "Throughput", "samples/s", "higher", _of_steps(_samples)),
    Kind("tokens_per_s", "Throughput", "tokens/s", "higher", _tokens),
    Kind("steps_per_s", "Steps per second", "1/s", "higher", _per_step(), STEP),
    Kind("cost", "Cost of the run", "money", "lower", _cost, JOB),
    Kind("cost_per_1000_steps", "Cost of 1,000 steps", "money", "lower", _per("steps", 1e3, _cost), STEP),
    Kind(
        "cost_per_million_samples", "Cost of 1 million samples", "money", "lower", _per("samples", 1e6, _cost)
    ),
    Kind("duration_s", "Duration", "s", "lower", lambda run: run.seconds, JOB),
    Kind("step_s", "Step time, mean", "s", "lower", _of_steps(_step), STEP),
    Kind("step_p50_s", "Step time, median", "s", "lower", _step_quantile(50), STEP),
    Kind("step_p95_s", "Step time, p95", "s", "lower", _step_quantile(95), STEP),
    Kind("mfu_percent", "MFU, share of the peak of the GPUs", "%", "higher", _of_steps(_mfu)),
    Kind(LOSS, "Loss after equal steps", "", "lower", _loss, STEP),
    Kind("goodput_percent", "Goodput", "%", "higher", _goodput, ENDS),
    Kind("data_wait_percent", "Waiting for data in steps", "%", "lower", _of_steps(_data_wait)),
    Kind("outside_percent", "Outside of steps", "%", "lower", _of_steps(_outside)),
    Kind("gpu_use_percent", "GPU utilization, mean in the training loop", "%", "higher", _gpu_use),
    Kind("gpu_p50", "GPU utilization, median", "%", "none", _percentile(Metric.GPU_UTILIZATION, "p50")),
    Kind("gpu_p95", "GPU utilization, p95", "%", "none", _percentile(Metric.GPU_UTILIZATION, "p95")),
    Kind("cpu_p50", "CPU utilization, median", "%", "none", _percentile(Metric.CPU_UTILIZATION, "p50")),
    Kind("cpu_p95", "CPU utilization, p95", "%", "none", _percentile(Metric.CPU_UTILIZATION, "p95")),
    Kind("io_wait_p95", "I/O wait, p95", "%", "none", _percentile(Metric.IO_WAIT, "p95")),
    Kind("memory_p95", "Host memory in use, p95", "%", "none", _percentile(Metric.HOST_MEMORY, "p95")),
    Kind(
        "gpu_memory_used_max",
        "GPU memory in use, maximum",
        "B",
        "none",
        lambda run: run.report.demand.gpu_memory if run.report.demand else None,
    ),
    Kind("gpu_hours", "GPU-hours", "GPU-h", "lower", _gpu_hours, JOB),
    Kind("gpu_hours_used", "GPU-hours used", "GPU-h", "none", _gpu_hours_of("used")),
    Kind("gpu_hours_lost", "GPU-hours lost", "GPU-h", "lower", _gpu_hours_of("lost"), JOB),
    Kind("startup_s", "Start-up", "s", "lower", _phase("before", "s"), ENDS),
    Kind("startup_percent", "Start-up, share of the job", "%", "lower", _phase("before", "%"), ENDS),
    Kind("loop_s", "Training loop", "s", "lower", _phase("loop", "s"), JOB),
    Kind("loop_percent", "Training loop, share of the job", "%", "higher", _phase("loop", "%"), ENDS),
    Kind("winddown_s", "Wind-down", "s", "lower", _phase("after", "s"), ENDS),
    Kind("winddown_percent", "Wind-down, share of the job", "%", "lower", _phase("after", "%"), ENDS),
    Kind("energy_kwh", "Energy of the GPUs", "kWh", "lower", _energy, JOB),
    Kind("energy_per_1000_steps", "Energy of 1,000 steps", "kWh", "lower", _per("steps", 1e3, _energy), STEP),
    # Of the stretch that PyTorch's profiler recorded. Computing has no direction: slower kernels compute for longer.
    Kind(
        "profiled_samples_per_s", "Profiled throughput", "samples/s", "higher", _of_traces(_profiled_samples)
    ),
    Kind("profiled_step_s", "Profiled step time, mean", "s", "lower", _of_traces(_profiled_step), STEP),
    Kind("profiled_step_p50_s", "Profiled step time, median", "s", "lower", _profiled_quantile(50), STEP),
    Kind("profiled_step_p95_s", "Profiled step time, p95", "s", "lower", _profiled_quantile(95), STEP),
    *(
        Kind(f"profiled_{key}_percent", f"Profiled: {label}", "%", direction, _profiled_share(key))
        for key, label, direction in (
            ("compute", "computing", "none"),
            ("exposed_communication", "exposed communication and waiting", "lower"),
            ("waiting", "waiting for other ranks", "lower"),
            ("late_rank", "waiting for one late rank", "lower"),
            ("exposed_copies", "exposed copies", "lower"),
            ("idle", "idle", "lower"),
            ("data_loading", "idle, waiting for data", "lower"),
            ("launch_bound", "idle for launches", "lower"),
            ("synchronization", "idle for synchronization", "lower"),
            ("memory_allocation", "idle for memory allocation", "lower"),
        )
    ),
    Kind("profiled_kernels", "Profiled kernels and copies", "per step", "none", _of_traces(_kernels), STEP),
)
BY_KEY = {kind.key: kind for kind in KINDS}


def columns(variants: Mapping[str, Sequence[RunOf]]) -> list[Column]:
    """All measures with a value in some run, in the order of ``KINDS``."""
    steps = next((run.loss_steps for runs in variants.values() for run in runs), 0)
    named = {LOSS: replace(BY_KEY[LOSS], label=f"Loss after {steps:,} steps")}
    found = [
        Column(
            kind=named.get(kind.key, kind),
            rows={label: [kind.of(run) for run in runs] for label, runs in variants.items()},
        )
        for kind in KINDS
    ]
    return [one for one in found if any(cell.value is not None for row in one.rows.values() for cell in row)]
