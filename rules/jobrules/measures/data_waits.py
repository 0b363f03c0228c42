"""The time for which training waited for batches, from its fetches or from a profile of its Python code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.core_use import SATURATED_PERCENT, SLOWED_GPU, CoreUse
from jobrules.measures.crowding import core_shares
from jobrules.measures.data_loading import Loading
from jobrules.measures.intervals import Intervals, union
from jobrules.measures.rows import rows_by_lane, rows_by_rank, series_of
from jobrules.measures.sample_weights import around_us
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, BoolArray, Events, FloatArray, IntArray, Job, Metric, Panel

if TYPE_CHECKING:
    from jobrules.measures.work import Work
    from jobrules.model import LoopFacts, Profile, Steps
    from jobrules.model.claims import Claim, Samples

#: Between fetches farther apart than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US
#: Waits of a smaller part of the time in which they were recorded are usual.
RELEVANT_PART = 0.05
#: A sample lies within a step if this part of it does.
WITHIN_PART = 0.99
#: Steps that take more of the time than this hold what happens between two batches.
STEPS_PART = 0.8
#: The rest of the work looks the same if its loss is within this part of that where waits were recorded.
SAME_PART = 1 / 3
#: A core that waits for I/O for more than this is one that waits; fetches wait for it if more of their samples have one.
WAITING_PERCENT, WAITING_PART = 50.0, 0.5
#: A main thread that spends more of its function time than this in loading waits for data.
LOADING_PART = 0.5


class Waits(Struct, frozen=True, kw_only=True, eq=False):
    """The waits of one node."""

    #: When fetches were recorded.
    recorded: Intervals
    #: Fetches of any process.
    fetched: Intervals
    #: Waits of each training process, outside of steps, or in them if ``in_steps``, in microseconds.
    waited_by_rank_us: dict[str, int]
    #: True if steps hold their fetches.
    in_steps: bool
    #: Medians of the process that waited most: of its fetches, and of its steps of the mode with most time, in
    #: microseconds; None without steps.
    fetch_us: float
    step_us: float | None
    #: Loader processes that the loaders were set up with, per training process; None if not known.
    num_workers: int | None
    #: Training processes.
    processes: int
    #: Cores of the node, and their mean utilization in the work, by the job alone where others use a relevant part; 0 and
    #: None if they were not sampled.
    cores: int
    cpu_percent: float | None
    has_gpus: bool
    #: True if a core waits for I/O during most fetches.
    of_io: bool

    @property
    def slowest(self) -> str:
        """The training process that waited most: all others wait for it, since each step needs all of them."""
        return max(self.waited_by_rank_us, key=self.waited_by_rank_us.__getitem__)

    @property
    def waited_us(self) -> int:
        """The waits of that process, in microseconds."""
        return self.waited_by_rank_us[self.slowest]

    @property
    def part(self) -> float:
        """The same as a share of the recorded time."""
        return self.waited_us / max(1, self.recorded.total)

    @property
    def relevant(self) -> bool:
        """True if training waited for a relevant part of the recorded time."""
        return self.part >= RELEVANT_PART

    @classmethod
    def of(cls, part: Job, work: Work) -> Waits | None:
        """Waits of a node in the work; None without fetches."""
        (node,) = part.nodes
        loading = Loading.of(part.events, node)
        fetches = _Fetches.of(loading, work.span_us(node)) if loading else None
        if loading is None or fetches is None:
            return None
        stepped = {
            rank: union(part.steps.start_us[rows], part.steps.end_us[rows])
            for rank, rows in rows_by_rank(part.steps).items()
        }
        in_steps = part.steps.whole or fetches.lie_in(stepped)
        waited_by_rank_us = {
            rank: own.total - (0 if in_steps else _shared(own, stepped.get(rank)))
            for rank, own in fetches.by_rank.items()
        }
        slowest = max(waited_by_rank_us, key=waited_by_rank_us.__getitem__)
        cpu, io_wait = part.panel(node, Metric.CPU_UTILIZATION), part.panel(node, Metric.IO_WAIT)
        return cls(
            recorded=fetches.recorded,
            fetched=fetches.fetched,
            waited_by_rank_us=waited_by_rank_us,
            in_steps=in_steps,
            fetch_us=fetches.median_us(slowest),
            step_us=_median_step_us(part.steps.comparable, slowest),
            num_workers=_num_workers(loading, fetches.events),
            processes=len(fetches.by_rank),
            cores=len(cpu.devices) if cpu else 0,
            cpu_percent=_own_percent(part) or (_mean_percent(cpu, work) if cpu else None),
            has_gpus=part.panel(node, Metric.GPU_UTILIZATION) is not None,
            of_io=io_wait is not None and _waits_for_io(io_wait, fetches.fetched),
        )


class _Fetches(Struct, frozen=True, kw_only=True, eq=False):
    """The fetches of a node within the work."""

    events: Events
    #: Rows of each training process, and when it fetched.
    rows: dict[str, IntArray]
    by_rank: dict[str, Intervals]
    #: When any process fetched, and when fetches were recorded.
    fetched: Intervals
    recorded: Intervals

    @classmethod
    def of(cls, loading: Loading, span_us: tuple[int, int]) -> _Fetches | None:
        """None if none lies within these times."""
        begin_us, end_us = span_us
        events = loading.fetches.where(
            (loading.fetches.end_us > begin_us) & (loading.fetches.start_us < end_us)
        )
        if not len(events):
            return None
        start_us, stop_us = np.maximum(events.start_us, begin_us), np.minimum(events.end_us, end_us)
        bridged = union(start_us, stop_us + BRIDGED_US)
        rows = rows_by_lane(events, lambda lane: lane.rank)
        return cls(
            events=events,
            rows=rows,
            by_rank={rank: union(start_us[own], stop_us[own]) for rank, own in rows.items()},
            fetched=union(start_us, stop_us),
            recorded=Intervals(start=bridged.start, end=bridged.end - BRIDGED_US),
        )

    def lie_in(self, stepped: Mapping[str, Intervals]) -> bool:
        """True if steps hold their fetches: most of these lie in steps, which take nearly all of the time."""
        fetched_us = sum(own.total for own in self.by_rank.values())
        inside_us = sum(_shared(own, stepped.get(rank)) for rank, own in self.by_rank.items())
        steps_us = max((one.shared(self.recorded) for one in stepped.values()), default=0)
        return 2 * inside_us > fetched_us and steps_us > STEPS_PART * self.recorded.total

    def median_us(self, rank: str) -> float:
        """Median fetch of a training process."""
        return float(np.median(self.events.duration_us[self.rows[rank]]))


def _shared(own: Intervals, steps: Intervals | None) -> int:
    return own.shared(steps) if steps is not None else 0


def _num_workers(loading: Loading, fetches: Events) -> int | None:
    """The most loader processes of any loader; 0 if the training process fetches itself, None if not known."""
    known = [
        one.num_workers for one in loading.loaders if one.num_workers is not None and one.num_workers >= 0
    ]
    itself = any("SingleProcess" in name for name in fetches.names)
    return max(known) if known else 0 if itself else None


def _mean_percent(cpu: Panel, work: Work) -> float | None:
    """Mean utilization of the cores in the work; None without samples in it."""
    inside = work.holds(cpu.time_us, cpu.node)
    return float(cpu.mean[inside].mean()) if inside.any() else None


def _own_percent(part: Job) -> float | None:
    """What the job's processes use of the cores, if others use a relevant part of them."""
    return next((100 * one.by_job / one.cores for one in core_shares(part) if one.others_matter), None)


