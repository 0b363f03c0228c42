"""Which GPU of which machine each row of nvidia-smi logs is of, decided from a table of who was seen where and when.

Logs are of one machine if they name the same host or the same UUID, or if one is an earlier copy of the other. Other
logs of a folder are of one machine too, unless two of them have the same measure of one GPU at the same time, or one
number for two GPUs: then the words of their names separate them, or, where these are the same, their names. A GPU of a
machine is known by its number, which its UUID or bus id gives to logs without numbers where any log has both.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobreport.readers import text_files
from jobreport.readers.connected import connected
from jobreport.readers.machines import NAMELESS, machine_words

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence, Set

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.nvidia_smi.rows import GPU, Rows
    from jobreport.readers.tally import Tally
    from jobrules.model import Metric

#: Bytes of a file that show whether it is a copy.
_BEGINNING = 1 << 12
#: Rows at a time.
_BLOCK = 1 << 16


class Seen(Struct, frozen=True, kw_only=True):
    """A GPU as a log names it, and when it was seen."""

    gpu: GPU
    first_us: int
    last_us: int


class Entry(Struct, frozen=True, kw_only=True):
    """What is known of a log before any value is looked at."""

    #: Place of the log among all.
    number: int
    file: SourceFile
    #: As in ``Log``.
    host: str
    writer: int
    #: In the order of their first rows.
    gpus: tuple[Seen, ...]
    measures: frozenset[Metric]
    rows: int

    @property
    def first_us(self) -> int:
        """When the first GPU was seen."""
        return min(seen.first_us for seen in self.gpus)

    @property
    def last_us(self) -> int:
        """When the last GPU was seen."""
        return max(seen.last_us for seen in self.gpus)


class Machine(Struct, frozen=True, kw_only=True):
    """Logs of one machine."""

    name: str
    logs: list[Entry]
    #: The name of each GPU, by how logs name it; none for one that no log joins to the numbers of the others.
    gpus: dict[GPU, str]


#: Logs of one machine, before it has a name.
_Unit: TypeAlias = "list[Entry]"


def table_of(logs: Sequence[Log]) -> list[Entry]:
    """The table that decides."""
    return [
        Entry(
            number=number,
            file=log.file,
            host=log.host,
            writer=log.writer,
            gpus=_seen(log.rows),
            measures=frozenset(log.rows.values),
            rows=len(log.rows.time_us),
        )
        for number, log in enumerate(logs)
    ]


def _seen(rows: Rows) -> tuple[Seen, ...]:
    """The GPUs of a log in the order of their first rows."""
    first_us, last_us = rows.spans_us()
    first_row: dict[int, int] = {}
    for start in range(0, len(rows.gpu), _BLOCK):
        gpus, place = np.unique(rows.gpu[start : start + _BLOCK], return_index=True)
        for gpu, row in zip(gpus.tolist(), place.tolist(), strict=True):
            first_row.setdefault(gpu, start + row)
    found = [
        Seen(gpu=rows.gpus[gpu], first_us=int(first_us[gpu]), last_us=int(last_us[gpu]))
        for gpu in sorted(first_row, key=first_row.__getitem__)
    ]
    return tuple(found)


def machines_of(table: Sequence[Entry], tally: Tally) -> list[Machine]:
    """The machines that logs are of, each with a name of its own."""
    units = [[table[number] for number in some] for some in connected(_in_common(table))]
    found = {host: unit for unit in units if (host := _host(unit))}
    nameless = [unit for unit in units if not _host(unit)]
    writers = [unit for unit in nameless if _is_of_writer(unit)]
    machines = [*_separated([unit for unit in nameless if not _is_of_writer(unit)], _NAMES, tally)]
    if len(machines) == 1 and not found and not writers:
        machines = [(NAMELESS, machines[0][1])]
    machines += [(f"log-{unit[0].writer}", unit) for unit in writers]
    for name, mine in machines:
        found[_unused(name, mine[0].file.name, found.keys())] = mine
    return [Machine(name=name, logs=logs, gpus=_names_of_gpus(logs, tally)) for name, logs in found.items()]


# Which logs are of one machine


def _in_common(table: Sequence[Entry]) -> list[list[Hashable]]:
    """What logs of one machine have in common: the host, UUIDs, or the beginning of a copy."""
    copies = _copies([entry for entry in table if not entry.host])
    return [
        [
            *([("host", entry.host)] if entry.host else []),
            *(("uuid", seen.gpu.uuid) for seen in entry.gpus if seen.gpu.uuid),
            *([("copy", copies[entry.number], entry.writer)] if entry.number in copies else []),
        ]
        for entry in table
    ]


def _copies(table: Sequence[Entry]) -> dict[int, int]:
    """The number of the log that a log is an earlier or a later copy of: it begins with the same bytes."""
    same_begin: defaultdict[Hashable, list[Entry]] = defaultdict(list)
    for entry in table:
        same_begin[entry.first_us, frozenset(seen.gpu for seen in entry.gpus)].append(entry)
    found: dict[int, int] = {}
    for some in same_begin.values():
        beginnings = sorted((_beginning(entry.file), entry.number) for entry in some) if len(some) > 1 else []
        for (text, number), (longer, other) in pairwise(beginnings):
            if text and longer.startswith(text):
                found[other] = found.setdefault(number, number)
    return found


def _beginning(file: SourceFile) -> bytes:
    """The first lines of a file."""
    text = b""
    with suppress(OSError, text_files.DamagedError):
        for chunk in text_files.chunks(file.path):
            text += chunk
            if len(text) >= _BEGINNING:
                break
    text = text[:_BEGINNING]
    return text[: text.rfind(b"\n") + 1]


def _host(unit: _Unit) -> str:
    return next((entry.host for entry in unit if entry.host), "")


def _is_of_writer(unit: _Unit) -> bool:
    """Whether nothing but its turn in files names a machine."""
    return all(entry.writer for entry in unit)


def _unused(name: str, path: str, taken: Set[str]) -> str:
    """The name, or one made of the path if it is empty or ``taken``."""
    stem = path.rpartition(".")[0] or path
    names = chain((name, stem, path), (f"{stem} {i}" for i in count(2)))
    return next(one for one in names if one and one not in taken)


# Logs that name no machine


def _folder_words(path: str) -> str:
    return "_".join(machine_words(path.rpartition("/")[0]))


def _path_words(path: str) -> str:
    return "_".join(machine_words(path))


#: What separates machines: names of files, from coarse to fine.
_NAMES: tuple[Callable[[str], str], ...] = (_folder_words, _path_words, str)


def _separated(
    units: Sequence[_Unit], names: Sequence[Callable[[str], str]], tally: Tally
) -> Iterator[tuple[str, _Unit]]:
    """The name and the logs of each machine.

    Units with the same first one of ``names`` are of one machine, unless they clash; then the next one separates them.
    """
    name_of, *finer = names
    named: defaultdict[str, list[_Unit]] = defaultdict(list)
    for unit in units:
        named[name_of(unit[0].file.name)].append(unit)
    for name, mine in named.items():
        if finer and (_same_gpu_at_once(mine) or _two_gpus_of_one_number(mine)):
            yield from _separated(mine, finer, tally)
            continue
        if not finer:
            tally.note("nvidia_smi.machines", count=len(mine[0]), file=mine[0][0].file.name)
        yield name if finer else "", [entry for unit in mine for entry in unit]


def _same_gpu_at_once(units: Sequence[_Unit]) -> bool:
    """Whether two units have the same measure of one GPU at the same time."""
    spans: defaultdict[tuple[str, Metric], list[tuple[int, int]]] = defaultdict(list)
    for unit in units:
        mine: dict[tuple[str, Metric], tuple[int, int]] = {}
        for entry in unit:
            several = len(entry.gpus) > 1
            for seen in entry.gpus:
                # Several GPUs with nothing but UUIDs may be those of another log, or not.
                gpu = seen.gpu.name or seen.gpu.bus or ("" if several else seen.gpu.uuid)
                for measure in entry.measures:
                    first_us, last_us = mine.get((gpu, measure), (seen.first_us, seen.last_us))
                    mine[gpu, measure] = min(first_us, seen.first_us), max(last_us, seen.last_us)
        for series, span in mine.items():
            spans[series].append(span)
    return any(later < end for some in spans.values() for (_, end), (later, _) in pairwise(sorted(some)))


def _two_gpus_of_one_number(units: Sequence[_Unit]) -> bool:
    """Whether two units have GPUs of one number with different UUIDs, or different bus ids."""
    uuids: dict[str, int] = {}
    buses: dict[str, str] = {}
    for number, unit in enumerate(units):
        for seen in (seen for entry in unit for seen in entry.gpus if seen.gpu.name):
            gpu = seen.gpu
            # Units with a UUID in common are one.
            if gpu.uuid and uuids.setdefault(gpu.name, number) != number:
                return True
            if gpu.bus and buses.setdefault(gpu.name, gpu.bus) != gpu.bus:
                return True
    return False


# Which GPUs of a machine are the same


def _names_of_gpus(logs: _Unit, tally: Tally) -> dict[GPU, str]:
    """The name of each GPU: its number in any log, else, if none has numbers, one in the order of the first rows."""
    in_order = sorted(logs, key=lambda entry: (entry.first_us, entry.file))
    gpus = list(dict.fromkeys(seen.gpu for entry in in_order for seen in entry.gpus))
    found = {gpu: gpu.name for gpu in gpus if gpu.name}
    has_numbers = bool(found)
    if not has_numbers and len(gpus) > 1:
        for entry in logs:
            tally.note("nvidia_smi.numbered", file=entry.file.name)
    for number, same in enumerate(connected([_identifiers(gpu) for gpu in gpus])):
        name = next((gpus[i].name for i in same if gpus[i].name), "" if has_numbers else f"gpu{number}")
        found |= {gpus[i]: name for i in same if name and not gpus[i].name}
    return found


def _identifiers(gpu: GPU) -> list[Hashable]:
    return [(kind, one) for kind, one in (("bus", gpu.bus), ("uuid", gpu.uuid)) if one]
