"""Which nvidia-smi logs are of one machine.

A log seldom names its machine. Two are of one where they say so, where they tell of a GPU with the same UUID, where
one is the other at an earlier moment, where their names differ by nothing but dates, GPUs and what is measured, or
where they measure different things of the same GPUs in one folder and no others are there. Logs that tell different
things of a GPU of the same number at the same time are of several.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from itertools import chain, count
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.table import UNNUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model import BoolArray, FloatArray, IntArray, Metric

#: The machine of logs that name none.
_NAMELESS = "node"
#: Pairs of logs and series of GPUs in two of them that are compared at most, or so many for each row.
_MOST_COMPARED, _COMPARED_A_ROW = 500_000, 4
_TOO_MANY = "so many logs of the same time that not all were compared; each of the others counts as a machine"
#: Words of a path, and the parts of one.
_WORDS, _PARTS = re.compile(r"[/_.\s]+"), re.compile(r"[^A-Za-z0-9]+")
#: What the name of a log is made of besides its machine's.
_USUAL = re.compile(
    r"csv|tsv|txt|log|logs|out|gz|dmon|pmon|nvidia|smi|nvidiasmi|gpu|gpus|cuda|usage|util|utilization|stats|"
    r"metrics|monitor|monitoring|trace|data|power|pwr|temp|temperature|mem|memory|clocks?|ecc|"
    r"[0-9]+|(gpu|cuda)[0-9]+|[0-9]+gpus?|[0-9]{8}T[0-9]+Z?|",
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
    #: Whether its times have dates.
    dated: bool = True

    def where(self, rows: BoolArray | IntArray) -> Log:
        """The rows that a mask chooses, or that are at these places, with the GPUs that they are of."""
        gpu = self.gpu[rows]
        there = np.unique(gpu)
        return replace(
            self,
            gpus=tuple(self.gpus[i] for i in there.tolist()),
            gpu=np.searchsorted(there, gpu),
            time_us=self.time_us[rows],
            values={metric: values[rows] for metric, values in self.values.items()},
        )

    def rows_by_gpu(self) -> dict[str, IntArray]:
        """Where the rows of each GPU are, in their order."""
        order = np.argsort(self.gpu, kind="stable")
        ends = np.searchsorted(self.gpu[order], np.arange(1, len(self.gpus)))
        return dict(zip(self.gpus, np.split(order, ends), strict=True))

    def by_gpu(self) -> dict[str, Log]:
        """The rows of each GPU."""
        return {name: self.where(rows) for name, rows in self.rows_by_gpu().items()}


def hosts_of(logs: Sequence[Log], tally: Tally) -> list[str]:
    """The machine of each log."""
    group = _Groups(len(logs))
    by_word: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for i, log in enumerate(logs):
        for word in (*(("uuid", uuid) for uuid in log.uuids), *([("host", log.host)] if log.host else ())):
            by_word[word].append(i)
    for first, *others in by_word.values():
        for i in others:
            group.join(first, i)
    apart = _compare(logs, group)
    if apart is not None:
        _join_by_name(logs, group, apart)
    elif len({group.of(i) for i in range(len(logs))}) > 1:
        tally.add("corrected", "logs", _TOO_MANY, count=len(logs))
    return _names(logs, [group.of(i) for i in range(len(logs))])


def _compare(logs: Sequence[Log], group: _Groups) -> Mapping[int, set[int]] | None:
    """Join what the rows say is of one machine, and say which logs they keep apart; none if there are too many."""
    apart: defaultdict[int, set[int]] = defaultdict(set)
    parts: list[tuple[int, int]] = []
    moments = cache(lambda i: _moments(logs[i]))
    names = [frozenset(log.gpus) for log in logs]
    left = max(_MOST_COMPARED, _COMPARED_A_ROW * sum(len(log.time_us) for log in logs))
    for one, other in _at_once(logs):
        left -= 1
        if left < 0:
            return None
        # What they say of themselves is enough, and comparing all with all would take long.
        if group.of(one) == group.of(other):
            continue
        a, b, share = logs[one], logs[other], not names[one].isdisjoint(names[other])
        if not (differ := _other_gpus(a, b, share=share)) and a.values.keys().isdisjoint(b.values):
            if not (a.host or b.host) and _folder(a) == _folder(b) and share:
                parts.append((one, other))
            continue
        alike, compared = (None, 0) if differ else _alike(moments(one), moments(other))
        left -= compared
        if alike is None:
            apart[one].add(other)
            apart[other].add(one)
        elif alike >= min(len(a.time_us), len(b.time_us)) / 2 > 0:
            group.join(one, other)
    for one, other in parts:
        if not (apart[one] or apart[other]):
            group.join(one, other)
    return apart


def _join_by_name(logs: Sequence[Log], group: _Groups, apart: Mapping[int, set[int]]) -> None:
    """Join what is called alike, unless it is known to be ``apart``."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for i, log in enumerate(logs):
        if not log.host:
            by_key[words_of(log.file)].append(i)
    for members in by_key.values():
        # The first log of each machine of that name so far, and all of them.
        machines: list[tuple[int, set[int]]] = []
        for i in members:
            mine = next((m for m in machines if apart.get(i, set()).isdisjoint(m[1])), None)
            if mine is None:
                machines.append((i, {i}))
            else:
                group.join(mine[0], i)
                mine[1].add(i)


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
    """The pairs of logs that overlap in time and do not both name their machine, the lower number first."""
    spans = [(int(log.time_us.min()), int(log.time_us.max()), i) for i, log in enumerate(logs)]
    # Those that name a machine, and those that do not.
    open_: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for start, end, i in sorted(spans):
        named = bool(logs[i].host)
        for kind in (False,) if named else (False, True):
            open_[kind] = [(last, other) for last, other in open_[kind] if last > start]
            yield from ((min(i, other), max(i, other)) for _, other in open_[kind])
        open_[named].append((end, i))


