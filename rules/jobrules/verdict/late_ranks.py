"""Ranks for which the others wait: in each step, or before the first one."""

from __future__ import annotations

from functools import partial

import numpy as np

from jobrules.causes.claims import idle_first
from jobrules.causes.data_loading import MAX_RANK
from jobrules.causes.rank_waits import REST, LateRank, RankWaits, late_rank
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import FETCH
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import Fact, Finding, FloatArray, Inferred, Job, Note, Panel, Severity, Where
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.model.finding import OF_LOOP
from jobrules.text import capitalized, count, duration, escape_name, join_names, share, took
from jobrules.verdict.story import CRITICAL_SHARE, DATA_LOADING, WARNING_SHARE

SLOW_RANK, LATE_START = "slow-rank", "late-start"
#: Phases of a step in words.
_WORDS = {
    FETCH: "batch fetch",
    "Forward": "forward pass",
    "Backward(post-forward)": "backward pass",
    "Optimizer": "optimizer step",
    REST: "time outside of recorded phases",
}
SLOW_RANK_ADVICE = (
    "Compare a step of that rank with one of the others: more data, a slower machine, or work that only it does.",
)
SLOW_FETCH_ADVICE = (
    "Give that rank what the others have: storage as fast, as many loader processes, samples of the same size.",
)
LATE_START_ADVICE = ("Find out what that rank does before its first step; start all ranks at once.",)


def slow_rank(job: Job) -> Cause | None:
    """The rank for which the others wait in each step; None if there is none, or if they wait little."""
    waits, work = RankWaits.of(job), Work.of(job)
    late = late_rank(waits) if waits and work and work.enough else None
    if not late or late.part < WARNING_SHARE:
        return None
    return Cause(
        key=SLOW_RANK,
        precedence=Precedence.SLOW_RANK,
        when=f"while other ranks waited for {rank_name(late.rank)}",
        # The time of slow fetches is that of the cause of waiting for data.
        claim=None if late.reason == FETCH else partial(_waiting, late.part),
        finding=partial(_slow, job, late),
        of_loop=late.part,
    )


def _waiting(share_of_steps: float, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    """Claim the share of the time of steps for which ranks wait, idle samples first."""
    del weight_us
    span_us = part.steps.span_us
    if span_us is None:
        return None
    inside = (panel.time_us >= span_us[0]) & (panel.time_us <= span_us[1])

    def of_gpu(gpu: Samples) -> FloatArray:
        here = gpu.in_work & inside[gpu.rows]
        amount_us = share_of_steps * float(gpu.weight_us[here].sum())
        return idle_first(np.where(here, gpu.left_us, 0.0), gpu.values < IDLE_PERCENT, amount_us)

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]


def _slow(job: Job, late: LateRank, claimed: Claimed) -> Finding:
    who, waiting = rank_name(late.rank), count(late.waiting, "rank")
    verb = "waits" if late.waiting == 1 else "wait"
    evidence: list[Fact] = [
        Where((late.node,)),
        Note(
            f"{waiting} {verb} for {share(late.part)} of the time of steps, in the {phase_words(late.phase)}"
        ),
    ]
    if len(late.ranks) > 1:
        also = [escape_name(rank, MAX_RANK) for _, rank in late.ranks[1:]]
        evidence.append(Note(f"About as late: {join_names([f'rank {one}' for one in also])}"))
    if job.gpu_count:
        evidence.append(Note("A GPU that waits for another rank may count as used"))
    if late.reason is None:
        evidence.append(
            Note(
                "No phase takes that much longer on it: its work may hide in the one in which the others wait"
            )
        )
    return Finding(
        key=SLOW_RANK,
        severity=Severity.WARNING,
        title=f"{capitalized(who)} is late by {took(late.late_us)} a step{_reason(late)}",
        evidence=(*evidence, Inferred("the times of the phases of each rank")),
        advice=SLOW_FETCH_ADVICE if late.reason == FETCH else SLOW_RANK_ADVICE,
        rules=(),
        section="steps",
        devices=claimed.devices,
        because_of=(DATA_LOADING,) if late.reason == FETCH else (),
        seen_as=f"{who} late by {took(late.late_us)} a step; {waiting} {verb} for {share(late.part)} of it",
    )


def _reason(late: LateRank) -> str:
    """``: its batch fetch takes 71 ms, those of the others 8 ms``; empty without one."""
    if late.reason is None:
        return ""
    others = "that of the other" if late.waiting == 1 else "those of the others"
    return f": its {phase_words(late.reason)} takes {took(late.own_us)}, {others} {took(late.others_us)}"


def phase_words(phase: str) -> str:
    """``batch fetch``, as in a sentence."""
    return _WORDS.get(phase) or escape_name(phase, MAX_RANK)


def late_start(job: Job) -> list[Finding]:
    """The rank whose first step begins after those of the others, which wait for it."""
    waits = RankWaits.of(job)
    if waits is None:
        return []
    clocks = Clocks.of(job)
    began_us = waits.first_us - [clocks.late_us(node) for node, _ in waits.ranks]
    slow = int(began_us.argmax())
    late_us = float(began_us[slow] - np.median(np.delete(began_us, slow)))
    (_, end_us), (node, rank) = job.steps_us or (0, 0), waits.ranks[slow]
    length_us = end_us - float(began_us.min())
    if late_us < WARNING_SHARE * length_us:
        return []
    part = late_us / length_us
    return [
        Finding(
            key=LATE_START,
            severity=Severity.CRITICAL if part >= CRITICAL_SHARE else Severity.WARNING,
            title=f"{capitalized(rank_name(rank))} began its first step {duration(late_us)} after the others, which waited for it",
            evidence=(Where((node,)),),
            advice=LATE_START_ADVICE,
            rules=(),
            section="steps",
            share=part,
            share_of=OF_LOOP,
            start_us=int(began_us.min()),
            end_us=int(began_us.min() + late_us),
        )
    ]


def rank_name(rank: str) -> str:
    """``rank 1``, as in a sentence."""
    return f"rank {escape_name(rank, MAX_RANK)}"
