"""Steps: from the end of one optimizer step to the end of the next, on the thread that trains."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jobrecord.traces import STEP_LANE

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrecord.traces import Trace

#: Steps of another optimizer after which it replaces a leader that does not step any more.
NEW_LEADER_STEPS = 100
_LANE = f"{STEP_LANE}TRAIN"


class Steps:
    """Training steps of one process.

    Several optimizers step one after the other within a step: it ends with that of the leader, the optimizer that
    stepped first. A mark from elsewhere, `end`, replaces optimizers for good. Times are ``perf_counter_ns``.
    """

    def __init__(
        self,
        trace: Trace,
        begin_ns: int | None,
        ended: Callable[[int, int], None],
        ending: Callable[[dict[str, Any]], None] = lambda _args: None,
    ) -> None:
        self.trace = trace
        self.number = 0
        #: Arguments of the row of the step that has begun.
        self.args: dict[str, Any] = {}
        self._ending, self._ended = ending, ended
        self._begin_ns = begin_ns
        self._has_fetched = False
        #: That of the optimizers; 0 until one stepped.
        self.thread = 0
        #: Whether something other than optimizers ends the steps.
        self.is_explicit = False
        self._leader: weakref.ref[object] | None = None
        #: Begin and end of steps of the optimizers that are not the leader, since it stepped.
        self._others: dict[int, list[tuple[int, int]]] = {}
        #: The first step, until it is certain that optimizers end steps.
        self._first: tuple[int, int, int, dict[str, Any]] | None = None

    def begin(self, at_ns: int) -> None:
        """Begin the first step, if there is none yet."""
        if self.trace.steps == 0:
            self._begin_ns = at_ns

    def first_fetch(self, at_ns: int) -> None:
        """Begin the first step with the first fetch."""
        if not self._has_fetched:
            self._has_fetched = True
            self.begin(at_ns)

    def optimizer_begins(self, at_ns: int) -> None:
        """Begin the first step here if nothing else said when it began."""
        if self._begin_ns is None:
            self._begin_ns = at_ns
            self.args["cut"] = True

    def optimizer_stepped(self, optimizer: object, at_ns: int) -> None:
        """End a step if this is the leader."""
        if self.is_explicit:
            return
        thread = get_ident()
        self.thread = self.thread or thread
        if thread != self.thread:
            self.trace.other_threads += 1
            return
        leader = self._leader and self._leader()
        if leader is None and not self._others:
            leader, self._leader = optimizer, weakref.ref(optimizer)
        if leader is optimizer:
            if self._others:
                self._others.clear()
            self._end(at_ns)
        else:
            self._other_stepped(optimizer, at_ns, has_leader=leader is not None)

    def take_over(self) -> None:
        """Let marks from elsewhere end the steps from now on."""
        if self.is_explicit:
            return
        self.is_explicit = True
        self.thread = get_ident()
        self._others.clear()
        if self._first is not None:
            # The optimizer ended the same step just before.
            self.number, self._begin_ns, _, self.args = self._first
            self._first = None
            self.trace.steps -= 1

    def end(self, at_ns: int) -> None:
        """End a step, by something other than an optimizer."""
        self.take_over()
        self._begin_ns = at_ns if self._begin_ns is None else self._begin_ns
        self._end(at_ns)

    def resume(self, step: int) -> None:
        """Number the next step `step`."""
        self.write_first()
        self.number = step

    def begin_after(self, at_ns: int) -> None:
        """Begin the next step now: what was done until now is no part of a step."""
        if self._begin_ns is not None and self.thread in (0, get_ident()):
            self._begin_ns = at_ns

    def _other_stepped(self, optimizer: object, at_ns: int, *, has_leader: bool) -> None:
        steps = self._others.setdefault(id(optimizer), [])
        begin_ns = self._begin_ns or at_ns
        steps.append((max(begin_ns, steps[-1][1]) if steps else begin_ns, at_ns))
        if has_leader and len(steps) < NEW_LEADER_STEPS:
            return
        self._leader = weakref.ref(optimizer)
        self._others.clear()
        for self._begin_ns, end_ns in steps:
            self._end(end_ns)

    def _end(self, at_ns: int) -> None:
        begin_ns = at_ns if self._begin_ns is None else self._begin_ns
        self._ending(self.args)
        step = self.number, begin_ns, at_ns, self.args
        if self._first is not None:
            self.write_first()
        if self.trace.steps == 0 and not self.is_explicit:
            self._first = step
        else:
            self._write(*step)
        self.trace.steps += 1
        self.number += 1
        self._begin_ns, self.args = at_ns, {}
        self._ended(self.number, at_ns)

    def write_first(self) -> None:
        """Write the first step, if it was not written yet."""
        if self._first is not None:
            self._write(*self._first)
            self._first = None

    def _write(self, number: int, begin_ns: int, end_ns: int, args: dict[str, Any]) -> None:
        self.trace.add(_LANE, _LANE, begin_ns, end_ns, number, args)
