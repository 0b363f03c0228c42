"""At which lines of code processes were sampled, while their GPU was idle, and in which phase of training.

The line that counts is the innermost one of the job's own code, with the library function that it called. In a loader
process only what the process itself runs counts, not the code of the training process that started it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.data_loading import FETCH
from jobrules.measures.framework_time import CHECKPOINT, EVALUATION, phases_by_rank
from jobrules.measures.intervals import time_of
from jobrules.measures.rows import TRAIN, series_of
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import (
    BoolArray,
    CodeFrame,
    FloatArray,
    IntArray,
    Job,
    Metric,
    Panel,
    ProcessStacks,
    natural_sorted,
)
from jobrules.model.names import FileName, FunctionName  # noqa: TC001 - msgspec reads the annotation
from jobrules.text import count, escape_name, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Phases of the time of a rank: before its work and after it, between whole steps, and outside of all that was recorded.
#: Others have the names of their event types.
BEFORE, AFTER, BETWEEN, REST = "before", "after", "between", ""
#: What stands for all names of checkpoints, and of evaluation.
SAVING, EVALUATING = CHECKPOINT[0], EVALUATION[0]
#: Use of the GPU of the process at that moment.
BUSY, IDLE, UNKNOWN = 0, 1, 2
#: A sample of a GPU is the mean of the time before it: it tells of so many intervals.
_NEAR_INTERVALS = 2
#: Libraries that only call what is loaded: what they call tells more.
_CALLERS = (
    *("torch/utils/data/", "torch/utils/_contextlib.py", "multiprocessing/", "concurrent/", "contextlib.py"),
    *("queue.py", "selectors.py", "threading.py"),
)
#: Where the own code of a process that was forked begins.
_BEGINS = "multiprocessing/process.py"


class CodePlace(Struct, frozen=True, kw_only=True, order=True):
    """A line of the job's own code, and the function of a library that it called; the line of a library where no own code
    is on the stack.
    """

    file: FileName
    line: int
    function: FunctionName
    #: ``PIL.Image.open``; empty without any.
    call: FunctionName = ""

    @property
    def own(self) -> tuple[str, int, str]:
        """The line without what it called."""
        return self.file, self.line, self.function

    @property
    def name(self) -> str:
        """``data.py:41 load_image``; the line alone outside of functions, and none for a whole function."""
        at = f":{self.line}" if self.line else ""
        return f"{self.file}{at} {self.function}".removesuffix(" <module>")

    def __str__(self) -> str:
        """The same as code, with what it called, for a sentence."""
        names = [escape_name(text, 100).replace("`", "") for text in (self.name, self.call) if text]
        return " → ".join(f"`{text}`" for text in names)


#: Of samples without a line: a process that only waits for work, as a loader process does.
NOWHERE = CodePlace(file="", line=0, function="")


class SampledLines(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one process, counted."""

    #: Without samples.
    stacks: ProcessStacks
    #: The places, and (nodes,) the position in them of each node of the tree.
    places: tuple[CodePlace, ...]
    of_node: IntArray
    phases: tuple[str, ...]
    #: (rows,) node of the tree, position in ``phases``, use of the GPU, how many samples, and of how many of them the GPU
    #: was idle by its mean use.
    stack: IntArray
    phase: IntArray
    use: IntArray
    count: IntArray
    lost: FloatArray

    @property
    def is_main(self) -> bool:
        """Whether it trains, and loads no data for another process."""
        return self.stacks.kind == "main"

    @property
    def place(self) -> IntArray:
        """(rows,) position in ``places``."""
        return np.asarray(self.of_node[self.stack])

    def within(self, *phases: str) -> BoolArray:
        """(rows,) which are of some phases."""
        return np.isin(self.phase, [i for i, one in enumerate(self.phases) if one in phases])

    @property
    def in_work(self) -> BoolArray:
        """(rows,) which are of the work of the job."""
        return ~self.within(BEFORE, AFTER)


