"""Machines that several readers have tables of: the name of each, and one numbering of its snapshots.

A log that names no machine is of the machine that the path of its files names, or of the only machine with samples,
if that has as many GPUs. Any other log is a machine of its own. A log from before or after all samples and events is not
in use: of an earlier job, in another time zone, or without dates, it would stretch the job.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.implausible_times import FAR_US, restricted
from jobreport.readers.tally import Tally
from jobreport.tables.engine import Task
from jobrules.model import SECOND_US, span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jobreport.readers.grouping import Piece
    from jobreport.remarks import LogFile
    from jobreport.tables.engine import Engine, Handle, Made
    from jobrules.model import IntArray, JobInMemory, Panel, PartFacts

    _Span = tuple[int, int]

#: The machine of logs that name none, where all of them are of one.
NAMELESS = "node"

_WORD_BREAK, _PART_BREAK = re.compile(r"[/_.\s]+"), re.compile(r"[^A-Za-z0-9]+")
#: Parts of file names that name no machine.
_LABEL = (
    r"(?:csv|tsv|txt|log|logs|out|gz|dmon|pmon|nvidia|smi|nvidiasmi|gpu|gpus|cuda|usage|util|utilization|stats|"
    r"metrics|monitor|monitoring|trace|data|power|pwr|temp|temperature|mem|memory|clocks?|ecc|"
    r"(?:gpu|cuda)[0-9]+|[0-9]+gpus?)"
)
_USUAL = re.compile(rf"{_LABEL}|[0-9]+|[0-9]{{8}}T[0-9]+Z?|", re.IGNORECASE)
_LABEL_IN_FRONT = re.compile(rf"{_LABEL}[^A-Za-z0-9]+", re.IGNORECASE)
_MINUTE_US = 60 * SECOND_US
#: Offsets of all time zones from UTC in minutes.
_ZONE_OFFSETS = range(-12 * 60, 14 * 60 + 1, 15)


def machine_words(path: str) -> list[str]:
    """Words of a path that may name a machine: ``logs/gpu_node-1.csv`` has ``node-1``."""
    words = _WORD_BREAK.split(path)
    return [word for word in words if not all(map(_USUAL.fullmatch, _PART_BREAK.split(word)))]


def _names_in(word: str) -> Iterator[str]:
    """The word, and what is left of it without labels in front: ``algo-1`` of ``nvidia-smi-algo-1``."""
    yield word
    while label := _LABEL_IN_FRONT.match(word):
        word = word[label.end() :]
        yield word


def assign_logs(pieces: Sequence[Piece], engine: Engine, zone: tzinfo = UTC) -> list[Piece]:
    """Put nameless logs under the names of their machines, and number the snapshots of each machine.

    ``zone`` is that of times that name none.
    """
    changes = [_Change(piece) for piece in _of_this_job(pieces, engine, zone)]
    _name_logs(changes)
    tables: defaultdict[str, list[_Table]] = defaultdict(list)
    for table in (table for change in changes for table in change.tables):
        if table.facts.panels:
            tables[table.node].append(table)
    for node, mine in tables.items():
        if len(mine) > 1:
            _number_snapshots(node, mine, engine)
    return [change.as_piece() for change in changes]


class _Table:
    """Where the tables are that one reader has of a machine, and what is known of them."""

    def __init__(self, facts: PartFacts, handle: Handle) -> None:
        self.facts, self.handle = facts, handle
        self.node = facts.node


class _Change:
    """A piece while it changes."""

    def __init__(self, piece: Piece) -> None:
        self.logs = piece.found.quality.logs
        self.names_machines = piece.group.reader.names_machines
        self.tables = [*map(_Table, piece.facts, piece.handles)]
        self.remarks = Tally()
        self.remarks.take(piece.found.quality.remarks)
        self._piece = piece

    def as_piece(self) -> Piece:
        found = self._piece.found
        names = {facts.node: table.node for facts, table in zip(self._piece.facts, self.tables, strict=True)}
        logs = tuple(replace(log, node=names.get(log.node, log.node)) for log in self.logs)
        quality = replace(found.quality, remarks=self.remarks.remarks(), logs=logs)
        return replace(
            self._piece,
            found=replace(found, quality=quality),
            facts=tuple(table.facts for table in self.tables),
            handles=[table.handle for table in self.tables],
        )


# Logs that were not written while the job ran


def _of_this_job(pieces: Sequence[Piece], engine: Engine, zone: tzinfo) -> list[Piece]:
    """The pieces without logs from before or after all samples and events, if a reader that names machines has samples."""
    named = [facts for piece in pieces if piece.group.reader.names_machines for facts in piece.facts]
    sampled_us = span_of(facts.samples_us for facts in named)
    if sampled_us is None:
        return [*pieces]
    # Events that are farther away, as those without dates, are left out later.
    near_us = sampled_us[0] - FAR_US, sampled_us[1] + FAR_US
    events_us = [us for facts in named if (us := facts.events_us) and _overlap_us(us, near_us) >= 0]
    firsts, lasts = zip(sampled_us, *events_us, strict=True)
    ran_us = min(firsts), max(lasts)
    return [
        piece if piece.group.reader.names_machines else _without_others(piece, ran_us, engine, zone)
        for piece in pieces
    ]


def _without_others(piece: Piece, ran_us: _Span, engine: Engine, zone: tzinfo) -> Piece:
    """The piece without the logs of other times, on which it has remarks."""
    quality, tally = piece.found.quality, Tally()
    tally.take(quality.remarks)
    kept: dict[str, list[_Span]] = {facts.node: [] for facts in piece.facts}
    others: set[LogFile] = set()
    for span, logs in _in_turn(quality.logs):
        if _overlap_us(span, ran_us) >= 0:
            kept[logs[0].node].append(span)
            continue
        others.update(logs)
        offset = _zone_with_overlap(span, ran_us, zone)
        for log in logs:
            if offset:
                tally.note("machines.other_zone", file=log.file, offset=offset)
            else:
                tally.note("machines.other_times", file=log.file)
    if not others:
        return piece
    in_use = tuple(log for log in quality.logs if log not in others)
    quality = replace(quality, remarks=tally.remarks(), logs=in_use)
    piece = replace(piece, found=replace(piece.found, quality=quality))
    return restricted(piece, kept, engine, "times.other_job")


def _in_turn(logs: Sequence[LogFile]) -> list[tuple[_Span, list[LogFile]]]:
    """The logs of each machine with their time, those that follow one another together: parts of a rotated log are one."""
    found: list[tuple[_Span, list[LogFile]]] = []
    for log in sorted(logs, key=lambda one: (one.node, one.first_us)):
        (begin_us, end_us), mine = found[-1] if found else ((0, 0), [])
        if mine and mine[0].node == log.node and log.first_us - end_us <= _MINUTE_US:
            mine.append(log)
            found[-1] = (begin_us, max(end_us, log.last_us)), mine
        else:
            found.append(((log.first_us, log.last_us), [log]))
    return found


def _overlap_us(one: _Span, other: _Span) -> int:
    """Negative for a gap."""
    return min(one[1], other[1]) - max(one[0], other[0])


def _zone_with_overlap(log_us: _Span, samples_us: _Span, zone: tzinfo) -> str:
    """The offset of the time zone, as ``+02:00``, in which a log overlaps the samples most; empty for none.

    Of equal offsets full hours come first. The times of the log were read in ``zone``.
    """
    read_with = datetime.fromtimestamp(log_us[0] / SECOND_US, zone).utcoffset()
    minutes_read_with = round(read_with.total_seconds() / 60) if read_with else 0

    def overlap_us(minutes: int) -> int:
        earlier_us = (minutes - minutes_read_with) * _MINUTE_US
        return _overlap_us((log_us[0] - earlier_us, log_us[1] - earlier_us), samples_us)

    best = max(_ZONE_OFFSETS, key=lambda one: (overlap_us(one), one % 60 == 0, one % 30 == 0, -abs(one)))
    if overlap_us(best) < 0:
        return ""
    return f"{'-' if best < 0 else '+'}{abs(best) // 60:02}:{abs(best) % 60:02}"


# Which machine a log is of


def _name_logs(changes: Sequence[_Change]) -> None:
    """Give each log the name of its machine, if a reader that names machines has samples of it."""
    named = [change for change in changes if change.names_machines]
    sampled = {one.node: one.facts for change in named for one in change.tables if one.facts.panels}
    for change in changes:
        if not change.names_machines:
            files: defaultdict[str, list[str]] = defaultdict(list)
            for one in change.logs:
                files[one.node].append(one.file)
            for log in change.tables:
                note = partial(change.remarks.note, file=files[log.node][0])
                log.node = _machine_of(log, files[log.node], sampled, note)


def _machine_of(
    log: _Table,
    files: Sequence[str],
    sampled: Mapping[str, PartFacts],
    note: Callable[..., None],
) -> str:
    """The sampled machine that the log's path or host names, or the only one; else the log's own name.

    A log is of no machine with another number of GPUs.
    """
    paths = files if log.node == NAMELESS else [log.node]
    words = (word for path in paths for word in machine_words(path))
    by_name = sampled.keys() & {name for word in words for name in _names_in(word)}
    if len(by_name) == 1:
        (node,) = by_name
    elif log.node != NAMELESS or not sampled:
        return log.node
    elif len(sampled) > 1:
        note("machines.several", machines=len(sampled))
        return log.node
    else:
        (node,) = sampled
    gpus, found = len(sampled[node].gpus), len(log.facts.gpus)
    if gpus and found and gpus != found:
        note("machines.other_gpus", node=node, gpus=gpus, found=found)
        return log.node if log.node != node else NAMELESS
    if not by_name:
        note("machines.joined", node=node)
    return node


# One numbering of snapshots


def _number_snapshots(node: str, tables: Sequence[_Table], engine: Engine) -> None:
    """Number the snapshots of one machine over all its tables, in the order of time."""
    handles = [table.handle for table in tables]
    tasks = [Task(handles=handles, args=(place, node)) for place in range(len(tables))]
    made = engine.keep(_numbered, tasks, lambda _: None)
    for table, ((handle,), facts) in zip(tables, made, strict=True):
        table.handle, table.facts = handle, facts


def _numbered(tables: Sequence[JobInMemory], place: int, node: str) -> Made:
    """The table at ``place`` under the name of the machine, its snapshots numbered over all tables."""
    # Panels of one table share snapshots, each of them with the time of its first sample.
    snapshots = [_snapshots(table.panels) for table in tables]
    order = np.argsort(np.concatenate([time_us for _, time_us in snapshots]), kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    numbers, _ = snapshots[place]
    own_ranks = np.split(ranks, np.cumsum([len(one) for one, _ in snapshots]))[place]
    panels = tuple(
        replace(panel, node=node, snapshot=own_ranks[np.searchsorted(numbers, panel.snapshot)])
        for panel in tables[place].panels
    )
    made = dataclasses.replace(tables[place], panels=panels, frame=None)
    return list(made.parts), made.facts[0]


def _snapshots(panels: Sequence[Panel]) -> tuple[IntArray, IntArray]:
    """The numbers of all snapshots, ascending, and the time of each."""
    numbers = np.concatenate([panel.snapshot for panel in panels])
    times = np.concatenate([panel.time_us for panel in panels])
    order = np.lexsort((times, numbers))
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return numbers[order][first], np.maximum.accumulate(times[order][first])
