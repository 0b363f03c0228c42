"""How much of the devices' time was used, and how a node's metrics are distributed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, Struct

from jobrules.clocks import Clocks
from jobrules.coverage import held
from jobrules.job import SECOND_US, FloatArray, IntArray, Job, Metric, span_of
from jobrules.result import Part, TimeUse, UsageRow
from jobrules.rounding import apportion, digits_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobrules.job import Panel

HOUR_US = 3600 * SECOND_US
#: Below this a device counts as idle, as in the vendor's split of GPU samples (under 10, 10 to 90, over 90).
IDLE_PERCENT = 10.0


def work_span_us(
    job: Job, metric: Metric = Metric.GPU_USE, clocks: Clocks | None = None
) -> tuple[int, int] | None:
    """Times of the first and the last sample above 0 % of any device; none if there is none.

    As written, or with the clocks that differ set right.
    """
    late_us = clocks.late_us if clocks else {}
    return span_of(
        (first - late_us.get(node, 0), last - late_us.get(node, 0))
        for node, first, last in job.gathered(_worked_us, metric)
    )


def _worked_us(part: Job, metric: Metric) -> Iterator[tuple[str, int, int]]:
    for panel in part.panels_of(metric):
        rows = np.flatnonzero((panel.values > 0).any(axis=1))  # NaN > 0 is false
        if len(rows):
            yield panel.node, int(panel.time_us[rows[0]]), int(panel.time_us[rows[-1]])


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
        """Whether any is above 0 %."""
        return bool((self.values > 0).any())

    @property
    def lost_us(self) -> FloatArray:
        """(n,) a sample of u percent that stands for t microseconds loses t * (1 - u/100)."""
        return self.weight_us * (1 - self.values / 100)


#: How much of each sample's lost time a cause may claim at most, in microseconds; none for nothing.
Claim = Callable[[Samples], FloatArray | None]


class Cause(Struct, frozen=True, kw_only=True, eq=False):
    """Why time was lost."""

    #: The part's key.
    key: str
    #: The part's name in the legend.
    label: str
    #: Given the part of a node, its devices' panel and (n,) the time that each snapshot stands for: the
    #: claim of that node; none where the cause claims nothing there.
    claim: Callable[[Job, Panel, FloatArray], Claim | None]
    #: What the amount of its finding counts, as a sentence.
    counts: str = ""
    #: Whether it was recorded for a small part of the job only, so that a small amount says little.
    partial: bool = False


class Spent(Struct, frozen=True, kw_only=True):
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
    before, after = partial(_before, work_us[0], clocks.late_us), partial(_after, work_us[1], clocks.late_us)
    return (
        Cause(key="idle-before", label=_LABELS["idle-before"], claim=before),
        Cause(key="idle-after", label=_LABELS["idle-after"], claim=after),
    )


def _before(first_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    until_us = first_us + late_us.get(panel.node, 0)
    return lambda samples: np.where(samples.time_us < until_us, samples.weight_us, 0.0)


def _after(last_us: int, late_us: Mapping[str, int], _: Job, panel: Panel, __: FloatArray) -> Claim:
    since_us = last_us + late_us.get(panel.node, 0)
    return lambda samples: np.where(samples.time_us > since_us, samples.weight_us, 0.0)


def spent_per_device(
    job: Job, metric: Metric = Metric.GPU_USE, causes: Sequence[Cause] | None = None
) -> tuple[Spent, ...]:
    """The time from the first to the last record of the job, for every device of a utilisation metric.

    Lost time goes to the causes in their order: each takes what it claims of what the ones before it
    left. Without causes given these are the start and the end of the job. Start and end of the job
    are told on the clock of each node.
    """
    clocks = Clocks.of(job)
    if causes is None:
        work = work_span_us(job, metric, clocks)
        causes = edges(work, clocks) if work else ()
    return tuple(job.gathered(_spent, metric, tuple(causes), clocks))


def _spent(part: Job, metric: Metric, causes: Sequence[Cause], clocks: Clocks) -> Iterator[Spent]:
    for panel in part.panels_of(metric):
        span_us = clocks.span_us(panel.node)
        of_all = held(panel.time_us, *span_us)
        claims = [(one.key, claim) for one in causes if (claim := one.claim(part, panel, of_all.weight_us))]
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            whole = len(time_us) == len(panel.time_us)
            hold = of_all if whole else held(time_us, *span_us)
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
            yield Spent(
                node=panel.node,
                device=device,
                worked=samples.worked,
                used=used,
                lost=lost,
                unmeasured=hold.unmeasured_us,
            )


def time_use(job: Job) -> TimeUse | None:
    """How the time of all GPUs was spent, or of all CPU cores where no GPU was sampled.

    None where nothing was sampled, or a single snapshot, which covers no time.
    """
    metric, device = (Metric.GPU_USE, "GPU") if job.gpu_count else (Metric.CPU_USE, "CPU")
    labels = _LABELS if device == "GPU" else _LABELS | _CPU_LABELS
    return in_parts(job, device, spent_per_device(job, metric), labels)


def in_parts(job: Job, device: str, spent: Sequence[Spent], labels: Mapping[str, str]) -> TimeUse | None:
    """The time of all devices, in parts that add up as printed; the lost ones in the order of ``labels``."""
    total_hours = len(spent) * Clocks.of(job).length_us / HOUR_US
    if not total_hours or not job.covers_time:
        return None
    sums = {"used": sum(one.used for one in spent)}
    sums |= {key: sum(one.lost.get(key, 0.0) for one in spent) for key in labels}
    sums["unmeasured"] = sum(one.unmeasured for one in spent)
    digits = digits_for(total_hours)
    whole = round(total_hours, digits)
    hours = apportion(tuple(sums.values()), whole, digits)
    percents = apportion(tuple(sums.values()), 100.0, 1)
    return TimeUse.of_parts(
        device=device,
        count=len(spent),
        hours=whole,
        digits=digits,
        parts=tuple(
            Part(
                key=key,
                label=labels.get(key) or _OTHER_LABELS[key],
                role=_ROLES.get(key, "lost"),
                hours=h,
                percent=p,
            )
            for key, h, p in zip(sums, hours, percents, strict=True)
            if h or p or key == "used"
        ),
        unknown=(job.gpus_unknown if device == "GPU" else 0) or UNSET,
    )


_ROLES = {"used": "used", "unmeasured": "unknown"}
_OTHER_LABELS = {"used": "Used", "unmeasured": "Not measured"}
_LABELS = {
    "idle-before": "Lost before the first GPU work",
    "idle": "Unexplained: idle, under 10\u00a0%",
    "partly": "Unexplained: partly used",
    "idle-after": "Lost after the last GPU work",
}
_CPU_LABELS = {
    "idle-before": "Free before the first work",
    "idle": "Free: core idle, under 10\u00a0%",
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
        if not np.array_equal(common, panel.snapshot):
            common = np.intersect1d(common, panel.snapshot, assume_unique=True)
    if not len(common):
        return None
    rows = [
        slice(None) if len(common) == len(panel.snapshot) else np.searchsorted(panel.snapshot, common)
        for panel in panels
    ]
    values = np.sum([panel.mean[r] for panel, r in zip(panels, rows, strict=True)], axis=0)
    return panels[0].time_us[rows[0]], np.asarray(values, dtype=np.float64)


def usage_rows(job: Job) -> tuple[UsageRow, ...]:
    """The utilisation table: for each node GPU, CPU, busiest core, I/O wait, memories, network."""
    return tuple(job.gathered(_usage_rows))


_LISTED = (
    Metric.GPU_USE,
    Metric.CPU_USE,
    Metric.IO_WAIT,
    Metric.MEMORY,
    Metric.GPU_MEMORY,
    Metric.GPU_MEMORY_USED,
)


def _usage_rows(part: Job) -> Iterator[UsageRow]:
    (node,) = part.nodes
    for metric in _LISTED:
        panel = part.panel(node, metric)
        if panel is None:
            continue
        yield _row(node, metric.label, metric.unit, panel.mean)
        if metric is Metric.CPU_USE and len(panel.devices) > 1:
            busiest = np.asarray(np.nanmax(panel.values, axis=1))
            yield _row(node, "CPU, busiest core", metric.unit, busiest)
    network = summed(part, node, ALGORITHM)
    if network:
        yield _row(node, "Network", Metric.NETWORK_RECEIVE.unit, network[1])