def sampled_lines(job: Job) -> list[SampledLines]:
    """Of each process whose stacks were sampled, main processes first."""
    return job.once(_sampled_lines)


def _sampled_lines(job: Job) -> list[SampledLines]:
    found = job.gathered(_of_node, Work.of(job))
    return sorted(found, key=lambda one: not one.is_main)


def _of_node(part: Job, work: Work | None) -> Iterator[SampledLines]:
    (node,) = part.nodes
    ranks = natural_sorted({one.rank for one in part.stacks if one.kind == "main"})
    for stacks in part.stacks:
        time_us = stacks.time_us
        places, of_node = places_of(stacks)
        phases, phase = _phases(part, stacks.rank, time_us, work)
        use, lost = _use(part.panel(node, Metric.GPU_UTILIZATION), ranks, stacks.rank, time_us)
        codes = (stacks.stack.astype(np.int64) * len(phases) + phase) * 3 + use
        rows, of_row, counts = np.unique(codes, return_inverse=True, return_counts=True)
        stack, rest = np.divmod(rows, 3 * len(phases))
        yield SampledLines(
            stacks=stacks.within(0, -1),
            places=places,
            of_node=of_node,
            phases=phases,
            stack=stack,
            phase=rest // 3,
            use=rest % 3,
            count=counts,
            lost=np.bincount(of_row, lost, len(rows)).astype(np.float64),
        )


def places_of(stacks: ProcessStacks) -> tuple[tuple[CodePlace, ...], IntArray]:
    """All places, and (nodes,) the position of that of each node of the tree."""
    frames, known = stacks.frames, {NOWHERE: 0}
    calls_only = [one.place != "own" and one.file.startswith(_CALLERS) for one in frames]
    begins = [stacks.kind == "loader" and one.file == _BEGINS for one in frames]
    #: Frame of the line, and of what it called, of each node; -1 without any.
    lines: list[int] = []
    calls: list[int] = []
    found = np.zeros(len(stacks.parent), np.int64)
    for node, (parent, frame) in enumerate(zip(stacks.parent.tolist(), stacks.frame.tolist(), strict=True)):
        line, call = (lines[parent], calls[parent]) if parent >= 0 else (-1, -1)
        if begins[frame]:
            line, call = -1, -1
        elif frames[frame].place == "own" or (
            line < 0 and frames[frame].place == "library" and not calls_only[frame]
        ):
            line, call = frame, -1
        elif line >= 0 and (call < 0 or (calls_only[call] and not calls_only[frame])):
            call = frame
        lines.append(line)
        calls.append(call)
        place = _place(frames[line], frames[call] if call >= 0 else None) if line >= 0 else NOWHERE
        found[node] = known.setdefault(place, len(known))
    return tuple(known), found


def _place(line: CodeFrame, call: CodeFrame | None) -> CodePlace:
    return CodePlace(file=line.file, line=line.line, function=line.function, call=call.dotted if call else "")


def _phases(part: Job, rank: str, time_us: IntArray, work: Work | None) -> tuple[tuple[str, ...], IntArray]:
    """Names of phases, and (n,) the phase of each moment: of several at once the one that tells most."""
    (node,) = part.nodes
    events, steps = part.events, part.steps
    held: list[tuple[str, BoolArray]] = []
    modes = {mode: rows for (_, own, mode), rows in series_of(steps).items() if own == rank}
    if steps.whole and TRAIN in modes:
        held.append((BETWEEN, ~time_of(steps, modes[TRAIN]).holds(time_us)))
    own = {kind: time_of(events, rows) for kind, rows in phases_by_rank(events).get(rank, {}).items()}
    # The shorter ones last: they lie in the longer ones, or tell more.
    held += [(kind, own[kind].holds(time_us)) for kind in sorted(own, key=lambda kind: -own[kind].total)]
    for names in ((FETCH,), EVALUATION, CHECKPOINT):
        held += [(names[0], own[kind].holds(time_us)) for kind in names if kind in own]
        held += [(names[0], time_of(steps, modes[mode]).holds(time_us)) for mode in names if mode in modes]
    if work:
        begin_us, end_us = work.span_us(node)
        held += [(BEFORE, time_us < begin_us), (AFTER, time_us > end_us)]
    known = [REST, *dict.fromkeys(name for name, _ in held)]
    phase = np.zeros(len(time_us), np.int64)
    for name, inside in held:
        phase[inside] = known.index(name)
    return tuple(known), phase


