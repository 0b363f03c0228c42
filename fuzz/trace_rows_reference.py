"""What trace files hold, by a reader that is slow and easy to check.

A *row* is a value in the list of a trace, sound or not, other than a list, in whose place stands what it holds.
Rows of metadata are not counted, and a begin and its end count as one. Of a text that is not JSON, the rows
are found by looking for them: ``values`` says how.

One thing is taken from the reader under test, ``usable``: which files are read, and what their names and the
folders around them tell of machine, worker, source and time. ``tests/readers/test_traces.py`` holds that by names
and folders written by hand.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
import zlib
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
DAY_US = 86400 * 1_000_000
FAR_US = 30 * DAY_US

#: Node, worker, phase, source, name, start, end, step, process and thread.
Event = tuple[str, str, str, str, str, int, int, int, int, int]

#: Stands for a row that cannot be read.
DAMAGED = object()

_BLANKS = " \t\r\n"
_NO_UTF8 = re.compile("[\udc80-\udcff]")
_USED_ARGS = (
    "pid",
    "step_num",
    "thread_id",
    "tid",
    "name",
    "start_time_since_epoch_in_micros",
    "num_workers",
    "pin_memory",
)


def rows(files: Mapping[str, bytes]) -> Rows:
    """Of all trace files of a job, by their paths."""
    found = Expected(files)
    return Rows(found.rows, found.events.total())


# Text to values


def values(content: bytes) -> list[object]:
    """The values of the rows of a file; ``DAMAGED`` for one that cannot be read."""
    text = unpacked(content).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    is_open = _is_cut(content) or not _has_end(text)
    try:
        value = _DECODER.decode(text.strip(_BLANKS))
    except (ValueError, RecursionError):
        value = DAMAGED
    if _is_object(text):
        if begin := _list_in(text):
            is_sound = isinstance(value, dict) and isinstance(value.get("traceEvents"), list)
            if is_sound and text.count('"traceEvents"') == 1 and not _NO_UTF8.search(text):
                return list(_flat(value["traceEvents"]))
            return _searched(text, begin.end(), is_object=True, is_open=is_open)
        if isinstance(value, dict) and not (isinstance(value.get("ph"), str) and value["ph"]):
            # The key of the list may be damaged.
            behind = text.index("{") + 1
            return _searched(text, behind, is_object=True, is_open=is_open) if '"ph"' in text else []
    elif value is not DAMAGED and not _NO_UTF8.search(text):
        return list(_flat(value))
    return _searched(text, 0, is_object=False, is_open=is_open)


def _is_cut(content: bytes) -> bool:
    try:
        gzip.decompress(content if content.startswith(b"\x1f\x8b") else b"")
    except (OSError, EOFError, zlib.error):
        return True
    return False


def _has_end(text: str) -> bool:
    return text.rstrip(_BLANKS).endswith("}" if _is_object(text) else "]")


def _is_object(text: str) -> bool:
    """Whether the rows stand in an object: by its brace, or where its beginning is damaged by the list in it."""
    first = text.lstrip(_BLANKS)[:1]
    return first == "{" or (first != "[" and _list_in(text) is not None)


def _searched(text: str, at: int, *, is_object: bool, is_open: bool) -> list[object]:
    """The rows of a text that is not JSON, from a place on.

    Values stand one behind the other. Where none can be read, all is damage up to the next object that can
    be, has a ``ph``, and does not stand behind a colon. Damage is cut where rows seem to begin: at ``{`` behind a
    line break or a comma and in front of a key that rows have. A piece is as many rows as it has keys ``ph``, and
    at least one. The last row is none where the text has no end and the last piece begins with ``{``: it is the
    one in which it was cut.
    """
    found: list[object] = []
    while True:
        while at < len(text) and text[at] in _BLANKS + ",[]":
            if is_object and text[at] == "]" and re.match(r'[ \t\r\n]*(,[ \t\r\n]*"|\}|\Z)', text[at + 1 :]):
                if not (begin := _list_in(text, at)):
                    return found
                at = begin.end()
            else:
                at += 1
        if at == len(text):
            return found
        value, end = _value(text, at)
        if value is DAMAGED:
            end = next((i for i in range(at + 1, len(text)) if _is_row(text, i)), len(text))
            begins = [at, *(i for i in range(at + 1, end) if _seems_to_begin(text, i)), end]
            pieces = [text[a:b] for a, b in itertools.pairwise(begins)]
            is_cut = is_open and end == len(text) and pieces[-1].startswith("{")
            counts = [max(1, len(re.findall(r'"ph"[ \t\r\n]*:', piece))) for piece in pieces]
            found += [DAMAGED] * (sum(counts) - is_cut)
        else:
            found.append(DAMAGED if _is_no_text(value, text[at:end]) else value)
        at = end


def _list_in(text: str, at: int = 0) -> re.Match[str] | None:
    return re.compile(r'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[').search(text, at)


def _value(text: str, at: int) -> tuple[object, int]:
    """The value here and where it ends; a text, a number or a word must stand alone."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return DAMAGED, at
    if isinstance(value, dict):
        return value, end
    alone = text[end:].lstrip(_BLANKS)[:1] in ("", ",", "]")
    return (value, end) if alone else (DAMAGED, at)


def _is_row(text: str, at: int) -> bool:
    if not re.compile(r'\{[ \t\r\n]*"').match(text, at) or text[:at].rstrip(_BLANKS).endswith(":"):
        return False
    try:
        value, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return False
    return isinstance(value.get("ph"), str)


def _seems_to_begin(text: str, at: int) -> bool:
    key = re.compile(r'\{[ \t\r\n]*"([a-z]+)"').match(text, at)
    if not key or key[1] not in ("name", "ph", "cat", "pid", "tid", "ts", "dur", "args"):
        return False
    before = text[:at].rstrip(_BLANKS + ",")
    return any(one in text[len(before) : at] for one in "\n,")


def _is_no_text(value: object, text: str) -> bool:
    """Whether what is in use of a row holds bytes that are not UTF-8."""
    if not isinstance(value, dict) or not _NO_UTF8.search(text):
        return False
    args = value["args"] if isinstance(value.get("args"), dict) else {}
    used = [value.get(key) for key in ("name", "ph", "pid", "tid")] + [args.get(key) for key in _USED_ARGS]
    return any(_NO_UTF8.search(str(one)) for one in used)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= 400 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    else:
        yield value


# Values to events


class Expected:
    """What files hold, straight from the definitions."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        #: Rows without metadata, a begin and its end as one.
        self.rows = 0
        sources = [SourceFile(name=name, place=f"/{name}", size=len(files[name])) for name in sorted(files)]
        per_file: dict[str, Counter[Event]] = {}
        at_step = []
        for file, origin in usable(sources, Tally()):
            if origin.step >= 0:
                at_step.append((file.name, origin))
            else:
                per_file[file.name] = Counter(self._of_file(origin, origin.base_us, files[file.name]))
        starts = _starts_of_steps(per_file)
        for name, origin in at_step:
            per_file[name] = Counter(self._of_file(origin, starts.get(origin.step, 0), files[name]))
        per_file = _with_ranks(per_file)
        if any(_is_dated(event) for found in per_file.values() for event in found):
            per_file = {name: _only(found, _is_dated) for name, found in per_file.items()}
            near = _near([event[5] for found in per_file.values() for event in found.elements()])
            per_file = {
                name: _only(found, lambda event: any(first <= event[5] <= last for first, last in near))
                for name, found in per_file.items()
            }
        #: Events of one file are so many; those that several files have are as many as in the one with most.
        self.events: Counter[Event] = Counter()
        for found in per_file.values():
            self.events |= found
        last = max((event[5] for event in self.events), default=0)
        endless = [event for event in self.events.elements() if event[6] > last + DAY_US]
        if len(endless) <= max(1, self.events.total() / 100) and self.events.total() > 1:
            self.events = _only(self.events, lambda event: event[6] <= last + DAY_US)

    def _of_file(self, origin: Origin, at: int, data: bytes) -> Iterator[Event]:
        phases = dict[Any, str]()
        begun = defaultdict[Any, list[Any]](list)
        for row in values(data):
            self.rows += 1
            if not isinstance(row, dict):
                continue
            kind, what, pid = row.get("ph"), row.get("name"), _scalar(row.get("pid"))
            tid = _scalar(row.get("tid"))
            args = row["args"] if isinstance(row.get("args"), dict) else {}
            if kind == "M":
                self.rows -= 1
                told = args.get("start_time_since_epoch_in_micros")
                if what == "process_name" and told is not None:
                    at = round(told) if _is_number(told) and EARLIEST_US <= told <= LATEST_US else 0
                elif what == "process_name" and isinstance(args.get("name"), str):
                    phases[pid] = _shortened(args["name"])
            elif kind == "X":
                dur = 0 if row.get("dur") is None else row["dur"]
                yield from _event(origin, phases.get(pid, "Unknown"), what, args, tid, at, row.get("ts"), dur)
            elif kind == "B":
                begun[pid, tid].append((row, phases.get(pid, "Unknown"), at))
            elif kind == "E" and begun[pid, tid]:
                self.rows -= 1
                first, phase, its_base = begun[pid, tid].pop()
                others = first["args"] if isinstance(first.get("args"), dict) else {}
                both = others | {key: value for key, value in args.items() if value is not None}
                ts, end = first.get("ts"), row.get("ts")
                dur = _apart(ts, its_base, end, at) if _is_number(ts) and _is_number(end) else -1
                begun_as = first.get("name") if isinstance(first.get("name"), str) else None
                name = begun_as or (what if isinstance(what, str) else None) or begun_as
                yield from _event(origin, phase, name, both, tid, its_base, ts, dur)


def _event(
    origin: Origin,
    phase: str,
    name: Any,
    args: Mapping[str, Any],
    tid: Any,
    base_us: int,
    start: Any,
    dur: Any,
) -> Iterator[Event]:
    """The event of these values, or none."""
    if not isinstance(name, str):
        return
    if origin.source == "horovod" and re.fullmatch("[0-9]+", name) and len(name) <= 1000:
        dur = 0
    if not (_is_number(start) and 0 <= start <= LATEST_US and _is_number(dur) and 0 <= dur <= FAR_US):
        return
    base_us = 0 if start > 10**14 else base_us
    yield (
        origin.node,
        origin.rank,
        phase,
        str(origin.source),
        _shortened(name),
        base_us + round(start),
        base_us + round(start + dur),
        _whole(args.get("step_num")),
        _whole(args.get("pid")),
        next((n for v in (args.get("thread_id"), tid, args.get("tid")) if (n := _whole(v)) >= 0), -1),
    )


def _starts_of_steps(per_file: Mapping[str, Counter[Event]]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for found in per_file.values():
        for _, _, _, source, name, start, _, step, *_ in found:
            is_step = "Step:ModeKeys" in name and source in ("python", "model", "other")
            if is_step and step >= 0 and start >= EARLIEST_US:
                starts[step] = min(start, starts.get(step, start))
    return starts


def _with_ranks(per_file: Mapping[str, Counter[Event]]) -> dict[str, Counter[Event]]:
    """With the rank of a worker in place of its process id, where exactly one rank of the node has that id."""
    pids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for found in per_file.values():
        for event in found:
            if event[1]:
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
    renamed: dict[str, Counter[Event]] = {}
    for name, found in per_file.items():
        renamed[name] = Counter()
        for event, count in found.items():
            renamed[name][event[0], ranks.get(event[:2], event[1]), *event[2:]] += count
    return renamed


def _near(times: list[int]) -> list[tuple[int, int]]:
    """First and last time of events without a pause of 30 days, where they are a hundredth of all or more."""
    spans: list[list[int]] = []
    for time in sorted(times):
        if spans and time - spans[-1][-1] <= FAR_US:
            spans[-1].append(time)
        else:
            spans.append([time])
    return [(span[0], span[-1]) for span in spans if len(span) >= 0.01 * len(times)]


def _only(events: Counter[Event], keep: Any) -> Counter[Event]:
    return Counter({event: count for event, count in events.items() if keep(event)})


def _shortened(name: str) -> str:
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 1000 else text[:999] + "…"


def _scalar(value: object) -> Any:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _apart(ts: Any, base_us: int, end: Any, end_base_us: int) -> Any:
    """Between two times, each of which may have a base."""
    try:
        return end - ts + (0 if end > 10**14 else end_base_us) - (0 if ts > 10**14 else base_us)
    except OverflowError:
        return -1


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
