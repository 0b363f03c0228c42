"""Words of changes: pairs with a truth known by construction, refusals, and what holds for any pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.comparison.comparing import OF_MANY, Options, change_of
from jobreport.comparison.document import Change, Comparison, Word, from_json, to_json
from jobreport.comparison.measures import BY_KEY, Measured
from jobreport.comparison.real_difference import Sample
from jobreport.comparison.runs import RunOf
from jobreport.document import Report
from tests.copies import replace
from tests.report.comparison.runs import compared, older, report_of, run, shared, steady, stopped


def change(comparison: Comparison, key: str, label: str = "B") -> Change:
    return comparison.measure(key).against[label]


def repeats(label: str, scales: Sequence[float], first: int = 0) -> list[RunOf]:
    return [
        run(label, steady(scale, seed, start_s=1000.0 * (first + 2 * i)))
        for i, (seed, scale) in enumerate(enumerate(scales, 1))
    ]


# --- words


def test_a_run_against_itself_has_no_better_or_worse() -> None:
    found = compared(run("A", steady()), run("B", steady()))

    for measure in found.measures:
        one = measure.against["B"]
        assert one.word not in (Word.BETTER, Word.WORSE, Word.HIGHER, Word.LOWER), measure.key
        assert (one.change or 0.0) == (one.points or 0.0) == 0.0


def test_a_single_run_must_beat_the_assumed_noise_between_runs() -> None:
    """9.2% with a standard deviation of 3%: the change here is 6%, then 12%."""
    near, far = (
        compared(run("A", steady()), run("B", steady(1.06, 2))),
        compared(run("A", steady()), run("B", steady(1.12, 2))),
    )

    assert change(near, "step_s").word is Word.NOT_RESOLVED
    assert change(far, "step_s").word is Word.WORSE
    assert change(far, "steps_per_s").word is Word.WORSE
    sure = compared(run("A", steady()), run("B", steady(1.06, 2)), options=Options(run_noise=0.0))
    assert change(sure, "step_s").word is Word.WORSE
    assert change(sure, "step_s").change == pytest.approx(6, abs=1)


def test_repeats_measure_the_noise_between_runs() -> None:
    a, b = repeats("A", (1.0, 1.004, 0.996)), repeats("B", (1.06, 1.065, 1.055), first=1)
    found = compared(*a, *b)

    assert change(found, "step_s").word is Word.WORSE
    assert change(found, "step_s").run_noise is None
    # One number for each run is a sample of repeats.
    assert change(found, "duration_s").word is Word.WORSE
    same = compared(*a, *repeats("B", (1.001, 1.003, 0.997), first=1))
    assert change(same, "step_s").word is Word.SAME


def noted(found: Comparison) -> list[str]:
    return [note.kind for note in found.notes]


@pytest.mark.parametrize("first", [1, 10])
def test_runs_one_variant_after_the_other_are_noted(first: int) -> None:
    found = compared(*repeats("A", (1.0, 1.0)), *repeats("B", (1.0, 1.0), first=first))

    assert ("not-interleaved" in noted(found)) is (first > 1)


@pytest.mark.parametrize("start_s", [0.0, 100.0, 1000.0])
def test_runs_at_the_same_time_are_noted(start_s: float) -> None:
    found = compared(run("A", steady()), run("B", steady(1.0, 2, start_s=start_s)))

    assert ("overlap" in noted(found)) is (start_s < 1000)


def test_a_share_is_not_judged_against_throughput() -> None:
    slow = report_of([0.8] * 300, gpu=[90.0])
    fast = report_of([0.5] * 300, gpu=[60.0])

    assert change(compared(run("A", fast), run("B", slow)), "gpu_use_percent").word is Word.HIGHER
    assert change(compared(run("A", slow), run("B", fast)), "gpu_use_percent").word is Word.LOWER
    equal = report_of([0.5] * 300, gpu=[80.0])
    assert change(compared(run("A", fast), run("B", equal)), "gpu_use_percent").word is Word.BETTER


@pytest.mark.parametrize("changed", ["A", "B"])
def test_a_change_of_course_is_noted_with_its_variant(changed: str) -> None:
    jump = report_of([0.5] * 150 + [0.6] * 150)
    found = compared(*(run(label, jump if label == changed else steady()) for label in "AB"))

    assert [note.text.split()[0] for note in found.notes if note.kind == "course"] == [changed]


@pytest.mark.parametrize(
    ("moved", "half", "word"),
    [
        (0.10, 0.0, Word.WORSE),
        (-0.10, 0.0, Word.BETTER),
        (0.10, 0.2, Word.NOT_RESOLVED),
        (0.015, 0.001, Word.SAME),
        # The interval excludes 0, but the change does not count.
        (0.015, 0.010, Word.SMALL),
        (-0.015, 0.010, Word.SMALL),
        (0.015, 0.020, Word.NOT_RESOLVED),
        (0.0, 0.0, Word.SAME),
    ],
)
def test_the_interval_and_the_smallest_effect_decide(moved: float, half: float, word: Word) -> None:
    """``half`` is made by the variance of one sample, with 1,000 degrees of freedom."""
    sample = Sample(mean=0.0, correlation=0.0, effective=1001.0, variance=0.0)
    wide = replace(sample, mean=moved, variance=(half / 1.962339) ** 2)
    one = Measured(value=1.0, sample=sample)
    other = Measured(value=float(np.exp(moved)), sample=wide)

    found = change_of(BY_KEY["step_s"], [one], [other], Options(run_noise=0.0))

    assert found.word is word
    assert change_of(
        BY_KEY["step_s"], [one], [other], Options(run_noise=0.0, min_effect={"": 50.0})
    ).word in (
        Word.SAME,
        Word.SMALL,
        Word.NOT_RESOLVED,
    )


def equal_pair(seed: int) -> Comparison:
    """Three runs each of one code, whose time and use differ between runs by 3%, independently."""
    generator = np.random.default_rng(seed)
    whole = steady()

    def jitter(value: float) -> float:
        return value * float(1 + 0.03 * generator.normal())

    def one(label: str, i: int) -> RunOf:
        use = whole.verdict.use
        assert use
        return run(
            label,
            replace(
                steady(1 + 0.03 * generator.normal(), int(generator.integers(10**6)), 120, 1000.0 * i),
                utilization=tuple(
                    replace(row, p50=jitter(row.p50), p95=jitter(row.p95)) for row in whole.utilization
                ),
                verdict=replace(
                    whole.verdict,
                    use=replace(use, roles=tuple(replace(r, hours=jitter(r.hours)) for r in use.roles)),
                ),
            ),
            price_per_node_hour=3.0,
        )

    return compared(*(one(label, i) for i in range(3) for label in "AB"))


@pytest.mark.slow
def test_of_many_measures_none_differs_by_chance() -> None:
    """Holm's correction: one of six pairs of equal code has an interval that excludes 0, and no measure is said to differ."""
    pairs = [equal_pair(seed) for seed in range(12)]
    changes = [m.against["B"] for one in pairs for m in one.measures if m.key != one.headline]
    apart = [one for one in changes if one.low is not None and not one.low <= 0 <= (one.high or 0)]

    assert apart
    assert {one.word for one in apart} <= {Word.NOT_RESOLVED, Word.SAME, Word.SMALL}
    assert {one.reason for one in apart if one.word is Word.NOT_RESOLVED} == {OF_MANY}
    steps = [(one.measure("steps_per_s"), one.measure("step_s")) for one in pairs]
    assert all(
        (a.against["B"].word is Word.NOT_RESOLVED) == (b.against["B"].word is Word.NOT_RESOLVED)
        for a, b in steps
    )


