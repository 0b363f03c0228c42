"""The time for which training waited for batches, from its fetches or from a profile of its Python code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.core_use import SLOWED_GPU, CoreUse
from jobrules.measures.data_loading import Loading
from jobrules.measures.intervals import Intervals, union
from jobrules.measures.rows import rows_by_rank
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, BoolArray, FloatArray, Job, Metric, Panel

if TYPE_CHECKING:
    from jobrules.measures.work import Work
    from jobrules.model import Profile
    from jobrules.model.claims import Claim, Samples

#: Between fetches farther apart than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US
#: Waits of a smaller part of the time in which they were recorded are usual.
RELEVANT_PART = 0.05
#: A sample lies within a step if this part of it does.
WITHIN_PART = 0.99
#: A core above this is saturated.
SATURATED_PERCENT = 90.0
#: The rest of the work looks the same if its loss is within this part of that where waits were recorded.
SAME_PART = 1 / 3
#: A main thread that spends more of its function time than this in loading waits for data.
LOADING_PART = 0.5


class Waits(Struct, frozen=True, kw_only=True, eq=False):
    """The waits of one node."""

    #: When fetches were recorded.
    recorded: Intervals
    #: Waits outside of steps, summed over the training processes and divided by their number, in microseconds.
    waited_us: float
    #: Median fetch and step, in microseconds; None without steps.
    fetch_us: float
    step_us: float | None
    #: Loader processes that the loaders were set up with, per training process; None if not known.
    num_workers: int | None
    #: Training processes.
    processes: int

    @property
    def relevant(self) -> bool:
        """True if training waited for a relevant part of the recorded time."""
        return self.waited_us >= RELEVANT_PART * max(1, self.recorded.total_us)

    @classmethod
    def of(cls, part: Job, work: Work) -> Waits | None:
        """Waits of a node in the work; None without fetches."""
        (node,) = part.nodes
        loading = Loading.of(part.events, node)
        if loading is None:
            return None
        begin_us, end_us = work.span_us(node)
        fetches = loading.fetches
        fetches = fetches.where((fetches.end_us > begin_us) & (fetches.start_us < end_us))
        if not len(fetches):
            return None
        ranks = np.array([lane.rank for lane in fetches.lanes])[fetches.lane]
        steps = part.steps
        waited_us = 0
        present = np.unique(ranks).tolist()
        for rank in present:
            own = ranks == rank
            fetched = union(fetches.start_us[own], fetches.end_us[own])
            of_rank = steps.rank == rank if len(steps) else np.zeros(0, np.bool_)
            stepped = union(steps.start_us[of_rank], steps.end_us[of_rank])
            inside = int(stepped.overlap_us(fetched.start_us, fetched.end_us).sum())
            waited_us += fetched.total_us - inside
        bridged = union(fetches.start_us, fetches.end_us + BRIDGED_US)
        workers = [
            one.num_workers for one in loading.loaders if one.num_workers is not None and one.num_workers >= 0
        ]
        if not workers and any("SingleProcess" in name for name in fetches.names):
            workers = [0]
        return cls(
            recorded=Intervals(start_us=bridged.start_us, end_us=bridged.end_us - BRIDGED_US),
            waited_us=waited_us / len(present),
            fetch_us=float(np.median(fetches.duration_us)),
            step_us=float(np.median(steps.end_us - steps.start_us)) if len(steps) else None,
            num_workers=max(workers) if workers else None,
            processes=len(present),
        )


def waits(part: Job, work: Work) -> Iterator[Waits]:
    """Waits of a node, if any."""
    if found := Waits.of(part, work):
        yield found


def loads_itself(profiles: Sequence[Profile]) -> float:
    """The largest share of a profile's function time that is in functions of data loading."""
    parts = (
        sum(f.self_s for f in one.functions if "dataloader" in f.file.lower() or "/data/" in f.file)
        / max(1e-9, one.self_s)
        for one in profiles
    )
    return max(parts, default=0.0)


