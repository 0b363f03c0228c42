"""The losses of variants are compared after equal steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.markdown import markdown
from jobreport.comparison.measures import LOSS
from jobreport.document import Report
from jobreport.page.sections.comparison import page
from jobrules.analyses.learning.plots import learning_plots
from jobrules.model.learning import Learning
from tests.copies import replace
from tests.learning_data import scalars
from tests.report.comparison.runs import compared, run, steady


def with_loss(
    report: Report, last: float, steps: int = 1000, *, seed: int = 0, noise: float = 0.0, **known: Any
) -> Report:
    """A loss that falls from 4 to ``last`` at step 500 and stays."""
    by = np.exp(noise * np.random.default_rng(seed).normal(size=steps))
    values = [by[i] * max(last, 4 - (4 - last) * i / 500) for i in range(steps)]
    plots = learning_plots(Learning(scalars=(scalars(values),), **known))
    assert plots
    return replace(report, learning=plots)


def pair(a: Report, b: Report, **given: int) -> Comparison:
    return compared(run("A", a), run("B", b, **given))


FAST, SLOW = steady(0.5), steady()


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((SLOW, 2.0), (FAST, 2.5), "; but the loss after 1,000 steps is higher"),
        ((SLOW, 2.0), (FAST, 1.5), "; the loss after 1,000 steps is lower"),
        ((FAST, 2.0), (SLOW, 1.5), "; but the loss after 1,000 steps is lower"),
        ((FAST, 2.0), (SLOW, 2.5), "; the loss after 1,000 steps is higher"),
    ],
)
def test_the_verdict_says_what_speed_costs(
    a: tuple[Report, float], b: tuple[Report, float], said: str
) -> None:
    found = pair(with_loss(*a), with_loss(*b))

    assert f"{said}, if the batch sizes are equal." in found.answer
    assert f"{said} ({b[1]:g} against {a[1]:g}; " in found.verdict
    assert said in markdown(found)
    assert "How well the model learned is not compared" not in markdown(found)
    assert "Loss after 1,000 steps" in "".join(one.html for one in page(found).values())


def test_a_loss_that_differs_by_little_is_not_said() -> None:
    assert "the loss" not in pair(with_loss(SLOW, 2.0), with_loss(FAST, 2.03)).verdict


def test_a_loss_that_differs_by_chance_is_not_said() -> None:
    said = 0
    for seed in range(20):
        runs = [with_loss(SLOW, 2.0, seed=seed + shift, noise=0.6) for shift in (100, 200)]
        found = pair(*runs)
        # They differ by 8% in the mean, as trainings of equal code do whose batches are small.
        said += "the loss" in found.verdict
    assert said <= 1
    assert "the loss" in pair(*(with_loss(SLOW, one, noise=0.1) for one in (2.0, 2.5))).verdict


def test_a_loss_of_few_values_is_not_said() -> None:
    plots = learning_plots(Learning(scalars=(scalars([4.0, 3.0, 2.0], steps=[100, 500, 1000]),)))
    measure = pair(with_loss(SLOW, 4.0), replace(FAST, learning=plots)).find(LOSS)

    assert measure
    assert measure.against["B"].word is Word.NOT_TESTED
    assert measure.against["B"].reason == "fewer than 10 values of the loss"


def test_of_unknown_batches_the_loss_has_a_condition() -> None:
    said = "the loss after 1,000 steps is higher"
    runs = [with_loss(SLOW, 2.0), with_loss(SLOW, 2.5)]

    assert f"{said}, if the batch sizes are equal." in pair(*runs).answer
    known = compared(*(run(label, one, batch_size=8) for label, one in zip("AB", runs, strict=True)))
    assert f"{said}." in known.answer


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ([{"accumulation": 1}, {"accumulation": 4}], "micro-batches of a step"),
        ([{"world_size": 8}, {"world_size": 16}], "ranks"),
    ],
)
def test_steps_of_other_parts_are_not_equal_work(known: list[dict[str, int]], reason: str) -> None:
    runs = [with_loss(SLOW, last, **one) for last, one in zip((2.0, 2.5), known, strict=True)]
    measure = pair(*runs).find(LOSS)

    assert measure
    assert measure.against["B"].word is Word.REFUSED
    assert measure.against["B"].reason == f"the numbers of {reason} differ, and the batch sizes are not known"


def test_the_steps_are_the_largest_round_number_that_all_runs_reached() -> None:
    found = pair(with_loss(SLOW, 2.0, 3000), with_loss(FAST, 1.0, 400))

    measure = found.find(LOSS)
    assert measure
    assert measure.label == "Loss after 200 steps"
    # Of steps 181 to 200.
    assert measure.values["A"] == pytest.approx(4 - 2 * 190.5 / 500, rel=1e-3)


def test_without_a_loss_of_both_there_is_none_to_compare() -> None:
    assert pair(SLOW, FAST).find(LOSS) is None
    measure = pair(with_loss(SLOW, 2.0), FAST).find(LOSS)
    assert measure
    assert measure.against["B"].word is Word.NOT_MEASURED


def test_equal_steps_of_other_batches_are_not_equal_work() -> None:
    runs = [run("A", with_loss(SLOW, 2.0), batch_size=8), run("B", with_loss(FAST, 3.0), batch_size=16)]
    found = compared(*runs)

    measure = found.find(LOSS)
    assert measure
    assert measure.against["B"].word is Word.REFUSED
    assert "the loss" not in found.verdict
    assert "How well the model learned is not compared" in markdown(found)


def test_a_loss_below_0_has_no_ratio() -> None:
    measure = pair(with_loss(SLOW, -1.0), with_loss(FAST, -2.0)).find(LOSS)

    assert measure is None or measure.against["B"].word is Word.NOT_MEASURED