def test_of_many_equal_variants_none_wins() -> None:
    """The headline of each is tested against all: the largest of 11 is often beyond its own interval."""
    scales = [1.0, 1.03, 0.99, 1.02, 1.1, 1.0, 0.97, 1.04, 0.98, 1.01, 1.05, 0.96]
    found = compared(*(run(f"v{i}", steady(scale, i)) for i, scale in enumerate(scales)))
    changes = found.measure(found.headline).against.values()

    assert any(not (one.low or 0) <= 0 <= (one.high or 0) for one in changes)
    assert {one.word for one in changes} == {Word.NOT_RESOLVED}


# --- refusals


def test_steps_of_other_batches_are_not_compared_but_samples_are() -> None:
    a, b = steady(), steady(2.0, n=200)
    found = compared(run("A", a, batch_size=256.0), run("B", b, batch_size=512.0))

    assert change(found, "step_s").word is Word.REFUSED
    assert change(found, "samples_per_s").word in (Word.NOT_RESOLVED, Word.SAME)
    assert found.headline == "samples_per_s"
    # Equal numbers of samples are the same work.
    assert change(found, "duration_s").word is Word.NOT_TESTED
    half = compared(run("A", a, batch_size=256.0), run("B", b))
    assert change(half, "step_s").word is Word.REFUSED
    assert half.measure("samples_per_s").values["B"] is None


def test_other_work_and_stopped_jobs_are_not_compared_as_a_whole() -> None:
    other = compared(run("A", steady(), batch_size=8.0), run("B", steady(n=300), batch_size=8.0))
    cut = compared(run("A", steady()), run("B", stopped(steady(n=300))))

    for found, reason in ((other, "same work"), (cut, "B was stopped")):
        assert change(found, "duration_s").word is Word.REFUSED
        assert reason in change(found, "duration_s").reason
        assert change(found, "step_s").word is not Word.REFUSED


