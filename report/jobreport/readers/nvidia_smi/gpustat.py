"""What ``gpustat`` writes, again and again: a line for each GPU, under one with the host and the time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobreport.readers.nvidia_smi.unheaded import Row, as_tables, iso_time, last_time, lines_of, part_of_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from jobreport.readers.nvidia_smi.table import Block, Skipped

_GPU = re.compile(r"\[([0-9]{1,4})\] (.*)")
_NUMBER = r"([0-9]+|\?\?)"
#: Temperature, with a degree sign or an apostrophe; then shares, and perhaps power.
_SENSORS = re.compile(rf"\s*{_NUMBER}\s?\S?C\s*,(.*)")
_SHARE = re.compile(rf"{_NUMBER}\s*%")
#: Shares of the encoder and the decoder (``--show-codec``).
_CODEC = re.compile(r"\([^()]*\)")
_POWER = re.compile(rf"{_NUMBER}\s*(?:/\s*{_NUMBER}\s*)?W")
_MEMORY = re.compile(rf"\s*{_NUMBER}\s*/\s*{_NUMBER}\s*MB\s*")
#: Characters of a header, or of a line in front of the processes.
_MAX_TEXT = 512


def is_log(beginning: str, _: Sequence[str]) -> bool:
    """Whether a line is that of a GPU."""
    return any(_cells(line) for line in beginning.split("\n"))


@as_tables
def tables(blocks: Iterable[Block]) -> Iterator[Row | Skipped]:
    """All rows, one for each GPU under a header."""
    header, host, time = 0, "", None
    for number, line in lines_of(blocks):
        if cells := _cells(line):
            cells["hostname"] = host
            yield Row(line=number, moment=header, time=time, gpu=cells["index"], cells=cells)
        elif _GPU.match(line):
            yield part_of_row(number, line)
        elif found := _header(line):
            header += 1
            host, time = found


def _header(line: str) -> tuple[str, datetime] | None:
    """Host and time of a header; behind them is the version of the driver."""
    host, *words = line[:_MAX_TEXT].split() or [""]
    time = last_time(" ".join(words[:5])) or iso_time(" ".join(words[:2]))
    return (host, time) if time else None


def _cells(line: str) -> dict[str, str]:
    """What the line of a GPU says; empty for another line."""
    name, *rest = line.split("|", 3)
    gpu = _GPU.fullmatch(name)
    if gpu is None or len(rest) < 3 or len(name + rest[0] + rest[1]) > _MAX_TEXT:
        return {}
    sensors, memory = _SENSORS.fullmatch(rest[0]), _MEMORY.fullmatch(rest[1])
    shares = _SHARE.findall(_CODEC.sub("", sensors[2])) if sensors else []
    if not sensors or not memory or not shares:
        return {}
    power = _POWER.search(sensors[2])
    cells = {
        "index": gpu[1],
        "name": gpu[2].strip(),
        # With --show-fan-speed that of the fan comes first.
        "utilization.gpu": shares[-1],
        "memory.used": memory[1],
        "memory.total": memory[2],
        "temperature.gpu": sensors[1],
        "power.draw": power[1] if power else "",
        "enforced.power.limit": power[2] or "" if power else "",
    }
    return {column: "" if text == "??" else text for column, text in cells.items()}
