"""Reading the files of a job group by group, wherever an engine does it, and what all of them hold together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.progress import Progress
from jobreport.readers.implausible_times import FAR_US, clusters, kept_spans
from jobreport.readers.implausible_times import within as in_spans
from jobreport.readers.system_samples.reader import OTHER_UNKNOWN, UNKNOWN
from jobreport.readers.tally import Tally
from jobreport.readers.traces.columns import EARLIEST_US
from jobreport.remarks import Remark, SourceQuality
from jobreport.tables.engine import Task
from jobreport.tables.parts import facts_of
from jobrules.model import Job, JobInMemory, Metric, span_of
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.readers.base import Reader, SourceFile
    from jobreport.readers.implausible_times import Cluster
    from jobreport.tables.engine import Engine, Handle, Made
    from jobrules.model import IntArray, Panel, PartFacts, Profile

_Span = tuple[int, int]

#: Unknown sensors that get a remark of their own.
NAMED_UNKNOWNS = 8
#: Files of several machines are read together up to so many bytes of text, and so many machines.
_TOGETHER_BYTES, _TOGETHER = 32 << 20, 64

_FAR_SAMPLES = "time lies more than 30 days from nearly all other samples"
_FAR_EVENTS = "more than 30 days from all samples, or without a date"
_LONE_EVENTS = "time lies more than 30 days from nearly all other events"


class Told(Struct, frozen=True, kw_only=True):
    """What comes back of the reading of a group, besides the tables."""

    #: Of each machine.
    facts: tuple[PartFacts, ...] = ()
    quality: SourceQuality
    profiles: tuple[Profile, ...] = ()
    recorded: tuple[str, ...] = ()
    finished: bool | None = None


class Group(Struct, frozen=True, kw_only=True):
    """Files that are read together."""

    reader: Reader
    files: list[SourceFile]
    #: The machine that they are of, as far as their names tell; the first of several.
    machine: str = ""


class Piece(Struct, frozen=True, kw_only=True):
    """What a reader made of a group of files; the tables are with the engine."""

    group: Group
    told: Told
    #: The tables of each machine of ``told.facts``: jobs of that machine alone.
    handles: Sequence[Handle]


def stopped(source: str, error: Exception) -> str:
    """Why a reader stopped."""
    return f"the reader of {source} stopped: {type(error).__name__}: {escape_name(str(error))}"


def packed(reader: Reader, files: Sequence[SourceFile]) -> list[Group]:
    """The reader's groups, with small ones put together: to begin with one costs as much as some megabytes."""
    found: list[Group] = []
    room = machines = 0
    for machine, some in reader.groups(files).items():
        size = sum(file.text_size for file in some)
        if found and size <= room and machines < _TOGETHER:
            found[-1].files.extend(some)
            machines += 1
        else:
            found.append(Group(reader=reader, files=some, machine=machine))
            room, machines = _TOGETHER_BYTES, 1
        room -= size
    return found


def read_groups(engine: Engine, groups: Sequence[Group], progress: Progress, *, strict: bool) -> list[Piece]:
    """All groups of files, each with its reader.

    Those of one reader that turn out to hold tables of the same machine are read again as one group.
    """
    pieces = _read_groups(engine, groups, progress, strict=strict)
    #: The first of the pieces that belong together, for each.
    first = list(range(len(pieces)))
    owner: dict[tuple[str, str], int] = {}
    for number, piece in enumerate(pieces):
        for facts in piece.told.facts:
            other = first[owner.setdefault((piece.group.reader.source, facts.node), number)]
            if other != first[number]:
                first = [other if one == first[number] else one for one in first]
    together: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece, one in zip(pieces, first, strict=True):
        together[one].append(piece)
    again = {one: many for one, many in together.items() if len(many) > 1}
    if not again:
        return pieces
    joined = [
        replace(many[0].group, files=sorted(f for one in many for f in one.group.files))
        for many in again.values()
    ]
    made = dict(zip(again, _read_groups(engine, joined, Progress(), strict=strict), strict=True))
    return [made.get(one, many[0]) for one, many in together.items()]


