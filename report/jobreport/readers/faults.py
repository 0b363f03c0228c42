"""Why lines of system samples were skipped: a second look at the first files that hold such lines.

Counts come from the first pass and are complete. Reasons and line numbers come from here, in
Python, for a bounded number of bytes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.readers import plain
from jobreport.readers.sample_rows import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: 1990-01-01 and 2100-01-01, in seconds since the epoch: sample times outside are mistakes.
EARLIEST_S, LATEST_S = 631_152_000.0, 4_102_444_800.0

NOT_FINITE = "value is NaN or infinite"
_UNEXPLAINED = "not a complete sample"
#: What the second look costs at most: about a tenth of a second.
_BUDGET_BYTES = 16 << 20


class Faults(Struct, kw_only=True):
    """What the first pass counted in one file."""

    #: Lines that are no sample, other than those with a value that is not finite.
    lines: int = 0
    not_finite: int = 0


def explain(faults: Mapping[SourceFile, Faults], tally: Tally) -> None:
    """Add the counted faults to the tally, with reasons as far as the budget goes."""
    budget = _BUDGET_BYTES
    for file in sorted(faults):
        left = Counter({True: faults[file].not_finite, False: faults[file].lines})
        for number, line in _lines(file) if budget > 0 else ():
            reason = fault(line)
            if reason and left[reason == NOT_FINITE]:
                left[reason == NOT_FINITE] -= 1
                _add(tally, reason, 1, file, number)
            budget -= len(line)
            if budget <= 0 or not left.total():
                break
        _add(tally, NOT_FINITE, left[True], file)
        _add(tally, _UNEXPLAINED, left[False], file)


def fault(line: bytes) -> str | None:  # noqa: PLR0911 - a list of reasons
    """What is wrong with a line, or none for a sample and for a blank line."""
    if not line.strip():
        return None
    try:
        sample = json.loads(line.decode())
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except (ValueError, RecursionError):
        return "not complete JSON"
    if not isinstance(sample, dict):
        return "not a JSON object"
    for key in ("Type", "Timestamp", "Value"):
        if sample.get(key) is None:
            return f"key {key!r} without a value" if key in sample else f"no key {key!r}"
    seconds, value = _number(sample["Timestamp"]), _number(sample["Value"])
    if seconds is None or value is None:
        return f"{'Timestamp' if seconds is None else 'Value'!r} is not a number"
    if not EARLIEST_S <= seconds <= LATEST_S:
        return "'Timestamp' is not a time in seconds between 1990 and 2100"
    return None if math.isfinite(value) else NOT_FINITE


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _lines(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    try:
        for number, line in enumerate(plain.lines(file.path, LONGEST_LINE), start=1):
            if line is not None:
                yield number, line
    except (OSError, plain.DamagedError):
        return


def _add(tally: Tally, reason: str, count: int, file: SourceFile, line: int = 0) -> None:
    if count:
        action, unit = ("dropped", "samples") if reason == NOT_FINITE else ("skipped", "lines")
        tally.add(action, unit, reason, count=count, file=file.name, line=line)
