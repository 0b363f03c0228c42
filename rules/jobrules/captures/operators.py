"""Operators and marks on threads of the host: who called whom, and who launched what.

A call lies in the last one before it on its thread that has not ended. An operator owns the device events whose launch
call begins inside of it.
"""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.captures.trace import NOT_GIVEN, HostCalls
from jobrules.model.captures import Operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobrules.model import BoolArray, CodeArray, IntArray

MAX_ROWS, MAX_HOST_PARTS = 25, 10
#: Calls that are looked at together: as Python objects they take much memory.
_MANY = 1 << 14
#: Later than any moment.
_END = np.iinfo(np.int64).max


class CallSums(Struct, frozen=True, kw_only=True, eq=False):
    """Sums over all calls of a name, by its position; and the innermost call at given moments."""

    calls: IntArray
    #: Length without that of the calls directly in each, these cut at its end; and with it, once for nested calls.
    self_ns: IntArray
    total_ns: IntArray
    #: Weight of the moments in each, without and with those in other calls in it.
    device_self_ns: IntArray
    device_total_ns: IntArray
    #: (moments,) position of the name of the innermost call; ``NOT_GIVEN`` for none.
    innermost: CodeArray


def call_sums(
    tables: Sequence[HostCalls],
    names: int,
    moments: HostCalls | None = None,
    weight_ns: IntArray | None = None,
    length: Callable[[IntArray, IntArray, IntArray | CodeArray], IntArray] = lambda end, start, _: (
        end - start
    ),
) -> CallSums:
    """The sums of all threads. Moments are the starts of other calls; ``length`` takes ends, starts, and threads."""
    moments = HostCalls() if moments is None else moments
    weight_ns = np.zeros(len(moments), np.int64) if weight_ns is None else weight_ns
    sums = CallSums(
        **{key: np.zeros(names, np.int64) for key in CallSums.__struct_fields__[:-1]},
        innermost=np.full(len(moments), NOT_GIVEN, np.int32),
    )
    order = np.lexsort((moments.start_ns, moments.thread))
    for begin, end in _groups([*(table.thread for table in tables), moments.thread]):
        at = order[slice(*np.searchsorted(moments.thread, (begin, end), sorter=order))]
        found = _of_threads(tables, begin, end)
        _Threads(sums, *found, length, end > begin + 1).add(
            at, moments.thread[at], moments.start_ns[at], weight_ns[at]
        )
    return sums


def _groups(threads: Sequence[IntArray | CodeArray]) -> Iterator[tuple[int, int]]:
    """First and last thread, exclusive, of those that are gone through together: one, or several with few calls."""
    count = max((int(one.max()) + 1 for one in threads if len(one)), default=0)
    rows = np.cumsum([np.bincount(one, minlength=count) for one in threads], axis=1).sum(axis=0)
    begin = 0
    while begin < count:
        before = rows[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(rows, before + _MANY, side="right")))
        yield begin, end
        begin = end


def _of_threads(
    tables: Sequence[HostCalls], begin: int, end: int
) -> tuple[CodeArray, CodeArray, IntArray, IntArray]:
    """Threads, names, starts, and ends of the calls on some threads, by thread and start, the longest first."""
    borders = np.array([begin, end], np.int32)
    own = [slice(*np.searchsorted(table.thread, borders).tolist()) for table in tables]
    columns = (
        [getattr(table, key)[rows] for table, rows in zip(tables, own, strict=True)]
        for key in ("thread", "name", "start_ns", "end_ns")
    )
    if len(tables) == 1:
        ((thread,), (name,), (start_ns,), (end_ns,)) = columns
        return thread, name, start_ns, end_ns
    thread, name, start_ns, end_ns = map(np.concatenate, columns)
    order = np.lexsort((-end_ns, start_ns, thread))
    return thread[order], name[order], start_ns[order], end_ns[order]


