"""Logs that tell of machines whose samples are there too: which machine, and how far its clock is apart.

Such a log seldom names its machine, and its clock may be that of another zone or none at all. What both tell of is
the use of the same GPUs, and that says which machine and when (``jobrules.curve_offset``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from jobreport.readers.pieces import Piece
    from jobrules.job import PartFacts

#: A machine is the log's if all others fit worse by this, as correlation.
_AHEAD = 0.05
#: Snapshots of a log are none of the samples': their numbers begin here.
_FIRST_SNAPSHOT = 1 << 40

_APART = "a machine of its own, not joined to any samples"
_SAME = "joined to the samples of its machine by its name, how far the clocks are apart is not known"


def joined(pieces: Sequence[Piece], engine: Engine) -> list[Piece]:
    """The pieces, with each log moved to the machine that it is of and to the time of that machine's clock."""
    machines: dict[str, Handle] = {}
    for piece in pieces:
        if not _is_log(piece):
            for facts, handle in zip(piece.told.facts, piece.handles, strict=True):
                if _use(facts):
                    machines.setdefault(facts.node, handle)
    if not machines:
        return list(pieces)
    return [_joined(piece, machines, engine) if _is_log(piece) else piece for piece in pieces]


def _is_log(piece: Piece) -> bool:
    return piece.group.reader.source == NvidiaSmi.source


def _use(facts: PartFacts) -> bool:
    return any(panel.metric == Metric.GPU_USE for panel in facts.panels)


def _joined(piece: Piece, machines: dict[str, Handle], engine: Engine) -> Piece:
    """The log's machines under the names of those that have samples; those that are nobody's stay."""
    tally = Tally()
    tally.take(piece.told.quality.remarks)
    facts, handles = list(piece.told.facts), list(piece.handles)
    for i, (known, handle) in enumerate(zip(piece.told.facts, piece.handles, strict=True)):
        node, offset, told = _machine(known, handle, machines, engine)
        tally.add("corrected", "logs", told)
        if node is not None:
            ((new, of),) = engine.keep(_moved, [Task(handles=[handle], given=(node, offset))], lambda _: None)
            (handles[i],), (facts[i],) = new, of
    quality = replace(piece.told.quality, remarks=tally.remarks())
    return replace(piece, told=replace(piece.told, facts=tuple(facts), quality=quality), handles=handles)


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


def _moved(things: Sequence[Job], node: str, later_us: int) -> Made:
    """The tables of a log as those of a machine, by its clock."""
    (log,) = things
    panels = tuple(
        replace(
            panel,
            node=node,
            time_us=panel.time_us - later_us,
            last_us=panel.last_us - later_us,
            snapshot=panel.snapshot + _FIRST_SNAPSHOT,
        )
        for panel in log.panels
    )
    moved = Job(name="", panels=panels)
    return list(moved.parts), moved.facts
