"""What the cards of the rules say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from jobreport.document import RuleCard
from jobreport.page import sections
from jobrules.model import SECOND_US, Measure, Status
from jobrules.model.finding import Side
from jobrules.rule import NO_STEPS
from jobrules.rules.max_initialization_time import MaxInitializationTime
from jobrules.text import duration
from tests.copies import replace
from tests.jobs import make_job, make_steps
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page

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


def shown(*cards: RuleCard, end_us: int = START_US + 3600 * SECOND_US) -> sections.Fragment:
    report = examples.gpu_job()
    return sections.rules(
        replace(report, job=replace(report.job, start_us=START_US, end_us=end_us), rules=cards)
    )


def measured(value: float, scale: float, unit: str) -> sections.Fragment:
    measure = Measure(value=value, limits=(1.0,), bad="above", scale=scale, unit=unit, limit_text="limit")
    return shown(examples.card("BatchSize", Status.PASSED, measure=measure))


def silent(*names: str, **facts: Any) -> sections.Fragment:
    known: dict[str, Any] = {"reason": NO_STEPS, "headline": "Not evaluated: steps not recorded"} | facts
    return shown(*(examples.card(name, Status.NOT_EVALUATED, **known) for name in names))


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "within a day": lambda: shown(violated(START_US + 547 * SECOND_US)),
    "over two days": lambda: shown(violated(NEXT_DAY_US), end_us=NEXT_DAY_US),
    "a small value": lambda: measured(0.04, 1.0, ""),
    "a percentage": lambda: measured(62.4, 100.0, "% of windows"),
    "a summary without an answer": lambda: silent("OverallFrameworkMetrics", can_trigger=False),
    "summaries that lack the same": lambda: silent("Energy", "OverallSystemUsage", can_trigger=False),
    "rules that lack the same": lambda: silent("StepOutlier", "MaxInitializationTime"),
}


@pytest.mark.parametrize(
    ("bad", "limits", "value", "status", "shaded"),
    [
        ("above", (50.0,), 62.4, Status.TRIGGERED, [(50.0, 50.0)]),
        ("above", (50.0,), 12.0, Status.PASSED, [(50.0, 50.0)]),
        ("above", (10.0, 30.0), 12.0, Status.TRIGGERED, [(10.0, 90.0)]),
        ("below", (25.0, 15.0), 20.0, Status.TRIGGERED, [(0.0, 25.0)]),
        ("outside", (25.0, 75.0), 80.0, Status.TRIGGERED, [(0.0, 25.0), (75.0, 25.0)]),
        # Full memory for a moment only, a share that fell until the end, and a value that decides nothing.
        ("above", (90.0,), 98.0, Status.PASSED, []),
        ("above", (50.0,), 40.0, Status.TRIGGERED, []),
        ("", (0.0,), 40.0, Status.TRIGGERED, []),
    ],
)
def test_the_bad_side_of_a_bar_is_shaded_and_a_value_that_is_not_judged_has_no_bar(
    bad: Side,
    limits: tuple[float, ...],
    value: float,
    status: Status,
    shaded: list[tuple[float, float]],
) -> None:
    measure = Measure(value=value, limits=limits, bad=bad, scale=100.0, unit="%", limit_text="threshold")

    html = shown(examples.card("CPUBottleneck", status, measure=measure)).html

    found = re.findall(r'<rect class="l4" x="([\d.]+)%" width="([\d.]+)%"', html)
    assert [(float(at), float(width)) for at, width in found] == shaded
    assert html.count('class="bullet"') == bool(shaded)
    assert (f"{value:.1f}%" in html) == bool(bad)


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
