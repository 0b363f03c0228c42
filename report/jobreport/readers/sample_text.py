"""Samples of sound files, by arrays over their bytes: the rows that DuckDB finds, at half the cost.

All lines of a sound file are one text but for names and numbers: the same keys in the same order and
spacing, plain ASCII, decimals with a point, the same text behind the second number. What is not surely so
is left to DuckDB.

The text is cut into *records*, each from the end of a line's second number to that of the next line's::

    }⏎{"Type":"gpu",…,"Value":   94.00   ,"NodeId":"algo-1","Timestamp":   1741080180.002395
    └──────── before ────────┘           └─────────── between ──────────┘

Commas, points and closing braces tell where the numbers are, because each record has as many of them as
the others. Records whose ``before`` and ``between`` are equal, byte for byte, are samples of one sensor,
and a JSON parser reads one of them. So no byte is taken on trust.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers import decimals
from jobreport.readers.sample_rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from jobreport.readers.decimals import Bytes, Words
    from jobrules.job import IntArray

#: Bytes: of the largest file, the longest line, and the longest text before or between numbers.
_LARGEST, _LONGEST_LINE, _LONGEST_TEXT = 4 << 20, 1024, 256
#: Room on both sides of a file's text, because windows may begin in front of it and end behind it.
_MARGIN = 1024

_KEYS = {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}
_NUMBER = re.compile(rb'"(Value|Timestamp)": *(-?[0-9]+\.[0-9]+)(?=[,}])')
_CUTS = b",.}"

_TABLE_BITS = 20
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_POWERS = np.multiply.accumulate(np.full(2 * _LONGEST_TEXT // 8, _MULTIPLIER))


class _UnsoundError(Exception):
    """A file's text is not what is understood here."""


class SoundFiles:
    """Reads one file after the other, into memory that is used again."""

    def __init__(self) -> None:
        # Memory that was freed once at this size is kept by glibc (see mallopt(3)) instead of being given back
        # and asked for again with each array, which would cost as much as all the rest.
        np.empty(16 << 20, np.uint8)
        self._text = np.zeros(_MARGIN + _LARGEST + _MARGIN, np.uint8)
        self._is_cut = np.empty((2, len(self._text)), bool)
        self._table = np.empty(1 << _TABLE_BITS, np.int64)

    def rows(self, number: int, path: Path) -> list[Rows] | None:
        """The rows of a file, or none if it is not sound, empty, larger than 4 MiB or cannot be read."""
        try:
            with path.open("rb", buffering=0) as file:
                size = file.readinto(self._text[_MARGIN:-_MARGIN].data)
            return self._rows(number, size) if size < _LARGEST else None
        except (OSError, _UnsoundError, decimals.NoDecimalError):
            return None

    def _rows(self, number: int, size: int) -> list[Rows]:
        text = self._text[: _MARGIN + size + _MARGIN]
        line = text[_MARGIN : _MARGIN + min(size, _LONGEST_LINE)].tobytes().partition(b"\n")[0] + b"\n"
        numbers = list(_NUMBER.finditer(line))
        if len(numbers) != 2:
            raise _UnsoundError
        tail = line[numbers[1].end() :]
        begin, end = _MARGIN - len(tail), _MARGIN + size - len(tail)
        # The first record begins like the others, and the last one ends where their successors begin.
        text[begin:_MARGIN] = np.frombuffer(tail, np.uint8)
        if text[end : end + len(tail)].tobytes() != tail:
            raise _UnsoundError

        record = tail + line[: numbers[1].end()]
        cuts = [place for place, byte in enumerate(record) if byte in _CUTS]
        places = self._cuts(begin, end + 1)
        count, rest = divmod(len(places), len(cuts))
        if rest != 1:
            raise _UnsoundError
        columns = [places[i :: len(cuts)][:count] for i in range(len(cuts) + 1)]
        edges: list[tuple[IntArray, IntArray, IntArray]] = []
        for found in numbers:
            start = len(tail) + found.start(2)
            point = sum(cut < start for cut in cuts)
            edges.append((columns[point - 1] + (start - cuts[point - 1]), columns[point], columns[point + 1]))
        (first, _, first_end), (second, _, second_end) = edges

        examples, group = self._groups(
            _texts(text, columns[0], first - columns[0]), _texts(text, first_end, second - first_end)
        )
        value_first = numbers[0][1] == b"Value"
        sensors = [
            _sensor(tail, bytes(text.data[a:b]), bytes(text.data[c:d]), value_first)
            for a, b, c, d in zip(
                *(ends[examples].tolist() for ends in (columns[0], first, first_end, second)), strict=True
            )
        ]

        if len(set(sensors)) < len(sensors):
            # Not all lines are written alike.
            raise _UnsoundError

        one = decimals.decimals(text, *edges[0])
        # Neighbours often have their time in common.
        new = _changes(text, second, second_end)
        other = decimals.decimals(text, *(places[new] for places in edges[1]))
        other = np.repeat(other, np.diff(new, append=count))
        order = np.argsort(group, kind="stable")
        values, seconds = (one[order], other[order]) if value_first else (other[order], one[order])
        bounds = [0, *np.bincount(group).cumsum().tolist()]
        return [
            Rows(number, *sensor, seconds[a:b], values[a:b])
            for sensor, (a, b) in zip(sensors, pairwise(bounds), strict=True)
        ]

    def _cuts(self, begin: int, end: int) -> IntArray:
        """The places of all commas, points and closing braces."""
        text, (is_cut, is_one) = self._text[begin:end], self._is_cut[:, begin:end]
        np.equal(text, _CUTS[0], out=is_cut)
        for byte in _CUTS[1:]:
            is_cut |= np.equal(text, byte, out=is_one)
        places = np.flatnonzero(is_cut)
        places += begin
        return places

    def _groups(self, before: Words, between: Words) -> tuple[IntArray, IntArray]:
        """One record of each group with equal texts, and for each record the number of its group.

        A hash leads to the last record with the same hash, which must have the same texts.
        """
        width = before.shape[1]
        mixed = before @ _POWERS[:width] + between @ _POWERS[width : width + between.shape[1]]
        record = np.arange(len(mixed))
        for _ in range(3):
            slot = (mixed >> np.uint64(64 - _TABLE_BITS)).view(np.int64)
            self._table[slot] = record
            example = self._table[slot]
            if all(np.array_equal(words, words.take(example, axis=0)) for words in (before, between)):
                examples = np.flatnonzero(example == record)
                if len(examples) > np.iinfo(np.uint16).max:
                    break
                self._table[slot[examples]] = np.arange(len(examples))
                # Sixteen bits are what numpy sorts fastest.
                return examples, self._table[slot].astype(np.uint16)
            # Two groups shared a slot.
            mixed *= _MULTIPLIER
        raise _UnsoundError


