"""Which optimizer ends a step, and where steps begin. An optimizer is any object here."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from jobrecord.hooks.steps import NEW_LEADER_STEPS, Steps
from jobrecord.traces import Trace
from tests.record.hooks.written import Event, steps

MS = 1_000_000


class Optimizer:
    pass


class Loop:
    """A training loop on a clock of its own: each call takes a millisecond."""

    def __init__(self, out: Path, *, begins: bool = True) -> None:
        self.out = out
        self.trace = Trace(out, "node-1")
        self.first_ns = self.at_ns = self.trace._perf_ns
        self.steps = Steps(self.trace, self.at_ns if begins else None, lambda _number, _at_ns: None)

    def tick(self) -> int:
        self.at_ns += MS
        return self.at_ns

    def stepped(self, *optimizers: Optimizer) -> None:
        for optimizer in optimizers:
            self.steps.optimizer_begins(self.tick())
            self.steps.optimizer_stepped(optimizer, self.tick())

    def recorded(self) -> list[Event]:
        self.steps.write_first()
        self.trace.close()
        return steps(self.out)

    def spans_ms(self) -> list[tuple[int, int]]:
        found = self.recorded()
        # By the clocks as they were when the file was opened, as its events.
        first_us = self.trace.wall_us(self.first_ns)
        return [
            (round((event.start_us - first_us) / 1000), round((event.end_us - first_us) / 1000))
            for event in found
        ]


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def test_step_lasts_from_one_optimizer_step_to_the_next(loop: Loop) -> None:
    optimizer = Optimizer()
    for _ in range(3):
        loop.stepped(optimizer)

    assert loop.spans_ms() == [(0, 2), (2, 4), (4, 6)]
    assert [event.step for event in steps(loop.out)] == [0, 1, 2]


@pytest.mark.parametrize("optimizers", [2, 300], ids=["in turn", "one for each parameter"])
def test_optimizers_that_step_one_after_the_other_are_one_step(loop: Loop, optimizers: int) -> None:
    several = [Optimizer() for _ in range(optimizers)]
    for _ in range(3):
        loop.stepped(*several)

    assert len(loop.recorded()) == 3


def test_leader_that_stops_is_replaced_and_no_step_is_lost(loop: Loop) -> None:
    first, second = Optimizer(), Optimizer()
    loop.stepped(first, second)
    for _ in range(NEW_LEADER_STEPS + 50):
        loop.stepped(second)
    loop.stepped(first, second)

    spans = loop.spans_ms()
    assert len(spans) == 1 + 1 + NEW_LEADER_STEPS + 50 + 1
    assert all(end == begin for (_, end), (begin, _) in pairwise(spans))


def test_leader_that_is_gone_is_replaced_at_once(loop: Loop) -> None:
    loop.stepped(Optimizer())
    later = Optimizer()
    loop.stepped(later)
    loop.stepped(later)

    assert len(loop.recorded()) == 3


def test_mark_of_the_script_replaces_optimizers_for_good(loop: Loop) -> None:
    optimizer = Optimizer()
    for _ in range(3):
        loop.stepped(optimizer)
        loop.steps.end(loop.tick())

    assert loop.spans_ms() == [(0, 3), (3, 6), (6, 9)]
    assert [event.step for event in steps(loop.out)] == [0, 1, 2]


def test_optimizers_of_other_threads_are_counted_only(loop: Loop) -> None:
    optimizer = Optimizer()
    loop.stepped(optimizer)
    thread = threading.Thread(target=loop.stepped, args=(Optimizer(), Optimizer()))
    thread.start()
    thread.join()
    loop.stepped(optimizer)

    assert len(loop.recorded()) == 2
    assert loop.trace.other_threads == 2


def test_next_step_begins_after_what_is_no_part_of_it(loop: Loop) -> None:
    optimizer = Optimizer()
    loop.stepped(optimizer)
    loop.tick()
    loop.steps.begin_after(loop.tick())
    loop.stepped(optimizer)

    assert loop.spans_ms() == [(0, 2), (4, 6)]


def test_first_step_begins_with_the_first_fetch(loop: Loop) -> None:
    optimizer = Optimizer()
    for _ in range(2):
        loop.steps.first_fetch(loop.tick())
        loop.stepped(optimizer)

    assert loop.spans_ms() == [(1, 3), (3, 6)]


def test_first_step_without_a_begin_is_marked_as_cut(tmp_path: Path) -> None:
    loop, optimizer = Loop(tmp_path, begins=False), Optimizer()
    loop.stepped(optimizer)
    loop.stepped(optimizer)

    assert loop.spans_ms() == [(1, 2), (2, 4)]
    assert ["cut" in event.args for event in steps(tmp_path)] == [True, False]


def test_steps_are_numbered_from_where_training_resumed(loop: Loop) -> None:
    optimizer = Optimizer()
    loop.steps.resume(1000)
    for _ in range(2):
        loop.stepped(optimizer)

    assert [event.step for event in loop.recorded()] == [1000, 1001]
