"""Training waits for batches: by its fetches, a profile of its Python code, or a few numbers of its loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from jobrules.causes.claims import idle_first
from jobrules.measures.core_use import SATURATED_PERCENT, SLOWED_GPU, CoreUse
from jobrules.measures.crowding import CROWDED_ADVICE
from jobrules.measures.data_waits import LOADING_PART, SAME_PART, Waits, loads_itself, waits
from jobrules.measures.intervals import union
from jobrules.measures.rows import rows_by_rank
from jobrules.measures.sample_weights import around_us
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, HowMuch, Inferred, Metric, Note, Where
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.text import count, duration, escape_name, percent, share, took

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, Fact, Finding, FloatArray, Job, LoopFacts, Panel, RuleResult
    from jobrules.model.claims import Claim, Claimed, Samples
    from jobrules.rules.dataloader import Dataloader

#: A sample lies within a step if this part of it does.
WITHIN_PART = 0.99
#: Loading that was recorded for less of the work than this is said to be.
MOSTLY = 0.9
#: Shares that differ by less are the same.
SEEN_ROUNDED = 0.005
#: Ranks differ if one waits for this many times as long as another.
UNEVEN = 2
MAX_RANK = 24
#: Cores with a lower mean utilization have room for more loader processes.
ROOM_PERCENT = 70.0
NO_WORKERS_ADVICE = (
    "Load data in separate processes: set ``num_workers`` above 0.",
    "Then the next batches load while the model computes.",
)


def of_data_loading(rule: Dataloader, job: Job, result: RuleResult) -> tuple[Cause, ...]:
    """Waiting for batches; evidence is fetches of the training processes, or a profile of their Python code."""
    work = Work.of(job)
    found = job.gathered(waits, work) if work else ()
    if not found and job.loop_facts and job.loop_facts.waited:
        gpus = max((len(part.gpus) for part in job.facts), default=0)
        return (waiting_in_loop(rule, job.loop_facts, _cores(job) or job.loop_facts.cores or 0, gpus),)
    if work is None:
        return ()
    profiled = loads_itself(job.profiles)
    if not any(one.relevant for one in found) and (found or profiled <= LOADING_PART):
        return ()
    return (
        Cause(
            key="data-loading",
            precedence=Precedence.DATA_LOADING,
            when="while training waited for data",
            claim=partial(waiting, work),
            finding=partial(_waited, rule, work, result, found, profiled),
            of_loop=max((one.part for one in found), default=0.0),
        ),
    )


def waiting_in_loop(rule: Dataloader, facts: LoopFacts, cores: int, processes: int) -> Cause:
    """The cause in a loop of which only a few numbers are known; ``cores`` and ``processes`` are of a node."""
    return Cause(
        key="data-loading",
        precedence=Precedence.DATA_LOADING,
        when="while training waited for data",
        claim=partial(waiting_part, facts),
        finding=partial(_waited_in_loop, rule, facts, loading_advice(facts.num_workers, cores, processes)),
        of_loop=facts.waited,
    )


def _waited_in_loop(rule: Dataloader, facts: LoopFacts, advice: tuple[str, ...], claimed: Claimed) -> Finding:
    fetch_s, step_s = facts.fetch_s or 0.0, facts.step_s
    step = f", a step {took(SECOND_US * step_s)}" if step_s else ""
    waited = (
        "By the times of fetches and steps, training waited for batches"
        if facts.outside is None or facts.waited != facts.outside
        else "Training was outside of steps"
    )
    evidence: list[Fact] = [
        Where(claimed.nodes),
        HowMuch("Recorded fetches", facts.fetches),
        Note(f"{waited} for {share(facts.waited)} of the recorded time"),
    ]
    if facts.of_first_fetches:
        first = "Only the first fetch of each training process was recorded"
        evidence.append(Note(f"{first}, so the amount is an upper bound"))
    if facts.note:
        evidence.append(Note(facts.note))
    return rule.finding(
        f"Training waits for data: a batch fetch takes {took(SECOND_US * fetch_s)}{step}",
        *evidence,
        *_workers(facts.num_workers),
        Inferred(facts.source),
        key="data-loading",
        advice=advice,
        devices=claimed.devices,
    )


def _waited(
    rule: Dataloader,
    work: Work,
    result: RuleResult,
    found: Sequence[Waits],
    profiled: float,
    claimed: Claimed,
) -> Finding:
    if not found:
        return rule.finding(
            f"Training loads data itself: {share(profiled)} of a profile's function time",
            *moments(claimed, result),
            Inferred("a Python profile and simultaneous samples"),
            key="data-loading",
            section="data-loading",
            advice=NO_WORKERS_ADVICE,
            devices=claimed.devices,
        )
    most = max(found, key=lambda one: one.part)
    uneven = _uneven(most)
    where = f" on rank {escape_name(most.slowest, MAX_RANK)}" if uneven else ""
    step = f", a step {took(most.step_us)}" if most.step_us else ""
    recorded_us = sum(one.recorded.total for one in found) / len(found)
    evidence = [*moments(claimed, result)]
    evidence += uneven or [Note(f"Training waited for a batch in {share(most.part)} of the recorded time")]
    if most.in_steps:
        evidence.append(Note("Steps hold their batch fetches"))
    evidence += _workers(most.num_workers)
    if most.others:
        evidence.append(Note(most.others))
    if recorded_us < MOSTLY * work.length_us:
        evidence.append(Note(_of_part(recorded_us, work, most.part, claimed)))
    return rule.finding(
        f"Training waits for data{where}: a batch fetch takes {took(most.fetch_us)}{step} (medians)",
        *evidence,
        key="data-loading",
        section="data-loading",
        advice=loading_advice(
            most.num_workers,
            most.cores,
            most.processes,
            cpu_percent=most.cpu_percent,
            of_io=most.of_io,
            has_gpus=most.has_gpus,
        )
        + (CROWDED_ADVICE[:1] if most.others else ()),
        devices=claimed.devices,
    )


def _of_part(recorded_us: float, work: Work, waited: float, claimed: Claimed) -> str:
    """How much was seen where loading was recorded, and with what looks the same in the rest of the work."""
    recorded = f"Loading was recorded for {duration(recorded_us)} of {duration(work.length_us)} of work"
    seen = waited * recorded_us / max(1, work.clocks.length_us)
    if claimed.share <= seen + SEEN_ROUNDED:
        return recorded
    elsewhere = (claimed.share - seen) * work.clocks.length_us / max(1.0, work.length_us - recorded_us)
    same = abs(elsewhere - waited) <= SAME_PART * waited
    rest = "the rest of the loop looks the same" if same else "elsewhere by saturated cores"
    return f"{recorded}: {share(seen)} of GPU time seen there; {rest}: {share(claimed.share)} in all"


def _workers(num_workers: int | None) -> list[Fact]:
    if num_workers == 0:
        return [Note("``num_workers`` is 0: the training process loads every batch itself")]
    return [] if num_workers is None else [HowMuch("``num_workers``", num_workers)]


def _uneven(waits: Waits) -> list[Fact]:
    """The ranks that waited most and least, if they differ."""
    least = min(waits.waited_by_rank_us, key=waits.waited_by_rank_us.__getitem__)
    least_us = waits.waited_by_rank_us[least]
    if waits.waited_us < UNEVEN * least_us or least == waits.slowest:
        return []
    shares = share(waits.part), share(least_us / max(1, waits.recorded.total))
    ranks = escape_name(waits.slowest, MAX_RANK), escape_name(least, MAX_RANK)
    return [
        Note(f"Rank {ranks[0]} waited for {shares[0]} of the recorded time, rank {ranks[1]} for {shares[1]}"),
        Note("In each step, the other ranks wait for the slowest one"),
    ]


def _cores(job: Job) -> int:
    """Cores of the largest node; 0 if no node has a series of each."""
    cores = (len(p.devices) for one in job.facts for p in one.panels if p.metric is Metric.CPU_UTILIZATION)
    return max((n for n in cores if n > 1), default=0)


def loading_advice(
    num_workers: int | None,
    cores: int,
    processes: int,
    cpu_percent: float | None = None,
    *,
    of_io: bool = False,
    has_gpus: bool = True,
) -> tuple[str, ...]:
    """What to do about waiting for data on nodes with so many cores, 0 if not known, and training processes.

    ``cpu_percent`` is the mean utilization of the cores; ``of_io`` is whether they wait for I/O while batches are fetched.
    """
    each = cores // max(1, processes)
    decoding = ", decoding on the GPU" if has_gpus else ""
    cheaper = f"Make loading cheaper: lighter transforms, cached or packed data{decoding}."
    if of_io and num_workers != 0:
        return (
            "Use faster storage, or copy the data to a local disk: cores wait for I/O while batches are fetched.",
            "Pack samples into larger files.",
        )
    if cpu_percent is not None and cpu_percent >= ROOM_PERCENT:
        used = f"the cores are already used by {percent(cpu_percent)} on average"
        return (cheaper, f"More loader processes will not help: {used}.")
    if num_workers == 0:
        start = f" ({each} to start with: cores divided by training processes)" if each > 1 else ""
        return (f"Set ``num_workers`` above 0{start}.", *NO_WORKERS_ADVICE[1:])
    if num_workers is not None and num_workers < each:
        return (
            f"Raise ``num_workers`` from {num_workers} to about {each}: the node has {count(cores, 'core')}.",
            "If fetches stay long, make transforms cheaper or cache the data.",
        )
    return (cheaper, "If cores are free, raise ``num_workers``.")


def waiting(work: Work, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the lost time in which training waited for data.

    Where fetches were recorded, their time outside of steps, idle samples first, as far as all GPUs of the node lost as
    much: they wait together. A sample that lies within a step is no wait. Elsewhere the moments in which a GPU is idle
    while a single core is saturated, or as much as where it was recorded if about as much was lost there.
    """
    found = Waits.of(part, work)
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    if found is not None and not found.relevant:
        return None
    stepping = _in_steps(part, panel, weight_us)
    if found is not None and found.in_steps:
        stepping = np.zeros(len(panel.time_us), np.bool_)

    def eligible(gpu: Samples, waits: Waits) -> FloatArray:
        """Lost time that may be waits, where these were recorded: a batch was fetched in the sample or next to it."""
        fetching = waits.fetched.overlap(*around_us(gpu.time_us, gpu.weight_us)) > 0
        here = waits.recorded.holds(gpu.time_us) & gpu.in_work & fetching
        lost_us = np.where(here & ~stepping[gpu.rows], gpu.left_us, 0.0)
        # A GPU that lost less than training waited was busy meanwhile: its work was queued.
        queued = float(gpu.left_us[here].sum()) < waits.waited_us
        return np.where(queued & (gpu.values >= SLOWED_GPU), 0.0, lost_us)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        if found is None:
            return [_alone(gpu, use) for gpu in gpus]
        open_us = [eligible(gpu, found) for gpu in gpus]
        amount_us = max(0.0, found.waited_us - _claimed_before(gpus, found))
        # A GPU that lost much less than the others did not wait with them.
        lost_us = [float(us.sum()) for us in open_us]
        together = [us for us in lost_us if 2 * us >= float(np.median(lost_us))]
        amount_us = min([amount_us, *together])
        return [
            _claim_of(gpu, us, amount_us, found, use, stepping[gpu.rows])
            for gpu, us in zip(gpus, open_us, strict=True)
        ]

    return claim


