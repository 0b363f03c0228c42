"""Causes that processes recorded by name: GPUs that are idle while a checkpoint is written, or during evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from jobrules.measures.framework_time import CHECKPOINT, EVALUATION, recorded_phases
from jobrules.measures.intervals import Intervals
from jobrules.measures.sample_weights import around_us
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, Finding, FloatArray, HowMuch, Job, Panel, Severity, When, Where
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.text import capitalized, count, duration
from jobrules.verdict.evaluation import EVALUATION_ADVICE, evaluation_advice

CHECKPOINT_ADVICE = (
    "Write checkpoints in the background while training goes on, to faster storage, or less often.",
)

#: By key, which is what a sentence calls one: event types and modes, its place, when the time was lost, and the advice.
PHASES = {
    "checkpoint": (
        CHECKPOINT,
        Precedence.CHECKPOINT,
        "while checkpoints were written",
        CHECKPOINT_ADVICE,
    ),
    "evaluation": (EVALUATION, Precedence.EVALUATION, "during evaluation", EVALUATION_ADVICE),
}


def recorded_causes(job: Job, work: Work) -> Iterator[Cause]:
    """A cause for each kind of phase that was recorded."""
    for key, (names, precedence, when, advice) in PHASES.items():
        phases = recorded_phases(job, work.clocks, names)
        if phases.total:
            yield Cause(
                key=key,
                precedence=precedence,
                when=when,
                claim=partial(_covered, work, phases),
                finding=partial(
                    _found,
                    key,
                    *((advice, "") if key != "evaluation" else evaluation_advice(job)[::-1]),
                    phases,
                ),
                widened=True,
            )


def _covered(work: Work, phases: Intervals, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim the time of idle samples as far as a phase covers it: a GPU that works less may work all the same."""
    del part
    late_us = work.clocks.late_us(panel.node)
    begin_us, end_us = around_us(panel.time_us, weight_us)
    covered_us = phases.overlap(begin_us - late_us, end_us - late_us).astype(np.float64)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [np.where(gpu.values < IDLE_PERCENT, covered_us[gpu.rows], 0.0) for gpu in gpus]

    return claim


def _found(key: str, advice: tuple[str, ...], waits: str, phases: Intervals, claimed: Claimed) -> Finding:
    times = len(phases.start)
    median_us = int(np.median(phases.end - phases.start))
    return Finding(
        key=key,
        severity=Severity.WARNING,
        title=f"GPUs waited for {count(times, key)} of {duration(median_us)} (median){waits and f', which {waits}'}",
        evidence=(
            Where(claimed.nodes),
            When(claimed.start_us, claimed.end_us),
            HowMuch(f"{capitalized(key)} in all", phases.total / SECOND_US, "s"),
        ),
        advice=advice,
        rules=(),
        section="goodput",
        devices=claimed.devices,
    )
