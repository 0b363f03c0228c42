"""Pages of thousands of nodes: the work grows with their number, not with its square."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar
from unittest.mock import Mock

import numpy as np
import pytest

from jobreport.page import sections
from jobreport.page.figures.devices import rows as figure
from jobreport.page.figures.over_columns import MAX_STRETCHES, Floats, merged
from jobrules.measures.sample_weights import Gap
from jobrules.model import JobInMemory, PartFacts
from tests.copies import replace
from tests.once import slow_but
from tests.report.page.sections import example_devices, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

NODES = 64


class Passes(tuple[T, ...]):
    """Counts how often it is gone through."""

    passes = 0

    def __iter__(self) -> Iterator[T]:
        self.passes += 1
        return super().__iter__()


def test_the_odd_nodes_are_looked_for_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Mock(wraps=figure._odd)
    monkeypatch.setattr(figure, "_odd", odd)

    heat = figure.heat_map(example_devices.devices("n", nodes=NODES, gpus=1), examples.gpu_job().phases)

    assert heat.nodes == NODES
    assert 0 < odd.call_count <= 2


def test_boxes_and_gaps_are_not_gone_through_for_every_node() -> None:
    base = examples.gpu_job()
    names = [f"n{i}" for i in range(NODES)]
    nodes = tuple(replace(base.job.nodes[0], name=name) for name in names)
    boxes = Passes(replace(box, node=name) for name in names for box in base.boxes)
    start = base.job.start_us
    gaps = Passes(Gap(node=name, start_us=start, end_us=start + 1) for name in names)
    report = replace(
        base, job=replace(base.job, nodes=nodes), boxes=boxes, phases=replace(base.phases, gaps=gaps)
    )

    for section in (sections.utilization, sections.batch_size, sections.summary):
        section(report)

    assert 0 < boxes.passes < NODES
    assert 0 < gaps.passes < NODES


def test_facts_are_not_gone_through_for_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobInMemory(name="j")
    facts = Passes(
        PartFacts(node=f"n{i}", panels=(), steps=1, steps_us=(i, i + 1), events=0, events_us=None)
        for i in range(NODES)
    )
    monkeypatch.setattr(JobInMemory, "facts", facts)

    assert [job.loop_us(f"n{i}") for i in range(NODES)] == [(i, i + 1) for i in range(NODES)]
    assert facts.passes < NODES


@pytest.mark.parametrize("seed", slow_but({*range(6)}, range(20)))
def test_of_many_stretches_as_much_is_hatched_and_near_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 10 ** rng.integers(1, 9), 2 * rng.integers(MAX_STRETCHES + 1, 5000))
    # From hardly anything to nearly all of the time.
    lengths[seed % 2 :: 2] *= 10 ** rng.integers(0, 5)
    times = np.cumsum(lengths).reshape(-1, 2)
    given = [(int(a), int(b)) for a, b in times]

    drawn = merged(reversed(given))

    part = (times[-1, 1] - times[0, 0]) / MAX_STRETCHES
    assert len(drawn) <= MAX_STRETCHES
    assert all(a < b < c for (a, b), (c, _) in itertools.pairwise([*drawn, (times[-1, 1] + 1, 0)]))
    # At no time is more or less of the time so far hatched than there is, by more than a part.
    edges = np.linspace(times[0, 0], times[-1, 1], 1000)
    apart = covered(given, edges) - covered(drawn, edges)
    assert np.abs(apart).max() <= part * 1.001 + len(drawn)
    # The longest are where they are.
    for start, stop in sorted(given, key=lambda one: one[0] - one[1])[: MAX_STRETCHES // 2]:
        assert any(a <= start and stop <= b for a, b in drawn)


def covered(stretches: list[tuple[int, int]], until: Floats) -> Floats:
    """How much of the time before each moment the stretches cover."""
    return sum((np.clip(until, a, b) - a for a, b in stretches), np.zeros(len(until)))


def test_few_stretches_stay_as_they_are() -> None:
    alone = [(1000 * i, 1000 * i + 900) for i in range(MAX_STRETCHES)]

    assert merged(reversed(alone)) == alone
    assert merged([*alone, *((a + 800, a + 950) for a, _ in alone)]) == [(a, a + 950) for a, _ in alone]
