"""Goodput: how much of the job's time was training that was kept, and where the rest went.

The idea is that of ML goodput measurement (productive training time over elapsed time); the parts here are disjoint,
and measured instead of logged. Each moment goes to the first part of ``PARTS`` that holds. Steps are those of the
job: from the earliest start to the latest end over the training processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from jobrules.analyses.blocks import fetched_us, stall_limit
from jobrules.analyses.job_steps import JobSteps
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.framework_time import CHECKPOINT, recorded_phases
from jobrules.measures.intervals import Intervals, joined, outside, union
from jobrules.measures.rows import TRAIN, series_of
from jobrules.measures.sample_weights import gaps
from jobrules.model import SECOND_US, BoolArray, Count, FloatArray, IntArray, Job
from jobrules.model.time_parts import TimePart, named
from jobrules.text import apportion

#: The parts in the order in which they claim. Steps bound them; start-up and wind-down, the phases of the job, leave out
#: GPU work before and after the steps.
PARTS = (
    "interruption",
    "checkpoint",
    "lost-work",
    "before-first-step",
    "evaluation",
    "first-step",
    "data-loading",
    "stall",
    "productive",
    "after-last-step",
    "between-steps",
)
#: Steps of one process follow one another: if more of them overlap, they are of several.
SEVERAL_PART = 0.1


class Goodput(Struct, frozen=True, kw_only=True):
    """The job's time in parts that add up to it."""

    seconds: float
    #: All of ``PARTS``, in seconds. That of productive time is rounded to the nearest tenth of a percent, the others so that all
    #: add up to 100.0.
    parts: tuple[TimePart, ...]
    #: Training steps that ran again after a restart, each time but the last.
    lost_steps: Count = 0

    def of(self, key: str) -> TimePart:
        """The part of a key."""
        return next(part for part in self.parts if part.key == key)

    @property
    def percent(self) -> float:
        """Productive time in percent of the job."""
        return self.of("productive").percent

    @property
    def at_most(self) -> bool:
        """True if other time may be counted as productive: no fetch was recorded, or what a restart repeats is not known."""
        return not (self.of("data-loading").measured and self.of("lost-work").measured)


def goodput(job: Job) -> Goodput | None:
    """None without training steps, or if the job takes no time."""
    clocks = Clocks.of(job)
    steps = JobSteps.of(job)
    if not len(steps) or not clocks.length_us:
        return None
    span = clocks.start_us, clocks.end_us
    interruptions = _interruptions(job, clocks, steps)
    written = recorded_phases(job, clocks, CHECKPOINT)
    stopped = joined([interruptions, written])
    # Steps of neighboring numbers overlap if processes lag behind one another.
    start_us = np.maximum(steps.start_us, np.maximum.accumulate(steps.previous_end_us))
    start_us = np.minimum(start_us, steps.end_us)
    restarts, known = _restarts(job, clocks, interruptions)
    lost = np.zeros(len(steps), np.bool_)
    for one in restarts:
        earlier = (steps.start_us >= one.since_us) & (steps.end_us <= one.start_us)
        lost |= earlier & (steps.number >= one.number)
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
        "lost-work": lost_steps.total - lost_steps.shared(stopped),
        "before-first-step": starts.total - starts.shared(joined([stopped, lost_steps])),
        "evaluation": steps.others.total - steps.others.shared(before),
        **inside,
        "after-last-step": outside(stopped, last_us, max(last_us, span[1])).total,
    }
    us["data-loading"] += int(waits_us.sum()) if waits_us is not None else 0
    us["between-steps"] = clocks.length_us - sum(us.values())
    measured = {
        "interruption": bool(job.samples_us),
        "checkpoint": bool(written.total),
        # Steps of the recorder hold whatever the script does not mark.
        "evaluation": bool(steps.others.total) or not any(job.each(_are_whole)),
        "lost-work": known or bool(lost.any()),
        "data-loading": fetches_us is not None,
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
            TimePart(
                key=key,
                label=named(key).title,
                role=named(key).role,
                amount=us[key] / SECOND_US,
                percent=percents[key],
                measured=measured.get(key, True),
            )
            for key in PARTS
        ),
        lost_steps=int(lost.sum()),
    )


def _are_whole(part: Job) -> bool:
    return part.steps.whole


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
    parts = {"first-step": warm_up, "data-loading": wait, "stall": stall, "productive": rest - stall}
    us = {key: round(float(values.sum())) for key, values in parts.items()}
    return us | {
        "productive": round(float(lasted.sum())) - us["first-step"] - us["data-loading"] - us["stall"]
    }


