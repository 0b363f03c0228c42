from __future__ import annotations

import math
from datetime import timedelta
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures import histograms
from jobrules.measures.histograms import distance, growing, normalized
from jobrules.model import SECOND_US, FloatArray, JobInMemory, Metric, Status
from jobrules.rules import load_balancing
from jobrules.rules.load_balancing import LoadBalancing
from tests.jobs import START_US, joined_steps, make_job, make_panel, make_steps

SMALL = LoadBalancing(patience=3)
MINUTE_US = 60 * SECOND_US


def plain_histogram(values: list[float]) -> list[int]:
    """Edges 0, 2, …, 100, the last bin closed."""
    counts = [0] * 50
    for value in values:
        for b in range(50):
            if 2 * b <= value < 2 * (b + 1) or (b == 49 and value == 100):
                counts[b] += 1
    return counts


def plain_distance(one: list[int], other: list[int]) -> float:
    p = [n / sum(one) for n in one]
    q = [n / sum(other) for n in other]
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += (a * math.log(a / middle) if a else 0) + (b * math.log(b / middle) if b else 0)
    return math.sqrt(max(0.0, total) / 2)


def reference(
    table: list[list[float | None]],
    times_us: list[int],
    loop: tuple[int, int] | None,
    rule: LoadBalancing,
    patience: int,
) -> tuple[int, int, dict[tuple[int, int], float]]:
    """(compared, too far apart, final distances) of one node, minute by minute and pair by pair."""
    start = times_us[0] - times_us[0] % MINUTE_US
    compared = far = 0
    final: dict[tuple[int, int], float] = {}
    for k in range((times_us[-1] - start) // MINUTE_US + 1):
        end = start + (k + 1) * MINUTE_US
        for pair in combinations(range(len(table[0])), 2):
            seen = [
                [
                    (t, row[g])
                    for t, row in zip(times_us, table, strict=True)
                    if t < end and row[g] is not None
                ]
                for g in pair
            ]
            counted = [
                plain_histogram([v for t, v in own if v is not None and (not loop or loop[0] <= t < loop[1])])
                for own in seen
            ]
            if not all(map(sum, counted)):
                continue
            final[pair] = plain_distance(counted[0], counted[1])
            if not all(len(own) > patience for own in seen):
                continue
            if not all(sum(histogram) >= min(patience, 450) for histogram in counted):
                continue
            if not any(t >= end - MINUTE_US for own in seen for t, _ in own):
                continue
            compared += 1
            far += final[pair] > rule.threshold
    return compared, far, final


VALUES = st.sampled_from([None, 0.0, 1.9, 2.0, 50.0, 97.9, 98.0, 99.0, 100.0])


@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES, st.integers(1, 100)), min_size=1, max_size=40),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.1234, 0.3456, 0.61, 1.0]),
    st.none() | st.tuples(st.integers(0, 1500), st.integers(1, 1500)),
)
def test_counts_and_distances_agree_with_the_definition(
    rows: list[tuple[float | None, float | None, float | None, int]],
    patience: int,
    threshold: float,
    loop_s: tuple[int, int] | None,
) -> None:
    rows = [row for row in rows if any(v is not None for v in row[:3])]
    gpus = [g for g in range(3) if any(row[g] is not None for row in rows)]
    if not rows:
        return
    table = [[row[g] for g in gpus] for row in rows]
    times = (START_US + np.cumsum([row[3] for row in rows]) * SECOND_US).tolist()
    rule = LoadBalancing(threshold=threshold, patience=patience)
    values = np.array([[np.nan if v is None else v for v in row] for row in table])
    steps = make_steps([(loop_s[0], sum(loop_s))]) if loop_s else None
    loop = (START_US + loop_s[0] * SECOND_US, START_US + sum(loop_s) * SECOND_US) if loop_s else None

    result = rule.check(
        make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values, time_us=times)], steps=steps)
    )

    # The windows of the job reach as far as its steps, but those without a sample are not judged.
    compared, far, final = reference(table, times, loop, rule, patience)
    assert (result.evaluated, result.violating) == (compared, far)
    assert result.triggered == result.violations == far
    assert result.status is (
        Status.NOT_EVALUATED if not compared else Status.TRIGGERED if far else Status.PASSED
    )
    node = result.details["algo-1"]
    assert node["basis"] == ("training loop" if loop else "whole job")
    found, uneven = (
        {
            (int(one[3:]), int(other[3:])): d
            for one, others in node.get(key, {}).items()
            for other, d in others.items()
        }
        for key in ("all_distances", "distances")
    )
    assert found == pytest.approx(final, abs=1e-7)
    # This key is only for pairs that were compared and are too far from each other.
    enough = {int(one.name[-1]) for one in result.devices if one.status is not Status.NOT_EVALUATED}
    assert uneven == {pair: d for pair, d in found.items() if d > threshold and enough.issuperset(pair)}
    assert node.get("distances") != {}
    for g, histogram in enumerate(node["all_workloads"].values()):
        counted = [row[g] for t, row in zip(times, table, strict=True) if not loop or loop[0] <= t < loop[1]]
        assert histogram == plain_histogram([v for v in counted if v is not None])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=40),
    st.lists(st.integers(0, 40), max_size=12),
    st.integers(1, 30),
)
def test_growing_histograms_are_those_of_the_first_entries(
    entries: list[tuple[int, int]], ends: list[int], cells: int
) -> None:
    code = np.array([c for c, _ in entries], np.int64)
    weight = np.array([w for _, w in entries], np.int64)
    at = np.array(sorted(min(end, len(entries)) for end in ends), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histograms, "_CELLS", cells)
        plain = [row.tolist() for _, table in growing(code, 5, at) for row in table]
        heavy = [row.tolist() for _, table in growing(code, 5, at, weight) for row in table]

    assert plain == [[sum(c == b for c, _ in entries[:end]) for b in range(5)] for end in at.tolist()]
    assert heavy == [[sum(w for c, w in entries[:end] if c == b) for b in range(5)] for end in at.tolist()]


