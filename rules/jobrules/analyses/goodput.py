"""Goodput: how much of the job's time was training that was kept, and where the rest went.

The idea is that of ML goodput measurement (productive training time over elapsed time); the parts here are disjoint,
and measured instead of logged. Each moment goes to the first part of ``PARTS`` that holds. Steps are those of the
job: from the earliest start to the latest end over the training processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from jobrules.analyses.blocks import checkpoints, fetched_us, stall_limit
from jobrules.analyses.job_steps import JobSteps
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.intervals import Intervals, joined, outside, union
from jobrules.measures.sample_weights import gaps
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job
from jobrules.text import apportion

#: Key and name of each part, in the order in which they claim. Steps bound them; start-up and wind-down, the phases of the
#: job, leave out GPU work before and after the steps.
PARTS = {
    "interruption": "Interruption",
    "checkpoint": "Checkpoint",
    "lost_work": "Lost work",
    "start_up": "Time to the first step",
    "evaluation": "Evaluation",
    "first_step": "First step",
    "data_wait": "Data wait",
    "stall": "Stall",
    "productive": "Productive",
    "wind_down": "Time after the last step",
    "other": "Other",
}


class GoodputPart(Struct, frozen=True, kw_only=True):
    """Time of the job that went into one part."""

    #: A key of ``PARTS``.
    key: str
    label: str
    seconds: float
    #: Of the job, rounded: that of productive time to the nearest tenth, the others so that all add up to 100.0.
    percent: float
    #: False if nothing was recorded that could show it; its time is in another part.
    measured: bool


class Goodput(Struct, frozen=True, kw_only=True):
    """The job's time in parts that add up to it."""

    seconds: float
    parts: tuple[GoodputPart, ...]
    #: Training steps that ran again after a restart, each time but the last.
    lost_steps: int = 0

    def of(self, key: str) -> GoodputPart:
        """The part of a key."""
        return next(part for part in self.parts if part.key == key)

    @property
    def percent(self) -> float:
        """Productive time in percent of the job."""
        return self.of("productive").percent

    @property
    def at_most(self) -> bool:
        """True if other time may be counted as productive: no fetch was recorded."""
        return not self.of("data_wait").measured


def goodput(job: Job) -> Goodput | None:
    """None without training steps, or if the job takes no time."""
    clocks = Clocks.of(job)
    steps = JobSteps.of(job, clocks)
    if not len(steps) or not clocks.length_us:
        return None
    span = clocks.start_us, clocks.end_us
    interruptions = _interruptions(job, clocks, steps)
    written = checkpoints(job, clocks)
    stopped = joined([interruptions, written])
    # Steps of neighboring numbers overlap if processes lag behind one another.
    start_us = np.maximum(steps.start_us, np.maximum.accumulate(steps.previous_end_us))
    start_us = np.minimum(start_us, steps.end_us)
    lost, restarts = _lost_work(steps, interruptions)
    lost_steps = union(start_us[lost], steps.end_us[lost])
    starts = _start_ups(steps, interruptions, restarts, clocks.start_us)
    before = joined([stopped, lost_steps, starts])
    kept = ~lost
    first = np.zeros(len(steps), np.bool_)
    began = np.searchsorted(start_us, np.append(start_us[0], starts.end))
    first[began[began < len(first)]] = True
    start_us, end_us = start_us[kept], steps.end_us[kept]
    fetches_us = fetched_us(job, clocks, start_us, end_us)
    lasted_us = end_us - start_us - joined([before, steps.others]).overlap(start_us, end_us)
    inside = _in_steps(lasted_us, fetches_us, first[kept])
    last_us = int(steps.every.end[-1])
    idle = outside(joined([before, steps.every]), clocks.start_us, last_us)
    # What is fetched between steps counts as well: some sources begin a step behind its fetch.
    waits_us = fetched_us(job, clocks, idle.start, idle.end)
    us = {
        "interruption": interruptions.total,
        "checkpoint": stopped.total - interruptions.total,
        "lost_work": lost_steps.total - lost_steps.shared(stopped),
        "start_up": starts.total - starts.shared(joined([stopped, lost_steps])),
        "evaluation": steps.others.total - steps.others.shared(before),
        **inside,
        "wind_down": outside(stopped, last_us, max(last_us, span[1])).total,
    }
    us["data_wait"] += int(waits_us.sum()) if waits_us is not None else 0
    us["other"] = clocks.length_us - sum(us.values())
    measured = {
        "interruption": bool(job.samples_us),
        "checkpoint": bool(written.total),
        "data_wait": fetches_us is not None,
    }
    kept_percent = round(100 * us["productive"] / clocks.length_us, 1)
    others = [key for key in PARTS if key != "productive"]
    percents = dict(
        zip(others, apportion([max(0, us[key]) for key in others], 100.0 - kept_percent, 1), strict=True)
    )
    percents["productive"] = kept_percent
    return Goodput(
        seconds=clocks.length_us / SECOND_US,
        parts=tuple(
            GoodputPart(
                key=key,
                label=label,
                seconds=us[key] / SECOND_US,
                percent=percents[key],
                measured=measured.get(key, True),
            )
            for key, label in PARTS.items()
        ),
        lost_steps=int(lost.sum()),
    )


