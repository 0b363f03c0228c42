"""Samples of sound files, by arrays over their bytes: what ``lines`` finds, in a third of its CPU time.

The lines of a sound file differ in names and numbers only: the same keys in the same order and spacing, plain
ASCII, decimals with a point, the same text behind the second number, times that samples may have. Any other file
is left to ``lines``.

The text is cut into *records*, each from the end of a line's second number to that of the next line's::

    }⏎{"Type":"gpu",…,"Value":   94.00   ,"NodeId":"algo-1","Timestamp":   1741080180.002395
    └──────── before ────────┘           └─────────── between ──────────┘

Commas, points and closing braces show where the numbers are, because each record has as many of them as
the others. Records whose ``before`` and ``between`` are equal, byte for byte, are samples of one sensor,
and a JSON parser reads one of them. So every byte is checked.
"""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jobreport.readers import text_files
from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.system_samples import decimals
from jobreport.readers.system_samples.byte_texts import EqualTexts, UnsoundError, texts, windows
from jobreport.readers.system_samples.lines import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobreport.readers.system_samples.byte_texts import Bytes
    from jobrules.model import FloatArray, IntArray

#: Bytes of the text that is read at a time, and of the longest line.
_MAX_PART, _MAX_LINE = 4 << 20, 1024
#: Room on both sides of a file's text, because windows may begin in front of it and end behind it.
_MARGIN = 1024

_KEYS = {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}
_NUMBER = re.compile(rb'"(Value|Timestamp)": *(-?[0-9]+\.[0-9]+)(?=[,}])')
_CUTS = b",.}"


class _Layout(NamedTuple):
    """How all lines of a sound file are written: as the first one."""

    #: The text behind the second number of a line.
    tail: bytes
    #: Places in a record of all commas, points and closing braces, the first of which is its first byte.
    cuts: list[int]
    #: Places in a record where its two numbers begin.
    starts: list[int]
    #: True if the value comes before the timestamp.
    value_first: bool


class _Numbers(NamedTuple):
    """Places in the text where the first or second numbers of all records are."""

    begin: IntArray
    point: IntArray
    end: IntArray


class SoundFiles:
    """Reads one file after the other, into memory that is used again."""

    def __init__(self) -> None:
        self._equal = EqualTexts()
        self._text = np.zeros(_MARGIN + _MAX_PART + _MARGIN, np.uint8)
        self._is_cut = np.empty((2, len(self._text)), bool)

    def rows(self, number: int, path: Path) -> list[Rows] | None:
        """The rows of a file, or None if it is not sound, empty or cannot be read."""
        if sys.byteorder != "little":
            return None
        try:
            return [row for size in self._blocks(path) for row in self._rows(number, size)]
        except (OSError, text_files.DamagedError, UnsoundError):
            return None

    def _blocks(self, path: Path) -> Iterator[int]:
        """Fill ``_text`` with one part of the text after the other, each of whole lines; yields their sizes."""
        space, size, is_whole = self._text[_MARGIN:-_MARGIN].data, 0, True
        for chunk in text_files.chunks(path):
            if size + len(chunk) > _MAX_PART:
                last = space[max(0, size - _MAX_LINE) : size].tobytes().rpartition(b"\n")[2]
                yield size - len(last)
                space[: len(last)] = last
                size, is_whole = len(last), False
            space[size : size + len(chunk)] = chunk
            size += len(chunk)
        if size or is_whole:
            yield size

    def _rows(self, number: int, size: int) -> list[Rows]:
        """The samples of each sensor in the text, which has ``size`` bytes."""
        text = self._text[: _MARGIN + size + _MARGIN]
        layout = _layout(text[_MARGIN : _MARGIN + min(size, _MAX_LINE)].tobytes())
        begin, first, second = self._records(layout, size)

        # Records with equal texts around their numbers are of one sensor, which one example of them shows.
        before, between = (
            texts(text, begin, first.begin - begin),
            texts(text, first.end, second.begin - first.end),
        )
        examples, sensor_of = self._equal.groups(before, between)
        edges = (edge[examples].tolist() for edge in (begin, first.begin, first.end, second.begin))
        sensors = [
            _sensor(layout.tail, bytes(text.data[a:b]), bytes(text.data[c:d]), layout.value_first)
            for a, b, c, d in zip(*edges, strict=True)
        ]
        if len(set(sensors)) < len(sensors):
            # The lines differ in more than names and numbers.
            raise UnsoundError

        numbers = decimals.decimals(text, *first), _repeated_decimals(text, second)
        values, seconds = numbers if layout.value_first else numbers[::-1]
        if not EARLIEST_S <= seconds.min() <= seconds.max() <= LATEST_S:
            raise UnsoundError
        # numpy sorts sixteen bits fastest. They are enough: a sample takes more than 64 bytes, so a part of the text
        # has fewer than 65,536 records, and not more sensors.
        order = np.argsort(sensor_of.astype(np.uint16), kind="stable")
        values, seconds = values[order], seconds[order]
        bounds = [0, *np.bincount(sensor_of).cumsum().tolist()]
        return [
            Rows(number, *sensor, seconds[a:b], values[a:b])
            for sensor, (a, b) in zip(sensors, pairwise(bounds), strict=True)
        ]

    def _records(self, layout: _Layout, size: int) -> tuple[IntArray, _Numbers, _Numbers]:
        """Where all records begin, and where their numbers are."""
        tail = layout.tail
        begin, end = _MARGIN - len(tail), _MARGIN + size - len(tail)
        # The first record begins like the others, and the last one ends where their successors begin.
        self._text[begin:_MARGIN] = np.frombuffer(tail, np.uint8)
        if self._text[end : end + len(tail)].tobytes() != tail:
            raise UnsoundError
        places = self._cuts(begin, end + 1)
        count, rest = divmod(len(places), len(layout.cuts))
        if rest != 1:
            raise UnsoundError
        #: Column i has the place of the i-th cut of each record, the last one that of the first of the next record.
        columns = [places[i :: len(layout.cuts)][:count] for i in range(len(layout.cuts) + 1)]
        first, second = (_numbers(layout, columns, start) for start in layout.starts)
        return columns[0], first, second

    def _cuts(self, begin: int, end: int) -> IntArray:
        """The places of all commas, points and closing braces."""
        text, (is_cut, is_one) = self._text[begin:end], self._is_cut[:, begin:end]
        np.equal(text, _CUTS[0], out=is_cut)
        for byte in _CUTS[1:]:
            is_cut |= np.equal(text, byte, out=is_one)
        places = np.flatnonzero(is_cut)
        places += begin
        return places


