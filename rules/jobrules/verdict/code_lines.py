"""The line of code at which processes were while time was lost: a cause of its own, and the last word of other findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.causes.code_lines import (
    BEFORE,
    BETWEEN,
    BUSY,
    EVALUATING,
    IDLE,
    MIN_SAMPLES,
    SAVING,
    UNKNOWN,
    LineShare,
    SampledLines,
    leading_line,
    leading_line_of_low_use,
    sampled_lines,
)
from jobrules.causes.rank_waits import RankWaits, late_rank
from jobrules.measures.data_loading import FETCH
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import BoolArray, Finding, FloatArray, Job, Note, Panel, Profile, Severity, When, Where
from jobrules.model.claims import Cause, Claim, Claimed, Precedence
from jobrules.text import count, escape_name, share
from jobrules.verdict.accounting import LOW_PERCENT
from jobrules.verdict.edges import START_UP
from jobrules.verdict.late_ranks import SLOW_RANK
from jobrules.verdict.story import DATA_LOADING, UNEXPLAINED_LOSS

CODE_LINE = "code-line"
#: Samples of loader processes, which are taken less often.
_MIN_LOADER = 20
#: Findings on time in recorded phases, and when that is; findings on idle GPUs, whatever the cause.
_IN_PHASES = {
    START_UP: ((BEFORE,), "Before the work"),
    "checkpoint": ((SAVING,), "During checkpoints"),
    "evaluation": ((EVALUATING,), "During evaluation"),
    "between-steps": ((BETWEEN, EVALUATING, SAVING), "Between steps"),
}
_LOADING = (DATA_LOADING, "data-loader-wait")
_WHILE_IDLE = (
    *(CODE_LINE, "cpu-bottleneck", "io-bottleneck", "saturated-process", "one-process"),
    *("step-outlier", "launch-bound", "synchronization-stall"),
)
#: A function that takes less of a profile is not named.
_NAMED_PART = 0.2
#: Functions that hand work to the GPU: that it is little used meanwhile tells of small kernels, not of a wait.
_LAUNCHES = ("torch.nn.", "torch.autograd.", "torch._tensor.", "torch.optim.")
#: What helps, by what the line called.
_ADVICE = (
    ("logging.", "Log less often, or through a queue: ``logging.handlers.QueueHandler``."),
    ("json.", "Write JSON less often, or in another thread or process."),
    ("torch.serialization.", "Write checkpoints in the background while training goes on, or less often."),
    ("torch.utils.data.", "Load data in separate processes: set ``num_workers`` above 0."),
    ("threading.", "See what the other thread does for which the main thread waits."),
)
_ANY_ADVICE = "Do less at that line, do it less often, or in the background while training goes on."


class _Named(Struct, frozen=True, kw_only=True):
    """A line and the processes that were there."""

    line: LineShare
    ranks: tuple[str, ...]
    #: Whether there is no other training process.
    alone: bool = False

    @property
    def is_low(self) -> bool:
        """Whether GPUs are used less, and never idle for long."""
        return self.line.idle < 1


def code_line(job: Job) -> Cause | None:
    """The line at which main threads are while their GPUs are idle for no recorded reason; None if there is none."""
    named = _while_idle(job)
    if named is None:
        return None
    most = LOW_PERCENT if named.is_low else IDLE_PERCENT

    def claim(part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
        del panel, weight_us
        if not part.stacks:
            return None
        return lambda gpus: [
            np.where(gpu.values < most, named.line.explains * gpu.left_us, 0.0) for gpu in gpus
        ]

    return Cause(
        key=CODE_LINE,
        precedence=Precedence.CODE_LINE,
        when="while the code was at one line",
        claim=claim,
        finding=lambda claimed: _found(job, named, claimed),
    )


def _found(job: Job, named: _Named, claimed: Claimed) -> Finding:
    place, state = named.line.place, "little used" if named.is_low else "idle"
    advice = next((text for start, text in _ADVICE if place.call.startswith(start)), _ANY_ADVICE)
    return Finding(
        key=CODE_LINE,
        severity=Severity.WARNING,
        title=f"{'The GPU was' if job.gpu_count == 1 else 'GPUs were'} {state} while the code was at {named.line.place}",
        evidence=(Where(claimed.nodes), When(claimed.start_us, claimed.end_us)),
        advice=(advice,),
        rules=(),
        section="code-waits",
        devices=claimed.devices,
    )


def with_lines(job: Job, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the line of code that explains it, or with the function of a profile that takes most time."""
    return [
        replace(one, evidence=(*one.evidence, Note(text))) if (text := _line_of(job, one)) else one
        for one in findings
    ]


def _line_of(job: Job, finding: Finding) -> str:
    lines = sampled_lines(job)
    key = finding.key
    if key in _IN_PHASES:
        phases, when = _IN_PHASES[key]
        inside, outside = _of(*phases), lambda one: one.in_work & ~one.within(*phases)
        return _sentence(_agreed(lines, inside, outside), when)
    if key == SLOW_RANK:
        return _of_slow_rank(job, lines)
    if key in _LOADING:
        return _of_loading(lines) or _in_profile(job.profiles)
    if key in (*_WHILE_IDLE, UNEXPLAINED_LOSS):
        named = _while_idle(job) if key != UNEXPLAINED_LOSS else None
        return _sentence(named, "", unexplained=key == CODE_LINE) or _in_profile(job.profiles)
    return ""


