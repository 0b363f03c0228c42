"""Parts of a log that was rotated: one without a header line has the columns of another part."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.readers import text_files
from jobreport.readers.nvidia_smi.columns import is_header
from jobreport.readers.nvidia_smi.headed import header_names
from jobreport.readers.nvidia_smi.lines import blocks
from jobreport.readers.nvidia_smi.times import are_dates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile

#: What is put behind the name of a log that is rotated: ``gpu.csv.1``, ``gpu.csv-20260103.gz``.
_PART = re.compile(r"(?:[.-][0-9]+)*(?:\.gz)?$", re.IGNORECASE)


class Header(Struct, frozen=True, kw_only=True):
    """The header line of a part."""

    names: tuple[str, ...]
    file: SourceFile


class Parts:
    """The files of a job directory, by the log that they may be parts of."""

    def __init__(self, files: Sequence[SourceFile] = ()) -> None:
        """``files`` are all of the directory; parts among them are read when a log needs them."""
        self._of: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in sorted(files):
            self._of[stem_of(file)].append(file)

    def header_of(self, file: SourceFile, beginning: str) -> Header | None:
        """The header of the other parts of a log without one, if all of them have the same, with as many columns."""
        rows = [line.split(",") for line in beginning.split("\n")[:-1] if "," in line]
        # Where a log was rotated, the first row may be half of one.
        first = next((row for row in rows[:2] if are_dates(row).any()), None)
        if first is None or is_header([*map(str.strip, rows[0])]):
            return None
        others = (other for other in self._of[stem_of(file)] if other != file)
        headers = {header_names(beginning_of(other)): other for other in others}
        found = [
            Header(names=names, file=other) for names, other in headers.items() if len(names) == len(first)
        ]
        return found[0] if len(found) == 1 else None


def stem_of(file: SourceFile) -> str:
    """The path of a log without what is put behind the name of a part of it."""
    return _PART.sub("", file.name.lower())


def beginning_of(file: SourceFile) -> str:
    """The first lines of a file."""
    try:
        chunk = next(text_files.chunks(file.path), b"")
    except (OSError, text_files.DamagedError):
        chunk = b""
    return "\n".join(line for block in blocks([chunk], lambda _: None) for line in block.lines)
