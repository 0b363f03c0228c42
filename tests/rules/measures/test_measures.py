"""Measures that several rules and the report share."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.analyses.time_lines import Columns, columns, reduce, time_line, time_lines
from jobrules.analyses.utilization import utilization
from jobrules.measures.minutes import Windows, trailing_below, trailing_quantiles
from jobrules.measures.quartiles import quartiles
from jobrules.measures.sample_weights import Gap, gaps, pauses, sample_weights, ticks
from jobrules.measures.work_span import work_span_us
from jobrules.model import SECOND_US, Metric, natural_sorted
from jobrules.text import apportion, digits_for
from jobrules.verdict.phases import interrupted, job_phases, missing
from jobrules.verdict.time_use import time_use
from tests.copies import replace
from tests.jobs import START_US, make_job, make_panel, make_steps


def us(*seconds: float) -> np.ndarray:
    return np.array([START_US + round(s * SECOND_US) for s in seconds], dtype=np.int64)


def test_windows_are_half_open_and_start_at_the_full_minute() -> None:
    job = make_job(cpu=[1.0] * 3, interval_s=30, start_us=START_US + 30 * SECOND_US)

    grid = Windows.of(job)

    assert (grid.start_us, grid.count) == (START_US, 2)
    # Samples at :30, 1:00 and 1:30: the one on the boundary belongs to the second window only.
    seen = grid.seen(us(30, 60, 90))
    assert (seen.windows.tolist(), seen.ends.tolist()) == ([0, 1], [1, 3])


def test_a_job_without_records_has_no_windows() -> None:
    assert Windows.of(make_job()).count == 0


@given(
    st.lists(st.integers(0, 599), min_size=1, max_size=30).map(sorted),
    st.integers(10, 40),
    st.integers(0, 40),
)
def test_windows_hold_what_lies_between_their_ends(seconds: list[int], count: int, few: int) -> None:
    grid = Windows(start_us=START_US, count=count)

    seen = grid.seen(us(*seconds))

    # More windows than samples and fewer are counted in two ways.
    by_window = np.bincount(np.array(seconds) // 60, minlength=count)
    every = np.arange(count)
    assert seen.new(every).tolist() == (by_window > 0).tolist()
    assert seen.by(every).tolist() == np.cumsum(by_window).tolist()
    assert [seen.before(i) for i in range(count + 1)] == [0, *np.cumsum(by_window).tolist()]
    assert (
        seen.judged(few).tolist() == np.flatnonzero((by_window > 0) & (np.cumsum(by_window) > few)).tolist()
    )


def test_samples_decades_apart_take_no_more_memory_than_others() -> None:
    grid = Windows(start_us=START_US, count=50_000_000)

    tracemalloc.start()
    seen = grid.seen(START_US + 60 * SECOND_US * np.array([0, 7, 49_999_999]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (seen.windows.tolist(), seen.ends.tolist()) == ([0, 7, 49_999_999], [1, 2, 3])
    assert most < 10_000_000


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.integers(1, 20), st.data())
def test_trailing_quantiles_are_those_of_the_last_values(
    values: list[int], window: int, data: st.DataObject
) -> None:
    ends = data.draw(st.lists(st.integers(1, len(values)), min_size=1, max_size=5))

    found = trailing_quantiles(np.array(values, dtype=float), np.array(ends), window, (0.05, 0.95))

    for end, (q5, q95) in zip(ends, found, strict=True):
        last = values[max(0, end - window) : end]
        assert q5 == pytest.approx(np.quantile(last, 0.05))
        assert q95 == pytest.approx(np.quantile(last, 0.95))


@given(
    st.lists(st.sampled_from([0.0, 0.1, 9.99, 70.0, 70.01, 100.0]), min_size=1, max_size=50),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0]),
    st.sampled_from([0.0, 0.1, 35.0, 70.0, 70.005, 100.0, 101.0]),
    st.data(),
)
def test_counting_tells_whether_a_quantile_is_below_a_limit(
    values: list[float], window: int, prob: float, limit: float, data: st.DataObject
) -> None:
    ends = np.array(data.draw(st.lists(st.integers(1, len(values)), max_size=5)), np.int64)

    found = trailing_below(np.array(values), ends, window, prob, limit)

    quantiles = [np.quantile(values[max(0, end - window) : end], prob) for end in ends]
    assert found.tolist() == [quantile < limit for quantile in quantiles]


def test_whiskers_end_at_the_extremes() -> None:
    block = quartiles(np.array([0.0, 10, 20, 30, 100]))

    assert block == pytest.approx({"p25": 10, "p50": 20, "p75": 30, "p95": 86, "upper": 60, "lower": 0})


@given(st.lists(st.sampled_from([0.0, 9.9, 10.0, 50.0, 90.0, 90.1, 100.0]), min_size=1, max_size=40))
def test_the_shares_of_a_box_add_up(values: list[float]) -> None:
    (found,) = gpu_utilization(make_job(gpu=values))

    shares = (found.below_10, found.from_10_to_90, found.above_90)
    low, high = sum(v < 10 for v in values), sum(v > 90 for v in values)
    assert sum(share or 0 for share in shares) == pytest.approx(1)
    wanted = [n / len(values) for n in (low, len(values) - low - high, high)]
    assert shares == pytest.approx(wanted, abs=0.001)


def test_a_time_line_is_summed_up_without_the_columns_that_have_no_sample() -> None:
    told: dict[str, Any] = {"node": "n", "key": "k", "label": "GPU", "unit": "%", "devices": 2}
    some = time_line(**told, mean=(10.0, None, 40.0), low=(1.0, None, 30.0), high=(20.0, None, 50.0))
    none = time_line(**told, mean=(None,), low=(None,), high=(None,))

    assert (some.average, some.lowest, some.highest, some.missing_percent) == (25.0, 1.0, 50.0, 33.3)
    assert (none.average, none.lowest, none.highest, none.missing_percent) == (None, None, None, 100.0)


def test_ticks_are_all_snapshots_as_the_first_metric_that_has_one_tells_them() -> None:
    cpu = replace(
        make_panel(Metric.CPU_UTILIZATION, [1.0, 2, 3], time_us=us(0, 1, 3)), snapshot=np.array([0, 1, 3])
    )
    memory = make_panel(Metric.HOST_MEMORY, [1.0, 2, 3, 4], time_us=us(0.001, 1.002, 2, 3.004))

    assert ticks(make_job(extra=[cpu, memory])).tolist() == us(0, 1, 2, 3).tolist()
    assert not len(ticks(make_job(steps=make_steps([(0, 1)]))))


def test_gaps_are_summed_up_by_node_and_where_all_nodes_have_one() -> None:
    span = 0, 1000
    found = [
        Gap(node=n, start_us=a, end_us=b) for n, a, b in (("a", 0, 100), ("a", 200, 300), ("b", 250, 600))
    ]

    b, a = missing(found, span)
    both = interrupted(found, ("a", "b"), span)

    assert (b.node, b.count, b.length_us, b.percent, b.measured_percent) == ("b", 1, 350, 35.0, 65.0)
    assert (a.node, a.start_us, a.end_us, a.count, a.percent) == ("a", 0, 300, 2, 20.0)
    assert both
    assert (both.start_us, both.end_us, both.length_us, both.percent) == (250, 300, 50, 5.0)
    assert interrupted(found, ("a", "b", "c"), span) is None
    assert interrupted(found[:2], ("a",), span) is None


@pytest.mark.parametrize(
    ("seconds", "where"),
    [
        # Longer than a minute and ten intervals.
        ((0, 0.5, 1, 61, 61.5), []),
        ((0, 0.5, 1, 61.1, 61.6), [2]),
        ((0, 30, 60, 120, 150), []),
        ((0, 60), []),
        # Slower sampling is none; two pauses around one sample are two.
        ((*range(10), *range(10, 1000, 61)), []),
        ((*range(100), 1000, *range(2000, 2100)), [99, 100]),
    ],
)
def test_pauses(seconds: tuple[float, ...], where: list[int]) -> None:
    assert np.flatnonzero(pauses(us(*seconds))).tolist() == where


@given(
    st.lists(st.integers(1, 400_000_000), min_size=0, max_size=30),
    st.integers(0, 200_000_000),
    st.integers(0, 200_000_000),
)
def test_held_and_unmeasured_time_add_up_to_the_job(distances: list[int], lead: int, tail: int) -> None:
    time_us = START_US + np.cumsum([0, *distances])

    hold = sample_weights(time_us, int(time_us[0]) - lead, int(time_us[-1]) + tail)

    total = lead + sum(distances) + tail
    assert (hold.weight_us >= 0).all()
    assert hold.weight_us.sum() + hold.unmeasured_us == pytest.approx(total, abs=1)


def test_time_before_the_first_sample_of_a_gpu_is_not_measured() -> None:
    second_minute = make_panel(Metric.GPU_UTILIZATION, [100.0] * 120, start_us=START_US + 60 * SECOND_US)

    use = time_use(make_job(cpu=[50.0] * 240, extra=[second_minute]))

    assert use is not None
    assert use.of("unknown")[1] == pytest.approx(50, abs=0.5)


def test_time_use_counts_each_moment_once() -> None:
    # 10 s idle, 10 s at 100 %, 10 s at 5 %, 10 s at 50 %, then idle; the last sample ends the job.
    gpu = [0.0] * 10 + [100.0] * 10 + [5.0] * 10 + [50.0] * 10 + [0.0] * 11

    use = time_use(make_job(gpu=gpu, interval_s=1))

    assert use is not None
    assert {p.key: p.percent for p in use.parts} == {
        "used": 31.0,
        "idle": 59.0,
        "low": 10.0,
    }


def test_a_gap_is_not_measured_and_not_lost() -> None:
    times = [*range(60), *range(240, 301)]
    panel = make_panel(Metric.GPU_UTILIZATION, [100.0] * len(times), time_us=us(*times))

    job = make_job(extra=[panel])
    use = time_use(job)

    assert use is not None
    assert use.of("unknown")[1] == 60.0
    assert use.of("used")[1] == 40.0
    assert use.of("lost") == (0, 0)
    (gap,) = gaps(job)
    assert (gap.start_us - START_US, gap.end_us - START_US) == (59 * SECOND_US, 240 * SECOND_US)


def test_a_node_that_vanished_leaves_a_gap_to_the_end() -> None:
    short = make_panel(Metric.GPU_UTILIZATION, [50.0] * 60, node="algo-2", interval_s=1)

    job = make_job(gpu=[50.0] * 600, interval_s=1, extra=[short])

    (gap,) = gaps(job)
    assert (gap.node, gap.end_us) == ("algo-2", START_US + 599 * SECOND_US)
    use = time_use(job)
    assert use is not None
    assert use.of("unknown")[1] == pytest.approx(100 * (599 - 60) / (2 * 599), abs=0.06)


def test_without_a_gpu_the_cores_are_counted() -> None:
    use = time_use(make_job(cpu=[[25.0, 75.0]] * 11, interval_s=360))

    assert use is not None
    assert (use.device, use.count, use.hours, use.of("used")) == ("CPU", 2, 2.0, (1.0, 50.0))


def test_a_gpu_that_never_worked_has_no_first_work() -> None:
    job = make_job(gpu=[0.0] * 10)

    assert work_span_us(job) is None
    assert job_phases(job).basis == "none"


def test_phases_by_steps_and_by_gpu_work() -> None:
    gpu = [0.0] * 20 + [90.0] * 60 + [0.0] * 21
    by_gpu = job_phases(make_job(gpu=gpu, interval_s=1))
    by_steps = job_phases(make_job(gpu=gpu, interval_s=1, steps=make_steps([(15, 30), (30, 85)])))
    by_both = job_phases(make_job(gpu=gpu, interval_s=1, steps=make_steps([(25, 30), (30, 85)])))

    assert [(p.key, p.percent) for p in by_gpu.phases] == [("before", 20.0), ("loop", 59.0), ("after", 21.0)]
    assert [(p.key, p.percent) for p in by_steps.phases] == [
        ("before", 15.0),
        ("loop", 70.0),
        ("after", 15.0),
    ]
    assert [p.percent for p in by_both.phases] == [20.0, 65.0, 15.0]
    assert (by_gpu.basis, by_steps.basis, by_both.basis) == ("gpu", "steps", "both")


@given(st.lists(st.floats(0, 1e6), max_size=8), st.integers(0, 3))
def test_apportioned_values_add_up_and_are_off_by_less_than_a_digit(values: list[float], digits: int) -> None:
    rounded = apportion(values, 100.0, digits)

    if sum(values) > 0:
        assert round(sum(rounded), digits) == 100.0
        for value, shown in zip(values, rounded, strict=True):
            assert abs(shown - 100 * value / sum(values)) < 10**-digits * 1.0001
    else:
        assert not any(rounded)


@pytest.mark.parametrize(
    ("total", "digits"), [(25.6, 1), (2560, 1), (2.67, 2), (0.283, 3), (0, 1), (1e-9, 6)]
)
def test_digits_show_three_figures(total: float, digits: int) -> None:
    assert digits_for(total) == digits


def test_usage_rows_name_the_busiest_core() -> None:
    rows = {row.label: row for row in utilization(make_job(gpu=[40.0] * 4, cpu=[[100.0, 0.0]] * 4))}

    assert rows["CPU"].p50 == 50.0
    assert rows["CPU, busiest core"].min == 100.0
    assert rows["GPU"].n == 4


def test_columns_are_at_most_six_hundred_and_have_a_nameable_width() -> None:
    day = make_job(cpu=[1.0] * 2881, interval_s=30)

    grid = columns(day)

    assert (grid.width_us, grid.count) == (300 * SECOND_US, 289)
    assert columns(make_job(cpu=[1.0] * 1201)).count <= 601
    assert columns(make_job(cpu=[1.0] * 100, interval_s=86400)).count <= 600
    assert grid.bundled(100) == Columns(start_us=START_US, width_us=900 * SECOND_US, count=97)


def test_one_sparse_series_does_not_make_all_columns_wide() -> None:
    sparse = make_panel(Metric.HOST_MEMORY, [1.0, 2.0], interval_s=3000)

    grid = columns(make_job(cpu=[1.0] * 7200, gpu=[1.0] * 7200, extra=[sparse]))

    assert grid.width_us <= 10 * SECOND_US


def test_every_peak_survives_the_reduction() -> None:
    gpu = np.full((7200, 2), 50.0)
    gpu[1234, 0], gpu[4321, 1] = 99.0, 1.0
    job = make_job(gpu=gpu)

    (line,) = time_lines(job, columns(job))

    assert max(v for v in line.high if v is not None) == 99.0
    assert min(v for v in line.low if v is not None) == 1.0
    assert np.average([v for v in line.mean if v is not None]) == pytest.approx(50.0, abs=0.1)


def test_a_gap_stays_blank_and_slow_sampling_is_held() -> None:
    times = us(*range(60), 180, *range(181, 240), *range(240, 900, 60))
    values = np.arange(len(times), dtype=float)
    job = make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values.tolist(), time_us=times)])
    grid = columns(job)

    mean, low, high = reduce(grid, times, values, values, values)

    at = (np.array([30, 120, 200, 400]) * SECOND_US // grid.width_us).tolist()
    assert [math.isnan(mean[i]) for i in at] == [False, True, False, False]
    assert (np.isnan(low) == np.isnan(high)).all()


def test_natural_order_survives_names_of_any_kind() -> None:
    names = ["gpu10", "gpu2", "", "9" * 5000, "gpu02", "β"]

    ordered = natural_sorted(names)

    assert ordered.index("gpu2") < ordered.index("gpu10")
    assert ordered == natural_sorted(list(reversed(names)))
