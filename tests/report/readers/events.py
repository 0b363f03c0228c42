"""Trace files written for a test."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobreport.readers.base import Found
from jobreport.readers.listing import listing
from jobreport.readers.tally import Tally
from jobreport.readers.traces.reader import Traces
from jobrules.model import Events

BASE_US = 1_700_000_000_000_000
DAY_US = 86400 * 1_000_000
HOUR = "framework/pevents/2023111422"
FILE = f"{HOUR}/1700000060000000_33-algo-1_pythontimeline.json"
Row = dict[str, Any]
#: Node, rank, event type, source, name, start, end, step, process and thread.
Event = tuple[str, str, str, str, str, int, int, int, int, int]


def base(us: object = BASE_US) -> Row:
    return {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": us}}


def lane(pid: object, event_type: object) -> Row:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": event_type}}


def x(name: object = "op", ts: object = 1000, dur: object = 10, pid: object = 1, **more: object) -> Row:
    """A complete event; ``...`` leaves a key out."""
    row = {"name": name, "pid": pid, "ph": "X", "ts": ts, "dur": dur, **more}
    return {key: value for key, value in row.items() if value is not ...}


def text(rows: Iterable[Row | str]) -> str:
    """The file that the profiler writes: a row a line."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        path.write_bytes(
            gzip.compress(data, mtime=0) if name.endswith(".gz") and data[:2] != b"\x1f\x8b" else data
        )


def read(root: Path, files: Mapping[str, str | bytes] | None = None) -> Found:
    """Write the files and read what the reader claims of them."""
    if files is not None:
        write(root, files)
    reader = Traces()
    return reader.read(
        [file for file in listing(root, Tally()) if reader.matches_name(file) or reader.matches_content(file)]
    )


def read_rows(root: Path, *rows: Row | str, name: str = FILE) -> Found:
    return read(root, {name: text(rows)})


def rows_of(events: Events) -> list[Event]:
    columns = (
        events.lane,
        events.name,
        events.start_us,
        events.end_us,
        events.step,
        events.pid,
        events.thread,
    )
    found = []
    for where, what, *numbers in zip(*(column.tolist() for column in columns), strict=True):
        at = events.lanes[where]
        found.append((at.node, at.rank, at.event_type, str(at.source), events.names[what], *numbers))
    return found


def remarks(found: Found) -> list[tuple[str, int]]:
    return [(r.code.removeprefix("traces."), r.count) for r in found.quality.remarks]


def lost_rows(found: Found) -> int:
    return sum(
        r.count
        for r in found.quality.remarks
        if r.unit in ("rows", "lines") and r.action in ("skipped", "dropped")
    )