def _median_step_us(steps: Steps, rank: str) -> float | None:
    modes = [steps.duration_us[rows] for (_, own, _), rows in series_of(steps).items() if own == rank]
    return float(np.median(max(modes, key=np.sum))) if modes else None


def _waits_for_io(io_wait: Panel, fetched: Intervals) -> bool:
    during = fetched.holds(io_wait.time_us)
    waiting = during & (io_wait.values > WAITING_PERCENT).any(axis=1)
    return bool(waiting.sum() > WAITING_PART * during.sum())


def waits(part: Job, work: Work) -> Iterator[Waits]:
    """Waits of a node, if any."""
    if found := Waits.of(part, work):
        yield found


def loads_itself(profiles: Sequence[Profile]) -> float:
    """Share of the function time of all profiles that is in functions of data loading."""
    whole_s = sum(one.self_s for one in profiles)
    loading_s = sum(f.self_s for one in profiles for f in one.functions if _is_loading(f.file))
    return loading_s / whole_s if whole_s else 0.0


def _is_loading(file: str) -> bool:
    """True for a file of a library of data loading."""
    is_library = "site-packages/" in file or "dist-packages/" in file
    return "torch/utils/data/" in file or (is_library and ("dataloader" in file or "/datasets/" in file))


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
    if found is not None and found.in_steps:
        stepping = np.zeros(len(panel.time_us), np.bool_)

    def eligible(gpu: Samples, waits: Waits) -> FloatArray:
        """Lost time that may be waits, where these were recorded: a batch was fetched in the sample or next to it."""
        fetching = waits.fetched.overlap(*around_us(gpu.time_us, gpu.weight_us)) > 0
        here = waits.recorded.holds(gpu.time_us) & gpu.in_work & fetching
        lost_us = np.where(here & ~stepping[gpu.rows], gpu.left_us, 0.0)
        # A GPU that lost less than training waited was busy meanwhile: its work was queued.
        queued = float(gpu.left_us[here].sum()) < waits.waited_us
        return np.where(queued & (gpu.values >= SLOWED_GPU), 0.0, lost_us)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        if found is None:
            return [_alone(gpu, use) for gpu in gpus]
        open_us = [eligible(gpu, found) for gpu in gpus]
        amount_us = max(0.0, found.waited_us - _claimed_before(gpus, found))
        # A GPU that lost much less than the others did not wait with them.
        lost_us = [float(us.sum()) for us in open_us]
        together = [us for us in lost_us if 2 * us >= float(np.median(lost_us))]
        amount_us = min([amount_us, *together])
        return [
            _waited(gpu, us, amount_us, found, use, stepping[gpu.rows])
            for gpu, us in zip(gpus, open_us, strict=True)
        ]

    return claim


