"""CPUBottleneck: a GPU is idle while a CPU core is saturated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec.structs import replace

from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
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
from jobrules.measures.node_stalls import NodeStalls
from jobrules.measures.waiting import means_during
from jobrules.measures.work import Work
from jobrules.model import HowMuch, Inferred, Metric, Note
from jobrules.model.claims import Cause, Precedence, moments
from jobrules.rule import Amount, percent, samples
from jobrules.rules.bottleneck_rule import BottleneckRule, with_stalls
from jobrules.text import capitalized, count, join_names, number, share, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model import Finding, FloatArray, Job, Panel, RuleResult, Stalls
    from jobrules.model.claims import Claim, Claimed, Samples

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


@dataclass(frozen=True, kw_only=True)
class CPUBottleneck(BottleneckRule):
    """A GPU is idle while a CPU core is saturated.

    What it checks
        The share of snapshots so far with a GPU below ``gpu_threshold`` and a core of its node above
        ``cpu_threshold``. Triggers above ``threshold``.

    Why it matters
        A waiting GPU costs as much as a busy one. One saturated core can stall it.

    What to do
        * Raise ``num_workers``, or prepare data before training or on the GPU.
        * If all cores are saturated, use more cores per GPU.

    Details
        Checked once per minute, over the snapshots of all nodes with more than ``patience`` GPU snapshots, start-up
        included. A minute without a GPU sample has no check. That both happen at once does not show that one causes
        the other.
    """

    title: ClassVar[str] = "GPU is idle while a CPU core is saturated"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "cpu-bottlenecks"
    core_did: ClassVar[str] = "was saturated"

    threshold: float = percent(50.0, "share of bottleneck snapshots")
    cpu_threshold: float = percent(90.0, "a core above this is saturated")
    gpu_threshold: float = percent(10.0, "a GPU below this is idle")
    patience: Amount = samples(1000, "samples before the first check")

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """A saturated CPU, and a single saturated process; evidence is a GPU that is idle in the same snapshot."""
        panels = [p for part in job.facts for p in part.panels if p.metric is Metric.CPU_UTILIZATION]
        cores = {len(panel.devices) for panel in panels}
        work = Work.of(job)
        stalls = NodeStalls.of(job, work, self.cpu_threshold, self.gpu_threshold)
        listed, facts = self.placed_stalls(job), job.loop_facts
        known = (facts.cores if listed and facts else 0) or (cores.pop() if len(cores) == 1 else 0)
        half = CROWDED_PART * known if known > 1 else np.inf
        # Where training waits for data by other evidence, fewer cores are its own.
        few = None if facts and facts.waited else listed
        return (
            Cause(
                key="cpu-bottleneck",
                precedence=Precedence.CPU_BOUND,
                when="while the CPU was saturated",
                claim=with_stalls(self, partial(_saturated, self, work, stalls), listed, half),
                finding=partial(self._saturated_cpu, job, result, known, stalls),
                widened=True,
            ),
            self.few_cores(
                result, _typical_s(job), cores_known=not few or known > 1, stalls=few, seen=self.evidence(job)
            ),
            *self._low_with_one_core(job, result, work),
        )

    def _low_with_one_core(self, job: Job, result: RuleResult, work: Work | None) -> Iterator[Cause]:
        """What is left while GPUs are low, if about one core for each training process is in use meanwhile."""
        cores = (job.loop_facts and job.loop_facts.cores) or 0
        found = job.gathered(process_use, work, cores) if work else []
        if work and found:
            cause = self.busy_process(result, max(found, key=lambda one: one.used))
            yield replace(cause, claim=partial(_low, work, cores))

    def busy_process(self, result: RuleResult, use: ProcessUse) -> Cause:
        """The cause of low use while about one core for each training process is in use."""
        who = "one process" if use.processes == 1 else "one core per process"
        return Cause(
            key="one-process",
            precedence=Precedence.ONE_CORE_IN_USE,
            when=f"while {who} may have been the limit",
            finding=partial(self._busy_process, result, use, who),
        )

    def few_cores(
        self,
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
            claim=with_stalls(self, partial(_alone, self), stalls, 1),
            finding=partial(
                self._saturated_process, result, which, typical_s, (Note(ONLY_IDLE),) * bool(stalls), seen
            ),
            widened=True,
        )

    def _saturated_cpu(
        self, job: Job, result: RuleResult, cores: int, stalls: NodeStalls | None, claimed: Claimed
    ) -> Finding:
        seen = share(claimed.snapshots / claimed.of_snapshots)
        snapshots = result.more.get("bottlenecks", {}).values()
        counts = [node["CPUs"] for nodes in snapshots for node in nodes.values()]
        crowded = [one for one in job.gathered(core_shares) if one.crowded and one.node in claimed.nodes]
        return self.finding(
            f"A GPU was held up while the CPU was saturated in {seen} of snapshots",
            *moments(claimed, result),
            *saturated_cores(counts, cores),
            *means_during(job, claimed, Metric.CONTAINER_CPU_THROTTLED, Metric.CPU_PRESSURE),
            *(Note(str(one)) for one in crowded[:1]),
            *_waited_for(stalls, claimed),
            Note("Half of the cores or more, or their mean, counts as saturated"),
            Note(
                f"Held up: a GPU below {self.gpu_threshold:g}%, or below {SLOWED_GPU:g}% "
                f"while the mean of the cores is at least {SLOWED_MEAN:g}%"
            ),
            self.evidence(job),
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

    def _saturated_process(
        self,
        result: RuleResult,
        which: str,
        typical_s: float,
        limits: tuple[Note, ...],
        source: Inferred | None,
        claimed: Claimed,
    ) -> Finding:
        seen = share(claimed.snapshots / claimed.of_snapshots)
        meaning = {
            "one process": "Few cores are saturated while the others are free: a single process holds the GPU up",
            "a CPU core": "The number of cores is not known, so the CPU as a whole may be saturated",
        }
        return self.finding(
            f"A GPU was idle while {which} was saturated in {seen} of snapshots",
            *moments(claimed, result),
            Note(meaning[which]),
            *limits,
            source or Inferred("simultaneous samples"),
            *((HowMuch("Typical length of a stretch", typical_s, "s"),) if typical_s >= LONG_STALL_S else ()),
            key="saturated-process",
            because_of=("one-process",),
            seen_as=f"one core saturated in {seen} of snapshots while a GPU was idle",
            advice=LONG_STALL_ADVICE if typical_s >= LONG_STALL_S else STALL_ADVICE,
            devices=claimed.devices,
        )

    def _busy_process(self, result: RuleResult, use: ProcessUse, who: str, claimed: Claimed) -> Finding:
        cores = f"{number(use.used, 2)} of {count(use.cores, 'core')}"
        gpus = "the GPU was" if len(claimed.devices) == 1 else "GPUs were"
        return self.finding(
            f"{capitalized(who)} may be the limit: {cores} were in use while {gpus} idle or low",
            *moments(claimed, result),
            Note("A process without threads or workers uses one core at most, whichever cores it runs on"),
            Inferred("the mean of the cores"),
            key="one-process",
            advice=ONE_PROCESS_ADVICE,
            devices=claimed.devices,
        )

    @property
    def criteria(self) -> BottleneckCriteria:
        """What makes a snapshot a bottleneck."""
        return BottleneckCriteria(
            key="cpu",
            metric=Metric.CPU_UTILIZATION,
            core_threshold=self.cpu_threshold,
            gpu_threshold=self.gpu_threshold,
            threshold=self.threshold,
            patience=self.patience,
        )


def saturated_cores(counts: Sequence[int], cores: int) -> tuple[Note, ...]:
    """Median of the numbers of saturated cores that are half or more of each node's ``cores``; nothing without any."""
    crowded = [n for n in counts if n >= CROWDED_PART * cores]
    if not (cores > 1 and crowded):
        return ()
    return (Note(f"{capitalized(some_of(int(np.median(crowded)), cores, 'core'))} were saturated (median)"),)


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


