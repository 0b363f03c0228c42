"""Cells of an nvidia-smi log: numbers with and without units, yes and no, and words for no value."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.nvidia_smi.table import shapes_of
from jobreport.readers.nvidia_smi.units import BEHIND_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.nvidia_smi.columns import Column
    from jobreport.readers.nvidia_smi.table import Texts
    from jobrules.model import FloatArray, IntArray

#: How the tool says that it has no value.
_NO_VALUE = {
    "",
    "-",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
    "not supported",
    "unknown",
    "unknown error",
    "err!",
    "not found",
    "not available",
    "insufficient permissions",
    "gpu is lost",
    "gpu requires reset",
    "requested functionality has been deprecated",
}
_YES, _NO = {"active", "yes", "true"}, {"not active", "no", "false"}
#: Thousands, by blanks or commas; else a comma in a cell is a decimal one.
_DIGITS = (
    r"[1-9][0-9]{0,2}(?:[ '\u00a0\u202f][0-9]{3})+(?:\.[0-9]*|,[0-9]{1,2})?"
    r"|[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?"
    r"|[0-9]+(?:\.[0-9]*|,(?:[0-9]{1,2}|[0-9]{4,}))?"
)
_NUMBER = re.compile(rf"([-+]?(?:{_DIGITS}|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([%a-zA-Z°]*)")
#: Lines of numbers that all have the same unit, or none.
_PLAIN = re.compile(r" *[0-9]+(?:\.[0-9]*)?((?: [a-zA-Z%]+)?) *(?:\n *[0-9]+(?:\.[0-9]*)?\1 *)*+")
_THOUSANDS = re.compile(r"[ '\u00a0\u202f]|,(?=[0-9]{3}(?![0-9]))")
#: May be thousands or decimals, but the tool writes no decimals of metrics in these units.
_EITHER = re.compile(r"[-+]?[0-9]+,[0-9]{3}")
_WHOLE = ("B", "MHz")
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}")

#: Anything smaller is nothing in any unit, and anything larger is impossible; a product or a ratio with it might be past
#: the largest number there is.
_SMALLEST, _LARGEST = 1e-9, 1e30
#: Characters of a number, with the blanks around it.
_MAX_CELL = 256
#: Why a cell has no value: codes of remarks.
NOT_AVAILABLE, IMPLAUSIBLE = "samples.not_available", "samples.implausible"
#: What a cell is: a number without or with a unit, or none for one of those reasons.
KINDS = _BARE, _KNOWN, *_ = "bare", "known", NOT_AVAILABLE, IMPLAUSIBLE


def is_no_value(text: str) -> bool:
    """Whether a cell says that it has no value."""
    return text.strip().strip("[]").strip().lower() in _NO_VALUE


def numbers_of(texts: Texts, column: Column, unit: str) -> tuple[FloatArray, IntArray, IntArray | slice]:
    """The different cells of a column of a metric, or all: numbers, what each is, and where each row is among them.

    What it is: the place in ``KINDS``. A number is in the unit of the metric if it has a unit.
    """
    if not column.bits and (alike := texts.plain()) and (plain := _in_unit(*alike, column, unit)):
        return plain[0], np.full(len(plain[0]), KINDS.index(plain[1])), slice(None)
    cells = [cell if len(cell) <= _MAX_CELL else "?" for cell in texts.distinct]
    if plain := _plain_numbers(cells, column, unit):
        return plain[0], np.full(len(cells), KINDS.index(plain[1])), texts.code
    # No digit makes a number of what is none with another; in a mask a zero is a sign.
    shapes = cells if column.bits else shapes_of(cells)
    lost = {shape: _lost(shape, column, unit) for shape in {*shapes}}
    kinds = np.fromiter(map(lost.__getitem__, shapes), np.int64, len(cells))
    values = np.full(len(cells), np.nan)
    numbers = np.flatnonzero(kinds < 0)
    cells = [cells[place] for place in numbers]
    if plain := _plain_numbers(cells, column, unit):
        values[numbers], kinds[numbers] = plain[0], KINDS.index(plain[1])
        return values, kinds, texts.code
    for place, cell in zip(numbers.tolist(), cells, strict=True):
        values[place], kind = _value(cell, column, unit)
        kinds[place] = KINDS.index(kind)
    return values, kinds, texts.code


def _lost(shape: str, column: Column, unit: str) -> int:
    """Why texts of a shape have no value, as the place in ``KINDS``; -1 if they may have one."""
    value, kind = _value(shape, column, unit)
    return KINDS.index(kind) if math.isnan(value) else -1


def _plain_numbers(texts: Sequence[str], column: Column, unit: str) -> tuple[FloatArray, str] | None:
    """What ``_value`` says of nearly all columns, at a fraction of the time: numbers in the same unit.

    ``None`` for any other.
    """
    lines = "\n".join(texts)
    match = None if column.bits else _PLAIN.fullmatch(lines)
    if match is None:
        return None
    word = match[1]
    values = np.array([*map(float, (lines.replace(word, "") if word else lines).split("\n"))])
    values[values < _SMALLEST] = 0.0
    values[values > _LARGEST] = math.inf
    return _in_unit(values, word, column, unit)


def _in_unit(values: FloatArray, word: str, column: Column, unit: str) -> tuple[FloatArray, str] | None:
    """Numbers with this word behind them, and whether their unit is known; ``None`` if it is none of the metric."""
    factor = BEHIND_NUMBERS[unit].get(word.strip().lower()) if word else column.factor
    if word and factor is None:
        return None
    return (values, _BARE) if factor is None else (values * factor, _KNOWN)


def _value(text: str, column: Column, unit: str) -> tuple[float, str]:
    """A number, and whether its unit is known; or why there is none."""
    plain = text.strip().strip("[]").strip()
    if plain.lower() in _NO_VALUE:
        return math.nan, NOT_AVAILABLE
    if column.bits:
        return _reason(plain.lower(), column.bits)
    match, factors = _NUMBER.fullmatch(plain), BEHIND_NUMBERS[unit]
    if match is None or (match[2] and match[2].lower() not in factors):
        return math.nan, IMPLAUSIBLE
    if _EITHER.fullmatch(match[1]) and unit not in _WHOLE:
        return math.nan, IMPLAUSIBLE
    value = float(_THOUSANDS.sub("", match[1]).replace(",", "."))
    return _with_factor(value, factors.get(match[2].lower(), column.factor))


def _with_factor(value: float, factor: float | None) -> tuple[float, str]:
    if not _SMALLEST <= abs(value) <= _LARGEST:
        value = math.copysign(math.inf, value) if abs(value) > _LARGEST else 0.0
    return (value, _BARE) if factor is None else (value * factor, _KNOWN)


def _reason(text: str, bits: int) -> tuple[float, str]:
    """100 while a reason holds, else 0."""
    if text in _YES | _NO:
        return 100.0 * (text in _YES), _KNOWN
    if _MASK.fullmatch(text) or (text.isdecimal() and len(text) < 20):
        return 100.0 * bool(int(text, 0 if text.startswith("0x") else 10) & bits), _KNOWN
    return math.nan, IMPLAUSIBLE
