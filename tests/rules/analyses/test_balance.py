"""Loads and distances against the rule, boxes against plain slow references."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.balance import MAX_DRAWN, MAX_GPUS, MAX_NODES, balance
from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.model import SECOND_US, Job, Metric, Status
from jobrules.rules.load_balancing import LoadBalancing
from tests.copies import replace
from tests.jobs import START_US, make_job, make_panel, make_steps
from tests.report.page.sections.example_balance import of_panels, panel

VALUES = st.sampled_from([None, 0.0, 1.9, 2.0, 9.9, 10.0, 50.0, 97.9, 98.0, 99.0, 100.0])
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES, st.integers(1, 100)), min_size=1, max_size=40)
LOOPS = st.none() | st.tuples(st.integers(0, 1500), st.integers(1, 1500))


def job_of(
    rows: list[tuple[float | None, ...]], loop_s: tuple[int, int] | None
) -> tuple[Job, list[list[float]]]:
    """The job of a table, and each GPU's samples on the basis of the rule; GPUs without any sample left out."""
    rows = [row for row in rows if any(v is not None for v in row[:3])]
    gpus = [g for g in range(3) if any(row[g] is not None for row in rows)]
    times = (START_US + np.cumsum([row[3] for row in rows]) * SECOND_US).tolist()
    values = np.array([[np.nan if row[g] is None else row[g] for g in gpus] for row in rows], float)
    steps = make_steps([(loop_s[0], sum(loop_s))]) if loop_s else None
    job = make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values, time_us=times)], steps=steps)
    low, high = (
        (START_US + loop_s[0] * SECOND_US, START_US + sum(loop_s) * SECOND_US) if loop_s else (0, 2**62)
    )
    counted = [
        [
            float(v)
            for row, t in zip(rows, times, strict=True)
            if (v := row[g]) is not None and low <= t < high
        ]
        for g in gpus
    ]
    return job, counted


@given(ROWS, st.integers(1, 10), LOOPS)
def test_loads_and_distances_are_those_of_the_rule(
    rows: list[tuple[float | None, ...]], patience: int, loop_s: tuple[int, int] | None
) -> None:
    if all(v is None for row in rows for v in row[:3]):
        return
    job, counted = job_of(rows, loop_s)
    rule = LoadBalancing(patience=patience)

    found, result = balance(job, rule), rule.check(job)

    assert found
    (node,) = found.nodes
    told = result.details[node.node]
    assert node.basis == told["basis"]
    theirs = {(one, other): d for one, row in told["all_distances"].items() for other, d in row.items()}
    loads = []
    for gpu, values in zip(node.gpus, counted, strict=True):
        counts = told["all_workloads"][gpu.device]
        assert sum(counts) == gpu.samples == len(values)
        assert gpu.mean == (pytest.approx(statistics.fmean(values), abs=1e-3) if values else None)
        shares = [100 * n / sum(counts) for n in counts] if values else []
        loads += [shares] if values else []
        assert gpu.histogram == pytest.approx(shares, abs=0.006)
        tenths = [sum(shares[i : i + 5]) for i in range(0, len(shares), 5)]
        assert gpu.tenths == pytest.approx(tenths, abs=0.006)
        own = [d for pair, d in theirs.items() if gpu.device in pair]
        assert gpu.mean_distance == (pytest.approx(statistics.fmean(own), abs=1e-4) if own else None)
    usual = [statistics.fmean(column) for column in zip(*loads, strict=True)]
    assert node.histogram == pytest.approx(usual, abs=0.006)
    distances = {
        (node.listed[i], node.listed[i + 1 + k]): d
        for i, row in enumerate(node.distances)
        for k, d in enumerate(row)
        if d is not None
    }
    assert distances == pytest.approx(theirs, abs=1e-6)
    pair = node.farthest
    judged = result.status in (Status.TRIGGERED, Status.PASSED)
    assert bool(pair and pair.enough) == judged
    if pair and judged:
        assert result.measure
        assert round(pair.distance, 2) == pytest.approx(result.measure.value, abs=0.0101)
        answers = {answer.name: answer.status is not Status.NOT_EVALUATED for answer in result.devices}
        assert {f"{node.node}/{gpu.device}": gpu.enough for gpu in node.gpus} == answers


def test_one_gpu_has_a_load_and_no_distance() -> None:
    found = balance(make_job(gpu=[50.0] * 3), LoadBalancing())

    assert found
    (node,) = found.nodes
    assert (node.listed, node.distances, node.farthest) == ((), (), None)
    assert node.gpus[0].mean_distance is None


