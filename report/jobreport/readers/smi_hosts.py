"""Which nvidia-smi logs are of one machine.

A log seldom names its machine. Two are of one where they say so, where they tell of a GPU with the same UUID, where
one is the other at an earlier moment, or where their names differ by nothing but dates and GPUs. Logs that tell
different things of a GPU of the same number at the same time are of several.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.smi_table import UNNUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.job import BoolArray, FloatArray, IntArray, Metric

#: The machine of logs that name none.
_NAMELESS = "node"
#: Words of a path, and the parts of one.
_WORDS, _PARTS = re.compile(r"[/_.\s]+"), re.compile(r"[^A-Za-z0-9]+")
#: What the name of a log is made of besides its machine's.
_USUAL = re.compile(
    r"csv|tsv|txt|log|logs|out|gz|dmon|pmon|nvidia|smi|nvidiasmi|gpu|gpus|cuda|usage|util|utilization|stats|"
    r"metrics|monitor|monitoring|trace|data|[0-9]+|(gpu|cuda)[0-9]+|[0-9]+gpus?|[0-9]{8}T[0-9]+Z?|",
    re.IGNORECASE,
)


class Log(Struct, frozen=True, kw_only=True, eq=False):
    """The rows of one file, or those of one machine in it."""

    file: SourceFile
    #: The machine that it names; empty if it names none.
    host: str
    uuids: frozenset[str]
    #: Names of GPUs, and (n,) a position among them.
    gpus: tuple[str, ...]
    gpu: IntArray
    #: (n,) in the order of the file.
    time_us: IntArray
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    def where(self, rows: BoolArray) -> Log:
        """The rows that a mask chooses, with the GPUs that they are of."""
        gpu = self.gpu[rows]
        there = np.unique(gpu)
        return replace(
            self,
            gpus=tuple(self.gpus[i] for i in there.tolist()),
            gpu=np.searchsorted(there, gpu),
            time_us=self.time_us[rows],
            values={metric: values[rows] for metric, values in self.values.items()},
        )

    def of_gpu(self, name: str) -> Log:
        """The rows of one GPU."""
        return self.where(self.gpu == self.gpus.index(name))


def hosts_of(logs: Sequence[Log]) -> list[str]:
    """The machine of each log."""
    group = _Groups(len(logs))
    by_word: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for i, log in enumerate(logs):
        for word in (*(("uuid", uuid) for uuid in log.uuids), *([("host", log.host)] if log.host else ())):
            by_word[word].append(i)
    for first, *others in by_word.values():
        for i in others:
            group.join(first, i)
    apart: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in _at_once(logs):
        if _repeats(logs[one], logs[other]):
            group.join(one, other)
        elif _contradict(logs[one], logs[other]):
            apart[other].add(one)
    _join_by_name(logs, group, apart)
    return _names(logs, [group.of(i) for i in range(len(logs))])


def _join_by_name(logs: Sequence[Log], group: _Groups, apart: Mapping[int, set[int]]) -> None:
    """Join what is called alike, unless it is known to be ``apart``."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for i, log in enumerate(logs):
        if not log.host:
            by_key[_key(log.file)].append(i)
    for members in by_key.values():
        # The logs of each machine of that name so far.
        machines: list[set[int]] = []
        for i in members:
            mine = next((m for m in machines if apart.get(i, set()).isdisjoint(m)), None)
            if mine is None:
                machines.append({i})
            else:
                group.join(min(mine), i)
                mine.add(i)


class _Groups:
    """What belongs together, as it turns out."""

    def __init__(self, count: int) -> None:
        self._first = list(range(count))

    def of(self, one: int) -> int:
        """The lowest number of the group."""
        while self._first[one] != one:
            self._first[one] = one = self._first[self._first[one]]
        return one

    def join(self, one: int, other: int) -> None:
        one, other = sorted((self.of(one), self.of(other)))
        self._first[other] = one


def _at_once(logs: Sequence[Log]) -> Iterator[tuple[int, int]]:
    """The pairs of logs that overlap in time, the lower number first."""
    spans = [(int(log.time_us.min()), int(log.time_us.max()), i) for i, log in enumerate(logs)]
    open_: list[tuple[int, int]] = []
    for start, end, i in sorted(spans):
        open_ = [(last, other) for last, other in open_ if last > start]
        yield from ((min(i, other), max(i, other)) for _, other in open_)
        open_.append((end, i))


def _names(logs: Sequence[Log], group: Sequence[int]) -> list[str]:
    """A name for each group: what its logs say, or, where there are several, what of their names is their own."""
    found: dict[int, str] = {}
    groups = sorted(set(group))
    for one in groups:
        mine = [log for log, number in zip(logs, group, strict=True) if number == one]
        keys = [_NAMELESS] if len(groups) == 1 else [_key(log.file) for log in mine]
        name = next(filter(None, [*(log.host for log in mine), *keys]), _stem(mine[0]))
        found[one] = _stem(mine[0]) if name in found.values() else name
    return [found[number] for number in group]


def _stem(log: Log) -> str:
    return log.file.name.rpartition(".")[0] or log.file.name


def _key(file: SourceFile) -> str:
    """The words of a file's path that may be those of a machine; empty if there are none."""
    words = _WORDS.split(file.name)
    return "_".join(w for w in words if not all(_USUAL.fullmatch(part) for part in _PARTS.split(w)))


def _shared(one: Log, other: Log) -> list[tuple[Log, Log]]:
    """The rows of GPUs of the same name in both logs."""
    return [(one.of_gpu(name), other.of_gpu(name)) for name in one.gpus if name in other.gpus]


def _equal(one: Log, other: Log) -> tuple[int, int]:
    """How many rows of a GPU are at the same time in both, and how many of these tell the same."""
    times, mine, others = np.intersect1d(one.time_us, other.time_us, return_indices=True)
    alike = np.ones(len(times), np.bool_)
    for metric in one.values.keys() & other.values.keys():
        a, b = one.values[metric][mine], other.values[metric][others]
        alike &= (a == b) | np.isnan(a) | np.isnan(b)
    return len(times), int(np.count_nonzero(alike))


def _contradict(one: Log, other: Log) -> bool:
    """Whether they cannot be of the same machine: they overlap in time and tell different things of a GPU.

    Nor can two that tell of several GPUs each, by UUID or bus, and of none that is in both.
    """
    shared = _shared(one, other)
    every = (*one.gpus, *other.gpus)
    if (
        min(len(one.gpus), len(other.gpus)) > 1
        and not shared
        and all(g.startswith(UNNUMBERED) for g in every)
    ):
        return True
    for a, b in shared:
        overlap = min(a.time_us.max(), b.time_us.max()) - max(a.time_us.min(), b.time_us.min())
        if overlap > 0:
            same, alike = _equal(a, b)
            if not same or alike < same:
                return True
    return False


def _repeats(one: Log, other: Log) -> bool:
    """Whether one is the other at an earlier moment, or a part of it."""
    found = [_equal(a, b) for a, b in _shared(one, other)]
    same, alike = sum(n for n, _ in found), sum(n for _, n in found)
    return alike == same >= min(len(one.time_us), len(other.time_us)) / 2 > 0