def test_steps_that_ran_again_after_a_restart_are_no_other_work() -> None:
    restarted = steady(1.0, 2, 440)
    assert restarted.goodput
    restarted = replace(restarted, goodput=replace(restarted.goodput, lost_steps=40))
    found = compared(*(run(*one, batch_size=32) for one in (("A", steady()), ("B", restarted))))

    assert [variant.facts["steps"] for variant in found.variants] == [400, 400]
    assert change(found, "duration_s").word is Word.NOT_TESTED


@pytest.mark.parametrize(
    ("other", "gpus", "differ", "keys"),
    [
        # 400 steps of 32 samples are 200 of 64: nobody knows which is faster without the batch sizes.
        (steady(1.2, 2, 200), (1, 1), "steps", ("steps_per_s", "step_s", "duration_s")),
        (steady(1.2, 2), (2, 1), "GPUs", ("steps_per_s", "step_s")),
    ],
)
def test_other_numbers_of_steps_or_gpus_may_be_those_of_other_batches(
    other: Report, gpus: tuple[int, int], differ: str, keys: tuple[str, ...]
) -> None:
    runs = list(zip("AB", (steady(), other), gpus, strict=True))
    found = compared(*(run(label, one, gpus_per_node=n) for label, one, n in runs))

    for key in keys:
        assert change(found, key).word is Word.REFUSED
        assert f"the numbers of {differ} differ, and the batch" in change(found, key).reason
    assert [note.kind for note in found.notes if "batch" in note.text] == ["work"]
    known = compared(*(run(label, one, gpus_per_node=n, batch_size=64) for label, one, n in runs))
    assert change(known, "samples_per_s").word is Word.WORSE


def test_single_runs_on_shared_cores_are_not_resolved() -> None:
    """Other processes, not the variants, may make the difference; repeats measure it."""
    fast, slow = steady(), shared(steady(2.0, 2))
    found = compared(run("A", fast), run("B", slow))

    assert {one.against["B"].word for one in found.measures if one.against["B"].low is not None} == {
        Word.NOT_RESOLVED
    }
    assert change(found, "step_s").reason == "other processes used the cores of B"
    assert "crowded" in noted(found)
    repeated = compared(*(run(label, {"A": fast, "B": slow}[label]) for label in "ABAB"))
    assert change(repeated, "step_s").word is Word.WORSE


def test_a_report_of_an_older_version_is_shown_and_not_tested() -> None:
    found = compared(run("A", steady()), run("B", older(steady())))

    assert change(found, "duration_s").word is Word.NOT_TESTED
    assert change(found, "step_s") == Change(word=Word.NOT_MEASURED, reason="made by an older version")
    assert "older-report" in noted(found)


def test_few_steps_are_shown_and_not_tested() -> None:
    found = compared(run("A", steady(n=60)), run("B", steady(1.5, n=60)))
    between = compared(run("A", steady(n=150)), run("B", steady(1.5, n=150)))

    assert change(found, "step_s").word is Word.NOT_TESTED
    assert change(found, "step_s").reason == "fewer than 100 steps"
    assert change(found, "step_s").change == pytest.approx(50, abs=3)
    assert change(between, "step_s").word is Word.WORSE
    assert change(between, "step_p95_s").reason == "fewer than 200 steps"


def test_shares_of_gpu_time_are_those_of_the_reports() -> None:
    """Not those of the hours, which are rounded."""
    use = steady().verdict.use
    assert use
    shares = (33.3, *(0.0 for _ in use.parts[1:-1]), 66.7)
    parts = tuple(replace(part, percent=share) for part, share in zip(use.parts, shares, strict=True))
    report = replace(steady(), verdict=replace(steady().verdict, use=replace(use, parts=parts)))
    found = compared(run("A", report), run("B", steady(1.1, 2)))

    assert tuple(part.percent for part in found.device_time["A"]) == shares


def test_percents_of_repeats_add_up_and_goodput_is_that_of_the_measure() -> None:
    found = compared(*repeats("A", [1.0, 1.01, 1.03]), *repeats("B", [0.9, 0.92, 0.91], first=1))

    for label in "AB":
        for parts in (found.goodput[label], found.device_time[label]):
            assert sum(part.percent for part in parts) == pytest.approx(100, abs=1e-6)
            assert all(part.percent == round(part.percent, 1) for part in parts)
        goodput = found.measure("goodput_percent").values[label]
        assert goodput is not None
        assert next(p.percent for p in found.goodput[label] if p.key == "productive") == round(goodput, 1)


