"""Logs that tell of machines whose samples are there too: which machine, and how far its clock is apart.

Such a log seldom names its machine, and its clock may be that of another zone or none at all. What both tell of is
the use of the same GPUs, and that says which machine and when (``jobrules.curve_offset``).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from jobreport.engine import Task
from jobreport.readers.nvidia_smi import NvidiaSmi
from jobreport.readers.tally import Tally
from jobrules.curve_offset import CurveOffset, curve_offset, curves
from jobrules.job import SECOND_US, Job, Metric
from jobrules.words import NBSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.engine import Engine, Handle, Made
    from jobreport.quality import SourceQuality
    from jobreport.readers.pieces import Piece
    from jobrules.job import IntArray, Panel, PartFacts

_Place: TypeAlias = tuple[int, int]

#: A machine is the log's if all others fit worse by this, as correlation.
_AHEAD = 0.05
_APART = "a machine of its own, not joined to any samples"
_SAME = "joined to the samples of its machine by its name, how far the clocks are apart is not known"


def joined(pieces: Sequence[Piece], engine: Engine) -> list[Piece]:
    """The pieces, with each log moved to the machine that it is of and to the time of that machine's clock."""
    handles = [list(piece.handles) for piece in pieces]
    facts = [list(piece.told.facts) for piece in pieces]
    tallies = [Tally() for _ in pieces]
    #: Where the tables of each machine with samples of its GPUs are: number of the piece, and in it.
    machines: dict[str, list[_Place]] = {}
    logs: list[_Place] = []
    for number, piece in enumerate(pieces):
        for i, known in enumerate(piece.told.facts):
            if _is_log(piece):
                logs.append((number, i))
            elif known.node in machines or _use(known):
                machines.setdefault(known.node, []).append((number, i))
    for number, i in logs if machines else ():
        first = {node: handles[n][k] for node, ((n, k), *_) in machines.items()}
        node, later_us, told = _machine(facts[number][i], handles[number][i], first, engine)
        tallies[number].add("corrected", "logs", told)
        if node is None:
            continue
        places = machines[node]
        places.append((number, i))
        mine = [handles[n][k] for n, k in places]
        tasks = [Task(handles=mine, given=(place, node, later_us)) for place in range(len(mine))]
        for (n, k), (kept, of) in zip(places, engine.keep(_renumbered, tasks, lambda _: None), strict=True):
            (handles[n][k],), (facts[n][k],) = kept, of
    return [
        replace(
            piece,
            told=replace(piece.told, facts=tuple(known), quality=_with(piece.told.quality, tally)),
            handles=mine,
        )
        for piece, mine, known, tally in zip(pieces, handles, facts, tallies, strict=True)
    ]


def _with(quality: SourceQuality, more: Tally) -> SourceQuality:
    tally = Tally()
    tally.take((*quality.remarks, *more.remarks()))
    return replace(quality, remarks=tally.remarks())


def _is_log(piece: Piece) -> bool:
    return piece.group.reader.source == NvidiaSmi.source


def _use(facts: PartFacts) -> bool:
    return any(panel.metric == Metric.GPU_USE for panel in facts.panels)


def _machine(
    log: PartFacts, handle: Handle, machines: dict[str, Handle], engine: Engine
) -> tuple[str | None, int, str]:
    """Whose samples a log belongs to, by how much its times are later, and what to tell of that."""
    named = log.node in machines
    if not _use(log):
        return (log.node, 0, _SAME) if named else (None, 0, f"{_APART}: it tells no use of GPUs")
    asked = [log.node] if named else list(machines)
    found = dict(
        zip(asked, engine.ask(_offset, [([machines[node], handle], ()) for node in asked]), strict=True)
    )
    fits = {node: one for node, one in found.items() if isinstance(one, CurveOffset)}
    if not fits:
        reason = next(iter(found.values()))
        if named:
            return log.node, 0, f"{_SAME}: {reason}"
        return None, 0, f"{_APART}: {reason}"
    best = max(fits, key=lambda node: fits[node].correlation)
    rivals = [node for node, one in fits.items() if one.correlation > fits[best].correlation - _AHEAD]
    if len(rivals) > 1:
        return None, 0, f"{_APART}: the use of the GPUs of {len(rivals)} machines is as in the log"
    one = fits[best]
    apart = "ahead" if one.us > 0 else "behind"
    told = (
        f"joined to the samples of its machine by the use of its GPUs (correlation {one.correlation:.2f}): its clock "
        f"is {_seconds(abs(one.us))} {apart}, \u00b1 {_seconds(one.spread_us)}"
    )
    return best, one.us, told


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:.1f}{NBSP}s"


def _offset(things: Sequence[Job]) -> CurveOffset | str:
    """Of the use of the GPUs in a machine's samples and in a log."""
    samples, log = (panel for one in things for panel in one.panels_of(Metric.GPU_USE))
    return curve_offset(curves(samples), curves(log))


def _renumbered(things: Sequence[Job], place: int, node: str, later_us: int) -> Made:
    """One of a machine's tables, with its snapshots numbered over all of them; the last ones are a log's.

    The log gets the machine's name, and times by its clock.
    """
    *others, log = things
    moved = [_moved(panel, node, later_us) for panel in log.panels]
    tables = [*(list(one.panels) for one in others), moved]
    # Of one source, panels share snapshots, each of them with the time of its first sample.
    moments = [_moments(panels) for panels in tables]
    every = np.concatenate([time_us for _, time_us in moments])
    ranks = np.empty(len(every), np.int64)
    ranks[np.argsort(every, kind="stable")] = np.arange(len(every))
    start = sum(len(number) for number, _ in moments[:place])
    numbers, _ = moments[place]
    mine = ranks[start : start + len(numbers)]
    panels = tuple(
        replace(panel, snapshot=mine[np.searchsorted(numbers, panel.snapshot)]) for panel in tables[place]
    )
    made = dataclasses.replace(things[place], panels=panels)
    return list(made.parts), made.facts


def _moments(panels: Sequence[Panel]) -> tuple[IntArray, IntArray]:
    """The numbers of all snapshots, ascending, and when each was."""
    numbers = np.concatenate([panel.snapshot for panel in panels])
    times = np.concatenate([panel.time_us for panel in panels])
    order = np.lexsort((times, numbers))
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return numbers[order][first], np.maximum.accumulate(times[order][first])


def _moved(panel: Panel, node: str, later_us: int) -> Panel:
    return replace(panel, node=node, time_us=panel.time_us - later_us, last_us=panel.last_us - later_us)
