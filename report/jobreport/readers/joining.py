"""Logs that tell of machines whose samples are there too: which machine, and how far its clock is apart.

Such a log seldom names its machine, and its clock may be that of another zone or none at all. What both tell of is
the use of the same GPUs, and that says which machine and when (``jobrules.measures.curve_offset``).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.implausible_times import KEPT_SHARE
from jobreport.readers.nvidia_smi.reader import NvidiaSmi
from jobreport.readers.tally import Tally
from jobreport.readers.timeline import Timeline
from jobreport.tables.engine import Task
from jobrules.measures.curve_offset import CurveOffset, cells, curve_offset, curves
from jobrules.measures.snapshots import TOLERANCE_US, Series, node_panels
from jobrules.model import SECOND_US, Job, JobInMemory, Metric, PartFacts
from jobrules.text import NBSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.grouping import Piece
    from jobreport.readers.timeline import Part
    from jobreport.remarks import SourceQuality
    from jobreport.tables.engine import Engine, Made
    from jobrules.model import IntArray, Panel, PanelFacts


#: A machine is the log's if all others fit worse by this, as correlation.
_AHEAD = 0.05
#: A hundredth of the samples, or less, that lie so far from the others do not say when a recording was made.
_FAR_US = 6 * 3600 * SECOND_US
#: Each GPU of each log is compared with those of each machine: in so many cells of time at most (a million take
#: about a second), or so many for each moment that was sampled.
_MOST_CELLS, _CELLS_A_MOMENT = 5_000_000, 300
_APART = "a machine of its own, not joined to any samples"
_SECOND = "second value of a GPU in the same snapshot, from another log; one is in use"
_SAME = "joined to the samples of its machine by its name, how far the clocks are apart is not known"


def joined(pieces: Sequence[Piece], engine: Engine) -> list[Piece]:
    """The pieces, with each log moved to the machine that it is of and to the time of that machine's clock.

    Several logs of one machine become one.
    """
    found = [[*map(_Table, piece.summary.facts, piece.handles)] for piece in pieces]
    tallies = [Tally() for _ in pieces]
    #: Of each machine that has samples; the last one is a log's once one has joined.
    machines: dict[str, list[_Table]] = {}
    for piece, tables in zip(pieces, found, strict=True):
        for table in () if _is_log(piece) else tables:
            if table.facts.panels:
                machines.setdefault(table.facts.node, []).append(table)
    used = [panel for tables in found for table in tables for panel in _uses(table)]
    left = max(_MOST_CELLS, _CELLS_A_MOMENT * sum(panel.snapshots for panel in used))
    longest_us = max((panel.last_us - panel.first_us for panel in used), default=0)
    with_log: set[str] = set()
    for piece, tables, tally in zip(pieces, found, tallies, strict=True):
        for log in tables if _is_log(piece) and machines else ():
            cost = 0 if log.facts.node in machines else len(machines) * _cells(log, longest_us)
            node, later_us, told = _machine(log, machines, engine, compare=cost <= left)
            left -= cost if cost <= left else 0
            tally.add("corrected", "logs", told)
            if node is None:
                continue
            mine = machines[node]
            handles = [one.handle for one in (*mine, log)]
            logs = 1 + (node in with_log)
            tasks = [
                Task(handles=handles, args=(i, logs, node, later_us)) for i in range(len(handles) - logs + 1)
            ]
            made = engine.keep(_renumbered, tasks, lambda _: None)
            if node in with_log:
                log.gone = True
            else:
                with_log.add(node)
                mine.append(log)
            for one, ((handle,), ((facts,), surplus)) in zip(mine, made, strict=True):
                one.handle, one.facts = handle, facts
                tally.add("dropped", "values", _SECOND, count=surplus)
    return [
        replace(
            piece,
            summary=replace(
                piece.summary,
                facts=tuple(table.facts for table in tables if not table.gone),
                quality=_with(piece.summary.quality, tally),
            ),
            handles=[table.handle for table in tables if not table.gone],
        )
        for piece, tables, tally in zip(pieces, found, tallies, strict=True)
    ]


class _Table(Struct):
    """Where the tables of a machine from one reading are, and what is known of them."""

    facts: PartFacts
    #: For the engine.
    handle: Any
    #: Whether they are part of another one.
    gone: bool = False


def _with(quality: SourceQuality, more: Tally) -> SourceQuality:
    tally = Tally()
    tally.take((*quality.remarks, *more.remarks()))
    return replace(quality, remarks=tally.remarks())


def _is_log(piece: Piece) -> bool:
    return piece.group.reader.source == NvidiaSmi.source


def _uses(table: _Table) -> list[PanelFacts]:
    """What was sampled of its GPUs' use."""
    return [panel for panel in table.facts.panels if panel.metric == Metric.GPU_UTILIZATION]


def _cells(log: _Table, longest_us: int) -> int:
    """What comparing a log with a machine costs, of recordings that are no longer than the longest one."""
    return sum(
        len(panel.devices) * cells(longest_us, panel.interval_us, 2 * panel.snapshots) for panel in _uses(log)
    )


