"""What the section on Python profiles says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def shown(*found: Profile, **changes: Any) -> sections.Fragment:
    return sections.profiles(replace(examples.gpu_job(), profiles=found, **changes))


def of_stretch(begin: str, end: str) -> sections.Fragment:
    return shown(example_close_ups.profile("x", begin=begin, end=end))


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "one": lambda: shown(example_close_ups.profile("train")),
    "several": lambda: shown(*example_close_ups.profiles("train"), profiles_left=5),
    "before the first step": lambda: of_stretch("before step 0", "before step 0"),
    "until the first step": lambda: of_stretch("before step 0, start", "train step 0, step start"),
    "one step": lambda: of_stretch("step 3", "step 3"),
    "to the end": lambda: of_stretch("train step 1, step end", "end of the script"),
    "of one title": lambda: shown(*[example_close_ups.profile("x")] * 2),
    "no self time": lambda: shown(example_close_ups.profile("x", functions=(), count=0, self_s=0.0)),
    "not recorded": shown,
    "results": lambda: shown(origin=Origin.DEBUGGER_RESULTS),
}


def test_a_report_keeps_the_twelve_profiles_with_most_self_time_in_their_order() -> None:
    profiles = tuple(
        example_close_ups.profile(f"f{i}", functions=1, self_s=float(i * 7 % 20)) for i in range(20)
    )
    job = replace(make_job(gpu=[1.0, 2.0]), profiles=profiles)

    report = build_report(job, Quality(), (), (), "")

    assert report.profiles == tuple(one for one in profiles if one.self_s >= 8)
    assert report.profiles_left == 8
