from __future__ import annotations

import itertools
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.data_loading import MAX_COLUMNS, MAX_LINES, DataLoading, FetchTimes, data_loading
from jobrules.model import SECOND_US, Events, EventSource, Job, Lane
from jobrules.rules.dataloader import Dataloader
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_steps
from tests.rules.loading_jobs import MULTI, cores, events_of, fetch, loader, worker


def job_of(events: Events, nodes: tuple[str, ...] = ("algo-1",)) -> Job:
    return make_job(events=events, extra=[cores(8, node=node) for node in nodes])


def told(job: Job) -> DataLoading:
    rule = Dataloader()
    found = data_loading(job, rule, rule.check(job))
    assert found
    return found


def histogram(times_s: list[float]) -> FetchTimes:
    rows = [fetch(2 * i, 2 * i + time) for i, time in enumerate(times_s)]
    found = told(job_of(events_of(rows))).fetches
    assert found
    return found


TIMES_US = st.lists(
    st.one_of(st.integers(0, 50), st.integers(0, 10**5), st.integers(0, 10**10), st.just(46_000)),
    min_size=1,
    max_size=60,
)


@given(TIMES_US)
def test_every_fetch_is_counted_once_in_at_most_sixty_bins(times_us: list[int]) -> None:
    found = histogram([us / SECOND_US for us in times_us])

    # A microsecond is the last digit but one of a float of hours in seconds.
    edges = [round(edge * SECOND_US, 3) for edge in found.edges_s]
    assert len(found.counts) == len(edges) - 1 <= 60
    assert edges == sorted(set(edges))
    assert found.beyond == sum(us >= edges[-1] for us in times_us)
    for i, (low, high, n) in enumerate(zip(edges[:-1], edges[1:], found.counts, strict=True)):
        least = -1 if i == 0 and found.log else low
        assert n == sum(least <= us < high for us in times_us)
    assert sum(found.counts) + found.beyond == len(times_us)
    p50, p95 = np.quantile(times_us, (0.5, 0.95))
    assert found.log == (p95 > 20 * p50)
    assert found.p95_s == pytest.approx(p95 / SECOND_US)
    assert found.p95_s <= found.edges_s[-1]


def test_plain_bins_have_a_width_that_can_be_named() -> None:
    found = histogram([0.040 + 0.0001 * (i % 100) for i in range(200)] + [9.0])

    widths = np.diff(found.edges_s)
    assert np.allclose(widths, 0.0005)
    assert found.beyond == 1
    assert found.counts[-1] > 0


def test_times_that_spread_widely_get_bins_that_grow() -> None:
    found = histogram([0.001] * 90 + [1.0] * 10)

    ratios = np.array(found.edges_s[1:]) / np.array(found.edges_s[:-1])
    assert found.log
    assert np.allclose(ratios, 10**0.1)
    assert found.beyond == 0


def of_ranks(*medians_s: float) -> FetchTimes:
    """20 fetches of each rank, within a tenth of its median."""
    rows = [
        fetch(2 * i, 2 * i + median_s * (0.9 + i / 95), pid=rank)
        for rank, median_s in enumerate(medians_s)
        for i in range(20)
    ]
    together = events_of(rows)
    (lane,) = together.lanes
    lanes = tuple(replace(lane, rank=str(rank)) for rank in range(len(medians_s)))
    found = told(job_of(replace(together, lanes=lanes, lane=together.pid.astype(np.int32)))).fetches
    assert found
    return found


def test_ranks_that_differ_are_counted_apart() -> None:
    found = of_ranks(0.05, 0.4)

    assert [(one.node, one.rank) for one in found.ranks] == [("algo-1", "1"), ("algo-1", "0")]
    assert [one.p50_s for one in found.ranks] == pytest.approx([0.4, 0.05])
    # No fetch took as long as the median of all.
    assert found.counts[sum(edge <= found.p50_s for edge in found.edges_s) - 1] == 0
    assert np.array_equal(np.sum([one.counts for one in found.ranks], axis=0), found.counts)
    assert sum(one.beyond for one in found.ranks) == found.beyond


def test_ranks_that_hardly_differ_are_one() -> None:
    assert of_ranks(0.4, 0.41).ranks == ()
    assert of_ranks(0.4).ranks == ()


