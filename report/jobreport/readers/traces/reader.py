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
from jobreport.readers.byte_texts import UnsoundError
from jobreport.readers.sensors import as_name
from jobreport.readers.tally import Tally
from jobreport.readers.traces.columns import Columns, FileOfRows, WholeNumbers, add_blocks
from jobreport.readers.traces.files import (
    DOUBTFUL,
    Metadata,
    Origin,
    at_step,
    beside_traces,
    folder,
    is_trace,
    metadata,
    origin,
    with_metadata,
)
from jobreport.readers.traces.rows import scan
from jobreport.readers.traces.table import starts_of_steps, table
from jobreport.readers.traces.text import LARGEST, SoundTraces
from jobreport.remarks import SourceQuality
from jobrules.model import Events, EventSource, Steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.model import Lane

    #: A file with its number among all.
    _Numbered = tuple[int, SourceFile, Origin]

_STEP = "Step:ModeKeys"
_STEP_SOURCES = {EventSource.PYTHON, EventSource.MODEL, EventSource.OTHER}
#: Phase of a step whose name does not say it.
_ANY_PHASE = "GLOBAL"
_LONGEST_PHASE = 40
#: Attempts one after the other at reading files by arrays.
_MOST_MISSES = 8


class Traces:
    """Reads traces."""

    source = "traces"
    looks_for = "traces (framework/pevents/…/<time>_<rank>-<host>_pythontimeline.json, also as .gz)"
    memory = 1.1
    rows = "events"

    def matches_name(self, file: SourceFile) -> bool:
        """By the name of a time line, or of what lies beside traces."""
        where = origin(file)
        if where is not None:
            return where.source not in DOUBTFUL
        return metadata(file) is not None or bool(beside_traces(file))

    def matches_content(self, file: SourceFile) -> bool:
        """By the name of a trace that may be of something else, and the first rows."""
        return is_trace(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the machine that the name tells.

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
        # Those that are dated by a step of the others come behind them.
        chosen = sorted(usable(sorted(files), tally), key=lambda one: one[1].step >= 0)
        columns, numbers = Columns(), WholeNumbers()
        sound = SoundTraces()
        starts: dict[int, int] | None = None
        misses = 0
        for some in _in_blocks(chosen):
            # The files of a job are written alike, so that after some misses more attempts would be lost too.
            if misses < _MOST_MISSES and _add_sound(some, sound, columns, numbers, tally):
                misses = 0
                continue
            misses += 1
            for number, file, where in some:
                dated = where
                if where.step >= 0:
                    if starts is None:
                        starts = starts_of_steps(columns, _has_steps, _is_step)
                    dated = at_step(where, starts.get(where.step, 0))
                    if dated.doubt:
                        tally.add("corrected", "files", dated.doubt, file=file.name)
                _add(FileOfRows(number, file, dated, columns, numbers, tally), file, where, tally)
        events, used = table(columns, [file.name for file, _ in chosen], tally)
        quality = SourceQuality(source=self.source, files=used, rows=len(events), remarks=tally.remarks())
        timed = any(where.timed for _, where in chosen)
        return Found(
            quality=quality,
            events=events,
            steps=_steps(events),
            finished=False if timed and len(events) else None,
        )


def usable(files: Sequence[SourceFile], tally: Tally) -> list[tuple[SourceFile, Origin]]:
    """The files that are read, with what is known of them."""
    notes: defaultdict[str, list[Metadata]] = defaultdict(list)
    traces: list[tuple[SourceFile, Origin]] = []
    for file in files:
        if (note := metadata(file)) is not None:
            notes[folder(file)].append(note)
        elif reason := beside_traces(file):
            tally.add("skipped", "files", reason, file=file.name)
        elif (where := origin(file)) is not None:
            traces.append((file, where))
    unused = {note.file for here in notes.values() for note in here}
    has_sources = any(not where.merged for _, where in traces)
    found = []
    for file, where in traces:
        if where.merged and has_sources:
            tally.add("skipped", "files", "made of the other traces", file=file.name)
            continue
        told = where
        if where.source == EventSource.PROFILER:
            told, used = with_metadata(where, file, notes)
            if used is not None:
                unused.discard(used.file)
            if told.doubt:
                tally.add("corrected", "files", told.doubt, file=file.name)
        node = as_name(told.node)
        found.append((file, told if node == told.node else replace(told, node=node)))
    reason = "tells the time of a trace that is not there"
    for file in unused:
        tally.add("skipped", "files", reason, file=file.name)
    return found


def _in_blocks(chosen: Sequence[tuple[SourceFile, Origin]]) -> Iterator[list[_Numbered]]:
    """All files in their order, those together that fit into a block."""
    some: list[_Numbered] = []
    size = 0
    for number, (file, where) in enumerate(chosen):
        size += file.size
        if some and size >= LARGEST:
            yield some
            some, size = [], file.size
        some.append((number, file, where))
    if some:
        yield some


def _add_sound(
    some: Sequence[_Numbered], sound: SoundTraces, columns: Columns, numbers: WholeNumbers, tally: Tally
) -> bool:
    """Add all that these files tell, or nothing where one is not sound or needs to be told of."""
    if any(where.growing or where.step >= 0 for _, _, where in some):
        return False
    before = len(columns)
    rows = [FileOfRows(*one, columns, numbers, tally) for one in some]
    try:
        add_blocks(rows, sound.blocks([file.path for _, file, _ in some]), columns)
    except (OSError, UnsoundError):
        columns.cut(before)
        return False
    for _, file, _ in some:
        progress.advance(file.size)
    return True


def _add(rows: FileOfRows, file: SourceFile, where: Origin, tally: Tally) -> None:
    """Add what a file tells, whatever it is like."""
    is_empty = True
    for some in scan(file, tally, growing=where.growing):
        is_empty = False
        rows.add(some)
    rows.close()
    progress.advance(file.size)
    if is_empty and not tally.mentions(file.name):
        tally.add("skipped", "files", "empty", file=file.name)


def _steps(events: Events) -> Steps:
    """The events that are steps; those of a library that only names a tensor so are none."""
    is_step = events.named(_is_step) & events.in_lanes(_has_steps)
    rows = np.flatnonzero(is_step)
    phases = list(dict.fromkeys(map(_phase, events.names)))
    place = {phase: i for i, phase in enumerate(phases)}
    phase = np.array([place[_phase(name)] for name in events.names], np.int32)
    key = np.asarray(events.lane[rows], np.int64) * len(phases) + phase[events.name[rows]]
    keys = np.unique(key)
    lanes = [events.lanes[i] for i in (keys // max(1, len(phases))).tolist()]
    named = [phases[i] for i in (keys % max(1, len(phases))).tolist()]
    return Steps.of(
        [(lane.node, lane.rank, one) for lane, one in zip(lanes, named, strict=True)],
        np.searchsorted(keys, key),
        number=events.step[rows],
        start_us=events.start_us[rows],
        end_us=events.end_us[rows],
    )


def _is_step(name: str) -> bool:
    return _STEP in name


def _has_steps(lane: Lane) -> bool:
    return lane.source in _STEP_SOURCES


def _phase(name: str) -> str:
    return name.partition(_STEP)[2].removeprefix(".")[:_LONGEST_PHASE] or _ANY_PHASE
