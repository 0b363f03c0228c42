"""What a form of log gives to the reader: tables of cells, and lines that are left out.

A form is a module with the two functions of ``Form``; it turns the lines of a file, as they come, into tables whose
columns have names that ``columns`` knows. Which GPU a row is of, when it was written, and what was measured is the same
for all. Nothing holds the text of a file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set

    from numpy.typing import NDArray

    from jobrules.model import FloatArray, IntArray


#: Characters of a usual date.
DATE_LENGTHS = range(19, 27)
#: Characters of a word, the first so many of one as a mask, and a factor that spreads words over all numbers.
_WORD = 8
_FIRST = np.array([(1 << 8 * characters) - 1 for characters in range(_WORD + 1)], np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: A word of zeros as text, and the first of each four bytes.
_ZEROS, _PAIRS = np.uint64(0x3030303030303030), np.uint64(0x000000FF000000FF)
#: A number without sign, and its unit.
_PLAIN = re.compile(r"( *)[0-9]+(?:\.([0-9]+))?((?: [a-zA-Z%]+)?)")
#: Of cells with places of their own in a table of twice as many, each try settles most.
_TRIES = 32
_DIGITS_ALIKE = str.maketrans("0123456789", "1" * 10)
#: Rows that are worth arrays, unless the longest is so many times the usual one: the words of all cells of a column are
#: as many as those of the longest.
_MANY_ROWS, _MAX_UNEVEN = 64, 16


class Block(Struct, frozen=True, kw_only=True):
    """Consecutive lines of a file."""

    #: Number of the first, from 1.
    line: int
    #: Without their ends.
    lines: list[str]
    #: Whether the last of them lacks its end, so that its last value may be cut.
    cut: bool = False


class Texts:
    """The cells of a column; most texts come many times."""

    def __init__(
        self,
        numbered: Callable[[], tuple[list[str], IntArray]],
        even: NDArray[np.bytes_] | None = None,
        plain: Callable[[], tuple[FloatArray, str] | None] = lambda: None,
    ) -> None:
        """``numbered`` gives each text once, and (n,) the position of each cell's text among them."""
        self._numbered = numbered
        #: (n,) the cells if all are as long as some date is.
        self.even = even
        #: If all are numbers with the same unit: (n,) these, and the unit with the blank in front.
        self.plain = plain

    @cached_property
    def _both(self) -> tuple[list[str], IntArray]:
        return self._numbered()

    @property
    def distinct(self) -> list[str]:
        """Each text once."""
        return self._both[0]

    @property
    def code(self) -> IntArray:
        """(n,) position of each cell's text among them."""
        return self._both[1]

    def __getitem__(self, row: int) -> str:
        """The text of a row, without blanks around it."""
        return self.distinct[int(self.code[row])].strip()

    def with_zero_for(self, nothing: str) -> Texts:
        """The cells, with 0 in place of a text."""
        return Texts(
            lambda: (["0" if text.strip() == nothing else text for text in self.distinct], self.code)
        )

    @classmethod
    def of(cls, cells: Sequence[str]) -> Texts:
        """From the cells."""
        place: defaultdict[str, int] = defaultdict(count().__next__)
        code = np.fromiter(map(place.__getitem__, cells), np.int64, len(cells))
        return cls(lambda: (list(place), code))


def shapes_of(texts: Sequence[str]) -> list[str]:
    """Each text with 1 for every digit: what the shape decides is decided once for millions of texts."""
    shapes = _shape_of("\0".join(texts)).split("\0")
    return shapes if len(shapes) == len(texts) else [*map(_shape_of, texts)]


def _shape_of(text: str) -> str:
    if text.isascii():
        return text.translate(_DIGITS_ALIKE)
    for digit in "023456789":  # many times as fast as to translate such a text
        text = text.replace(digit, "1")
    return text


