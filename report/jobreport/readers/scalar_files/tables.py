"""CSV of numbers by step or epoch, as Lightning's and Keras' CSVLogger and ultralytics write it."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from operator import gt
from typing import TYPE_CHECKING, TypeAlias

from jobreport.readers import text_files
from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.series import Logged
from jobreport.readers.tally import UnusableError
from jobrules.model import SECOND_US
from jobrules.model.learning import EVALUATION, TRAINING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Bytes of a line, and columns.
_LONGEST, _MAX_COLUMNS = 1 << 20, 1000
#: Bytes that show what a file is; times that steps of a few rows may go back.
_BEGINNING, _MIN_FALLS = 1 << 16, 10
_DELIMITERS = ",;\t"
#: Columns that count, the finest first, and those of times. None of them is a number of the training.
_STEPS = ("global_step", "trainer/global_step", "step", "iteration", "iter", "epoch")
_TIMES = ("timestamp", "wall_time", "time")
#: Columns that say of which part of the data a row is.
_PARTS, _EVALUATED = ("split", "mode", "phase", "stage", "subset"), ("val", "eval", "test")
#: An accuracy ends a name: ``acc_x`` is an acceleration.
_METRIC = re.compile(r"(?:.*[^a-z])?(?:loss(?:[^a-z].*)?|(?:acc|accuracy)(?:_step|_epoch)?)", re.DOTALL)
#: A double holds all whole numbers up to this one; steps are far below.
_MAX_STEP = 10**12

Header: TypeAlias = tuple[str, ...]


def header_of(file: SourceFile) -> Header | None:
    """The names of its columns; None if it is no table of a training."""
    text = text_files.beginning(file.path, _BEGINNING).decode("utf-8", "replace")
    first, newline, rest = text.partition("\n")
    if not newline:
        return None
    header = _header(first)
    plain = [name.lower() for name in header]
    is_table = any(name in _STEPS for name in plain) and any(map(_METRIC.fullmatch, plain))
    if not is_table or len(header) > _MAX_COLUMNS:
        return None
    rows = list(_fields(rest.split("\n"), _delimiter(first)))
    if len(next(iter(rows), [])) not in (0, len(header)):
        return None
    step_at = _step_at(plain)
    steps = [step for one in rows if len(one) == len(header) and (step := _number(one[step_at])) is not None]
    falls = sum(map(gt, steps, steps[1:]))
    # The rows of a data set are in any order.
    return header if "epoch" in plain or falls <= max(_MIN_FALLS, len(steps) / 3) else None


def read_table(file: SourceFile, tally: Tally) -> tuple[Header, Logged]:
    """The columns and the numbers of a file, up to any damage. Raises ``UnusableError`` if there are none."""
    lines = _lines(file, tally)
    first = next(lines, "")
    header, logged = _header(first), Logged()
    plain = [name.lower() for name in header]
    step_at = _step_at(plain)
    time_at = next((plain.index(name) for name in _TIMES if name in plain), -1)
    part_at = next((plain.index(name) for name in _PARTS if name in plain), -1)
    epoch_at = plain.index("epoch") if "epoch" in plain and plain[step_at] != "epoch" else -1
    tally.note("learning.epochs", count=plain[step_at] == "epoch", file=file.name)
    columns = [i for i, name in enumerate(plain) if name and name not in (*_STEPS, *_TIMES) and i != part_at]
    bad_rows, texts, steps, mode = 0, Counter[int](), _Steps(), ""
    with text_files.noting(file, tally):
        for fields in _fields(lines, _delimiter(first)):
            step = _number(fields[step_at]) if len(fields) == len(header) else None
            if step is None or not 0 <= step <= _MAX_STEP or step % 1:
                bad_rows += 1
                continue
            step = steps.counted_on(int(step), _number(fields[epoch_at]) if epoch_at >= 0 else None)
            time_us = _time_us(fields[time_at]) if time_at >= 0 else 0
            if part_at >= 0:
                mode = EVALUATION if fields[part_at].strip().lower().startswith(_EVALUATED) else TRAINING
            for i in columns:
                if not fields[i]:
                    continue
                if (value := _number(fields[i])) is not None and logged.add(
                    mode, header[i], step, time_us, value
                ):
                    continue
                texts[i] += not fields[i].isspace()
    tally.note("learning.row", count=bad_rows, file=file.name)
    # A column of nothing but texts lost no number.
    bad_values = sum(count for i, count in texts.items() if header[i] in logged)
    tally.note("learning.value", count=bad_values, file=file.name)
    tally.note("learning.counted_on", count=steps.added > 0, file=file.name)
    tally.note("learning.thinned_values", count=logged.left_out, file=file.name)
    if not logged:
        raise UnusableError("learning.no_number")
    return header, logged


class _Steps:
    """Steps that go on where they begin again with an epoch."""

    def __init__(self) -> None:
        self.added = 0
        self._step, self._apart, self._epoch = -1, 1, -math.inf

    def counted_on(self, step: int, epoch: float | None) -> int:
        """The step since the begin of the training, in an epoch if that is known."""
        if epoch is not None and epoch > self._epoch and step < self._step:
            self.added += self._step + self._apart - step
        elif step > self._step >= 0:
            self._apart = step - self._step
        self._step, self._epoch = step, self._epoch if epoch is None else epoch
        return min(step + self.added, _MAX_STEP)


def _lines(file: SourceFile, tally: Tally) -> Iterator[str]:
    for line in text_files.lines(file.path, _LONGEST):
        if line is None:
            tally.note("learning.row", file=file.name)
        elif line.strip():
            yield line.decode("utf-8", "replace")


def _fields(lines: Iterator[str] | Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """The fields of each line; a quoted one does not go on in the next."""
    for line in lines:
        if '"' not in line:
            yield line.split(delimiter)
            continue
        try:
            yield from csv.reader([line], delimiter=delimiter)
        except csv.Error:
            yield []


def _step_at(plain: Sequence[str]) -> int:
    """The column with the finest steps."""
    return min((_STEPS.index(name), i) for i, name in enumerate(plain) if name in _STEPS)[1]


def _delimiter(header: str) -> str:
    return max(_DELIMITERS, key=header.count)


def _header(line: str) -> Header:
    fields = next(iter(_fields([line], _delimiter(line))), [])
    return tuple(name.strip() for name in fields)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _time_us(text: str) -> int:
    """Microseconds since the epoch; 0 for what is no such time, as seconds since the start are none."""
    seconds = _number(text) or 0.0
    return round(seconds * SECOND_US) if EARLIEST_S <= seconds <= LATEST_S else 0
