"""The job in time: what came before the training loop, the loop, what came after, and the gaps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from jobrules.measures.intervals import union
from jobrules.measures.sample_weights import Gap, gaps
from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.measures.work import Work
from jobrules.model import Job, Percent
from jobrules.model.names import NodeName, OwnText
from jobrules.model.time_parts import named
from jobrules.text import apportion


class Phase(Struct, frozen=True, kw_only=True):
    """A stretch of the job."""

    #: ``before``, ``loop``, ``after`` or ``whole``.
    key: OwnText
    label: OwnText
    start_us: int
    end_us: int
    #: Of the job's duration; the phases add up to 100.0.
    percent: Percent


class Missing(Struct, frozen=True, kw_only=True):
    """All times without samples of one node, or those that all nodes have in common."""

    #: Empty where it is all nodes.
    node: NodeName
    #: Start of the first and end of the last.
    start_us: int
    end_us: int
    #: How many there are, how long they are together, and in percent of the job, one digit.
    count: int
    length_us: int
    percent: float
    #: What is left of the job, in percent.
    measured_percent: float


class JobPhases(Struct, frozen=True, kw_only=True):
    """The job in time."""

    #: What separates the phases: ``steps``, ``gpu`` (first and last GPU work), ``both`` or ``none``.
    basis: OwnText
    phases: tuple[Phase, ...]
    gaps: tuple[Gap, ...]
    #: First and last GPU work; None if no GPU worked.
    first_work_us: int | None
    last_work_us: int | None
    #: The gaps by node, the longest in all first; and the times in which none of several nodes was sampled.
    missing: tuple[Missing, ...] = ()
    interrupted: Missing | None = None
    #: When traces of PyTorch's profiler were recorded.
    profiled: tuple[tuple[int, int], ...] = ()

    @property
    def middle(self) -> str:
        """What a sentence calls the time between start-up and wind-down: ``training loop``, ``GPU work``, ``work``."""
        return named(_MIDDLE.get(self.basis, "work")).name

    @property
    def bounds(self) -> tuple[str, ...]:
        """What each phase but the first begins with: ``first step``, ``last GPU work``, ``end of the work``."""
        kind = {"steps": "step", "gpu": "GPU work"}.get(self.basis)
        words = {"loop": "first", "after": "last"} if kind else {"loop": "start", "after": "end"}
        return tuple(f"{words[phase.key]} {kind or 'of the work'}" for phase in self.phases[1:])


#: The part of time between start-up and wind-down.
_MIDDLE = {"steps": "loop", "gpu": "gpu-work", "both": "work"}


def job_phases(job: Job) -> JobPhases:
    """Phases by the work of the job: of its GPUs, its recorded steps, or both, said in ``basis``.

    A phase of one sampling interval or less is the grain of the samples and belongs to the loop.
    """
    start_us, end_us = job.span_us
    interval_us = job.interval_us
    work = Work.of(job)
    basis, middle = (work.basis, (work.begin_us, work.end_us)) if work else ("gpu", None)
    if middle and job.covers_time and end_us - start_us > interval_us:
        first_us = start_us if middle[0] - start_us <= interval_us else middle[0]
        last_us = end_us if end_us - middle[1] <= interval_us else middle[1]
        bounds = (start_us, first_us, last_us, end_us)
        ends = zip(("before", "loop", "after"), bounds[:-1], bounds[1:], strict=True)
        stretches = [(key, a, b) for key, a, b in ends if b > a]
    else:
        basis, stretches = "none", [("whole", start_us, end_us)]
    found = gaps(job)
    spans = {node.node: node.samples_us for node in job.facts}
    # More than one snapshot: the samples of one span no more than this.
    sampled = [node for node, span in spans.items() if span and span[1] - span[0] > TOLERANCE_US]
    return JobPhases(
        basis=basis,
        phases=phases_of([(key, _MIDDLE[basis] if key == "loop" else key, a, b) for key, a, b in stretches]),
        gaps=found,
        first_work_us=work.gpu_us[0] if work and work.gpu_us else None,
        last_work_us=work.gpu_us[1] if work and work.gpu_us else None,
        missing=missing(found, (start_us, end_us)),
        interrupted=interrupted(found, sampled, (start_us, end_us)),
        profiled=_profiled(job),
    )


def phases_of(stretches: Sequence[tuple[str, str, int, int]]) -> tuple[Phase, ...]:
    """Of the key of each, its part of ``TIME_PARTS``, start, and end."""
    percents = apportion([max(end - start, 1) for *_, start, end in stretches], 100.0, 1)
    return tuple(
        Phase(key=key, label=named(part).title, start_us=start, end_us=end, percent=percent)
        for (key, part, start, end), percent in zip(stretches, percents, strict=True)
    )


def _profiled(job: Job) -> tuple[tuple[int, int], ...]:
    """The time of all captures whose clocks are known, within the job."""
    spans = [span for one in job.captures if (span := one.span_us)]
    held = union(*np.clip(np.array(spans, np.int64).reshape(-1, 2).T, *job.span_us))
    return tuple(zip(held.start.tolist(), held.end.tolist(), strict=True))


def missing(found: Sequence[Gap], span_us: tuple[int, int]) -> tuple[Missing, ...]:
    """The gaps of a job of that span by node, the longest in all first."""
    by_node: dict[str, list[tuple[int, int]]] = {}
    for gap in found:
        by_node.setdefault(gap.node, []).append((gap.start_us, gap.end_us))
    rows = [_missing(node, spans, span_us) for node, spans in by_node.items()]
    return tuple(sorted(rows, key=lambda row: -row.length_us))


def interrupted(found: Sequence[Gap], nodes: Sequence[str], span_us: tuple[int, int]) -> Missing | None:
    """The times in which none of these nodes was sampled; none without any, or where they are not several."""
    wanted = set(nodes)
    found = [gap for gap in found if gap.node in wanted]
    if len(nodes) < 2 or {gap.node for gap in found} != wanted:
        return None
    # Gaps of one node do not touch, so as many as there are nodes open at once means all of them.
    ends = sorted([(gap.start_us, 1) for gap in found] + [(gap.end_us, -1) for gap in found])
    spans, opened = [], 0
    for (us, change), (next_us, _) in itertools.pairwise(ends):
        opened += change
        if opened == len(nodes) and next_us > us:
            spans.append((us, next_us))
    return _missing("", spans, span_us) if spans else None


def _missing(node: str, spans: Sequence[tuple[int, int]], span_us: tuple[int, int]) -> Missing:
    length = sum(end - start for start, end in spans)
    percent, measured = apportion((length, span_us[1] - span_us[0] - length), 100.0, 1)
    return Missing(
        node=node,
        start_us=spans[0][0],
        end_us=spans[-1][1],
        count=len(spans),
        length_us=length,
        percent=percent,
        measured_percent=measured,
    )
