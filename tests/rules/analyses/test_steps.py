"""Durations of steps: every number against a slow reference, and jobs at the edge."""

from __future__ import annotations

import itertools
import statistics
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import StepOutlier
from jobrules.analyses import step_parts
from jobrules.analyses.steps import MAX_BINS, MAX_ROWS, StepTimes, steps
from jobrules.model import SECOND_US, Events, EventSource, Job, Steps
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_steps

RULE = StepOutlier()


def told(job: Job, rule: StepOutlier = RULE) -> StepTimes:
    times = steps(job, rule)
    assert times
    return times


def steps_of(
    lasted_us: list[int], gap_us: int = 1000, *, node: str = "n", worker: str = "0", phase: str = "TRAIN"
) -> Steps:
    """Steps one after the other with a gap between."""
    lasted = np.array(lasted_us, np.int64)
    start = START_US + np.cumsum(lasted + gap_us) - lasted - gap_us
    n = len(lasted)
    return Steps.of(
        [(node, worker, phase)],
        np.zeros(n, np.int32),
        number=np.arange(n),
        start_us=start,
        end_us=start + lasted,
    )


durations = st.one_of(
    st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40),
    st.lists(st.sampled_from([0, 1, 400_000, 400_001, 9_000_000]), min_size=95, max_size=130),
    st.lists(st.integers(450_000, 460_000), min_size=101, max_size=130).map(lambda a: [*a, 4_000_000]),
)


