"""SlowClock: a GPU works at a lower clock than its peers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.clocks import Clocks
from jobrules.gpu_log import BUSY_PERCENT, by_node, gpus, several
from jobrules.job import Metric
from jobrules.result import DeviceStatus, Measure
from jobrules.rule import Rule, number, percent, too_few
from jobrules.words import count, shown
from jobrules.words import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from jobrules.job import FloatArray, Job
    from jobrules.result import Finding, RuleResult

#: GPUs are of one kind as long as the next larger memory is not larger by more: what a driver keeps
#: for itself differs by less, the models that are sold by more.
_SAME_MEMORY = 1.05
_NO_PEER = "no other GPU of its kind to compare with"


@dataclass(frozen=True, kw_only=True)
class SlowClock(Rule):
    """A GPU works at a lower clock than its peers.

    What it checks
        The median clock of each GPU over the samples at which it was used ``busy`` or more, against
        the median of the same figure of its peers: the other GPUs of the job with as much memory, as far
        as that is known. Triggers below ``threshold`` of it. One peer is enough: of two GPUs the slower
        one is told, though it may be the other that is unusual. Clocks of idle GPUs are left out.

    Why it matters
        Where GPUs train together, the slowest one sets the pace of all.

    What to do
        Compare power limit, temperature and set clocks of this GPU with those of the others
        (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE). A GPU with harder work draws more power and may clock
        lower for that: see that the work is shared out evenly. If it stays behind, take it out.
    """

    title: ClassVar[str] = "A GPU works at a lower clock than its peers"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_CLOCK, Metric.GPU_USE)
    section: ClassVar[str] = "power"

    # Ours. GPUs of one kind differ by 8 % on average in how fast they are (Sinha et al. 2022, arXiv 2208.11035).
    threshold: float = percent(90.0, "a clock below this much of that of its peers is slow")
    busy: float = percent(BUSY_PERCENT, "a GPU works from this use on")
    patience: int = number(30, "samples of a GPU at work that it is compared from", unit="samples", low=1)

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        found = job.gathered(_clocked, Clocks.of(job), self.busy)
        enough = [gpu for gpu in found if gpu.samples >= self.patience]
        theirs = {gpu.name: of_peers for gpu, of_peers in zip(enough, _of_peers(enough), strict=True)}
        compared = [gpu for gpu in enough if theirs[gpu.name] > 0]  # not NaN: it has peers
        ratios = {gpu.name: 100 * gpu.clock / theirs[gpu.name] for gpu in compared}
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
            limit_text=f"the slowest GPU; triggers below {self.threshold:g}\u00a0%",
        )
        if not slow:
            told = f"The slowest of {count(len(compared), 'GPU')} had {in_percent(least)} of its peers' clock"
            return self.passed(told, **facts)
        finding = self._finding([gpu for gpu in compared if gpu.name in slow], theirs, ratios)
        return self.triggered(finding, **facts | {"triggered": len(slow), "violations": len(slow)})

    def _answer(self, gpu: _Clocked, compared: Collection[str], slow: Collection[str]) -> DeviceStatus:
        few = gpu.samples < self.patience
        reason = f"{too_few(gpu.samples, self.patience - 1)} at work" if few else _NO_PEER
        return DeviceStatus.of(gpu.name, reason, int(gpu.name in compared), int(gpu.name in slow))

    def _finding(
        self, slow: Sequence[_Clocked], theirs: Mapping[str, float], ratios: Mapping[str, float]
    ) -> Finding:
        slow = sorted(slow, key=lambda gpu: ratios[gpu.name])
        each = [
            f"{shown(f'{gpu.node} {gpu.device}', 40)} {gpu.clock:.0f}\u00a0MHz, its peers {theirs[gpu.name]:.0f}\u00a0MHz"
            + (f" ({gpu.held_back})" if gpu.held_back else "")
            for gpu in slow
        ]
        least = in_percent(ratios[slow[0].name])
        verb = "works" if len(slow) == 1 else "work"
        return self.finding(
            f"{count(len(slow), 'GPU')} {verb} at a lower clock than the peers, {least} of it at the least",
            f"Median clock at work: {several(each)}.",
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
    #: Share of these samples in percent at which heat and the power limit held it back; none where not known.
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
        at_work = gpu.at(Metric.GPU_USE, time_us) >= busy
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


def _share(holds: FloatArray) -> float | None:
    """How many are above 0, in percent of those that are known; none without any."""
    known = holds[~np.isnan(holds)]
    return round(100 * float(np.mean(known > 0)), 1) if len(known) else None


def _of_peers(found: Sequence[_Clocked]) -> list[float]:
    """For each GPU the median clock of its peers, NaN where it has none."""
    memory = np.array([gpu.memory or 0.0 for gpu in found])
    order = np.argsort(memory, kind="stable")
    kind = np.empty(len(found), np.int64)
    kind[order] = np.append(0, np.cumsum(memory[order][1:] > _SAME_MEMORY * memory[order][:-1]))[: len(found)]
    clocks, own = np.array([gpu.clock for gpu in found]), np.arange(len(found))
    peers = [clocks[(kind == kind[i]) & (own != i)] for i in own]
    return [float(np.median(one)) if len(one) else math.nan for one in peers]
