"""SlowClock: GPU runs at a lower clock than its peers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec.structs import replace

from jobrules.causes.held_up import held_up
from jobrules.measures.gpu_conditions import BUSY_PERCENT
from jobrules.model import HowMuch, Measure, Metric, Note, Reason, ReasonKind, Severity, Where
from jobrules.model.claims import Precedence
from jobrules.rule import number, percent, reason_few_samples
from jobrules.rules.gpu_rule import GPURule, JudgedGPU
from jobrules.text import count, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Finding, FloatArray, Job, RuleResult
    from jobrules.model.claims import Cause

#: GPUs are peers as long as the next larger memory is not larger by more: the driver's own part differs by less. So do
#: some models: an A100 of 80 GB has 0.4% more memory than an H100.
_SAME_MEMORY = 1.05
#: GPUs that the evidence names.
_MAX_NAMED = 4
_NO_PEER = Reason(kind=ReasonKind.NO_DEVICE, what="peer: no other GPU with similar memory")


#: What holds a GPU back for this share of its busy samples explains its median clock.
MOSTLY_HELD_PERCENT = 50.0


class _Clocked(JudgedGPU, frozen=True, kw_only=True):
    """The clock of one busy GPU, of so many samples."""

    #: Its median in MHz; NaN without samples.
    clock: float
    #: Bytes of memory; None if not known.
    memory: float | None
    #: Percent of these samples in which heat and the power limit held it back; None if not known.
    heat: float | None
    capped: float | None
    #: Median clock of its peers, NaN without any; and True if all are known to have exactly the same memory size.
    peers_clock: float = math.nan
    same_memory: bool = False

    @property
    def percent_of_peers(self) -> float:
        """Its clock in percent of that of its peers."""
        return 100 * self.clock / self.peers_clock

    @property
    def held_back(self) -> list[HowMuch]:
        """What held its clock back, and in which share of the samples."""
        reasons = ((self.capped, "At the power limit"), (self.heat, "Slowed by heat"))
        return [HowMuch(what, part, "%", of=self.label) for part, what in reasons if part]


@dataclass(frozen=True, kw_only=True)
class SlowClock(GPURule[_Clocked]):
    """GPU runs at a lower clock than its peers.

    What it checks
        Each GPU's median clock at utilization of ``min_utilization`` or more, against its peers' median: GPUs with
        similar memory. Triggers below ``threshold``. Models are not known.

    Why it matters
        The slowest GPU sets the pace.

    What to do
        * Check that models match (`nvidia-smi -L`).
        * Compare power limit, temperature, and clock settings.
        * Take a GPU that stays slow out of the job.

    Details
        Peers are the other GPUs of the job whose memory size differs by at most 5%, if known. A warning if all peers
        have exactly the same memory size, otherwise info. One peer is enough: of two GPUs the slower one is named. A
        GPU with harder work draws more power and may have a lower clock for that.
    """

    title: ClassVar[str] = "GPU runs at a lower clock than its peers"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_CLOCK, Metric.GPU_UTILIZATION)
    section: ClassVar[str] = "power"
    sources: ClassVar[tuple[Metric, ...]] = (Metric.GPU_CLOCK,)

    # GPUs of one model differ by 8% in speed on average (Sinha et al. 2022, arXiv 2208.11035).
    threshold: float = percent(90.0, "a clock below this share of the peers' clock is slow")
    min_utilization: float = percent(BUSY_PERCENT, "lowest utilization that counts")
    patience: int = number(30, "samples that a median clock needs", unit="samples", low=1)

    def _of_gpu(self, gpu: GPU) -> _Clocked:
        time_us, values = gpu.series(Metric.GPU_CLOCK)
        at_work = gpu.at(Metric.GPU_UTILIZATION, time_us) >= self.min_utilization
        when_us, clock = time_us[at_work], values[at_work]
        few = reason_few_samples(len(clock), self.patience - 1, "samples of a busy GPU")
        return _Clocked(
            node=gpu.node,
            device=gpu.device,
            samples=len(clock),
            reason=few if len(clock) < self.patience else None,
            clock=float(np.median(clock)) if len(clock) else math.nan,
            memory=gpu.memory_size,
            heat=_share(gpu.at(Metric.GPU_THERMAL_SLOWDOWN, when_us)),
            capped=_share(gpu.at(Metric.GPU_POWER_CAP, when_us)),
        )

    def _gather(self, job: Job) -> list[_Clocked] | Reason:
        found = super()._gather(job)
        if isinstance(found, Reason):
            return found
        enough = iter(_with_peers([gpu for gpu in found if gpu.reason is None]))
        return [self._compared(next(enough)) if gpu.reason is None else gpu for gpu in found]

    def _compared(self, gpu: _Clocked) -> _Clocked:
        if not gpu.peers_clock > 0:  # NaN: it has no peer
            return replace(gpu, reason=_NO_PEER)
        details = {
            "clock": gpu.clock,
            "samples": gpu.samples,
            "heat": gpu.heat,
            "power_limit": gpu.capped,
            "percent_of_peers": round(gpu.percent_of_peers, 1),
        }
        return replace(gpu, hit=gpu.percent_of_peers < self.threshold, details=details)

    def _why_none(self, found: Sequence[_Clocked]) -> Reason:
        reasons = [gpu.reason for gpu in found if len(found) > 1]
        return next((reason for reason in reasons if reason and reason != _NO_PEER), _NO_PEER)

    def _measure(self, judged: Sequence[_Clocked]) -> Measure:
        least = min(gpu.percent_of_peers for gpu in judged)
        return Measure(
            value=round(least, 1),
            limits=(self.threshold,),
            bad="below",
            scale=max(100.0, least),
            unit="% of the peers' clock",
            limit_text=f"slowest GPU, threshold {self.threshold:g}%",
        )

    def _kept(self, judged: Sequence[_Clocked], found: Sequence[_Clocked], gpus: int) -> str:
        del gpus
        least = in_percent(min(gpu.percent_of_peers for gpu in judged))
        ran = f"ran at {least} of its peers' median clock (threshold {self.threshold:g}%)"
        limit = without_check(len(found) - len(judged), "GPU")
        return f"The slowest of {count(len(judged), 'GPU')} {ran}{limit}"

    def _findings(self, hits: Sequence[_Clocked], found: Sequence[_Clocked], job: Job) -> list[Finding]:
        del found, job
        slow = sorted(hits, key=lambda gpu: gpu.percent_of_peers)
        least, named = in_percent(slow[0].percent_of_peers), slow[:_MAX_NAMED]
        same = all(gpu.same_memory for gpu in slow)
        memory = "Memory sizes are equal" if same else "Memory sizes differ or are not known"
        clock = f"{least} of its peers' median clock"
        return [
            self.finding(
                f"1 GPU ran at {clock}"
                if len(slow) == 1
                else f"{len(slow)} GPUs ran slow, the slowest at {clock}",
                Where(tuple(gpu.label for gpu in slow)),
                *(HowMuch("Median clock while busy", gpu.clock, "MHz", of=gpu.label) for gpu in named),
                *(
                    HowMuch("Median clock of the peers", gpu.peers_clock, "MHz", of=gpu.label)
                    for gpu in named
                ),
                *(fact for gpu in named for fact in gpu.held_back),
                Note(f"{memory}; models are not known"),
                seen_as=f"{count(len(slow), 'GPU')} at {least} of the peers' median clock",
                severity=Severity.WARNING if same else Severity.INFO,
                because_of=_reasons(slow),
                devices=tuple(gpu.name for gpu in slow),
            )
        ]

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that runs at a low clock."""
        return held_up(job, result, Precedence.SLOW_CLOCK, "while a GPU ran at a low clock")