def _claimed_before(gpus: Sequence[Samples], waits: Waits) -> float:
    """What other causes claimed while batches were fetched, on average over the GPUs, in microseconds."""
    claimed = [
        np.minimum(
            np.where(gpu.in_work, gpu.lost_us - gpu.left_us, 0.0),
            waits.fetched.overlap(*around_us(gpu.time_us, gpu.weight_us)) / 2,
        ).sum()
        for gpu in gpus
    ]
    return float(np.mean(claimed))


def _alone(gpu: Samples, use: CoreUse | None, *, more_than_usual: bool = False) -> FloatArray:
    """Lost time in which a GPU is idle while a single core is saturated.

    By a profile the thread that saturates it loads data. Otherwise it may spin, so cores count if they are saturated
    more than usual.
    """
    if use is None:
        return np.zeros(len(gpu.values))
    idle = gpu.values < IDLE_PERCENT
    rows = use.telling(gpu, idle) if more_than_usual else use.few[gpu.rows] & idle
    return np.where(rows, gpu.left_us, 0.0)


def _claim_of(
    gpu: Samples,
    open_us: FloatArray,
    amount_us: float,
    waits: Waits,
    use: CoreUse | None,
    stepping: BoolArray,
) -> FloatArray:
    """The amount where waits were recorded, and as much elsewhere if it looks the same.

    A core that is saturated in idle moments is at work on a batch: elsewhere, and where training processes load batches
    themselves, such moments count even if they are more.
    """
    idle = gpu.values < IDLE_PERCENT
    recorded = waits.recorded.holds(gpu.time_us) & gpu.in_work
    elsewhere_us = np.where(gpu.in_work & ~recorded & ~stepping, gpu.left_us, 0.0)
    single_us = _alone(gpu, use, more_than_usual=True)
    of_process_us = single_us if waits.num_workers == 0 else np.zeros(len(single_us))
    waited = _single_first(open_us, of_process_us, idle, amount_us)
    same = _looks_same(gpu, recorded, gpu.in_work & ~recorded)
    part = float(waited.sum()) / max(1.0, float(gpu.left_us[recorded].sum())) if same else 0.0
    return waited + _single_first(elsewhere_us, single_us, idle, part * float(elsewhere_us.sum()))


