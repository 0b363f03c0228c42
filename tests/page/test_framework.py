"""What the section on framework time says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobreport import sections
from jobreport.document import Origin, Report
from tests.page import examples
from tests.page.html import Page


def page_of(report: Report) -> Page:
    return Page.of(sections.framework(report).html)


def test_the_time_outside_of_steps_is_told_and_judged_by_its_share() -> None:
    time = examples.framework("conv2d")
    outside = replace(time.steps[1], percent=25.0)
    little = replace(time, steps=(time.steps[0], outside))

    texts = [page_of(replace(examples.gpu_job(), framework=one)).text for one in (time, little)]

    assert "35.0 % of the workers' time from their first to their last step lay outside of steps." in texts[0]
    assert ["That is much" in text for text in texts] == [True, False]


def test_steps_that_end_with_the_forward_pass_are_not_judged() -> None:
    time = examples.framework("conv2d", forward_only=True)

    text = page_of(replace(examples.gpu_job(), framework=time)).text

    assert "no backward pass was recorded" in text
    assert "That is much" not in text


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [(5, 5, "for step 5;"), (5, 6, "for steps 5 to 6;"), (None, None, "a few steps only")],
)
def test_what_the_shares_are_of_is_said(first: int | None, last: int | None, told: str) -> None:
    time = replace(examples.framework("conv2d"), first_step=first, last_step=last)

    assert told in page_of(replace(examples.gpu_job(), framework=time)).text


def test_times_have_a_unit_that_fits_and_the_rest_is_one_row() -> None:
    text = page_of(examples.gpu_job()).text

    for shown in ("1 200 s", "3.00 s", "3.00 ms", "750.0 µs", "0.5 µs"):
        assert shown in text
    assert "1 other operator" in text
    assert "conv2d takes 75.0 % of the operators' own time on the GPU" in text


def test_nothing_recorded_is_said_with_the_reason() -> None:
    none = replace(examples.gpu_job(), framework=None)
    card = replace(none.rules[0], name="OverallFrameworkMetrics")

    assert "was not selected" in page_of(none).text
    assert "Neither steps nor framework events" in page_of(replace(none, rules=(card,))).text
    assert "rules/OverallFrameworkMetrics.json" in page_of(replace(none, origin=Origin.VENDOR)).text


def test_hostile_names_stay_text() -> None:
    page = page_of(examples.hostile_job())

    assert page.scripts == []
    assert page.text.count("alert(1)") >= 4