def _saturated(
    rule: CPUBottleneck,
    work: Work | None,
    stalls: NodeStalls | None,
    part: Job,
    panel: Panel,
    weight_us: FloatArray,
) -> Claim | None:
    """Claim the moments in which a GPU is idle while the CPU is saturated, or that of another node that it waits for.

    A GPU that is active but slowed down counts too if nearly all of the CPU is in use.
    """
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, rule.cpu_threshold)
    if use is None:
        return None
    crowded, full = use.crowded, use.mean >= SLOWED_MEAN
    if work and stalls:
        crowded = crowded | stalls.hold_up(work, panel, crowded, rule.gpu_threshold)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [
            np.where(
                (crowded[gpu.rows] & (gpu.values < rule.gpu_threshold))
                | (full[gpu.rows] & (gpu.values < SLOWED_GPU)),
                gpu.left_us,
                0.0,
            )
            for gpu in gpus
        ]

    return claim


def _alone(rule: CPUBottleneck, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the moments in which a GPU is idle while a few cores are saturated, more than usual."""
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, rule.cpu_threshold)
    if use is None:
        return None
    return lambda gpus: [
        np.where(use.telling(gpu, gpu.values < rule.gpu_threshold), gpu.left_us, 0.0) for gpu in gpus
    ]


def _low(work: Work, cores: int, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the moments in which all GPUs of a node are low, if its processes are at their limit."""
    del weight_us
    found = one_core_each(part, panel, work, cores)
    return found and (lambda gpus: [np.where(found[1][gpu.rows], gpu.left_us, 0.0) for gpu in gpus])