def test_of_many_ranks_the_odd_ones_are_counted_apart() -> None:
    found = of_ranks(*[0.1] * 6, 0.5, *[0.1] * 6)

    assert found.ranks[0].rank == "6"
    assert "" in [one.rank for one in found.ranks]
    assert len(found.ranks) == 4
    assert sum(sum(one.counts) + one.beyond for one in found.ranks) == 260


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 80), st.integers(1, 3)), min_size=1, max_size=40)
)
def test_times_agree_with_plain_lists(fetches: list[tuple[int, int, int]]) -> None:
    rows = [fetch(start / 10, (start + took) / 10, pid=pid) for start, took, pid in fetches]

    by_key = {one.key: one for one in told(job_of(events_of(rows))).times}

    expected = {"fetch": [took / 10 for _, took, _ in fetches], "distance": []}
    for pid in (1, 2, 3):
        starts = sorted(start / 10 for start, _, of in fetches if of == pid)
        expected["distance"] += [b - a for a, b in itertools.pairwise(starts)]
    assert set(by_key) == {key for key, times in expected.items() if times}
    for key, one in by_key.items():
        times = expected[key]
        assert one.count == len(times)
        assert one.p50_s == pytest.approx(median(times), abs=1e-6)
        assert one.p95_s == pytest.approx(np.quantile(times, 0.95), abs=1e-6)
        assert one.max_s == pytest.approx(max(times), abs=1e-6)
        assert one.total_s == pytest.approx(sum(times), abs=1e-4)
        assert one.outliers == sum(round(10 * t) > round(20 * median(times)) for t in times)


@given(
    st.lists(
        st.tuples(st.integers(0, 2000), st.integers(1, 900), st.integers(1, 4)), min_size=1, max_size=12
    ),
    st.integers(1, 6),
)
def test_loaders_at_work_agree_second_by_second(lives: list[tuple[int, int, int]], nodes: int) -> None:
    names = tuple(f"n{i}" for i in range(nodes))
    tables = [
        events_of([worker(s + i, s + i + took, pid) for s, took, pid in lives], node=name)
        for i, name in enumerate(names)
    ]

    found = told(job_of(Events.joined(tables), nodes=names))

    assert found.columns
    assert found.columns.count <= MAX_COLUMNS
    start_s, width_s = found.columns.start_us // SECOND_US, found.columns.width_us // SECOND_US
    per_node = []
    for i in range(nodes):
        seconds: dict[int, set[int]] = {}
        for s, took, pid in lives:
            for second in range(s + i, s + i + took):
                seconds.setdefault(START_US // SECOND_US + second, set()).add(pid)
        per_node.append({second: len(pids) for second, pids in seconds.items()})
    if nodes > MAX_LINES:
        every = {second for one in per_node for second in one}
        per_node = [{second: sum(one.get(second, 0) for one in per_node) for second in every}]
    assert [line.node for line in found.at_work] == ([""] if nodes > MAX_LINES else list(names))
    for line, expected in zip(found.at_work, per_node, strict=True):
        for column in range(found.columns.count):
            first = start_s + column * width_s
            held = [expected[s] for s in range(first, first + width_s) if s in expected]
            assert line.low[column] == (min(held) if held else None)
            assert line.high[column] == (max(held) if held else None)
            assert line.mean[column] == (pytest.approx(sum(held) / len(held), abs=0.051) if held else None)
        assert line.cores == (8 * nodes if nodes > MAX_LINES else 8)


def test_without_the_rule_the_loaders_are_told_and_not_judged() -> None:
    job, rule = job_of(events_of([worker(0, 100, pid) for pid in range(5)])), Dataloader()

    judged = told(job)
    without, failed = data_loading(job, rule), data_loading(job, rule, rule.failed(ValueError("odd")))

    assert without
    assert failed
    nodes = [one.nodes[0] for one in (judged, without, failed)]
    assert [node.answer for node in nodes] == ["too few", "", ""]
    assert [node.reason for node in nodes] == ["", "Dataloader was not run", "ValueError: odd"]
    bare = [replace(node, answer="", reason="", evaluated=0, violating=0) for node in nodes]
    assert bare[0] == bare[1] == bare[2]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 90), st.integers(1, 5)), min_size=1, max_size=15)
)
def test_the_loaders_of_a_node_are_those_of_the_rule(lives: list[tuple[int, int, int]]) -> None:
    rows = [fetch(s, s + 0.5) for s, _, _ in lives] + [worker(s, s + took, pid) for s, took, pid in lives]
    job = job_of(events_of(rows, [loader(2, pin_memory=False)]))

    found = told(job)

    block = Dataloader().check(job).details["per_node"]["algo-1"]
    (node,) = found.nodes
    assert (node.cores, node.seconds, node.loaders) == (
        block["cores"],
        block["seconds"],
        block["dataloaders"],
    )
    assert node.mean == round(block["dataloaders_mean"], 2)
    assert [
        {
            "iterator": one.iterator,
            "num_workers": one.num_workers,
            "pin_memory": one.pin_memory,
            "fetches": one.fetches,
        }
        for one in found.setups
    ] == block["loaders"]


