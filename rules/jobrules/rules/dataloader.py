"""Dataloader: too few or too many loader processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.causes.data_loading import of_data_loading, waiting_in_loop
from jobrules.measures.data_loading import ENOUGH_PERCENT, Loading
from jobrules.measures.histograms import growing
from jobrules.measures.minutes import Windows
from jobrules.measures.rows import narrow
from jobrules.model import (
    SECOND_US,
    DeviceStatus,
    Measure,
    Metric,
    Reason,
    ReasonKind,
    RuleResult,
)
from jobrules.rule import Role, Rule, not_recorded
from jobrules.rule import number as parameter
from jobrules.text import count, without_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Events, IntArray, Job, LoopFacts
    from jobrules.model.claims import Cause

#: Seconds with data loading before the first check of a node.
PATIENCE_S = 10
_BINS = 100
#: Keys of ``Loading.settings``.
_SETTING = ("iterator", "num_workers", "pin_memory", "fetches")


@dataclass(frozen=True, kw_only=True)
class Dataloader(Rule):
    """Too few or too many loader processes.

    What it checks
        The median number of active loader processes so far, in percent of the node's cores. Triggers below
        ``min_threshold`` or above ``max_threshold``.

    Why it matters
        Too few: the GPU waits while cores are free. Too many: loaders compete with training for cores and memory.

    What to do
        * Set ``num_workers`` so that all ranks of a node together have about one loader process per core.

    Details
        Checked once per minute, after 10 seconds with data loading. If no loader process was recorded, the number that
        the loader was set up with counts; loading in the training process counts as one. For TensorFlow, threads are
        counted, which is experimental.
    """

    title: ClassVar[str] = "Too few or too many loader processes"
    role: ClassVar[Role] = Role.CAUSE

    min_threshold: float = parameter(
        ENOUGH_PERCENT, "loader processes below this are too few", unit="% of cores"
    )
    max_threshold: float = parameter(200.0, "loader processes above this are too many", unit="% of cores")

    def __post_init__(self) -> None:
        """Refuse thresholds that no number of loaders can meet."""
        if self.min_threshold > self.max_threshold:
            raise ValueError(
                f"Dataloader.min_threshold = {self.min_threshold:g} is above max_threshold = {self.max_threshold:g}"
            )

    def check(self, job: Job) -> RuleResult:
        """``violations`` counts checks of the worst node, ``triggered`` is 0 or 1."""
        grid = Windows.of(job)
        nodes = [node for node in job.each(self._checked, grid) if node]
        if not nodes:
            return self.not_evaluated(Reason(kind=ReasonKind.NOT_RECORDED, what="loader events", verb="were"))
        # The worst node violates if any does; of several, the one farthest outside the thresholds.
        worst = max(nodes, key=lambda node: (len(node.hits) > 0, node.judged > 0, self._outside(node)))
        facts: dict[str, Any] = {
            "datapoints": sum(node.datapoints for node in nodes),
            "counted": "checks",
            "devices": tuple(node.answer for node in nodes),
            "details": _details(nodes, worst),
            "evaluated": sum(node.judged for node in nodes),
            "violating": sum(len(node.hits) for node in nodes),
        }
        if not facts["evaluated"]:
            return self.not_evaluated(max(nodes, key=lambda node: node.seconds).missing, **facts)
        facts["measure"] = Measure(
            value=round(100 * worst.median / worst.cores, 1),
            limits=(self.min_threshold, self.max_threshold),
            bad="outside",
            scale=max(1.25 * self.max_threshold, 100 * worst.median / worst.cores),
            unit="% of cores",
            limit_text=f"thresholds {self.min_threshold:g} and {self.max_threshold:g}%",
        )
        if not facts["violating"]:
            limit = without_check(sum(not node.judged for node in nodes), "node")
            counted = ", each counted as a loader" if worst.loads_itself else ""
            within = f"{counted}: within {self.min_threshold:g} to {self.max_threshold:g}% of the cores"
            return self.passed(f"{worst.summary}{within}{limit}", **facts)
        return self.triggered(
            f"{worst.summary}{self._state(worst)}",
            violations=len(worst.hits),
            first_us=grid.begin_us(worst.hits[0]),
            last_us=min(grid.begin_us(worst.hits[-1] + 1), job.span_us[1]),
            **facts,
        )

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """Waiting for batches."""
        return of_data_loading(self, job, result)

    def waiting_in_loop(self, facts: LoopFacts, cores: int, processes: int) -> Cause:
        """The cause in a loop of which only a few numbers are known; ``cores`` and ``processes`` are of a node."""
        return waiting_in_loop(self, facts, cores, processes)

    def _checked(self, part: Job, grid: Windows) -> _Node | None:
        """None if no data loading was recorded."""
        (name,) = part.nodes
        loading = Loading.of(part.events, name)
        if loading is None:
            return None
        cpu = part.panel(name, Metric.CPU_UTILIZATION)
        cores = len(cpu.devices) if cpu else 0
        busy = loading.busy
        seconds = busy.seconds
        windows, so_far, medians = medians_so_far(loading, grid)
        ready = (so_far > PATIENCE_S) if cores else np.zeros(len(windows), np.bool_)
        low, high = cores * self.min_threshold / 100, cores * self.max_threshold / 100
        hits = windows[ready & ((medians < low) | (medians > high))]
        missing = Reason(kind=ReasonKind.TOO_SHORT, what="data loading", needed=PATIENCE_S + 1, have=seconds)
        if not cores:
            missing = not_recorded(Metric.CPU_UTILIZATION)
        elif not seconds:
            what = "threads of the data pipeline" if loading.pipeline else "number of loader processes"
            missing = Reason(kind=ReasonKind.NOT_RECORDED, what=what)
        fetches, workers = len(loading.fetches), len(loading.workers)
        return _Node(
            name=name,
            pipeline=loading.pipeline,
            prefetch=loading.prefetch,
            # TensorFlow's fetches are among the work of its threads.
            datapoints=workers if loading.pipeline else fetches + workers,
            fetches_us=loading.fetches.duration_us,
            loaders=[dict(zip(_SETTING, one, strict=True)) for one in loading.settings],
            tables={} if loading.pipeline else _tables(loading),
            cores=cores,
            seconds=seconds,
            median=int(medians[-1]) if seconds else 0,
            mean=busy.mean if seconds else 0.0,
            judged=int(ready.sum()),
            hits=hits,
            missing=missing,
        )

    def _state(self, node: _Node) -> str:
        few = node.median < node.cores * self.min_threshold / 100
        many = node.median > node.cores * self.max_threshold / 100
        if few and node.loads_itself:
            return ", without a loader process"
        return ": too few" if few else ": too many" if many else " at the end, too few or too many before"

    def _outside(self, node: _Node) -> float:
        """How far a node's loaders are outside the thresholds at the end, in percent of its cores; below 0 if inside."""
        part = 100 * node.median / max(1, node.cores)
        return max(self.min_threshold - part, part - self.max_threshold)