def waiting(work: Work, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the lost time in which training waited for data.

    Where fetches were recorded, their time outside of steps, idle samples first, as far as all GPUs of the node lost as
    much: they wait together. A sample that lies within a step is no wait. Elsewhere the moments in which a GPU is idle
    while a single core is saturated, or as much as where it was recorded if about as much was lost there.
    """
    found = Waits.of(part, work)
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    if found is not None and not found.relevant:
        return None
    stepping = _in_steps(part, panel, weight_us)

    def eligible(gpu: Samples, waits: Waits) -> FloatArray:
        """Lost time that may be waits, where these were recorded."""
        here = waits.recorded.holds(gpu.time_us) & gpu.in_work
        lost_us = np.where(here & ~stepping[gpu.rows], gpu.left_us, 0.0)
        # A GPU that lost less than training waited was busy meanwhile: its work was queued.
        queued = float(gpu.left_us[here].sum()) < waits.waited_us
        return np.where(queued & (gpu.values >= SLOWED_GPU), 0.0, lost_us)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        if found is None:
            return [_alone(gpu, use) for gpu in gpus]
        open_us = [eligible(gpu, found) for gpu in gpus]
        # Not of GPUs whose loss has another cause.
        common = [
            float(us.sum())
            for us, gpu in zip(open_us, gpus, strict=True)
            if gpu.left_us.sum() >= gpu.lost_us[gpu.in_work].sum() / 2
        ]
        amount_us = min([found.waited_us, *common])
        return [
            _waited(gpu, us, amount_us, found, use, stepping[gpu.rows])
            for gpu, us in zip(gpus, open_us, strict=True)
        ]

    return claim


def _alone(gpu: Samples, use: CoreUse | None) -> FloatArray:
    """Lost time in which a GPU is idle while a single core is saturated."""
    if use is None:
        return np.zeros(len(gpu.values))
    return np.where(use.few[gpu.rows] & (gpu.values < IDLE_PERCENT), gpu.left_us, 0.0)


def _waited(
    gpu: Samples,
    open_us: FloatArray,
    amount_us: float,
    waits: Waits,
    use: CoreUse | None,
    stepping: BoolArray,
) -> FloatArray:
    """The amount where waits were recorded, and as much elsewhere if it looks the same."""
    waited = _idle_first(open_us, gpu.values < IDLE_PERCENT, amount_us)
    recorded = waits.recorded.holds(gpu.time_us) & gpu.in_work
    elsewhere = gpu.in_work & ~recorded
    here, there = (
        float(gpu.left_us[rows].sum()) / max(1.0, float(gpu.weight_us[rows].sum()))
        for rows in (recorded, elsewhere)
    )
    part = float(waited.sum()) / max(1.0, float(gpu.left_us[recorded].sum()))
    same = part if abs(there - here) <= SAME_PART * here else 0.0
    alike_us = np.where(stepping, 0.0, same * gpu.left_us) if same else _alone(gpu, use)
    return waited + np.where(elsewhere, alike_us, 0.0)


def _in_steps(part: Job, panel: Panel, weight_us: FloatArray) -> BoolArray:
    """(n,) which snapshots lie wholly within a step of every rank."""
    steps = part.steps
    inside = [
        union(steps.start_us[rows], steps.end_us[rows]).overlap_us(
            panel.time_us, panel.time_us + weight_us.astype(np.int64)
        )
        for rows in rows_by_rank(steps).values()
    ]
    if not inside:
        return np.zeros(len(panel.time_us), np.bool_)
    return np.asarray(np.min(inside, axis=0) >= WITHIN_PART * weight_us)


def _idle_first(left_us: FloatArray, idle: BoolArray, amount_us: float) -> FloatArray:
    """Spread an amount over lost time: over that of idle samples first."""
    of_idle, others = np.where(idle, left_us, 0.0), np.where(idle, 0.0, left_us)
    first = min(1.0, amount_us / max(1.0, float(of_idle.sum())))
    rest_us = max(0.0, amount_us - float(of_idle.sum()))
    return np.asarray(of_idle * first + others * min(1.0, rest_us / max(1.0, float(others.sum()))))
