"""A GPU is idle, or low, while the CPU, a few cores, or one core for each process are at their limit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobrules.causes.claims import left_in, with_stalls
from jobrules.causes.node_stalls import NodeStalls
from jobrules.measures.core_use import (
    CROWDED_PART,
    SLOWED_GPU,
    SLOWED_MEAN,
    CoreUse,
    ProcessUse,
    one_core_each,
    process_use,
    stalls_s,
)
from jobrules.measures.crowding import CROWDED_ADVICE, core_shares
from jobrules.measures.data_waits import waits
from jobrules.measures.waiting import means_during
from jobrules.measures.work import Work
from jobrules.model import HowMuch, Inferred, Metric, Note
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.text import capitalized, count, join_names, number, some_of, took

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, FloatArray, Job, Panel, RuleResult, Stalls
    from jobrules.model.claims import Claim, Claimed
    from jobrules.rules.cpu_bottleneck import CPUBottleneck

#: Batches are loaded in shorter stretches.
LONG_STALL_S = 10.0

#: Listed stalls are of idle GPUs only.
ONLY_IDLE = "Whether a core was saturated while GPUs were active, too, is not recorded, so the amount is an upper bound"

STALL_ADVICE = (
    "Find what the main process does between steps: set ``num_workers`` above 0 if it loads data itself.",
    "If loaders are set, look at collating, logging, checkpoints, and evaluation: record steps and loader times.",
)

LONG_STALL_ADVICE = (
    "Look at checkpoints and evaluation: do them less often, or write checkpoints in the background.",
    "Otherwise set ``num_workers`` above 0 if the main process loads data itself, and record steps and loader times.",
)


ONE_PROCESS_ADVICE = (
    "Take work from the main process: set ``num_workers`` above 0 if it loads data itself.",
    "Then profile a few steps: one core may be at its limit with launching small kernels, logging, or metrics.",
)


def of_cpu(rule: CPUBottleneck, job: Job, result: RuleResult) -> tuple[Cause, ...]:
    """A saturated CPU, and a single saturated process; evidence is a GPU that is idle in the same snapshot."""
    panels = [p for part in job.facts for p in part.panels if p.metric is Metric.CPU_UTILIZATION]
    cores = {len(panel.devices) for panel in panels}
    work = Work.of(job)
    stalls = NodeStalls.of(job, work, rule.cpu_threshold, rule.gpu_threshold)
    listed, facts = rule.placed_stalls(job), job.loop_facts
    known = (facts.cores if listed and facts else 0) or (cores.pop() if len(cores) == 1 else 0)
    half = CROWDED_PART * known if known > 1 else np.inf
    # Where training waits for data by other evidence, fewer cores are its own.
    few = None if facts and facts.waited else listed
    return (
        Cause(
            key="cpu-bottleneck",
            precedence=Precedence.CPU_BOUND,
            when="while the CPU was saturated",
            claim=with_stalls(rule, partial(_saturated, rule, work, stalls), listed, half),
            finding=partial(_saturated_cpu, rule, job, result, known, stalls),
            widened=True,
        ),
        few_cores(
            rule,
            result,
            _typical_s(job),
            cores_known=not few or known > 1,
            stalls=few,
            seen=rule.evidence(job),
        ),
        *_low_with_one_core(rule, job, result, work),
    )


def _saturated(
    rule: CPUBottleneck,
    work: Work | None,
    stalls: NodeStalls | None,
    part: Job,
    panel: Panel,
    weight_us: FloatArray,
) -> Claim | None:
    """Claim the moments in which a GPU is idle while the CPU is saturated, or that of another node that it waits for.

    A GPU that is active but slowed down counts too if nearly all of the CPU is in use. Where other processes fill the cores,
    recorded waits for data are a cause and their load a coincidence.
    """
    del weight_us
    if (
        any(one.of_others for one in core_shares(part))
        and work
        and any(w.relevant for w in waits(part, work))
    ):
        return None
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, rule.cpu_threshold)
    if use is None:
        return None
    crowded, full = use.crowded, use.mean >= SLOWED_MEAN
    if work and stalls:
        crowded = crowded | stalls.hold_up(work, panel, crowded, rule.gpu_threshold)

    return left_in(
        lambda gpu: np.asarray(
            (crowded[gpu.rows] & (gpu.values < rule.gpu_threshold))
            | (full[gpu.rows] & (gpu.values < SLOWED_GPU))
        )
    )


def _saturated_cpu(
    rule: CPUBottleneck, job: Job, result: RuleResult, cores: int, stalls: NodeStalls | None, claimed: Claimed
) -> Finding:
    snapshots = result.more.get("bottlenecks", {}).values()
    counts = [node["CPUs"] for nodes in snapshots for node in nodes.values()]
    crowded = [one for one in job.gathered(core_shares) if one.crowded and one.node in claimed.nodes]
    return rule.finding(
        _held_up(job, counts, cores),
        *moments(claimed, result),
        Note(f"A GPU was held up while the CPU was saturated in {claimed.seen} of snapshots"),
        *saturated_cores(counts, cores),
        *means_during(job, claimed, Metric.CONTAINER_CPU_THROTTLED, Metric.CPU_PRESSURE),
        *(Note(str(one)) for one in crowded[:1]),
        *_waited_for(stalls, claimed),
        Note("Half of the cores or more, or their mean, counts as saturated"),
        Note(
            f"Held up: a GPU below {rule.gpu_threshold:g}%, or below {SLOWED_GPU:g}% "
            f"while the mean of the cores is at least {SLOWED_MEAN:g}%"
        ),
        rule.evidence(job),
        advice=CROWDED_ADVICE
        if crowded
        else (
            "Make data preparation cheaper: cache it, do it before training, or move it to the GPU.",
            "Or raise the CPU limit of the container: the machine has more cores."
            if job.has(Metric.MACHINE_CPU)
            else "Or use a machine with more cores per GPU.",
            "More loader processes help only if some cores are free.",
        ),
        devices=claimed.devices,
    )


def saturated_cores(counts: Sequence[int], cores: int) -> tuple[Note, ...]:
    """Median of the numbers of saturated cores that are half or more of each node's ``cores``; nothing without any."""
    full = _full(counts, cores)
    return (Note(f"{capitalized(full)} were saturated (median)"),) if full else ()


