"""Which GPU of which machine each row of nvidia-smi logs is of, decided from a table of who was seen where and when.

Logs are of one machine if they name the same host or the same UUID, or if one is a copy of the other: where both have a
GPU, they have it at the same times with the same values. Other logs are of one machine too, unless two of them have the
same measure of one GPU at the same time, or one number for two GPUs: then the words in the names of their folders
separate them, or else those in their own names, or, where these are the same, their names. Logs of one folder with other
names and other columns are of several tools on one machine. A GPU of a machine is known by its number, which its UUID or
bus id gives to logs without numbers where any log has both.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain, count, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from jobreport.readers.connected import connected
from jobreport.readers.machines import NAMELESS, machine_words
from jobreport.readers.nvidia_smi.parts import stem_of
from jobreport.readers.nvidia_smi.rows import count_of, in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence, Set

    from jobreport.readers.base import SourceFile
    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.nvidia_smi.rows import GPU
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray, IntArray, Metric

#: Values that never change show no copy, unless they are so small a part of both logs, as of one that was rotated.
_SEAM = 0.1
_DIGITS = re.compile(r"[0-9]+")
#: What is left of a machine's name before it: ``node-1`` of ``node-1-gpu0``.
_GPU_BEHIND = re.compile(r"[^A-Za-z0-9]+(?:gpu|cuda)[_-]?[0-9]{1,2}$", re.IGNORECASE)


class SeenGPU(Struct, frozen=True, kw_only=True):
    """A GPU as a log names it, and when it was seen."""

    gpu: GPU
    first_us: int
    last_us: int


class SeenLog(Struct, frozen=True, kw_only=True):
    """What is known of a log before any value is looked at."""

    #: Place of the log among all.
    number: int
    file: SourceFile
    #: As in ``Log``.
    host: str
    writer: int
    #: In the order of their first rows.
    gpus: tuple[SeenGPU, ...]
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
    logs: list[SeenLog]
    #: The name of each GPU, by how logs name it; none for one that no log joins to the numbers of the others.
    gpus: dict[GPU, str]


#: Logs of one machine, before it has a name.
_Unit: TypeAlias = "list[SeenLog]"


def machines_of(logs: Sequence[Log], tally: Tally) -> list[Machine]:
    """The machines that logs are of, each with a name of its own."""
    table = [_seen(number, log) for number, log in enumerate(logs)]
    units = [[table[number] for number in some] for some in connected(_in_common(logs))]
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


def _seen(number: int, log: Log) -> SeenLog:
    return SeenLog(
        number=number,
        file=log.file,
        host=log.host,
        writer=log.writer,
        gpus=tuple(
            SeenGPU(gpu=rows.gpu, first_us=int(rows.time_us.min()), last_us=int(rows.time_us.max()))
            for rows in sorted(log.gpus, key=lambda rows: rows.line)
        ),
        measures=frozenset(metric for rows in log.gpus for metric in rows.values),
        rows=count_of(log.gpus),
    )


# Which logs are of one machine


def _in_common(logs: Sequence[Log]) -> list[list[Hashable]]:
    """What logs of one machine have in common: the host, UUIDs, or that one is a copy of the other."""
    common: list[list[Hashable]] = [
        [
            *([("host", log.host)] if log.host else []),
            *(("uuid", rows.gpu.uuid) for rows in log.gpus if rows.gpu.uuid),
        ]
        for log in logs
    ]
    for one, other in _copies([(number, log) for number, log in enumerate(logs) if not log.host]):
        common[one].append(("copy", one, other))
        common[other].append(("copy", one, other))
    return common


def _copies(logs: Sequence[tuple[int, Log]]) -> Iterator[tuple[int, int]]:
    """The numbers of two logs, one of which is a copy of the other, or of its beginning or end."""
    if len(logs) < 2:
        return
    # A copy has the first change of a value too; parts of one log may be without any where they overlap.
    begins: defaultdict[Hashable, list[tuple[int, Log]]] = defaultdict(list)
    times: defaultdict[Hashable, set[int]] = defaultdict(set)
    for number, log in logs:
        begins[stem_of(log.file)].append((number, log))
        changes = ((int(time_us[0]), series, float(value[0])) for series, time_us, value in _changes(log))
        if first := min(changes, default=None, key=itemgetter(0)):
            begins[first].append((number, log))
            times[first[1]].add(first[0])
    of_series = {series: np.array([*some]) for series, some in times.items()}
    for number, log in logs:
        others = [*begins[stem_of(log.file)]]
        for series, time_us, value in _changes(log):
            there = np.isin(time_us, of_series.get(series, ()))
            for one in zip(time_us[there].tolist(), value[there].tolist(), strict=True):
                others += begins.get((one[0], series, one[1]), ())
        for other, its in others:
            if other != number and _is_copy(log, its):
                yield number, other


def _changes(log: Log) -> Iterator[tuple[Hashable, IntArray, FloatArray]]:
    """Each series of a log with (n,) the times at which its value changed, and the new values."""
    for rows in map(in_time, log.gpus):
        for metric, values in rows.values.items():
            places = 1 + np.flatnonzero(np.abs(np.diff(values)) > 0)
            if len(places):
                yield (log.writer, rows.gpu, metric), rows.time_us[places], values[places]


def _is_copy(one: Log, other: Log) -> bool:
    """Whether two logs have the same values of each GPU that is in both, at the same times, while both were written."""
    of_one = {rows.gpu: rows for rows in one.gpus}
    pairs = [(in_time(of_one[rows.gpu]), in_time(rows)) for rows in other.gpus if rows.gpu in of_one]
    is_part = stem_of(one.file) == stem_of(other.file)
    is_shown = False
    for pair in pairs:
        first_us, last_us = max(some.time_us[0] for some in pair), min(some.time_us[-1] for some in pair)
        begins = [np.searchsorted(some.time_us, first_us) for some in pair]
        ends = [np.searchsorted(some.time_us, last_us, side="right") for some in pair]
        mine, its = (
            some.where(np.arange(begin, end)) for some, begin, end in zip(pair, begins, ends, strict=True)
        )
        if not np.array_equal(mine.time_us, its.time_us):
            return False
        is_shown |= is_part and all(0 < len(mine.time_us) <= _SEAM * len(some.time_us) for some in pair)
        for metric in mine.values.keys() & its.values.keys():
            if not np.array_equal(mine.values[metric], its.values[metric], equal_nan=True):
                return False
            is_shown |= bool((np.abs(np.diff(mine.values[metric])) > 0).any())
    return is_shown


def _host(unit: _Unit) -> str:
    return next((log.host for log in unit if log.host), "")


def _is_of_writer(unit: _Unit) -> bool:
    """Whether nothing but its turn in files names a machine."""
    return all(log.writer for log in unit)


def _unused(name: str, path: str, taken: Set[str]) -> str:
    """The name, or one made of the path if it is empty or ``taken``."""
    stem = path.rpartition(".")[0] or path
    names = chain((name, stem, path), (f"{stem} {i}" for i in count(2)))
    return next(one for one in names if one and one not in taken)


# Logs that name no machine


def _folder_words(path: str) -> str:
    return "_".join(machine_words(path.rpartition("/")[0]))


def _path_words(path: str) -> str:
    return "_".join(_GPU_BEHIND.sub("", word) for word in machine_words(path))


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
        words = {_path_words(log.file.name) for unit in mine for log in unit}
        # Tools on one machine: whose names differ in more than a number, and whose columns differ.
        kinds = (_letters, _measures) if len(words) == 1 else (_any,)
        at_once = any(_same_gpu_at_once(mine, kind) for kind in kinds)
        if finer and (at_once or _two_gpus_of_one_number(mine)):
            yield from _separated(mine, finer, tally)
            continue
        if len(finer) < 2:  # not the folders, which are there to separate
            tally.note("nvidia_smi.machines", count=sum(map(len, mine)), file=mine[0][0].file.name)
        yield name if finer else "", [log for unit in mine for log in unit]


def _any(_: SeenLog) -> Hashable:
    return None


def _letters(log: SeenLog) -> Hashable:
    return _DIGITS.sub("", log.file.name)


def _measures(log: SeenLog) -> Hashable:
    return log.measures


def _same_gpu_at_once(units: Sequence[_Unit], kind_of: Callable[[SeenLog], Hashable]) -> bool:
    """Whether two units have the same measure of one GPU at the same time, in logs of one kind."""
    spans: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for unit in units:
        mine: dict[Hashable, tuple[int, int]] = {}
        for log in unit:
            several = len(log.gpus) > 1
            for seen in log.gpus:
                # Several GPUs with nothing but UUIDs may be those of another log, or not.
                gpu = seen.gpu.name or seen.gpu.bus or ("" if several else seen.gpu.uuid)
                for measure in log.measures:
                    series: Hashable = (gpu, measure, kind_of(log))
                    first_us, last_us = mine.get(series, (seen.first_us, seen.last_us))
                    mine[series] = min(first_us, seen.first_us), max(last_us, seen.last_us)
        for series, span in mine.items():
            spans[series].append(span)
    return any(later < end for some in spans.values() for (_, end), (later, _) in pairwise(sorted(some)))


def _two_gpus_of_one_number(units: Sequence[_Unit]) -> bool:
    """Whether two units have GPUs of one number with different UUIDs, or different bus ids."""
    uuids: dict[str, int] = {}
    buses: dict[str, str] = {}
    for number, unit in enumerate(units):
        for seen in (seen for log in unit for seen in log.gpus if seen.gpu.name):
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
    in_order = sorted(logs, key=lambda log: (log.first_us, log.file))
    gpus = list(dict.fromkeys(seen.gpu for log in in_order for seen in log.gpus))
    identifiers = [_identifiers(gpu) for gpu in gpus]
    found = {gpu: gpu.name for gpu in gpus if gpu.name}
    if _is_number_of_two_at_once(logs):
        found, identifiers = {}, [one[-1:] for one in identifiers]
    has_numbers = bool(found)
    if not has_numbers and len(gpus) > 1:
        for log in logs:
            tally.note("nvidia_smi.numbered", file=log.file.name)
    for number, same in enumerate(connected(identifiers)):
        new = "" if has_numbers or not identifiers[same[0]] else f"gpu{number}"
        name = next((found[gpus[i]] for i in same if gpus[i] in found), new)
        found |= {gpus[i]: name for i in same if name and gpus[i] not in found}
    return found


def _is_number_of_two_at_once(logs: _Unit) -> bool:
    """Whether GPUs with different UUIDs have one number at the same time: they are of machines with one name."""
    spans = sorted(
        (seen.gpu.name, seen.first_us, seen.last_us, seen.gpu.uuid)
        for log in logs
        for seen in log.gpus
        if seen.gpu.name and seen.gpu.uuid
    )
    return any(
        name == other and first_us <= last_us and uuid != other_uuid
        for (name, _, last_us, uuid), (other, first_us, _, other_uuid) in pairwise(spans)
    )


def _identifiers(gpu: GPU) -> list[Hashable]:
    return [(kind, one) for kind, one in (("bus", gpu.bus), ("uuid", gpu.uuid)) if one]