def _single_first(
    left_us: FloatArray, single_us: FloatArray, idle: BoolArray, amount_us: float
) -> FloatArray:
    """Spread an amount over lost time: all of what is lost beside single cores, then that of idle samples."""
    single_us = np.minimum(left_us, single_us)
    return single_us + idle_first(left_us - single_us, idle, max(0.0, amount_us - float(single_us.sum())))


def _looks_same(gpu: Samples, here: BoolArray, there: BoolArray) -> bool:
    """True if a GPU lost about as much per time in some samples as in others."""
    lost, other = (
        float(gpu.left_us[rows].sum()) / max(1.0, float(gpu.weight_us[rows].sum())) for rows in (here, there)
    )
    return abs(other - lost) <= SAME_PART * lost


def _in_steps(part: Job, panel: Panel, weight_us: FloatArray) -> BoolArray:
    """(n,) which snapshots lie wholly within a step of every rank."""
    steps = part.steps
    start_us, end_us = around_us(panel.time_us, weight_us)
    inside = [
        union(steps.start_us[rows], steps.end_us[rows]).overlap(start_us, end_us)
        for rows in rows_by_rank(steps).values()
    ]
    if not inside:
        return np.zeros(len(panel.time_us), np.bool_)
    return np.asarray(np.min(inside, axis=0) >= WITHIN_PART * (end_us - start_us))