def _full(counts: Sequence[int], cores: int) -> str:
    """``all 8 cores``; empty if it is not known how many."""
    crowded = [n for n in counts if n >= CROWDED_PART * cores]
    return some_of(int(np.median(crowded)), cores, "core") if cores > 1 and crowded else ""


def _held_up(job: Job, counts: Sequence[int], cores: int) -> str:
    """What waits for the CPU: training for its data if fetches show it, otherwise GPUs."""
    full, work = _full(counts, cores) or "the CPU", Work.of(job)
    found = [one for one in (job.gathered(waits, work) if work else ()) if one.relevant]
    if not found:
        return f"GPUs waited for the CPU: {full} {'was' if full == 'the CPU' else 'were'} saturated"
    most = max(found, key=lambda one: one.part)
    step = f", a step {took(most.step_us)}" if most.step_us else ""
    return f"Training waits for data, with {full} saturated: a batch fetch takes {took(most.fetch_us)}{step}"


def _waited_for(stalls: NodeStalls | None, claimed: Claimed) -> tuple[Note, ...]:
    """Which nodes have a saturated CPU, if others waited for them."""
    if stalls is None or {*claimed.nodes} <= {*stalls.nodes}:
        return ()
    return (
        Note(
            f"The CPU was saturated on {join_names(stalls.nodes)}; GPUs of other nodes idled at the same time"
        ),
    )


def _typical_s(job: Job) -> float:
    """Half of the time in which a GPU idles while a few cores are saturated lies in stretches of so many seconds or more."""
    work = Work.of(job)
    lengths = np.sort(np.concatenate([[0.0], *(job.gathered(stalls_s, work) if work else ())]))
    so_far = np.cumsum(lengths)
    return float(lengths[np.searchsorted(so_far, so_far[-1] / 2)])


