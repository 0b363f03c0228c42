"""Sentences that the page, ``summary.md``, and the terminal have in common; the last two do without the sections."""

from __future__ import annotations

import re
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.ended import first_bad
from jobrules.model import SECOND_US, natural_sorted
from jobrules.model.learning import LOSS, VAL_LOSS
from jobrules.model.time_parts import named
from jobrules.text import count, join_names

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.recordings import RecordedRun, Recording
    from jobrules.analyses.goodput import Goodput
    from jobrules.analyses.learning.plots import LearningPlots


#: Columns of a loss of which the last tenth has several.
MANY_VALUES = 50
#: Events on the loss in words.
LOSS_EVENTS = {"spike": "spike", "overflow": "overflow", "skipped": "skipped step"}


def goodput_sentence(found: Goodput) -> str:
    """``Goodput was 54.9%: training that was kept took 9 min 20 s of 17 min.``"""
    whole, kept = found.seconds, found.of("productive").amount
    was = "was at most" if found.at_most else "was"
    times = f"{_duration(kept)} of {_duration(whole)}"
    sentence = f"Goodput {was} {formats.percent(found.percent)}: training that was kept took {times}."
    evaluation = found.of("evaluation").amount
    if evaluation and kept < whole - evaluation:
        most = "at most " if found.at_most else ""
        sentence += f" Without evaluation: {most}{formats.percent(100 * kept / (whole - evaluation))}."
    return sentence


def loss_sentence(found: LearningPlots) -> str:
    """``The loss went from 2.3 to 0.05; the validation loss was best near step 399 (0.333).``; empty without a loss."""
    row = next((one for one in found.scalars if one.name in (LOSS, VAL_LOSS)), None)
    if row is None:
        return ""
    what = "loss" if row.name == LOSS else "validation loss"
    # A single value of the end may be far from those around it.
    course = found.course(row.name)
    known = [one for one in course.median if one is not None] if course else []
    tenth = known[-(len(known) // 10) :] if len(known) >= MANY_VALUES else []
    last = (
        f"{formats.compact(median(tenth))} (median of the last tenth)" if tenth else formats.compact(row.last)
    )
    clauses = [f"The {what} went from {formats.compact(row.first)} to {last}"]
    if row.values == 1:
        clauses = [f"The {what} was {formats.compact(row.last)} in its only record"]
    if row.not_finite_from is not None:
        clauses = [
            f"The {what} was NaN or infinite in {row.not_finite:,} of {count(row.values, 'record')}, "
            f"first at step {row.not_finite_from:,}"
        ]
    if found.best and row.name == LOSS:
        step, value = found.best
        clauses.append(f"the validation loss was best near step {step:,} ({formats.compact(value)})")
    clauses += [count(n, words) for name, words in LOSS_EVENTS.items() if (n := found.events.get(name))]
    return f"{'; '.join(clauses)}."


def _duration(seconds: float) -> str:
    return formats.duration(seconds * SECOND_US)


def recordings_of(report: Report) -> list[Recording]:
    """One for each node, in natural order."""
    return [one for source in report.quality.sources for one in source.recordings]


def phase_name(key: str, event_type: str) -> str:
    """``Batch fetch``, ``Forward pass``, or the event type of a phase of steps."""
    if key == "event-type":
        return formats.escape_name(event_type, 24)
    own = {"data-loading": "Batch fetch", "no-event": "Outside of phases"}
    return own.get(key) or named(key).title


def is_running(report: Report) -> str:
    """``The job is running; this report was made at 2026-03-07 07:55:29 UTC, and a later one replaces it.``; empty once it has ended."""
    if not report.made_us:
        return ""
    made = formats.date_time(report.made_us)
    return f"The job is running; this report was made at {made}, and a later one replaces it."


def bad_end(report: Report) -> str:
    """``exit status 1``, ``killed by signal 9 on node-2``; empty if the job ended well, or nobody knows."""
    found = recordings_of(report)
    bad = first_bad(found)
    if bad is None:
        return ""
    how = end_of(bad[1])
    if bad[1].ended_by == "exit" and bad[1].exit_status is None:
        return "by an exception"
    nodes = [formats.escape_name(one.node, 40) for one in found if end_of(one.runs[-1]) == how]
    return how if len(found) == 1 else f"{how} on {formats.join_names(nodes)}"


def end_of(run: RecordedRun, *, is_last: bool = True) -> str:
    """How a run ended: ``exit status 1``."""
    if not run.ended_by and not is_last:
        return "killed with record-job"
    if run.stopped_by:
        return f"stopped by rule {run.stopped_by}"
    kind, _, number = run.ended_by.partition(":")
    if kind == "signal":
        return f"killed by signal {number}"
    if kind == "parent gone":
        return "record-job was killed"
    if kind == "detached":
        return "recording ended before the job"
    return "not recorded" if run.exit_status is None else f"exit status {run.exit_status}"


def without_steps(report: Report) -> str:
    """What helps if a process imported a library that trains, and no step was recorded; empty if it may have failed before."""
    names = dict.fromkeys(name for one in recordings_of(report) for name in one.libraries)
    if report.job.steps or report.ended or not names:
        return ""
    return (
        f"No step was recorded, but a process imported {join_names([*names])}. If it trains, call `jobrecord.start()` "
        "before the loop and `jobrecord.step()` after each step."
    )


def unread(report: Report) -> str:
    """``3 files are not read: the output of vmstat, the log of a training with Megatron.``; empty for none.

    Logs of other times than the job follow: ``1 log is not in use, recorded at other times than …``.
    """
    kinds = [one for one in report.quality.remarks if one.code.startswith("recognized.")]
    names = dict.fromkeys(re.split(r"[,;]", one.reason)[0] for one in kinds)
    told = Counter({("file", f"not read: {', '.join(names)}"): sum(one.count for one in kinds)})
    for source in report.quality.sources:
        for one in source.remarks:
            if one.code in {"machines.other_zone", "machines.other_times"}:
                told["log", one.reason] += one.count
    return " ".join(
        f"{count(total, noun)} {'is' if total == 1 else 'are'} {what}."
        for (noun, what), total in told.items()
        if total
    )


def mixed(report: Report) -> str:
    """``The logs of 12 machines are one job here: a, b, c, and 9 more.``; empty unless all samples are of such logs."""
    logs = [{log.node for log in source.logs} for source in report.quality.sources]
    nodes = natural_sorted(set.union(*logs)) if logs and all(logs) else []
    return (
        f"The logs of {count(len(nodes), 'machine')} are one job here: {join_names(nodes)}."
        if len(nodes) > 1
        else ""
    )