def columns_of(rows: Sequence[str], cell_end: str, count: int) -> list[Texts]:
    """The cells of rows by column; ``cell_end`` stands between the cells of a row, of which there are ``count``."""
    text = cell_end.join([*rows, ""])
    longest = max(map(len, rows))
    is_even = len(rows) * longest <= _MAX_UNEVEN * len(text)
    if len(rows) < _MANY_ROWS or not is_even or not text.isascii():
        cells = text.split(cell_end)
        return [Texts.of(cells[place:-1:count]) for place in range(count)]
    data = np.frombuffer(text.encode() + bytes(longest + _WORD), np.uint8)
    ends = np.flatnonzero(data == ord(cell_end))
    starts = np.append(0, ends[:-1] + 1)
    return [_texts(text, data, starts[place::count], ends[place::count]) for place in range(count)]


def _texts(text: str, data: NDArray[np.uint8], starts: IntArray, ends: IntArray) -> Texts:
    """The cells of a column between these places of a text."""
    shortest, longest = int((ends - starts).min()), int((ends - starts).max())

    def cells(kind: str, places: IntArray, width: int) -> NDArray[Any]:
        return np.ndarray((len(data) - width + 1,), f"{kind}{width}", buffer=data, strides=(1,))[places]

    def distinct() -> tuple[list[str], IntArray]:
        # Told apart eight characters at a time.
        count = -(-max(longest, 1) // _WORD)
        words = np.ascontiguousarray(cells("V", starts, count * _WORD).view("<u8").reshape(-1, count).T)
        for place in range(shortest // _WORD, count):
            words[place] &= _FIRST[np.clip(ends - starts - place * _WORD, 0, _WORD)]
        first, code = numbered(words)
        spans = zip(starts[first].tolist(), ends[first].tolist(), strict=True)
        return [text[start:end] for start, end in spans], code

    width = longest
    while shortest == longest and width >= DATE_LENGTHS.start and (data[ends - width] == ord(" ")).all():
        width -= 1
    is_even = shortest == longest and width in DATE_LENGTHS
    return Texts(
        distinct,
        cells("S", ends - width, width) if is_even else None,
        lambda: _plain_numbers(text[starts[0] : ends[0]], data, starts, ends),
    )


def _plain_numbers(
    first: str, data: NDArray[np.uint8], starts: IntArray, ends: IntArray
) -> tuple[FloatArray, str] | None:
    """The numbers between these places, and their unit, if all are short and written like the ``first``."""
    match = _PLAIN.fullmatch(first)
    if match is None:
        return None
    blanks, decimals, unit = len(match[1]), len(match[2] or ""), match[3]
    begins, size = starts + blanks, ends - starts - blanks - len(unit)
    if (
        size.min() < (decimals + 2 if decimals else 1)
        or max(size.max(), len(unit)) > _WORD
        or any((data[starts + place] != ord(" ")).any() for place in range(blanks))
    ):
        return None
    behind = _words_at(data, ends - len(unit)) & _FIRST[len(unit)]
    if (behind != int.from_bytes(unit.encode(), "little")).any():
        return None
    # The last digit in the highest byte, zeros in front of the first one.
    words = _words_at(data, begins)
    bits = 8 * size.astype(np.uint64)
    words = (words << (64 - bits)) | (_ZEROS >> bits)
    if decimals:
        whole = _FIRST[_WORD - 1 - decimals]
        point = words & _FIRST[_WORD - decimals] & ~whole
        if (point != ord(".") << 8 * (_WORD - 1 - decimals)).any():
            return None
        words = (words & ~_FIRST[_WORD - decimals]) | ((words & whole) << np.uint64(8)) | np.uint64(ord("0"))
    digits = words ^ _ZEROS
    if (((digits + 0x7676767676767676) | digits) & 0x8080808080808080).any():
        return None
    pairs = 10 * digits + (digits >> 8)
    fours = (pairs & _PAIRS) * (100 + (1_000_000 << 32)) + ((pairs >> 16) & _PAIRS) * (1 + (10_000 << 32))
    return (fours >> 32) / 10.0**decimals, unit


def _words_at(data: NDArray[np.uint8], places: IntArray) -> NDArray[np.uint64]:
    """(n,) the words that begin at these places, their first characters in the lowest bytes."""
    return np.ndarray((len(data) - _WORD + 1,), f"V{_WORD}", buffer=data, strides=(1,))[places].view("<u8")


def numbered(words: Sequence[NDArray[np.uint64]] | NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """A row of each kind of cells, whose words are (n,) each, and (n,) the kind of each cell.

    Each cell goes to a place that a hash of its words gives; those that find another kind there try again.
    """
    rows = len(words[0])
    bits = rows.bit_length() + 1
    hashes = np.zeros(rows, np.uint64)
    for word in words:
        hashes = (hashes ^ word) * _ODD
        hashes ^= hashes >> np.uint64(29)
    code, kind = np.empty(rows, np.int64), np.empty(rows, np.int64)
    last_at = np.empty(1 << bits, np.int64)
    left = np.arange(rows)
    found: list[IntArray] = []
    kinds = 0
    for _ in range(_TRIES):
        hashes *= _ODD
        place = hashes >> np.uint64(64 - bits)
        last_at[place] = left
        there = last_at[place]
        new = left[there == left]
        kind[new] = np.arange(kinds, kinds + len(new))
        kinds += len(new)
        found.append(new)
        same = np.all([word[left] == word[there] for word in words], axis=0)
        code[left[same]] = kind[there[same]]
        left, hashes = left[~same], hashes[~same] ^ (hashes[~same] >> np.uint64(32))
        if not len(left):
            break
    else:  # made to be slow
        _, first, others = np.unique(
            np.column_stack([word[left] for word in words]), axis=0, return_index=True, return_inverse=True
        )
        code[left] = kinds + others
        found.append(left[first])
    return np.concatenate(found), code


class Table(Struct, frozen=True, kw_only=True, eq=False):
    """Rows with the same columns; at least one."""

    #: Names of the columns as written.
    names: tuple[str, ...]
    #: Number of the line that has the names, from 1; 0 for names that were given.
    line: int
    #: One for each name, all of the same length.
    columns: list[Texts]
    #: (n,) number of the line of each row, from 1.
    lines: IntArray
    #: Whether rows without times are a second apart.
    each_second: bool = False


class Skipped(Struct, kw_only=True):
    """Lines that are neither rows nor headers."""

    #: Code of the remark on them.
    code: str
    count: int
    #: Number of the first, from 1, and its text.
    line: int
    text: str


class SkippedLines:
    """Lines that are left out, by the code of the remark on them."""

    def __init__(self) -> None:
        self.found: dict[str, Skipped] = {}

    def add(self, code: str, text: str, line: int, count: int = 1) -> None:
        """Count lines, the first of which has this text."""
        before = self.found.get(code)
        if before is None or (line, text) < (before.line, before.text):
            count += before.count if before else 0
            self.found[code] = Skipped(code=code, count=count, line=line, text=text)
        else:
            before.count += count

    def add_all(self, code: str, which: Set[str], texts: Sequence[str], numbers: IntArray) -> None:
        """Count those of some texts, of the lines of these numbers, that are ``which``, at least one."""
        is_skipped = np.fromiter(map(which.__contains__, texts), np.bool_, len(texts))
        first = int(np.argmax(is_skipped))
        self.add(code, texts[first], int(numbers[first]), int(is_skipped.sum()))


class Form(Protocol):
    """One form of log."""

    def is_log(self, beginning: str, names: Sequence[str], /) -> bool:
        """Whether the beginning of a text is of this form; ``names`` are those of ``--columns``."""

    def tables(self, blocks: Iterable[Block], names: Sequence[str], /) -> Iterator[Table | Skipped]:
        """All rows of a text of this form, as they come, and what is left out."""
