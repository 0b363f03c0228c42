"""SlowClock: a GPU works at a lower clock than its peers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import BUSY_PERCENT, by_node, gpus, join_first
from jobrules.model import DeviceStatus, Measure, Metric, Severity
from jobrules.rule import Rule, number, percent, reason_few_samples
from jobrules.text import count, escape_name
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from jobrules.model import Finding, FloatArray, Job, RuleResult

#: GPUs are taken for one kind as long as the next larger memory is not larger by more: what a driver keeps
#: for itself differs by less. So do some models: an A100 of 80 GB has 0.4 % more than an H100.
_SAME_MEMORY = 1.05
_NO_PEER = "no other GPU of its kind to compare with"


@dataclass(frozen=True, kw_only=True)
class SlowClock(Rule):
    """A GPU works at a lower clock than its peers.

    What it checks
        The median clock of each GPU over the samples at which it was used ``min_utilization`` or more, against
        the median of the same figure of its peers: the other GPUs of the job with as much memory, give or
        take 5%, as far as that is known. Triggers below ``threshold`` of it. Which model a GPU is, is not
        known: a warning where all its peers have exactly as much memory, else for information. One peer is
        enough: of two GPUs the slower one is told, though it may be the other that is unusual. Clocks of
        idle GPUs are left out.

    Why it matters
        Where GPUs train together, the slowest one sets the pace of all.

    What to do
        See that the GPUs are of one model (nvidia-smi -L): another model has another clock. Compare power
        limit, temperature and set clocks with those of the others
        (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE). A GPU with harder work draws more power and may clock
        lower for that: see that the work is shared out evenly. If it stays behind, take it out.
    """

    title: ClassVar[str] = "A GPU works at a lower clock than its peers"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_CLOCK, Metric.GPU_UTILIZATION)
    section: ClassVar[str] = "power"

    # Ours. GPUs of one kind differ by 8 % on average in how fast they are (Sinha et al. 2022, arXiv 2208.11035).
    threshold: float = percent(90.0, "a clock below this much of that of its peers is slow")
    min_utilization: float = percent(BUSY_PERCENT, "a GPU works from this use on")
    patience: int = number(30, "samples of a GPU at work that it is compared from", unit="samples", low=1)

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
            why = next((r for r in reasons if r != _NO_PEER), _NO_PEER)
            return self.not_evaluated(why if len(found) > 1 else _NO_PEER, **facts)
        least = min(ratios.values())
        facts["measure"] = Measure(
            value=round(least, 1),
            limits=(self.threshold,),
            scale=max(100.0, least),
            unit="% of the peers' clock",
            limit_text=f"the slowest GPU; triggers below {self.threshold:g}%",
        )
        if not slow:
            told = f"The slowest of {count(len(compared), 'GPU')} had {in_percent(least)} of its peers' clock"
            return self.passed(told, **facts)
        finding = self._finding([gpu for gpu in compared if gpu.name in slow], peers, ratios)
        return self.triggered(finding, **facts | {"triggered": len(slow), "violations": len(slow)})

    def _answer(self, gpu: _Clocked, compared: Collection[str], slow: Collection[str]) -> DeviceStatus:
        few = gpu.samples < self.patience
        reason = f"{reason_few_samples(gpu.samples, self.patience - 1)} at work" if few else _NO_PEER
        return DeviceStatus.of(gpu.name, reason, int(gpu.name in compared), int(gpu.name in slow))

    def _finding(
        self, slow: Sequence[_Clocked], peers: Mapping[str, _Peers], ratios: Mapping[str, float]
    ) -> Finding:
        slow = sorted(slow, key=lambda gpu: ratios[gpu.name])
        each = [
            f"{escape_name(f'{gpu.node} {gpu.device}', 40)} {gpu.clock:.0f}\u00a0MHz, its peers {peers[gpu.name].clock:.0f}\u00a0MHz"
            + (f" ({gpu.held_back})" if gpu.held_back else "")
            for gpu in slow
        ]
        least = in_percent(ratios[slow[0].name])
        verb = "works" if len(slow) == 1 else "work"
        alike = all(peers[gpu.name].alike for gpu in slow)
        return self.finding(
            f"{count(len(slow), 'GPU')} {verb} at a lower clock than the peers, {least} of it at the least",
            f"Median clock at work: {join_first(each)}. "
            + (
                "Their memory is the same; their models are not known."
                if alike
                else "Whether they are of one model is not known: their memory is not known to be the same."
            ),
            severity=Severity.WARNING if alike else Severity.INFO,
            devices=tuple(gpu.name for gpu in slow),
        )


class _Clocked(Struct, frozen=True, kw_only=True):
    """The clock of one GPU at work."""

    node: str
    device: str
    #: At which it worked and a clock was sampled; and the median of these clocks in MHz, NaN without any.
    samples: int
    clock: float
    #: Bytes of memory; none where that is not known.
    memory: float | None
    #: Share of these samples in percent for which heat and the power limit held it back; none where not known.
    heat: float | None
    capped: float | None

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def held_back(self) -> str:
        """What held its clock, as far as that is known."""
        told = ((self.capped, "power limit"), (self.heat, "heat"))
        return ", ".join(f"{why} {in_percent(part)} of it" for part, why in told if part)

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
    """Mean of the percentages that are known; none without any."""
    known = part[~np.isnan(part)]
    return round(float(np.mean(known)), 1) if len(known) else None


class _Peers(Struct, frozen=True, kw_only=True):
    """The peers of one GPU."""

    #: Their median clock in MHz, NaN without any.
    clock: float
    #: Whether all are known to have exactly as much memory as it.
    alike: bool


def _peers(found: Sequence[_Clocked]) -> list[_Peers]:
    """For each GPU."""
    memory = np.array([gpu.memory or 0.0 for gpu in found])
    order = np.argsort(memory, kind="stable")
    kind = np.empty(len(found), np.int64)
    kind[order] = np.append(0, np.cumsum(memory[order][1:] > _SAME_MEMORY * memory[order][:-1]))[: len(found)]
    clocks, own = np.array([gpu.clock for gpu in found]), np.arange(len(found))
    theirs = [(kind == kind[i]) & (own != i) for i in own]
    return [
        _Peers(
            clock=float(np.median(clocks[its])) if its.any() else math.nan,
            alike=bool(memory[i] > 0 and (memory[its] == memory[i]).all()),
        )
        for i, its in zip(own, theirs, strict=True)
    ]
