"""What trace files hold, by a reader that is slow and easy to check.

A *row* is a value in the list of a trace, or a line that cannot be read. Rows of metadata are not counted, and a begin
and its end count as one.

One thing is taken from the reader under test, ``usable``: which files are read, and what their names and the folders
around them say of node, rank, source and time. ``tests/report/readers/traces/test_reader.py`` holds that by names and
folders written by hand.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from fuzz.sample_rows_reference import Rows, unpacked
from jobreport.readers.base import SourceFile
from jobreport.readers.tally import Tally
from jobreport.readers.traces.reader import usable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobreport.readers.traces.files import Origin

EARLIEST_US, LATEST_US = 631_152_000_000_000, 4_102_444_800_000_000
FAR_US = 30 * 86400 * 1_000_000

#: Node, rank, event type, source, name, start, end, step, process and thread.
Event = tuple[str, str, str, str, str, int, int, int, int, int]

#: Stands for a row that cannot be read.
DAMAGED = object()

_BLANKS = " \t\r\n"
_AROUND = _BLANKS + ",[]"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def rows(files: Mapping[str, bytes]) -> Rows:
    """Of all trace files of a job, by their paths."""
    found = Expected(files)
    return Rows(found.rows, found.events.total())


# Text to values


def values(content: bytes) -> list[object]:
    """The values of the rows of a file; ``DAMAGED`` for one that cannot be read or used."""
    text = unpacked(content).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    head = re.match(r'[ \t\r\n]*(\[|\{.*?"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[)', text, re.DOTALL)
    text = text[head.end() :] if head else text
    lines = text.split("\n")
    first = [line.strip(_AROUND) for line in lines[:8] if line.strip(_AROUND)]
    if 2 * sum(_is_row(_json(line)) for line in first) > len(first):
        found = _of_lines(text, is_object=head is not None and head[1] != "[")
    else:
        found = _in_order(text)
    return [value if _is_row(value) else DAMAGED for value in found]


def _of_lines(text: str, *, is_object: bool) -> Iterator[object]:
    """Each line by itself; of the last one of a text without an end only what can be read."""
    closing = re.search(r"\][ \t\r\n]*\}[ \t\r\n]*\Z" if is_object else r"\][ \t\r\n]*\Z", text)
    lines = text[: closing.start() if closing else None].split("\n")
    for number, line in enumerate(lines, 1):
        if is_object and line.strip(_BLANKS)[:2] in ("]", "],", "]}"):
            return
        found = _json(f"[{line.strip(_AROUND)}]")
        if isinstance(found, list):
            yield from found
        elif number < len(lines) or closing:
            yield DAMAGED


def _in_order(text: str) -> Iterator[object]:
    """Objects with commas between them, up to what is none."""
    text = text.lstrip(_BLANKS + ",")
    while text.startswith("{"):
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return
        yield value
        text = text[end:].lstrip(_BLANKS + ",")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return DAMAGED


def _is_row(value: object) -> bool:
    """Whether a value is an object in which all that is used is of the expected type."""
    if not isinstance(value, dict) or not isinstance(value.get("args"), dict | None):
        return False
    args = value.get("args") or {}
    scalars = [value.get("pid"), value.get("tid"), *(args.get(key) for key in ("pid", "thread_id", "tid"))]
    return (
        all(isinstance(value.get(key), str | None) for key in ("name", "ph"))
        and all(isinstance(one, int | float | str | None) and not isinstance(one, bool) for one in scalars)
        and all(_is_numeric(value.get(key, 0)) for key in ("ts", "dur"))
        and (args.get("step_num") is None or _is_numeric(args["step_num"]))
    )


def _is_numeric(value: object) -> bool:
    """A number that may stand in quotes and is not too large to be one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return False
    try:
        return isinstance(value, float) or math.isfinite(float(value))
    except OverflowError:
        return False


# Values to events


