"""Machines that several readers have tables of: the name of each, and one numbering of its snapshots.

A log that names no machine is of the machine that the path of its files names, or of the only machine with samples,
if that has as many GPUs and was sampled at the same time. Any other log is a machine of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.tally import Tally
from jobreport.tables.engine import Task
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.grouping import Piece
    from jobreport.remarks import SourceQuality
    from jobreport.tables.engine import Engine, Made
    from jobrules.model import IntArray, Job, Panel, PartFacts

    _Span = tuple[int, int]

#: The machine of logs that name none, where all of them are of one.
NAMELESS = "node"

_WORD_BREAK, _PART_BREAK = re.compile(r"[/_.\s]+"), re.compile(r"[^A-Za-z0-9]+")
#: Parts of file names that name no machine.
_USUAL = re.compile(
    r"csv|tsv|txt|log|logs|out|gz|dmon|pmon|nvidia|smi|nvidiasmi|gpu|gpus|cuda|usage|util|utilization|stats|"
    r"metrics|monitor|monitoring|trace|data|power|pwr|temp|temperature|mem|memory|clocks?|ecc|"
    r"[0-9]+|(gpu|cuda)[0-9]+|[0-9]+gpus?|[0-9]{8}T[0-9]+Z?|",
    re.IGNORECASE,
)
_MINUTE_US = 60 * SECOND_US
#: Offsets of all time zones from UTC in minutes.
_ZONE_OFFSETS = range(-12 * 60, 14 * 60 + 1, 15)


def machine_words(path: str) -> list[str]:
    """Words of a path that may name a machine: ``logs/gpu_node-1.csv`` has ``node-1``."""
    words = _WORD_BREAK.split(path)
    return [word for word in words if not all(map(_USUAL.fullmatch, _PART_BREAK.split(word)))]


def joined(pieces: Sequence[Piece], engine: Engine, zone: tzinfo = UTC) -> list[Piece]:
    """The pieces, with nameless logs under the names of their machines and snapshots numbered by machine.

    ``zone`` is that of times that name none.
    """
    tables = [[*map(_Table, piece.told.facts, piece.handles)] for piece in pieces]
    tallies = [Tally() for _ in pieces]
    for piece, mine, tally in zip(pieces, tables, tallies, strict=True):
        for log in mine:
            if log.node == NAMELESS:
                others = [one for some in tables if some is not mine for one in some]
                sampled = {one.node: one.facts for one in others if one.facts.panels}
                log.node = _machine_of(log.facts, piece.group.files, sampled, zone, tally)
    by_machine: defaultdict[str, list[_Table]] = defaultdict(list)
    for table in (table for mine in tables for table in mine):
        if table.facts.panels:
            by_machine[table.node].append(table)
    for node, mine in by_machine.items():
        if len(mine) > 1:
            _number_snapshots(node, mine, engine)
    return [
        replace(
            piece,
            told=replace(
                piece.told,
                facts=tuple(table.facts for table in mine),
                quality=_with_remarks(piece.told.quality, tally),
            ),
            handles=[table.handle for table in mine],
        )
        for piece, mine, tally in zip(pieces, tables, tallies, strict=True)
    ]


class _Table(Struct):
    """Where the tables are that one reader has of a machine, and what is known of them."""

    facts: PartFacts
    #: For the engine.
    handle: Any
    #: The machine.
    node: str = ""

    def __post_init__(self) -> None:
        self.node = self.facts.node


def _with_remarks(quality: SourceQuality, more: Tally) -> SourceQuality:
    tally = Tally()
    tally.take((*quality.remarks, *more.remarks()))
    return replace(quality, remarks=tally.remarks())


# Which machine a log is of


def _machine_of(
    log: PartFacts, files: Iterable[SourceFile], sampled: dict[str, PartFacts], zone: tzinfo, tally: Tally
) -> str:
    """The name of the machine among those ``sampled`` that a nameless log is of, else ``NAMELESS``."""
    named = sampled.keys() & {word for file in files for word in machine_words(file.name)}
    if len(named) == 1:
        return named.pop()
    if len(sampled) != 1:
        tally.note("machines.several", count=int(len(sampled) > 1), machines=len(sampled))
        return NAMELESS
    ((node, samples),) = sampled.items()
    log_us, samples_us = (one.samples_us or (0, 0) for one in (log, samples))
    if len(log.gpus) != len(samples.gpus):
        tally.note("machines.other_gpus", node=node, gpus=len(samples.gpus), found=len(log.gpus))
    elif _overlap_us(log_us, samples_us) >= 0:
        tally.note("machines.joined", node=node)
        return node
    elif offset := _zone_with_overlap(log_us, samples_us, zone):
        tally.note("machines.other_zone", node=node, offset=offset)
    else:
        tally.note("machines.other_times", node=node)
    return NAMELESS


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


# One numbering of snapshots


def _number_snapshots(node: str, tables: Sequence[_Table], engine: Engine) -> None:
    """Number the snapshots of one machine over all its tables, in the order of time."""
    handles = [table.handle for table in tables]
    tasks = [Task(handles=handles, given=(place, node)) for place in range(len(tables))]
    made = engine.keep(_numbered, tasks, lambda _: None)
    for table, ((handle,), facts) in zip(tables, made, strict=True):
        table.handle, table.facts = handle, facts


def _numbered(tables: Sequence[Job], place: int, node: str) -> Made:
    """The table at ``place`` under the name of the machine, its snapshots numbered over all tables."""
    # Panels of one table share snapshots, each of them with the time of its first sample.
    moments = [_moments(table.panels) for table in tables]
    every_us = np.concatenate([time_us for _, time_us in moments])
    ranks = np.empty(len(every_us), np.int64)
    ranks[np.argsort(every_us, kind="stable")] = np.arange(len(every_us))
    before = sum(len(numbers) for numbers, _ in moments[:place])
    numbers, _ = moments[place]
    mine = ranks[before : before + len(numbers)]
    panels = tuple(
        replace(panel, node=node, snapshot=mine[np.searchsorted(numbers, panel.snapshot)])
        for panel in tables[place].panels
    )
    made = dataclasses.replace(tables[place], panels=panels)
    return list(made.parts), made.facts[0]


def _moments(panels: Sequence[Panel]) -> tuple[IntArray, IntArray]:
    """The numbers of all snapshots, ascending, and the time of each."""
    numbers = np.concatenate([panel.snapshot for panel in panels])
    times = np.concatenate([panel.time_us for panel in panels])
    order = np.lexsort((times, numbers))
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return numbers[order][first], np.maximum.accumulate(times[order][first])