def medians_so_far(loading: Loading, grid: Windows) -> tuple[IntArray, IntArray, IntArray]:
    """Windows with data loading, and at the end of each: seconds so far and their median of loaders.

    A median between two whole numbers is rounded down.
    """
    window, lasted, loaders = loading.busy.in_columns(grid.start_us // SECOND_US, grid.width_us // SECOND_US)
    values, code = np.unique(loaders, return_inverse=True)
    windows, at = np.unique(window, return_index=True)
    ends = np.append(at[1:], len(window)) if len(windows) else at
    seconds, medians = np.empty(len(windows), np.int64), np.empty(len(windows), np.int64)
    for part, histograms in growing(code, len(values), ends, weight=lasted):
        ranks = np.cumsum(histograms, axis=1)
        total = ranks[:, -1]
        lower = np.argmax(ranks > (total[:, None] - 1) // 2, axis=1)
        upper = np.argmax(ranks > total[:, None] // 2, axis=1)
        seconds[part], medians[part] = total, (values[lower] + values[upper]) // 2
    return windows, seconds, medians


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    name: str
    #: True if the loaders are threads of TensorFlow's data pipeline; True if that fetched ahead.
    pipeline: bool
    prefetch: bool
    #: Loader events.
    datapoints: int
    #: How long each fetch took.
    fetches_us: IntArray
    #: The loaders by class and setting, those with most fetches first.
    loaders: list[dict[str, Any]]
    #: Spreads of other times.
    tables: dict[str, dict[str, float]]
    cores: int
    #: Seconds with a known number of loaders, and median and mean of that number.
    seconds: int
    median: int
    mean: float
    #: Windows checked, and numbers of those that violate.
    judged: int
    hits: IntArray
    #: Reason of a node without a check.
    missing: Reason

    @property
    def loaders_noun(self) -> str:
        return "loader threads" if self.pipeline else "loader processes"

    @property
    def loads_itself(self) -> bool:
        """True if the training processes load their batches, so that there is no loader process."""
        return bool(self.loaders) and all(one["num_workers"] == 0 for one in self.loaders)

    @property
    def summary(self) -> str:
        if self.loads_itself:
            load = "loads its batches itself" if self.median == 1 else "load their batches themselves"
            return f"{count(self.median, 'training process', 'training processes')} {load}"
        one = "loader thread" if self.pipeline else "loader process"
        return f"{count(self.median, one, self.loaders_noun)} for {count(self.cores, 'core')}"

    @property
    def answer(self) -> DeviceStatus:
        return DeviceStatus.of(self.name, self.missing, self.judged, len(self.hits))

    @property
    def main_loader(self) -> dict[str, Any] | None:
        """The loader with most fetches, if any was set up."""
        return next(iter(self.loaders), None)

    @property
    def details(self) -> dict[str, Any]:
        block: dict[str, Any] = {
            "cores": self.cores,
            "dataloaders": self.median,
            "dataloaders_mean": self.mean,
            "seconds": self.seconds,
            "violations": len(self.hits),
        }
        return block if self.pipeline else block | {"loaders": self.loaders} | self.tables


def _fetch_times(fetches_us: IntArray) -> dict[str, Any]:
    """Quantiles and histogram in seconds, by SageMaker Debugger's keys; empty without a fetch."""
    if not len(fetches_us):
        return {}
    took_s = fetches_us / SECOND_US
    p25, p50, p95 = np.quantile(took_s, (0.25, 0.5, 0.95)).tolist()
    low, high = float(took_s.min()), float(took_s.max())
    # Equal times get an axis around them that does not reach below 0.
    axis = (low, high) if high > low else (0.999 * low, 1.001 * high or 1e-6)
    probs, edges = np.histogram(took_s, bins=_BINS, range=axis)
    return {"p25": p25, "p50": p50, "p95": p95, "probs": probs.tolist(), "binedges": edges.tolist()}


def _tables(loading: Loading) -> dict[str, dict[str, float]]:
    tables = {
        "worker_lifetime": loading.workers.duration_us,
        "initialization": loading.set_up.duration_us,
        "batch_time": between_fetches(loading.fetches),
    }
    return {name: _spread(times_us) for name, times_us in tables.items() if len(times_us)}


def _details(nodes: Sequence[_Node], worst: _Node) -> dict[str, Any]:
    """SageMaker Debugger's keys for the worst node, with the fetches of all nodes, and a block for every node."""
    details: dict[str, Any] = {}
    main = worst.main_loader
    if main:
        details |= {key: main[key] for key in ("pin_memory", "num_workers") if main[key] is not None}
    if worst.pipeline:
        details |= {"prefetch": worst.prefetch, "experimental": True}
    own = dict(worst.details)
    details |= {key: own.pop(key) for key in ("cores", "dataloaders")}
    if times := _fetch_times(np.concatenate([node.fetches_us for node in nodes])):
        details["dataloading_time"] = times
    own.pop("violations")
    return details | own | {"node": worst.name, "per_node": {node.name: node.details for node in nodes}}


def between_fetches(fetches: Events) -> IntArray:
    """Times from the start of a fetch to that of the next of its process, in microseconds."""
    # Those of one process stay in the order of their starts.
    order = np.lexsort((narrow(fetches.pid), narrow(fetches.lane)))
    same = (np.diff(fetches.lane[order]) == 0) & (np.diff(fetches.pid[order]) == 0)
    return np.asarray(np.diff(fetches.start_us[order])[same])


def _spread(times_us: IntArray) -> dict[str, float]:
    """How many, their median and maximum in seconds, and how many took more than twice the median."""
    median = float(np.median(times_us))
    return {
        "n": len(times_us),
        "p50": median / SECOND_US,
        "max": int(times_us.max()) / SECOND_US,
        "outliers": int((times_us > 2 * median).sum()),
    }
