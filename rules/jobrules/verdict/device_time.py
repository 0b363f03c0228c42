"""The time of each device: used, lost to a cause, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import IDLE_PERCENT, work_span_us
from jobrules.model import FloatArray, IntArray, Job, Metric, Panel

#: Names of lost time, by the key of the part.
LABELS = {
    "idle-before": "Lost: start-up, before GPU work",
    "idle": "Lost: unexplained, GPU idle",
    "partly": "Lost: unexplained, GPU active",
    "idle-after": "Lost: wind-down",
}


class Samples(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one device, and the time that each stands for."""

    panel: Panel
    column: int
    #: (n,) the rows of the panel that hold them.
    rows: IntArray | slice
    #: (n,) when, percent of use, and microseconds.
    time_us: IntArray
    values: FloatArray
    weight_us: FloatArray

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.panel.node}/{self.panel.devices[self.column]}"

    @property
    def worked(self) -> bool:
        """Whether any is above 0%."""
        return bool((self.values > 0).any())

    @property
    def lost_us(self) -> FloatArray:
        """(n,) a sample of u percent that stands for t microseconds loses t * (1 - u/100)."""
        return self.weight_us * (1 - self.values / 100)


#: Upper bound of the lost time claimed per sample, in microseconds; None if nothing is claimed.
Claim = Callable[[Samples], FloatArray | None]


class Cause(Struct, frozen=True, kw_only=True, eq=False):
    """A reason why time was lost."""

    #: The part's key.
    key: str
    #: The part's name in the legend.
    label: str
    #: Given the part of a node, its devices' panel and (n,) the time that each snapshot stands for: the
    #: claim of that node; none where the cause claims nothing there.
    claim: Callable[[Job, Panel, FloatArray], Claim | None]
    #: When the time was lost, after an amount of hours: "while the CPU was saturated".
    when: str
    #: What the amount of its finding counts, as a sentence without its period.
    counts: str = ""
    #: True if it was recorded for a small part of the job only, so that a small amount says little.
    partial: bool = False


class DeviceTime(Struct, frozen=True, kw_only=True):
    """How the time of one device was spent, in microseconds; each moment counts once."""

    node: str
    device: str
    #: Whether any sample is above 0 %.
    worked: bool
    used: float
    #: Lost by the key of the cause, and without any: ``idle`` below 10 %, ``partly`` above.
    lost: dict[str, float]
    unmeasured: float

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def total(self) -> float:
        """The time from the first to the last record of the job."""
        return self.used + sum(self.lost.values()) + self.unmeasured


def edges(work_us: tuple[int, int], clocks: Clocks) -> tuple[Cause, Cause]:
    """What was lost before the first and after the last work of any device."""
    before, after = (
        partial(_before, work_us[0], clocks.clock_offset_us),
        partial(_after, work_us[1], clocks.clock_offset_us),
    )
    return (
        Cause(key="idle-before", label=LABELS["idle-before"], claim=before, when="in start-up"),
        Cause(key="idle-after", label=LABELS["idle-after"], claim=after, when="in wind-down"),
    )


def _before(first_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    until_us = first_us + late_us.get(panel.node, 0)
    return lambda samples: np.where(samples.time_us < until_us, samples.weight_us, 0.0)


def _after(last_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    since_us = last_us + late_us.get(panel.node, 0)
    return lambda samples: np.where(samples.time_us > since_us, samples.weight_us, 0.0)


def spent_per_device(
    job: Job, metric: Metric = Metric.GPU_UTILIZATION, causes: Sequence[Cause] | None = None
) -> tuple[DeviceTime, ...]:
    """The time from the first to the last record of the job, for every device of a utilization metric.

    Lost time goes to the causes in their order: each takes what it claims of what the causes before it left. By
    default, the causes are start-up and wind-down. Start and end of the job are on the clock of each node.
    """
    clocks = Clocks.of(job)
    if causes is None:
        work = work_span_us(job, metric, clocks)
        causes = edges(work, clocks) if work else ()
    return tuple(job.gathered(_spent, metric, tuple(causes), clocks))


def _spent(part: Job, metric: Metric, causes: Sequence[Cause], clocks: Clocks) -> Iterator[DeviceTime]:
    for panel in part.panels_of(metric):
        span_us = clocks.span_us(panel.node)
        of_all = sample_weights(panel.time_us, *span_us)
        claims = [(one.key, claim) for one in causes if (claim := one.claim(part, panel, of_all.weight_us))]
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            whole = len(time_us) == len(panel.time_us)
            hold = of_all if whole else sample_weights(time_us, *span_us)
            samples = Samples(
                panel=panel,
                column=column,
                rows=slice(None) if whole else np.flatnonzero(~np.isnan(panel.values[:, column])),
                time_us=time_us,
                values=np.ascontiguousarray(values),
                weight_us=hold.weight_us,
            )
            left = samples.lost_us
            used = float(hold.weight_us.sum() - left.sum())
            lost: dict[str, float] = {}
            for key, claim in claims:
                most = claim(samples)
                if most is not None:
                    taken = np.minimum(left, most)
                    lost[key] = float(taken.sum())
                    left = left - taken
            idle = samples.values < IDLE_PERCENT
            lost |= {"idle": float(left[idle].sum()), "partly": float(left[~idle].sum())}
            yield DeviceTime(
                node=panel.node,
                device=device,
                worked=samples.worked,
                used=used,
                lost=lost,
                unmeasured=hold.unmeasured_us,
            )
