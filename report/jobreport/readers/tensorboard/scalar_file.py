"""The scalars in one event file, as far as it is sound."""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers import event_files
from jobreport.readers.event_files import BadRecordError, MessageError, Records
from jobreport.readers.names import as_name
from jobreport.readers.tensorboard.runs import Part, Place
from jobreport.readers.text_files import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.base import SourceFile
    from jobreport.readers.event_files import Value
    from jobreport.readers.tally import Tally

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


class ScalarFile:
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
        return float(found) if not found.shape else None

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
