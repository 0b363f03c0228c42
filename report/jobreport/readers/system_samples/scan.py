"""The rows of sample files: of sound ones by arrays over their bytes, of all others line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.readers.system_samples import lines
from jobreport.readers.system_samples.text import SoundFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.system_samples.rows import Rows
    from jobreport.readers.tally import Tally

#: Files whose rows are handed on together: enough to join many arrays at once, few enough to bound memory.
_BATCH_BYTES = 256 << 20
_BATCH_FILES = 4096


def scan(files: Sequence[SourceFile], tally: Tally) -> Iterator[tuple[list[Rows], int]]:
    """Read the files, some at a time; rows come in the order of the files, with the bytes that they took.

    Lines that are no samples, and files that cannot be read, go to the tally.
    """
    sound = SoundFiles()
    for batch in _batches(files):
        found: list[Rows] = []
        for number in batch:
            rows = sound.rows(number, files[number].path)
            found += lines.rows(number, files[number], tally) if rows is None else rows
        yield found, sum(files[number].size for number in batch)


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
