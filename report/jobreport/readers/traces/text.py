"""Rows of sound trace files, by arrays over their bytes: what a JSON parser finds, at a third of the cost.

A sound file is a JSON array with a row a line. Nearly all rows are complete events, written alike but for
names and numbers; among them stand rows of metadata, which a JSON parser reads one by one. What is not
surely so raises ``UnsoundError`` and is left to ``trace_rows``.

Colons tell where a line's numbers are: in the lines of one *layout* each number begins a fixed way behind
one, and ends a fixed way before the next or before the line's end::

    {"name": "ResNet", "ph": "X", "ts": 41819711778, "dur": 157213, "args": {"pid": 53, "step_num": "82096"}},⏎
    └────────────── text ──────────────┘           └─ text ┘      └───────────── text ─────────────┘     └ text

Lines with equal texts, byte for byte, differ in nothing but the digits of their numbers. A JSON parser reads
one of them, with other digits, which tells what the numbers are, and all the rest. So no byte is taken on
trust.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from jobreport.readers.byte_texts import EqualTexts, UnsoundError, texts, windows
from jobreport.readers.decimals import integers
from jobreport.readers.traces.columns import time_base, whole_number
from jobreport.readers.traces.row import Args, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    from jobreport.readers.byte_texts import Bytes
    from jobrules.model import IntArray

#: Bytes that are worked on at once, and of the longest line.
LARGEST, _LONGEST_LINE = 1 << 20, 1000
#: Room on both sides of a text, because windows may begin in front of it and end behind it.
_MARGIN = 2048
_MOST_LAYOUTS, _MOST_NUMBERS = 32, 8
#: Groups of equal lines, and how many lines allow a further one; more would cost more than they save.
_MOST_GROUPS, _LINES_OF_GROUP = 64, 8

_COLON, _NEWLINE = b":\n"
_SEAM = np.frombuffer(b",\n", np.uint8)
_NUMBER = re.compile(rb'"([^"]*)": *"?([0-9]+)"?(?=[,}])')
_CLOSING = re.compile(rb"\n\]\n?\Z")
_STEP = b"step_num"
#: What an event has of its own.
_OWN = (b"ts", b"dur", _STEP)
#: What is in use besides, and the digits of a number that is not and may differ from line to line.
_CONSTANT = {name.encode() for row in (Args, Row) for name in row.__struct_fields__} - {*_OWN}
_MANY_DIGITS = 4
_ROW = msgspec.json.Decoder(Row)


class Block(NamedTuple):
    """The events of some files or of a part of one."""

    #: For each event, the place of a row like it among the examples, and what it has of its own.
    example: IntArray
    start: IntArray
    duration: IntArray
    step: IntArray
    #: Rows without what each event has of its own.
    examples: list[Row]
    #: How many events come before each row of metadata, and before each file, which is none.
    between: list[tuple[int, Row | None]]


class _Lines(NamedTuple):
    """Where lines begin and end, and the places of their colons and newlines."""

    begin: IntArray
    end: IntArray
    cuts: IntArray
    #: Where those of each line begin.
    first: IntArray


class _Layout(NamedTuple):
    """Where the numbers of a line are; nowhere in one that is no complete event."""

    keys: tuple[bytes, ...]
    #: Both ends of each: the number of a colon, or of the newline behind the last, and bytes from there.
    begins: list[tuple[int, int]]
    ends: list[tuple[int, int]]
    #: Colons by which lines of the layout are known, those around numbers and the last, with the length of the
    #: text up to each that must be the same, 8 bytes at most.
    marks: dict[int, int]


class SoundTraces:
    """Reads blocks, into memory that is used again."""

    def __init__(self) -> None:
        self._equal = EqualTexts()
        self._text = np.zeros(_MARGIN + LARGEST + _MARGIN, np.uint8)
        self._is_cut = np.empty((2, LARGEST), bool)

    def blocks(self, paths: Sequence[Path]) -> Iterator[Block]:
        """All events of files that are smaller than ``LARGEST`` together, or of one file of any size.

        Raises ``UnsoundError`` for what is not understood, and ``OSError``, maybe behind some blocks.
        """
        if sys.byteorder != "little":
            raise UnsoundError
        text, full = self._text, _MARGIN + LARGEST
        begins, end = [], _MARGIN
        for path in paths:
            begin = end
            begins.append(begin)
            with path.open("rb", buffering=0) as file:
                # The bracket and the end of its line come to lie over the end of the file before.
                end = self._filled(file, end - 2)
                if bytes(text.data[begin - 2 : begin]) != b"[\n":
                    raise UnsoundError
                text[begin - 2 : begin] = _SEAM
                while end == full:
                    seam = bytes(text.data[full - _LONGEST_LINE : full]).rfind(b",\n")
                    if seam < 0 or len(paths) > 1:
                        raise UnsoundError
                    stop = full - _LONGEST_LINE + seam + 2
                    yield self._block(begins, stop)
                    begins, end = [], _MARGIN + full - stop
                    text[_MARGIN:end] = text[stop:full]
                    end = self._filled(file, end)
            closing = _CLOSING.search(bytes(text.data[end - 3 : end]))
            if closing is None:
                raise UnsoundError
            end += closing.start() - 1
            text[end - 2 : end] = _SEAM
        yield self._block(begins, end)

    def _filled(self, file: FileIO, end: int) -> int:
        """The end of the text with as much of the file added as there is room for."""
        while part := file.readinto(self._text[end : _MARGIN + LARGEST].data):
            end += part
        return end

    def _block(self, begins: Sequence[int], end: int) -> Block:
        text, lines = self._text, self._lines(end)
        example, *numbers = np.full((4, len(lines.begin)), -1)
        own = dict(zip(_OWN, numbers, strict=True))
        examples: list[Row] = []
        files = np.searchsorted(lines.begin, np.array(begins, np.int64))
        between: list[tuple[int, Row | None]] = [(line, None) for line in files.tolist()]
        for layout, rows, cuts in self._layouts(lines):
            if not layout.keys:
                between += _metadata(text, rows, lines.begin[rows], lines.end[rows])
                continue
            begin = [cuts[cut] + by for cut, by in layout.begins]
            stop = [cuts[cut] + by for cut, by in layout.ends]
            for key, *places in zip(layout.keys, begin, stop, strict=True):
                found = integers(text, *places)
                if key in own:
                    own[key][rows] = found
            parts = list(zip([lines.begin[rows], *stop], [*begin, lines.end[rows] + 1], strict=True))
            ones, group = self._equal.groups(*(texts(text, a, b - a) for a, b in parts))
            if len(ones) > _MOST_GROUPS + len(rows) // _LINES_OF_GROUP:
                raise UnsoundError
            example[rows] = group + len(examples)
            new = [
                _example(layout.keys, tuple(bytes(text.data[a[i] : b[i]]) for a, b in parts)) for i in ones
            ]
            if _STEP not in layout.keys:
                own[_STEP][rows] = np.array([whole_number(row.args and row.args.step_num) for row in new])[
                    group
                ]
            examples += new
        events = np.flatnonzero(example >= 0)
        # Of what stands at one place, the file that begins there comes first.
        between.sort(key=lambda one: (one[0], one[1] is not None))
        before = np.searchsorted(events, [line for line, _ in between]).tolist()
        told = [(count, row) for count, (_, row) in zip(before, between, strict=True)]
        start, duration, step = (column[events] for column in numbers)
        return Block(example[events], start, duration, step, examples, told)

    def _lines(self, end: int) -> _Lines:
        text = self._text[_MARGIN:end]
        is_cut, is_newline = self._is_cut[:, : len(text)]
        np.equal(text, _COLON, out=is_cut)
        is_cut |= np.equal(text, _NEWLINE, out=is_newline)
        cuts = np.flatnonzero(is_cut)
        last = np.flatnonzero(is_newline[cuts])
        cuts += _MARGIN
        ends = cuts[last]
        begins = np.append(_MARGIN, ends[:-1] + 1)
        if (ends - begins).max() > _LONGEST_LINE:
            raise UnsoundError
        return _Lines(begins, ends, cuts, np.append(0, last[:-1] + 1))

    def _layouts(self, lines: _Lines) -> Iterator[tuple[_Layout, IntArray, IntArray]]:
        """The layouts, the lines that have each, and the places of their cuts, an array for each cut."""
        counts = np.diff(lines.first, append=len(lines.cuts))
        left = _MOST_LAYOUTS
        for count in np.flatnonzero(np.bincount(counts)).tolist():
            rows = np.flatnonzero(counts == count)
            cuts = lines.cuts[lines.first[rows] + np.arange(count)[:, None]]
            while len(rows):
                if not left:
                    raise UnsoundError
                left -= 1
                layout = _layout(bytes(self._text.data[lines.begin[rows[0]] : lines.end[rows[0]]]))
                fits = np.ones(len(rows), bool)
                for colon, length in layout.marks.items():
                    words = windows(self._text, cuts[colon] - 7, 8)[:, 0] >> np.uint64(64 - 8 * length)
                    fits &= words == words[0]
                if fits.all():
                    yield layout, rows, cuts
                    break
                yield layout, rows[fits], cuts[:, fits]
                rows, cuts = rows[~fits], cuts[:, ~fits]


def _layout(line: bytes) -> _Layout:
    """The layout of a line."""
    cuts = [*(at for at, byte in enumerate(line) if byte == _COLON), len(line)]
    keys, begins, ends = [], [], []
    marks = {len(cuts) - 2}
    for number in _NUMBER.finditer(line):
        key, digits = number.groups()
        if key in _OWN or (key not in _CONSTANT and len(digits) >= _MANY_DIGITS):
            begin, end = number.span(2)
            following = bisect(cuts, begin)
            keys.append(key)
            begins.append((following - 1, begin - cuts[following - 1]))
            ends.append((following, end - cuts[following]))
            marks |= {following - 1, following}
    if len(keys) > _MOST_NUMBERS:
        raise UnsoundError
    is_event = {b"ts", b"dur"} <= set(keys)
    # From the comma on, because in front of it may be a number.
    lengths = {
        mark: min(8, cut + 1 - line.rfind(b",", 0, cut))
        for mark, cut in enumerate(cuts[:-1])
        if mark in marks
    }
    return _Layout(tuple(keys) if is_event else (), begins, ends, lengths)


def _metadata(text: Bytes, *columns: IntArray) -> Iterator[tuple[int, Row]]:
    """Those rows of metadata that are of use, with their numbers; ``columns`` are these, begins and ends."""
    for number, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        row = _announcement(bytes(text.data[begin : end + 1]))
        if row.name == "process_name":
            yield number, row


@lru_cache(maxsize=1 << 14)
def _announcement(line: bytes) -> Row:
    """A row of metadata."""
    row = _row(line)
    base = row.args and row.args.start_time_since_epoch_in_micros
    # What would have to be told is left to others.
    if row.ph != "M" or (base is not None and time_base(base) is None):
        raise UnsoundError
    return row


@lru_cache(maxsize=1 << 14)
def _example(keys: tuple[bytes, ...], parts: tuple[bytes, ...]) -> Row:
    """The event in the line of these texts, without its numbers."""
    # Else the places might be parts of numbers.
    if not all(part[-1:] in b': "' for part in parts[:-1]) or not all(
        part[:1] in b',}"' for part in parts[1:]
    ):
        raise UnsoundError
    row, other = (_event(keys, parts, digits) for digits in (b"12345678", b"23456789"))
    args = row.args or Args()
    numbers = (row.tid, args.pid, args.tid, args.thread_id, args.step_num)
    if row != other or any(value is not None and whole_number(value) < 0 for value in numbers):
        raise UnsoundError
    return row


def _event(keys: Sequence[bytes], parts: Sequence[bytes], digits: bytes) -> Row:
    """The event with these digits as numbers, which must be its start, duration and step, taken out of it."""
    row = _row(b"".join(part + digits[at : at + 1] for at, part in enumerate(parts[:-1])) + parts[-1])
    args = row.args or Args()
    found = {b"ts": row.ts, b"dur": row.dur, b"step_num": args.step_num}
    if row.ph != "X" or any(
        key in found and whole_number(found[key]) != digit - ord("0")
        for key, digit in zip(keys, digits, strict=False)
    ):
        raise UnsoundError
    row.ts = row.dur = None
    if _STEP in keys:
        args.step_num = None
    return row


def _row(line: bytes) -> Row:
    if not line.endswith(b",\n"):
        raise UnsoundError
    try:
        return _ROW.decode(line[:-2])
    except (ValueError, RecursionError) as error:
        raise UnsoundError from error
