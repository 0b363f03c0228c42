"""Budgets: states by the limit and the interval, files that are wrong, and goodput and verdict of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE, MET, Limit, judged, limit_of, read_budgets
from jobreport.comparison.document import Change, Measure, Word
from jobreport.errors import UsageError
from tests.report.comparison.runs import run, steady

RUNS = {label: [run(label, steady())] for label in "AB"}


def measure(
    change: Change, *, unit: str = "s", base: float | None = 100.0, value: float | None = 106.0
) -> Measure:
    return Measure(
        key="step_s" if unit == "s" else "gpu_use_percent",
        label="Step time",
        unit=unit,
        direction="lower",
        min_effect=2.0,
        values={"A": base, "B": value},
        per_run={},
        against={"B": change},
    )


def with_interval(low: float, high: float) -> Change:
    return Change(word=Word.WORSE, change=6.0, low=low, high=high)


UNTESTED = Change(word=Word.NOT_TESTED, change=6.0)


@pytest.mark.parametrize(
    ("limit", "change", "state"),
    [
        ({"kind": "max", "amount": 105.0}, UNTESTED, BROKEN),
        ({"kind": "max", "amount": 106.0}, UNTESTED, MET),
        ({"kind": "min", "amount": 107.0}, UNTESTED, BROKEN),
        ({"kind": "max_increase", "amount": 5.0, "relative": True}, with_interval(5.5, 6.5), BROKEN),
        ({"kind": "max_increase", "amount": 5.0, "relative": True}, with_interval(4.0, 8.0), INCONCLUSIVE),
        ({"kind": "max_increase", "amount": 7.0, "relative": True}, with_interval(4.0, 8.0), INCONCLUSIVE),
        ({"kind": "max_increase", "amount": 9.0, "relative": True}, with_interval(4.0, 8.0), MET),
        ({"kind": "max_increase", "amount": 5.0, "relative": True}, UNTESTED, INCONCLUSIVE),
        ({"kind": "max_increase", "amount": 7.0, "relative": True}, UNTESTED, MET),
        ({"kind": "max_increase", "amount": 5.0}, with_interval(5.5, 6.5), BROKEN),
        ({"kind": "max_decrease", "amount": 1.0, "relative": True}, with_interval(5.5, 6.5), MET),
        ({"kind": "max_decrease", "amount": 1.0, "relative": True}, with_interval(-3.0, 8.0), INCONCLUSIVE),
        ({"kind": "max_increase", "amount": 5.0}, Change(word=Word.REFUSED, reason="why"), INCONCLUSIVE),
    ],
)
def test_the_state_follows_from_value_and_interval(limit: dict[str, Any], change: Change, state: str) -> None:
    (found,) = judged([Limit(measure="step_s", **limit)], [measure(change)], RUNS)

    assert found.state == state


def test_a_limit_of_points_is_one_of_points() -> None:
    moved = Change(word=Word.HIGHER, points=6.0, low=5.0, high=7.0)
    one = measure(moved, unit="%", base=10.0, value=16.0)

    def state(amount: float, *, relative: bool) -> str:
        limit = Limit(measure="gpu_use_percent", kind="max_increase", amount=amount, relative=relative)
        return judged([limit], [one], RUNS)[0].state

    assert (state(4.0, relative=False), state(8.0, relative=False)) == (BROKEN, MET)
    # 5 to 7 points of 10% are 50 to 70% more.
    assert (state(40.0, relative=True), state(60.0, relative=True), state(80.0, relative=True)) == (
        BROKEN,
        INCONCLUSIVE,
        MET,
    )


def test_what_is_not_measured_is_inconclusive_and_broken_ones_come_first() -> None:
    limits = [
        Limit(measure="energy_kwh", kind="max", amount=1.0),
        Limit(measure="step_s", kind="max", amount=1000.0),
        Limit(measure="step_s", kind="max", amount=1.0),
    ]
    found = judged(limits, [measure(UNTESTED)], RUNS)

    assert [one.state for one in found] == [BROKEN, INCONCLUSIVE, MET]
    assert (found[1].value, found[1].reason) == (None, "not measured")
    empty = measure(UNTESTED, base=0.0)
    (zero,) = judged([Limit(measure="step_s", kind="max_increase", amount=1.0, relative=True)], [empty], RUNS)
    assert (zero.state, zero.reason) == (INCONCLUSIVE, "the base is 0")


def test_a_file_of_budgets(tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(
        '[[budget]]\nmeasure = "step_s"\nmax_increase = "5%"\nmax = 2\n'
        '[[budget]]\nmeasure = "gpu_use_percent"\nmin = 60\nlevel = "warn"\nruns = "new"\n'
    )

    found = read_budgets(tmp_path / "budget.toml")

    assert found == [
        Limit(measure="step_s", kind="max", amount=2.0),
        Limit(measure="step_s", kind="max_increase", amount=5.0, relative=True),
        Limit(measure="gpu_use_percent", kind="min", amount=60.0, level="warn", runs="new"),
    ]
    assert [one.words for one in found] == ["at most 2\u00a0s", "at most 5% more", "at least 60%"]
    with pytest.raises(UsageError, match="for new, which is not compared"):
        judged(found, [measure(UNTESTED)], RUNS)
    assert limit_of("cost<=5") == Limit(measure="cost", kind="max", amount=5.0)
    assert limit_of("step_s <= +7.5%") == Limit(
        measure="step_s", kind="max_increase", amount=7.5, relative=True
    )
    assert limit_of("steps_per_s>=-3%").words == "at most 3% less"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[budget]]\nmeasure = "step"\nmax = 1\n', "Did you mean steps_per_s|Did you mean step_s"),
        ('[[budget]]\nmeasure = "step_s"\n', "has no limit"),
        ('[[budget]]\nmeasure = "step_s"\nmax = "5%"\n', "not a percentage"),
        ('[[budget]]\nmeasure = "step_s"\nmax = "x"\n', "no number"),
        ('[[budget]]\nmeasure = "step_s"\nmax = nan\n', "no number"),
        ('[[budget]]\nmeasure = "step_s"\nmax = 1\nlevel = "loud"\n', "choose from error, warn"),
        ('[[budget]]\nmeasure = "step_s"\nmaximum = 1\n', "unknown key maximum"),
        ("budget = 1\n", "no tables"),
        ("[[budget]", "budget.toml"),
    ],
)
def test_a_file_that_is_wrong_says_where(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(text)

    with pytest.raises(UsageError, match=message):
        read_budgets(tmp_path / "budget.toml")
