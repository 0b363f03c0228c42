"""Scalars in event files of TensorBoard: ``events.out.tfevents.<seconds>.<host>.<process>.<number>``."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers import event_files, text_files
from jobreport.readers.base import Found
from jobreport.readers.event_files import BadRecordError, MessageError, Records
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.readers.tensorboard.runs import SOURCE, Part, Place, places, scalars_of
from jobreport.readers.text_files import DamagedError
from jobreport.remarks import SourceQuality
from jobrules.model.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.event_files import Value

_NAME = re.compile(r".*tfevents.*", re.DOTALL)
_HOST = re.compile(r".*tfevents\.[0-9]+\.(?P<host>.+?)(?:\.[0-9]+){0,2}(?:\.v2)?(?:\.gz)?", re.DOTALL)
#: Files in which the profiler notes that there is something of it.
_OF_PROFILER = ".profile-empty"
#: What stands in the first record.
_VERSION = b"brain.Event:"
_PLUGIN = b"scalars"
#: Records and bytes at a time; of larger messages, images and graphs, only the beginning is read.
_BATCH, _BATCH_BYTES, _LONGEST = 512, 1 << 23, 1 << 20
#: Bytes of a message whose checksum is computed: those of scalars.
_CHECKED = 1 << 12
#: Names in a file, and bytes of one.
_MAX_NAMES, _MAX_NAME = 10_000, 1000
#: Times that writers begin again in a file.
_MAX_PARTS = 1000
#: As in the facts of a recording.
_MAX_STEP = 10**15


class TensorBoard:
    """Reads scalars; whatever else TensorBoard shows is counted."""

    source = "scalars of TensorBoard"
    looks_for = "scalars of TensorBoard (*tfevents*, also as .gz)"
    memory = 2.0
    rows = "rows"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By ``tfevents``, which every writer puts there."""
        return _NAME.fullmatch(file.own_name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """By the first event, which names the version of the format."""
        return _VERSION in text_files.beginning(file.path, 64)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: files and folders may be of one training."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the scalars of the last training."""
        tally = Tally()
        parts: list[Part] = []
        used: list[SourceFile] = []
        for file, place in places(sorted(files)).items():
            found = _File(file, place, tally)
            with text_files.noting(file, tally):
                found.read()
            parts += found.parts
            if found.parts:
                used.append(file)
            elif not tally.mentions(file.name) and not file.name.endswith(_OF_PROFILER):
                tally.note("tensorboard.none", file=file.name)
        scalars = scalars_of(parts, tally)
        host = next((match["host"] for file in used if (match := _HOST.fullmatch(file.own_name))), "")
        learning = Learning(scalars=scalars, node=as_name(host), sources=(SOURCE,))
        quality = SourceQuality(
            source=self.source, files=len(used), rows=sum(map(len, scalars)), remarks=tally.remarks()
        )
        return Found(quality=quality, learning=(learning,) if scalars else ())


class _File:
    """The scalars of a file, as far as they were read."""

    def __init__(self, file: SourceFile, place: Place, tally: Tally) -> None:
        self.parts: list[Part] = []
        self._file, self._place, self._tally = file, place, tally
        self._rows: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._names: dict[bytes, str] = {}
        #: Names whose first value said that the tensors are scalars.
        self._plain: set[bytes] = set()
        self._start_us, self._begins = -1, float("inf")

    def read(self) -> None:
        """Read all events. Raises ``UnusableError``, ``OSError``, and after the last event ``DamagedError``."""
        try:
            for message, is_cut in _sound(Records(self._file.path, _LONGEST)):
                self._add(message, is_cut=is_cut)
        finally:
            self._end_part()

    def _add(self, message: bytes, *, is_cut: bool) -> None:
        try:
            event = event_files.scalar(message) or event_files.event(message, is_cut=is_cut)
        except MessageError:
            self._note("events.unreadable")
            return
        time_us = event.time_us
        if self._start_us < 0:
            self._start_us = time_us
        if event.begins and len(self.parts) < _MAX_PARTS:
            self._end_part()
            self._start_us, self._begins = time_us, event.step
        for value in event.values:
            number = self._number(value)
            if number is None:
                self._note("tensorboard.other")
            elif not 0 <= event.step <= _MAX_STEP:
                self._note("tensorboard.step")
            elif (name := self._name(value.tag)) is not None:
                self._rows[name].extend((event.step, time_us, number))
                if not time_us:
                    self._note("tensorboard.time")

    def _number(self, value: Value) -> float | None:
        """The number of a scalar; None for another value."""
        if value.simple is not None or value.tensor is None:
            return value.simple
        if _PLUGIN in value.notes and len(self._plain) < _MAX_NAMES:
            self._plain.add(value.tag)
        if value.tag not in self._plain:
            return None
        try:
            found = event_files.elements(value.tensor)
        except MessageError:
            return None
        return float(found.floats()[0]) if not found.shape else None

    def _name(self, tag: bytes) -> str | None:
        if tag not in self._names:
            if len(self._names) == _MAX_NAMES or len(tag) > _MAX_NAME:
                self._note("tensorboard.names")
                return None
            self._names[tag] = as_name(tag.decode("utf-8", "backslashreplace"))
        return self._names[tag]

    def _end_part(self) -> None:
        rows = {name: np.array(one).reshape(-1, 3) for name, one in self._rows.items()}
        if rows:
            self.parts.append(
                Part(place=self._place, start_us=max(0, self._start_us), begins=self._begins, rows=rows)
            )
        self._rows.clear()

    def _note(self, code: str) -> None:
        self._tally.note(code, file=self._file.name)


def _sound(records: Records) -> Iterator[tuple[bytes, bool]]:
    """The messages up to the first with another checksum, and whether each is only the beginning of one."""
    left, damage = iter(records), None
    while damage is None:
        batch: list[tuple[bytes, bool, int]] = []
        size = 0
        try:
            for message in islice(left, _BATCH):
                batch.append((message, records.size > len(message), records.checksum))
                size += len(message)
                if size > _BATCH_BYTES:
                    break
            if not batch:
                return
        except DamagedError as error:
            damage = error
        small = [place for place, one in enumerate(batch) if len(one[0]) <= _CHECKED]
        found = event_files.checksums([batch[place][0] for place in small])
        wrong = next(
            (at for at, checksum in zip(small, found, strict=True) if checksum != batch[at][2]), None
        )
        yield from ((message, is_cut) for message, is_cut, _ in batch[:wrong])
        if wrong is not None:
            raise BadRecordError
    raise damage