def _machine(
    log: _Table, machines: dict[str, list[_Table]], engine: Engine, *, compare: bool
) -> tuple[str | None, int, str]:
    """Whose samples a log belongs to, by how much its times are later, and what to tell of that."""
    name = log.facts.node
    named = name in machines
    if not (named or compare) and _uses(log):
        return None, 0, f"{_APART}: too many logs and machines to compare each with each"
    asked = [name] if named else [*machines] if _uses(log) else []
    first = {node: table for node in asked if (table := next(filter(_uses, machines[node]), None))}
    asked = [node for node in first if _uses(log)]
    if not asked:
        reason = "use of GPUs is not told by both"
        return (name, 0, f"{_SAME}: {reason}") if named else (None, 0, f"{_APART}: {reason}")
    questions = [([first[node].handle, log.handle], ()) for node in asked]
    found = dict(zip(asked, engine.ask(_offset, questions), strict=True))
    fits = {node: one for node, one in found.items() if isinstance(one, CurveOffset)}
    if not fits:
        reason = next(one for one in found.values() if isinstance(one, str))
        return (name, 0, f"{_SAME}: {reason}") if named else (None, 0, f"{_APART}: {reason}")
    best = max(fits, key=lambda node: fits[node].correlation)
    rivals = [node for node, one in fits.items() if one.correlation > fits[best].correlation - _AHEAD]
    if len(rivals) > 1:
        return None, 0, f"{_APART}: the use of the GPUs of {len(rivals)} machines is as in the log"
    fit = fits[best]
    apart = "ahead" if fit.us > 0 else "behind"
    told = (
        f"joined to the samples of its machine by the use of its GPUs (correlation {fit.correlation:.2f}): its clock "
        f"is {_seconds(abs(fit.us))} {apart}, \u00b1 {_seconds(fit.spread_us)}"
    )
    return best, fit.us, told


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:.1f}{NBSP}s"


def _offset(things: Sequence[Job]) -> CurveOffset | str:
    """Of the use of the GPUs in a machine's samples and in a log."""
    samples, log = (_together(panel) for one in things for panel in one.panels_of(Metric.GPU_UTILIZATION))
    return curve_offset(curves(samples), curves(log))


def _together(panel: Panel) -> Panel:
    """Without the few samples that lie far from all others: their times may be damaged."""
    starts = np.flatnonzero(np.diff(panel.time_us, prepend=panel.time_us[0] - _FAR_US - 1) > _FAR_US)
    sizes = np.diff(starts, append=len(panel.time_us))
    few = np.repeat(sizes < KEPT_SHARE * len(panel.time_us), sizes)
    return panel.where(~few) or panel


def _renumbered(things: Sequence[JobInMemory], place: int, logs: int, node: str, later_us: int) -> Made:
    """One of a machine's tables, with its snapshots numbered over all of them; the last ``logs`` become one.

    The last one gets the machine's name, and times by its clock. Besides the facts it tells how many values of the
    logs were left out.
    """
    moved = [_moved(panel, node, later_us) for panel in things[-1].panels]
    known = [panel for one in things[-logs:-1] for panel in one.panels]
    surplus = 0
    if known:
        moved, surplus = _merged(node, [*known, *moved])
    tables = [*(list(one.panels) for one in things[:-logs]), moved]
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
    is_log = place == len(tables) - 1
    made = (
        JobInMemory(name="", panels=panels) if is_log else dataclasses.replace(things[place], panels=panels)
    )
    return list(made.parts), (made.facts, surplus if is_log else 0)


def _merged(node: str, panels: Sequence[Panel]) -> tuple[list[Panel], int]:
    """The samples of several logs as one, and how many of them lie where another is."""
    parts: defaultdict[tuple[Metric, str], list[Part]] = defaultdict(list)
    for panel in panels:
        for i, device in enumerate(panel.devices):
            parts[panel.metric, device].append(panel.series(i))
    timeline = Timeline()
    series, surplus = [], 0
    for (metric, device), some in parts.items():
        time_us, values, repeated = timeline.merged(some)
        surplus += repeated
        series.append(Series(metric=metric, device=device, time_us=time_us, values=values))
    tolerance_us = max(TOLERANCE_US, min(panel.interval_us for panel in panels) // 2)
    made = node_panels(node, series, tolerance_us)
    return list(made.panels), surplus + made.surplus


def _moments(panels: Sequence[Panel]) -> tuple[IntArray, IntArray]:
    """The numbers of all snapshots, ascending, and when each was."""
    numbers = np.concatenate([panel.snapshot for panel in panels])
    times = np.concatenate([panel.time_us for panel in panels])
    order = np.lexsort((times, numbers))
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return numbers[order][first], np.maximum.accumulate(times[order][first])


def _moved(panel: Panel, node: str, later_us: int) -> Panel:
    return replace(panel, node=node, time_us=panel.time_us - later_us, last_us=panel.last_us - later_us)
