from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.model import SECOND_US, Events, Job, Severity, Status, Steps, in_words
from jobrules.rules import step_outlier
from jobrules.rules.step_outlier import MAX_NUMBERS, StepOutlier, above
from tests import scenario_d1
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_steps

DAY_S = 24 * 3600


def lasting(
    *lengths: float,
    distance: float = 0.0,
    start: float = 0.0,
    phase: str = "TRAIN",
    node: str = "algo-1",
    rank: str = "33",
) -> Steps:
    """Steps one after another, ``distance`` seconds from start to start, or end to start without."""
    spans, now = [], start
    for length in lengths:
        spans.append((now, now + length))
        now += distance or length
    return make_steps(spans, phase=phase, node=node, rank=rank)


def block(job: Job, rule: StepOutlier | None = None, rank: str = "algo-1-33") -> dict[str, Any]:
    found: dict[str, Any] = (rule or StepOutlier()).check(job).details["step_details"][rank]
    return found


def d1() -> Job:
    first_us = scenario_d1.BASE_S * SECOND_US + 7_250_000
    return make_job(gpu=np.full(scenario_d1.TICKS, 50.0), start_us=first_us, steps=scenario_d1.steps())


def events_of(steps: Steps) -> Events:
    """The steps as events, in lanes of their ranks."""
    tables = []
    for i in range(len(steps)):
        phase = f"Step:ModeKeys.{steps.mode[i]}"
        span = [(int(us) - START_US) / SECOND_US for us in (steps.start_us[i], steps.end_us[i])]
        tables.append(
            make_events(
                [(phase, phase, span[0], span[1])],
                node=str(steps.node[i]),
                rank=str(steps.rank[i]),
            )
        )
    return Events.joined(tables)


def test_a_hundred_steps_are_not_judged() -> None:
    result = StepOutlier().check(make_job(steps=lasting(*[0.1] * 99, 1.0)))

    assert (result.status, str(result.reason)) == (
        Status.NOT_EVALUATED,
        "101 steps per rank and mode needed, 100 recorded",
    )
    assert [(one.name, one.status, str(one.reason)) for one in result.devices] == [
        ("algo-1 rank 33 TRAIN", Status.NOT_EVALUATED, "101 steps needed, 100 recorded")
    ]
    assert result.datapoints == 100
    assert result.details["step_details"] == {}
    known = result.details["too_few_steps"]["algo-1-33"]["phases"]["Step:ModeKeys.TRAIN"]
    assert known["step_stats"]["max"] == 1.0
    assert "number_of_outliers" not in known


def test_a_job_without_steps_is_not_evaluated() -> None:
    result = StepOutlier().check(make_job(gpu=[1, 2]))

    assert (result.status, str(result.reason)) == (Status.NOT_EVALUATED, "steps not recorded")
    assert result.details == {"step_details": {}}


def test_the_vendors_second_name_of_the_parameter_comes_before_the_fields() -> None:
    rule = StepOutlier()

    assert rule.aliases == {"threshold": "stddev"}
    assert list(vars(rule)) == ["mode", "n_outliers", "stddev"]
    assert (rule.mode, rule.n_outliers, rule.stddev) == (None, 10, 3)


def test_ten_outliers_are_tolerated_and_eleven_are_not() -> None:
    ten = StepOutlier().check(make_job(steps=lasting(*[0.1] * 200, *[1.0] * 10)))
    eleven = StepOutlier().check(make_job(steps=lasting(*[0.1] * 200, *[1.0] * 11)))

    assert (ten.status, ten.violations) == (Status.PASSED, 10)
    assert ten.headline == "At most 10\u00a0outliers per rank and mode (threshold 10)"
    assert (eleven.status, eleven.violations, eleven.triggered) == (Status.TRIGGERED, 11, 1)
    assert (eleven.first_us, eleven.last_us) == (START_US, START_US + 31 * SECOND_US)


def test_a_step_exactly_at_the_limit_is_none() -> None:
    # 99 times 1 s and 11 times 2 s: mean 1.1 s, deviation 0.3 s, limit 2 s.
    found = block(make_job(steps=lasting(*[1.0] * 99, *[2.0] * 11)))
    above_it = block(make_job(steps=lasting(*[1.0] * 99, *[2.0] * 10, 2.00002)))

    assert found["number_of_outliers"] == 0
    assert above_it["number_of_outliers"] == 1


