"""The boxed table of plain ``nvidia-smi``, again and again: ``nvidia-smi -l N``, or a loop of a script.

The time stands above the box. A GPU has two lines in it; those of processes and of parts of a GPU (MIG) have other cells.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from jobreport.readers.nvidia_smi.table import Skipped
from jobreport.readers.nvidia_smi.unheaded import (
    CTIME_LENGTH,
    Row,
    as_tables,
    last_time,
    lines_of,
    part_of_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.table import Block

_TITLE, _RULE = "| NVIDIA-SMI ", "|====="
#: How ``watch`` begins; then come the command, the host, a colon, and the time.
_WATCH, _TOOL = "Every ", "nvidia-smi"
#: Characters of a line of a box; it has 91.
_MAX_LINE = 256
_INDEX = re.compile(r"[0-9]{1,4}")
#: What stands behind the name: persistence mode, or on Windows the driver's model.
_MODES = {"On", "Off", "TCC", "WDDM", "MCDM", "N/A"}
_BUS = re.compile(r"\s*([0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}\.[0-9A-Fa-f])\s.*")
#: Fan, temperature, performance state; power and its limit.
_SENSORS = re.compile(r"\s*(?:N/A|ERR!|[0-9]+%)\s+(\S+)\s+(?:N/A|ERR!|P[0-9]+)\s+(\S.*)")
#: What is used, and of how much; the stroke in ``N/A`` separates nothing.
_OF = re.compile(r"\s*(N/A|.*?)\s*/\s*(N/A|[^/]*?)\s*")


def is_log(beginning: str, _: Sequence[str]) -> bool:
    """Whether a line is the title of a box, with a double rule under it, or the first line is that of ``watch``."""
    is_watch = beginning.lstrip().startswith(_WATCH) and _TOOL in beginning.lstrip().partition("\n")[0]
    return is_watch or any(_RULE in box for box in beginning.split(_TITLE)[1:])


@as_tables
def tables(blocks: Iterable[Block]) -> Iterator[Row | Skipped]:
    """All rows, one for each GPU in a box."""
    box, time, next_time = 0, None, None
    host: dict[str, str] = {}
    named: dict[str, str] = {}
    named_in = 0
    for number, line in chain(lines_of(blocks), [(0, "")]):
        cells = line.strip().split("|")[1:-1] if len(line) < _MAX_LINE else []
        names = _names(*cells) if len(cells) == 3 else {}
        sensors = _SENSORS.fullmatch(cells[0]) if len(cells) == 3 and not names and cells[2].strip() else None
        if named and sensors:
            values = _values(sensors, *cells[1:])
            yield Row(line=named_in, moment=box, time=time, gpu=named["index"], cells=host | named | values)
        elif named or sensors:
            yield part_of_row(named_in if named else number, line)
        named, named_in = names, number
        if names or sensors:
            continue
        if line.lstrip().startswith(_TITLE):
            box, time, next_time = box + 1, next_time, None
        elif found := last_time(line):
            time, next_time = None, found
            if line.startswith(_WATCH):
                host = {"hostname": line.rstrip()[:-CTIME_LENGTH].split()[-1].rstrip(":")}
    if host and box < 2:
        yield Skipped(code="nvidia_smi.watch", count=1, line=1, text="")


def _names(model: str, bus: str, _: str) -> dict[str, str]:
    """What the upper line of a GPU says; empty for another line."""
    bus_id, words = _BUS.fullmatch(bus), model.split()
    if not bus_id or len(words) < 2 or not _INDEX.fullmatch(words[0]):
        return {}
    name = words[1:-1] if words[-1] in _MODES else words[1:]
    return {"index": words[0], "name": " ".join(name), "pci.bus_id": bus_id[1]}


def _values(sensors: re.Match[str], memory: str, shares: str) -> dict[str, str]:
    """What the lower line of a GPU says."""
    power, limit = _parts(sensors[2])
    used, total = _parts(memory)
    return {
        "utilization.gpu": shares.split(maxsplit=1)[0],
        "memory.used": used,
        "memory.total": total,
        "temperature.gpu": sensors[1],
        "power.draw": power,
        "enforced.power.limit": limit,
    }


def _parts(text: str) -> tuple[str, str]:
    """Both sides of the stroke; the first alone where there is none, as in ``Not Supported``."""
    match = _OF.fullmatch(text)
    return (match[1], match[2]) if match else (text.strip(), "")
