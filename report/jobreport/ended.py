"""Why a recorded job ended badly: what ended it, where, and what was lost with it."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from jobreport.formats import size
from jobreport.recordings import Raised  # noqa: TC001 - as below
from jobrules.model import SECOND_US, Finding, Note, Severity, Where
from jobrules.model.names import NodeName, OwnText, RankName  # noqa: TC001 - msgspec reads the annotations
from jobrules.text import NBSP, capitalized, clock, count, escape_name, took
from jobrules.verdict.last_work import LastWork, MemoryAtEnd, last_work, memory_at_end
from jobrules.verdict.observations import MEMORY_ADVICE, MEMORY_KILLS, kills

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.recordings import RecordedRun, Recording
    from jobreport.remarks import Quality
    from jobrules.model import Job
    from jobrules.verdict.findings import Verdict

#: What ended a job is not long before its last step, on whatever clock, and a kill not long before its end.
_SOON_US, _KILL_US = 10 * SECOND_US, 60 * SECOND_US
#: What users and schedulers end jobs with.
_ASKED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_BY_SIGNAL = 128
#: Exceptions of those that wait for a process that was killed, and of processes that say nothing.
_VICTIMS = {
    "RuntimeError",
    "torch.distributed.DistBackendError",
    "BrokenPipeError",
    "EOFError",
    "ConnectionResetError",
}
#: Work that takes longer is worth a checkpoint.
_MANY_S = 600.0
#: The recorder writes steps once a second.
_UNWRITTEN_US = 2 * SECOND_US
#: Key of the finding.
ENDED = "ended"
#: Memory in use of which a kill without a reason is probably for lack of memory.
_FULL = 0.95
#: What is done about a signal, by its number.
_SIGNAL_ADVICE: dict[int, str] = {
    signal.SIGKILL: "Look for who sent it: the scheduler (limits of time and memory), the kernel (`dmesg`), or a user.",
    signal.SIGABRT: "Read the last lines of the job's output: an assertion in C++, or a collective that timed out.",
    signal.SIGBUS: "Give the job more shared memory: `/dev/shm` may be full. Otherwise read the job's output.",
}
_GPU_ADVICE = (
    "Lower the batch size, accumulate gradients, or recompute activations.",
    "If the message says that much memory is reserved but unallocated, set "
    "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
)
_FREE_ADVICE = (
    "Much memory was free: look for one allocation that is too large, or for a limit of the process (`ulimit -v`).",
)
_HOST_ADVICE = (
    "Load less into memory at once: fewer loader processes, memory-mapped files, or parts of the data.",
    "Or use a machine, or a container, with more memory.",
)


class Ended(Struct, frozen=True, kw_only=True):
    """How a job ended that did not end well; None and empty for what is not known."""

    #: ``exit``, ``signal``, ``asked`` (by a user or a scheduler), ``rule`` (by record-job), ``exception``, ``memory``
    #: (of the node), ``GPU memory``, or ``memory kill`` (by the kernel).
    how: OwnText
    node: NodeName
    exit_status: int | None
    signal: int | None
    at_us: int
    rank: RankName = ""
    #: The training step that had begun.
    step: int | None = None
    #: What ended it, if that is an exception.
    error: Raised | UnsetType = UNSET
    #: Bytes in use, and there.
    used: int | None = None
    total: int | None = None
    #: Number of the last step before the last checkpoint, and what was done since then, or since the first step.
    saved_step: int | None = None
    lost_steps: int = 0
    lost_s: float = 0.0
    #: Whether steps may be missing at the end: a process that is killed keeps those of its last second to itself.
    at_least: bool = False


def ended(quality: Quality, job: Job) -> Ended | UnsetType:
    """How the job ended; left out if it ended well, or if that was not recorded."""
    recordings = [one for source in quality.sources for one in source.recordings]
    found = first_bad(recordings)
    if found is None:
        return UNSET
    bad, run = found
    end_us = run.end_us or job.span_us[1]
    works = last_work(job)
    last_us = max((one.end_us for one in works), default=end_us - _KILL_US)
    ends_us = {(one.node, one.rank): one.end_us for one in works}
    raised = [
        (one.node, error)
        for one in recordings
        for error in one.exceptions
        # One that was started again went on after it.
        if error.at_us >= max(last_us - _SOON_US, ends_us.get((one.node, error.rank), 0))
    ]
    raised.sort(key=lambda pair: (pair[1].exit_code is not None, pair[1].at_us))
    killed = [one for one in job.gathered(kills) if one.last_us >= last_us - _SOON_US]
    known = _cause(bad, run, raised)
    if (
        killed
        and known.how in ("signal", "exception", "exit")
        and (not known.error or known.error.type in _VICTIMS)
    ):
        known = replace(known, how="memory kill", node=killed[0].node)
    # Of another command of the script nothing is known but its end.
    if known.at_us <= max(job.span_us[1], last_us) + _KILL_US:
        known = _with_work(known, works)
    if known.how in ("memory", "memory kill", "signal"):
        known = _with_memory(known, job.gathered(memory_at_end))
    return known


def first_bad(recordings: Sequence[Recording]) -> tuple[Recording, RecordedRun] | None:
    """The node, and its last run, that ended badly; None if none did, or nobody knows.

    Of several that of the cause: the one that a rule stopped, then the first one that was not asked to end, as launchers do
    once a node has failed.
    """
    last = [(one, one.runs[-1]) for one in recordings]
    bad = [
        (one, run)
        for one, run in last
        if run.exit_status
        or run.stopped_by
        or run.ended_by.startswith("signal")
        # Without record-job the exit status is not known.
        or (run.ended_by == "exit" and run.exit_status is None and one.exceptions)
    ]
    return min(
        bad,
        key=lambda pair: (
            not pair[1].stopped_by,
            _signal_of(pair[1]) == signal.SIGTERM,
            pair[1].end_us or math.inf,
        ),
        default=None,
    )


def _signal_of(run: RecordedRun) -> int | None:
    """The signal that ended a run; shells say it by their exit status."""
    kind, _, number = run.ended_by.partition(":")
    if kind == "signal":
        return int(number)
    status = run.exit_status or 0
    return status - _BY_SIGNAL if _is_signal(status - _BY_SIGNAL) else None


def _is_signal(number: int) -> bool:
    return number in {*signal.Signals}


def _cause(bad: Recording, run: RecordedRun, raised: Sequence[tuple[str, Raised]]) -> Ended:
    """The signal that a launcher or the end of the run names, or the first exception."""
    plain = Ended(
        how="exit",
        node=bad.node,
        exit_status=run.exit_status,
        signal=_signal_of(run),
        at_us=run.end_us or run.start_us,
    )
    if run.stopped_by:
        return replace(plain, how="rule")
    own = next((pair for pair in raised if pair[1].exit_code is None or pair[1].file), None)
    launcher = next((one for _, one in raised if one.exit_code is not None), None)
    if launcher and launcher.exit_code:
        plain = replace(plain, rank=launcher.rank, signal=plain.signal or max(0, -launcher.exit_code) or None)
    if own and own[1].type == "KeyboardInterrupt":
        plain = replace(plain, signal=int(signal.SIGINT))
    if plain.signal in _ASKED:
        return replace(plain, how="asked", rank="")
    # A process that an exception ended may crash while it exits, but after SIGKILL nothing happens. Others raise
    # exceptions because a process is gone.
    is_victim = own is not None and plain.rank not in ("", own[1].rank)
    if plain.signal and (own is None or is_victim or plain.signal == signal.SIGKILL):
        return replace(plain, how="signal")
    if own is None:
        return plain
    node, error = own
    how = {"gpu": "GPU memory", "host": "memory", "": "exception"}[error.memory]
    known = replace(plain, how=how, node=node, signal=None, at_us=error.at_us, rank=error.rank)
    return replace(known, step=error.step, error=error, used=error.used, total=error.total)


def _with_work(known: Ended, works: Sequence[LastWork]) -> Ended:
    """With what was lost of the training: that of the process that was furthest, as others may have written less."""
    work = max(works, key=lambda one: one.lost_steps, default=None)
    if work is None:
        return known
    step_us = (work.end_us - work.since_us) / max(1, work.lost_steps)
    return replace(
        known,
        step=work.step + 1 if known.step is None else known.step,
        saved_step=work.saved_step,
        lost_steps=work.lost_steps,
        lost_s=max(0, known.at_us - work.since_us) / SECOND_US,
        at_least=known.step is None and 2 * step_us < known.at_us - work.end_us < _UNWRITTEN_US,
    )


def _with_memory(known: Ended, memory: Sequence[MemoryAtEnd]) -> Ended:
    """With the memory of the node; a kill in nearly full memory is one for lack of memory, as it seems."""
    own = next((one for one in memory if one.node == known.node), None)
    if own is None or (known.how == "signal" and own.used < _FULL * own.total):
        return known
    return replace(known, used=own.used, total=own.total)


# Sentences


def with_ending(verdict: Verdict, found: Ended | UnsetType) -> Verdict:
    """The verdict with a finding on what ended the job, before all others; in the place of that on kills."""
    if not found or found.how in ("exit", "asked", "rule"):
        return verdict
    others = [one for one in verdict.findings if found.how != "memory kill" or one.key != MEMORY_KILLS]
    lost = [lost_work(found).removesuffix(".")] if found.lost_steps else []
    finding = Finding(
        key=ENDED,
        severity=Severity.CRITICAL,
        title=title_of(found),
        evidence=(Where((found.node,)), Note(f"At {clock(found.at_us)}"), *map(Note, lost)),
        advice=_advice(found),
        rules=(),
        section="utilization" if found.how in ("memory", "memory kill") else "quality",
        start_us=found.at_us,
        end_us=found.at_us,
    )
    return replace(verdict, findings=(finding, *others))


def title_of(found: Ended) -> str:
    """``GPU memory ran out at train.py:41 in forward (rank 0, step 812): 20 GiB asked, 14.1 of 14.8 GiB in use``."""
    error, where = found.error or None, ""
    if error and error.line:
        where = f" at {escape_name(error.file, 60)}:{error.line}"
        where += f" in {escape_name(error.function, 40)}" * (error.function != "<module>")
    rank = f"rank {escape_name(found.rank, 24)}" if found.rank else ""
    step = step_name(found)
    during = " in " * bool(step) + step
    who = f" ({_joined(rank, step)})" if rank or step else ""
    asked = f"{size(error.asked)} asked" if error and error.asked else ""
    in_use = f"{size(found.used)} of {size(found.total)} in use" if found.used and found.total else ""
    sizes = _joined(asked, in_use)
    sizes = ": " * bool(sizes) + sizes
    match found.how:
        case "GPU memory":
            return f"GPU memory ran out{where}{who}{sizes}"
        case "memory":
            return f"Memory ran out{where}{who}{sizes}"
        case "memory kill":
            if not found.signal:
                return f"The kernel killed a process of the job for lack of memory{who}{sizes}"
            return f"The kernel killed {rank or 'the job'} for lack of memory{during}{sizes}"
        case "signal":
            probably = f"; memory was probably full: {in_use}" if in_use else ""
            return f"{capitalized(rank) or 'The job'} was killed by {signal_name(found.signal)}{during}{probably}"
    # Redaction leaves nothing of a message, nor of a type of the user's own.
    kind, message = (error.type, error.message) if error else ("…", "…")
    kind = "An exception" if kind == "…" else escape_name(kind.rpartition(".")[2], 60)
    message = "" if message == "…" else escape_name(message, 120).rstrip(".")
    return f"{kind}{where}{who}{': ' * bool(message)}{message}"


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def step_name(found: Ended) -> str:
    """``step 812``, ``step 812 or later``; empty if it is not known."""
    return "" if found.step is None else f"step{NBSP}{found.step:,}{' or later' * found.at_least}"


def lost_work(found: Ended) -> str:
    """What was done since the last checkpoint; empty if that is nothing."""
    if not found.lost_steps:
        return ""
    work = (
        f"{'at least ' * found.at_least}{count(found.lost_steps, 'step')} ({took(found.lost_s * SECOND_US)})"
    )
    if found.saved_step is None:
        return f"No checkpoint was recorded, so {work} may be lost."
    return f"The work since the last checkpoint, after step{NBSP}{found.saved_step:,}, is lost: {work}."


def signal_name(number: int | None) -> str:
    """``signal 9 (SIGKILL)``."""
    return f"signal {number}{f' ({signal.Signals(number).name})' if number and _is_signal(number) else ''}"


def _advice(found: Ended) -> tuple[str, ...]:
    often = ("Save checkpoints more often.",) if found.lost_s > _MANY_S else ()
    of_signal = _SIGNAL_ADVICE.get(found.signal or 0, "Read the last lines of the job's output.")
    known = {
        "GPU memory": _GPU_ADVICE,
        "memory": _FREE_ADVICE if 2 * (found.used or 0) < (found.total or 0) else _HOST_ADVICE,
        "memory kill": MEMORY_ADVICE,
        "signal": (of_signal,),
    }
    return (*known.get(found.how, ("Read the traceback in the job's output.",)), *often)