def test_percents_of_repeats_of_other_lengths_are_those_of_the_hours() -> None:
    reports = [report_of([0.5] * n, gpu=[use] * 2 * n, start_s=n) for n, use in ((200, 100.0), (600, 0.0))]
    found = compared(*(run("A", one) for one in reports), run("B", steady(1.0, 4, start_s=2000.0)))

    parts = found.device_time["A"]
    hours = sum(part.amount for part in parts)
    assert len({part.percent for part in parts}) > 1
    for part in parts:
        assert part.percent == pytest.approx(100 * part.amount / hours, abs=0.1)


def test_shares_of_phases_are_those_of_the_reports() -> None:
    reports = [report_of([0.5] * n, gpu=[*[0.0] * 20, *[50.0] * n, *[0.0] * 20]) for n in (200, 230)]
    found = compared(run("A", reports[0]), run("B", reports[1]))

    for key, phase in (("startup", "before"), ("loop", "loop"), ("winddown", "after")):
        shares = [next(p.percent for p in report.phases.phases if p.key == phase) for report in reports]
        assert list(found.measure(f"{key}_percent").values.values()) == shares


def test_a_measure_of_zero_in_both_says_why_it_is_not_tested() -> None:
    report = steady()
    phases = replace(report.phases, phases=tuple(p for p in report.phases.phases if p.key != "after"))
    ended = replace(report, phases=phases)
    found = change(compared(run("A", ended), run("B", ended)), "winddown_s")

    assert (found.word, found.change, found.reason) == (Word.NOT_TESTED, 0.0, "both are 0")


def test_a_ratio_to_zero_is_none() -> None:
    zero, one = Measured(value=0.0), Measured(value=1.0)

    assert change_of(BY_KEY["startup_s"], [zero], [one], Options()).change is None
    assert change_of(BY_KEY["startup_s"], [zero], [zero], Options()).change == 0.0
    assert change_of(BY_KEY["startup_s"], [one], [zero], Options()).change == -100.0


# --- any pair


@cache
def random_report(seed: int) -> Report:
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 500))
    lasts = np.exp(generator.normal(0, generator.choice([0.0, 0.1, 1.0]), n))
    gpu = generator.uniform(0, 100, 50).tolist()
    return report_of(
        lasts.tolist(),
        gpu=gpu,
        cores=int(generator.integers(1, 9)),
        start_s=float(generator.integers(0, 10**6)),
    )


SEEDS = st.integers(0, 30)
FACTS = st.fixed_dictionaries(
    {}, optional={"batch_size": st.sampled_from([1.0, 256.0]), "price_per_node_hour": st.floats(0.01, 100)}
)


@given(SEEDS, SEEDS, FACTS, FACTS)
def test_swapping_changes_signs_and_nothing_else(
    one: int, two: int, a: dict[str, Any], b: dict[str, Any]
) -> None:
    there = compared(run("A", random_report(one), **a), run("B", random_report(two), **b))
    back = compared(run("B", random_report(two), **b), run("A", random_report(one), **a))

    opposite = {Word.BETTER: Word.WORSE, Word.HIGHER: Word.LOWER}
    opposite |= {other: word for word, other in opposite.items()}
    assert [one.key for one in there.measures] == [one.key for one in back.measures]
    for forth, reverse in zip(there.measures, back.measures, strict=True):
        assert forth.values == reverse.values
        x, y = forth.against["B"], reverse.against["A"]
        assert y.word is opposite.get(x.word, x.word), forth.key
        assert (x.se, x.df, x.r, x.k_eff) == (y.se, y.df, y.r[::-1], y.k_eff[::-1])
        if x.d is not None:
            assert x.d == -(y.d or 0.0)
        if x.points is not None:
            assert x.points == -(y.points or 0.0)


@given(SEEDS, SEEDS, SEEDS)
def test_values_are_those_of_the_reports_and_the_order_of_labels_changes_only_the_order(
    a: int, b: int, c: int
) -> None:
    reports = {"A": random_report(a), "B": random_report(b), "C": random_report(c)}
    found = compared(*(run(label, reports[label]) for label in "ABC"))
    other = compared(*(run(label, reports[label]) for label in "ACB"))

    assert from_json(to_json(found)) == found
    for label, report in reports.items():
        values = {one.key: one.values[label] for one in found.measures}
        assert values["duration_s"] == (report.job.end_us - report.job.start_us) / 1e6
        if report.goodput:
            assert values["goodput_percent"] == report.goodput.percent
            assert sum(part.amount for part in found.goodput[label]) == pytest.approx(
                report.goodput.seconds, abs=1e-6
            )
        if report.blocks:
            assert values["step_p95_s"] == report.blocks.quantiles_s[95]
        if report.verdict.use:
            assert values["gpu_hours_lost"] == report.verdict.use.of("lost")[0]
    for forth, swapped in zip(found.measures, other.measures, strict=True):
        assert (
            forth.against == {label: swapped.against[label] for label in ("B", "C")}
            or forth.key == "gpu_use_percent"
        )
