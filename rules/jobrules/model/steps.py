"""The table of training steps."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobrules.model.names import EventName, NodeName, RankName
from jobrules.model.types import (
    BoolArray,
    CodeArray,
    IntArray,
    MarkArray,
    StrArray,
    _no_codes,
    _no_flags,
    _no_ints,
    _no_marks,
    natural_key,
)

#: The first steps choose kernels and fill caches.
WARM_UP_STEPS = 10

#: Node, training process (its rank, or its process id on the node), and mode of steps: ``TRAIN``, ``EVAL``,
#: ``PREDICT``, or ``GLOBAL``.
StepSeries: TypeAlias = tuple[NodeName, RankName, EventName]


class StepMark(IntEnum):
    """Why the duration of a step says nothing about others."""

    NONE = 0
    #: A profiler was at work.
    PROFILED = 1
    #: Recorded in part: an exception ended it, or the recording began in it.
    CUT = 2


class Steps(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Training steps, one row each, in arrays of the same length; empty if none were recorded."""

    #: Each series once, in natural order.
    series: tuple[StepSeries, ...] = ()
    #: (n,) position in ``series``.
    code: CodeArray = field(default_factory=_no_codes)
    #: (n,) step number; -1 if the source has none.
    number: IntArray = field(default_factory=_no_ints)
    start_us: IntArray = field(default_factory=_no_ints)
    end_us: IntArray = field(default_factory=_no_ints)
    #: (n,) ``StepMark``.
    mark: MarkArray = field(default_factory=_no_marks)
    #: (n,) samples and tokens that the step trained with; -1 if they are not known.
    samples: IntArray = field(default_factory=_no_ints)
    tokens: IntArray = field(default_factory=_no_ints)
    #: (n,) whether the recorder inferred it: of an evaluation that there was one, of any other step its size.
    inferred: BoolArray = field(default_factory=_no_flags)
    #: Whether the source writes the numbers as text: ``"5"``.
    numbers_as_text: bool = True
    #: Whether each step lasts from the end of the one before, so that it holds its batch fetch and its backward pass.
    whole: bool = False

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def duration_us(self) -> IntArray:
        """(n,) duration of each step."""
        return self.end_us - self.start_us

    @cached_property
    def comparable(self) -> Steps:
        """Steps without a mark, whose durations can be compared; all if each has one."""
        unmarked = self.mark == StepMark.NONE
        return self.where(unmarked) if unmarked.any() and not unmarked.all() else self

    @cached_property
    def node(self) -> StrArray:
        """(n,) names of nodes."""
        return self._named(0)

    @cached_property
    def rank(self) -> StrArray:
        """(n,) names of training processes."""
        return self._named(1)

    @cached_property
    def mode(self) -> StrArray:
        """(n,) names of modes."""
        return self._named(2)

    def _named(self, part: int) -> StrArray:
        return np.array([one[part] for one in self.series], np.str_)[self.code]

    def where(self, rows: BoolArray | slice) -> Steps:
        """Steps selected by a mask or a slice."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _STEP_COLUMNS})

    def of_node(self, node: str) -> Steps:
        """Steps of one node, with its series."""
        mine = [i for i, (name, _, _) in enumerate(self.series) if name == node]
        found = self.where(np.isin(self.code, mine))
        return replace(found, series=tuple(self.series[i] for i in mine), code=_moved(mine, self)[found.code])

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end over all ranks; None without steps."""
        return (int(self.start_us.min()), int(self.end_us.max())) if len(self) else None

    @classmethod
    def joined(cls, tables: Sequence[Steps]) -> Steps:
        """Steps of several tables, sorted by start, then end."""
        tables = [table for table in tables if len(table)]
        if len(tables) < 2:
            return tables[0] if tables else cls()
        every = sorted({one for table in tables for one in table.series}, key=_series_key)
        place = {one: i for i, one in enumerate(every)}
        columns = {name: np.concatenate([getattr(t, name) for t in tables]) for name in _STEP_COLUMNS[1:]}
        columns["code"] = np.concatenate(
            [np.array([place[one] for one in table.series], np.int32)[table.code] for table in tables]
        )
        order = np.lexsort((columns["end_us"], columns["start_us"]))
        found = cls(
            series=tuple(every),
            numbers_as_text=any(table.numbers_as_text for table in tables),
            whole=any(table.whole for table in tables),
        )
        return replace(found, **{name: column[order] for name, column in columns.items()})

    @classmethod
    def of(
        cls,
        names: Sequence[StepSeries],
        code: CodeArray | IntArray,
        **columns: IntArray | MarkArray | BoolArray,
    ) -> Steps:
        """Steps of series in any order, repeated or empty; ``code`` is the position in ``names``. No mark is none, no size is not known."""
        used = set(np.flatnonzero(np.bincount(code, minlength=len(names))).tolist())
        series = sorted({names[i] for i in used}, key=_series_key)
        place = {one: i for i, one in enumerate(series)}
        moved = np.array([place.get(one, -1) for one in names], np.int32)
        found = cls(series=tuple(series), code=moved[code] if len(code) else _no_codes())
        unknown = np.full(len(code), -1, np.int64)
        absent = {
            "mark": np.zeros(len(code), np.int8),
            "samples": unknown,
            "tokens": unknown,
            "inferred": np.zeros(len(code), np.bool_),
        }
        return replace(found, **absent | columns)


_STEP_COLUMNS = ("code", "number", "start_us", "end_us", "mark", "samples", "tokens", "inferred")


def _moved(kept: Sequence[int], steps: Steps) -> CodeArray:
    """(series,) new position of each series, -1 for those that are not kept."""
    moved = np.full(len(steps.series), -1, np.int32)
    moved[kept] = np.arange(len(kept), dtype=np.int32)
    return moved


def _series_key(series: StepSeries) -> list[Any]:
    return [natural_key(name) for name in series]
