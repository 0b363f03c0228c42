"""Blocks of steps and of time, against slow references that look at one step and one sample at a time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from jobrules.analyses.blocks import BLOCKS, step_blocks, time_blocks
from jobrules.analyses.demand import demand
from jobrules.model import SECOND_US, JobInMemory, Metric
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps


def random_job(seed: int, ranks: int = 3, n: int = 450) -> JobInMemory:
    """Ranks whose steps of one number overlap, with an evaluation and a checkpoint in between, and fetches."""
    noise = np.random.default_rng(seed)
    ends = np.cumsum(noise.uniform(0.4, 0.8, n))
    ends[200:] += 7.0
    ends[300:] += 5.0
    tables, rows = [], []
    for rank in range(ranks):
        own = ends - noise.uniform(0, 0.1, n)
        starts = np.concatenate(([0.0], own[:-1])) + 0.01
        starts[200], starts[300] = ends[199] + 7.0, ends[299] + 5.0
        tables.append(make_steps(list(zip(starts.tolist(), own.tolist(), strict=True)), rank=str(rank)))
        rows += [("DataLoaderIter", "f", a, a + noise.uniform(0, 0.2)) for a in starts.tolist()]
    evaluation = make_steps([(ends[199] + 1, ends[199] + 6)], phase="EVAL", rank="0")
    rows.append(("Checkpoint", "Checkpoint", ends[299] + 1, ends[299] + 4))
    return JobInMemory(
        name="job", steps=joined_steps(*tables, evaluation), events=make_events(rows, rank="0")
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_step_lasts_from_the_end_of_the_slowest_process_to_the_next(seed: int) -> None:
    job = random_job(seed)
    found = step_blocks(job)
    assert found

    steps = job.steps
    training = np.array([mode == "TRAIN" for _, _, mode in steps.series])[steps.code]
    ends = {
        k: max(
            int(e) for e, one in zip(steps.end_us[training], steps.number[training], strict=True) if one == k
        )
        for k in range(450)
    }
    lasts = [(ends[k] - ends[k - 1]) / 1e6 for k in range(10, 450) if k not in (200, 300)]
    assert (found.steps, found.timed) == (450, len(lasts))
    edges = [math.floor(i * len(lasts) / BLOCKS) for i in range(BLOCKS + 1)]
    assert found.n == tuple(np.diff(edges).tolist())
    sums = [sum(lasts[a:b]) for a, b in pairwise(edges)]
    assert found.sum_s == pytest.approx(sums, abs=1e-5)
    assert found.quantiles_s[95] == pytest.approx(float(np.quantile(lasts, 0.95)), abs=1e-6)
    assert found.p50_s == pytest.approx([float(np.median(lasts[a:b])) for a, b in pairwise(edges)], abs=1e-6)


@pytest.mark.parametrize(
    ("n", "means", "quantiles"),
    [(1, 0, 0), (50, 1, 0), (109, 1, 0), (110, 20, 0), (210, 20, 10), (410, 20, 20)],
)
def test_few_steps_have_fewer_blocks(n: int, means: int, quantiles: int) -> None:
    found = step_blocks(JobInMemory(name="job", steps=make_steps([(i, i + 0.9) for i in range(n)])))

    assert (len(found.n) if found else 0) == means
    assert (len(found.p50_s) if found else 0) == quantiles


def test_fetches_are_those_of_the_process_that_fetched_longest() -> None:
    spans = [(float(i), i + 1.0) for i in range(200)]
    steps = joined_steps(make_steps(spans, rank="0"), make_steps(spans, rank="1"))
    fetches = [("DataLoaderIter", "f", float(i), i + 0.25) for i in range(200)]
    found = step_blocks(JobInMemory(name="job", steps=steps, events=make_events(fetches, rank="1")))
    some = step_blocks(JobInMemory(name="job", steps=steps, events=make_events(fetches[:150], rank="1")))

    assert found
    assert sum(found.fetch_s) == pytest.approx(0.25 * 190)
    # Recorded for a part of the steps only.
    assert some
    assert some.fetch_s == ()


def test_the_first_steps_and_gaps_in_the_numbers_are_left_out() -> None:
    steps = make_steps([(i, i + 0.9) for i in range(300)])
    steps = replace(steps, number=np.where(np.arange(300) < 150, np.arange(300), np.arange(300) + 40))
    found = step_blocks(JobInMemory(name="job", steps=steps))

    assert found
    assert (found.steps, found.timed) == (300, 289)
    assert found.outside_s == pytest.approx(29.9)


@pytest.mark.parametrize("seed", range(3))
def test_time_blocks_are_weighted_with_time_and_devices(seed: int) -> None:
    noise = np.random.default_rng(seed)
    gaps_s = noise.choice([0.5, 1.0, 20.0], 600, p=[0.5, 0.49, 0.01])
    time_us = START_US + np.round(np.cumsum(gaps_s) * SECOND_US).astype(np.int64)
    values = noise.uniform(0, 100, (600, 2))
    values[noise.random(600) < 0.1, 1] = np.nan
    panel = make_panel(Metric.GPU_UTILIZATION, values, time_us=time_us)
    begin_us, end_us = int(time_us[0]), int(time_us[-1])
    steps = make_steps([(0.0, (end_us - begin_us) / SECOND_US)], start_us=begin_us)
    (found,) = time_blocks(JobInMemory(name="job", panels=(panel,), steps=steps))

    covered, weighted = np.zeros(BLOCKS), np.zeros(BLOCKS)
    for i in range(599):
        block = int((time_us[i] - begin_us) * BLOCKS / (end_us - begin_us))
        for value in values[i][~np.isnan(values[i])]:
            covered[block] += gaps_s[i + 1]
            weighted[block] += gaps_s[i + 1] * value
    assert found.devices == 2
    assert found.covered_s[:-1] == pytest.approx(covered[:-1].tolist(), abs=1e-3)
    assert found.mean[:-1] == pytest.approx((weighted / covered)[:-1].tolist(), abs=1e-3)
    assert sum(found.histogram) == pytest.approx(100, abs=0.1)


def test_a_full_device_is_in_the_last_bin() -> None:
    (found,) = time_blocks(make_job(gpu=[100.0] * 200))

    assert found.histogram == (*[0.0] * 49, 100.0)
    assert time_blocks(make_job(gpu=[50.0])) == ()


def test_demand_is_of_all_nodes_at_one_time() -> None:
    """Two nodes that take turns never need both at once."""
    turns = np.tile([100.0, 0.0], 200)[:, None]
    panels = (
        make_panel(Metric.GPU_UTILIZATION, turns, node="a"),
        make_panel(Metric.GPU_UTILIZATION, 100 - turns, node="b"),
    )
    steps = make_steps([(i, i + 1) for i in range(199)], node="a")
    found = demand(JobInMemory(name="job", panels=panels, steps=steps))

    assert found
    assert found.gpus == pytest.approx(1.0)
    assert found.cores is None
    assert (found.used_gpus, found.all_gpus) == (2, 2)
    assert found.mean_gpu_percent == pytest.approx(50, abs=1)


def test_a_look_at_a_gpu_is_no_use_of_it() -> None:
    """Was: two GPUs of eight, the others with one sample of 2%, needed three."""
    gpus = np.zeros((300, 8))
    gpus[:, :2] = 92.0
    gpus[4, 2:] = 2.0
    found = demand(make_job(gpu=gpus))

    assert found
    assert (found.used_gpus, found.all_gpus) == (2, 8)


@pytest.mark.parametrize("cpu", [{"a": 1, "b": 1}, {"a": 4}, {"a": 4, "b": 1}])
def test_cores_in_use_are_not_known_of_a_mean_or_of_a_part_of_the_nodes(cpu: dict[str, int]) -> None:
    """Was: the mean of the cores of a node was that of one core, and nodes without samples needed none."""
    panels = [make_panel(Metric.GPU_UTILIZATION, [50.0] * 200, node=node) for node in "ab"]
    panels += [
        make_panel(Metric.CPU_UTILIZATION, [[96.0] * n] * 200, node=node, prefix="cpu")
        for node, n in cpu.items()
    ]
    found = demand(JobInMemory(name="job", panels=tuple(panels)))

    assert found
    assert found.gpus == pytest.approx(1.0)
    assert found.cores is None
