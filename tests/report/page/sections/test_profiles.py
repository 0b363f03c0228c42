"""What the section on Python profiles says."""

from __future__ import annotations

import pytest

from jobreport.build import build_report
from jobreport.document import Origin
from jobreport.page import sections
from jobreport.remarks import Quality
from jobrules.model import Profile
from tests.copies import replace
from tests.jobs import make_job
from tests.report.page.sections import example_close_ups, examples
from tests.report.page.sections.html import Page


def page_of(*profiles: Profile, left: int = 0) -> Page:
    return Page.of(sections.profiles(replace(examples.gpu_job(), profiles=profiles, profiles_left=left)).html)


def test_the_function_with_most_self_time_leads_and_the_rest_is_one_row() -> None:
    page = page_of(example_close_ups.profile("train"))

    assert "Most self time: train0, 50.0% of 2.00 s. cProfile" in page.text
    assert "Rank 0, from train step 9, step start to train step 9, step end" in page.text
    # 12 functions: ten open, two and the sum of 30 others folded.
    assert len(page.all("tr")) == 11 + 4
    assert "2 more functions and the sum of the rest" in page.text
    assert "30 other functions" in page.text


def test_calls_are_counted_or_said_not_to_be() -> None:
    counted, sampled = example_close_ups.profiles("train")[1::2]

    assert (
        "train1…/python3/site-packages/a/long/way/to/train.py:1 1,001 500.0 1,000.0 25.0"
        in page_of(counted).text
    )
    assert "train0built in 1 1,000.0 2,000.0 50.0" in page_of(counted).text
    text = page_of(sampled).text
    assert "Calls were not counted." in text
    assert "f0built in – 1,000.0 1,000.0 50.0" in text


@pytest.mark.parametrize(
    ("begin", "end", "title"),
    [
        ("before step 0", "before step 0", "start-up, before step 0"),
        ("before step 0, start", "train step 0, step start", "start-up, until train step 0, step start"),
        ("step 3", "step 3", "Rank 0, step 3 "),
        ("train step 1, step end", "end of the script", "from train step 1, step end to end of the script"),
    ],
)
def test_the_title_says_when(begin: str, end: str, title: str) -> None:
    assert title in page_of(example_close_ups.profile("x", begin=begin, end=end)).text


def test_three_profiles_are_open_and_the_others_folded() -> None:
    page = page_of(*example_close_ups.profiles("train"), left=5)

    assert len(page.all("h3")) == 3
    assert "5 more profiles with less self time are not shown." in page.text
    assert "Profile: Rank 1, step 3" in page.text


def test_without_self_time_the_caption_says_so() -> None:
    idle = example_close_ups.profile("x", functions=(), count=0, self_s=0.0)

    assert "No function has measurable self time." in page_of(idle).text


def test_names_stay_text() -> None:
    page = page_of(*example_close_ups.profiles(examples.HOSTILE))

    assert page.scripts == []
    assert page.text.count("alert(1)") >= 12


def test_without_profiles_there_is_a_reason() -> None:
    assert "No Python profile was recorded." in page_of().text
    vendor = replace(examples.gpu_job(), profiles=(), origin=Origin.DEBUGGER_RESULTS)
    assert "rule results hold no Python profiles." in Page.of(sections.profiles(vendor).html).text


def test_a_report_keeps_the_twelve_profiles_with_most_self_time_in_their_order() -> None:
    profiles = tuple(
        example_close_ups.profile(f"f{i}", functions=1, self_s=float(i * 7 % 20)) for i in range(20)
    )
    job = replace(make_job(gpu=[1.0, 2.0]), profiles=profiles)

    report = build_report(job, Quality(), (), (), "")

    assert report.profiles == tuple(one for one in profiles if one.self_s >= 8)
    assert report.profiles_left == 8
