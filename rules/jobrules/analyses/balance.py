"""How similar the utilization of a node's GPUs is: histograms, and the distances between them.

Of the samples that LoadBalancing compares at the end of the job: those of the training loop if steps
are known, otherwise all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.histograms import distance, normalized
from jobrules.model import Metric
from jobrules.model.names import DeviceName, NodeName, OwnText
from jobrules.model.order import median
from jobrules.rule import in_samples
from jobrules.rules.load_balancing import BINS, MIN_IN_LOOP, binned

if TYPE_CHECKING:
    from jobrules.model import BoolArray, FloatArray, Job, Panel
    from jobrules.rules.load_balancing import LoadBalancing

#: Nodes, and GPUs of a node, with a table of distances.
MAX_NODES, MAX_GPUS = 4, 16
#: GPUs with a histogram, in a job with more than ``MAX_GPUS``.
MAX_DRAWN = 8
#: Bins of 2% in one of 10%.
_IN_TEN = BINS // 10


class Load(Struct, frozen=True, kw_only=True):
    """Utilization of one GPU."""

    device: DeviceName
    #: Samples on the node's basis.
    samples: int
    #: Percent; None without samples.
    mean: float | None
    #: Whether it has enough samples for LoadBalancing.
    enough: bool
    #: To the other GPUs of its node; None if there is no other.
    mean_distance: float | None
    #: Percent of its samples per 10% bin of utilization, the last one closed; empty without samples.
    tenths: tuple[float, ...]
    #: The same per 2% bin; empty if it is not drawn.
    histogram: tuple[float, ...]


class FarPair(Struct, frozen=True, kw_only=True):
    """The two GPUs of a node with the largest distance."""

    one: DeviceName
    other: DeviceName
    #: Jensen-Shannon distance, natural logarithm, 0 to 0.8326.
    distance: float
    #: Mean utilization of each, percent.
    mean: float
    other_mean: float
    #: Whether both have enough samples.
    enough: bool


class NodeLoad(Struct, frozen=True, kw_only=True):
    """The GPUs of one node."""

    node: NodeName
    #: ``training loop`` or ``whole job``.
    basis: OwnText
    gpus: tuple[Load, ...]
    #: The mean of the histograms of its GPUs; empty if None of them is drawn.
    histogram: tuple[float, ...]
    #: The GPUs in the table of distances; empty if the node has one GPU or no table.
    listed: tuple[DeviceName, ...]
    #: Row i: the distances of ``listed[i]`` from those after it; None if one has no samples.
    distances: tuple[tuple[float | None, ...], ...]
    #: Of pairs with enough samples, otherwise of all; None if no two GPUs have samples.
    farthest: FarPair | None


class Balance(Struct, frozen=True, kw_only=True):
    """Utilization of all GPUs of the job."""

    #: Distance above which LoadBalancing triggers.
    limit: float
    #: In natural order; if there are more than ``MAX_NODES``, the largest distance first.
    nodes: tuple[NodeLoad, ...]


def balance(job: Job, rule: LoadBalancing) -> Balance | None:
    """Histograms and distances of all GPUs; None if no GPU was sampled."""
    nodes = job.gathered(_nodes, rule)
    if not nodes:
        return None
    if len(nodes) > MAX_NODES:
        nodes.sort(key=_rank)
        nodes[MAX_NODES:] = [replace(node, listed=(), distances=()) for node in nodes[MAX_NODES:]]
    drawn = _drawn(nodes)
    return Balance(limit=rule.threshold, nodes=tuple(_only(node, drawn) for node in nodes))


def _rank(node: NodeLoad) -> tuple[bool, float]:
    far = node.farthest
    return (not far.enough, -far.distance) if far else (True, 1.0)


def _drawn(nodes: list[NodeLoad]) -> set[tuple[str, str]]:
    """GPUs whose histogram is kept: all of few, otherwise those farthest from the others of their node."""
    gpus = [(node.node, gpu) for node in nodes for gpu in node.gpus]
    if len(gpus) > MAX_GPUS:
        usual = median([gpu.mean or 0.0 for _, gpu in gpus])
        gpus.sort(key=lambda one: (-(one[1].mean_distance or 0.0), -abs((one[1].mean or 0.0) - usual)))
        gpus = gpus[:MAX_DRAWN]
    return {(node, gpu.device) for node, gpu in gpus}


def _only(node: NodeLoad, drawn: set[tuple[str, str]]) -> NodeLoad:
    gpus = tuple(gpu if (node.node, gpu.device) in drawn else replace(gpu, histogram=()) for gpu in node.gpus)
    return replace(node, gpus=gpus, histogram=node.histogram if any(g.histogram for g in gpus) else ())


def _nodes(part: Job, rule: LoadBalancing) -> list[NodeLoad]:
    """The node; empty if it has no GPU."""
    return [_node(panel, part.loop_us(panel.node), rule) for panel in part.panels_of(Metric.GPU_UTILIZATION)]


def _node(panel: Panel, loop: tuple[int, int] | None, rule: LoadBalancing) -> NodeLoad:
    gpus = len(panel.devices)
    counted, code = binned(panel, loop)
    cells = np.bincount(code.ravel(), minlength=gpus * (BINS + 1)).reshape(gpus, BINS + 1)
    counts = cells[:, :BINS].astype(np.float64)
    samples = counts.sum(axis=1)
    # Row by row, whatever the memory layout: the order of additions decides the last digit.
    means = np.ascontiguousarray(np.where(counted, panel.values, 0)).sum(axis=0) / np.maximum(1, samples)
    patience = in_samples(rule.patience, panel.time_us)
    least = max(1, min(patience, MIN_IN_LOOP))
    enough = ((~np.isnan(panel.values)).sum(axis=0) > patience) & (samples >= least)
    shares = normalized(counts)
    percent = 100 * shares
    far = _distances(shares, samples == 0)
    others = np.isfinite(far).sum(axis=1)
    mean_distance = np.nansum(far, axis=1) / np.maximum(1, others)
    farthest_first = np.argsort(-mean_distance, kind="stable")
    listed = np.sort(farthest_first[:MAX_GPUS]).tolist() if gpus > 1 else []
    return NodeLoad(
        node=panel.node,
        basis="training loop" if loop else "whole job",
        gpus=tuple(
            Load(
                device=device,
                samples=int(samples[i]),
                mean=round(float(means[i]), 3) if samples[i] else None,
                enough=bool(enough[i]),
                mean_distance=round(float(mean_distance[i]), 4) if others[i] else None,
                tenths=_rounded(percent[i].reshape(-1, _IN_TEN).sum(axis=1)) if samples[i] else (),
                histogram=_rounded(percent[i]) if samples[i] else (),
            )
            for i, device in enumerate(panel.devices)
        ),
        histogram=_rounded(percent[samples > 0].mean(axis=0)) if samples.any() else (),
        listed=tuple(panel.devices[i] for i in listed),
        distances=tuple(
            tuple(None if np.isnan(d) else round(d, 6) for d in far[one, listed[i + 1 :]].tolist())
            for i, one in enumerate(listed)
        ),
        farthest=_farthest(panel.devices, far, enough, means),
    )


def _distances(shares: FloatArray, unknown: BoolArray) -> FloatArray:
    """(gpus, gpus) distances; NaN for a GPU without samples, and for one from itself."""
    far = np.stack([distance(own, shares) for own in shares])
    far[unknown | unknown[:, None] | np.eye(len(shares), dtype=np.bool_)] = np.nan
    return far


def _farthest(
    devices: tuple[str, ...], far: FloatArray, enough: BoolArray, means: FloatArray
) -> FarPair | None:
    both = enough & enough[:, None]
    evaluated = bool((both & np.isfinite(far)).any())
    compared = np.where(both | (not evaluated), far, np.nan)
    if not np.isfinite(compared).any():
        return None
    one, other = (int(i) for i in np.unravel_index(np.nanargmax(compared), compared.shape))
    return FarPair(
        one=devices[one],
        other=devices[other],
        distance=round(float(compared[one, other]), 6),
        mean=round(float(means[one]), 3),
        other_mean=round(float(means[other]), 3),
        enough=evaluated,
    )


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.round(values, 2).tolist())