class _Run(Struct, frozen=True, kw_only=True):
    """Steps of one process that count up, from its start or after a fall of the number."""

    #: Of the first and the last step.
    number: int
    last: int
    start_us: int
    end_us: int


class _Restart(Struct, frozen=True, kw_only=True):
    """A process began again with a step of this number, between the end of its last step and this start."""

    number: int
    end_us: int
    start_us: int
    #: When what it may repeat began.
    since_us: int


class _Chain(Struct, frozen=True, kw_only=True):
    """A process with those before it that it resumed."""

    #: Of the first step of all, and when what a restart may repeat began; 0 is the last run.
    number: int
    since_us: int
    last: _Run


def _restarts(job: Job, clocks: Clocks, interruptions: Intervals) -> tuple[list[_Restart], bool]:
    """The restarts of any process, and whether what they repeat is known.

    The number of its steps falls, after an interruption or to another number than its first: some sources count the steps
    of each epoch. A process that begins where an earlier one left off resumes it; one beside others is another one. One
    that counts from the beginning may repeat an earlier one, or be another one.
    """
    found: list[_Restart] = []
    chains: list[_Chain] = []
    known = True
    for own in sorted(job.gathered(_runs, clocks), key=lambda one: one[0].start_us):
        first, since_us, pairs = own[0].number, 0, list(itertools.pairwise(own))
        ended = sorted((one for one in chains if one.last.end_us <= own[0].start_us), key=_end_us)
        if resumed := next((one for one in reversed(ended) if one.number < first <= one.last.last), None):
            first, since_us = resumed.number, resumed.since_us
            pairs.insert(0, (resumed.last, own[0]))
        else:
            known = known and not any(first <= one.number for one in ended)
        for last, run in pairs:
            end_us, start_us = np.array([last.end_us]), np.array([max(run.start_us, last.end_us)])
            is_restart = run.number > first or interruptions.overlap(end_us, start_us)[0] > 0
            since_us = (since_us or last.start_us) if is_restart else 0
            if is_restart:
                found.append(
                    _Restart(number=run.number, end_us=last.end_us, start_us=run.start_us, since_us=since_us)
                )
        chains.append(_Chain(number=first, since_us=since_us, last=own[-1]))
    return found, known


def _end_us(chain: _Chain) -> int:
    return chain.last.end_us


def _runs(part: Job, clocks: Clocks) -> Iterator[list[_Run]]:
    """The runs of each training process of a node; of steps of several at one time, one run."""
    late_us = clocks.late_us(part.nodes[0])
    for (_, _, mode), rows in series_of(part.steps).items():
        number, start_us, end_us = (
            column[rows] for column in (part.steps.number, part.steps.start_us, part.steps.end_us)
        )
        if mode != TRAIN:
            continue
        falls = np.flatnonzero((np.diff(number) <= 0) & (number[1:] >= 0)) + 1
        if np.count_nonzero(start_us[1:] < end_us[:-1]) > SEVERAL_PART * len(rows):
            falls = falls[:0]
        edges = [0, *falls.tolist(), len(rows)]
        yield [
            _Run(
                number=int(number[a]),
                last=int(number[b - 1]),
                start_us=int(start_us[a]) - late_us,
                end_us=int(end_us[b - 1]) - late_us,
            )
            for a, b in itertools.pairwise(edges)
        ]


def _start_ups(
    steps: JobSteps, interruptions: Intervals, restarts: Sequence[_Restart], start_us: int
) -> Intervals:
    """From the start of the job, the end of each interruption, and the last step before a restart to the next step."""
    # All processes stop before one of them begins again.
    ended, started = np.array([(one.end_us, one.start_us) for one in restarts], np.int64).reshape(-1, 2).T
    ended = np.sort(ended)
    begins = np.concatenate(([start_us], interruptions.end, ended[np.searchsorted(ended, started) - 1]))
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
        late_us = clocks.late_us(node)
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
    late_us = clocks.late_us(part.nodes[0])
    start_us, end_us = part.events.start_us - late_us, part.events.end_us - late_us
    rows = open_us.overlap(start_us, np.maximum(end_us, start_us + 1)) > 0
    if rows.any():
        yield union(start_us[rows], end_us[rows])
