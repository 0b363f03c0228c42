"""Energy: energy summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import by_node, gpus
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import HOUR_US, IDLE_PERCENT
from jobrules.model import SECOND_US, Metric, OfGPU
from jobrules.rule import Rule, reason_few_samples
from jobrules.text import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model import Job, RuleResult
#: A larger part is printed as 100.0%.
_ALL = 0.9995


@dataclass(frozen=True, kw_only=True)
class Energy(Rule):
    """Energy summary.

    What it checks
        Power × time of each GPU board, and the part while utilization was below 10%. Unmeasured time adds nothing.

    Why it matters
        Energy costs money, and idle GPUs produce nothing for it.

    What to do
        * Stop jobs with idle GPUs.
        * Compare jobs by energy, not power.
        * Sensors are off by a few percent.

    Details
        GPU boards only, without CPU, fans, and losses of the power supply. Sensors are less exact for work in short
        bursts.
    """

    title: ClassVar[str] = "Energy summary"
    of_gpus: ClassVar[bool] = True
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_POWER,)
    section: ClassVar[str] = "power"
    can_trigger: ClassVar[bool] = False
    of_work: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """``Datapoints`` are the samples of the GPU that has most."""
        clocks = Clocks.of(job)
        found = job.gathered(_energy_of, clocks)
        covered_s = sum(gpu.covered_s for gpu in found)
        if not covered_s:
            return self.not_evaluated(reason_few_samples(1, 1, "samples of GPU power"))
        wh, known_wh = sum(gpu.wh for gpu in found), sum(gpu.known_wh for gpu in found)
        idle_wh = sum(gpu.idle_wh for gpu in found)
        covered = covered_s * SECOND_US / (len(found) * clocks.length_us)
        partly = covered < _ALL
        amount = f"{'at least ' if partly else ''}{_energy(wh)}"
        headline = f"{count(len(found), 'GPU')} took {amount} in {duration(clocks.length_us)}"
        if known_wh > _ALL * wh:
            headline += f", {share(idle_wh / known_wh)} of it while idle"
        elif known_wh:
            headline += f", {_energy(idle_wh)} while idle, of {_energy(known_wh)} with known utilization"
        if partly:
            headline += f"; {share(covered)} of the GPUs' time was measured"
        return self.passed(
            headline,
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


class _GPUEnergy(OfGPU, frozen=True, kw_only=True):
    """Energy of one GPU."""

    samples: int
    #: Seconds that the samples represent.
    covered_s: float
    #: Watt-hours: total, while utilization is known, and while idle.
    wh: float
    known_wh: float
    idle_wh: float
    #: Watts: mean over the covered time, and the highest sample.
    mean_w: float
    highest_w: float

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


def _energy_of(part: Job, clocks: Clocks) -> Iterator[_GPUEnergy]:
    for gpu in gpus(part, clocks, Metric.GPU_POWER):
        time_us, watts = gpu.series(Metric.GPU_POWER)
        weight_us = sample_weights(time_us, *gpu.span_us).weight_us
        # A sample of power is the mean of the last second on most GPUs, not a point of a line: it counts for the time it
        # represents, without a trapezoid between two samples.
        wh = watts * weight_us / HOUR_US
        use = gpu.at(Metric.GPU_UTILIZATION, time_us)
        yield _GPUEnergy(
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
    """For the JSON; empty if utilization is not known; if it is known in part, with the energy the percentage is of."""
    if not known_wh:
        return {}
    figures = {"idle_Wh": round(idle_wh, 3), "idle_percent": round(100 * idle_wh / known_wh, 2)}
    return figures if known_wh > _ALL * wh else figures | {"use_known_Wh": round(known_wh, 3)}


def _energy(wh: float) -> str:
    return f"{wh / 1000:.2f}\u00a0kWh" if wh >= 1000 else f"{wh:.1f}\u00a0Wh"
