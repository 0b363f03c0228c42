"""The runs of a recording: a log goes on where it ended, a day or half a year later; a script trains several times.

Logs are split by time. A job with samples or events of its own is one job, however long it was interrupted, unless the
recorder saw that its script ran one command after another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from jobreport.errors import UsageError
from jobreport.readers.bounds import LATEST_US
from jobreport.readers.implausible_times import restricted
from jobreport.readers.tally import Tally
from jobreport.remarks import Run
from jobrules.model import SECOND_US
from jobrules.text import count, dated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.options import Choice
    from jobreport.readers.base import CommandSpan
    from jobreport.readers.grouping import Piece
    from jobreport.tables.engine import Engine
    from jobrules.model import IntArray, Job

#: A shorter pause separates no runs, nor does one of at most this share of the measured time.
_PAUSE_US, _PAUSE_SHARE = 3600 * SECOND_US, 0.5
#: Fewer moments are no run: somebody tried the command, or a date is damaged.
_MIN_MOMENTS = 10

#: First and last time of samples without a long pause, and in how many moments they were taken.
_Stretch: TypeAlias = tuple[int, int, int]


def chosen_run(pieces: list[Piece], engine: Engine, choice: Choice) -> tuple[list[Piece], tuple[Run, ...]]:
    """The pieces of the run that is reported, and all runs; none for a recording without a pause that separates runs.

    Raises ``UsageError`` for the number of a run that is not there.
    """
    split = _split(_stretches(pieces, engine)) if _logs_only(pieces) else []
    found = [
        (first, last)
        for first, last, moments in split
        if moments >= _MIN_MOMENTS and dated(first) == dated(split[-1][0])
    ]
    newest = found[-1:]
    # A log without any of them is in a run, too: all of its rows are too few, or without dates.
    for span in sorted({(log.first_us, log.last_us) for piece in pieces for log in piece.found.quality.logs}):
        if found and not any(first <= span[1] and span[0] <= last for first, last in found):
            found += [(first, last) for first, last, _ in split if first <= span[1] and span[0] <= last]
    found.sort()
    if isinstance(choice, int) and choice > max(len(found), 1):
        raise UsageError(f"--run {choice}: the recording has {count(max(len(found), 1), 'run')}.")
    if len(split) < 2 or not found:
        return pieces, ()
    number = found.index(newest[0]) + 1 if choice is None else choice
    runs = [
        # Times without dates have no place among those with dates.
        Run(
            start_us=first,
            end_us=last,
            reported=number == place or (number == "all" and dated(first) == dated(newest[0][0])),
        )
        for place, (first, last) in enumerate(found, start=1)
    ]
    spans = [(run.start_us, run.end_us) for run in runs if run.reported]
    of_nodes = {facts.node: spans for piece in pieces for facts in piece.facts}
    code = "times.other_run" if len(found) > 1 else "times.no_run"
    return [restricted(piece, of_nodes, engine, code) for piece in pieces], tuple(runs)


def command_runs(pieces: Sequence[Piece]) -> list[CommandSpan]:
    """The commands of a script that ran one after the other; those that overlap are one job, and so are restarts."""
    runs: list[CommandSpan] = []
    for one in sorted(
        (one for piece in pieces for one in piece.found.commands), key=lambda one: one.start_us
    ):
        if runs and (one.start_us < runs[-1].end_us or runs[-1].is_started_again(one)):
            one = runs.pop().joined(one)  # noqa: PLW2901 - a longer one
        runs.append(one)
    return runs


def chosen_command(
    pieces: Sequence[Piece], engine: Engine, found: Sequence[CommandSpan], choice: Choice
) -> tuple[list[Piece], tuple[Run, ...]]:
    """The pieces of the command that is reported, by default the one that trained longest, and all commands as runs.

    Raises ``UsageError`` for the number of a run that is not there.
    """
    if isinstance(choice, int) and choice > len(found):
        raise UsageError(f"--run {choice}: the recording has {count(len(found), 'run')}.")
    longest = max(range(len(found)), key=lambda i: (found[i].trained_us, found[i].end_us - found[i].start_us))
    number = longest + 1 if choice is None else choice
    # What comes before the first event of a command is its start-up.
    ends_us = [0, *(one.end_us for one in found[:-1]), LATEST_US]
    spans = [(before_us + 1, end_us) for before_us, end_us in pairwise(ends_us)]
    runs = tuple(
        Run(start_us=one.start_us, end_us=one.end_us, reported=number in (i, "all"), command=True)
        for i, one in enumerate(found, start=1)
    )
    if number == "all":
        return list(pieces), runs
    of_nodes = {facts.node: [spans[number - 1]] for piece in pieces for facts in piece.facts}
    pieces = [restricted(piece, of_nodes, engine, "times.other_run") for piece in pieces]
    return [_of_command(piece, spans[number - 1]) for piece in pieces], runs


def _of_command(piece: Piece, span: tuple[int, int]) -> Piece:
    """The piece with the trainings that began while a command ran."""
    learning = tuple(
        one for one in piece.found.learning if not one.span_us or span[0] <= one.span_us[0] <= span[1]
    )
    quality, tally = piece.found.quality, Tally()
    tally.take(quality.remarks)
    tally.note("learning.other_command", count=len(piece.found.learning) - len(learning))
    quality = replace(quality, remarks=tally.remarks())
    return replace(piece, found=replace(piece.found, learning=learning, quality=quality))


def _logs_only(pieces: Sequence[Piece]) -> bool:
    return not any(piece.group.reader.names_machines for piece in pieces if piece.facts)


def _split(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """The stretches, joined over pauses that separate no runs."""
    measured_us = sum(last - first for first, last, _ in stretches)
    runs = list(stretches[:1])
    for before, (first, last, moments) in pairwise(stretches):
        if first - before[1] > _PAUSE_SHARE * measured_us:
            runs.append((first, last, moments))
        else:
            start, _, known = runs.pop()
            runs.append((start, last, known + moments))
    return runs


def _stretches(pieces: Sequence[Piece], engine: Engine) -> list[_Stretch]:
    """When samples of any node were taken, in the order of time."""
    handles = [([handle], ()) for piece in pieces for handle in piece.handles]
    found: list[_Stretch] = []
    for first, last, moments in sorted(one for some in engine.ask(_of_tables, handles) for one in some):
        if found and first - found[-1][1] <= _PAUSE_US:
            start, end, known = found.pop()
            found.append((start, max(end, last), max(known, moments)))
        else:
            found.append((first, last, moments))
    return found


def _of_tables(jobs: Sequence[Job]) -> list[_Stretch]:
    return [one for job in jobs for panel in job.panels for one in _of_times(panel.time_us)]


def _of_times(time_us: IntArray) -> Iterable[_Stretch]:
    starts = np.flatnonzero(np.diff(time_us, prepend=time_us[0] - _PAUSE_US - 1) > _PAUSE_US)
    ends = np.append(starts[1:], len(time_us))
    return zip(time_us[starts].tolist(), time_us[ends - 1].tolist(), (ends - starts).tolist(), strict=True)
