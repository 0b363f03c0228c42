"""Rows of logs without a header line, whose forms say by its place or its key what a value is."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import groupby
from operator import ne
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.nvidia_smi.table import Skipped, SkippedLines, Table, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.table import Block

#: Rows of one table at most: until then each has about a kilobyte of cells.
_ROWS = 1 << 14
#: Characters of a JSON or XML document; that of 16 GPUs with 100 processes each has half as many.
_MAX_DOCUMENT = 1 << 21
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: The time as nvidia-smi and ``ctime`` write it, and its characters.
_CTIME = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ({'|'.join(_MONTHS)}) {{1,2}}([0-9]{{1,2}}) ([0-9:]{{8}}) ([0-9]{{4}})$"
)
CTIME_LENGTH = 24
#: Columns that differ between the first GPUs of two machines.
_MACHINE = ("hostname", "uuid", "pci.bus_id")


class Row(Struct, frozen=True, kw_only=True):
    """What a tool wrote of one GPU at one moment."""

    #: Number of its first line, from 1.
    line: int
    #: Number of the box, header, or document that it is in, and the time there; ``None`` without one.
    moment: int
    time: datetime | None
    #: What names the GPU among those of a moment.
    gpu: str
    #: By the name of the column.
    cells: dict[str, str]


def lines_of(blocks: Iterable[Block]) -> Iterator[tuple[int, str]]:
    """Every line with its number."""
    for block in blocks:
        yield from enumerate(block.lines, block.line)


def documents_of(
    blocks: Iterable[Block], begins: Callable[[str], bool], ends: Callable[[str], bool]
) -> Iterator[tuple[int, str] | Skipped]:
    """The text of each document, and the number of its first line; one without beginning or end is left out."""
    document: list[str] = []
    start = size = 0
    for number, line in lines_of(blocks):
        if begins(line):
            if document:
                yield damaged_document(start)
            document, start, size = [], number, 0
        elif not document:
            if ends(line):
                yield damaged_document(number)
            continue
        size += len(line) + 1
        if size <= _MAX_DOCUMENT:
            document.append(line)
        if ends(line):
            yield (start, "\n".join(document)) if size <= _MAX_DOCUMENT else damaged_document(start)
            document = []
    if document:
        yield damaged_document(start)


def damaged_document(line: int) -> Skipped:
    """A document that is left out."""
    return Skipped(code="nvidia_smi.damaged_document", count=1, line=line, text="")


def part_of_row(line: int, text: str) -> Skipped:
    """A line of a GPU that is left out."""
    return Skipped(code="nvidia_smi.part_of_row", count=1, line=line, text=text)


def last_time(line: str) -> datetime | None:
    """The time that a line ends with, such as ``Sun Feb 16 08:10:45 2025``."""
    match = _CTIME.search(line.rstrip()[-CTIME_LENGTH:])
    if match is None:
        return None
    month = _MONTHS.index(match[1]) + 1
    return iso_time(f"{match[4]}-{month:02}-{int(match[2]):02} {match[3]}")


def iso_time(text: str) -> datetime | None:
    """A time such as ``2025-02-16 08:10:45``, to the second at least."""
    try:
        return datetime.fromisoformat(text) if text.count(":") > 1 else None
    except ValueError:
        return None


def as_tables(
    rows_of: Callable[[Iterable[Block]], Iterator[Row | Skipped]],
) -> Callable[[Iterable[Block], Sequence[str]], Iterator[Table | Skipped]]:
    """From the function of a form that gives rows, the one that gives tables."""
    return lambda blocks, _: _tables_of(rows_of(blocks))


def _tables_of(rows: Iterable[Row | Skipped]) -> Iterator[Table | Skipped]:
    """The rows as tables, and what is left out: rows without a time, and all rows if they are of one moment."""
    skipped = SkippedLines()
    batch: list[Row] = []
    several = same_second = False
    for row in _once_a_moment(rows):
        if isinstance(row, Skipped):
            skipped.add(row.code, row.text, row.line)
            continue
        several = several or bool(batch and row.moment != batch[-1].moment)
        batch.append(row)
        if len(batch) == _ROWS:
            # The rows of the last second stay together.
            whole = next((i for i in range(_ROWS, 0, -1) if batch[i - 1].time != row.time), _ROWS)
            times = _times(batch[:whole])
            same_second = same_second or any(map(ne, times, (row.time for row in batch)))
            yield _table(batch[:whole], times)
            batch = batch[whole:]
    times = _times(batch)
    if several and batch:
        yield _table(batch, times)
    elif batch:
        cells = batch[0].cells
        text = ", ".join(filter(None, (cells.get("name"), cells.get("memory.total"))))
        yield Skipped(
            code="nvidia_smi.one_moment",
            count=len(batch),
            line=batch[0].line,
            text=f"{len(batch)} × {text or 'GPU'}",
        )
    if same_second or any(map(ne, times, (row.time for row in batch))):
        yield Skipped(code="nvidia_smi.same_second", count=1, line=0, text="")
    yield from skipped.found.values()


def _once_a_moment(rows: Iterable[Row | Skipped]) -> Iterator[Row | Skipped]:
    """The rows, without those that have no time.

    A GPU that comes again belongs to another moment, of which the time was lost.
    """
    moment, seen = 0, set[str]()
    for row in rows:
        if isinstance(row, Skipped):
            yield row
            continue
        if row.moment != moment:
            moment, seen = row.moment, set()
        if row.time is None or row.gpu in seen or len(seen) == MAX_GPUS:
            yield Skipped(
                code="nvidia_smi.undated", count=1, line=row.line, text=" ".join(row.cells.values())
            )
        else:
            seen.add(row.gpu)
            yield row


def _table(rows: Sequence[Row], times: Sequence[datetime]) -> Table:
    names = dict.fromkeys(name for row in rows for name in row.cells)
    return Table(
        names=("timestamp", *names),
        line=0,
        columns=[
            Texts.of([time.isoformat(" ", "microseconds") for time in times]),
            *(Texts.of([row.cells.get(name, "") for row in rows]) for name in names),
        ],
        lines=np.array([row.line for row in rows]),
    )


def _times(rows: Sequence[Row]) -> list[datetime]:
    """When each row was written; moments of one machine with the same second lie evenly in it."""
    times: list[datetime] = []
    for time, some in groupby(rows, lambda row: row.time):
        moments = [list(mine) for _, mine in groupby(some, lambda row: row.moment)]
        machines = [tuple(map(mine[0].cells.get, _MACHINE)) for mine in moments]
        counts, before = Counter(machines), Counter[tuple[str | None, ...]]()
        for machine, mine in zip(machines, moments, strict=True):
            times += [time + timedelta(seconds=before[machine] / counts[machine])] * len(mine)
            before[machine] += 1
    return times