class _Threads(Struct, eq=False):
    """The calls of threads, by start, the longest first, and those that are open as they are gone through."""

    sums: CallSums
    thread: CodeArray
    name: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    length: Callable[[IntArray, IntArray, IntArray | CodeArray], IntArray]
    #: True if the calls are those of several threads.
    several: bool
    #: End and name of each open call; and what had been launched before it, if it lies in no other of its name.
    open: list[tuple[int, int, int]] = []
    names: set[int] = set()
    launched_ns: int = 0

    def add(self, at: IntArray, thread: CodeArray, moment_ns: IntArray, weight_ns: IntArray) -> None:
        """Add their sums, with moments in their order, which stand at these positions of the result."""
        for calls, looks in self._parts(moment_ns):
            count = calls.stop - calls.start
            columns = np.full((4, count + looks.stop - looks.start), NOT_GIVEN, np.int64)
            columns[:, :count] = (
                self.start_ns[calls],
                self.end_ns[calls],
                self.name[calls],
                self.thread[calls],
            )
            columns[:2, count:] = moment_ns[looks], weight_ns[looks]
            columns[3, count:] = thread[looks]
            # A moment comes behind the calls that begin in it.
            order = np.lexsort((columns[0], columns[3]))
            back = np.argsort(order)
            outer, until, outermost = self._outer(columns[:, order])
            outer, until, outermost = outer[back], until[back], outermost[back]
            self._add_calls(calls, outer[:count], until[:count], outermost[:count])
            launching = outer[count:]
            self.sums.innermost[at[looks]] = launching
            owned = launching != NOT_GIVEN
            np.add.at(self.sums.device_self_ns, launching[owned], weight_ns[looks][owned])
        self._close_until(_END)

    def _parts(self, moment_ns: IntArray) -> Iterator[tuple[slice, slice]]:
        """Calls and moments that are gone through together: all calls begin no later than the next moments."""
        if self.several:
            yield slice(0, len(self.name)), slice(0, len(moment_ns))
            return
        call = moment = 0
        while call < len(self.name) or moment < len(moment_ns):
            next_call = min(call + _MANY, len(self.name))
            next_moment = len(moment_ns)
            if next_call < len(self.name):
                next_moment = int(np.searchsorted(moment_ns, self.start_ns[next_call]))
            if next_moment - moment > _MANY:
                next_moment = moment + _MANY
                next_call = int(np.searchsorted(self.start_ns, moment_ns[next_moment - 1], side="right"))
            yield slice(call, next_call), slice(moment, next_moment)
            call, moment = next_call, next_moment

    def _outer(self, columns: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """(n,) name and end of the call in which each call and moment lies, and whether it is in none of its name."""
        stack, names = self.open, self.names
        outer, ends, outermost = [], [], []
        last = NOT_GIVEN
        for begin, until, name, thread in zip(*columns.tolist(), strict=True):
            if last not in (thread, NOT_GIVEN):
                self._close_until(_END)
            last = thread
            if stack and stack[-1][0] <= begin:
                self._close_until(begin)
            if stack:
                end, around, _ = stack[-1]
                outer.append(around)
                ends.append(end)
            else:
                outer.append(NOT_GIVEN)
                ends.append(begin)
            if name == NOT_GIVEN:
                self.launched_ns += until
                outermost.append(False)
            elif name in names:
                stack.append((until, name, NOT_GIVEN))
                outermost.append(False)
            else:
                stack.append((until, name, self.launched_ns))
                names.add(name)
                outermost.append(True)
        return np.array(outer, np.int64), np.array(ends, np.int64), np.array(outermost, np.bool_)

    def _close_until(self, begin: int) -> None:
        stack, launched_ns = self.open, self.launched_ns
        while stack and stack[-1][0] <= begin:
            _, name, before_ns = stack.pop()
            if before_ns != NOT_GIVEN:
                self.names.discard(name)
                if launched_ns != before_ns:
                    self.sums.device_total_ns[name] += launched_ns - before_ns

    def _add_calls(self, rows: slice, outer: IntArray, until_ns: IntArray, outermost: BoolArray) -> None:
        name, thread = self.name[rows], self.thread[rows]
        start, end = self.start_ns[rows], self.end_ns[rows]
        own = self.length(end, start, thread)
        np.add.at(self.sums.calls, name, 1)
        np.add.at(self.sums.self_ns, name, own)
        np.add.at(self.sums.total_ns, name[outermost], own[outermost])
        inside = outer != NOT_GIVEN
        covered = self.length(np.minimum(end, until_ns)[inside], start[inside], thread[inside])
        np.subtract.at(self.sums.self_ns, outer[inside], covered)


def operator_table(sums: CallSums, names: Sequence[str], *by: IntArray) -> tuple[Operators, ...]:
    """The names with a call that have most of any of some sums, in the order of the first."""
    called = np.flatnonzero(sums.calls)
    kept = {one for amounts in by for one in _most(called, amounts, names)}
    return tuple(
        Operators(
            name=names[name],
            calls=int(sums.calls[name]),
            self_ns=int(sums.self_ns[name]),
            total_ns=int(sums.total_ns[name]),
            device_self_ns=int(sums.device_self_ns[name]),
            device_total_ns=int(sums.device_total_ns[name]),
        )
        for name in _most(np.array([*kept], np.int64), by[0], names, len(kept))
    )


def _most(called: IntArray, amounts: IntArray, names: Sequence[str], count: int = MAX_ROWS) -> list[int]:
    """Positions of the names with most; of equal amounts in the order of the alphabet."""
    own = amounts[called]
    if len(own) > count:
        called = called[own >= np.partition(own, -count)[-count]]
    # Thousands of operators may all have nothing on a device.
    return nsmallest(count, called.tolist(), key=lambda name: (-int(amounts[name]), names[name]))


def host_parts(
    tables: Sequence[HostCalls], names: Sequence[str], start_ns: IntArray, end_ns: IntArray, thread: IntArray
) -> Counter[str]:
    """Nanoseconds of stretches of threads by the name of the innermost call; those of a thread do not overlap.

    An empty name stands for what lies outside of all calls.
    """
    if not len(start_ns):
        return Counter()
    order = np.lexsort((start_ns, thread))
    stretches = _Stretches(thread[order], start_ns[order], end_ns[order])
    touching = [_touching(table, stretches) for table in tables]
    spent = call_sums(touching, len(names), length=stretches.overlap).self_ns
    found = Counter({names[name]: int(spent[name]) for name in np.flatnonzero(spent).tolist()})
    found[""] += int((end_ns - start_ns).sum() - spent.sum())
    return +found


class _Stretches(Struct, eq=False):
    """Stretches of threads, by thread and start; those of a thread do not overlap."""

    thread: IntArray
    start_ns: IntArray
    end_ns: IntArray

    def overlap(self, end_ns: IntArray, start_ns: IntArray, thread: IntArray | CodeArray) -> IntArray:
        """(n,) how much of given intervals, by thread, lies inside."""
        rows = slice(*np.searchsorted(self.thread, (thread[0], thread[-1] + 1))) if len(thread) else slice(0)
        own = _Stretches(self.thread[rows], self.start_ns[rows], self.end_ns[rows])
        if not len(own.thread):
            return np.zeros(len(thread), np.int64)
        return own._before(end_ns, thread) - own._before(start_ns, thread)

    def _before(self, time_ns: IntArray, thread: IntArray | CodeArray) -> IntArray:
        """(n,) length of the stretches of all earlier threads, and of the same one before the moment."""
        if thread[0] == thread[-1]:
            begun = np.searchsorted(self.start_ns, time_ns, side="right")
        else:
            count = len(self.thread)
            both = np.concatenate([self.thread, thread]), np.concatenate([self.start_ns, time_ns])
            order = np.lexsort(both[::-1])
            begun = np.empty(len(order), np.int64)
            begun[order] = np.cumsum(order < count)
            begun = begun[count:]
        sums = np.append(0, np.cumsum(self.end_ns - self.start_ns))
        last = np.maximum(begun - 1, 0)
        unfinished = (begun > 0) & (self.thread[last] == thread) & (self.end_ns[last] > time_ns)
        return np.asarray(sums[begun] - np.where(unfinished, self.end_ns[last] - time_ns, 0))


def _touching(table: HostCalls, stretches: _Stretches) -> HostCalls:
    """The calls that lie partly in some stretches."""
    rows = [np.zeros(0, np.int64)]
    for borders in _groups([table.thread, stretches.thread]):
        first, last = np.searchsorted(table.thread, borders).tolist()
        for begin in range(first, last, _MANY):
            some = slice(begin, min(begin + _MANY, last))
            inside = stretches.overlap(table.end_ns[some], table.start_ns[some], table.thread[some])
            rows.append(begin + np.flatnonzero(inside > 0))
    kept = np.concatenate(rows)
    return HostCalls(**{key: getattr(table, key)[kept] for key in ("name", "thread", "start_ns", "end_ns")})
