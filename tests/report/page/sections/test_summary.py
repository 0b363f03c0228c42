"""What the sections on the job's phases and on its utilization say."""

from __future__ import annotations

import pytest

from jobreport.document import Report
from jobreport.formats import column_time
from jobreport.page import sections
from jobrules.model import Severity
from jobrules.text import duration, percent
from jobrules.verdict.phases import Phase
from jobrules.verdict.time_use import RoleSum
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page

BASE = examples.gpu_job()


def page_of(report: Report) -> Page:
    return Page.of(sections.summary(report).html)


def single() -> Report:
    """The job as one phase, without gaps."""
    whole = Phase(
        key="whole", label="Whole job", start_us=BASE.job.start_us, end_us=BASE.job.end_us, percent=100.0
    )
    return replace(
        BASE,
        phases=replace(BASE.phases, basis="none", phases=(whole,), gaps=(), missing=(), first_work_us=None),
    )


def test_one_phase_without_gaps_is_a_table_and_no_figure() -> None:
    page = page_of(single())

    assert "fig-phases" not in page.ids
    assert page.scripts == []
    assert "Table 1.1. Phases of the job" in page.text
    assert "Total" not in page.text


def test_work_by_steps_and_gpus_has_one_name() -> None:
    report = replace(BASE, phases=replace(BASE.phases, basis="both"))
    before, loop, *after = BASE.phases.phases

    assert (before.key, loop.key) == ("before", "loop")
    assert "Work took " in page_of(report).text
    assert "Work starts and ends with lasting GPU use or a step" in page_of(report).text
    assert report.phases.middle == "work"
    assert report.phases.bounds == ("start of the work", "end of the work")[: 1 + len(after)]


def test_a_short_job_has_tenths_of_a_second() -> None:
    start_us, end_us = BASE.job.start_us, BASE.job.start_us + 2_300_000
    whole = replace(single().phases.phases[0], end_us=end_us)
    report = replace(
        single(), job=replace(BASE.job, end_us=end_us), phases=replace(single().phases, phases=(whole,))
    )

    assert f"{column_time(start_us, with_day=False)}.0" in page_of(report).text
    assert f"{column_time(end_us, with_day=False)}.3" in page_of(report).text
    assert f"{column_time(start_us, with_day=False)}.0" not in page_of(single()).text


def test_one_phase_with_gaps_has_a_strip_and_no_ring() -> None:
    gap = replace(examples.hostile_job().phases.gaps[0], node=BASE.job.nodes[0].name)
    start = BASE.job.start_us
    gap = replace(gap, start_us=start + 60_000_000, end_us=start + 600_000_000)
    report = single()

    page = page_of(replace(report, phases=replace(report.phases, gaps=(gap,))))

    assert "fig-phases" in page.ids
    assert page.all("path") == []
    assert "Hatched: not measured." in page.text
    assert "Figure 1.1." in page.text
    assert "Table" not in page.text


def test_several_phases_have_a_ring_and_a_strip() -> None:
    loop = BASE.phases.phases[1]
    page = page_of(BASE)

    assert "fig-phases" in page.ids
    assert [a["class"] for a in page.all("path")] == ["wedge n1", "wedge u", "wedge n2"]
    assert (
        f"{loop.label}: {duration(loop.end_us - loop.start_us)}, {percent(loop.percent)}"
        in sections.summary(BASE).html
    )
    assert len([a for a in page.all("svg") if a.get("class") == "strip"]) == 1


@pytest.mark.parametrize(
    ("severity", "strong"), [(Severity.WARNING, True), (Severity.INFO, False), (None, False)]
)
def test_a_long_start_stands_out_where_the_verdict_warns_of_it(
    severity: Severity | None, strong: bool
) -> None:
    whole = BASE.job.end_us - BASE.job.start_us
    edge = BASE.job.start_us + 2 * whole // 3
    before, loop = (
        Phase(key=key, label=key, start_us=a, end_us=b, percent=50.0)
        for key, a, b in (("before", BASE.job.start_us, edge), ("loop", edge, BASE.job.end_us))
    )
    finding = replace(BASE.verdict.findings[0], key="start-up", severity=severity or Severity.INFO)
    verdict = replace(BASE.verdict, findings=(finding,) if severity else ())

    html = sections.summary(
        replace(BASE, verdict=verdict, phases=replace(BASE.phases, phases=(before, loop)))
    ).html

    assert "Start-up took longer than" in html
    assert ("<b>Start-up took longer than" in html) == strong


def test_use_of_all_time_and_of_the_measured_time_stand_together_where_they_differ() -> None:
    use = BASE.verdict.use
    assert use
    roles = (
        RoleSum(role="used", hours=1.0, percent=14.6),
        RoleSum(role="lost", hours=1.0, percent=70.3),
        RoleSum(role="unknown", hours=1.0, percent=15.1),
    )
    usage = tuple(replace(row, mean=17.2) if row.label == "GPU" else row for row in BASE.utilization)
    partly = replace(BASE.verdict, use=replace(use, roles=roles))
    whole = replace(BASE.verdict, use=replace(use, roles=roles[:2]))

    texts = [
        Page.of(sections.utilization(replace(BASE, verdict=one, utilization=usage)).html).text
        for one in (partly, whole)
    ]

    clause = "GPU utilization is 14.6% of all GPU time and 17.2% of measured time."
    assert [clause in text.replace("\u00a0", " ") for text in texts] == [True, False]
    assert "of measured time" not in texts[1]
    assert "Network, received and sent" in texts[0]


@pytest.mark.parametrize(
    ("mean", "told"),
    [
        (
            66.7,
            "GPU utilization is 3.4% of all GPU time. The mean of its samples is 66.7%, because sampling intervals differ.",
        ),
        (3.6, ""),
    ],
)
def test_the_mean_of_uneven_samples_is_told_apart_from_that_of_the_time(mean: float, told: str) -> None:
    use = BASE.verdict.use
    assert use
    roles = (
        RoleSum(role="used", hours=1.0, percent=3.4),
        RoleSum(role="lost", hours=1.0, percent=96.6),
    )
    usage = tuple(replace(row, mean=mean) if row.label == "GPU" else row for row in BASE.utilization)
    uneven = replace(BASE, verdict=replace(BASE.verdict, use=replace(use, roles=roles)), utilization=usage)

    text = Page.of(sections.utilization(uneven).html).text.replace("\u00a0", " ")

    assert told in text
    assert ("of all GPU time" in text) == bool(told)
