"""Where the time of machines and frameworks went: distributions of samples, sums of events, and data loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.library.tables import ALWAYS, Held, joined, series
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import Loading
from jobrules.measures.framework_time import Kind, Sums, summed
from jobrules.measures.intervals import union, within
from jobrules.model.order import median
from jobrules.verdict.phases import job_phases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from jobreport.library.tables import Window
    from jobreport.tables.parts import JobInParts
    from jobrules.model import FloatArray, Job

PERCENTILES = {
    "metric": "str", "node": "str", "device": "str", "phase": "str", "unit": "str", "measured_s": "float64",
    "mean": "float64", "min": "float64", "max": "float64",
}  # fmt: skip
FRAMEWORK_TIME = {
    "node": "str", "kind": "str", "name": "str", "calls": "Int64", "total_us": "int64", "self_us": "Int64",
    "share": "float64",
}  # fmt: skip
LOADERS = {
    "node": "str", "worker": "str", "kind": "str", "start_us": "int64", "processes": "Int64", "pin_memory": "boolean",
    "fetches": "int64",
}  # fmt: skip
FETCHES = {
    "node": "str", "worker": "str", "name": "str", "start_us": "int64", "end_us": "int64", "duration_us": "int64",
    "outlier": "bool", "processes": "Int64", "pin_memory": "boolean",
}  # fmt: skip


def percentiles(
    job: JobInParts,
    metrics: Collection[str],
    devices: Collection[str],
    nodes: Collection[str],
    window: Window,
    phase: str | None,
    by: Collection[str],
    q: Sequence[float],
) -> Iterator[tuple[Any, ...]]:
    """A row for each metric and each of ``by``, of the time that was measured within the window and the steps of a phase."""
    groups: dict[tuple[str, ...], list[Held]] = {}
    clocks = Clocks.of(job)
    stretches = [("", clocks.start_us, clocks.end_us)]
    if "phase" in by:
        stretches = [(one.label, one.start_us, one.end_us) for one in job_phases(job).phases]
    for one in series(job, metrics, devices, dict.fromkeys(nodes, ALWAYS)):
        held = Held.of(one, job)
        times = _of_phase(job, one.node, phase, window) if phase else union(*np.array([window]).T)
        held, _ = held.within(times.start, times.end)
        node, device = (one.node if "node" in by else ""), (one.device if "device" in by else "")
        for label, start_us, end_us in stretches:
            own, _ = held.within(*(np.array([[start_us], [end_us]]) + clocks.late_us(one.node)))
            groups.setdefault((str(one.metric), node, device, label, one.metric.unit), []).append(own)
    for key, several in groups.items():
        value = np.concatenate([one.value for one in several])
        length = np.concatenate([one.length_us for one in several])
        value, length = value[length > 0], length[length > 0]
        if len(value):
            mean = value @ length / length.sum()
            yield (*key, length.sum() / 1e6, mean, value.min(), value.max(), *_quantiles(value, length, q))


def columns_of(q: Sequence[float]) -> dict[str, str]:
    """A column such as ``p95`` for each. Raises ``ValueError`` for one that is no share."""
    if not all(0 <= one <= 1 for one in q):
        raise ValueError("q: each is from 0 to 1")
    return {f"p{100 * one:.10g}": "float64" for one in q}


def _of_phase(job: JobInParts, node: str, phase: str, window: Window) -> Any:
    steps = job.steps.of_node(node)
    mine = steps.mode == phase
    return within(steps.start_us[mine], steps.end_us[mine], *window)


def _quantiles(value: FloatArray, length: Any, q: Sequence[float]) -> FloatArray:
    """The smallest values that hold for at least these shares of the time, together with all below."""
    order = np.argsort(value, kind="stable")
    so_far = np.cumsum(length[order])
    place = np.searchsorted(so_far, np.asarray(q) * so_far[-1])
    return np.asarray(value[order][np.minimum(place, len(value) - 1)])


def framework_time(job: JobInParts, by: str) -> Iterator[tuple[Any, ...]]:
    """Sums of events by event type, or of operators by name, of each node and kind; largest share first."""
    for sums in job.each(_summed):
        for kind in Kind:
            total = sums.event_types[kind] if by == "phase" else sums.total.get(kind, {})
            own, calls = (table.get(kind, {}) if by == "operator" else {} for table in (sums.own, sums.calls))
            shared = own or total
            whole = sum(shared.values()) or 1
            for name in sorted(total, key=lambda name: -shared.get(name, 0)):
                self_us = own.get(name, 0) if own else None
                share = shared.get(name, 0) / whole
                yield sums.node, kind.name.lower(), name, calls.get(name), total[name], self_us, share


def _summed(part: Job) -> Sums:
    return summed(part.events)


def loaders(job: JobInParts) -> Iterator[tuple[Any, ...]]:
    """The data loaders that were set up, with the fetches of each."""
    for loading in _loadings(job):
        fetches = np.bincount(loading.loader_of_fetch + 1, minlength=len(loading.loaders) + 1)[1:].tolist()
        for one, own in zip(loading.loaders, fetches, strict=True):
            yield one.node, one.rank, one.iterator, one.start_us, one.num_workers, one.pin_memory, own


def fetches(job: JobInParts) -> dict[str, Any]:
    """The columns of all batches that training processes waited for; outliers took more than twice the median of all."""
    found: list[dict[str, Any]] = []
    for loading in _loadings(job):
        events, place = loading.fetches, loading.loader_of_fetch
        # The last one is for fetches of an unknown loader.
        known = np.array(
            [(one.num_workers, one.pin_memory) for one in loading.loaders] + [(None, None)], np.object_
        )
        lanes = np.array([(lane.node, lane.rank) for lane in events.lanes], np.object_).reshape(-1, 2)
        columns = {name: getattr(events, name) for name in ("start_us", "end_us", "duration_us")}
        columns |= {"name": np.array(events.names, np.object_)[events.name]}
        columns |= dict(zip(("node", "worker"), lanes[events.lane].T, strict=True))
        columns |= dict(zip(("processes", "pin_memory"), known[place].T, strict=True))
        found.append(columns)
    columns = joined(found)
    if columns:
        columns["outlier"] = columns["duration_us"] > 2 * median(columns["duration_us"])
    return columns


def _loadings(job: JobInParts) -> list[Loading]:
    return [one for one in job.each(_loading) if one]


def _loading(part: Job) -> Loading | None:
    return Loading.of(part.events, *part.nodes)
