"""Samples of sound files, by arrays over their bytes: what a JSON parser finds, much sooner.

All lines of a sound file are one text but for names and numbers: the same keys in the same order and
spacing, plain ASCII, decimals with a point, the same text behind the second number, times that samples may
have. What is not surely so is left to be read line by line.

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
import sys
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers import decimals, text_files
from jobreport.readers.byte_texts import EqualTexts, UnsoundError, texts, windows
from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.system_samples.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobreport.readers.byte_texts import Bytes
    from jobrules.model import IntArray

#: Bytes: of the text that is looked at together, and the longest line.
_LARGEST, _LONGEST_LINE = 4 << 20, 1024
#: Room on both sides of a file's text, because windows may begin in front of it and end behind it.
_MARGIN = 1024

_KEYS = {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}
_NUMBER = re.compile(rb'"(Value|Timestamp)": *(-?[0-9]+\.[0-9]+)(?=[,}])')
_CUTS = b",.}"


class SoundFiles:
    """Reads one file after the other, into memory that is used again."""

    def __init__(self) -> None:
        self._equal = EqualTexts()
        self._text = np.zeros(_MARGIN + _LARGEST + _MARGIN, np.uint8)
        self._is_cut = np.empty((2, len(self._text)), bool)

    def rows(self, number: int, path: Path) -> list[Rows] | None:
        """The rows of a file, or none if it is not sound, empty or cannot be read."""
        if sys.byteorder != "little":
            return None
        try:
            return [row for size in self._blocks(path) for row in self._rows(number, size)]
        except (OSError, text_files.DamagedError, UnsoundError):
            return None

    def _blocks(self, path: Path) -> Iterator[int]:
        """Put one part of the text after the other in place, each of whole lines, and say how many bytes it has."""
        space, size, is_whole = self._text[_MARGIN:-_MARGIN].data, 0, True
        for chunk in text_files.chunks(path):
            if size + len(chunk) > _LARGEST:
                last = space[max(0, size - _LONGEST_LINE) : size].tobytes().rpartition(b"\n")[2]
                yield size - len(last)
                space[: len(last)] = last
                size, is_whole = len(last), False
            space[size : size + len(chunk)] = chunk
            size += len(chunk)
        if size or is_whole:
            yield size

    def _rows(self, number: int, size: int) -> list[Rows]:
        text = self._text[: _MARGIN + size + _MARGIN]
        line = text[_MARGIN : _MARGIN + min(size, _LONGEST_LINE)].tobytes().partition(b"\n")[0] + b"\n"
        numbers = list(_NUMBER.finditer(line))
        if len(numbers) != 2:
            raise UnsoundError
        tail = line[numbers[1].end() :]
        begin, end = _MARGIN - len(tail), _MARGIN + size - len(tail)
        # The first record begins like the others, and the last one ends where their successors begin.
        text[begin:_MARGIN] = np.frombuffer(tail, np.uint8)
        if text[end : end + len(tail)].tobytes() != tail:
            raise UnsoundError

        record = tail + line[: numbers[1].end()]
        cuts = [place for place, byte in enumerate(record) if byte in _CUTS]
        places = self._cuts(begin, end + 1)
        count, rest = divmod(len(places), len(cuts))
        if rest != 1:
            raise UnsoundError
        columns = [places[i :: len(cuts)][:count] for i in range(len(cuts) + 1)]
        edges: list[tuple[IntArray, IntArray, IntArray]] = []
        for found in numbers:
            start = len(tail) + found.start(2)
            point = sum(cut < start for cut in cuts)
            edges.append((columns[point - 1] + (start - cuts[point - 1]), columns[point], columns[point + 1]))
        (first, _, first_end), (second, _, second_end) = edges

        examples, group = self._equal.groups(
            texts(text, columns[0], first - columns[0]), texts(text, first_end, second - first_end)
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
            raise UnsoundError

        one = decimals.decimals(text, *edges[0])
        # Neighbors often have their time in common.
        new = _changes(text, second, second_end)
        other = decimals.decimals(text, *(places[new] for places in edges[1]))
        other = np.repeat(other, np.diff(new, append=count))
        # Sixteen bits are what numpy sorts fastest.
        order = np.argsort(group.astype(np.uint16), kind="stable")
        values, seconds = (one[order], other[order]) if value_first else (other[order], one[order])
        if not EARLIEST_S <= seconds.min() <= seconds.max() <= LATEST_S:
            raise UnsoundError
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
    if not isinstance(pairs, tuple):  # an array, or a bare value
        raise UnsoundError
    keys = dict(pairs)
    if len(pairs) != len(_KEYS) or keys.keys() != _KEYS:
        raise UnsoundError
    node, type_, dimension, name = names = tuple(keys[k] for k in ("NodeId", "Type", "Dimension", "Name"))
    numbers = (keys["Value"], keys["Timestamp"])
    if numbers != ((1.5, 2.5) if value_first else (2.5, 1.5)) or not all(isinstance(n, str) for n in names):
        raise UnsoundError
    return node, type_, dimension, name


def _changes(text: Bytes, begin: IntArray, end: IntArray) -> IntArray:
    """The first record, and those with another number than the record before them."""
    length = end - begin
    is_new = np.ones(len(end), bool)
    is_new[1:] = length[1:] != length[:-1]
    for word in windows(text, end - decimals.LONGEST, decimals.LONGEST).T:
        is_new[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(is_new)