def _use(
    panel: Panel | None, ranks: Sequence[str], rank: str, time_us: IntArray
) -> tuple[IntArray, FloatArray]:
    """(n,) use of the GPU of a rank, and the share of the time around in which it was idle.

    As many GPUs as ranks are in their order; of others one that is busy counts for all.
    """
    if panel is None:
        return np.full(len(time_us), UNKNOWN), np.zeros(len(time_us))
    row = np.minimum(np.searchsorted(panel.time_us, time_us), len(panel.time_us) - 1)
    near = np.abs(panel.time_us[row] - time_us) <= _NEAR_INTERVALS * max(panel.interval_us, 1)
    is_own = len(ranks) == len(panel.devices) and rank in ranks
    values = panel.values[row, ranks.index(rank)] if is_own else panel.values.max(axis=1)[row]
    use = np.select([near & (values < IDLE_PERCENT), near & (values >= IDLE_PERCENT)], [IDLE, BUSY], UNKNOWN)
    return use, np.where(use == UNKNOWN, 0.0, 1 - values / 100)


#: Samples in some time, without which no line is said to explain it.
MIN_SAMPLES = 50


# Which line explains a time


class LineShare(Struct, frozen=True, kw_only=True):
    """The line at which a process was for most of some time."""

    place: CodePlace
    #: Samples in that time and at that line, and of all other time.
    inside: int
    of_inside: int
    outside: int
    of_outside: int
    #: Share of the lost time that is at the line; and how much of the time is lost, where the GPU is low.
    explains: float
    idle: float = 1.0

    def counts(self, otherwise: str) -> str:
        """``71.0% of 1,240 samples (9.0% while busy)``."""
        others = f" ({share(self.outside / self.of_outside)} {otherwise})" if self.of_outside else ""
        return f"{share(self.inside / self.of_inside)} of {count(self.of_inside, 'sample')}{others}"


#: Half of the width of an interval of 95%.
_Z = 1.96
#: A line explains a time if it has more than this part of its samples, and so many times its part of the other ones.
MOST, LIFT = 0.5, 2.0


#: Some rows of the samples of a process; and samples, or lost ones, by their place.
Rows = tuple[SampledLines, BoolArray]
_ByPlace = dict[CodePlace, float]


def leading_line(
    inside: Sequence[Rows], outside: Sequence[Rows], least: int = MIN_SAMPLES
) -> LineShare | None:
    """The line that explains some time, from the samples in it and those in other time.

    None with fewer than ``least`` samples in it, or unless a line has clearly more than half of them, and twice its part of
    the others. What is spread over the lines of one function is of the function.
    """
    within, without = (_by_place(some, lambda one: one.count) for some in (inside, outside))
    return _leading(within, without, least) or _leading(_by_function(within), _by_function(without), least)


def _leading(within: _ByPlace, without: _ByPlace, least: int) -> LineShare | None:
    of_inside, of_outside = round(sum(within.values())), round(sum(without.values()))
    by_line = _by_line(within)
    if of_inside < least or not by_line:
        return None
    line = max(by_line, key=by_line.__getitem__)
    found, other = round(by_line[line]), round(_by_line(without).get(line, 0))
    if _at_least(found / of_inside, of_inside) <= MOST:
        return None
    if of_outside and found / of_inside < LIFT * other / of_outside:
        return None
    return LineShare(
        place=_place_at(line, within),
        inside=found,
        of_inside=of_inside,
        outside=other,
        of_outside=of_outside,
        explains=found / of_inside,
    )


