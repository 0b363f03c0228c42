"""Columns of a log without a header line, from the command that wrote it: ``--query-gpu=…`` in a script next to it.

Or from the header of another part of the same log, which was rotated.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.readers import text_files
from jobreport.readers.nvidia_smi import columns as says
from jobreport.readers.nvidia_smi.cells import IMPLAUSIBLE
from jobreport.readers.nvidia_smi.columns import column, is_header
from jobreport.readers.nvidia_smi.headed import header_names
from jobreport.readers.nvidia_smi.lines import blocks
from jobreport.readers.nvidia_smi.measured import Measured
from jobreport.readers.nvidia_smi.table import Texts
from jobreport.readers.nvidia_smi.times import is_date
from jobreport.readers.tally import UnusableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.readers.base import SourceFile

#: What is put behind the name of a log that is rotated: ``gpu.csv.1``, ``gpu.csv-20260103.gz``.
_PART = re.compile(r"(?:[.-][0-9]+)*(?:\.gz)?$", re.IGNORECASE)
_SUFFIXES = (".sh", ".sbatch", ".slurm", ".py", ".ipynb", ".yaml", ".yml", ".md", ".log")
_MAX_SCRIPT = 1 << 20
_QUERY = re.compile(rb"--query-gpu=[\\\"']{0,2}([a-z][a-z0-9_.]*(?:,[\s\\\"']*[a-z][a-z0-9_.]*)+)")
#: Share of the rows in which a cell may be damaged.
_DAMAGED = 0.01
#: What the tool writes of a moment or a GPU.
_IS_CELL: dict[str, Callable[[str], object]] = {
    says.TIME: is_date,
    says.INDEX: str.isdecimal,
    says.UUID: re.compile(r"GPU-[0-9a-f-]+").fullmatch,
    says.BUS: re.compile(r"[0-9A-Fa-f:]+\.[0-9A-Fa-f]").fullmatch,
}


class Query(Struct, frozen=True, kw_only=True):
    """A command, or the header that it wrote."""

    names: tuple[str, ...]
    #: Path of the script, or of the log with the header.
    file: str


class Queries:
    """The commands in all scripts of a job directory."""

    def __init__(self, files: Sequence[SourceFile] = ()) -> None:
        """``files`` are all of the directory; scripts and parts among them are read when a log needs them."""
        self._parts: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in sorted(files):
            self._parts[stem_of(file)].append(file)
        self._scripts = [
            file for file in sorted(files) if file.name.endswith(_SUFFIXES) and file.size <= _MAX_SCRIPT
        ]

    @cached_property
    def _all(self) -> list[Query]:
        return [
            Query(
                names=tuple(name.strip(" \t\r\n\\\"'") for name in found.decode().split(",")), file=file.name
            )
            for file in self._scripts
            for found in _QUERY.findall(_content(file))
        ]

    def of(self, file: SourceFile, beginning: str) -> Query | None:
        """The command that wrote a log without a header line, or the header of another part of the log.

        It has as many names as the log has columns, other commands with as many have the same names, and the cells are
        possible for their names.
        """
        rows = [line.split(",") for line in beginning.split("\n")[:-1] if "," in line]
        # Where a log was rotated, the first row may be half of one.
        first = next((row for row in rows[:2] if any(map(is_date, row))), [])
        if not first or is_header([*map(str.strip, rows[0])]):
            return None
        queries = self._headers(file) or self._all
        found = [query for query in queries if len(query.names) == len(first)]
        if len({query.names for query in found}) != 1:
            return None
        whole = [row for row in rows if len(row) == len(first)]
        possible = all(map(_is_possible, found[0].names, map(Texts.of, zip(*whole, strict=True))))
        return found[0] if possible else None

    def _headers(self, file: SourceFile) -> list[Query]:
        """The headers of the other parts of a log."""
        others = (other for other in self._parts[stem_of(file)] if other != file)
        headers = ((other, header_names(beginning_of(other))) for other in others)
        return [Query(names=names, file=other.name) for other, names in headers if names]


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


def _content(file: SourceFile) -> bytes:
    try:
        return text_files.content(file.path, _MAX_SCRIPT)
    except UnusableError:
        return b""


def _is_possible(name: str, texts: Texts) -> bool:
    """Whether the cells of a column are such as the tool writes for a name."""
    meaning, rows = column(name), len(texts.code)
    if meaning is None:
        return True
    if meaning.metric:
        one = Measured(name, meaning, meaning.metric)
        one.read(texts, np.arange(rows))
        no_number = one.lost.get(IMPLAUSIBLE)
        return one.unit.factor is not None and (not no_number or no_number.cells <= _DAMAGED * rows)
    is_cell = _IS_CELL.get(meaning.says, bool)
    return sum(not is_cell(texts[row]) for row in range(rows)) <= _DAMAGED * rows