def few_cores(
    rule: CPUBottleneck,
    result: RuleResult,
    typical_s: float = 0.0,
    *,
    cores_known: bool = True,
    stalls: Stalls | None = None,
    seen: Inferred | None = None,
) -> Cause:
    """The cause of idle moments with fewer saturated cores; if the number of cores is not known, with any.

    ``typical_s`` is the median length of a stretch of them, 0 if it is not known. ``stalls`` are those that another
    source lists, ``seen`` is what the cause is inferred from.
    """
    which = "one process" if cores_known else "a CPU core"
    return Cause(
        key="saturated-process",
        precedence=Precedence.ONE_PROCESS,
        when=f"while {which} was saturated",
        claim=with_stalls(rule, partial(_alone, rule), stalls, 1),
        finding=partial(
            _saturated_process, rule, result, which, typical_s, (Note(ONLY_IDLE),) * bool(stalls), seen
        ),
        widened=True,
    )


def _alone(rule: CPUBottleneck, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the moments in which a GPU is idle while a few cores are saturated, more than usual."""
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, rule.cpu_threshold)
    if use is None:
        return None
    return left_in(lambda gpu: use.telling(gpu, gpu.values < rule.gpu_threshold))


def _saturated_process(
    rule: CPUBottleneck,
    result: RuleResult,
    which: str,
    typical_s: float,
    limits: tuple[Note, ...],
    source: Inferred | None,
    claimed: Claimed,
) -> Finding:
    meaning = {
        "one process": "Few cores are saturated while the others are free: a single process holds the GPU up",
        "a CPU core": "The number of cores is not known, so the CPU as a whole may be saturated",
    }
    return rule.finding(
        f"A GPU was idle while {which} was saturated in {claimed.seen} of snapshots",
        *moments(claimed, result),
        Note(meaning[which]),
        *limits,
        source or Inferred("simultaneous samples"),
        *((HowMuch("Typical length of a stretch", typical_s, "s"),) if typical_s >= LONG_STALL_S else ()),
        key="saturated-process",
        because_of=("one-process",),
        seen_as=f"one core saturated in {claimed.seen} of snapshots while a GPU was idle",
        advice=LONG_STALL_ADVICE if typical_s >= LONG_STALL_S else STALL_ADVICE,
        devices=claimed.devices,
    )


def _low_with_one_core(
    rule: CPUBottleneck, job: Job, result: RuleResult, work: Work | None
) -> Iterator[Cause]:
    """What is left while GPUs are low, if about one core for each training process is in use meanwhile."""
    cores = (job.loop_facts and job.loop_facts.cores) or 0
    found = job.gathered(process_use, work, cores) if work else []
    if work and found:
        cause = busy_process(rule, result, max(found, key=lambda one: one.used))
        yield replace(cause, claim=partial(_low, work, cores))


def busy_process(rule: CPUBottleneck, result: RuleResult, use: ProcessUse) -> Cause:
    """The cause of low use while about one core for each training process is in use."""
    who = "one process" if use.processes == 1 else "one core per process"
    return Cause(
        key="one-process",
        precedence=Precedence.ONE_CORE_IN_USE,
        when=f"while {who} may have been the limit",
        finding=partial(_busy_process, rule, result, use, who),
    )


def _low(work: Work, cores: int, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the moments in which all GPUs of a node are low, if its processes are at their limit."""
    del weight_us
    found = one_core_each(part, panel, work, cores)
    return found and left_in(lambda gpu: found[1][gpu.rows])


def _busy_process(
    rule: CPUBottleneck, result: RuleResult, use: ProcessUse, who: str, claimed: Claimed
) -> Finding:
    cores = f"{number(use.used, 2)} of {count(use.cores, 'core')}"
    gpus = "the GPU was" if len(claimed.devices) == 1 else "GPUs were"
    return rule.finding(
        f"{capitalized(who)} may be the limit: {cores} were in use while {gpus} idle or low",
        *moments(claimed, result),
        Note("A process without threads or workers uses one core at most, whichever cores it runs on"),
        Inferred("the mean of the cores"),
        key="one-process",
        advice=ONE_PROCESS_ADVICE,
        devices=claimed.devices,
    )
