"""Energy: what the GPUs drew, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import by_node, gpus
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import HOUR_US, IDLE_PERCENT
from jobrules.model import SECOND_US, Metric
from jobrules.rule import Rule
from jobrules.text import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import Job, RuleResult
#: A larger part is printed as 100.0 %.
_ALL = 0.9995


@dataclass(frozen=True, kw_only=True)
class Energy(Rule):
    """The energy that the GPUs took.

    What it checks
        Nothing: it adds up the power of each GPU over the time that its samples stand for, and states how
        much of the job that is. Time without samples is not guessed, so at least this much was taken. It tells
        how much of it was taken while the GPU was used less than 10%. It is that of the GPU boards alone, without
        CPU, fans and the losses of the power supply.

    Why it matters
        Energy is a cost of its own, and what idle GPUs take buys nothing.

    What to do
        End jobs whose GPUs idle. Compare jobs by their energy and not by their power: a faster job may draw
        more and take less. The sensor itself is off by some percent, more for work in short bursts.
    """

    title: ClassVar[str] = "Energy in figures"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_POWER,)
    section: ClassVar[str] = "power"
    can_trigger: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``Datapoints`` are the samples of the GPU that has most."""
        clocks = Clocks.of(job)
        found = job.gathered(_taken, clocks)
        covered_s = sum(gpu.covered_s for gpu in found)
        if not covered_s:
            return self.not_evaluated("power was sampled once, which covers no time")
        wh, known_wh = sum(gpu.wh for gpu in found), sum(gpu.known_wh for gpu in found)
        idle_wh = sum(gpu.idle_wh for gpu in found)
        covered = covered_s * SECOND_US / (len(found) * clocks.length_us)
        told = f"{_energy(wh)} of {count(len(found), 'GPU')} in {duration(clocks.length_us)}"
        if covered < _ALL:
            told += f", or more: {share(covered)} of the GPUs' time was measured"
        if known_wh > _ALL * wh:
            told += f"; {share(idle_wh / known_wh)} of it while they idled"
        elif known_wh:
            told += f"; {_energy(idle_wh)} while they idled, of the {_energy(known_wh)} in whose time use is known"
        return self.passed(
            told,
            datapoints=max(gpu.samples for gpu in found),
            datapoints_per_series={gpu.name: gpu.samples for gpu in found},
            details={
                "kWh": round(wh / 1000, 6),
                "Wh": round(wh, 3),
                "covered_percent": round(100 * covered, 2),
                **_idle(idle_wh, known_wh, wh),
                "GPUs": by_node((gpu.node, gpu.device, gpu.details) for gpu in found),
            },
        )


class _Taken(Struct, frozen=True, kw_only=True):
    """What one GPU took."""

    node: str
    device: str
    samples: int
    #: Seconds that the samples stand for.
    covered_s: float
    #: Watt-hours: in all, of the time in which its use is known, and of that in which it idled.
    wh: float
    known_wh: float
    idle_wh: float
    #: Watts: mean over the covered time, and the highest sample.
    mean_w: float
    highest_w: float

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def details(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            "Wh": round(self.wh, 3),
            "covered_s": round(self.covered_s, 3),
            **_idle(self.idle_wh, self.known_wh, self.wh),
            "mean_W": round(self.mean_w, 2),
            "max_W": round(self.highest_w, 2),
        }


def _taken(part: Job, clocks: Clocks) -> Iterator[_Taken]:
    for gpu in gpus(part, clocks, Metric.GPU_POWER):
        time_us, watts = gpu.series(Metric.GPU_POWER)
        weight_us = sample_weights(time_us, *gpu.span_us).weight_us
        # A reading is the mean of the last second on most GPUs, not a point of a line, so it counts for the
        # time it stands for, and no trapezoid is laid between two. That this time is taken to follow it, as
        # of any other sample, moves the sum by an interval of the first reading less the last one.
        wh = watts * weight_us / HOUR_US
        use = gpu.at(Metric.GPU_UTILIZATION, time_us)
        yield _Taken(
            node=gpu.node,
            device=gpu.device,
            samples=len(watts),
            covered_s=float(weight_us.sum()) / SECOND_US,
            wh=float(wh.sum()),
            known_wh=float(wh[~np.isnan(use)].sum()),
            idle_wh=float(wh[use < IDLE_PERCENT].sum()),
            mean_w=float(np.average(watts, weights=weight_us)) if weight_us.any() else float(watts.mean()),
            highest_w=float(watts.max()),
        )


def _idle(idle_wh: float, known_wh: float, wh: float) -> dict[str, float]:
    """For the JSON; empty where the use is not known, with the energy that the percentage is of where it is in part."""
    if not known_wh:
        return {}
    told = {"idle_Wh": round(idle_wh, 3), "idle_percent": round(100 * idle_wh / known_wh, 2)}
    return told if known_wh > _ALL * wh else told | {"use_known_Wh": round(known_wh, 3)}


def _energy(wh: float) -> str:
    return f"{wh / 1000:.2f}\u00a0kWh" if wh >= 1000 else f"{wh:.1f}\u00a0Wh"