def waiting_part(facts: LoopFacts, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim the share of the loop in which training waited, idle samples first; or the moments with a single saturated
    core, if they are more.

    Where only a part of the work has steps, the share is of that part, unless the rest looks the same.
    """
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    first_us, last_us = facts.steps_us or (0, np.iinfo(np.int64).max)

    def of_gpu(gpu: Samples) -> FloatArray:
        stepped = gpu.in_work & (gpu.time_us >= first_us) & (gpu.time_us <= last_us)
        known = gpu.in_work if _looks_same(gpu, stepped, gpu.in_work & ~stepped) else stepped
        left_us = np.where(known, gpu.left_us, 0.0)
        amount_us = facts.waited * float(gpu.weight_us[known].sum())
        by_share = _whole_samples(left_us, gpu.values < IDLE_PERCENT, amount_us)
        single = _alone(gpu, use, more_than_usual=True)
        return max(by_share, single, key=lambda claimed: float(claimed.sum()))

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]


def _whole_samples(left_us: FloatArray, idle: BoolArray, amount_us: float) -> FloatArray:
    """Claim samples that together lost an amount, evenly over the time, idle ones first."""
    claimed = np.zeros(len(left_us))
    for rows in (idle, ~idle):
        at = np.flatnonzero(rows & (left_us > 0))
        part = min(1.0, (amount_us - float(claimed.sum())) / max(1.0, float(left_us[at].sum())))
        chosen = at[np.diff(np.floor(part * np.arange(len(at) + 1))) > 0]
        claimed[chosen] = left_us[chosen]
    return claimed
