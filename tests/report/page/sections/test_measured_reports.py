"""Pages of reports that the rules made, where the wording depends on what was measured."""

from __future__ import annotations

import re

from jobreport.page import sections
from jobrules.model import SECOND_US, Metric
from tests.jobs import START_US, make_job, make_panel
from tests.report.output.test_summary import report_of
from tests.report.page.sections.html import read

DAY_S = 86400


def test_the_head_names_the_day_once() -> None:
    text = read(sections.head(report_of(make_job(cpu=[50.0] * 100)))).text

    assert text.count("2023-11-14") == 1


def test_sensors_of_one_snapshot_cover_no_time() -> None:
    # The cores are read 50 microseconds after the GPU, as real samplers do.
    cpu = make_panel(Metric.CPU_UTILIZATION, [50.0], start_us=START_US + 50, prefix="cpu")
    report = report_of(make_job(gpu=[50.0], extra=[cpu]))

    assert "neither GPU nor CPU samples were recorded over time" in read(sections.verdict(report)).text
    assert "there are no phases" in read(sections.summary(report)).text
    assert "may do" not in read(sections.utilization(report)).text
    assert "No sampling pause" not in read(sections.quality(report)).text


def test_a_job_of_several_days_says_the_day_at_every_time() -> None:
    report = report_of(make_job(gpu=[0.0] * 61 + [95.0] * 300, interval_s=600, start_us=START_US))

    html = sections.summary(report).html
    labels = [t for t in re.findall(r"<text[^>]*>([^<]*)</text>", html) if ":" in t]
    assert len(labels) >= 4
    assert all(re.search(r"\d\d-\d\d", label) for label in labels)


def test_durations_and_hours_of_the_definitions_agree() -> None:
    report = report_of(make_job(gpu=[95.0] * 4320, interval_s=60))

    text = read(sections.quality(report)).text
    assert "1 GPU × 3 d = 72.0 GPU-hours" in text


def test_a_gap_shorter_than_ten_intervals_is_not_denied_in_seconds_alone() -> None:
    times = [START_US + 60 * SECOND_US * i for i in range(60) if not 20 < i < 28]
    gpu = make_panel(Metric.GPU_UTILIZATION, [95.0] * len(times), time_us=times)

    text = read(sections.quality(report_of(make_job(extra=[gpu])))).text
    assert "over 60 s and over 10 sampling intervals" in text
