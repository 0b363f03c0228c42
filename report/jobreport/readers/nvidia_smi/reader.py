"""Logs of ``nvidia-smi`` and ``gpustat`` in a loop, in one file or many.

Known by their first lines, whatever the file is called. A row is what a log says of one GPU at one
moment.
"""

from __future__ import annotations

from datetime import UTC
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.base import FileFailedError, Found
from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.names import as_name
from jobreport.readers.nvidia_smi import boxed, gpustat, gpustat_json, headed, query_text, query_xml
from jobreport.readers.nvidia_smi.headed import NO_HEADER
from jobreport.readers.nvidia_smi.identity import machines_of
from jobreport.readers.nvidia_smi.lines import blocks
from jobreport.readers.nvidia_smi.logs import logs_of
from jobreport.readers.nvidia_smi.parts import Parts, beginning_of, stem_of
from jobreport.readers.nvidia_smi.prefixes import prefix_of, without_prefix, writer_of
from jobreport.readers.nvidia_smi.row_reading import FileRows
from jobreport.readers.nvidia_smi.rows import GPU, Rows, count_of, in_time, joined
from jobreport.readers.nvidia_smi.table import Skipped
from jobreport.readers.tally import Tally
from jobreport.remarks import LogFile, SourceQuality
from jobrules.measures.snapshots import TOLERANCE_US, Series, node_panels
from jobrules.model import SECOND_US, natural_key
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import tzinfo

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.identity import Machine
    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.nvidia_smi.parts import Header
    from jobreport.readers.nvidia_smi.row_reading import Part
    from jobreport.readers.nvidia_smi.table import Form
    from jobrules.model import FloatArray, Metric, Panel

_SUFFIXES = ("", ".csv", ".tsv", ".txt", ".log", ".out", ".dmon", ".pmon")
#: Forms with suffixes of their own.
_DOCUMENTS: dict[str, Form] = {".json": gpustat_json, ".xml": query_xml}
#: The forms of logs; the first one that a file is of reads it.
_FORMS: tuple[Form, ...] = (query_xml, query_text, gpustat_json, headed, gpustat, boxed)
#: Bytes of a file that show its form.
_BEGINNING = 1 << 16
#: Rows of one moment lie within half of nearly every interval: all but this share, and within a second.
_SHORT_INTERVALS = 0.05


def may_be_log(file: SourceFile) -> bool:
    """Whether a log may have the name."""
    return _ending(file) in (*_SUFFIXES, *_DOCUMENTS)


def _ending(file: SourceFile) -> str:
    stem, dot, suffix = stem_of(file).rpartition("/")[2].rpartition(".")
    return f".{suffix}" if dot and stem else ""


class NvidiaSmi:
    """Reads logs of ``nvidia-smi``.

    Each line that is not blank and names no columns is a row: in use, or counted under the reason why it is not.
    """

    source = "nvidia-smi logs"
    looks_for = "nvidia-smi logs (--query-gpu as CSV with a header line, dmon, pmon, -l, -q; also gpustat)"
    memory = 4.0
    rows = "rows"
    names_machines = False

    def __init__(
        self,
        zone: tzinfo = UTC,
        columns: Sequence[str] = (),
        date_order: str = "",
        files: Sequence[SourceFile] = (),
    ) -> None:
        """``zone`` is that of times without one, ``columns`` are the names of those of logs without a header line.

        ``date_order`` is that of dates which do not show it. ``files`` are all of the job directory.
        """
        self._zone = zone
        self._columns = columns
        self._date_order = date_order
        self._file_parts = Parts(files)

    def matches_name(self, _: SourceFile, /) -> bool:
        """No: such a log may be called anything."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By a line near the beginning that names its columns, or by its first row."""
        if not may_be_log(file):
            return False
        ending, beginning = _ending(file), beginning_of(file)
        if ending in _DOCUMENTS:
            return _DOCUMENTS[ending].is_log(beginning, ())
        return self._form(beginning) is not None or self._header(file, beginning) is not None

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: only their content says which are of one machine."""
        return {"": list(files)} if files else {}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all rows into panels; the order of the files does not matter."""
        tally = Tally()
        logs: list[Log] = []
        for file in sorted(files):
            try:
                note = partial(tally.note, file=file.name)
                logs += logs_of(file, self._parts(file, note), self._date_order, self._zone, note)
            except Exception as error:
                raise FileFailedError(file) from error
            progress.advance(file.size)
        files_used = len({log.file.name for log in logs})
        panels, rows, known = _panels(logs, tally)
        quality = SourceQuality(
            source=self.source, files=files_used, rows=rows, remarks=tally.remarks(), logs=known
        )
        return Found(quality=quality, panels=panels)

    def _form(self, text: str) -> Form | None:
        return next((form for form in _FORMS if form.is_log(text[:_BEGINNING], self._columns)), None)

    def _header(self, file: SourceFile, text: str) -> Header | None:
        """The header in another part of a log; given names stand above it."""
        header = self._file_parts.header_of(file, text)
        return header if header and len(header.names) != len(self._columns) else None

    def _parts(self, file: SourceFile, note: Callable[..., None]) -> list[Part]:
        """The rows under each header."""
        rows = FileRows(note)

        def skip(lines: Skipped) -> None:
            code, fields = lines.code, {}
            if code == NO_HEADER and self._columns:
                code, fields = "nvidia_smi.column_count", {"columns": len(self._columns)}
            note(code, count=lines.count, line=lines.line, text=lines.text, **fields)

        lines = blocks(_chunks(file, note), skip)
        first = list(islice(lines, 1))
        lines = chain(first, lines)
        # Each line is at least its end.
        beginning = "\n".join(line for block in first for line in block.lines[:_BEGINNING])[:_BEGINNING]
        form, names = self._form(beginning) or headed, self._columns
        if form is not headed and (prefix := prefix_of(first_lines := beginning.split("\n")[:-1])):
            if len({writer_of(line, prefix) for line in first_lines}) > 1:
                note("nvidia_smi.several_writers", row=escape_name(first_lines[0], 40))
                return []
            lines = (without_prefix(block, prefix) for block in lines)
        if form is headed and (header := self._header(file, beginning)):
            names = header.names
            note("nvidia_smi.header_of_part", name=escape_name(header.file.name, 200))
        for part in form.tables(lines, names):
            if isinstance(part, Skipped):
                skip(part)
            else:
                rows.add(part)
        return rows.finish()


