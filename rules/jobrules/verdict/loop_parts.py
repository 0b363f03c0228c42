"""What took the training loop of a job without GPU samples: time between whole steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from jobrules.measures.data_loading import FETCH
from jobrules.measures.framework_time import CHECKPOINT, EVALUATION, phases_by_rank
from jobrules.measures.intervals import Intervals, difference, joined, time_of, union
from jobrules.measures.rows import series_of
from jobrules.model import Fact, Finding, Job, Note, Severity, Where
from jobrules.model.finding import OF_LOOP
from jobrules.text import count, escape_name, percent, share, took
from jobrules.verdict.evaluation import evaluation_advice
from jobrules.verdict.starting import COMPILE_ADVICE, recompiled
from jobrules.verdict.story import CRITICAL_SHARE, NAMED_SHARE, WARNING_SHARE

#: The mode of training steps, and what steps of any other mode are called.
_TRAIN, _EVALUATION = "TRAIN", "Evaluation"
#: An event type that takes this part of the time between steps is named in the title; so many are named in the evidence.
_NAMED_PART, _MAX_NAMED = 0.5, 4
_MAX_NAME = 40

BETWEEN_ADVICE = ("Do it less often, or in the background while training goes on.",)
RECOMPILED = "recompiled"
RECOMPILED_ADVICE = (
    "Find what changes from step to step: TORCH_LOGS=recompiles. Pad batches to a few lengths, or compile with dynamic=True.",
    COMPILE_ADVICE,
)
UNNAMED_ADVICE = (
    "Record what runs there: `jobrecord.phase(name)` around it, `jobrecord.data(loader)` in `jobrecord.eval()`.",
)


class RankLoop(Struct, frozen=True, kw_only=True):
    """The training loop of one rank, from its first step to the last that was recorded of it, without restarts, in
    microseconds.
    """

    node: str
    rank: str
    start_us: int
    length_us: int
    #: Outside of training steps, and of it by event type.
    between_us: int
    between: dict[str, int]

    @property
    def name(self) -> str:
        """``rank 1``, as in a sentence."""
        return f"rank {escape_name(self.rank, _MAX_NAME)}"


def loop_findings(job: Job) -> list[Finding]:
    """Findings on the training loop, if steps hold all that a rank does in them."""
    return _between(job, job.gathered(rank_loops))


def rank_loops(part: Job) -> Iterator[RankLoop]:
    """The loop of each rank of a node, if its steps are whole."""
    (node,) = part.nodes
    steps, events = part.steps, part.events
    if not steps.whole:
        return
    by_rank: dict[str, dict[str, Intervals]] = {}
    restarts: dict[tuple[str, str], Intervals] = {}
    for (_, rank, mode), rows in series_of(steps).items():
        starts_us, ends_us, number = steps.start_us[rows], steps.end_us[rows], steps.number[rows]
        by_rank.setdefault(rank, {})[mode] = union(starts_us, ends_us)
        # A job that was started again counts its steps anew, or resumes behind a checkpoint.
        again = np.flatnonzero((np.diff(number) <= 0) & (number[1:] >= 0))
        restarts[rank, mode] = union(ends_us[again], starts_us[again + 1])
    phases_of = phases_by_rank(events)
    for rank, modes in by_rank.items():
        main = _TRAIN if _TRAIN in modes else max(modes, key=lambda mode: modes[mode].total)
        steps_us = modes[main]
        if not steps_us.total:
            continue
        restarted = restarts[rank, main]
        own = {kind: time_of(events, rows) for kind, rows in phases_of.get(rank, {}).items()}
        others = [times for mode, times in modes.items() if mode != main]
        # The last evaluation, and the last checkpoint, follow the last step.
        start_us = int(steps_us.start[0])
        last = (own[kind] for kind in (*CHECKPOINT, *EVALUATION) if kind in own)
        end_us = max(int(times.end[-1]) for times in (steps_us, *others, *last) if times.total)
        gaps = difference(union(steps_us.end, np.append(steps_us.start[1:], end_us)), restarted)
        between = {_EVALUATION: joined(others).shared(gaps)} if others else {}
        between |= {kind: times.shared(gaps) for kind, times in own.items() if kind != FETCH}
        yield RankLoop(
            node=node,
            rank=rank,
            start_us=start_us,
            length_us=end_us - start_us - restarted.total,
            between_us=gaps.total,
            between={kind: us for kind, us in between.items() if us},
        )


def _between(job: Job, loops: Sequence[RankLoop]) -> list[Finding]:
    """Time between the steps of the rank with most of it."""
    worst = max(loops, key=lambda one: one.between_us / one.length_us, default=None)
    if worst is None or worst.between_us < WARNING_SHARE * worst.length_us:
        return []
    named = [(us / worst.length_us, kind) for kind, us in worst.between.items()]
    named = sorted((one for one in named if one[0] >= NAMED_SHARE), reverse=True)[:_MAX_NAMED]
    part = between = worst.between_us / worst.length_us
    title = f"{share(between)} of the training loop is between steps, mostly without a record"
    advice: tuple[str, ...] = UNNAMED_ADVICE
    if named and named[0][0] >= _NAMED_PART * between:
        part, kind = named[0]
        title = f"{escape_name(kind, _MAX_NAME)} takes {share(part)} of the training loop"
        advice = BETWEEN_ADVICE
        if kind == _EVALUATION:
            waits, advice = evaluation_advice(job)
            title += f" and {waits}" if waits else ""
    evidence: tuple[Fact, ...] = (
        Where((worst.node,)),
        Note(f"Between the steps of {worst.name}: {share(between)} of the training loop"),
        *(Note(f"{escape_name(kind, _MAX_NAME)}: {share(one)}") for one, kind in named),
    )
    return [_finding("between-steps", title, part, evidence, advice, worst)]


def _finding(
    key: str, title: str, part: float, evidence: tuple[Fact, ...], advice: tuple[str, ...], loop: RankLoop
) -> Finding:
    return Finding(
        key=key,
        severity=Severity.CRITICAL if part >= CRITICAL_SHARE else Severity.WARNING,
        title=title,
        evidence=evidence,
        advice=advice,
        rules=(),
        section="steps",
        share=part,
        share_of=OF_LOOP,
        start_us=loop.start_us,
        end_us=loop.start_us + loop.length_us,
    )


def recompilations(job: Job) -> list[Finding]:
    """What torch.compile compiled after the first steps."""
    found = recompiled(job)
    if found is None:
        return []
    return [
        Finding(
            key=RECOMPILED,
            severity=Severity.WARNING if found.share >= WARNING_SHARE else Severity.INFO,
            title=f"torch.compile compiled again after the first steps: {count(found.times, 'time')}, {took(found.us)} in all",
            evidence=(
                Where((found.node,)),
                Note(
                    f"On rank {escape_name(found.rank, 24)}, {percent(100 * found.share)} of the training loop"
                ),
            ),
            advice=RECOMPILED_ADVICE,
            rules=(),
            section="steps",
            share=found.share,
            share_of=OF_LOOP,
        )
    ]
