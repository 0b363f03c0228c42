"""Which GPU of which machine each row of nvidia-smi logs is of, decided from a table of who was seen where and when.

Logs are of one machine if they name the same host or the same UUID, or if one is an earlier copy of the other. Other
logs are of one machine too, unless two of them have the same measure of one GPU at the same time, or one number for two
GPUs: then the words in the names of their folders separate them, or else those in their own names, or, where these are
the same, their names. A GPU of a machine is known by its number, which its UUID or bus id gives to logs without numbers
where any log has both.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from jobreport.readers.connected import connected
from jobreport.readers.machines import NAMELESS, machine_words
from jobreport.readers.nvidia_smi.queries import beginning_of
from jobreport.readers.nvidia_smi.rows import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence, Set

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.nvidia_smi.rows import GPU
    from jobreport.readers.tally import Tally
    from jobrules.model import Metric

#: Characters of a log that show whether it is a copy.
_BEGINNING = 1 << 12


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
            gpus=tuple(
                Seen(gpu=rows.gpu, first_us=int(rows.time_us.min()), last_us=int(rows.time_us.max()))
                for rows in sorted(log.gpus, key=lambda rows: rows.line)
            ),
            measures=frozenset(metric for rows in log.gpus for metric in rows.values),
            rows=count_of(log.gpus),
        )
        for number, log in enumerate(logs)
    ]


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
    return [
        [
            *([("host", entry.host)] if entry.host else [("copy", _beginning(entry), entry.writer)]),
            *(("uuid", seen.gpu.uuid) for seen in entry.gpus if seen.gpu.uuid),
        ]
        for entry in table
    ]


def _beginning(entry: Entry) -> str:
    """The first lines of a log, or the path of one that has only a few."""
    text = beginning_of(entry.file)
    return text[:_BEGINNING] if len(text) > _BEGINNING else entry.file.name


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


#: What separates machines where logs clash: names of files, from coarse to fine.
_NAMES: tuple[Callable[[str], str], ...] = (lambda _: "", _folder_words, _path_words, str)


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
        if len(finer) < 2:  # not the folders, which are there to separate
            tally.note("nvidia_smi.machines", count=sum(map(len, mine)), file=mine[0][0].file.name)
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
    """The name of each GPU: its number in any log, else, if none has one of its own, that of its first row's turn."""
    in_order = sorted(logs, key=lambda entry: (entry.first_us, entry.file))
    gpus = list(dict.fromkeys(seen.gpu for entry in in_order for seen in entry.gpus))
    identifiers = [_identifiers(gpu) for gpu in gpus]
    found = {gpu: gpu.name for gpu in gpus if gpu.name}
    if _is_number_of_two_at_once(logs):
        found, identifiers = {}, [one[-1:] for one in identifiers]
    has_numbers = bool(found)
    if not has_numbers and len(gpus) > 1:
        for entry in logs:
            tally.note("nvidia_smi.numbered", file=entry.file.name)
    for number, same in enumerate(connected(identifiers)):
        new = "" if has_numbers or not identifiers[same[0]] else f"gpu{number}"
        name = next((found[gpus[i]] for i in same if gpus[i] in found), new)
        found |= {gpus[i]: name for i in same if name and gpus[i] not in found}
    return found


def _is_number_of_two_at_once(logs: _Unit) -> bool:
    """Whether GPUs with different UUIDs have one number at the same time: they are of machines with one name."""
    spans = sorted(
        (seen.gpu.name, seen.first_us, seen.last_us, seen.gpu.uuid)
        for entry in logs
        for seen in entry.gpus
        if seen.gpu.name and seen.gpu.uuid
    )
    return any(
        name == other and first_us <= last_us and uuid != other_uuid
        for (name, _, last_us, uuid), (other, first_us, _, other_uuid) in pairwise(spans)
    )


def _identifiers(gpu: GPU) -> list[Hashable]:
    return [(kind, one) for kind, one in (("bus", gpu.bus), ("uuid", gpu.uuid)) if one]
