"""Numbers that stand in a text at known places, by arithmetic on arrays of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.system_samples.byte_texts import UnsoundError, windows

if TYPE_CHECKING:
    from jobreport.readers.system_samples.byte_texts import Bytes, Words
    from jobrules.model import FloatArray, IntArray

#: Characters of the longest number. As many must stand in front of the first number of a text.
LONGEST = 24

#: The character 0 eight times, and what brings a byte above nine, but none below, into the highest bit.
_ZEROS, _ABOVE_NINE, _HIGHEST_BITS = (np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x76, 0x80))
_LAST_BYTES = np.array([(1 << 64) - (1 << 64 - 8 * n) if n else 0 for n in range(9)], np.uint64)
_TENS = 10 ** np.arange(17, dtype=np.uint64)


class NoDecimalError(UnsoundError):
    """Something else than a number, or too long."""


def decimals(text: Bytes, begin: IntArray, point: IntArray, end: IntArray) -> FloatArray:
    """The numbers between the places, with their points at ``point``: each the double that ``float`` finds.

    Raises ``NoDecimalError`` unless all are written as JSON wants it, with a point and without an exponent.
    """
    minus = text[begin] == ord("-")
    begin = begin + minus
    whole, fraction = point - begin, end - point - 1
    if (
        whole.min() < 1
        or fraction.min() < 1
        or (end - begin).max() >= LONGEST
        or (text[point] != ord(".")).any()
        or ((text[begin] == ord("0")) & (whole > 1)).any()
    ):
        raise NoDecimalError
    scale = _TENS[np.minimum(fraction, 16)]
    digits = _integers(text, point, whole) * scale + _integers(text, end, fraction)
    # Both are exact as doubles, so that the division rounds once, and rightly (Clinger 1990).
    numbers: FloatArray = digits / scale.astype(float)
    for i in np.flatnonzero((whole + fraction > 16) | (digits >= 1 << 53)).tolist():
        number = text[begin[i] : end[i]].tobytes()
        if not number.replace(b".", b"", 1).isdigit():
            raise NoDecimalError
        numbers[i] = float(number)
    np.negative(numbers, out=numbers, where=minus)
    return numbers


def _integers(text: Bytes, end: IntArray, length: IntArray) -> Words:
    """The integers of up to 16 digits that end there; for more digits, anything."""
    numbers = _eight_digits(text, end, np.minimum(length, 8))
    long = np.flatnonzero(length > 8)
    if len(long):
        numbers[long] += _TENS[8] * _eight_digits(text, end[long] - 8, np.minimum(length[long] - 8, 8))
    return numbers


def _eight_digits(text: Bytes, end: IntArray, length: IntArray) -> Words:
    """The integers of up to eight digits that end there.

    Neighboring digits are joined to pairs, pairs to fours and fours to eights, all of a word at once
    (as in simdjson; Lemire, "Quickly parsing eight digits", 2018).
    """
    digits = windows(text, end - 8, 8)[:, 0]
    digits ^= _ZEROS
    digits &= _LAST_BYTES[length]
    if np.bitwise_or.reduce((digits + _ABOVE_NINE) | digits) & _HIGHEST_BITS:
        raise NoDecimalError
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    every_fourth = np.uint64(0x000000FF000000FF)
    first = (pairs & every_fourth) * np.uint64(100 + (1_000_000 << 32))
    second = ((pairs >> np.uint64(16)) & every_fourth) * np.uint64(1 + (10_000 << 32))
    return (first + second) >> np.uint64(32)
