"""Texts that stand at many places of a file, as arrays of words, and which of them are equal.

A word is eight bytes as an unsigned integer, the first of them in its lowest bits.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from jobrules.model import IntArray

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]

#: Bytes of the longest text. There must be as many in a file behind the place where any text begins.
_LONGEST_TEXT = 256

#: Sensors of a node whose order is looked for.
_LONGEST_PERIOD = 1024

_TABLE_BITS = 20
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_POWERS = np.multiply.accumulate(np.full(512, _MULTIPLIER))


class UnsoundError(Exception):
    """A file's text is not what is understood by arrays."""


class EqualTexts:
    """Finds records with equal texts, in memory that is used again."""

    def __init__(self) -> None:
        # Memory that was freed once at this size is kept by glibc (see mallopt(3)) instead of being given back
        # and asked for again with each array, which would cost as much as all the rest.
        np.empty(16 << 20, np.uint8)
        self._table = np.empty(1 << _TABLE_BITS, np.int64)

    def groups(self, *texts: Words) -> tuple[IntArray, IntArray]:
        """One record of each group with equal texts, and for each record the number of its group.

        A hash leads to the last record with the same hash, which must have the same texts. Records that come again in the
        same order, as those of most files do, need none.
        """
        if period := _period(texts):
            return np.arange(period), np.resize(np.arange(period), len(texts[0]))
        at, mixed = 0, np.zeros(len(texts[0]), np.uint64)
        for words in texts:
            mixed += words @ _POWERS[at : at + words.shape[1]]
            at += words.shape[1]
        record = np.arange(len(mixed))
        for _ in range(3):
            slot = (mixed >> np.uint64(64 - _TABLE_BITS)).view(np.int64)
            self._table[slot] = record
            example = self._table[slot]
            if all(np.array_equal(words, words.take(example, axis=0)) for words in texts):
                examples = np.flatnonzero(example == record)
                self._table[slot[examples]] = np.arange(len(examples))
                return examples, self._table[slot]
            # Two groups shared a slot.
            mixed *= _MULTIPLIER
        raise UnsoundError


def _period(texts: Sequence[Words]) -> int:
    """The number of records that all differ and then come again and again; 0 if there is none."""
    different: set[tuple[bytes, ...]] = set()
    for record in zip(*(map(bytes, words[:_LONGEST_PERIOD]) for words in texts), strict=True):
        if record in different:
            break
        different.add(record)
    period = len(different)
    return period if all(np.array_equal(words[period:], words[:-period]) for words in texts) else 0


def windows(text: Bytes, begin: IntArray, width: int) -> Words:
    """The bytes from each place on, as rows of words; ``width`` is a multiple of eight."""
    # Each place is one copy of memory; indices into a matrix of bytes would cost ten times that.
    everywhere = np.ndarray(len(text) - width + 1, f"V{width}", text.data, strides=(1,))
    return everywhere[begin].view(np.uint64).reshape(-1, width // 8)


def texts(text: Bytes, begin: IntArray, length: IntArray) -> Words:
    """The texts as rows of words, with zeros behind their ends.

    Raises ``UnsoundError`` for an empty one or one of more than 256 bytes. Rows of texts that differ in nothing
    but zeros at their ends are equal.
    """
    shortest, longest = int(length.min()), int(length.max())
    if not 0 < shortest <= longest <= _LONGEST_TEXT:
        raise UnsoundError
    width = -(-longest // 8) * 8
    words = windows(text, begin, width)
    if shortest == longest:
        words[:, -1] &= _masks(width)[longest, -1]
    else:
        words &= _masks(width).take(length, axis=0)
    return words


@cache
def _masks(width: int) -> Words:
    """Row n keeps n bytes of ``width``."""
    return (np.tri(width + 1, width, -1, dtype=np.uint8) * np.uint8(255)).view(np.uint64)
