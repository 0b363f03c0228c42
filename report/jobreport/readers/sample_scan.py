"""The rows of sample files: of sound ones by arrays over their bytes, of all others by DuckDB."""

from __future__ import annotations

import contextlib
import os
from operator import attrgetter
from typing import TYPE_CHECKING

from jobreport.readers.sample_text import SoundFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.sample_lines import Source
    from jobreport.readers.sample_rows import Rows
    from jobreport.readers.tally import Tally

#: Files that are read together: enough to keep all threads busy, few enough to bound memory.
_BATCH_BYTES = 256 << 20
_BATCH_FILES = 4096

_threads = os.cpu_count() or 1


def share_cores(processes: int) -> None:
    """This is one of several processes that read at the same time."""
    global _threads  # noqa: PLW0603 - set once, when a process begins
    _threads = max(1, (os.cpu_count() or 1) // processes)


def scan(files: Sequence[SourceFile], tally: Tally) -> Iterator[tuple[list[Rows], int]]:
    """Read the files, some at a time; rows come in the order of the files, with the bytes that they took.

    Every line but the blank ones is a row. A line that is no JSON object is one without a type.
    """
    sound = SoundFiles()
    duckdb: Source | None = None
    with contextlib.ExitStack() as stack:
        for batch in _batches(files):
            rows: list[Rows] = []
            others = []
            for number in batch:
                found = sound.rows(number, files[number].path)
                if found is None:
                    others.append(number)
                else:
                    rows += found
            if others:
                if duckdb is None:
                    from jobreport.readers import sample_lines  # noqa: PLC0415 - a slow import, seldom needed

                    duckdb = stack.enter_context(sample_lines.opened(files, tally, _threads))
                rows += duckdb.rows(others)
                rows.sort(key=attrgetter("file"))
            yield rows, sum(files[number].size for number in batch)


def _batches(files: Sequence[SourceFile]) -> Iterator[list[int]]:
    batch: list[int] = []
    total = 0
    for number, file in enumerate(files):
        if batch and (total + file.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
            yield batch
            batch, total = [], 0
        batch.append(number)
        total += file.size
    if batch:
        yield batch