def _claimed_before(gpus: Sequence[Samples], waits: Waits) -> float:
    """What other causes claimed while batches were fetched, on average over the GPUs, in microseconds."""
    claimed = [
        np.minimum(
            np.where(gpu.in_work, gpu.lost_us - gpu.left_us, 0.0),
            waits.fetched.overlap(*around_us(gpu.time_us, gpu.weight_us)) / 2,
        ).sum()
        for gpu in gpus
    ]
    return float(np.mean(claimed))


def _alone(gpu: Samples, use: CoreUse | None, *, more_than_usual: bool = False) -> FloatArray:
    """Lost time in which a GPU is idle while a single core is saturated.

    By a profile the thread that saturates it loads data. Otherwise it may spin, so cores count if they are saturated
    more than usual.
    """
    if use is None:
        return np.zeros(len(gpu.values))
    idle = gpu.values < IDLE_PERCENT
    rows = use.telling(gpu, idle) if more_than_usual else use.few[gpu.rows] & idle
    return np.where(rows, gpu.left_us, 0.0)


def _waited(
    gpu: Samples,
    open_us: FloatArray,
    amount_us: float,
    waits: Waits,
    use: CoreUse | None,
    stepping: BoolArray,
) -> FloatArray:
    """The amount where waits were recorded, and as much elsewhere if it looks the same.

    A core that is saturated in idle moments is at work on a batch: elsewhere, and where training processes load batches
    themselves, such moments count even if they are more.
    """
    idle = gpu.values < IDLE_PERCENT
    recorded = waits.recorded.holds(gpu.time_us) & gpu.in_work
    elsewhere_us = np.where(gpu.in_work & ~recorded & ~stepping, gpu.left_us, 0.0)
    single_us = _alone(gpu, use, more_than_usual=True)
    of_process_us = single_us if waits.num_workers == 0 else np.zeros(len(single_us))
    waited = _single_first(open_us, of_process_us, idle, amount_us)
    same = _looks_same(gpu, recorded, gpu.in_work & ~recorded)
    part = float(waited.sum()) / max(1.0, float(gpu.left_us[recorded].sum())) if same else 0.0
    return waited + _single_first(elsewhere_us, single_us, idle, part * float(elsewhere_us.sum()))


def _single_first(
    left_us: FloatArray, single_us: FloatArray, idle: BoolArray, amount_us: float
) -> FloatArray:
    """Spread an amount over lost time: all of what is lost beside single cores, then that of idle samples."""
    single_us = np.minimum(left_us, single_us)
    return single_us + _idle_first(left_us - single_us, idle, max(0.0, amount_us - float(single_us.sum())))


def _looks_same(gpu: Samples, here: BoolArray, there: BoolArray) -> bool:
    """True if a GPU lost about as much per time in some samples as in others."""
    lost, other = (
        float(gpu.left_us[rows].sum()) / max(1.0, float(gpu.weight_us[rows].sum())) for rows in (here, there)
    )
    return abs(other - lost) <= SAME_PART * lost


def _in_steps(part: Job, panel: Panel, weight_us: FloatArray) -> BoolArray:
    """(n,) which snapshots lie wholly within a step of every rank."""
    steps = part.steps
    start_us, end_us = around_us(panel.time_us, weight_us)
    inside = [
        union(steps.start_us[rows], steps.end_us[rows]).overlap(start_us, end_us)
        for rows in rows_by_rank(steps).values()
    ]
    if not inside:
        return np.zeros(len(panel.time_us), np.bool_)
    return np.asarray(np.min(inside, axis=0) >= WITHIN_PART * (end_us - start_us))


def waiting_part(facts: LoopFacts, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim the share of the loop in which training waited, idle samples first; or the moments with a single saturated
    core, if they are more.

    Where only a part of the work has steps, the share is of that part, unless the rest looks the same.
    """
    del weight_us
    use = CoreUse.of(part, panel, Metric.CPU_UTILIZATION, SATURATED_PERCENT)
    first_us, last_us = facts.steps_us or (0, np.iinfo(np.int64).max)

    def of_gpu(gpu: Samples) -> FloatArray:
        stepped = gpu.in_work & (gpu.time_us >= first_us) & (gpu.time_us <= last_us)
        known = gpu.in_work if _looks_same(gpu, stepped, gpu.in_work & ~stepped) else stepped
        left_us = np.where(known, gpu.left_us, 0.0)
        amount_us = facts.waited * float(gpu.weight_us[known].sum())
        by_share = _whole_samples(left_us, gpu.values < IDLE_PERCENT, amount_us)
        single = _alone(gpu, use, more_than_usual=True)
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
