"""Event files of TensorFlow: records in a file, and the protobuf messages in them.

A record is the size of its message, a checksum of that, the message, and a checksum of it. The few kinds of fields that
events have are decoded here: the libraries for it are large.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from jobreport.readers import text_files
from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.tally import UnusableError
from jobreport.readers.text_files import DamagedError, TooLargeError
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedIOBase
    from pathlib import Path

    from jobrules.model import IntArray

Bytes: TypeAlias = bytes | memoryview

#: Bytes in front of a message and behind it.
_HEADER, _FOOTER = 12, 4
_NOT_UNPACKED = (EOFError, zlib.error, gzip.BadGzipFile)
#: Types of elements.
_TYPES = dict(enumerate(("", "float32", "float64", "int32", "uint8", "int16", "int8")))
_TYPES |= {9: "int64", 10: "bool", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
#: Axes of a tensor, notes of a value, and integers that do not lie as in memory: writers do so with single ones.
_MAX_AXES = _MAX_NOTES = 16
_MAX_INTEGERS = 1 << 10
#: Fields of a message, and values of an event.
_MAX_FIELDS = 1 << 12


class MessageError(ValueError):
    """Bytes that are no message of the kind that they should be."""


class CutError(DamagedError):
    """A file ends within a record; those before it are good."""

    @property
    def remark(self) -> tuple[str, dict[str, Any]]:
        """Code and fields of the remark on it."""
        return "events.cut", {}


class BadRecordError(DamagedError):
    """A checksum of a record is another one; the records before it are good."""

    @property
    def remark(self) -> tuple[str, dict[str, Any]]:
        """Code and fields of the remark on it."""
        return "events.damaged", {}


class Value(NamedTuple):
    """A value of a summary."""

    tag: bytes
    simple: float | None
    #: A message.
    tensor: Bytes | None
    #: What plugins noted of it, by their names.
    notes: dict[bytes, bytes]


class Event(NamedTuple):
    """Values at a step."""

    #: In seconds since the epoch.
    wall_time: float
    step: int
    #: Whether a writer begins at this step: what others wrote of it and later ones does not count.
    begins: bool
    values: list[Value]

    @property
    def time_us(self) -> int:
        """In microseconds; 0 if it is impossible."""
        # NaN is in no bounds.
        is_possible = EARLIEST_S <= self.wall_time <= LATEST_S
        return round(self.wall_time * SECOND_US) if is_possible else 0


class Records:
    """The records of a file, of which no more is read than is asked for."""

    def __init__(self, path: Path, most: int) -> None:
        """The iteration gives messages up to ``most`` bytes, and the beginnings of others."""
        self._path, self._most = path, most
        #: Of the record at which the iteration stands: bytes of its message, and the checksum if all of it was given.
        self.size = self.checksum = self._left = 0

    def __iter__(self) -> Iterator[bytes]:
        """Raises ``UnusableError``, ``OSError``, and after the last good record ``DamagedError``."""
        with open(self._path, "rb", opener=text_files.opened) as plain:
            size = os.fstat(plain.fileno()).st_size
            if not size:
                raise UnusableError("file.empty")
            is_packed = plain.read(2) == text_files.GZIP_MAGIC
            plain.seek(0)
            self._file: BufferedIOBase = gzip.GzipFile(fileobj=plain) if is_packed else plain
            end = text_files.most_text(size) if is_packed else size
            try:
                yield from self._read(end, TooLargeError(end) if is_packed else CutError())
            except _NOT_UNPACKED as error:
                raise DamagedError from error

    def whole(self) -> memoryview:
        """The whole message of which the iteration gave the beginning. Raises ``DamagedError`` and ``OSError``."""
        found, begun = memoryview(bytearray(self.size)), len(self._begun)
        found[:begun] = self._begun
        try:
            if self._file.readinto(found[begun:]) < self.size - begun:
                raise CutError
            self._left = 0
            self._taken(_FOOTER)
        except _NOT_UNPACKED as error:
            raise DamagedError from error
        return found

    def _read(self, end: int, ends: DamagedError) -> Iterator[bytes]:
        at = 0
        while header := self._file.read(_HEADER):
            if len(header) < _HEADER:
                raise CutError
            size = _size(header)
            if size is None:
                raise BadRecordError if at else UnusableError("events.unknown")
            at += _HEADER + size + _FOOTER
            if at > end:
                raise ends
            self.size, self._begun = size, self._taken(min(size, self._most))
            self._left = size - len(self._begun)
            if not self._left:
                self.checksum = int.from_bytes(self._taken(_FOOTER), "little")
            yield self._begun
            if self._left:
                self._file.seek(self._left + _FOOTER, os.SEEK_CUR)

    def _taken(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) < size:
            raise CutError
        return found


@lru_cache(1 << 12)  # records of one tag are alike
def _size(header: bytes) -> int | None:
    """The size of a message; None if its checksum is another."""
    size, checksum = struct.unpack("<QI", header)
    return int(size) if checksums([header[:8]])[0] == checksum else None


def checksums(messages: Sequence[bytes]) -> IntArray:
    """(n,) masked CRC-32C of each message, a byte of all of them at a time."""
    length = np.array([len(one) for one in messages], np.int64)
    order = np.argsort(-length, kind="stable")
    start = (np.cumsum(length) - length)[order]
    data = np.frombuffer(b"".join(messages), np.uint8)
    ended = np.searchsorted(length[order[::-1]], np.arange(length.max(initial=0)), side="right")
    crc = np.full(len(messages), 0xFFFFFFFF, np.uint32)
    for place, some in enumerate((len(messages) - ended).tolist()):
        crc[:some] = _TABLE[(crc[:some] ^ data[start[:some] + place]) & 255] ^ (crc[:some] >> 8)
    crc ^= np.uint32(0xFFFFFFFF)
    found = np.empty(len(messages), np.int64)
    found[order] = (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)
    return found


def _table() -> Any:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, crc >> 1 ^ np.uint32(0x82F63B78), crc >> 1)
    return crc


_TABLE = _table()


#: Time, step, tag, and number of an event as most are, with the sizes of its summary, its value, and the tag.
_SCALAR = re.compile(
    rb"\x09(.{8})(?:\x10([\x80-\xff]{0,8}[\x00-\x7f]))?\x2a(.)\x0a(.)\x0a(.)(.*)\x15(.{4})", re.DOTALL
)


def scalar(message: bytes) -> Event | None:
    """The event in a message, if it is one scalar as most writers write it: four times as fast as ``event``."""
    if (match := _SCALAR.fullmatch(message)) is None:
        return None
    time, step, summary, value, size, tag, number = match.groups()
    if not ord(summary) - 9 == ord(value) - 7 == ord(size) == len(tag) < 119:
        return None
    found = Value(tag, struct.unpack("<f", number)[0], None, {})
    return Event(struct.unpack("<d", time)[0], _varint(step, 0)[0] if step else 0, False, [found])


def event(message: Bytes, *, is_cut: bool = False) -> Event:
    """The event in a message, or in the beginning of one. Raises ``MessageError``."""
    wall_time, step, begins = 0.0, 0, False
    values: list[Value] = []
    for number, integer, data in _fields(message, is_cut=is_cut):
        if number == 1:
            wall_time = _number("<d", data)
        elif number == 2:
            step = integer - (integer >> 63 << 64)
        elif number == 5:
            some = _fields(data, is_cut=is_cut)
            values += [_value(one, is_cut=is_cut) for field, _, one in some if field == 1]
        elif number == 7:
            begins = any((field, kind) == (1, 1) for field, kind, _ in _fields(data, is_cut=is_cut))
        if len(values) > _MAX_FIELDS:
            raise MessageError
    return Event(wall_time, step, begins, values)


def elements(message: Bytes) -> Any:
    """The tensor in a message. Raises ``MessageError``."""
    code, shape = 0, list[int]()
    stored: Bytes = b""
    integers: list[int] = []
    for number, integer, data in _fields(message):
        if number == 1:
            code = integer
        elif number == 2:
            axes = [one for field, _, one in _fields(data) if field == 2]
            shape = [next((size for key, size, _ in _fields(one) if key == 1), 0) for one in axes]
        # Floats by themselves lie as those of the content do.
        elif number in (4, 5, 6):
            stored = data
        elif number in (7, 10, 11, 13):
            integers += _varints(data) if data else [integer]
    dtype = _TYPES.get(code, "")
    if not dtype or len(shape) > _MAX_AXES or len(integers) > _MAX_INTEGERS:
        raise MessageError
    bits = np.dtype(dtype).newbyteorder("<")
    if integers:
        # Half precision has its bits in integers.
        kind = np.dtype("uint16") if dtype == "float16" else bits
        stored = (
            (np.array(integers, np.uint64) & np.uint64(2 ** (8 * kind.itemsize) - 1)).astype(kind).tobytes()
        )
    try:
        return np.frombuffer(stored, bits).reshape(shape)
    except (ValueError, OverflowError):
        raise MessageError from None


def _value(message: Bytes, *, is_cut: bool) -> Value:
    tag, simple, tensor, notes = b"", None, None, {}
    for number, _, data in _fields(message, is_cut=is_cut):
        if number == 1:
            tag = bytes(data)
        elif number == 2:
            simple = _number("<f", data)
        elif number == 8:
            tensor = data
        elif number == 9:
            for field, _, plugin in _fields(data, is_cut=is_cut):
                if field == 1:
                    texts = {key: bytes(text) for key, _, text in _fields(plugin, is_cut=is_cut)}
                    notes[texts.get(1, b"")] = texts.get(2, b"")
            if len(notes) > _MAX_NOTES:
                raise MessageError
    return Value(tag, simple, tensor, notes)


def _fields(message: Bytes, *, is_cut: bool = False) -> Iterator[tuple[int, int, Bytes]]:
    """Number of each field, its integer, and its bytes if it has none.

    Only the last one of a message that ``is_cut`` may be incomplete.
    """
    at, end, left = 0, len(message), _MAX_FIELDS
    while at < end:
        left -= 1
        if not left:
            raise MessageError
        try:
            key, at = _varint(message, at)
            integer, size = 0, {1: 8, 5: 4}.get(key & 7, 0)
            if key & 7 == 0:
                integer, at = _varint(message, at)
            elif key & 7 == 2:
                size, at = _varint(message, at)
            elif not size:
                raise MessageError
        except IndexError:
            if is_cut:
                return
            raise MessageError from None
        if at + size > end and not is_cut:
            raise MessageError
        yield key >> 3, integer, message[at : at + size]
        at += size


def _varint(message: Bytes, at: int) -> tuple[int, int]:
    """The integer at a place, and the place behind it."""
    found = shift = 0
    while (byte := message[at]) & 128:
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise MessageError
    return (found | byte << shift) & 0xFFFFFFFFFFFFFFFF, at + 1


def _varints(message: Bytes) -> list[int]:
    if len(message) > 10 * _MAX_INTEGERS or message[-1] & 128:
        raise MessageError
    found, at = [], 0
    while at < len(message):
        one, at = _varint(message, at)
        found.append(one)
    return found


def _number(form: str, data: Bytes) -> float:
    if len(data) != struct.calcsize(form):
        raise MessageError
    return float(struct.unpack(form, data)[0])