def test_very_long_steps_do_not_overflow() -> None:
    lengths = [DAY_S + i for i in range(120)] + [25 * DAY_S]

    found = block(make_job(steps=lasting(*lengths)))

    assert found["number_of_outliers"] == 1
    assert found["threshold_s"] == pytest.approx(np.mean(lengths) + 3 * np.std(lengths))


def test_a_rank_keeps_the_figures_of_all_its_phases() -> None:
    train = lasting(*[0.1] * 300)
    evaluation = lasting(*[0.05] * 150, start=100, phase="EVAL")
    few = lasting(*[7.0] * 3, start=200, phase="PREDICT")

    found = block(make_job(steps=joined_steps(train, evaluation, few)))

    assert found["phase"] == "Step:ModeKeys.TRAIN"
    assert {name: part["steps"] for name, part in found["phases"].items()} == {
        "Step:ModeKeys.EVAL": 150,
        "Step:ModeKeys.PREDICT": 3,
        "Step:ModeKeys.TRAIN": 300,
    }
    assert "number_of_outliers" not in found["phases"]["Step:ModeKeys.PREDICT"]


@pytest.mark.parametrize("mode", ["EVAL", "ModeKeys.EVAL", "Step:ModeKeys.EVAL"])
def test_a_mode_restricts_the_steps(mode: str) -> None:
    steps = joined_steps(lasting(*[0.1] * 300), lasting(*[0.05] * 150, start=100, phase="EVAL"))

    result = StepOutlier(mode=mode).check(make_job(steps=steps))

    assert result.datapoints == 150
    assert [one.name for one in result.devices] == ["algo-1 rank 33 EVAL"]


def test_outliers_of_one_phase_are_not_looked_up_by_number_in_another() -> None:
    train = lasting(*[0.1] * 200, *[1.0] * 12)
    evaluation = lasting(*[0.5] * 150, start=500, phase="EVAL")
    steps = joined_steps(train, evaluation)

    details = StepOutlier().check(make_job(steps=steps, events=events_of(steps))).details

    assert details["phase_time"] == {"Step:ModeKeys.TRAIN": 12_000_000}


def test_events_count_for_what_lies_in_outliers_of_their_rank() -> None:
    first = lasting(*[0.1] * 200, *[1.0] * 12)  # outliers from 20 s to 32 s
    second = lasting(*[0.1] * 200, rank="34")
    namesake = lasting(*[0.1] * 200, *[1.0] * 12, start=50, node="algo-2")
    events = Events.joined(
        [
            make_events([("cpu_functions", "before", 0, 20), ("cpu_functions", "half", 10, 26)]),
            make_events([("cpu_functions", "of another", 20, 32)], rank="34"),
            make_events([("cpu_functions", "of no rank", 31, 40)], rank=""),
            make_events([("cpu_functions", "elsewhere", 20, 32)], node="algo-2"),
            make_events([("cpu_functions", "nowhere", 70, 82)], rank=""),
        ]
    )

    steps = joined_steps(first, second, namesake)

    details = StepOutlier().check(make_job(steps=steps, events=events)).details

    assert details["CPU_total"] == {"half": 6_000_000, "of no rank": 1_000_000}


def test_no_breakdown_unless_triggered() -> None:
    steps = lasting(*[0.1] * 200, *[1.0] * 9)

    details = StepOutlier().check(make_job(steps=steps, events=events_of(steps))).details

    assert details.keys() == {"step_details"}


def test_the_histogram_holds_the_normal_steps() -> None:
    lengths = [0.1 + i / 1000 for i in range(120)] + [5.0] * 3

    found = block(make_job(steps=lasting(*lengths)))

    assert (len(found["probs"]), len(found["binedges"]), sum(found["probs"])) == (100, 101, 120)
    assert (found["binedges"][0], found["binedges"][-1]) == (0.1, 0.219)


@pytest.mark.parametrize(("length", "edges"), [(0.1, [0.0999, 0.1001]), (0.0, [0.0, 1e-6])])
def test_equal_steps_have_one_bin_around_them(length: float, edges: list[float]) -> None:
    found = block(make_job(steps=lasting(*[length] * 120, distance=1)))

    assert found["probs"] == [120]
    assert found["binedges"] == pytest.approx(edges)
    assert found["number_of_outliers"] == 0