#: A line is seldom tried where less of the time is lost; samples that tell of one sample of a GPU; errors of 3 sigma.
_LEAST_LOST, _TOGETHER, _SURE = 0.15, 5, 3.0


def leading_line_of_low_use(lines: SampledLines, rows: BoolArray) -> LineShare | None:
    """The line that explains the loss of a GPU that is low, and never idle for long: stalls are shorter than its samples.

    Two times that fill more than the whole have the rest in common. So a line explains the loss for certain if too little
    time without it is left; otherwise if the GPU is used clearly less around it, and most is lost there. The line must not
    take more of the busy time than half of what it takes of the lost time, even if all of the latter lies in it.
    """
    known = (lines, rows & (lines.use != UNKNOWN))
    counts, losses = _by_place([known], lambda one: one.count), _by_place([known], lambda one: one.lost)
    return _stalling(counts, losses) or _stalling(_by_function(counts), _by_function(losses))


def _stalling(counts: _ByPlace, losses: _ByPlace) -> LineShare | None:
    n, lost = round(sum(counts.values())), sum(losses.values())
    by_line = _by_line(losses)
    if n < 2 * MIN_SAMPLES or not _LEAST_LOST < lost / n < 1 or not by_line:
        return None
    line = max(by_line, key=by_line.__getitem__)
    here, lost_here = _by_line(counts)[line], by_line[line]
    part, idle = here / n, lost / n
    if max(0.0, part - idle) / (1 - idle) > min(1.0, part / idle) / LIFT:
        return None
    certain = (_at_least(part, n) + idle - 1) / idle
    error = float(np.sqrt(_TOGETHER * idle * (1 - idle) * (1 / here + 1 / max(n - here, 1))))
    lower = lost_here / here - (lost - lost_here) / max(n - here, 1) >= _SURE * error
    if certain <= MOST and not (lower and _at_least(lost_here / lost, n) > MOST):
        return None
    return LineShare(
        place=_place_at(line, counts),
        inside=round(here),
        of_inside=n,
        outside=0,
        of_outside=0,
        explains=max(certain, lost_here / lost if lower else 0.0),
        idle=idle,
    )


def _by_place(several: Sequence[Rows], of: Callable[[SampledLines], IntArray | FloatArray]) -> _ByPlace:
    found: _ByPlace = {}
    for one, rows in several:
        sums = np.bincount(one.place[rows], of(one)[rows], len(one.places))
        for place, n in zip(one.places, sums.tolist(), strict=True):
            if n:
                found[place] = found.get(place, 0.0) + n
    return found


def _by_function(by_place: _ByPlace) -> _ByPlace:
    """As if each function had one line."""
    found: _ByPlace = {}
    for place, n in by_place.items():
        one = replace(place, line=0, call="")
        found[one] = found.get(one, 0.0) + n
    return found


def _by_line(by_place: _ByPlace) -> dict[tuple[str, int, str], float]:
    """Without what the lines called, and what is at none."""
    found: dict[tuple[str, int, str], float] = {}
    for place, n in by_place.items():
        if place != NOWHERE:
            found[place.own] = found.get(place.own, 0.0) + n
    return found


def _place_at(line: tuple[str, int, str], by_place: _ByPlace) -> CodePlace:
    """The line with what it called most."""
    return max((place for place in by_place if place.own == line), key=by_place.__getitem__)


def _at_least(part: float, n: int) -> float:
    """Lower end of Wilson's interval of a share of ``n`` samples."""
    middle = part + _Z**2 / (2 * n)
    return (middle - _Z * float(np.sqrt(part * (1 - part) / n + _Z**2 / (4 * n**2)))) / (1 + _Z**2 / n)
