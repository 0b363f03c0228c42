"""Which nvidia-smi logs are of one machine.

Logs are of one machine if they name the same host or a GPU with the same UUID, or if one is an earlier copy of the
other. Other logs of a folder are of one machine too, unless two of them report the same of one GPU at the same time:
then the words of their names separate them, or, where these are the same, their names.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from jobreport.readers.machines import NAMELESS, machine_words
from jobreport.readers.nvidia_smi.table import UNNUMBERED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set

    from jobreport.readers.nvidia_smi.logs import Log
    from jobreport.readers.tally import Tally
    from jobrules.model import Metric


def logs_by_host(logs: Sequence[Log], tally: Tally) -> dict[str, list[Log]]:
    """The logs of each machine, by a name of its own."""
    units = _units(logs)
    found = {host: unit for unit in units if (host := _host(unit))}
    nameless = [unit for unit in units if not _host(unit)]
    machines = list(_separated(nameless, _NAMES, tally))
    if len(machines) == 1 and not found:
        return {NAMELESS: machines[0][1]}
    for name, mine in machines:
        found[_unused(name, mine[0].file.name, found.keys())] = mine
    return found


def _host(unit: Sequence[Log]) -> str:
    return next((log.host for log in unit if log.host), "")


def _unused(name: str, path: str, taken: Set[str]) -> str:
    """The name, or one made of the path if it is empty or ``taken``."""
    stem = path.rpartition(".")[0] or path
    names = chain((name, stem, path), (f"{stem} {i}" for i in count(2)))
    return next(one for one in names if one and one not in taken)


# Logs that are of one machine whatever they are called


def _units(logs: Sequence[Log]) -> list[list[Log]]:
    """Logs together that have a host, a UUID, or their first rows in common."""
    first: dict[tuple[str, str], int] = {}
    links = list(_copies(logs))
    for number, log in enumerate(logs):
        identities = [("uuid", uuid) for uuid in log.uuids] + [("host", log.host)] * bool(log.host)
        links += [(first.setdefault(identity, number), number) for identity in identities]
    return _connected(logs, links)


def _connected(logs: Sequence[Log], links: Iterable[tuple[int, int]]) -> list[list[Log]]:
    """Logs together that a chain of links, pairs of their numbers, connects."""
    #: The number of a log of the same unit; its own for one of them.
    parent = list(range(len(logs)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    for one, other in links:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    units: defaultdict[int, list[Log]] = defaultdict(list)
    for number, log in enumerate(logs):
        units[root(number)].append(log)
    return list(units.values())


def _copies(logs: Sequence[Log]) -> Iterator[tuple[int, int]]:
    """Numbers of two logs without identities of which one begins with all rows of the other."""
    by_first_row: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, log in enumerate(logs):
        if not (log.host or log.uuids):
            by_first_row[*log.values, _content(log, 1)].append(number)
    for numbers in by_first_row.values():
        if len(numbers) > 1:
            # In this order a text is followed by those that begin with it.
            contents = sorted((_content(logs[number]), number) for number in numbers)
            for (content, one), (longer, other) in pairwise(contents):
                if longer.startswith(content):
                    yield one, other


def _content(log: Log, rows: int | None = None) -> bytes:
    """All that stands in the first rows, or in all."""
    columns = [log.time_us, log.gpu, *log.values.values()]
    return np.column_stack([column[:rows] for column in columns]).tobytes()


# Logs that name no machine


def _folder_words(path: str) -> str:
    return "_".join(machine_words(path.rpartition("/")[0]))


def _path_words(path: str) -> str:
    return "_".join(machine_words(path))


#: What separates machines: names of files, from coarse to fine.
_NAMES: tuple[Callable[[str], str], ...] = (_folder_words, _path_words, str)


def _separated(
    units: Sequence[list[Log]], names: Sequence[Callable[[str], str]], tally: Tally
) -> Iterator[tuple[str, list[Log]]]:
    """The name and the logs of each machine.

    Units with the same first one of ``names`` are of one machine, unless they clash; then the next one separates them.
    """
    name_of, *finer = names
    named: defaultdict[str, list[list[Log]]] = defaultdict(list)
    for unit in units:
        named[name_of(unit[0].file.name)].append(unit)
    for name, mine in named.items():
        if finer and _clash(mine):
            yield from _separated(mine, finer, tally)
            continue
        if not finer:
            tally.note("nvidia_smi.machines", count=len(mine[0]), file=mine[0][0].file.name)
        yield name if finer else "", [log for unit in mine for log in unit]


def _clash(units: Sequence[Sequence[Log]]) -> bool:
    """Whether two units have samples of one measure of one GPU at the same time."""
    spans: defaultdict[tuple[str, Metric], list[tuple[int, int]]] = defaultdict(list)
    for unit in units:
        start = min(int(log.time_us.min()) for log in unit)
        end = max(int(log.time_us.max()) for log in unit)
        for series in {(gpu, metric) for log in unit for gpu in _devices(log) for metric in log.values}:
            spans[series].append((start, end))
    return any(later < end for some in spans.values() for (_, end), (later, _) in pairwise(sorted(some)))


def _devices(log: Log) -> Set[str]:
    """GPUs by which logs clash: of several without numbers nobody knows that they are not the same."""
    if len(log.gpus) > 1 and all(gpu.startswith(UNNUMBERED) for gpu in log.gpus):
        return {UNNUMBERED}
    return set(log.gpus)