def _layout(text: bytes) -> _Layout:
    line = text.partition(b"\n")[0] + b"\n"
    numbers = list(_NUMBER.finditer(line))
    if len(numbers) != 2:
        raise UnsoundError
    end = numbers[1].end()
    tail = line[end:]
    record = tail + line[:end]
    return _Layout(
        tail=tail,
        cuts=[place for place, byte in enumerate(record) if byte in _CUTS],
        starts=[len(tail) + found.start(2) for found in numbers],
        value_first=numbers[0][1] == b"Value",
    )


def _numbers(layout: _Layout, columns: list[IntArray], start: int) -> _Numbers:
    """The numbers of all records that begin at the place ``start`` in the first one."""
    point = sum(cut < start for cut in layout.cuts)
    begin = columns[point - 1] + (start - layout.cuts[point - 1])
    return _Numbers(begin, columns[point], columns[point + 1])


@lru_cache(maxsize=1 << 14)
def _sensor(tail: bytes, before: bytes, between: bytes, value_first: bool) -> tuple[str, str, str, str]:
    """Node, type, dimension and name in the line that has these texts around its numbers."""
    line = (before.removeprefix(tail) + b"1.5" + between + b"2.5" + tail[:-1]).decode("latin-1")
    if not (line.isascii() and line.isprintable()) or "\\" in line:
        raise UnsoundError
    try:
        pairs = json.loads(line, object_pairs_hook=tuple)
    except ValueError as error:
        raise UnsoundError from error
    if not isinstance(pairs, tuple) or len(pairs) != len(_KEYS):  # an array, or a bare value
        raise UnsoundError
    keys = dict(pairs)
    if keys.keys() != _KEYS:
        raise UnsoundError
    node, type_, dimension, name = names = tuple(keys[k] for k in ("NodeId", "Type", "Dimension", "Name"))
    numbers = (keys["Value"], keys["Timestamp"])
    if numbers != ((1.5, 2.5) if value_first else (2.5, 1.5)) or not all(isinstance(n, str) for n in names):
        raise UnsoundError
    return node, type_, dimension, name


def _repeated_decimals(text: Bytes, numbers: _Numbers) -> FloatArray:
    """The numbers, each run of equal ones read once: records that follow one another often have a time in common."""
    length = numbers.end - numbers.begin
    is_new = np.ones(len(length), bool)
    is_new[1:] = length[1:] != length[:-1]
    for word in windows(text, numbers.end - decimals.LONGEST, decimals.LONGEST).T:
        is_new[1:] |= word[1:] != word[:-1]
    new = np.flatnonzero(is_new)
    found = decimals.decimals(text, *(places[new] for places in numbers))
    return np.repeat(found, np.diff(new, append=len(length)))