def test_robust_figures_are_not_moved_by_the_first_step() -> None:
    lengths = [8.0] + [0.020 + 0.0001 * (i % 3) for i in range(150)] + [0.1] * 5 + [0.0402]

    found = block(make_job(steps=lasting(*lengths)))

    assert found["first_step_s"] == 8.0
    assert found["median_s"] == pytest.approx(0.0201)
    assert found["mad_s"] == pytest.approx(0.0001)
    assert (found["above_5_mad"], found["above_2_medians"]) == (7, 6)
    assert found["number_of_outliers"] == 1


def test_the_first_step_is_the_one_that_starts_first() -> None:
    steps = joined_steps(make_steps([(0, 100)]), lasting(*[0.1] * 150, start=1))

    assert block(make_job(steps=steps))["first_step_s"] == 100.0


def test_steps_without_a_number_are_not_listed_as_one() -> None:
    steps = lasting(*[0.1] * 100, 1.0, 1.0)
    unnamed = replace(steps, number=np.where(np.arange(102) == 100, -1, steps.number))

    found = block(make_job(steps=unnamed))

    assert (found["number_of_outliers"], found["step_numbers"]) == (2, ["101"])


def test_only_the_first_of_many_outliers_are_listed_by_number() -> None:
    lengths = [0.1] * 100 + ([0.1] * 11 + [1.0]) * (MAX_NUMBERS + 1)

    found = block(make_job(steps=lasting(*lengths)))

    assert found["number_of_outliers"] == MAX_NUMBERS + 1
    assert found["step_numbers"] == [str(111 + 12 * i) for i in range(MAX_NUMBERS)]


def test_the_finding_says_how_many_how_long_and_what_part() -> None:
    result = StepOutlier().check(d1())
    (finding,) = result.findings

    assert finding.title == "15 of 1,500\u00a0steps were outliers (longer than 0.346\u00a0s)"
    assert in_words(finding.evidence) == (
        "algo-1 rank 33 TRAIN, 2023-11-14 22:19:25 to 22:31:05\u00a0UTC. "
        "Time beyond the median of 0.3\u00a0s: 2.2\u00a0s. Share of the training loop: 0.3%. "
        "The first step took 0.3\u00a0s. More than 10\u00a0outliers in 8 of 16\u00a0checks."
    )
    assert finding.share == pytest.approx(15 * 0.15 / 819.8)
    assert finding.severity is Severity.INFO
    assert finding.start_us == scenario_d1.BASE_S * SECOND_US + 325_100_000
    assert finding.end_us == scenario_d1.BASE_S * SECOND_US + 1_025_550_000


def test_several_ranks_are_reported_together_and_those_not_judged_with_them() -> None:
    tables = [lasting(*[0.1] * 200, *[length] * 12, rank=rank) for length, rank in ((1.0, "0"), (9.0, "1"))]
    few = lasting(*[0.1] * 5, rank="2")

    result = StepOutlier().check(make_job(steps=joined_steps(*tables, few)))
    (finding,) = result.findings

    assert finding.title == "24 of 424\u00a0steps were outliers (longer than 0.775\u00a0s to 6.77\u00a0s)"
    assert in_words(finding.evidence).startswith("algo-1 rank 0 TRAIN and algo-1 rank 1 TRAIN")
    assert "1\u00a0series of steps not evaluated" in in_words(finding.evidence)
    assert finding.share == pytest.approx(12 * (0.9 + 8.9) / (32 + 128))
    assert finding.severity is Severity.CRITICAL


def test_outliers_that_are_none_in_the_end_are_no_finding() -> None:
    early = lasting(*[0.1] * 200, *[1.0] * 11)
    late = lasting(*[5.0] * 300, start=120)

    result = StepOutlier().check(make_job(steps=joined_steps(early, late)))
    (finding,) = result.findings

    assert (result.status, result.violations, result.triggered) == (Status.TRIGGERED, 0, 4)
    assert finding.title == "Outliers exceeded the threshold for a time, not at the end"
    assert (finding.share, finding.start_us) == (0.0, None)


