"""What the cards of the rules say."""

from __future__ import annotations

from typing import Any

import pytest

from jobreport.document import RuleCard
from jobreport.page import sections
from jobrules.model import SECOND_US, Measure, Status
from jobrules.rule import NO_STEPS
from jobrules.rules.max_initialization_time import MaxInitializationTime
from jobrules.text import duration
from tests.copies import replace
from tests.jobs import make_job, make_steps
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page, read

START_US = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC
NEXT_DAY_US = START_US + 86_400 * SECOND_US


def text_of(*cards: RuleCard, end_us: int = START_US + 3600 * SECOND_US) -> str:
    report = examples.gpu_job()
    job = replace(report.job, start_us=START_US, end_us=end_us)
    return Page.of(sections.rules(replace(report, job=job, rules=cards)).html).text


def violated(last_us: int) -> RuleCard:
    return examples.card(
        "CPUBottleneck",
        Status.TRIGGERED,
        evaluated=8,
        violating=7,
        counted="checks",
        first_us=START_US + 89 * SECOND_US,
        last_us=last_us,
    )


def test_a_violation_within_one_day_is_told_without_its_date() -> None:
    told = "Condition met in 7 of 8 checks. First violation "

    assert f"{told}08:01:29, last 08:09:07 UTC." in text_of(violated(START_US + 547 * SECOND_US))
    assert f"{told}2025-11-14 08:01:29, last 2025-11-15 08:00:00 UTC." in text_of(
        violated(NEXT_DAY_US), end_us=NEXT_DAY_US
    )


def test_a_date_does_not_break() -> None:
    report = examples.gpu_job()
    job = replace(report.job, start_us=START_US, end_us=NEXT_DAY_US)

    html = sections.rules(replace(report, job=job, rules=(violated(NEXT_DAY_US),))).html

    assert '<span class="nw">2025-11-14 08:01:29</span>, last <span class="nw">2025-11-15 08:00:00' in html


@pytest.mark.parametrize("seconds", [12.0, 78.0, 1203.0, 7265.0])
def test_the_time_to_the_first_step_is_told_as_in_the_headline(seconds: float) -> None:
    job = make_job(gpu=[50.0] * 400, interval_s=30, steps=make_steps([(seconds, seconds + 1)]))
    result = MaxInitializationTime(threshold=20.0).check(job)
    assert result.measure is not None
    facts: dict[str, Any] = {"measure": result.measure, "headline": result.headline}

    text = text_of(examples.card("MaxInitializationTime", Status.PASSED, **facts))

    waited = duration(60e6 * result.measure.value).replace("\u00a0", " ")
    assert text.count(waited) == 2
    assert f"{waited} threshold 20 min" in text


def test_values_have_the_digits_of_their_scale() -> None:
    def told(value: float, scale: float, unit: str) -> str:
        measure = Measure(value=value, limits=(1.0,), scale=scale, unit=unit, limit_text="limit")
        return text_of(examples.card("BatchSize", Status.PASSED, measure=measure))

    assert "0.04 limit" in told(0.04, 1.0, "")
    assert "62.4% of windows limit" in told(62.4, 100.0, "% of windows")


def test_a_summary_without_an_answer_says_so_once() -> None:
    card = examples.card(
        "OverallFrameworkMetrics",
        Status.NOT_EVALUATED,
        reason=NO_STEPS,
        headline="Not evaluated: steps not recorded",
        can_trigger=False,
    )

    text = text_of(card)

    assert "Steps were not recorded." in text
    assert text.count("Not evaluated") == 1


def test_summaries_that_lack_the_same_are_one_line() -> None:
    report = examples.gpu_job()
    silent = next(card for card in report.rules if card.name == "MaxInitializationTime")
    several = tuple(
        replace(silent, name=name, can_trigger=False) for name in ("Energy", "OverallSystemUsage")
    )
    page = read(sections.rules(replace(report, rules=several)))

    assert {"r-Energy", "r-OverallSystemUsage"} <= set(page.ids)
    assert page.text.count("Steps were not recorded.") == 1


def test_rules_that_lack_the_same_are_one_line() -> None:
    report = examples.gpu_job()
    open_card = next(card for card in report.rules if card.name == "MaxInitializationTime")
    several = tuple(replace(open_card, name=name) for name in ("StepOutlier", "MaxInitializationTime"))
    page = read(sections.rules(replace(report, rules=several)))

    assert {"r-StepOutlier", "r-MaxInitializationTime"} <= set(page.ids)
    assert page.text.count("Steps were not recorded.") == 1
    assert "MaxInitializationTime, StepOutlier Not evaluated" in page.text
