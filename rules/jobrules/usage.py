"""How much of the devices' time was used, and how a node's metrics are distributed."""

from __future__ import annotations

import numpy as np

from jobrules.coverage import held
from jobrules.job import SECOND_US, FloatArray, IntArray, Job, Metric, Panel
from jobrules.result import Part, TimeUse, UsageRow
from jobrules.rounding import apportion, digits_for

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


def time_use(job: Job) -> TimeUse | None:
    """How the time of all GPUs was spent, or of all CPU cores where no GPU was sampled.

    Device time is devices times the time from the first to the last record of the job. A sample of
    u percent that stands for t seconds gives t*u/100 used, the rest is lost; each moment is lost
    once: before the first work of any device, after the last, idle (below 10 %), or partly used.
    None where nothing was sampled, or a single moment.
    """
    metric, device = (Metric.GPU_USE, "GPU") if job.gpu_count else (Metric.CPU_USE, "CPU")
    panels = job.panels_of(metric)
    start_us, end_us = job.span_us
    count = sum(len(p.devices) for p in panels)
    total_us = float(count * (end_us - start_us))
    if not total_us:
        return None
    first_us, last_us = work_span_us(job, metric) or (start_us, end_us)
    spent = dict.fromkeys(("used", "idle-before", "idle", "partly", "idle-after", "unmeasured"), 0.0)
    for panel in panels:
        for column in range(len(panel.devices)):
            time_us, values = panel.series(column)
            hold = held(time_us, start_us, end_us)
            lost = hold.weight_us * (1 - values / 100)
            before, after = time_us < first_us, time_us > last_us
            idle = ~before & ~after & (values < IDLE_PERCENT)
            spent["used"] += float(hold.weight_us.sum() - lost.sum())
            spent["idle-before"] += float(lost[before].sum())
            spent["idle-after"] += float(lost[after].sum())
            spent["idle"] += float(lost[idle].sum())
            spent["partly"] += float(lost[~before & ~after & ~idle].sum())
            spent["unmeasured"] += hold.unmeasured_us
    total_hours = total_us / SECOND_US / 3600
    digits = digits_for(total_hours)
    hours = apportion(tuple(spent.values()), total_hours, digits)
    percents = apportion(tuple(spent.values()), 100.0, 1)
    labels = _LABELS | ({"used": "Used"} if device == "GPU" else _CPU_LABELS)
    return TimeUse(
        device=device,
        count=count,
        hours=round(total_hours, digits),
        digits=digits,
        parts=tuple(
            Part(key=key, label=labels[key], role=_ROLES.get(key, "lost"), hours=h, percent=p)
            for (key, amount), h, p in zip(spent.items(), hours, percents, strict=True)
            if amount > 0 or key == "used"
        ),
    )


_ROLES = {"used": "used", "unmeasured": "unknown"}
_LABELS = {
    "idle-before": "Lost before the first GPU work",
    "idle": "Lost: idle, under 10 %",
    "partly": "Lost: partly used",
    "idle-after": "Lost after the last GPU work",
    "unmeasured": "Not measured",
}
_CPU_LABELS = {
    "used": "Used",
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


def total(panels: list[Panel]) -> tuple[IntArray, FloatArray]:
    """Sum of several metrics of one node over the snapshots that have all of them."""
    common = panels[0].snapshot
    for panel in panels[1:]:
        common = np.intersect1d(common, panel.snapshot, assume_unique=True)
    rows = [np.searchsorted(p.snapshot, common) for p in panels]
    values = np.sum([p.mean[r] for p, r in zip(panels, rows, strict=True)], axis=0)
    return panels[0].time_us[rows[0]], np.asarray(values, dtype=np.float64)


def network(job: Job, node: str) -> tuple[IntArray, FloatArray] | None:
    """Times and bytes per second of the training process, received and transmitted together."""
    both = [job.panel(node, m) for m in (Metric.NETWORK_RECEIVE, Metric.NETWORK_TRANSMIT)]
    present = [p for p in both if p]
    if not present:
        return None
    time_us, values = total(present)
    return (time_us, values) if len(values) else None


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
        traffic = network(job, node)
        if traffic:
            rows.append(_row(node, "Network", Metric.NETWORK_RECEIVE.unit, traffic[1]))
    return tuple(rows)
