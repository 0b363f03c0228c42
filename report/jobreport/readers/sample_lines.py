"""Lines of JSON with one sample each, into arrays: all that this package asks of DuckDB.

DuckDB decides what a line holds; where it gives up on a whole file, the file is repaired into a
temporary copy and read again.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from jobreport.folders import Scratch
from jobreport.readers import plain
from jobreport.readers.sample_rows import ABSENT, LONGEST_LINE, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "temp_directory": "",
}
_QUERY = f"""
    select file_index, NodeId, Type, Dimension, Name,
           list(coalesce(Timestamp, 'nan')), list(coalesce(Value, {ABSENT!r}))
    from read_json($files, format = 'newline_delimited', ignore_errors = true, hive_partitioning = false,
                   columns = {{
                       NodeId: 'VARCHAR', Type: 'VARCHAR', Dimension: 'VARCHAR', Name: 'VARCHAR',
                       Timestamp: 'DOUBLE', Value: 'DOUBLE'}})
    group by all
"""  # noqa: S608 - made of constants


@contextlib.contextmanager
def opened(files: Sequence[SourceFile], tally: Tally, threads: int) -> Iterator[Source]:
    """What reads files of a list."""
    with (
        Scratch() as scratch,
        duckdb.connect(":memory:", config=_SETTINGS | {"threads": threads}) as connection,
    ):
        yield Source(connection, Path(scratch), files, tally)


class Source:
    """A DuckDB connection with the ways round what it refuses to read; files go by their numbers in the list."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, scratch: Path, files: Sequence[SourceFile], tally: Tally
    ) -> None:
        self._connection = connection
        self._scratch = scratch
        self._files = files
        self._tally = tally

    def rows(self, batch: list[int]) -> list[Rows]:
        """The rows of some files, in their order, repaired where needed.

        Every line but the blank ones is a row. A line that is no JSON object is one without a type.
        """
        path = {number: self._files[number].path for number in batch}
        repair = {number for number in batch if not _is_nameable(path[number])}
        try:
            rows = self._query([(number, path[number]) for number in batch if number not in repair])
        except duckdb.Error:
            # One unreadable file fails the query for all.
            if len(batch) > 1:
                return list(itertools.chain.from_iterable(self.rows([number]) for number in batch))
            return self._repaired(batch[0])
        # A line that is no JSON may come of a byte order mark or of compressed data that is cut short.
        no_json = {row.file for row in rows if row.type is None}
        repair |= {number for number in no_json if plain.is_wrapped(path[number])}
        if repair:
            rows = [row for row in rows if row.file not in repair]
            rows += itertools.chain.from_iterable(self._repaired(number) for number in sorted(repair))
        rows.sort(key=attrgetter("file"))
        return rows

    def _query(self, files: list[tuple[int, Path]]) -> list[Rows]:
        if not files:
            return []
        names = [glob.escape(str(path)) for _, path in files]
        try:
            table = self._connection.execute(_QUERY, {"files": names}).fetchnumpy()
        except (RuntimeError, duckdb.InterruptException) as error:
            # So DuckDB passes Ctrl-C on.
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            raise
        columns: list[list[Any]] = [column.tolist() for column in table.values()]
        numbers = [files[position][0] for position in columns[0]]
        return list(map(Rows, numbers, *columns[1:]))

    def _repaired(self, number: int) -> list[Rows]:
        """Read a plain copy of what can be read of the file."""
        name, path = self._files[number].name, self._files[number].path
        # A name of its own, because DuckDB may keep in mind what it read under a name.
        copy = self._scratch / f"{number}.json"
        try:
            with copy.open("wb") as target:
                for i, line in enumerate(plain.lines(path, LONGEST_LINE), start=1):
                    if line is None:
                        self._tally.add("skipped", "lines", "too long for a sample", file=name, line=i)
                    else:
                        target.write(line + b"\n")
        except plain.DamagedError:
            reason = "compressed data is cut short or damaged; what comes before is in use"
            self._tally.add("skipped", "files", reason, file=name)
        except OSError as error:
            self._tally.add("skipped", "files", f"cannot be read: {error.strerror}", file=name)
            return []
        try:
            return self._query([(number, copy)])
        except duckdb.Error:
            self._tally.add("skipped", "files", "cannot be read as lines of JSON", file=name)
            return []
        finally:
            copy.unlink()


def _is_nameable(path: Path) -> bool:
    """Whether DuckDB can be given the path: it wants UTF-8, and has no escape for a backslash."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return os.sep == "\\" or "\\" not in text
