from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.model import SECOND_US, Metric, Severity, Status, in_words
from jobrules.rules.gpu_memory_increase import MAX_EVENTS, GPUMemoryIncrease
from tests.jobs import START_US, make_job, make_panel

SMALL = GPUMemoryIncrease(window=2, patience=3)


def reference(
    values: list[Decimal], rule: GPUMemoryIncrease, window: int, patience: int
) -> list[tuple[int, int]]:
    """First and last sample, counted from 1, of every event, in decimal numbers, sample by sample."""
    violating = []
    for i in range(1, len(values) + 1):
        if i <= patience or i < 2 * window:
            continue
        last, before = values[i - window : i], values[i - 2 * window : i - window]
        if mean(last) - mean(before) > Decimal(str(rule.increase)):
            violating.append(i)
    events: list[tuple[int, int]] = []
    for i in violating:
        if events and events[-1][1] == i - 1:
            events[-1] = events[-1][0], i
        else:
            events.append((i, i))
    return events


@given(
    st.lists(
        st.sampled_from(["0", "0.1", "4.9", "5", "5.1", "10", "10.1", "15.2", "60", "100"]),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([1, 2, 4, 5]),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.1, 2.5, 5.0, 5.1]),
)
def test_samples_and_events_agree_with_the_definition(
    texts: list[str], window: int, patience: int, increase: float
) -> None:
    rule = GPUMemoryIncrease(window=window, patience=patience, increase=increase)
    values = [Decimal(text) for text in texts]

    result = rule.check(make_job(memory=[float(value) for value in values], interval_s=7))

    def at(i: int) -> int:
        return START_US + (i - 1) * 7 * SECOND_US

    def minutes(samples: list[int]) -> int:
        return len({(at(i) - START_US) // (60 * SECOND_US) for i in samples})

    events = reference(values, rule, window, patience)
    first_judged = max(patience + 1, 2 * window)
    violating = [i for first, last in events for i in range(first, last + 1)]
    assert result.evaluated == minutes(list(range(first_judged, len(values) + 1)))
    assert result.triggered == len(events)
    assert (result.violations, result.violating) == (len(violating), minutes(violating))
    if not events:
        assert result.status is (Status.PASSED if result.evaluated else Status.NOT_EVALUATED)
        return
    assert result.status is Status.TRIGGERED
    gpu = result.details["algo-1"]["gpu0"]

    assert [(e["start_us"], e["end_us"]) for e in gpu["events"]] == [(at(a), at(b)) for a, b in events]
    for event, (first, last) in zip(gpu["events"], events, strict=True):
        means = {
            i: (mean(values[i - 2 * window : i - window]), mean(values[i - window : i]))
            for i in range(first, last + 1)
        }
        before, after = max(means.values(), key=lambda pair: pair[1] - pair[0])
        assert event["to"] - event["from"] == pytest.approx(float(after - before))
        assert (event["from"], event["to"]) in [
            tuple(map(pytest.approx, map(float, pair))) for pair in means.values()
        ]
    end = events[-1][1]
    rise = sum(values[end - window : end]) - sum(values[end - 2 * window : end - window])
    assert gpu["increase"] == pytest.approx(float(rise / window))
    assert gpu["gpu_max"] == float(max(values[:end]))
    assert gpu["p05"] == pytest.approx(np.quantile([float(v) for v in values[:end]], 0.05))
    assert result.details["last_timestamp"] == result.last_us == at(end)


def test_a_rise_equal_to_the_limit_passes_and_a_millionth_more_triggers() -> None:
    quiet = SMALL.check(make_job(memory=[10.1] * 8 + [15.1] * 8))
    loud = SMALL.check(make_job(memory=[10.1] * 8 + [15.100001] * 8))

    assert quiet.status is Status.PASSED
    assert quiet.measure
    assert quiet.measure.value == 5.0
    assert loud.triggered == loud.violations == 1


def test_equality_holds_after_a_day_of_samples() -> None:
    values = np.full(172_800, 33.3)
    values[-1000:] = 38.3

    assert GPUMemoryIncrease().check(make_job(memory=values)).status is Status.PASSED
    values[-1000:] = 38.300001
    assert GPUMemoryIncrease().check(make_job(memory=values)).triggered == 1


def test_every_gpu_has_its_own_events_and_answer() -> None:
    rising = [0.0] * 8 + [30.0] * 8
    short = [np.nan] * 13 + [0.0, 0.0, 90.0]
    table = np.column_stack([rising, np.full(16, 50.0), short])

    result = SMALL.check(make_job(memory=table))

    assert [(d.name, d.status) for d in result.devices] == [
        ("algo-1/gpu0", Status.TRIGGERED),
        ("algo-1/gpu1", Status.PASSED),
        ("algo-1/gpu2", Status.NOT_EVALUATED),
    ]
    assert str(result.devices[2].reason) == "4 samples needed, 3 recorded"
    assert result.devices[0].evaluated == result.devices[1].evaluated == 1
    assert set(result.details["algo-1"]) == {"gpu0"}
    assert result.datapoints_per_series == {"algo-1/gpu0": 16, "algo-1/gpu1": 16, "algo-1/gpu2": 3}


def test_window_and_patience_may_be_times() -> None:
    values = [0.0] * 40 + [32.0] * 20
    counted = GPUMemoryIncrease(window=10, patience=30).check(make_job(memory=values, interval_s=2))
    timed = GPUMemoryIncrease(window=timedelta(seconds=20), patience=timedelta(minutes=1)).check(
        make_job(memory=values, interval_s=2)
    )

    assert timed.triggered == 1
    assert timed.details == counted.details


def test_an_event_goes_on_across_a_time_without_samples() -> None:
    values = [0.0] * 8 + [30.0] * 8
    times = [START_US + t * SECOND_US for t in [*range(9), *range(3000, 3007)]]

    result = SMALL.check(make_job(extra=[make_panel(Metric.GPU_MEMORY_ACTIVITY, values, time_us=times)]))

    assert (result.triggered, result.violations) == (1, 3)
    assert result.last_us == times[10]


def test_the_list_of_events_is_capped_and_the_count_is_not() -> None:
    values = [0.0, 0.0, 0.0, 50.0, 50.0, 50.0] * 150

    result = SMALL.check(make_job(memory=values))

    assert result.triggered == 150
    assert len(result.details["algo-1"]["gpu0"]["events"]) == MAX_EVENTS


def test_a_rise_is_no_news_of_how_full_memory_is() -> None:
    (finding,) = SMALL.check(make_job(memory=[0.0] * 8 + [99.0] * 8)).findings

    assert finding.severity is Severity.INFO
    for wrong in ("out-of-memory", "full", "room "):
        assert wrong not in finding.title + in_words(finding.evidence) + " ".join(finding.advice)