def _read_groups(engine: Engine, groups: Sequence[Group], progress: Progress, *, strict: bool) -> list[Piece]:
    sizes = [sum(file.size for file in group.files) for group in groups]
    tasks = [
        Task(
            args=(group.reader, group.files, strict),
            memory=group.reader.memory * sum(file.text_size for file in group.files),
            machine=group.machine,
        )
        for group in groups
    ]
    made = engine.keep(_read, tasks, lambda number: progress.finish(sizes[number]))
    return [
        Piece(group=group, told=told, handles=handles)
        for group, (handles, told) in zip(groups, made, strict=True)
    ]


def _read(_: Sequence[Job], reader: Reader, files: Sequence[SourceFile], strict: bool) -> Made:
    """The tables of each machine in a group of files."""
    try:
        found = reader.read(files)
    except Exception as error:
        if strict:
            raise
        tally = Tally()
        tally.add("failed", "files", stopped(reader.source, error), count=len(files), file=files[0].name)
        return [], Told(quality=SourceQuality(source=reader.source, files=0, rows=0, remarks=tally.remarks()))
    whole = JobInMemory(name="", panels=found.panels, steps=found.steps, events=found.events)
    told = Told(
        facts=whole.facts,
        quality=found.quality,
        profiles=found.profiles,
        recorded=found.recorded,
        finished=found.finished,
    )
    return list(whole.parts), told


def sources_of(pieces: Sequence[Piece], tally: Tally) -> list[SourceQuality]:
    """What became of the files of each reader; a reader that stopped is counted in ``tally``."""
    found: dict[str, SourceQuality] = {}
    remarks: defaultdict[str, Tally] = defaultdict(Tally)
    for piece in pieces:
        one = piece.told.quality
        failed = [remark for remark in one.remarks if remark.action == "failed"]
        tally.take(failed)
        if failed and not one.rows:
            continue
        known = found.get(one.source)
        found[one.source] = (
            replace(known, files=known.files + one.files, rows=known.rows + one.rows) if known else one
        )
        remarks[one.source].take(one.remarks)
    return [replace(one, remarks=_few(remarks[source].remarks())) for source, one in found.items()]


def _few(remarks: Sequence[Remark]) -> tuple[Remark, ...]:
    """With the most frequent unknown sensors by name, and the others as one."""
    named = [one for one in remarks if one.reason.startswith(UNKNOWN)]
    others = set(named[NAMED_UNKNOWNS:])
    tally = Tally()
    tally.take(one for one in remarks if one not in others)
    tally.take(replace(one, reason=OTHER_UNKNOWN) for one in others)
    return tally.remarks()


def nodes_of(
    pieces: Sequence[Piece], engine: Engine, tally: Tally
) -> Mapping[str, tuple[PartFacts, list[Handle]]]:
    """What is known of each machine, and its tables, those of the first reader first."""
    parts: defaultdict[str, list[tuple[PartFacts, Handle]]] = defaultdict(list)
    for piece in pieces:
        for facts, handle in zip(piece.told.facts, piece.handles, strict=True):
            parts[facts.node].append((facts, handle))
    for node, known in parts.items():
        seen: set[Metric] = set()
        for facts, handle in known:
            for panel in facts.panels:
                if panel.metric in seen:
                    (samples,) = engine.ask(_samples, [([handle], (panel.metric,))])
                    reason = f"{panel.metric.label} of {escape_name(node)} is known from another source"
                    tally.add("dropped", "samples", reason, count=samples)
                seen.add(panel.metric)
    return {
        node: (facts_of([facts for facts, _ in known]), [handle for _, handle in known])
        for node, known in parts.items()
    }


def _samples(things: Sequence[Job], metric: Metric) -> int:
    return sum(
        int(np.count_nonzero(~np.isnan(panel.values))) for one in things for panel in one.panels_of(metric)
    )


# Records whose time cannot be the job's


def drop_implausible_times(pieces: list[Piece], engine: Engine) -> list[Piece]:
    """The pieces without samples that lie far from nearly all others, and events that lie far from all samples.

    In a job without samples, without events that lie far from nearly all others.
    """
    sampled = span_of(facts.samples_us for piece in pieces for facts in piece.told.facts)
    events = span_of(facts.events_us for piece in pieces for facts in piece.told.facts)
    sample_spans = event_spans = None
    if sampled and _is_long(sampled):
        sample_spans = _kept(pieces, engine, _sample_clusters)
    near = span_of(sample_spans) if sample_spans else sampled
    if near:
        event_spans = [(near[0] - FAR_US, near[1] + FAR_US)]
    elif events and _is_long(events):
        event_spans = _kept(pieces, engine, _event_clusters)
        # They are of starts; the last event ends behind.
        event_spans = event_spans and [(first, last + FAR_US) for first, last in event_spans]
        if events[0] < EARLIEST_US <= events[1]:
            # Of some machines no event has a date; times without one cannot stand beside those of others.
            event_spans = [span for span in event_spans or [events] if span[1] >= EARLIEST_US]
            event_spans = [(max(first, EARLIEST_US), last) for first, last in event_spans]
    reason = _FAR_EVENTS if near else _LONE_EVENTS
    return [_without(piece, engine, sample_spans, event_spans, reason) for piece in pieces]


