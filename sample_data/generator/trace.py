"""The text of a trace file: a JSON array, a row a line, times in microseconds since the file's base."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from generator.arrays import IntArray


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one lane."""

    #: Its number in the files of the process, and its name; rows of a lane without a name stand alone.
    pid: int
    lane: str
    #: When each row is written; (n,).
    time_us: IntArray
    texts: list[str]


def rows(pid: int, lane: str, time_us: IntArray, template: str, *columns: IntArray) -> Rows:
    """Fill a template with ``%d`` once a row; ``time_us`` need not be among the columns."""
    values = zip(*(column.tolist() for column in columns), strict=True)
    return Rows(pid=pid, lane=lane, time_us=time_us, texts=list(map(template.__mod__, values)))


def event(name: str, pid: int, args: str) -> str:
    """Return the template of a complete event, for start and duration and what ``args`` asks for."""
    quoted = json.dumps(name).replace("%", "%%")
    return f'{{"name": {quoted}, "pid": {pid}, "ph": "X", "ts": %d, "dur": %d, "args": {{{args}}}}}'


def format_trace(base_us: int, parts: Sequence[Rows]) -> str:
    """Return the file with the rows of all lanes in the order of time, a lane announced before its first."""
    texts = [text for part in parts for text in part.texts]
    time_us = np.concatenate([part.time_us for part in parts])
    pids = np.repeat([part.pid for part in parts], [len(part.texts) for part in parts])
    order = np.argsort(time_us, kind="stable")
    lines = [texts[i] for i in order.tolist()]
    in_order = pids[order]
    for pid, lane in dict.fromkeys((part.pid, part.lane) for part in parts if part.texts and part.lane):
        first = int(np.argmax(in_order == pid))
        lines[first] = f"{_announce(pid, json.dumps({'name': lane}))},\n{lines[first]}"
    base = _announce(0, f'{{"start_time_since_epoch_in_micros": {base_us}}}')
    return "[\n" + ",\n".join([base, *lines]) + "\n]\n"


def _announce(pid: int, args: str) -> str:
    return (
        f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {args}}},\n'
        f'{{"name": "process_sort_index", "ph": "M", "pid": {pid}, "args": {{"sort_index": {pid}}}}}'
    )