def _chunks(file: SourceFile, note: Callable[..., None]) -> Iterator[bytes]:
    """The text of a file; what cannot be read is noted."""
    try:
        yield from text_files.chunks(file.path)
    except text_files.DamagedError as error:
        code, fields = error.remark
        note(code, **fields)
    except OSError as error:
        note("file.unreadable", reason=error.strerror or "")


def _panels(logs: list[Log], tally: Tally) -> tuple[tuple[Panel, ...], int, tuple[LogFile, ...]]:
    """The panels of all machines, how many rows are in them, and which log is of which machine.

    The logs are used up, for they take most of the memory.
    """
    panels: list[Panel] = []
    files: list[LogFile] = []
    rows = 0
    machines = machines_of(logs, tally)
    rows_of = {number: logs.pop(0).gpus for number in range(len(logs))}
    for machine in sorted(machines, key=lambda one: natural_key(one.name)):
        gpus = _rows_by_gpu(machine, rows_of, tally)
        rows += sum(len(gpu.time_us) for gpu in gpus.values())
        series = [one for name in [*gpus] for one in _series_of(name, gpus.pop(name))]
        tolerance_us = _tolerance_us(series)
        # Each panel takes the place of the series that it is made of.
        made = node_panels(as_name(machine.name), (series.pop(0) for _ in range(len(series))), tolerance_us)
        tally.note("samples.second", count=made.surplus, unit="values")
        panels += made.panels
        files += [
            LogFile(
                file=log.file.name,
                node=as_name(machine.name),
                gpus=len({machine.gpus[seen.gpu] for seen in log.gpus if seen.gpu in machine.gpus}),
                first_us=log.first_us,
                last_us=log.last_us,
                rows=log.rows,
            )
            for log in machine.logs
        ]
    return tuple(panels), rows, tuple(sorted(files, key=lambda one: (natural_key(one.file), one.node)))


def _tolerance_us(series: Sequence[Series]) -> int:
    """Width of a snapshot."""
    # Measures of a GPU without a missing value share their times.
    times = {id(one.time_us): one.time_us for one in series if len(one.time_us) > 1}
    short_us = [float(np.quantile(np.diff(some), _SHORT_INTERVALS)) for some in times.values()]
    return int(min(max(min(short_us, default=0.0) / 2, TOLERANCE_US), SECOND_US))


def _rows_by_gpu(machine: Machine, logs: dict[int, list[Rows]], tally: Tally) -> dict[str, Rows]:
    """The rows of each GPU of one machine, in the order of time, each time once; those of its logs are used up."""
    parts: list[Rows] = []
    for log in machine.logs:
        for rows in logs.pop(log.number):
            if name := machine.gpus.get(rows.gpu):
                parts.append(replace(rows, gpu=GPU(name=name)))
            else:
                tally.note("nvidia_smi.not_joined", count=len(rows.time_us), file=log.file.name)
    gpus = sorted(joined(parts), key=lambda rows: natural_key(rows.gpu.name))
    tally.note("samples.devices", count=count_of(gpus[MAX_GPUS:]), unit="rows", limit=MAX_GPUS)
    return {rows.gpu.name: _once(in_time(rows), tally) for rows in gpus[:MAX_GPUS]}


def _once(gpu: Rows, tally: Tally) -> Rows:
    """One row of a GPU, in the order of time, for each time, with the first value of each metric at that time."""
    first = np.diff(gpu.time_us, prepend=gpu.time_us[0] - 1) != 0
    if first.all():
        return gpu
    rows, starts = np.arange(len(first)), np.flatnonzero(first)
    values: dict[Metric, FloatArray] = {}
    for metric, measured in gpu.values.items():
        # The first row of each time that has a value, or the number of all rows where none has.
        place = np.minimum.reduceat(np.where(np.isnan(measured), len(rows), rows), starts)
        values[metric] = np.append(measured, np.nan)[place]
    tally.note("nvidia_smi.second_row", count=len(rows) - len(starts))
    return replace(gpu.where(first), values=values)


def _series_of(name: str, gpu: Rows) -> Iterator[Series]:
    """The samples of each metric of a GPU, which gives them up."""
    for metric in [*gpu.values]:
        values = gpu.values.pop(metric)
        there = ~np.isnan(values)
        if there.all():
            yield Series(metric=metric, device=name, time_us=gpu.time_us, values=values)
        elif there.any():
            yield Series(metric=metric, device=name, time_us=gpu.time_us[there], values=values[there])
