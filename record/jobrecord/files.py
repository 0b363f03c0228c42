"""Files of samples: one per minute and node, a JSON object a line, appended at each tick.

``system/incremental/<YYYYMMDDHH>/<start of the minute>.<node>.json``, after a restart in the same minute a second later;
a closed minute is gzipped. Any prefix of an open file is readable, so a kill costs at most the tick that is being written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

from jobrecord.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MINUTE_S = 60
#: gzip's own level, and the window that makes zlib write gzip's frame.
_LEVEL, _GZIP = 6, 31


class Row(NamedTuple):
    """One value of one sensor."""

    type: str
    name: str
    dimension: str
    value: float


class SampleFiles:
    """Writes rows; never raises for a disk that is full or gone, but counts what it drops and tries again each minute."""

    def __init__(self, out: Path, node: str, max_bytes: int) -> None:
        self.node = node
        self.max_bytes = max_bytes
        #: On the disk, closed minutes compressed.
        self.bytes_kept = 0
        self.dropped_rows = 0
        self.dropped_bytes = 0
        #: Why rows were dropped, since when, and when the last one was; None if none were.
        self.reason: str | None = None
        self.since_us: int | None = None
        self.until_us: int | None = None
        self._out = out
        self._open: _MinuteFile | None = None
        #: Minute in which nothing more is written.
        self._refused: int | None = None
        self._starts: dict[tuple[str, str, str], str] = {}
        self._tail = f',"NodeId":{json.dumps(node)},"Timestamp":'

    def write(self, now_s: float, rows: Iterable[Row]) -> None:
        """Append the rows of one tick, all with the time stamp `now_s`."""
        stamp = f"{self._tail}{now_s:.6f}}}\n"
        lines = [f"{self._start(row)}{row.value:.2f}{stamp}" for row in rows]
        data = "".join(lines).encode()
        minute = int(now_s) // MINUTE_S * MINUTE_S
        try:
            if self._open is None or self._open.minute != minute:
                self.close()
                if minute != self._refused:
                    self._open = _MinuteFile(self._out, minute, self.node)
            if self._open is None:
                self._drop(len(lines), len(data))
            elif self.bytes_kept + self._open.size + len(data) > self.max_bytes:
                self._refuse(minute, f"--max-bytes {self.max_bytes} reached")
                self._drop(len(lines), len(data))
            else:
                self._open.append(data)
        except OSError as error:
            self._refuse(minute, error.strerror or str(error))
            self._drop(len(lines), len(data))

    def close(self) -> None:
        """Gzip the open minute."""
        if self._open is not None:
            file, self._open = self._open, None
            try:
                self.bytes_kept += file.close()
            except OSError as error:
                # The plain file stays, which is as good for a reader.
                self.bytes_kept += file.size
                self.note(error.strerror or str(error))

    def _start(self, row: Row) -> str:
        key = row[:3]
        if key not in self._starts:
            type_, name, dimension = map(json.dumps, key)
            self._starts[key] = f'{{"Type":{type_},"Name":{name},"Dimension":{dimension},"Value":'
        return self._starts[key]

    def _refuse(self, minute: int, reason: str) -> None:
        self.close()
        self._refused = minute
        self.note(reason)

    def note(self, reason: str) -> None:
        """Remember why something could not be written, and since when."""
        if self.reason is None:
            self.since_us = time.time_ns() // 1000
        self.reason = reason

    def _drop(self, rows: int, size: int) -> None:
        self.until_us = time.time_ns() // 1000
        self.dropped_rows += rows
        self.dropped_bytes += size


class _MinuteFile:
    """The file of one minute, compressed in memory while it is written, so that no tick waits for a whole minute.

    A recorder of the same node, earlier or at the same time, may have files of this minute: this one is then named for
    the next second without a file. Raises OSError.
    """

    def __init__(self, out: Path, minute: int, node: str) -> None:
        self.minute = minute
        self.size = 0
        self._place = out, f"system/incremental/{time.strftime('%Y%m%d%H', time.gmtime(minute))}"
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._packed: list[bytes] = []
        with Folder(*self._place, make=True) as folder:
            for second in itertools.count(minute):
                self._name = f"{second}.{node}.json"
                try:
                    self._file = folder.create(self._name)
                except FileExistsError:
                    continue
                # Whoever had the name gave it up after the closed file was there.
                if not folder.has(f"{self._name}.gz"):
                    break
                os.close(self._file)
                folder.remove(self._name)

    def append(self, data: bytes) -> None:
        """Write all of `data`, or none of it."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)
        self._packed.append(self._packer.compress(data))

    def close(self) -> int:
        """Replace the file by its compressed form; returns the size of that."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)
        with Folder(*self._place) as folder:
            if not self.size:
                folder.remove(self._name)
                return 0
            self._packed.append(self._packer.flush())
            data = b"".join(self._packed)
            part = f"{self._name}.gz.tmp"
            file = folder.create(part)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(file)
                folder.move(part, folder, f"{self._name}.gz")
            except OSError:
                folder.remove(part)
                raise
            folder.remove(self._name)
        return len(data)