@given(st.lists(durations, min_size=1, max_size=6), st.sampled_from([0.0, 1.0, 3.0]))
def test_the_table_is_that_of_the_rule_and_the_histogram_counts_what_a_slow_reference_counts(
    found: list[list[int]], stddev: float
) -> None:
    phases = ["TRAIN", "EVAL"]
    steps = joined_steps(
        *(steps_of(one, worker=str(i // 2), phase=phases[i % 2]) for i, one in enumerate(found))
    )

    job, rule = make_job(steps=steps), replace(RULE, stddev=stddev)
    times, details = told(job, rule), rule.check(job).details

    series = {(str(i // 2), phases[i % 2]): one for i, one in enumerate(found)}
    assert times.count == sum(map(len, found))
    assert {(row.rank, row.mode) for row in times.rows} == set(series)
    blocks = details["step_details"] | details.get("too_few_steps", {})
    for row in times.rows:
        block = blocks[f"n-{row.rank}"]["phases"][f"Step:ModeKeys.{row.mode}"]
        stats = block["step_stats"]
        named = (
            (row.mean_s, stats["mean"]),
            (row.median_s, stats["p50"]),
            (row.p95_s, stats["p95"]),
            (row.p99_s, stats["p99"]),
            (row.std_s, block["std_s"]),
            (row.first_s, block["first_step_s"]),
            (row.limit_s or 0, block.get("threshold_s", 0)),
        )
        assert [ours for ours, _ in named] == [round(theirs, 6) for _, theirs in named]
        lasted = series[row.rank, row.mode]
        assert (row.steps, row.min_s, row.max_s) == (len(lasted), min(lasted) / 1e6, max(lasted) / 1e6)
        assert row.above_two_medians == sum(one > 2 * statistics.median(lasted) for one in lasted)
        assert row.outliers == block.get("number_of_outliers")
    histogram = times.histogram
    assert histogram.longest_us == max(map(max, found))
    assert histogram.bins <= MAX_BINS + 2
    edges = [histogram.start_us + i * histogram.width_us for i in range(histogram.bins + 1)]
    for one in histogram.series:
        pooled = [us for (worker, phase), us_s in series.items() for us in us_s
                  if phase == one.mode and one.rank in {"", worker}]  # fmt: skip
        counts = [sum(a <= us < b for us in pooled) for a, b in itertools.pairwise(edges)]
        assert list(one.counts) == counts
        assert one.beyond == sum(us >= edges[-1] for us in pooled)
    assert sum(sum(one.counts) + one.beyond for one in histogram.series) == times.count


@given(st.lists(durations, min_size=1, max_size=4))
def test_every_peak_and_every_outlier_survives_in_the_time_line(found: list[list[int]]) -> None:
    steps = joined_steps(
        *(steps_of(one, worker=str(i), phase="TRAIN" if i < 2 else "EVAL") for i, one in enumerate(found))
    )

    times = told(make_job(steps=steps))

    line = times.timeline
    assert 1 <= line.count <= 601
    tops = sorted((us for one in line.series for us in one.high_us if us is not None), reverse=True)
    assert [peak.lasted_us for peak in line.peaks] == tops[:10]
    assert all(
        one.high_us[(peak.start_us - line.start_us) // line.width_us] == peak.lasted_us
        for peak in line.peaks
        for one in line.series
        if one.mode == peak.mode
    )
    for course in line.series:
        low: list[int | None] = [None] * line.count
        high: list[int | None] = [None] * line.count
        for phase, start, end in zip(steps.mode, steps.start_us.tolist(), steps.end_us.tolist(), strict=True):
            if phase == course.mode:
                column = (start - line.start_us) // line.width_us
                lasted = end - start
                low[column] = lasted if low[column] is None else min(low[column] or 0, lasted)
                high[column] = max(high[column] or 0, lasted)
        assert (list(course.low_us), list(course.high_us)) == (low, high)
        for column, us in zip(course.outlier_columns, course.outlier_us, strict=True):
            assert us <= (high[column] or 0)
    outliers = sum(row.outliers or 0 for row in times.rows)
    above = sum(row.above_two_medians for row in times.rows)
    assert times.marked == ("rule" if outliers else "median" if above else "")
    assert times.marks == (outliers or above)
    assert any(course.outlier_us for course in line.series) == bool(times.marks)


def test_a_phase_that_the_rule_was_not_asked_for_is_not_judged() -> None:
    steps = joined_steps(steps_of([100] * 150), steps_of([200] * 150, phase="EVAL"))

    times = told(make_job(steps=steps), replace(RULE, mode="EVAL"))

    assert {row.mode: row.outliers for row in times.rows} == {"TRAIN": None, "EVAL": 0}


@pytest.mark.parametrize("lasted", [[0], [0, 0, 0], [7], [400_000] * 120, [0] * 119 + [1]])
def test_steps_that_do_not_differ_or_take_no_time(lasted: list[int]) -> None:
    times = told(make_job(steps=steps_of(lasted, gap_us=0)))

    histogram = times.histogram
    assert sum(sum(one.counts) for one in histogram.series) + histogram.beyond == len(lasted)
    assert histogram.beyond == sum(us >= histogram.end_us for us in lasted)
    assert sum(map(sum, (part.time_us for part in times.last.parts))) <= sum(lasted)
    msgspec.json.encode(times)


def test_many_workers_are_ranked_and_cut_and_the_rest_is_counted() -> None:
    tables = [steps_of([400_000 + i] * 101, worker=str(i)) for i in range(140)]
    tables[77] = steps_of([400_000] * 101 + [9_000_000] * 3, worker="77")

    times = told(make_job(steps=joined_steps(*tables)))

    assert (len(times.rows), times.rows_left) == (MAX_ROWS, 12)
    assert [row.rank for row in times.rows[:3]] == ["77", "139", "138"]
    assert [(one.rank, one.mode) for one in times.histogram.series] == [("", "TRAIN")]


def test_phases_of_any_number_are_few_series() -> None:
    tables = [steps_of([1000 * (20 - i)] * (i + 1), phase=f"P{i}") for i in range(12)]

    times = told(make_job(steps=joined_steps(*tables)))

    # The phase with most time first: 10 ms x 11, 11 ms x 10, 12 ms x 9.
    assert [one.mode for one in times.modes[::7]] == ["P9", "P4"]
    assert [one.mode for one in times.histogram.series] == ["P9", "P10", "P8", ""]
    assert [one.mode for one in times.timeline.series] == ["P9", "P10", "P8", ""]
    assert (len(times.modes), times.modes_left) == (8, 4)
    assert sum(sum(one.counts) + one.beyond for one in times.histogram.series) == times.count


def test_the_axis_of_the_histogram_ends_at_the_limit_and_not_at_a_start_up() -> None:
    usual = np.random.default_rng(1).integers(3_000_000, 3_600_000, 2000).tolist()
    slow = told(make_job(steps=steps_of([*usual, *[5_000_000] * 20]))).histogram
    start_up = told(make_job(steps=steps_of([600_000_000, *usual]))).histogram

    for histogram, beyond in ((slow, 20), (start_up, None)):
        (one,) = histogram.series
        filled = np.flatnonzero(one.counts)
        assert 30 <= histogram.bins <= MAX_BINS + 2
        assert len(filled) > 10
        assert beyond in {None, one.beyond}
    assert start_up.longest_us == 600_000_000


# --- what outliers spend their time on


def sampled(pairs: list[tuple[int, int]], moments: list[tuple[int, int]]) -> int:
    """How many whole units of time are covered by both."""
    units = {t for a, b in pairs for t in range(a, b)}
    return len(units & {t for a, b in moments for t in range(a, b)})


spans = st.tuples(st.integers(0, 300), st.integers(0, 25)).map(lambda p: (p[0], p[0] + p[1]))


@given(
    st.lists(st.tuples(st.sampled_from(["Forward", "DataLoaderIter", "cpu_functions"]), spans), max_size=25),
    st.lists(st.integers(1, 12), min_size=4, max_size=20),
)
def test_shares_of_classes_against_counting_units_of_time(
    rows: list[tuple[str, tuple[int, int]]], lasted: list[int]
) -> None:
    steps = steps_of([SECOND_US * one for one in lasted], gap_us=SECOND_US, node="algo-1", worker="33")
    events = make_events([(phase, f"op {phase}", a, b) for phase, (a, b) in rows]) if rows else Events()

    with patch.object(step_parts, "MIN_OUTLIERS", 1):
        times = told(make_job(steps=steps, events=events))

    place = [(s - START_US) // SECOND_US for s in steps.start_us.tolist()]
    bars = [(a, a + one) for a, one in zip(place, lasted, strict=True)]
    limit = 2 * statistics.median(lasted)
    expected = {}
    for group in ({"Forward", "DataLoaderIter"}, {"cpu_functions"}):
        recorded = [span for phase, span in rows if phase in group]
        seen = [bar for bar in bars if sampled(recorded, [bar])]
        slow = [bar for bar in seen if bar[1] - bar[0] > limit]
        normal = [bar for bar in seen if bar[1] - bar[0] <= limit]
        for phase in group:
            own = [span for one, span in rows if one == phase]
            if slow and normal and sampled(own, seen):
                name = "op cpu_functions" if phase == "cpu_functions" else phase
                expected[name] = (
                    round(100 * sampled(own, normal) / sum(b - a for a, b in normal), 3),
                    round(100 * sampled(own, slow) / sum(b - a for a, b in slow), 3),
                    len(normal),
                    len(slow),
                )
    classes = times.contrast.classes if times.contrast else ()
    assert {
        one.name: (one.normal_percent, one.outlier_percent, one.normal_steps, one.outlier_steps)
        for one in classes
    } == expected
    differences = [abs(one.outlier_percent - one.normal_percent) for one in classes]
    assert differences == sorted(differences, reverse=True)


@pytest.mark.parametrize(("outliers", "compared"), [(4, False), (5, True)])
def test_a_class_in_few_outliers_is_not_compared(outliers: int, compared: bool) -> None:
    spans_s = [(float(i), i + 0.5) for i in range(20)]
    spans_s += [(20.0 + 6 * i, 25.0 + 6 * i) for i in range(outliers)]
    passes = make_events([("Forward", "net", a, a + 0.25) for a, _ in spans_s])

    times = told(make_job(steps=make_steps(spans_s), events=passes))

    assert times.marks == outliers
    assert (times.contrast is not None) == compared


def test_lanes_without_a_worker_are_compared_over_the_steps_of_the_node() -> None:
    spans_s = [(float(i), i + 0.5) for i in range(20)] + [(20.0 + 6 * i, 25.0 + 6 * i) for i in range(5)]
    events = make_events(
        [("allreduce.x", "0", a, b) for a, b in spans_s], rank="", source=EventSource.HOROVOD
    )

    contrast = told(make_job(steps=make_steps(spans_s), events=events)).contrast

    assert contrast
    assert [(one.name, one.normal_percent, one.outlier_percent) for one in contrast.classes] == [
        ("Horovod", 100.0, 100.0)
    ]


# --- the last steps

_CLASSES = {
    "Forward": "Forward pass",
    "Backward(post-forward)": "Backward pass",
    "gpu_functions-dev:0": "GPU operators",
    "cpu_functions": "CPU operators",
    "DataLoaderIter": "Waiting for data",
    "Optimizer": "Optimizer",
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(_CLASSES)), spans), max_size=30),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=40),
)
def test_each_moment_of_the_last_steps_counts_once(
    rows: list[tuple[str, tuple[int, int]]], taken: list[tuple[int, int]]
) -> None:
    spans_s, at = [], 0
    for lasted, gap in taken:
        spans_s.append((at, at + lasted))
        at += lasted + gap
    events = make_events([(phase, "x", a, b) for phase, (a, b) in rows]) if rows else Events()

    last = told(make_job(steps=make_steps(spans_s), events=events)).last

    assert list(last.total_us) == [
        sum(one) for one in zip(*(part.time_us for part in last.parts), strict=True)
    ]
    but_last = [sum(part.time_us[:-1]) for part in last.parts]
    if sum(but_last):
        assert sum(part.percent for part in last.parts) == pytest.approx(100)
        wanted = [100 * us / sum(but_last) for us in but_last]
        assert [part.percent for part in last.parts] == pytest.approx(wanted, abs=0.1)
    order = list(_CLASSES.values())
    bars = []
    for i, (start, end) in enumerate(spans_s):
        following = [a for a, _ in spans_s if a >= end and a > start]
        bars.append((i, start, max(end, min(following, default=end))))
    bars = sorted(bars, key=lambda bar: bar[1])[-30:]
    reference = []
    for _, start, stop in bars:
        counted = dict.fromkeys([*order, "Unaccounted"], 0)
        for t in range(start, stop):
            going = {_CLASSES[phase] for phase, (a, b) in rows if a <= t < b}
            counted[next((name for name in order if name in going), "Unaccounted")] += 1
        reference.append(counted)
    assert list(last.numbers) == [i for i, _, _ in bars]
    if last.by_event:
        assert len(last.parts) <= 6
        for part in last.parts:
            if part.key != "other-events":
                assert list(part.time_us) == [one[part.label] * SECOND_US for one in reference]
        assert last.parts[-1].key == "no-event"
    else:
        assert not any(one[name] for one in reference for name in order)
        assert [part.key for part in last.parts] == ["in-steps", "outside-steps"]
    together = [sum(one) // SECOND_US for one in zip(*(part.time_us for part in last.parts), strict=True)]
    assert together == [stop - start for _, start, stop in bars]


def test_more_than_five_classes_are_merged_into_other() -> None:
    names = ["Forward", "Backward(post-forward)", "DataLoaderIter", *(f"phase {i}" for i in range(6))]
    events = make_events([(name, "x", 10.0 * i, 10.0 * i + 1 + i) for i, name in enumerate(names)])

    parts = told(make_job(steps=make_steps([(0, 100)]), events=events)).last.parts

    assert [(part.key, part.label) for part in parts] == [
        ("forward", "Forward pass"),
        ("backward", "Backward pass"),
        ("event-type", "phase 5"),
        ("other-events", "Other event types"),
        ("data-loading", "Waiting for data"),
        ("no-event", "Unaccounted"),
    ]
    assert parts[3].time_us == ((4 + 5 + 6 + 7 + 8) * SECOND_US,)


def test_of_a_thousand_phases_the_small_ones_are_told_as_one() -> None:
    rows = [(f"phase {i}", "x", 0.01 * i, 0.01 * i + 0.005) for i in range(2000)]
    rows += [("phase 7", "x", 20.0, 30.0), ("Forward", "x", 30.0, 40.0), ("phase 9", "x", 41.0, 45.0)]

    parts = told(make_job(steps=make_steps([(0, 50)]), events=make_events(rows))).last.parts

    whole = {part.label: sum(part.time_us) for part in parts}
    assert [part.label for part in parts][2:] == ["phase 9", "phase 7", "Other event types", "Unaccounted"]
    assert whole["phase 7"] == 10_005_000
    assert whole["Unaccounted"] == 50_000_000 - 24_000_000 - 2000 * 5000
    assert sum(whole.values()) == 50_000_000
    assert len(parts) == 6


@pytest.mark.parametrize(
    ("fetched_until", "forward_until", "told_as"),
    [
        (40, 40, ("", None)),
        (25, 40, ("data-loading", 25)),
        (25, 30, ("data-loading", 25)),
        (40, 30, ("forward", 30)),
        (0, 40, ("", None)),
    ],
)
def test_what_was_no_longer_recorded_is_told(
    fetched_until: int, forward_until: int, told_as: tuple[str, int | None]
) -> None:
    rows = [("DataLoaderIter", "x", i - 0.5, float(i)) for i in range(1, fetched_until + 1)]
    rows += [("Forward", "x", i - 1.0, float(i)) for i in range(1, forward_until + 1)]
    job = make_job(steps=make_steps([(i, i + 1) for i in range(40)]), events=make_events(rows))

    last = told(job).last

    name, seconds = told_as
    assert last.ended == name
    assert last.ended_us == (None if seconds is None else START_US + seconds * SECOND_US)
