from __future__ import annotations

from datetime import timedelta
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.gpu_memory import LOOP, MAX_RISES, WHOLE, WORK, MemoryUse, Trend, gpu_memory
from jobrules.analyses.time_lines import columns
from jobrules.model import SECOND_US, Job, JobInMemory, Metric
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from tests.jobs import START_US, make_job, make_panel, make_steps

SMALL = GPUMemoryIncrease(window=2, patience=3)


def told(job: Job, rule: GPUMemoryIncrease | None = None) -> MemoryUse:
    found = gpu_memory(job, rule or GPUMemoryIncrease(), columns(job))
    assert found
    return found


def trend_of(values: np.ndarray, *, interval_s: float = 1.0) -> Trend | None:
    """The trend of one GPU over a loop that is the whole job."""
    steps = make_steps([(0, (len(values) - 1) * interval_s)])
    return told(make_job(memory=values, steps=steps, interval_s=interval_s)).gpus[0].trend


@given(
    st.lists(st.sampled_from([0, 0.1, 4.9, 5, 5.1, 10, 10.1, 15.2, 60, 100]), min_size=1, max_size=60),
    st.sampled_from([1, 2, 4, timedelta(seconds=20)]),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.1, 2.5, 5.0]),
)
def test_rises_are_those_of_the_rule(
    values: list[float], window: int | timedelta, patience: int, increase: float
) -> None:
    rule = GPUMemoryIncrease(window=window, patience=patience, increase=increase)
    job = make_job(memory=values, interval_s=7)

    found, result = told(job, rule), rule.check(job)

    events = result.details.get("algo-1", {}).get("gpu0", {}).get("events", [])
    assert [(one.start_us, one.end_us) for one in found.rises] == [
        (event["start_us"], event["end_us"]) for event in events
    ]
    for one, event in zip(found.rises, events, strict=True):
        assert (one.from_percent, one.to_percent) == pytest.approx((event["from"], event["to"]), abs=0.0051)
    (gpu,) = found.gpus
    assert gpu.events == result.triggered
    if result.measure is None:
        assert (gpu.rise, gpu.rise_us) == (None, None)
    else:
        assert gpu.rise == pytest.approx(result.measure.value, abs=0.06)


def test_the_largest_rise_has_its_time_also_below_the_limit() -> None:
    values = [10.0] * 20 + [13.0] * 20

    (gpu,) = told(make_job(memory=values), SMALL).gpus

    assert (gpu.rise, gpu.events) == (3.0, 0)
    assert gpu.rise_us == START_US + 21 * SECOND_US // 2


@given(st.lists(st.integers(0, 100), min_size=30, max_size=60))
def test_the_trend_is_the_median_of_all_slopes(levels: list[int]) -> None:
    interval_s = 30.0
    values = np.repeat(np.array(levels, float), 2)
    found = trend_of(values, interval_s=interval_s)

    # A column of a minute holds two samples; the last one is cut off by the loop's end.
    level = levels[:-1]
    pairs = [(i, j) for i in range(len(level)) for j in range(i + 1, len(level))]
    slopes = [60 * (level[j] - level[i]) / (j - i) for i, j in pairs]
    signs = [(level[j] > level[i]) - (level[j] < level[i]) for i, j in pairs]
    assert found
    assert found.points_per_hour == pytest.approx(median(slopes), abs=0.011)
    assert found.agreement == pytest.approx(sum(signs) / len(signs), abs=0.0051)


def test_the_order_in_which_samples_are_added_is_no_change() -> None:
    """Was: an agreement of some hundredths, another one by each way to add."""
    values = np.random.default_rng(3).permuted(np.tile([0.1, 0.2, 0.3], (60, 1)), axis=1).ravel()

    assert trend_of(values, interval_s=20.0) == Trend(points_per_hour=0.0, agreement=0.0, steady=False)


def test_growth_throughout_is_steady() -> None:
    found = trend_of(np.linspace(40, 60, 7201))

    assert found
    assert found.steady
    assert found.points_per_hour == pytest.approx(10, abs=0.01)


RAMP = np.concatenate((np.linspace(20, 60, 3600), np.full(3600, 60.0)))


@pytest.mark.parametrize(
    "values",
    [
        np.full(7200, 75.0),
        np.repeat((50.0, 70.0), 3600),
        np.repeat((50.0, 70.0), (2000, 5200)),
        np.repeat((50.0, 70.0), (5200, 2000)),
        np.repeat((30.0, 45.0, 60.0), 2400),
        RAMP,
        np.linspace(60, 40, 7200),
        np.linspace(60, 61.5, 7200),
        75 + np.random.default_rng(1).integers(-1, 2, 7200),
        np.tile(np.linspace(40, 60, 600), 12),
    ],
    ids=["flat", "half", "early", "late", "twice", "ramp", "falls", "slight", "noise", "saw"],
)
def test_what_does_not_grow_throughout_is_not_steady(values: np.ndarray) -> None:
    found = trend_of(values)

    assert found
    assert not found.steady


