"""The time for which training waited for batches, from its fetches or from a profile of its Python code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.core_use import SLOWED_GPU, CoreUse
from jobrules.measures.data_loading import Loading
from jobrules.measures.intervals import Intervals, union
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, BoolArray, FloatArray, Job, Metric, Panel

if TYPE_CHECKING:
    from jobrules.claims import Claim, Samples
    from jobrules.measures.work import Work
    from jobrules.model import Profile

#: Between fetches farther apart than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US
#: Waits of a smaller part of the time in which they were recorded are usual.
RELEVANT_PART = 0.05
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

    Where fetches were recorded, their time outside of steps, idle samples first. Elsewhere the moments in which a GPU is
    idle while a single core is saturated, or as much as where it was recorded if about as much was lost there.
    """
    del weight_us
    found = Waits.of(part, work)
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    if found is not None and not found.relevant:
        return None

    def of_gpu(gpu: Samples) -> FloatArray:
        idle = gpu.values < IDLE_PERCENT
        single = np.where(use.few[gpu.rows] & idle, gpu.left_us, 0.0) if use else np.zeros(len(gpu.values))
        if found is None:
            return single
        recorded = found.recorded.holds(gpu.time_us) & gpu.in_work
        here_us = np.where(recorded, gpu.left_us, 0.0)
        # A GPU that lost less than training waited was busy meanwhile: its work was queued.
        queued = float(here_us.sum()) < found.waited_us
        waited = _idle_first(
            np.where(queued & (gpu.values >= SLOWED_GPU), 0.0, here_us), idle, found.waited_us
        )
        elsewhere = gpu.in_work & ~recorded
        here, there = (
            float(gpu.left_us[rows].sum()) / max(1.0, float(gpu.weight_us[rows].sum()))
            for rows in (recorded, elsewhere)
        )
        part_claimed = float(waited.sum()) / max(1.0, float(gpu.left_us[recorded].sum()))
        same = part_claimed if abs(there - here) <= SAME_PART * here else 0.0
        return waited + np.where(elsewhere, same * gpu.left_us if same else single, 0.0)

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]


def waiting_part(waited: float, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim a share of the work, idle samples first; or the moments with a single saturated core, if they are more."""
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)

    def of_gpu(gpu: Samples) -> FloatArray:
        idle = gpu.values < IDLE_PERCENT
        by_share = _whole_samples(gpu.left_us, idle, waited * gpu.work_us)
        single = np.where(use.few[gpu.rows] & idle, gpu.left_us, 0.0) if use else by_share
        return max(by_share, single, key=lambda claimed: float(claimed.sum()))

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]


def _whole_samples(left_us: FloatArray, idle: BoolArray, amount_us: float) -> FloatArray:
    """Claim samples that together lost an amount, evenly over the time, idle ones first."""
    claimed = np.zeros(len(left_us))
    for rows in (idle, ~idle):
        at = np.flatnonzero(rows & (left_us > 0))
        part = min(1.0, (amount_us - float(claimed.sum())) / max(1.0, float(left_us[at].sum())))
        chosen = at[np.diff(np.floor(part * np.arange(len(at) + 1))) > 0]
        claimed[chosen] = left_us[chosen]
    return claimed


def _idle_first(left_us: FloatArray, idle: BoolArray, amount_us: float) -> FloatArray:
    """Spread an amount over lost time: over that of idle samples first."""
    of_idle, others = np.where(idle, left_us, 0.0), np.where(idle, 0.0, left_us)
    first = min(1.0, amount_us / max(1.0, float(of_idle.sum())))
    rest_us = max(0.0, amount_us - float(of_idle.sum()))
    return np.asarray(of_idle * first + others * min(1.0, rest_us / max(1.0, float(others.sum()))))
