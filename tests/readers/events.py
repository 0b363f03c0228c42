"""Trace files written for a test, and a reader of them that is slow and easy to check."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobreport.readers.base import Found
from jobreport.readers.directory import listing
from jobreport.readers.tally import Tally
from jobreport.readers.traces import Traces
from jobrules.job import Events

BASE_US = 1_700_000_000_000_000
HOUR = "framework/pevents/2023111422"
FILE = f"{HOUR}/1700000060000000_33-algo-1_pythontimeline.json"
EARLIEST_US, LATEST_US = 631_152_000_000_000, 4_102_444_800_000_000
FAR_US = 30 * 86400 * 1_000_000
DAY_US = 86400 * 1_000_000

#: Node, worker, phase, source, name, start, end, step, process and thread.
Event = tuple[str, str, str, str, str, int, int, int, int, int]
Row = dict[str, Any]


def base(us: object = BASE_US) -> Row:
    return {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": us}}


def lane(pid: object, phase: object) -> Row:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": phase}}


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
    return reader.read([file for file in listing(root, Tally()) if reader.knows(file) or reader.claims(file)])


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
        found.append((at.node, at.worker, at.phase, str(at.source), events.names[what], *numbers))
    return found


def remarks(found: Found) -> list[tuple[str, int, str, str]]:
    return [(r.action, r.count, r.unit, r.reason) for r in found.quality.remarks]


def lost_rows(found: Found) -> int:
    return sum(
        r.count for r in found.quality.remarks if r.unit == "rows" and r.action in ("skipped", "dropped")
    )


# The slow reader


class Expected:
    """What files with a row a line hold, straight from the definitions."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.metadata = 0
        self.rows = 0
        per_file: dict[str, Counter[Event]] = {}
        takes: dict[str, dict[Event, list[int]]] = {}
        for name in sorted(files):
            per_file[name], takes[name] = Counter(), defaultdict(list)
            for event, rows in self._of_file(name, files[name]):
                per_file[name][event] += 1
                takes[name][event].append(rows)
        self._unite_workers(per_file, takes)
        dated = any(_is_dated(event) for found in per_file.values() for event in found)
        self.events: Counter[Event] = Counter()
        self.used_rows = 0
        rows_of_event: dict[Event, int] = {}
        for event in {event for found in per_file.values() for event in found}:
            if dated and not _is_dated(event):
                continue
            most = max(found[event] for found in per_file.values())
            first = next(name for name in sorted(files) if per_file[name][event] == most)
            self.events[event] = most
            self.used_rows += sum(takes[first][event])
            rows_of_event[event] = sum(takes[first][event])
        last = max((event[5] for event in self.events), default=0)
        endless = [event for event in self.events.elements() if event[6] > last + DAY_US]
        if len(endless) <= max(1, self.events.total() / 100) and self.events.total() > 1:
            for event in set(endless):
                del self.events[event]
                self.used_rows -= rows_of_event[event]

    @staticmethod
    def _unite_workers(per_file: dict[str, Counter[Event]], takes: dict[str, dict[Event, list[int]]]) -> None:
        pids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for found in per_file.values():
            for event in found:
                pids[event[0], event[1]].add(event[8])
        ranks = {}
        for node, worker in pids:
            if int(worker) in pids[node, worker]:
                others = [
                    name
                    for where, name in pids
                    if where == node and int(name) not in pids[node, name] and int(worker) in pids[node, name]
                ]
                if len(others) == 1:
                    ranks[node, worker] = others[0]
        for name, found in per_file.items():
            for event in list(found):
                if rank := ranks.get((event[0], event[1])):
                    new = (event[0], rank, *event[2:])
                    found[new] += found.pop(event)
                    takes[name][new] += takes[name].pop(event)

    def _of_file(self, name: str, data: bytes) -> Iterable[tuple[Event, int]]:
        who, suffix = re.fullmatch(r"\d+_([^_]+)_(\w+)\.json(?:\.gz)?", name.rpartition("/")[2]).groups()  # type: ignore[union-attr]
        worker, _, node = who.partition("-")
        source = {"pythontimeline": "python", "horovod_timeline": "horovod", "model_timeline": "model"}[
            suffix
        ]
        if name.endswith(".gz"):
            data = zlib.decompressobj(31).decompress(data)
        at, phases, begun = 0, dict[Any, str](), defaultdict[Any, list[Any]](list)
        lines = data.decode().splitlines()
        for number, line in enumerate(lines, start=1):
            if line.strip() in ("[", "]", ""):
                continue
            self.rows += 1
            try:
                row = json.loads(line.strip().removesuffix(","))
            except ValueError:
                # The row in which a file was cut is part of the remark on the file.
                self.rows -= number == len(lines) and not data.rstrip().endswith(b"]")
                continue
            if not isinstance(row, dict):
                continue
            kind, what = row.get("ph"), row.get("name")
            args = row["args"] if isinstance(row.get("args"), dict) else {}
            is_rank = source == "horovod" and isinstance(what, str) and re.fullmatch("[0-9]+", what)
            if kind == "M":
                self.metadata += 1
                if what == "process_name" and args.get("start_time_since_epoch_in_micros") is not None:
                    told = args["start_time_since_epoch_in_micros"]
                    at = told if EARLIEST_US <= told <= LATEST_US else 0
                elif what == "process_name" and isinstance(args.get("name"), str):
                    phases[row.get("pid")] = args["name"]
            elif kind == "X":
                start, dur, rows, phase = (
                    row.get("ts"),
                    row.get("dur"),
                    1,
                    phases.get(row.get("pid"), "Unknown"),
                )
                dur = 0 if dur is None or is_rank else dur
                made = self._event(node, worker, phase, source, row, args, at, start, dur)
                if made:
                    yield made, rows
            elif kind == "B":
                begun[row.get("pid"), row.get("tid")].append(
                    (row, phases.get(row.get("pid"), "Unknown"), at, is_rank)
                )
            elif kind == "E" and begun[row.get("pid"), row.get("tid")]:
                first, phase, its_base, was_rank = begun[row.get("pid"), row.get("tid")].pop()
                both = (first["args"] if isinstance(first.get("args"), dict) else {}) | args
                ts, end = first.get("ts"), row.get("ts")
                numbers = isinstance(ts, int | float) and isinstance(end, int | float)
                first = {**first, "name": first.get("name") or what or first.get("name")}
                dur = _apart(ts, its_base, end, at) if numbers else -1
                if was_rank or (source == "horovod" and re.fullmatch("[0-9]+", str(first["name"]))):
                    dur = 0
                made = self._event(node, worker, phase, source, first, both, its_base, ts, dur)
                if made:
                    yield made, 2

    def _event(
        self,
        node: str,
        worker: str,
        phase: str,
        source: str,
        row: Row,
        args: Row,
        at: int,
        start: Any,
        dur: Any,
    ) -> Event | None:
        if not isinstance(row.get("name"), str):
            return None
        if not (_is_number(start) and 0 <= start <= LATEST_US and _is_number(dur) and 0 <= dur <= FAR_US):
            return None
        thread = next(
            (n for v in (args.get("thread_id"), row.get("tid"), args.get("tid")) if (n := _whole(v)) >= 0), -1
        )
        return (
            node,
            worker,
            phase,
            source,
            row["name"],
            _moment(start, at, 0),
            _moment(start, at, dur),
            _whole(args.get("step_num")),
            _whole(args.get("pid")),
            thread,
        )


def _moment(ts: float, base_us: int, dur: float) -> int:
    return (0 if ts > 10**14 else base_us) + round(ts + dur)


def _apart(ts: Any, base_us: int, end: Any, end_base_us: int) -> Any:
    """Between two times, each of which may have a base."""
    return end - ts + (0 if end > 10**14 else end_base_us) - (0 if ts > 10**14 else base_us)


def _is_dated(event: Event) -> bool:
    return event[5] >= EARLIEST_US and event[6] <= LATEST_US


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> int:
    try:
        number = int(value) if isinstance(value, int | float | str) else -1
    except (ValueError, OverflowError):
        return -1
    exact = isinstance(value, str) or number == value
    return number if exact and 0 <= number < 10**18 else -1
