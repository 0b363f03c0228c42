"""How much of the devices' time was used, and how a node's metrics are distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobrules.coverage import held
from jobrules.job import SECOND_US, FloatArray, IntArray, Job, Metric
from jobrules.result import Part, TimeUse, UsageRow
from jobrules.rounding import apportion, digits_for

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_US = 3600 * SECOND_US
#: Below this a device counts as idle, as in the vendor's split of GPU samples (under 10, 10 to 90, over 90).
IDLE_PERCENT = 10.0


def work_span_us(job: Job, metric: Metric = Metric.GPU_USE) -> tuple[int, int] | None:
    """Times of the first and the last sample above 0 % of any device; none if there is none."""
    first, last = [], []
    for panel in job.panels_of(metric):
        rows = np.flatnonzero((panel.values > 0).any(axis=1))  # NaN > 0 is false
        if len(rows):
            first.append(int(panel.time_us[rows[0]]))
            last.append(int(panel.time_us[rows[-1]]))
    return (min(first), max(last)) if first else None


@dataclass(frozen=True, kw_only=True)
class Spent:
    """How the time of one device was spent, in microseconds; each moment counts once."""

    node: str
    device: str
    #: Whether any sample is above 0 %.
    worked: bool
    used: float
    #: Lost before the first and after the last work of any device of the job.
    idle_before: float
    idle_after: float
    #: Lost in between: below 10 % and above.
    idle: float
    partly: float
    unmeasured: float

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def total(self) -> float:
        """The time from the first to the last record of the job."""
        return self.used + self.idle_before + self.idle_after + self.idle + self.partly + self.unmeasured


def spent_per_device(job: Job, metric: Metric = Metric.GPU_USE) -> tuple[Spent, ...]:
    """The time from the first to the last record of the job, for every device of a utilisation metric.

    A sample of u percent that stands for t seconds gives t*u/100 used, the rest is lost.
    """
    start_us, end_us = job.span_us
    first_us, last_us = work_span_us(job, metric) or (start_us, end_us)
    result = []
    for panel in job.panels_of(metric):
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            hold = held(time_us, start_us, end_us)
            lost = hold.weight_us * (1 - values / 100)
            before, after = time_us < first_us, time_us > last_us
            idle = ~before & ~after & (values < IDLE_PERCENT)
            result.append(
                Spent(
                    node=panel.node,
                    device=device,
                    worked=bool((values > 0).any()),
                    used=float(hold.weight_us.sum() - lost.sum()),
                    idle_before=float(lost[before].sum()),
                    idle_after=float(lost[after].sum()),
                    idle=float(lost[idle].sum()),
                    partly=float(lost[~before & ~after & ~idle].sum()),
                    unmeasured=hold.unmeasured_us,
                )
            )
    return tuple(result)


def time_use(job: Job) -> TimeUse | None:
    """How the time of all GPUs was spent, or of all CPU cores where no GPU was sampled.

    None where nothing was sampled, or a single snapshot, which covers no time.
    """
    metric, device = (Metric.GPU_USE, "GPU") if job.gpu_count else (Metric.CPU_USE, "CPU")
    devices = spent_per_device(job, metric)
    start_us, end_us = job.span_us
    total_hours = len(devices) * (end_us - start_us) / HOUR_US
    if not total_hours or not job.covers_time:
        return None
    spent = {key: sum(getattr(d, key.replace("-", "_")) for d in devices) for key in _KEYS}
    digits = digits_for(total_hours)
    hours = apportion(tuple(spent.values()), total_hours, digits)
    percents = apportion(tuple(spent.values()), 100.0, 1)
    labels = _LABELS if device == "GPU" else _LABELS | _CPU_LABELS
    return TimeUse(
        device=device,
        count=len(devices),
        hours=round(total_hours, digits),
        digits=digits,
        parts=tuple(
            Part(key=key, label=labels[key], role=_ROLES.get(key, "lost"), hours=h, percent=p)
            for key, h, p in zip(spent, hours, percents, strict=True)
            if h or p or key == "used"
        ),
    )


_KEYS = ("used", "idle-before", "idle", "partly", "idle-after", "unmeasured")
_ROLES = {"used": "used", "unmeasured": "unknown"}
_LABELS = {
    "used": "Used",
    "idle-before": "Lost before the first GPU work",
    "idle": "Lost: idle, under 10 %",
    "partly": "Lost: partly used",
    "idle-after": "Lost after the last GPU work",
    "unmeasured": "Not measured",
}
_CPU_LABELS = {
    "idle-before": "Free before the first work",
    "idle": "Free: core idle, under 10 %",
    "partly": "Free: core partly used",
    "idle-after": "Free after the last work",
}


def _row(node: str, label: str, unit: str, values: FloatArray) -> UsageRow:
    p50, p90, p95, p99 = (float(q) for q in np.quantile(values, (0.5, 0.9, 0.95, 0.99)))
    return UsageRow(
        node=node,
        label=label,
        unit=unit,
        n=len(values),
        min=float(values.min()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(values.max()),
        mean=float(values.mean()),
    )


#: Received and transmitted, by the training process and by the platform.
ALGORITHM = (Metric.NETWORK_RECEIVE, Metric.NETWORK_TRANSMIT)
PLATFORM = (Metric.PLATFORM_RECEIVE, Metric.PLATFORM_TRANSMIT)


def summed(job: Job, node: str, metrics: Sequence[Metric]) -> tuple[IntArray, FloatArray] | None:
    """Times and device means of a metric, or the sum of several over the snapshots that have all of them.

    A metric that was not sampled at all is left out; none where nothing remains.
    """
    panels = [panel for metric in metrics if (panel := job.panel(node, metric))]
    if not panels:
        return None
    common = panels[0].snapshot
    for panel in panels[1:]:
        common = np.intersect1d(common, panel.snapshot, assume_unique=True)
    if not len(common):
        return None
    rows = [np.searchsorted(panel.snapshot, common) for panel in panels]
    values = np.sum([panel.mean[r] for panel, r in zip(panels, rows, strict=True)], axis=0)
    return panels[0].time_us[rows[0]], np.asarray(values, dtype=np.float64)


def usage_rows(job: Job) -> tuple[UsageRow, ...]:
    """The utilisation table: for each node GPU, CPU, busiest core, I/O wait, memories, network."""
    rows = []
    for node in job.nodes:
        for metric in (
            Metric.GPU_USE,
            Metric.CPU_USE,
            Metric.IO_WAIT,
            Metric.MEMORY,
            Metric.GPU_MEMORY,
        ):
            panel = job.panel(node, metric)
            if panel is None:
                continue
            rows.append(_row(node, metric.label, metric.unit, panel.mean))
            if metric is Metric.CPU_USE and len(panel.devices) > 1:
                busiest = np.asarray(np.nanmax(panel.values, axis=1))
                rows.append(_row(node, "CPU, busiest core", metric.unit, busiest))
        network = summed(job, node, ALGORITHM)
        if network:
            rows.append(_row(node, "Network", Metric.NETWORK_RECEIVE.unit, network[1]))
    return tuple(rows)