def _names(logs: Sequence[Log], group: Sequence[int]) -> list[str]:
    """A name of its own for each group: what its logs say, else what of their names is their own, or all of one."""
    members: defaultdict[int, list[Log]] = defaultdict(list)
    for log, number in zip(logs, group, strict=True):
        members[number].append(log)
    found: dict[int, str] = {}
    taken: set[str] = set()
    # What is said goes before what is guessed.
    for number, mine in sorted(
        members.items(), key=lambda one: (not any(log.host for log in one[1]), one[0])
    ):
        keys = [_NAMELESS] if len(members) == 1 else [words_of(log.file) for log in mine]
        stem, name = _stem(mine[0]), mine[0].file.name
        told = filter(None, [*(log.host for log in mine), *keys, stem, name])
        numbered = (f"{stem} {i}" for i in count(2))
        found[number] = next(one for one in chain(told, numbered) if one not in taken)
        taken.add(found[number])
    return [found[number] for number in group]


def _stem(log: Log) -> str:
    return log.file.name.rpartition(".")[0] or log.file.name


def words_of(file: SourceFile) -> str:
    """The words of a file's path that may be those of a machine; empty if there are none."""
    words = _WORDS.split(file.name)
    return "_".join(w for w in words if not all(_USUAL.fullmatch(part) for part in _PARTS.split(w)))


def _folder(log: Log) -> str:
    return log.file.name.rpartition("/")[0]


def _other_gpus(one: Log, other: Log, *, share: bool) -> bool:
    """Whether what identifies their GPUs, of which they ``share`` some or none, says that they are of two machines.

    That is so where GPUs of one number are not the same, and where both tell of several by UUID or bus and of none
    that is in both.
    """
    if share:
        return bool(one.uuids and other.uuids) and one.uuids.isdisjoint(other.uuids)
    several = min(len(one.gpus), len(other.gpus)) > 1
    return several and all(name.startswith(UNNUMBERED) for name in (*one.gpus, *other.gpus))


class _Moments(Struct, frozen=True, eq=False):
    """What a log says of one of its GPUs."""

    #: (n,) ascending, each once, and the first row of that time in ``values``.
    time_us: IntArray
    row: IntArray
    values: dict[Metric, FloatArray]


def _moments(log: Log) -> dict[str, _Moments]:
    """Those of each GPU."""
    found = {}
    for name, rows in log.rows_by_gpu().items():
        time_us, first = np.unique(log.time_us[rows], return_index=True)
        found[name] = _Moments(time_us, rows[first], log.values)
    return found


def _alike(one: Mapping[str, _Moments], other: Mapping[str, _Moments]) -> tuple[int | None, int]:
    """How many moments of their GPUs are in both logs and tell the same; none if these are of two machines.

    They are if a moment tells different things, or if they overlap in time without a moment in common. And how many
    series were compared to know.
    """
    found = compared = 0
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        compared += 1
        at = np.minimum(np.searchsorted(b.time_us, a.time_us), len(b.time_us) - 1)
        same = b.time_us[at] == a.time_us
        mine, others = a.row[same], b.row[at[same]]
        for metric in a.values.keys() & b.values.keys():
            compared += 1
            x, y = a.values[metric][mine], b.values[metric][others]
            if ((x != y) & ~np.isnan(x) & ~np.isnan(y)).any():
                return None, compared
        overlap = min(a.time_us[-1], b.time_us[-1]) > max(a.time_us[0], b.time_us[0])
        if overlap and not len(mine):
            return None, compared
        found += len(mine)
    return found, compared
