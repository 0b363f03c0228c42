"""Samples, steps, and events as frames; the vectors of times are seconds or microseconds from the start of the job."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jobreport.library.tables import EVENTS, MEANS, SAMPLES, STEPS
from jobrules.model import SECOND_US, Job, Metric
from jobrules.rules.step_outlier import StepOutlier
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.once import slow_but
from tests.report.library.frames import opened

START = datetime.fromtimestamp(START_US / SECOND_US, UTC)


def at(*seconds: float) -> list[int]:
    return [START_US + round(one * SECOND_US) for one in seconds]


def two_nodes() -> list[Job]:
    return [make_job(gpu=[10, 30], node="algo-1"), make_job(gpu=[50, 70], node="algo-2")]


def uneven() -> Job:
    """Samples at 0, 1, and 4 s; the job ends at 5 s."""
    panel = make_panel(Metric.GPU_UTILIZATION, [100, 0, 50], time_us=at(0, 1, 4))
    return make_job(extra=[panel], steps=make_steps([(0, 5)]))


def nested(thread: int = 1) -> Job:
    """A from 0 to 10 s around B from 2 to 5 s, of one thread; steps from 0 to 4 and from 4 to 20 s."""
    events = make_events([("Forward", "A", 0, 10), ("Forward", "B", 2, 5)], thread=thread)
    return make_job(events=events, steps=make_steps([(0, 4), (4, 20)]))


# Samples


def test_samples_are_sorted_by_time_then_node() -> None:
    found = opened(*two_nodes()).samples("gpu_utilization")

    assert found["value"].tolist() == [10, 50, 30, 70]
    assert found["time_us"].tolist() == at(0, 0, 0.5, 0.5)
    assert found["time"].tolist()[2] == pd.Timestamp(START) + pd.Timedelta("500ms")
    assert found["since_start"].tolist()[3] == pd.Timedelta("500ms")
    assert found.index.tolist() == [0, 1, 2, 3]


def test_devices_are_in_natural_order_and_what_was_not_sampled_has_no_row() -> None:
    values = np.arange(12.0).reshape(1, 12)
    values[0, 3] = np.nan

    found = opened(make_job(gpu=np.vstack([values, values]))).samples("gpu_utilization")

    assert found["device"].tolist()[:11] == [f"gpu{i}" for i in range(12) if i != 3]
    assert not found["value"].isna().any()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (timedelta(seconds=2), timedelta(seconds=4), []),
        ("1s", "4s", [0]),
        (at(1)[0], None, [0, 50]),
        (START + timedelta(seconds=1), START + timedelta(seconds=4, microseconds=1), [0, 50]),
        (START.replace(tzinfo=None).isoformat(), (START + timedelta(seconds=1)).isoformat(), [100]),
        (pd.Timestamp(START) + pd.Timedelta("1s"), pd.Timedelta("4s"), [0]),
        (np.int64(at(4)[0]), None, [50]),
    ],
)
def test_the_start_of_a_window_belongs_to_it_and_the_end_does_not(
    start: Any, end: Any, expected: list[float]
) -> None:
    assert opened(uneven()).samples(start=start, end=end)["value"].tolist() == expected


@pytest.mark.parametrize(
    ("window", "expected", "covered"),
    [
        ({}, [50, 0, 50], [1, 1, 0.5]),
        ({"start": "3s"}, [0, 50], [0.5, 0.5]),
        ({"start": "1s", "end": "2s"}, [0], [0.5]),
    ],
)
def test_means_are_weighted_by_time(window: Any, expected: list[float], covered: list[float]) -> None:
    found = opened(uneven()).samples("gpu_utilization", every="2s", **window)

    assert found["value"].tolist() == expected
    assert found["covered"].tolist() == covered
    assert (found["time_us"] % (2 * SECOND_US) == START_US % (2 * SECOND_US)).all()


def test_a_pause_is_not_measured() -> None:
    panel = make_panel(Metric.GPU_UTILIZATION, [40] * 20, time_us=at(*range(10), *range(1000, 1010)))

    found = opened(make_job(extra=[panel])).samples(every=timedelta(seconds=100))

    assert found["value"].tolist()[:2] == [40, pytest.approx(np.nan, nan_ok=True)]
    assert found["covered"].tolist()[:3] == [0.1, 0, 0]


def test_means_add_up_to_that_of_the_whole() -> None:
    values = np.random.default_rng(3).uniform(0, 100, 500)
    gaps_s = np.random.default_rng(4).choice([0.5, 0.7, 2.0], 500).cumsum()
    job = make_job(extra=[make_panel(Metric.GPU_UTILIZATION, values, time_us=at(*gaps_s))])

    bins, whole = (opened(job).samples(every=every) for every in ("7s", "1h"))

    assert np.average(bins["value"], weights=bins["covered"]) == pytest.approx(whole["value"].iloc[0])


def test_a_wide_frame_has_a_column_for_each_series() -> None:
    job = opened(*two_nodes())

    found = job.samples(wide=True)

    assert list(found) == ["algo-1/gpu0/gpu_utilization", "algo-2/gpu0/gpu_utilization"]
    assert found.iloc[1].tolist() == [30, 70]
    assert found.index.name == "time"
    panel = make_panel(Metric.GPU_UTILIZATION, [10, 30, 50], time_us=[START_US, START_US + 5, START_US + 5])
    assert opened(make_job(extra=[panel])).samples(wide=True).iloc[:, 0].tolist() == [10, 50]
    mixed = opened(make_job(gpu=[1, 2], extra=[make_panel(Metric.GPU_POWER, [300, 310])]))
    with pytest.raises(ValueError, match="one unit"):
        mixed.samples(wide=True)


def test_samples_of_a_step_are_those_of_its_node() -> None:
    steps = make_steps([(0, 2), (2, 4)])
    job = opened(make_job(gpu=list(range(10)), steps=steps), make_job(gpu=[99] * 10, node="algo-2"))

    assert job.samples(step=1)["value"].tolist() == [4, 5, 6, 7]
    assert job.samples(step=slice(0, 2))["value"].tolist() == list(range(8))
    assert job.samples(step=1, start="3s")["value"].tolist() == [6, 7]
    with pytest.raises(KeyError, match="EVAL; known are TRAIN"):
        job.samples(step=1, phase_of_step="EVAL")


# Steps


def test_steps_have_gaps_and_durations() -> None:
    found = opened(make_job(steps=make_steps([(0, 10), (12, 20)]))).steps()

    assert (found["duration_us"] / SECOND_US).tolist() == [10, 8]
    assert np.isnan(found["gap_us"][0])
    assert found["gap_us"][1] == 2 * SECOND_US
    assert found["first"].tolist() == [True, False]
    assert found["step"].tolist() == [0, 1]
    assert (found["start_us"] - START_US).tolist() == [0, 12 * SECOND_US]


def test_the_gap_of_a_worker_ends_its_last_step_of_any_phase() -> None:
    steps = joined_steps(
        make_steps([(0, 1), (5, 6)]),
        make_steps([(2, 4)], phase="EVAL"),
        make_steps([(0.5, 1.5)], rank="7"),
    )

    found = opened(make_job(steps=steps)).steps(worker="33")

    assert (found["gap_us"] / SECOND_US).tolist()[1:] == [1, 1]
    assert found["phase"].tolist() == ["TRAIN", "EVAL", "TRAIN"]
    assert found["first"].tolist() == [True, True, False]


def test_outliers_are_those_of_the_rule() -> None:
    spans = [(i, i + (0.9 if i in (40, 90) else 0.1)) for i in range(200)]
    job = make_job(steps=joined_steps(make_steps(spans), make_steps(spans[:50], phase="EVAL")))

    found = opened(job).steps()

    counts = StepOutlier().check(job).details["step_details"]["algo-1-33"]
    slow = found[found["outlier"]]
    assert slow["step"].tolist() == [40, 90] == list(map(int, counts["step_numbers"]))
    assert set(slow["phase"]) == {"TRAIN"}  # 50 steps are not checked


# Events


def test_the_time_of_an_event_itself_leaves_out_what_runs_within_it() -> None:
    found = opened(nested()).events()

    assert found["name"].tolist() == ["A", "B"]
    assert (found["self_us"] / SECOND_US).tolist() == [7, 3]
    assert found["step"].tolist() == [0, 0]
    assert found["thread"].tolist() == [1, 1]


def test_events_are_cut_to_the_window() -> None:
    job = opened(nested())

    found = job.events(start="3s", end="12s", clip=True)

    assert (found["duration_us"] / SECOND_US).tolist() == [7, 2]
    assert (found["self_us"] / SECOND_US).tolist() == [5, 2]
    assert job.events(start="3s", end="12s")["duration_us"].tolist() == [10 * SECOND_US, 3 * SECOND_US]


def test_an_event_that_ends_in_a_later_step_belongs_to_both_but_has_the_number_of_the_first() -> None:
    job = opened(nested())

    found = job.events(step=1)

    assert found["name"].tolist() == ["A", "B"]
    assert found["step"].tolist() == [0, 0]
    assert job.events(step=1, overlap=False).empty
    assert len(job.events(step=slice(0, 2), overlap=False)) == 2


def test_each_worker_has_its_own_steps() -> None:
    parts = [
        make_job(
            steps=make_steps([(late, late + 1), (late + 1, late + 2)], node=f"algo-{i}"),
            events=make_events(
                [("Forward", f"in {step}", late + step + 0.2, late + step + 0.3) for step in range(2)],
                node=f"algo-{i}",
            ),
        )
        for i, late in enumerate((0, 1))
    ]

    found = opened(*parts).events(step=1)

    assert found["name"].tolist() == ["in 1", "in 1"]
    assert found["node"].tolist() == ["algo-0", "algo-1"]


def test_events_come_in_portions_of_a_node() -> None:
    job = opened(nested(), make_job(events=make_events([("Forward", "C", 1, 2)], node="algo-2")))

    frames = list(job.iter_events(rows=1))

    assert [one["name"].tolist() for one in frames] == [["A"], ["B"], ["C"]]
    assert [len(one) for one in job.iter_events(node="algo-2")] == [1]


@pytest.mark.parametrize("seed", slow_but({0, 1}, range(6)))
def test_events_are_those_that_a_look_at_each_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begins = np.sort(rng.integers(0, 40, 60)) / 4
    lasts = rng.integers(0, 8, 60) / 4
    parts = []
    for rank in ("0", "1"):
        edges = np.sort(rng.choice(48, 12, replace=False)) / 4
        rows = [
            ("Forward", f"{rank}-{i}", a, a + b) for i, (a, b) in enumerate(zip(begins, lasts, strict=True))
        ]
        parts.append(
            make_job(
                node=f"algo-{rank}",
                steps=make_steps(
                    [*zip(edges[::2], edges[1::2], strict=True)], node=f"algo-{rank}", rank=rank
                ),
                events=make_events(rows, node=f"algo-{rank}", rank=rank),
            )
        )
    job = opened(*parts)
    steps = job.steps()

    for asked in ({"start": "3s", "end": "5s"}, {"step": 2}, {"step": slice(1, 4)}):
        for overlap, clip in ((True, False), (True, True), (False, True)):
            expected = []
            for part in parts:
                own = steps[steps["node"] == part.nodes[0]]
                low, high = at(3, 5)
                if "step" in asked:
                    wanted = [asked["step"]] if isinstance(asked["step"], int) else [1, 2, 3]
                    chosen = own[own["step"].isin(wanted)]
                    low, high = chosen["start_us"].min(), chosen["end_us"].max()
                for name, start, end in zip(
                    part.events.name, part.events.start_us, part.events.end_us, strict=True
                ):
                    touches = start < high and (end > low or start >= low)
                    if not (touches if overlap else low <= start < high):
                        continue
                    holds = own[(own["start_us"] <= start) & (start < own["end_us"])]["step"]
                    cut = (max(start, low), min(end, high)) if clip else (start, end)
                    expected.append((part.events.names[name], *cut, *(holds if len(holds) else [-1])))
            found = job.events(**asked, overlap=overlap, clip=clip)
            columns = (found["name"], found["start_us"], found["end_us"], found["step"].fillna(-1))
            assert sorted(zip(*columns, strict=True)) == sorted(expected)
            assert found["start_us"].is_monotonic_increasing


# Names, and nothing


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda job: job.samples("gpu_utilisation"), "gpu_utilisation; did you mean gpu_utilization?"),
        (lambda job: job.samples(node=["algo-1", "algo-7"]), "algo-7; did you mean algo-1?"),
        (lambda job: job.samples(device="npu0"), "npu0; did you mean gpu0?"),
        (lambda job: job.events(step=99), "no TRAIN step 99; there are 0 to 1"),
        (lambda job: job.events(step=slice(5, 8)), "no TRAIN step from 5 to 7; there are 0 to 1"),
        (lambda job: job.events(name="Z"), "Z; known are A, B"),
        (lambda job: job.steps("TRAINS"), "TRAINS; did you mean TRAIN?"),
        (lambda job: job.rule("CPUBotleneck"), "CPUBotleneck; did you mean CPUBottleneck?"),
        (
            lambda job: job.rules(StepOutlier__stdev=2),
            "stdev; did you mean stddev?",
        ),
    ],
)
def test_an_unknown_name_is_an_error_with_a_near_one(call: Any, message: str) -> None:
    steps, events = nested().steps, nested().events
    job = opened(make_job(gpu=[1, 2, 3], steps=steps, events=events))

    with pytest.raises(KeyError) as raised:
        call(job)

    assert raised.value.args == (message,)


def test_names_are_one_several_or_a_pattern() -> None:
    job = opened(*two_nodes())

    def values(**asked: Any) -> list[float]:
        return job.samples(**asked)["value"].tolist()

    assert values(node="algo-2") == values(node=["algo-2"]) == values(node=re.compile("2$")) == [50, 70]
    assert values(node=re.compile("nothing")) == []


@pytest.mark.parametrize("wrong", ["fast", "2025-99-99", "-3s"])
def test_a_text_that_is_no_time_is_an_error(wrong: str) -> None:
    job = opened(*two_nodes())

    with pytest.raises(ValueError, match=re.escape(wrong)):
        job.samples(start=wrong)
    with pytest.raises(ValueError, match=re.escape(wrong)):
        job.samples(every=wrong)
    with pytest.raises(ValueError, match="NaT is no time"):
        job.samples(start=pd.NaT)  # type: ignore[arg-type]
    assert job.samples([]).attrs["reason"] == ""


def types(found: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in found.dtypes.items()}


def test_nothing_found_and_nothing_recorded_have_all_columns() -> None:
    full = opened(make_job(gpu=[1, 2], steps=nested().steps, events=nested().events))
    bare = opened(make_job(cpu=[1, 2]))
    gone: Any = {"start": "1h"}

    for one, reasons in (
        (full, ("", "", "")),
        (bare, ("gpu_utilization: not recorded", "no steps were found", "no traces were found")),
    ):
        frames = (one.samples("gpu_utilization", **gone), one.steps(**gone), one.events(**gone))
        assert [len(found) for found in frames] == [0, 0, 0]
        assert [types(found) for found in frames] == [dict(SAMPLES), dict(STEPS), dict(EVENTS)]
        assert tuple(found.attrs["reason"] for found in frames) == reasons
        assert types(one.samples("gpu_utilization", every="1s", **gone)) == dict(MEANS)
    assert [types(found) for found in (full.samples(), full.steps(), full.events())] == [
        dict(SAMPLES),
        dict(STEPS),
        dict(EVENTS),
    ]


def test_columns_and_types_stay() -> None:
    """Columns are only added within a major version."""
    assert list(SAMPLES.items()) == [
        ("time", "datetime64[us, UTC]"),
        ("time_us", "int64"),
        ("since_start", "timedelta64[us]"),
        ("node", "category"),
        ("device", "category"),
        ("metric", "category"),
        ("value", "float64"),
        ("unit", "category"),
        ("snapshot", "int64"),
    ]
    assert list(MEANS) == [*list(SAMPLES)[:-1], "covered"]
    assert list(STEPS.items()) == [
        ("node", "category"),
        ("worker", "category"),
        ("phase", "category"),
        ("step", "int64"),
        ("start", "datetime64[us, UTC]"),
        ("start_us", "int64"),
        ("since_start", "timedelta64[us]"),
        ("end_us", "int64"),
        ("duration_us", "int64"),
        ("gap_us", "float64"),
        ("first", "bool"),
        ("outlier", "bool"),
    ]
    assert list(EVENTS.items()) == [
        ("node", "category"),
        ("worker", "category"),
        ("process", "Int64"),
        ("thread", "Int64"),
        ("source", "category"),
        ("phase", "category"),
        ("name", "category"),
        ("start", "datetime64[us, UTC]"),
        ("start_us", "int64"),
        ("since_start", "timedelta64[us]"),
        ("end_us", "int64"),
        ("duration_us", "int64"),
        ("self_us", "int64"),
        ("step", "Int64"),
    ]


def test_more_events_than_the_limit_are_an_error_that_counts_them() -> None:
    job = opened(nested())

    assert len(job.events(limit=2)) == len(job.events(name="A", limit=1)) + 1 == 2
    with pytest.raises(ValueError, match=r"2\sevents, more than the limit of 1"):
        job.events(limit=1)


def test_a_job_without_a_date_counts_from_its_start() -> None:
    events = make_events([("Forward", "A", 1, 2)], start_us=0)

    job = opened(make_job(events=events))
    found = job.events()

    assert found.attrs["clock"] == "elapsed"
    assert found["start"].isna().all()
    assert types(found) == dict(EVENTS)
    assert found["start_us"].tolist() == [SECOND_US]
    assert found["since_start"].tolist() == [pd.Timedelta(0)]
    assert job.start is None


def test_a_frame_says_what_was_asked() -> None:
    found = opened(*two_nodes()).samples(re.compile("^gpu"), node="algo-1")

    assert found.attrs["filters"] == {"metric": "^gpu", "node": "algo-1"}
    assert found.attrs["job"] == "job"


def test_steps_are_chosen_without_keeping_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    job = opened(nested())
    monkeypatch.setattr(type(job._whole.job), "_here", ())  # as if they lay on disk

    assert len(job.events(step=0)) == len(job.samples(step=0)) + 2 == 2
    assert "parts" not in vars(job._whole.job)