def test_the_steps_beside_are_of_the_phase_with_most_time() -> None:
    fetches = events_of([fetch(i, i + 0.5) for i in range(20)])
    steps = joined_steps(
        *(
            make_steps(spans, phase=phase)
            for phase, spans in (
                ("TRAIN", [(0, 9), (10, 17), (20, 21)]),
                ("EVAL", [(i, i + 0.5) for i in range(9)]),
            )
        )
    )

    found = told(replace(job_of(fetches), steps=steps))

    assert found.step
    assert (found.step.mode, found.step.count, found.step.p50_s) == ("TRAIN", 3, 7.0)
    assert told(job_of(fetches)).step is None
    pipeline = make_events(
        [("DataIterator", "IteratorGetNext", i, i + 0.5) for i in range(20)], source=EventSource.MODEL
    )
    assert told(replace(job_of(pipeline), steps=steps)).step is None


def test_a_node_without_enough_seconds_has_a_reason_and_no_answer() -> None:
    (node,) = told(job_of(events_of([worker(0, 5, 1)]))).nodes

    assert (node.answer, node.evaluated) == ("", 0)
    assert "5\u00a0s recorded" in node.reason


def test_loaders_are_told_by_what_they_were_set_up_with() -> None:
    found = told(job_of(events_of([fetch(i, i + 0.1) for i in range(20)], [loader(2, pin_memory=False)])))

    (setup,) = found.setups
    assert (setup.iterator, setup.num_workers, setup.pin_memory, setup.fetches) == (MULTI, 2, False, 20)
    assert found.nodes[0].loaders == 2


def test_a_tensorflow_pipeline_has_fetches_and_threads_only() -> None:
    rows = [("DataIterator", "IteratorGetNext", i, i + 0.5) for i in range(20)]
    events = make_events(rows, source=EventSource.MODEL, thread=7)

    found = told(job_of(events))

    (node,) = found.nodes
    assert (node.pipeline, node.prefetch, node.loaders) == (True, False, 1)
    assert [one.key for one in found.times] == ["fetch"]


def test_a_fetch_of_which_nothing_tells_the_loaders_has_no_line() -> None:
    found = told(job_of(events_of([fetch(0, 1)])))

    assert (found.columns, found.at_work) == (None, ())
    assert found.nodes[0].loaders is None


def test_lists_are_cut_and_say_so() -> None:
    names = tuple(f"n{i}" for i in range(70))
    tables = [events_of([fetch(0, 20)], [loader(1, node=name, pin_memory=True)], node=name) for name in names]

    found = told(job_of(Events.joined(tables), nodes=names))

    assert (len(found.nodes), found.nodes_left_out) == (64, 6)
    assert (len(found.setups), found.setups_left_out) == (25, 45)


def test_lanes_of_one_process_keep_their_distances_apart() -> None:
    tables = [
        replace(
            make_events([("DataLoaderIter", "a::GetNext", start, start + 0.1) for start in starts]),
            lanes=(Lane(node="algo-1", rank=name, event_type="DataLoaderIter", source=EventSource.PYTHON),),
        )
        for name, starts in (("1", (0, 10)), ("2", (1, 2)))
    ]

    found = told(job_of(Events.joined(tables)))

    distance = next(one for one in found.times if one.key == "distance")
    assert (distance.count, distance.total_s, distance.outliers) == (2, 11, 0)