def _in_steps(lasted_us: IntArray, fetches_us: IntArray | None, first: BoolArray) -> dict[str, int]:
    """Time of the parts within training steps that were kept."""
    lasted = lasted_us.astype(np.float64)
    usual = lasted[~first] if (~first).any() else lasted
    median, limit = stall_limit(usual)
    warm_up = np.where(first, np.maximum(0.0, lasted - median), 0.0)
    rest = lasted - warm_up
    wait: FloatArray = np.zeros(len(rest)) if fetches_us is None else np.minimum(fetches_us, rest)
    rest = rest - wait
    stall = np.where(first, 0.0, np.maximum(0.0, rest - limit))
    parts = {"first_step": warm_up, "data_wait": wait, "stall": stall, "productive": rest - stall}
    us = {key: round(float(values.sum())) for key, values in parts.items()}
    return us | {"productive": round(float(lasted.sum())) - us["first_step"] - us["data_wait"] - us["stall"]}


def _lost_work(steps: JobSteps, interruptions: Intervals) -> tuple[BoolArray, IntArray]:
    """(n,) steps that ran again after a restart, and the rows with which restarts begin.

    The number falls at a restart. Without an interruption, falling to the first number of the job is none: some sources
    count the steps of each epoch.
    """
    lost = np.zeros(len(steps), np.bool_)
    falls = np.flatnonzero(np.diff(steps.number) <= 0) + 1
    gap_us = interruptions.overlap(
        steps.end_us[falls - 1], np.maximum(steps.start_us[falls], steps.end_us[falls - 1])
    )
    restarts = falls[(gap_us > 0) | (steps.number[falls] > steps.number[0])]
    for row in restarts.tolist():
        lost[:row] |= steps.number[:row] >= steps.number[row]
    return lost, restarts


def _start_ups(steps: JobSteps, interruptions: Intervals, restarts: IntArray, start_us: int) -> Intervals:
    """From the start of the job, the end of each interruption, and the last step before a restart to the next step."""
    begins = np.concatenate(([start_us], interruptions.end, steps.end_us[restarts - 1]))
    following = np.append(steps.every.start, steps.every.end[-1])
    # An interruption after the last step has no start-up.
    next_us = following[np.searchsorted(steps.every.start, begins)]
    return union(begins, np.maximum(begins, next_us))


def _interruptions(job: Job, clocks: Clocks, steps: JobSteps) -> Intervals:
    """Times without samples of any node, and without steps and events; none if nothing was sampled."""
    sampled = [part.node for part in job.facts if part.samples_us]
    missing = gaps(job)
    of_nodes = []
    for node in sampled:
        late_us = clocks.clock_offset_us.get(node, 0)
        own = [(gap.start_us - late_us, gap.end_us - late_us) for gap in missing if gap.node == node]
        starts, ends = np.array(own, np.int64).reshape(-1, 2).T
        of_nodes.append(outside(union(starts, ends), clocks.start_us, clocks.end_us))
    if not of_nodes:
        return outside(steps.every, clocks.start_us, clocks.start_us)
    covered = joined([*of_nodes, steps.every])
    open_us = outside(covered, clocks.start_us, clocks.end_us)
    events = job.gathered(_events_in, clocks, open_us)
    return outside(joined([covered, *events]), clocks.start_us, clocks.end_us)


def _events_in(part: Job, clocks: Clocks, open_us: Intervals) -> Iterator[Intervals]:
    """The events of a node that lie within these times, at least in part."""
    late_us = clocks.clock_offset_us.get(part.nodes[0], 0)
    start_us, end_us = part.events.start_us - late_us, part.events.end_us - late_us
    rows = open_us.overlap(start_us, np.maximum(end_us, start_us + 1)) > 0
    if rows.any():
        yield union(start_us[rows], end_us[rows])