def _is_long(span: _Span) -> bool:
    return span[1] - span[0] > FAR_US


def _kept(
    pieces: Sequence[Piece], engine: Engine, of: Callable[[Sequence[Job]], list[Cluster]]
) -> list[_Span] | None:
    found = engine.ask(of, [([handle], ()) for piece in pieces for handle in piece.handles])
    return kept_spans(cluster for some in found for cluster in some)


def _sample_clusters(things: Sequence[Job]) -> list[Cluster]:
    return [
        cluster
        for one in things
        for panel in one.panels
        for cluster in clusters(panel.time_us, np.count_nonzero(~np.isnan(panel.values), axis=1))
    ]


def _event_clusters(things: Sequence[Job]) -> list[Cluster]:
    return [cluster for one in things for cluster in clusters(one.events.start_us)]


def _without(
    piece: Piece, engine: Engine, samples: list[_Span] | None, events: list[_Span] | None, reason: str
) -> Piece:
    told = piece.told
    if all(_inside(one.samples_us, samples) and _inside(one.events_us, events) for one in told.facts):
        return piece
    unit = piece.group.reader.rows
    made = engine.keep(
        _restricted,
        [Task(handles=[handle], args=(samples, events, unit)) for handle in piece.handles],
        lambda _: None,
    )
    tally = Tally()
    tally.take(told.quality.remarks)
    rows = told.quality.rows
    for _, (_, lost_samples, lost_events) in made:
        tally.add("dropped", unit, _FAR_SAMPLES, count=lost_samples)
        tally.add("dropped", "events", reason, count=lost_events)
        rows -= lost_samples + lost_events
    return replace(
        piece,
        handles=[handle for handles, _ in made for handle in handles],
        told=replace(
            told,
            facts=tuple(one for _, (facts, *_) in made for one in facts),
            quality=replace(told.quality, rows=rows, remarks=tally.remarks()),
        ),
    )


def _inside(span: _Span | None, spans: Sequence[_Span] | None) -> bool:
    return span is None or spans is None or any(first <= span[0] and span[1] <= last for first, last in spans)


def _restricted(
    things: Sequence[Job], samples: list[_Span] | None, events: list[_Span] | None, unit: str
) -> Made:
    """A machine's tables without what lies outside; none where nothing is left."""
    (job,) = things
    panels, table, steps = job.panels, job.events, job.steps
    before = _rows(panels, unit)
    if samples is not None:
        panels = tuple(one for p in panels if (one := p.where(in_spans(p.time_us, samples))))
    if events is not None:
        table = table.where(in_spans(table.start_us, events) & in_spans(table.end_us, events))
        in_loop = in_spans(steps.start_us, events) & in_spans(steps.end_us, events)
        loaders = tuple(one for one in table.loaders if _inside((one.start_us, one.start_us), events))
        table, steps = replace(table, loaders=loaders), steps.where(in_loop)
    left = JobInMemory(name="", panels=panels, steps=steps, events=table)
    after = _rows(panels, unit)
    facts = left.facts if panels or len(table) else ()
    return (
        list(left.parts) if facts else [],
        (facts, before - after, len(job.events) - len(table)),
    )


def _rows(panels: Sequence[Panel], unit: str) -> int:
    """How many rows of files the panels hold: each sample is one, or those of a device at a moment are."""
    if unit == "samples":
        return sum(int(np.count_nonzero(~np.isnan(panel.values))) for panel in panels)
    moments: defaultdict[str, list[IntArray]] = defaultdict(list)
    for panel in panels:
        for i, device in enumerate(panel.devices):
            moments[device].append(panel.snapshot[~np.isnan(panel.values[:, i])])
    return sum(len(np.unique(np.concatenate(some))) for some in moments.values())
