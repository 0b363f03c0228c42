"""SlowClock: GPU runs at a lower clock than its peers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import BUSY_PERCENT, by_node, gpus
from jobrules.measures.stragglers import held_up
from jobrules.model import (
    DeviceStatus,
    HowMuch,
    Measure,
    Metric,
    Note,
    OfGPU,
    Reason,
    ReasonKind,
    Severity,
    Where,
)
from jobrules.model.claims import Precedence
from jobrules.rule import Rule, number, percent, reason_few_samples
from jobrules.text import count, without_check
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

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


@dataclass(frozen=True, kw_only=True)
class SlowClock(Rule):
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

    # GPUs of one model differ by 8% in speed on average (Sinha et al. 2022, arXiv 2208.11035).
    threshold: float = percent(90.0, "a clock below this share of the peers' clock is slow")
    min_utilization: float = percent(BUSY_PERCENT, "lowest utilization that counts")
    patience: int = number(30, "samples that a median clock needs", unit="samples", low=1)

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        found = job.gathered(_clocked, Clocks.of(job), self.min_utilization)
        enough = [gpu for gpu in found if gpu.samples >= self.patience]
        peers = {gpu.name: its for gpu, its in zip(enough, _peers(enough), strict=True)}
        compared = [gpu for gpu in enough if peers[gpu.name].clock > 0]  # not NaN: it has peers
        ratios = {gpu.name: 100 * gpu.clock / peers[gpu.name].clock for gpu in compared}
        slow = {name for name, ratio in ratios.items() if ratio < self.threshold}
        facts: dict[str, Any] = {
            "datapoints": max((gpu.samples for gpu in found), default=0),
            "datapoints_per_series": {gpu.name: gpu.samples for gpu in found},
            "counted": "GPUs",
            "evaluated": len(compared),
            "violating": len(slow),
            "devices": tuple(self._answer(gpu, ratios.keys(), slow) for gpu in found),
            "details": by_node(
                (gpu.node, gpu.device, gpu.details | {"percent_of_peers": round(ratios[gpu.name], 1)})
                for gpu in compared
            ),
        }
        if not compared:
            reasons = [answer.reason for answer in facts["devices"]]
            few = next((reason for reason in reasons if reason != _NO_PEER), _NO_PEER)
            return self.not_evaluated(few if len(found) > 1 else _NO_PEER, **facts)
        least = min(ratios.values())
        facts["measure"] = Measure(
            value=round(least, 1),
            limits=(self.threshold,),
            scale=max(100.0, least),
            unit="% of the peers' clock",
            limit_text=f"slowest GPU, threshold {self.threshold:g}%",
        )
        if not slow:
            ran = f"ran at {in_percent(least)} of its peers' median clock (threshold {self.threshold:g}%)"
            limit = without_check(len(found) - len(compared), "GPU")
            return self.passed(f"The slowest of {count(len(compared), 'GPU')} {ran}{limit}", **facts)
        finding = self._finding([gpu for gpu in compared if gpu.name in slow], peers, ratios)
        return self.triggered(finding, **facts | {"triggered": len(slow), "violations": len(slow)})

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """What other GPUs lost while they waited for one that runs at a low clock."""
        return held_up(
            job,
            result,
            Precedence.SLOW_CLOCK,
            "while a GPU ran at a low clock",
        )

    def _answer(self, gpu: _Clocked, compared: Collection[str], slow: Collection[str]) -> DeviceStatus:
        few = reason_few_samples(gpu.samples, self.patience - 1, "samples of a busy GPU")
        reason = few if gpu.samples < self.patience else _NO_PEER
        return DeviceStatus.of(gpu.name, reason, int(gpu.name in compared), int(gpu.name in slow))

    def _finding(
        self, slow: Sequence[_Clocked], peers: Mapping[str, _Peers], ratios: Mapping[str, float]
    ) -> Finding:
        slow = sorted(slow, key=lambda gpu: ratios[gpu.name])
        least = f"{in_percent(ratios[slow[0].name])} of its peers' median clock"
        same = all(peers[gpu.name].same_memory for gpu in slow)
        memory = "Memory sizes are equal" if same else "Memory sizes differ or are not known"
        return self.finding(
            f"1 GPU ran at {least}"
            if len(slow) == 1
            else f"{len(slow)} GPUs ran slow, the slowest at {least}",
            Where(tuple(gpu.label for gpu in slow)),
            *(
                HowMuch("Median clock while busy", gpu.clock, "MHz", of=gpu.label)
                for gpu in slow[:_MAX_NAMED]
            ),
            *(
                HowMuch("Median clock of the peers", peers[gpu.name].clock, "MHz", of=gpu.label)
                for gpu in slow[:_MAX_NAMED]
            ),
            *(fact for gpu in slow[:_MAX_NAMED] for fact in gpu.held_back),
            Note(f"{memory}; models are not known"),
            seen_as=f"{count(len(slow), 'GPU')} at {in_percent(ratios[slow[0].name])} of the peers' median clock",
            severity=Severity.WARNING if same else Severity.INFO,
            because_of=_reasons(slow),
            devices=tuple(gpu.name for gpu in slow),
        )


def _reasons(slow: Sequence[_Clocked]) -> tuple[str, ...]:
    """Findings that explain the low clock: what holds a GPU back for most of its busy time sets its median clock."""
    hot = all((gpu.heat or 0) >= MOSTLY_HELD_PERCENT for gpu in slow)
    capped = all((gpu.capped or 0) >= MOSTLY_HELD_PERCENT for gpu in slow)
    return ("thermal-throttling",) * hot + ("power-cap",) * capped


class _Clocked(OfGPU, frozen=True, kw_only=True):
    """The clock of one busy GPU."""

    #: Samples of its clock while busy, and their median in MHz; NaN without any.
    samples: int
    clock: float
    #: Bytes of memory; None if not known.
    memory: float | None
    #: Percent of these samples in which heat and the power limit held it back; None if not known.
    heat: float | None
    capped: float | None

    @property
    def held_back(self) -> list[HowMuch]:
        """What held its clock back, and in which share of the samples."""
        reasons = ((self.capped, "At the power limit"), (self.heat, "Slowed by heat"))
        return [HowMuch(what, part, "%", of=self.label) for part, what in reasons if part]

    @property
    def details(self) -> dict[str, Any]:
        """For the JSON."""
        return {"clock": self.clock, "samples": self.samples, "heat": self.heat, "power_limit": self.capped}


def _clocked(part: Job, clocks: Clocks, busy: float) -> Iterator[_Clocked]:
    for gpu in gpus(part, clocks, Metric.GPU_CLOCK):
        time_us, values = gpu.series(Metric.GPU_CLOCK)
        at_work = gpu.at(Metric.GPU_UTILIZATION, time_us) >= busy
        when_us, clock = time_us[at_work], values[at_work]
        _, memory = gpu.series(Metric.GPU_MEMORY_TOTAL)
        yield _Clocked(
            node=gpu.node,
            device=gpu.device,
            samples=len(clock),
            clock=float(np.median(clock)) if len(clock) else math.nan,
            memory=float(memory.max()) if len(memory) else None,
            heat=_share(gpu.at(Metric.GPU_THERMAL_SLOWDOWN, when_us)),
            capped=_share(gpu.at(Metric.GPU_POWER_CAP, when_us)),
        )


def _share(part: FloatArray) -> float | None:
    """Mean of the percentages that are known; None without any."""
    known = part[~np.isnan(part)]
    return round(float(np.mean(known)), 1) if len(known) else None


class _Peers(Struct, frozen=True, kw_only=True):
    """The peers of one GPU."""

    #: Their median clock in MHz, NaN without any.
    clock: float
    #: True if all are known to have exactly the same memory size.
    same_memory: bool


def _peers(found: Sequence[_Clocked]) -> list[_Peers]:
    """The peers of each GPU."""
    memory = np.array([gpu.memory or 0.0 for gpu in found])
    order = np.argsort(memory, kind="stable")
    kind = np.empty(len(found), np.int64)
    kind[order] = np.append(0, np.cumsum(memory[order][1:] > _SAME_MEMORY * memory[order][:-1]))[: len(found)]
    clocks, own = np.array([gpu.clock for gpu in found]), np.arange(len(found))
    theirs = ((kind == kind[i]) & (own != i) for i in own)
    return [
        _Peers(
            clock=float(np.median(clocks[its])) if its.any() else math.nan,
            same_memory=bool(memory[i] > 0 and (memory[its] == memory[i]).all()),
        )
        for i, its in zip(own, theirs, strict=True)
    ]