# Against the definition


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["algo-1/0", "algo-1/1", "algo-2/0"]),
        st.sampled_from(["TRAIN", "TRAIN", "EVAL"]),
        st.sampled_from([0.0, 0.1, 0.2, 1.0, 30.0]),
        st.integers(1, 130),
        # From the end of a run to the start of the next; below 0 they overlap.
        st.sampled_from([0.0, 0.3, -0.3, -70.0, 59.9, 60.0, 400.0]),
    ),
    min_size=1,
    max_size=12,
)


def steps_of(runs: list[tuple[str, str, float, int, float]]) -> Steps:
    now: dict[str, float] = defaultdict(float)
    tables = []
    for who, phase, length, repeated, pause in runs:
        node, _, rank = who.partition("/")
        tables.append(lasting(*[length] * repeated, start=now[who], node=node, rank=rank, phase=phase))
        now[who] += length * repeated + pause
    return joined_steps(*tables)


def is_outlier(value: int, values: list[int], stddev: float) -> bool:
    """Whether a value is above mean plus deviations, in fractions and without a root."""
    n = len(values)
    mean = Fraction(sum(values), n)
    variance = sum(values.count(one) * (one - mean) ** 2 for one in set(values)) / n
    return value > mean and (value - mean) ** 2 > Fraction(stddev) ** 2 * variance


def outliers_among(values: list[int], stddev: float) -> int:
    return sum(values.count(one) for one in set(values) if is_outlier(one, values, stddev))


@given(RUNS, st.sampled_from([3.0, 1.0, 0.5, 0.0]), st.integers(0, 12))
def test_counts_agree_with_the_definition(
    runs: list[tuple[str, str, float, int, float]], stddev: float, n_outliers: int
) -> None:
    steps = steps_of(runs)
    series: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for i in range(len(steps)):
        key = str(steps.node[i]), str(steps.rank[i]), str(steps.mode[i])
        series[key].append((int(steps.end_us[i]), int(steps.end_us[i] - steps.start_us[i])))
    first = int(steps.start_us.min()) // (60 * SECOND_US) * (60 * SECOND_US)
    last = int(steps.end_us.max())
    evaluated = violating = violations = 0
    for rows in series.values():
        for begin in range(first, last + 1, 60 * SECOND_US):
            so_far = [lasted for end, lasted in rows if end < begin + 60 * SECOND_US]
            if len(so_far) > 100:
                evaluated += 1
                violating += outliers_among(so_far, stddev) > n_outliers
        if len(rows) > 100:
            violations += outliers_among([lasted for _, lasted in rows], stddev)

    result = StepOutlier(stddev=stddev, n_outliers=n_outliers).check(make_job(steps=steps))

    assert result.datapoints == len(steps)
    assert (result.evaluated, result.violating, result.triggered) == (evaluated, violating, violating)
    assert result.violations == violations
    status = Status.TRIGGERED if violating else Status.PASSED if evaluated else Status.NOT_EVALUATED
    assert result.status is status
    assert sum(one.evaluated for one in result.devices) == evaluated


@given(
    st.lists(st.integers(-3, 9), max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(-4, 10)), max_size=30),
)
def test_counting_above_limits_agrees_with_counting_each(
    values: list[int], questions: list[tuple[int, int]]
) -> None:
    asked = sorted((min(end, len(values)), limit) for end, limit in questions)
    ends, limits = (np.array([one[i] for one in asked], np.int64) for i in (0, 1))
    block_size = step_outlier._BLOCK
    step_outlier._BLOCK = 7
    try:
        found = above(np.array(values, np.int64), ends, limits)
    finally:
        step_outlier._BLOCK = block_size

    assert found.tolist() == [sum(value > limit for value in values[:end]) for end, limit in asked]


def test_step_numbers_are_written_as_the_source_wrote_them() -> None:
    steps = lasting(*[0.1] * 100, 1.0)

    assert block(make_job(steps=steps))["step_numbers"] == ["100"]
    assert block(make_job(steps=replace(steps, numbers_as_text=False)))["step_numbers"] == [100]


def test_without_events_the_tables_of_the_outliers_are_empty() -> None:
    details = StepOutlier(n_outliers=0).check(make_job(steps=lasting(*[0.1] * 100, 1.0))).details

    assert [details[key] for key in ("ratio", "phase", "phase_time")] == [{}, {}, {}]