@pytest.mark.parametrize(("seconds", "interval_s"), [(590, 1.0), (1000, 60.0)])
def test_a_short_loop_has_no_trend(seconds: int, interval_s: float) -> None:
    values = np.linspace(20, 80, int(seconds / interval_s) + 1)

    assert trend_of(values, interval_s=interval_s) is None


def test_a_gpu_without_samples_for_a_while_has_columns_without_a_value() -> None:
    rng = np.random.default_rng(3)
    values = np.round(50 + rng.normal(0, 1, (4000, 2)))
    values[1000:2000, 0] = np.nan
    job = make_job(memory=values)
    found = told(job)
    grid = found.columns

    means = []
    for line, device in zip(found.lines, (0, 1), strict=True):
        held: list[list[float]] = [[] for _ in range(grid.count)]
        for i, value in enumerate(values[:, device]):
            if not np.isnan(value):
                held[i * SECOND_US // 2 // grid.width_us].append(value)
        means.append([round(sum(h) / len(h), 1) if h else None for h in held])
        assert line.mean == pytest.approx(means[-1], abs=0.051)
    assert None in means[0]
    (band,) = found.bands
    for column in range(grid.count):
        rows = slice(column * grid.width_us * 2 // SECOND_US, (column + 1) * grid.width_us * 2 // SECOND_US)
        assert band.low[column] == np.nanmin(values[rows])
        assert band.high[column] == np.nanmax(values[rows])


def test_quantiles_of_the_loop_leave_out_what_was_before() -> None:
    values = [0.0] * 100 + [80.0] * 100
    steps = make_steps([(50, 99)])

    (gpu,) = told(make_job(memory=values, steps=steps)).gpus

    assert (gpu.loop_p5, gpu.loop_p95, gpu.mean) == (80.0, 80.0, 40.0)


def test_what_the_loop_is_depends_on_what_was_recorded() -> None:
    values = [50.0] * 100

    assert told(make_job(memory=values)).loop == WHOLE
    assert told(make_job(memory=values, gpu=values)).loop == WORK
    assert told(make_job(memory=values, steps=make_steps([(0, 9)]))).loop == LOOP


def test_of_many_gpus_those_that_rise_most_or_are_fullest_are_drawn() -> None:
    panels = []
    for node in range(6):
        values = np.tile(40.0 + node + np.arange(6), (200, 1))
        panels.append(make_panel(Metric.GPU_MEMORY_ACTIVITY, values, node=f"n{node}"))
    panels[0].values[100:, 2] += 20

    found = told(make_job(extra=panels), SMALL)

    assert [band.node for band in found.bands] == ["n0", "n3", "n4", "n5"]
    assert [line.device for line in found.lines if line.node == "n0"] == ["gpu2", "gpu3", "gpu4", "gpu5"]
    assert [(one.node, one.device) for one in found.rises] == [("n0", "gpu2")]
    assert len(found.gpus) == 36


def test_lists_are_cut_and_say_so() -> None:
    zigzag = np.tile(np.repeat((10.0, 60.0), 10), 60)

    found = told(make_job(memory=zigzag), SMALL)

    assert len(found.rises) == MAX_RISES
    assert len(found.rises) + found.rises_left_out == SMALL.check(make_job(memory=zigzag)).triggered
    many = [make_panel(Metric.GPU_MEMORY_ACTIVITY, np.full((20, 16), 5.0), node=f"n{i}") for i in range(20)]
    cut = told(make_job(extra=many), SMALL)
    assert (len(cut.gpus), cut.gpus_left_out) == (64, 256)


def test_one_sample_has_quantiles_and_nothing_else() -> None:
    (gpu,) = told(make_job(memory=[37.0])).gpus

    assert (gpu.mean, gpu.p95, gpu.rise, gpu.trend) == (37.0, 37.0, None, None)


def test_alike_gpus_are_drawn_by_the_fullest_node() -> None:
    panels = [
        make_panel(Metric.GPU_MEMORY_ACTIVITY, np.full((900, 6), 60.0 + i / 2), node=f"n{i}", interval_s=1)
        for i in range(3)
    ]
    alike = told(JobInMemory(name="job", panels=tuple(panels)))
    panels[0].values[:, 0] = 66.5
    apart = told(JobInMemory(name="job", panels=tuple(panels)))

    assert (alike.alike, [band.node for band in alike.bands], len(alike.lines)) == (True, ["n2"], 1)
    assert (apart.alike, len(apart.bands), len(apart.lines)) == (False, 3, 12)
    assert (alike.columns.count, apart.columns.count) == (225, 150)
    assert all(len(line.mean) == apart.columns.count for line in apart.lines)