@lru_cache(maxsize=1 << 14)
def _sensor(tail: bytes, before: bytes, between: bytes, value_first: bool) -> tuple[str, str, str, str]:
    """Node, type, dimension and name in the line that has these texts around its numbers."""
    line = (before.removeprefix(tail) + b"1.5" + between + b"2.5" + tail[:-1]).decode("latin-1")
    if not (line.isascii() and line.isprintable()) or "\\" in line:
        raise _UnsoundError
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except ValueError as error:
        raise _UnsoundError from error
    keys = dict(pairs)
    if len(pairs) != len(_KEYS) or keys.keys() != _KEYS:
        raise _UnsoundError
    node, type_, dimension, name = names = tuple(keys[k] for k in ("NodeId", "Type", "Dimension", "Name"))
    numbers = (keys["Value"], keys["Timestamp"])
    if numbers != ((1.5, 2.5) if value_first else (2.5, 1.5)) or not all(isinstance(n, str) for n in names):
        raise _UnsoundError
    return node, type_, dimension, name


def _texts(text: Bytes, begin: IntArray, length: IntArray) -> Words:
    """The texts as rows of words, with zeros behind their ends.

    Equal rows are texts of equal length, even if there are zeros in the file: each text ends a fixed way behind
    its last cut, each has as many cuts, and a zero is none.
    """
    shortest, longest = int(length.min()), int(length.max())
    if not 0 < shortest <= longest <= _LONGEST_TEXT:
        raise _UnsoundError
    width = -(-longest // 8) * 8
    words = decimals.windows(text, begin, width)
    if shortest == longest:
        words[:, -1] &= _masks(width)[longest, -1]
    else:
        words &= _masks(width).take(length, axis=0)
    return words


@cache
def _masks(width: int) -> Words:
    """Row n keeps n bytes of ``width``."""
    return (np.tri(width + 1, width, -1, dtype=np.uint8) * np.uint8(255)).view(np.uint64)


def _changes(text: Bytes, begin: IntArray, end: IntArray) -> IntArray:
    """The first record, and those with another number than the record before them."""
    length = end - begin
    is_new = np.ones(len(end), bool)
    is_new[1:] = length[1:] != length[:-1]
    for word in decimals.windows(text, end - decimals.LONGEST, decimals.LONGEST).T:
        is_new[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(is_new)