class Expected:
    """What files hold, straight from the definitions."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        #: Rows without metadata, a begin and its end as one.
        self.rows = 0
        sources = [SourceFile(name=name, place=f"/{name}", size=len(files[name])) for name in sorted(files)]
        per_file = {
            file.name: Counter(self._of_file(origin, files[file.name]))
            for file, origin in usable(sources, Tally())
        }
        per_file = _with_ranks(per_file)
        if any(_is_dated(event) for found in per_file.values() for event in found):
            per_file = {name: _dated(found) for name, found in per_file.items()}
        #: Events of one file are so many; those that several files have are as many as in the one with most.
        self.events: Counter[Event] = Counter()
        for found in per_file.values():
            self.events |= found

    def _of_file(self, origin: Origin, data: bytes) -> Iterator[Event]:
        base_us = origin.base_us
        event_types = dict[Any, str]()
        begun = defaultdict[Any, list[Any]](list)
        for row in values(data):
            self.rows += 1
            if not isinstance(row, dict):
                continue
            kind, name, pid = row.get("ph"), row.get("name"), row.get("pid")
            args = row.get("args") or {}
            event_type = event_types.get(pid, "Unknown")
            if kind == "M":
                self.rows -= 1
                new_base = args.get("start_time_since_epoch_in_micros")
                if name == "process_name" and new_base is not None:
                    is_date = _is_number(new_base) and EARLIEST_US <= new_base <= LATEST_US
                    base_us = round(new_base) if is_date else 0
                elif name == "process_name" and isinstance(args.get("name"), str):
                    event_types[pid] = _shortened(args["name"])
            elif kind == "X":
                duration = float(row.get("dur", 0))
                yield from _event(origin, event_type, name, _numbers(row), base_us, _start(row), duration)
            elif kind == "B":
                begun[pid, row.get("tid")].append((row, event_type, base_us))
            elif kind == "E" and begun[pid, row.get("tid")]:
                self.rows -= 1
                first, event_type, its_base = begun[pid, row.get("tid")].pop()
                start, end = _start(first), _start(row)
                later = (0 if end > 10**14 else base_us) - (0 if start > 10**14 else its_base)
                both = _given(row) | _given(first)
                both["args"] = _given(args) | _given(first.get("args") or {})
                yield from _event(
                    origin, event_type, both.get("name"), _numbers(both), its_base, start, end - start + later
                )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _start(row: Mapping[str, Any]) -> float:
    return float(row.get("ts", math.nan))


def _numbers(row: Mapping[str, Any]) -> list[int]:
    """Step, process and thread; -1 for none."""
    args = row.get("args") or {}
    step = math.nan if args.get("step_num") is None else float(args["step_num"])
    threads = (args.get("thread_id"), row.get("tid"), args.get("tid"))
    return [
        int(step) if 0 <= step < 2**53 and step == int(step) else -1,
        _whole(args.get("pid")),
        _whole(next((one for one in threads if one is not None), None)),
    ]


def _event(
    origin: Origin,
    event_type: str,
    name: str | None,
    numbers: list[int],
    base_us: int,
    start: float,
    duration: float,
) -> Iterator[Event]:
    """The event of these values, or none."""
    if name is None:
        return
    if origin.source == "horovod" and re.fullmatch("[0-9]+", name) and len(name) <= 1000:
        duration = 0
    base_us = 0 if start > 10**14 else base_us
    if not (-base_us <= start <= LATEST_US and 0 <= duration <= FAR_US):
        return
    step, pid, thread = numbers
    yield (
        origin.node,
        origin.rank,
        event_type,
        str(origin.source),
        _shortened(name),
        base_us + round(start),
        base_us + round(start + duration),
        step,
        pid,
        thread,
    )


def _with_ranks(per_file: Mapping[str, Counter[Event]]) -> dict[str, Counter[Event]]:
    """With the rank of a process in place of its id, where exactly one rank of the node has that id."""
    pids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for found in per_file.values():
        for event in found:
            if event[1]:
                pids[event[0], event[1]].add(event[8])
    ranks = {}
    for node, rank in pids:
        if int(rank) in pids[node, rank]:
            others = [
                name
                for where, name in pids
                if where == node and int(name) not in pids[node, name] and int(rank) in pids[node, name]
            ]
            if len(others) == 1:
                ranks[node, rank] = others[0]
    renamed: dict[str, Counter[Event]] = {}
    for name, found in per_file.items():
        renamed[name] = Counter()
        for event, count in found.items():
            renamed[name][event[0], ranks.get(event[:2], event[1]), *event[2:]] += count
    return renamed


def _dated(events: Counter[Event]) -> Counter[Event]:
    return Counter({event: count for event, count in events.items() if _is_dated(event)})


def _shortened(name: str) -> str:
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 1000 else text[:999] + "…"


def _is_dated(event: Event) -> bool:
    return event[5] >= EARLIEST_US and event[6] <= LATEST_US


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _whole(value: object) -> int:
    if isinstance(value, str):
        return int(value) if re.fullmatch("[0-9]{1,18}", value) else -1
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**18:
        return int(value) if isinstance(value, bool) else -1
    return int(value) if value == int(value) else -1
