"""Records whose time cannot be right: a clock that was not set yet, a damaged digit.

There is one filter for all sources. It runs after reading, on the tables of a node: it drops what lies more than
30 days from most of the node's records, which would stretch every time axis and every share over years.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.bounds import EARLIEST_US
from jobreport.readers.tally import Tally
from jobreport.tables.engine import Task
from jobrules.model import SECOND_US, BoolArray, IntArray, Job, JobInMemory, span_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.readers.grouping import Piece
    from jobreport.tables.engine import Engine, Handle, Made
    from jobrules.model import Panel, PartFacts

#: No job pauses this long.
FAR_US = 30 * 24 * 3600 * SECOND_US


#: First and last time.
_Span = tuple[int, int]
#: First and last time of records without a gap of 30 days, and how many they are.
_Cluster = tuple[int, int, int]


def drop_implausible_times(pieces: Sequence[Piece], engine: Engine) -> list[Piece]:
    """The pieces without records that lie more than 30 days from most of their node's records.

    The records that count are the node's samples; the events of a node without samples are compared with the samples
    of all nodes, or with one another if the job has none. Events without a date, whose times begin near 0, are
    dropped if any record of the job has one.
    """
    nodes: defaultdict[str, list[tuple[PartFacts, Handle]]] = defaultdict(list)
    for piece in pieces:
        for facts, handle in piece.nodes:
            nodes[facts.node].append((facts, handle))
    job = span_of(span for known in nodes.values() for facts, _ in known for span in _spans(facts))
    earliest_us = EARLIEST_US if job and job[1] >= EARLIEST_US else 0
    plausible = {node: _plausible(known, engine, earliest_us) for node, known in nodes.items()}
    sampled = [node for node, known in nodes.items() if any(facts.panels for facts, _ in known)]
    if sampled:
        spans = [span for node in sampled for span in plausible[node]]
        plausible |= dict.fromkeys(nodes.keys() - set(sampled), spans)
    return [restricted(piece, plausible, engine, "times.implausible") for piece in pieces]


def _spans(facts: PartFacts) -> tuple[_Span | None, _Span | None]:
    return facts.samples_us, facts.events_us


def _plausible(tables: Sequence[tuple[PartFacts, Handle]], engine: Engine, earliest_us: int) -> list[_Span]:
    """When the records of a node may be: up to 30 days from its largest cluster; empty if it has no record."""
    sampled = span_of(facts.samples_us for facts, _ in tables)
    near = sampled or span_of(facts.events_us for facts, _ in tables)
    if near and near[1] - near[0] > FAR_US:
        clusters_of = _sample_clusters if sampled else _event_clusters
        found = engine.ask(clusters_of, [([handle], (earliest_us,)) for _, handle in tables])
        near = _largest(cluster for some in found for cluster in some)
    if near is None or near[1] + FAR_US < earliest_us:
        return []
    return [(max(near[0] - FAR_US, earliest_us), near[1] + FAR_US)]


def _sample_clusters(jobs: Sequence[Job], _: int) -> list[_Cluster]:
    return [
        cluster
        for job in jobs
        for panel in job.panels
        for cluster in _clusters(panel.time_us, np.count_nonzero(~np.isnan(panel.values), axis=1))
    ]


def _event_clusters(jobs: Sequence[Job], earliest_us: int) -> list[_Cluster]:
    starts = [job.events.start_us[job.events.start_us >= earliest_us] for job in jobs]
    return [cluster for some in starts for cluster in _clusters(some, np.ones(len(some), np.int64))]


def _clusters(time_us: IntArray, counts: IntArray) -> list[_Cluster]:
    """The clusters of ascending times, each of which stands for ``counts`` records."""
    if not len(time_us):
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(time_us) > FAR_US) + 1))
    ends = np.append(starts[1:], len(time_us)) - 1
    records = np.add.reduceat(counts, starts)
    return list(zip(time_us[starts].tolist(), time_us[ends].tolist(), records.tolist(), strict=True))


def _largest(found: Iterable[_Cluster]) -> _Span:
    """First and last time of the clusters with most records, joined where they lie near one another."""
    joined: list[_Cluster] = []
    for first, last, records in sorted(found):
        if joined and first - joined[-1][1] <= FAR_US:
            begin, end, before = joined.pop()
            joined.append((begin, max(end, last), before + records))
        else:
            joined.append((first, last, records))
    # Of equal ones the last: a clock is set late rather than ahead.
    first, last, _ = max(joined, key=lambda one: (one[2], one[0]), default=(0, 0, 0))
    return first, last


def restricted(piece: Piece, of_nodes: Mapping[str, list[_Span]], engine: Engine, code: str) -> Piece:
    """The piece without records outside the spans of their node, which a remark of this code counts."""
    spans = [of_nodes[facts.node] for facts in piece.facts]
    if all(
        _inside(span, allowed)
        for facts, allowed in zip(piece.facts, spans, strict=True)
        for span in _spans(facts)
    ):
        return piece
    unit = piece.group.reader.rows
    tasks = [
        Task(handles=[handle], args=(allowed, unit))
        for handle, allowed in zip(piece.handles, spans, strict=True)
    ]
    made = engine.keep(_within, tasks, lambda _: None)
    lost = sum(lost for _, (_, lost) in made)
    quality, tally = piece.found.quality, Tally()
    tally.take(quality.remarks)
    tally.note(code, count=lost, unit=unit)
    quality = replace(quality, rows=quality.rows - lost, remarks=tally.remarks())
    return replace(
        piece,
        found=replace(piece.found, quality=quality),
        facts=tuple(one for _, (some, _) in made for one in some),
        handles=[handle for handles, _ in made for handle in handles],
    )


def _inside(span: _Span | None, allowed: Sequence[_Span]) -> bool:
    return span is None or any(first <= span[0] and span[1] <= last for first, last in allowed)


def _within(jobs: Sequence[Job], spans: list[_Span], unit: str) -> Made:
    """The tables of a node within the spans, none if they are empty; with what is known and the rows lost."""
    (job,) = jobs
    events, steps = job.events, job.steps
    panels = tuple(one for panel in job.panels if (one := panel.where(within(panel.time_us, spans))))
    loaders = tuple(one for one in events.loaders if _inside((one.start_us, one.start_us), spans))
    left = JobInMemory(
        name="",
        panels=panels,
        steps=steps.where(within(steps.start_us, spans) & within(steps.end_us, spans)),
        events=replace(
            events.where(within(events.start_us, spans) & within(events.end_us, spans)), loaders=loaders
        ),
    )
    lost = _rows(job.panels, unit) - _rows(panels, unit) + len(events) - len(left.events)
    if not panels and not len(left.events):
        return [], ((), lost)
    return list(left.parts), (left.facts, lost)


def within(time_us: IntArray, spans: Sequence[_Span]) -> BoolArray:
    """Which times lie in one of the spans."""
    found = np.zeros(len(time_us), np.bool_)
    for first, last in spans:
        found |= (first <= time_us) & (time_us <= last)
    return found


def _rows(panels: Sequence[Panel], unit: str) -> int:
    """Rows of files that the panels hold: each sample is one, or all samples of a device at a moment are one."""
    if unit == "samples":
        return sum(int(np.count_nonzero(~np.isnan(panel.values))) for panel in panels)
    moments = 1 + max((int(panel.snapshot[-1]) for panel in panels), default=-1)
    sampled: defaultdict[str, BoolArray] = defaultdict(lambda: np.zeros(moments, np.bool_))
    for panel in panels:
        for i, device in enumerate(panel.devices):
            sampled[device][panel.snapshot] |= ~np.isnan(panel.values[:, i])
    return sum(int(np.count_nonzero(some)) for some in sampled.values())