def test_a_gpu_that_was_not_sampled_in_the_loop_has_no_load() -> None:
    values = [[50.0, 50.0]] * 5 + [[50.0, np.nan]] * 5
    found = balance(make_job(gpu=values, interval_s=1, steps=make_steps([(5, 10)])), LoadBalancing())

    assert found
    (node,) = found.nodes
    missing = node.gpus[1]
    assert (missing.samples, missing.mean, missing.tenths, missing.histogram, missing.mean_distance) == (
        0,
        None,
        (),
        (),
        None,
    )
    assert node.distances == ((None,), ())


def test_of_many_gpus_the_odd_ones_are_drawn_and_listed() -> None:
    levels = [90.0] * 20
    levels[7], levels[13] = 20.0, 50.0

    (node,) = of_panels(panel("n", levels)).nodes

    drawn = [gpu.device for gpu in node.gpus if gpu.histogram]
    assert len(drawn) == MAX_DRAWN
    assert {"gpu7", "gpu13"} <= set(drawn)
    assert len(node.listed) == MAX_GPUS
    assert {"gpu7", "gpu13"} <= set(node.listed)
    assert [len(row) for row in node.distances] == list(range(MAX_GPUS - 1, -1, -1))
    assert all(gpu.tenths for gpu in node.gpus)


def test_of_many_nodes_those_that_differ_most_are_listed_first() -> None:
    odd = {2: 50.0, 5: 20.0, 6: 84.0}
    panels = [panel(f"n{i}", [90.0, odd.get(i, 90.0)]) for i in range(8)]

    nodes = of_panels(*panels).nodes

    assert [bool(node.listed) for node in nodes] == [True] * MAX_NODES + [False] * 4
    far = [node.farthest.distance for node in nodes if node.farthest]
    assert far == sorted(far, reverse=True)
    assert {node.node for node in nodes[:3]} == {"n2", "n5", "n6"}


def test_a_limit_that_was_set_is_told() -> None:
    found = balance(make_job(gpu=[1.0]), LoadBalancing(threshold=0.4))

    assert found
    assert found.limit == 0.4


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=30),
    st.integers(1, 29),
)
def test_boxes_hold_use_memory_and_the_mean_of_the_cores(cores: list[tuple[int, int]], end: int) -> None:
    memory = [float(a) for a, _ in cores]
    job = make_job(
        gpu=[float(b) for _, b in cores], memory=memory, cpu=cores, interval_s=1, steps=make_steps([(0, end)])
    )

    found = {(box.metric, box.basis): box for box in gpu_utilization(job)}

    assert len(found) == 6
    for basis, upto in (("whole job", len(cores)), ("training loop", end)):
        box = found[Metric.CPU_UTILIZATION, basis]
        means = [(a + b) / 2 for a, b in cores[:upto]]
        assert box.device == "CPU"
        assert box.n == len(means)
        assert box.mean == pytest.approx(statistics.fmean(means))
        assert box.p95 == pytest.approx(float(np.quantile(means, 0.95)))
        # The whiskers of memory come from memory's own quartiles.
        kept = found[Metric.GPU_MEMORY_ACTIVITY, basis]
        reach = 1.5 * (kept.p75 - kept.p25)
        assert kept.upper == pytest.approx(min(kept.p75 + reach, max(memory[:upto])))
        assert kept.lower == pytest.approx(max(kept.p25 - reach, min(memory[:upto])))


def test_boxes_of_a_job_without_gpus_are_of_its_cpu() -> None:
    assert {box.device for box in gpu_utilization(make_job(cpu=[[1.0, 2.0]]))} == {"CPU"}


def test_cores_that_were_not_sampled_do_not_count() -> None:
    (box,) = gpu_utilization(make_job(cpu=[[10.0, np.nan], [20.0, 40.0]]))

    assert (box.min, box.max) == (10.0, 30.0)


def test_a_pair_with_samples_enough_comes_before_a_farther_one_without() -> None:
    job_panel = panel("n", [90.0, 80.0, float("nan")])
    rule = LoadBalancing()

    (node,) = of_panels(job_panel).nodes
    (alone,) = of_panels(replace(job_panel, values=job_panel.values[:5], time_us=job_panel.time_us[:5])).nodes

    assert node.farthest
    assert (node.farthest.one, node.farthest.other, node.farthest.enough) == ("gpu0", "gpu1", True)
    assert alone.farthest
    assert not alone.farthest.enough
    assert rule.threshold < node.farthest.distance