def _reasons(slow: Sequence[_Clocked]) -> tuple[str, ...]:
    """Findings that explain the low clock: what holds a GPU back for most of its busy time sets its median clock."""
    hot = all((gpu.heat or 0) >= MOSTLY_HELD_PERCENT for gpu in slow)
    capped = all((gpu.capped or 0) >= MOSTLY_HELD_PERCENT for gpu in slow)
    return ("thermal-throttling",) * hot + ("power-cap",) * capped


def _share(part: FloatArray) -> float | None:
    """Mean of the percentages that are known; None without any."""
    known = part[~np.isnan(part)]
    return round(float(np.mean(known)), 1) if len(known) else None


def _with_peers(found: Sequence[_Clocked]) -> list[_Clocked]:
    memory = np.array([gpu.memory or 0.0 for gpu in found])
    order = np.argsort(memory, kind="stable")
    kind = np.empty(len(found), np.int64)
    kind[order] = np.append(0, np.cumsum(memory[order][1:] > _SAME_MEMORY * memory[order][:-1]))[: len(found)]
    clocks, own = np.array([gpu.clock for gpu in found]), np.arange(len(found))
    theirs = ((kind == kind[i]) & (own != i) for i in own)
    return [
        replace(
            gpu,
            peers_clock=float(np.median(clocks[its])) if its.any() else math.nan,
            same_memory=bool(memory[i] > 0 and (memory[its] == memory[i]).all()),
        )
        for i, (gpu, its) in enumerate(zip(found, theirs, strict=True))
    ]