def test_one_idle_gpu_is_reported() -> None:
    result = SMALL.check(make_job(gpu=[[95.0, 10.0]] * 20, interval_s=30))

    assert (result.status, result.triggered, result.evaluated) == (Status.TRIGGERED, 9, 9)
    assert result.headline == (
        "Utilization of algo-1 gpu0 and gpu1 differs: distance 0.83, means 95.0% and 10.0%"
    )
    assert result.first_us == START_US + 60 * SECOND_US
    assert result.last_us == START_US + 570 * SECOND_US


def test_alike_at_the_end_is_an_event_of_the_past() -> None:
    early = np.column_stack([np.full(100, 0.0), np.full(100, 100.0)])
    late = np.full((200, 2), 50.0)
    rule = LoadBalancing(threshold=0.5, patience=3)

    # A third of the samples differs at the end: the distance is the root of ln 2 / 3, 0.48.
    result = rule.check(make_job(gpu=np.concatenate([early, late]), interval_s=10))

    assert result.status is Status.TRIGGERED
    assert 0 < result.violating < result.evaluated
    assert "for a time, not at the end" in result.headline


def test_gpus_of_different_nodes_are_not_a_pair_but_nodes_are_compared() -> None:
    other = make_panel(Metric.GPU_UTILIZATION, [[10.0, 10.0]] * 20, node="algo-2", interval_s=30)

    result = SMALL.check(make_job(gpu=[[90.0, 90.0]] * 20, interval_s=30, extra=[other]))

    assert result.status is Status.PASSED
    assert (
        result.headline
        == "GPU utilization is similar within each node: largest distance 0.00 (threshold 0.2)"
    )
    assert result.details["algo-1"]["node_distances"] == {"algo-2": pytest.approx(0.832555, abs=1e-6)}
    assert "node_distances" not in result.details["algo-2"]


def test_a_node_is_compared_with_all_that_come_after_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(p: FloatArray, q: FloatArray) -> FloatArray:
        nonlocal calls
        calls += 1
        return distance(p, q)

    monkeypatch.setattr(load_balancing, "distance", counted)
    rng = np.random.default_rng(1)
    nodes = [f"algo-{i}" for i in range(40)]
    panels = [
        make_panel(Metric.GPU_UTILIZATION, rng.uniform(0, 100, 9), node=node, interval_s=30) for node in nodes
    ]

    details = SMALL.check(JobInMemory(name="job", panels=tuple(panels))).details

    shares = {node: normalized(np.array(one["all_workloads"]["gpu0"])) for node, one in details.items()}
    found = {
        (one, other): far
        for one, row in details.items()
        for other, far in row.get("node_distances", {}).items()
    }
    # Not a digit differs from what one pair after the other gives.
    assert found == {
        pair: float(distance(*(shares[node] for node in pair))) for pair in combinations(shares, 2)
    }
    assert calls < 2 * len(nodes)


def test_nodes_are_compared_up_to_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    panels = tuple(
        make_panel(Metric.GPU_UTILIZATION, [10.0 * i] * 20, node=f"algo-{i}", interval_s=30) for i in range(3)
    )
    job = JobInMemory(name="job", panels=panels)

    monkeypatch.setattr(load_balancing, "MAX_NODES", 3)
    assert len(SMALL.check(job).details["algo-0"]["node_distances"]) == 2

    monkeypatch.setattr(load_balancing, "MAX_NODES", 2)
    details = SMALL.check(job).details
    assert [sum(one["workloads"]["gpu0"]) for one in details.values()] == [20, 20, 20]
    assert not any("node_distances" in one for one in details.values())


