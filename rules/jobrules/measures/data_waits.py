"""The time for which training waited for batches, from its fetches or from a profile of its Python code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.crowding import core_shares
from jobrules.measures.data_loading import Loading
from jobrules.measures.intervals import Intervals, union
from jobrules.measures.rows import rows_by_lane, rows_by_rank, series_of
from jobrules.model import SECOND_US, Events, IntArray, Job, Metric, Panel

if TYPE_CHECKING:
    from jobrules.measures.work import Work
    from jobrules.model import Profile, Steps

#: Between fetches farther apart than this, nothing was recorded.
BRIDGED_US = 60 * SECOND_US
#: Waits of a smaller part of the time in which they were recorded are usual.
RELEVANT_PART = 0.05
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
    #: What other processes use of the cores, in words; empty unless they leave few of them free.
    others: str
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
        shares = [*core_shares(part)]
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
            cpu_percent=next((one.own_percent for one in shares if one.others_matter), None)
            or (_mean_percent(cpu, work) if cpu else None),
            others=next((str(one) for one in shares if one.fills), ""),
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
