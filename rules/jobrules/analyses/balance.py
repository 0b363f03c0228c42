"""How alike the GPUs of a node are loaded: histograms of their use, and the distances between these.

Of the samples that LoadBalancing compares, at the end of the job: those of the training loop where steps
are known, else all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.load_balancing import BINS, MIN_IN_LOOP, binned
from jobrules.measures.histograms import distance, normalized
from jobrules.model import Metric
from jobrules.rule import in_samples

if TYPE_CHECKING:
    from jobrules.load_balancing import LoadBalancing
    from jobrules.model import BoolArray, FloatArray, Job, Panel

#: Nodes, and GPUs of a node, whose distances are listed one by one.
MOST_NODES, MOST_GPUS = 4, 16
#: Above ``MOST_GPUS`` in the job, so many have a histogram.
MOST_DRAWN = 8
#: Bins of 2 % that one of 10 % holds.
_IN_TEN = BINS // 10


class Load(Struct, frozen=True, kw_only=True):
    """How one GPU was used."""

    device: str
    #: Samples on the node's basis.
    samples: int
    #: Percent; none without samples.
    mean: float | None
    #: Whether it has samples enough for LoadBalancing to compare it.
    enough: bool
    #: Mean distance to the other GPUs of its node; none where there is no other.
    apart: float | None
    #: Percent of its samples in bins of 10 % of use, the last one closed; empty without samples.
    tenths: tuple[float, ...]
    #: The same in bins of 2 %; empty where it is not among those drawn.
    histogram: tuple[float, ...]


class FarPair(Struct, frozen=True, kw_only=True):
    """The two GPUs of a node that are loaded least alike."""

    one: str
    other: str
    #: Jensen-Shannon distance, natural logarithm, 0 to 0.8326.
    distance: float
    #: Mean use of each, percent.
    mean: float
    other_mean: float
    #: Whether both have samples enough.
    enough: bool


class NodeLoad(Struct, frozen=True, kw_only=True):
    """The GPUs of one node."""

    node: str
    #: ``training loop`` or ``whole job``.
    basis: str
    gpus: tuple[Load, ...]
    #: The mean of the histograms of its GPUs; empty where none of them is drawn.
    histogram: tuple[float, ...]
    #: The GPUs whose distances are listed; empty where the node has one GPU or is not among the chosen.
    listed: tuple[str, ...]
    #: Row i: the distances of ``listed[i]`` from those after it; none where one has no samples.
    distances: tuple[tuple[float | None, ...], ...]
    #: Of pairs with samples enough, else of all; none where no two GPUs have samples.
    farthest: FarPair | None


class Balance(Struct, frozen=True, kw_only=True):
    """The load of every GPU of the job."""

    #: Distance from which LoadBalancing triggers.
    limit: float
    #: In natural order; where they are more than ``MOST_NODES``, the largest distance first.
    nodes: tuple[NodeLoad, ...]


def balance(job: Job, rule: LoadBalancing) -> Balance | None:
    """The loads of all GPUs; none where no GPU was sampled."""
    nodes = job.gathered(_nodes, rule)
    if not nodes:
        return None
    if len(nodes) > MOST_NODES:
        nodes.sort(key=_rank)
        # A chosen node without two GPUs to compare has nothing to list anyway.
        nodes[MOST_NODES:] = [replace(node, listed=(), distances=()) for node in nodes[MOST_NODES:]]
    drawn = _drawn(nodes)
    return Balance(limit=rule.threshold, nodes=tuple(_only(node, drawn) for node in nodes))


def _rank(node: NodeLoad) -> tuple[bool, float]:
    far = node.farthest
    return (not far.enough, -far.distance) if far else (True, 1.0)


def _drawn(nodes: list[NodeLoad]) -> set[tuple[str, str]]:
    """The GPUs whose histogram is kept: all of few, else those farthest from the others of their node."""
    gpus = [(node.node, gpu) for node in nodes for gpu in node.gpus]
    if len(gpus) > MOST_GPUS:
        usual = float(np.median([gpu.mean or 0.0 for _, gpu in gpus]))
        gpus.sort(key=lambda one: (-(one[1].apart or 0.0), -abs((one[1].mean or 0.0) - usual)))
        gpus = gpus[:MOST_DRAWN]
    return {(node, gpu.device) for node, gpu in gpus}


def _only(node: NodeLoad, drawn: set[tuple[str, str]]) -> NodeLoad:
    gpus = tuple(gpu if (node.node, gpu.device) in drawn else replace(gpu, histogram=()) for gpu in node.gpus)
    return replace(node, gpus=gpus, histogram=node.histogram if any(g.histogram for g in gpus) else ())


def _nodes(part: Job, rule: LoadBalancing) -> list[NodeLoad]:
    """The node; none where it has no GPU."""
    return [_node(panel, part.loop_us(panel.node), rule) for panel in part.panels_of(Metric.GPU_UTILIZATION)]


def _node(panel: Panel, loop: tuple[int, int] | None, rule: LoadBalancing) -> NodeLoad:
    gpus = len(panel.devices)
    counted, code = binned(panel, loop)
    cells = np.bincount(code.ravel(), minlength=gpus * (BINS + 1)).reshape(gpus, BINS + 1)
    counts = cells[:, :BINS].astype(np.float64)
    samples = counts.sum(axis=1)
    # Row after row, however the values lie: the order of adding decides the last digit.
    means = np.ascontiguousarray(np.where(counted, panel.values, 0)).sum(axis=0) / np.maximum(1, samples)
    patience = in_samples(rule.patience, panel.time_us)
    least = max(1, min(patience, MIN_IN_LOOP))
    enough = ((~np.isnan(panel.values)).sum(axis=0) > patience) & (samples >= least)
    shares = normalized(counts)
    far = np.stack([distance(shares[gpu], shares) for gpu in range(gpus)])
    far[(samples == 0) | (samples == 0)[:, None] | np.eye(gpus, dtype=np.bool_)] = np.nan
    others = np.isfinite(far).sum(axis=1)
    apart = np.nansum(far, axis=1) / np.maximum(1, others)
    listed = np.sort(np.argsort(-apart, kind="stable")[:MOST_GPUS]) if gpus > 1 else np.empty(0, np.int64)
    percent = 100 * shares
    return NodeLoad(
        node=panel.node,
        basis="training loop" if loop else "whole job",
        gpus=tuple(
            Load(
                device=device,
                samples=int(samples[i]),
                mean=round(float(means[i]), 3) if samples[i] else None,
                enough=bool(enough[i]),
                apart=round(float(apart[i]), 4) if others[i] else None,
                tenths=_rounded(percent[i].reshape(-1, _IN_TEN).sum(axis=1)) if samples[i] else (),
                histogram=_rounded(percent[i]) if samples[i] else (),
            )
            for i, device in enumerate(panel.devices)
        ),
        histogram=_rounded(percent[samples > 0].mean(axis=0)) if samples.any() else (),
        listed=tuple(panel.devices[i] for i in listed.tolist()),
        distances=tuple(
            tuple(None if np.isnan(d) else round(d, 6) for d in far[one, listed[i + 1 :]].tolist())
            for i, one in enumerate(listed.tolist())
        ),
        farthest=_farthest(panel.devices, far, enough, means),
    )


def _farthest(
    devices: tuple[str, ...], far: FloatArray, enough: BoolArray, means: FloatArray
) -> FarPair | None:
    both = enough & enough[:, None]
    judged = bool((both & np.isfinite(far)).any())
    held = np.where(both | (not judged), far, np.nan)
    if not np.isfinite(held).any():
        return None
    one, other = (int(i) for i in np.unravel_index(np.nanargmax(held), held.shape))
    return FarPair(
        one=devices[one],
        other=devices[other],
        distance=round(float(held[one, other]), 6),
        mean=round(float(means[one]), 3),
        other_mean=round(float(means[other]), 3),
        enough=judged,
    )


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.round(values, 2).tolist())
