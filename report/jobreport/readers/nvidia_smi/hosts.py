"""Which nvidia-smi logs are of one machine.

Logs are of one machine if they name the same host or a GPU with the same UUID, or if one is an earlier copy of
the other. Other logs of a folder are of one machine too, unless two of them report the same of one GPU at the same
time: then the words of their names separate them, or, where these are the same, their names.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.connected import connected
from jobreport.readers.machines import NAMELESS, machine_words
from jobreport.readers.nvidia_smi.rows import UNNUMBERED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence, Set

    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.tally import Tally
    from jobrules.model import Metric

#: Logs with a host or a UUID in common.
_Unit = list["Log"]


def logs_by_host(logs: Sequence[Log], tally: Tally) -> dict[str, list[Log]]:
    """The logs of each machine, by a name of its own."""
    units = [[logs[number] for number in some] for some in connected(_identities(logs))]
    found = {host: unit for unit in units if (host := _host(unit))}
    nameless = [unit for unit in units if not _host(unit)]
    machines = list(_separated(nameless, _NAMES, tally))
    if len(machines) == 1 and not found:
        return {NAMELESS: machines[0][1]}
    for name, mine in machines:
        found[_unused(name, mine[0].file.name, found.keys())] = mine
    return found


def _identities(logs: Sequence[Log]) -> list[list[Hashable]]:
    """What logs of one machine have in common: the host, UUIDs, or without these the rows of the shorter log."""
    found: list[list[Hashable]] = []
    shortest: defaultdict[Hashable, int] = defaultdict(lambda: sys.maxsize)
    for log in logs:
        begins = _first_rows(log, 1)
        shortest[begins] = min(shortest[begins], len(log.rows.time_us))
    for log in logs:
        named = [("host", log.host)] * bool(log.host) + [("uuid", uuid) for uuid in log.rows.uuids]
        found.append([*named] if named else [_first_rows(log, shortest[_first_rows(log, 1)])])
    return found


def _first_rows(log: Log, count: int) -> Hashable:
    columns = [log.rows.time_us, log.rows.gpu, *log.rows.values.values()]
    return *log.rows.values, np.column_stack([column[:count] for column in columns]).tobytes()


def _host(unit: _Unit) -> str:
    return next((log.host for log in unit if log.host), "")


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
) -> Iterator[tuple[str, list[Log]]]:
    """The name and the logs of each machine.

    Units with the same first one of ``names`` are of one machine, unless they clash; then the next one separates them.
    """
    name_of, *finer = names
    named: defaultdict[str, list[_Unit]] = defaultdict(list)
    for unit in units:
        named[name_of(unit[0].file.name)].append(unit)
    for name, mine in named.items():
        if finer and _clash(mine):
            yield from _separated(mine, finer, tally)
            continue
        if not finer:
            tally.note("nvidia_smi.machines", count=len(mine[0]), file=mine[0][0].file.name)
        yield name if finer else "", [log for unit in mine for log in unit]


def _clash(units: Sequence[_Unit]) -> bool:
    """Whether two units have samples of one measure of one GPU at the same time."""
    spans: defaultdict[tuple[str, Metric], list[tuple[int, int]]] = defaultdict(list)
    for unit in units:
        start = min(int(log.rows.time_us.min()) for log in unit)
        end = max(int(log.rows.time_us.max()) for log in unit)
        for series in {(gpu, metric) for log in unit for gpu in _gpus(log) for metric in log.rows.values}:
            spans[series].append((start, end))
    return any(later < end for some in spans.values() for (_, end), (later, _) in pairwise(sorted(some)))


def _gpus(log: Log) -> Set[str]:
    """GPUs by which logs clash: several without numbers may be the same ones, or not."""
    names = log.rows.gpus
    if len(names) > 1 and all(gpu.startswith(UNNUMBERED) for gpu in names):
        return {UNNUMBERED}
    return set(names)