def test_in_the_distance_of_nodes_every_gpu_counts_the_same() -> None:
    # One GPU of algo-1 was sampled half as often; by samples its share would be a third.
    table = np.column_stack([[90.0] * 20, [np.nan, 10.0] * 10])
    other = make_panel(Metric.GPU_UTILIZATION, [90.0, 10.0] * 10, node="algo-2", interval_s=30)

    result = SMALL.check(make_job(gpu=table, interval_s=30, extra=[other]))

    assert result.details["algo-1"]["node_distances"]["algo-2"] == 0


def test_one_gpu_on_each_node_is_not_judged_but_nodes_are_compared() -> None:
    other = make_panel(Metric.GPU_UTILIZATION, [10.0] * 20, node="algo-2", interval_s=30)

    result = SMALL.check(make_job(gpu=[90.0] * 20, interval_s=30, extra=[other]))

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, "every node has 1 GPU")
    assert result.details["algo-1"]["node_distances"]["algo-2"] == pytest.approx(0.832555, abs=1e-6)
    assert sum(result.details["algo-1"]["workloads"]["gpu0"]) == 20


def test_every_gpu_says_why_it_was_not_compared() -> None:
    few = [np.nan] * 17 + [50.0] * 3
    alone = make_panel(Metric.GPU_UTILIZATION, [50.0] * 20, node="algo-2", interval_s=30)
    both = SMALL.check(
        make_job(gpu=np.column_stack([[50.0] * 20, [50.0] * 20, few]), interval_s=30, extra=[alone])
    )
    none = SMALL.check(make_job(gpu=np.column_stack([[50.0] * 20, few]), interval_s=30))

    assert [(d.status, str(d.reason or "")) for d in both.devices] == [
        (Status.PASSED, ""),
        (Status.PASSED, ""),
        (Status.NOT_EVALUATED, "4 samples needed, 3 recorded"),
        (Status.NOT_EVALUATED, "the node has 1 GPU"),
    ]
    assert both.headline.endswith("; 2\u00a0GPUs not evaluated")
    assert str(none.devices[0].reason) == "no other GPU of the node has enough samples"
    assert (none.status, str(none.reason)) == (Status.NOT_EVALUATED, "4 samples needed, 3 recorded")


def test_a_loop_without_samples_leaves_nothing_to_compare() -> None:
    result = SMALL.check(make_job(gpu=[[90.0, 10.0]] * 20, interval_s=30, steps=make_steps([(1000, 1001)])))

    assert (result.status, str(result.reason)) == (
        Status.NOT_EVALUATED,
        "3 samples in the training loop needed, 0 recorded",
    )


def test_each_node_has_its_own_loop() -> None:
    table = [[0.0, 0.0]] * 10 + [[90.0, 10.0]] * 10
    other = make_panel(Metric.GPU_UTILIZATION, table, node="algo-2", interval_s=30)
    steps = joined_steps(make_steps([(0, 290)]), make_steps([(300, 600)], node="algo-2"))

    result = SMALL.check(make_job(gpu=table, interval_s=30, extra=[other], steps=steps))

    assert result.details["algo-1"]["all_distances"]["gpu0"]["gpu1"] == 0
    assert result.details["algo-2"]["distances"]["gpu0"]["gpu1"] == pytest.approx(0.832555, abs=1e-6)


def test_patience_may_be_a_time() -> None:
    rule = LoadBalancing(patience=timedelta(minutes=5))

    result = rule.check(make_job(gpu=[[90.0, 10.0]] * 20, interval_s=30))

    # More than ten samples are seen first at the end of the sixth minute.
    assert result.evaluated == 5


def test_the_first_moments_of_a_late_loop_are_too_few_to_compare() -> None:
    """After 1,200 samples of start-up, 449 samples of the loop are not compared and 450 are."""
    rng = np.random.default_rng(3)
    for inside, compared in ((449, 0), (450, 1)):
        use = np.concatenate((np.zeros((1200, 2)), rng.uniform(60, 100, (inside, 2))))
        steps = make_steps([(600.0, 900.0)])

        result = LoadBalancing().check(make_job(gpu=use, steps=steps))

        assert result.evaluated == compared
        assert result.triggered == 0


def test_the_last_bin_that_readers_draw_has_all_from_96_percent_on() -> None:
    values = np.array([95.9, 96.0, 97.9, 98.0, 99.5, 100.0] * 40)
    job = make_job(gpu=np.column_stack([values, values[::-1]]))

    node = LoadBalancing(patience=200).check(job).details["algo-1"]

    assert node["workloads"]["gpu1"][47:] == [40, 200]
    assert node["all_workloads"]["gpu1"][47:] == [40, 80, 120]
