"""Which GPU of the samples each profiled GPU is, and what its utilization was while traces were recorded.

A trace numbers the devices of its process, which says nothing of their numbers on the machine. So ranks and GPUs are put
together in their order where their numbers agree, and apart again if the samples show something else than the trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from jobrules.model import BoolArray, Job, Metric, Panel
from jobrules.model.names import DeviceName, NodeName
from jobrules.rules.traces.shares import ProfiledGPU

#: A mean utilization needs so many samples.
MIN_SAMPLES = 10
#: Utilization and the time with kernels of one GPU differ by no more, in points.
MAX_POINTS = 15.0

#: By the name of the node; assumed, on one machine; or not at all, because numbers of GPUs differ or utilization does.
Match = Literal["node", "order", "counts", "differs"]
#: Stretches of time of a GPU, by its node and name.
Spans = dict[str, dict[str, tuple[tuple[int, int], ...]]]


class SampledGPUs(Struct, frozen=True, kw_only=True):
    """The GPUs of the samples that were profiled."""

    #: How they were found (``node``, ``order``), or why not (``counts``, ``differs``).
    match: Match
    #: Node and name of the GPU of each rank; without ranks, if they were not found.
    gpus: dict[int, tuple[NodeName, DeviceName]] = {}
    #: Mean utilization while traces were recorded; None with too few samples.
    utilization: float | None = None


def sampled_gpus(job: Job, gpus: Sequence[ProfiledGPU]) -> SampledGPUs | None:
    """The GPUs of the samples; None if there are no samples of GPUs or no ranks."""
    sampled = {
        part.node: devices
        for part in job.facts
        for panel in part.panels
        if panel.metric is Metric.GPU_UTILIZATION and (devices := panel.devices)
    }
    by_rank = {gpu.rank: gpu for gpu in gpus if gpu.rank is not None}
    if not sampled or len(by_rank) < len(gpus):
        return None
    match, found = _matched(by_rank, sampled)
    if not found:
        return SampledGPUs(match=match)
    spans: Spans = {}
    for rank, (node, name) in found.items():
        spans.setdefault(node, {})[name] = _windows_us(by_rank[rank])
    means = dict(job.gathered(_means, spans))
    known = {rank: means[place] for rank, place in found.items() if place in means}
    if any(abs(mean - _kernel_percent(by_rank[rank])) > MAX_POINTS for rank, mean in known.items()):
        return SampledGPUs(match="differs")
    mean = float(np.mean(list(known.values()))) if len(known) == len(found) else None
    return SampledGPUs(match=match, gpus=found, utilization=mean)


def _matched(
    by_rank: Mapping[int, ProfiledGPU], sampled: Mapping[str, tuple[str, ...]]
) -> tuple[Match, dict[int, tuple[str, str]]]:
    """Ranks and GPUs in their order: of each node that the traces name, or of the only machine."""
    hosts = {rank: gpu.captures[0].host for rank, gpu in by_rank.items()}
    if all(host in sampled for host in hosts.values()):
        match: Match = "node"
        ranks_of = {
            node: sorted(rank for rank in hosts if hosts[rank] == node) for node in set(hosts.values())
        }
    elif len(sampled) == 1 and len(set(hosts.values())) == 1:
        match, ranks_of = "order", {next(iter(sampled)): sorted(by_rank)}
    else:
        return "counts", {}
    if any(len(ranks) != len(sampled[node]) for node, ranks in ranks_of.items()):
        return "counts", {}
    return match, {
        rank: (node, name)
        for node, ranks in ranks_of.items()
        for rank, name in zip(ranks, sampled[node], strict=True)
    }


def _windows_us(gpu: ProfiledGPU) -> tuple[tuple[int, int], ...]:
    """Its windows since the epoch, as far as the clocks of its captures are known."""
    pairs = zip(gpu.captures, gpu.devices, strict=True)
    starts = [
        (one.base_ns + device.start_ns, device.window_ns) for one, device in pairs if one.base_ns is not None
    ]
    return tuple((start // 1000, (start + length) // 1000) for start, length in starts)


def recorded_in(panel: Panel, spans: Iterable[tuple[int, int]]) -> BoolArray:
    """(n,) which snapshots tell of some stretches: a sample is the mean of the time before it."""
    held = np.zeros(len(panel.time_us), np.bool_)
    for start_us, end_us in spans:
        held |= (panel.time_us > start_us) & (panel.time_us <= end_us + panel.interval_us)
    return held


def _kernel_percent(gpu: ProfiledGPU) -> float:
    return 100 * gpu.sum(lambda device: device.kernel_busy_ns) / gpu.window_ns


def _means(part: Job, spans: Spans) -> Iterator[tuple[tuple[str, str], float]]:
    """Mean utilization of each GPU with enough samples in its stretches."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        for name, own in spans.get(panel.node, {}).items():
            values = panel.values[recorded_in(panel, own), panel.devices.index(name)]
            if np.count_nonzero(~np.isnan(values)) >= MIN_SAMPLES:
                yield (panel.node, name), float(np.nanmean(values))
