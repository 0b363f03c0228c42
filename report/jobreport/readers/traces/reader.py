"""Traces: what the training processes and their libraries did, event by event, in Chrome's format.

``framework/pevents/<hour>/<time>_<rank>-<host>_pythontimeline.json`` and its like, and
``framework/tensorflow/detailed_profiling/…/<host>.trace.json.gz``. Files are known by their names
wherever they lie; only the profiler of TensorFlow puts a time base above them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport import progress
from jobreport.readers.base import Found
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.readers.traces.columns import Columns
from jobreport.readers.traces.files import (
    DOUBTFUL,
    Metadata,
    Origin,
    code_of_unread,
    folder,
    is_trace,
    metadata,
    origin,
    with_metadata,
)
from jobreport.readers.traces.rows import scan
from jobreport.readers.traces.table import table
from jobreport.remarks import SourceQuality
from jobrules.model import Events, EventSource, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.model import IntArray, Lane, MarkArray

_STEP = "Step:ModeKeys"
_STEP_SOURCES = {EventSource.PYTHON, EventSource.MODEL, EventSource.OTHER}
#: Mode of a step whose name does not say it.
_ANY_MODE = "GLOBAL"
_MAX_MODE = 40


class Traces:
    """Reads traces."""

    source = "traces"
    looks_for = "traces (framework/pevents/…/<time>_<rank>-<host>_pythontimeline.json, also as .gz)"
    memory = 1.1
    rows = "events"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By the name of a timeline, or of a file that belongs to traces."""
        where = origin(file)
        if where is not None:
            return where.source not in DOUBTFUL
        return metadata(file) is not None or bool(code_of_unread(file))

    def matches_content(self, file: SourceFile) -> bool:
        """By the name of a trace that may be of something else, and the first rows."""
        return is_trace(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the node that the name says.

        All together where some can only be dated or named with others, or are made of others.
        """
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            where = origin(file)
            if where is None or where.merged or where.source == EventSource.PROFILER:
                return {"": list(files)}
            found[where.node].append(file)
        return found

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all events; the order of the files does not matter."""
        tally = Tally()
        chosen = usable(sorted(files), tally)
        columns = Columns(chosen, tally)
        for number, (file, where) in enumerate(chosen):
            columns.add(number, scan(file, tally, growing=where.growing))
            progress.advance(file.size)
        events, notes, used, commands = table(columns, [file.name for file, _ in chosen], tally)
        quality = SourceQuality(source=self.source, files=used, rows=len(events), remarks=tally.remarks())
        timed = any(where.timed for _, where in chosen)
        return Found(
            quality=quality,
            events=events,
            steps=replace(
                _steps(events, notes["mark"], np.array(list(columns.sizes), np.int64)[notes["size"]]),
                numbers_as_text=columns.numbers_as_text - {None} != {False},
                whole=bool(columns.recorded),
            ),
            finished=False if timed and len(events) else None,
            commands=commands,
        )


def usable(files: Sequence[SourceFile], tally: Tally) -> list[tuple[SourceFile, Origin]]:
    """The files that are read, with what is known of them."""
    notes: defaultdict[str, list[Metadata]] = defaultdict(list)
    traces: list[tuple[SourceFile, Origin]] = []
    for file in files:
        if (note := metadata(file)) is not None:
            notes[folder(file)].append(note)
        elif code := code_of_unread(file):
            tally.note(code, file=file.name)
        elif (where := origin(file)) is not None:
            traces.append((file, where))
    unused = {note.file for some in notes.values() for note in some}
    has_sources = any(not where.merged for _, where in traces)
    found = []
    for file, where in traces:
        if where.merged and has_sources:
            tally.note("traces.merged", file=file.name)
            continue
        named = where
        if where.source == EventSource.PROFILER:
            named, used, doubt = with_metadata(where, file, notes)
            if used is not None:
                unused.discard(used.file)
            if doubt:
                tally.note(doubt, file=file.name)
        found.append((file, replace(named, node=as_name(named.node))))
    for file in unused:
        tally.note("traces.unused_metadata", file=file.name)
    return found


def _steps(events: Events, marks: MarkArray, sizes: IntArray) -> Steps:
    """The events that are steps; those of a library that only names a tensor so are none.

    `sizes` are samples, tokens, and whether they are inferred, of each event.
    """
    rows = np.flatnonzero(events.named(_is_step) & events.in_lanes(_has_steps))
    modes = list(dict.fromkeys(map(_mode, events.names)))
    codes = {mode: code for code, mode in enumerate(modes)}
    mode = np.array([codes[_mode(name)] for name in events.names], np.int32)
    key = np.asarray(events.lane[rows], np.int64) * len(modes) + mode[events.name[rows]]
    keys = np.unique(key)
    lanes_and_modes = [divmod(one, len(modes)) for one in keys.tolist()]
    return Steps.of(
        [(events.lanes[lane].node, events.lanes[lane].rank, modes[code]) for lane, code in lanes_and_modes],
        np.searchsorted(keys, key),
        number=events.step[rows],
        start_us=events.start_us[rows],
        end_us=events.end_us[rows],
        mark=marks[rows],
        samples=sizes[rows, 0],
        tokens=sizes[rows, 1],
        inferred=sizes[rows, 2] > 0,
    )


def _is_step(name: str) -> bool:
    return _STEP in name


def _has_steps(lane: Lane) -> bool:
    return lane.source in _STEP_SOURCES


def _mode(name: str) -> str:
    return name.partition(_STEP)[2].removeprefix(".")[:_MAX_MODE] or _ANY_MODE
