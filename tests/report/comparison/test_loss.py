"""The losses of variants are compared after equal steps."""

from __future__ import annotations

import pytest

from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.markdown import markdown
from jobreport.comparison.measures import LOSS
from jobreport.document import Report
from jobreport.page.sections.comparison import page
from jobrules.analyses.learning import learning_plots
from jobrules.model.learning import Learning
from tests.copies import replace
from tests.learning_data import scalars
from tests.report.comparison.runs import compared, run, steady


def with_loss(report: Report, last: float, steps: int = 1000) -> Report:
    """A loss that falls from 4 to ``last`` at step 500 and stays."""
    values = [max(last, 4 - (4 - last) * i / 500) for i in range(steps)]
    plots = learning_plots(Learning(scalars=(scalars(values),)))
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

    assert said in found.answer
    assert f"{said} ({b[1]:g} against {a[1]:g}, not tested)" in found.verdict
    assert found.find(LOSS).against["B"].word is Word.NOT_TESTED  # type: ignore[union-attr]
    assert said in markdown(found)
    assert "How well the model learned is not compared" not in markdown(found)
    assert "Loss after 1,000 steps" in "".join(one.html for one in page(found).values())


def test_a_loss_that_differs_by_little_is_not_said() -> None:
    assert "the loss" not in pair(with_loss(SLOW, 2.0), with_loss(FAST, 2.03)).verdict


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


def test_a_loss_below_0_has_no_ratio() -> None:
    measure = pair(with_loss(SLOW, -1.0), with_loss(FAST, -2.0)).find(LOSS)

    assert measure is None or measure.against["B"].word is Word.NOT_MEASURED
