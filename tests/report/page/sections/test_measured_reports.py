"""Reports that the rules made, where the wording depends on what was measured."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from jobreport.page import sections
from jobrules.model import SECOND_US, Metric
from tests.jobs import START_US, make_job, make_panel
from tests.report.output.test_summary import report_of
from tests.report.page.sections.html import read


def of_one_snapshot(section: Callable[..., sections.Fragment]) -> sections.Fragment:
    # The cores are read 50 microseconds after the GPU, as real samplers do.
    cpu = make_panel(Metric.CPU_UTILIZATION, [50.0], start_us=START_US + 50, prefix="cpu")
    return section(report_of(make_job(gpu=[50.0], extra=[cpu])))


def with_gap() -> sections.Fragment:
    """A sample a minute, but none for less than ten minutes."""
    times = START_US + 60 * SECOND_US * np.delete(np.arange(60), range(21, 28))
    gpu = make_panel(Metric.GPU_UTILIZATION, [95.0] * len(times), time_us=times)
    return sections.quality(report_of(make_job(extra=[gpu])))


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "Method, three days": lambda: sections.quality(report_of(make_job(gpu=[95.0] * 4320, interval_s=60))),
    "Method, a short gap": with_gap,
    "Method, one snapshot": lambda: of_one_snapshot(sections.quality),
    "verdict, one snapshot": lambda: of_one_snapshot(sections.verdict),
    "summary, one snapshot": lambda: of_one_snapshot(sections.summary),
    "utilization, one snapshot": lambda: of_one_snapshot(sections.utilization),
    "head, a day": lambda: sections.head(report_of(make_job(cpu=[50.0] * 100))),
}


def test_a_job_of_several_days_says_the_day_at_every_time() -> None:
    report = report_of(make_job(gpu=[0.0] * 61 + [95.0] * 300, interval_s=600, start_us=START_US))

    html = sections.summary(report).html
    labels = [t for t in re.findall(r"<text[^>]*>([^<]*)</text>", html) if ":" in t]
    assert len(labels) >= 4
    assert all(re.search(r"\d\d-\d\d", label) for label in labels)


def test_a_job_that_passes_midnight_shows_dates() -> None:
    times = [START_US + 60 * SECOND_US * i for i in range(240) if not 20 < i < 180]
    report = report_of(
        make_job(extra=[make_panel(Metric.GPU_UTILIZATION, [95.0] * len(times), time_us=times)])
    )

    for section in (sections.summary, sections.quality):
        assert " 2023-11-15 01:14:00 " in read(section(report)).text