def _in_profile(profiles: Sequence[Profile]) -> str:
    """The function with most self time, of the profile with most of it: ``decode (train.py:15), 52.3%``."""
    longest = max(profiles, key=lambda one: one.self_s, default=None)
    if longest is None or not longest.functions:
        return ""
    first = longest.functions[0]
    if first.self_s < _NAMED_PART * longest.self_s:
        return ""
    where = f" ({escape_name(first.file, 80)}:{first.line})" if first.file else ""
    who = f"rank {escape_name(longest.rank, 24)}" if longest.rank else "the training process"
    name = f"{escape_name(first.name, 60)}{where}".replace("`", "")
    return f"Most self time in a profile of {who}: `{name}`, {share(first.self_s / longest.self_s)}"


def _of(*phases: str) -> Callable[[SampledLines], BoolArray]:
    return lambda one: one.within(*phases)


def _while_idle(job: Job) -> _Named | None:
    """The line while GPUs were idle, or little used, outside of phases that explain it."""
    lines = sampled_lines(job)

    def free(one: SampledLines) -> BoolArray:
        return one.in_work & ~one.within(FETCH, EVALUATING, SAVING)

    if any(one.is_main and _enough(one, free(one) & (one.use == IDLE)) for one in lines):
        return _agreed(
            lines, lambda one: free(one) & (one.use == IDLE), lambda one: free(one) & (one.use == BUSY)
        )
    named = [
        (leading_line_of_low_use(one, free(one)), one.stacks.rank)
        for one in lines
        if one.is_main and _enough(one, free(one) & (one.use != UNKNOWN))
    ]
    line = _same(named, lines)
    return None if line and line.line.place.call.startswith(_LAUNCHES) else line


def _agreed(
    lines: Sequence[SampledLines],
    inside: Callable[[SampledLines], BoolArray],
    outside: Callable[[SampledLines], BoolArray],
) -> _Named | None:
    """The line of all training processes with enough samples; None if they differ: some may wait for the others."""
    named: list[tuple[LineShare | None, str]] = []
    for one in lines:
        rows = inside(one)
        if one.is_main and _enough(one, rows):
            named.append((leading_line([(one, rows)], [(one, outside(one))]), one.stacks.rank))
    return _same(named, lines)


def _same(named: Sequence[tuple[LineShare | None, str]], lines: Sequence[SampledLines]) -> _Named | None:
    found = [line for line, _ in named if line]
    if not found or len({line.place.own if line else None for line, _ in named}) > 1:
        return None
    of_inside = sum(one.of_inside for one in found)
    line = replace(
        found[0],
        inside=sum(one.inside for one in found),
        of_inside=of_inside,
        outside=sum(one.outside for one in found),
        of_outside=sum(one.of_outside for one in found),
        explains=sum(one.explains * one.of_inside for one in found) / of_inside,
        idle=sum(one.idle * one.of_inside for one in found) / of_inside,
    )
    # Several processes of one rank ran one after the other.
    alone = len({one.stacks.rank for one in lines if one.is_main}) == 1
    return _Named(line=line, ranks=tuple({rank for _, rank in named}), alone=alone)


def _enough(one: SampledLines, rows: BoolArray) -> bool:
    return int(one.count[rows].sum()) >= MIN_SAMPLES


def _of_loading(lines: Sequence[SampledLines]) -> str:
    """What loader processes did while training waited for batches, or the training process itself."""
    waits, when = _of(FETCH), "While training waited for batches"
    loaders = [(one, waits(one)) for one in lines if not one.is_main]
    if not loaders:
        return _sentence(_agreed(lines, waits, lambda one: one.in_work & ~waits(one)), when)
    # The main thread only waits for them.
    loading = leading_line(loaders, [], _MIN_LOADER)
    return f"{when}, loader processes were at {loading.place} in {loading.counts('')}" if loading else ""


def _of_slow_rank(job: Job, lines: Sequence[SampledLines]) -> str:
    """What the rank that others wait for does in the phase that takes it longer."""
    waits = RankWaits.of(job)
    late = late_rank(waits) if waits else None
    if late is None or late.reason is None:
        return ""
    own = [one for one in lines if (one.stacks.node, one.stacks.rank) == (late.node, late.rank)]
    if late.reason == FETCH:
        return _of_loading(own)
    others = [one for one in lines if one.is_main and one not in own]
    rows = _of(late.reason)
    line = leading_line(
        [(one, rows(one)) for one in own if one.is_main], [(one, rows(one)) for one in others]
    )
    return _sentence(_Named(line=line, ranks=(late.rank,)) if line else None, "In that phase")


def _sentence(named: _Named | None, when: str, *, unexplained: bool = False) -> str:
    """``While rank 0's GPU was idle, its main thread was at train.py:84 collate in 71.0% of 1,240 samples``."""
    if named is None:
        return ""
    state = f"used for {share(1 - named.line.idle)}" if named.is_low else "idle"
    why = f"{state} without a recorded reason" if unexplained and not named.is_low else state
    who = f"rank {escape_name(named.ranks[0], 24)}"
    if named.alone:
        gpus, threads = "the GPU was", "the main thread was"
    elif len(named.ranks) == 1:
        gpus, threads = (
            f"the GPU of {who} was",
            f"the main thread of {who} was" if when else "its main thread was",
        )
    else:
        gpus, threads = "GPUs were", f"the main threads of {count(len(named.ranks), 'rank')} were"
    counts = named.line.counts("otherwise" if when else "while busy")
    return f"{when or f'While {gpus} {why}'}, {threads} at {named.line.place} in {counts}"
