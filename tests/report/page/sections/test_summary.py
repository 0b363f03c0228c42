"""What the sections on the job's phases and on its utilization say."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jobreport.document import DEBUGGER_RESULTS, Report
from jobreport.page import sections
from jobrules.measures.sample_weights import Gap
from jobrules.model import Severity
from jobrules.model.time_parts import ROLES
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


def with_use(mean: float, **percents: float) -> sections.Fragment:
    """Utilization by the mean of the samples and the percent of each role."""
    assert BASE.verdict.use
    roles = tuple(RoleSum(role=role, hours=1.0, percent=percents[role]) for role in ROLES if role in percents)
    usage = tuple(replace(row, mean=mean) if row.label == "GPU" else row for row in BASE.utilization)
    verdict = replace(BASE.verdict, use=replace(BASE.verdict.use, roles=roles))
    return sections.utilization(replace(BASE, verdict=verdict, utilization=usage))


def short() -> sections.Fragment:
    """A job of 2.3 s."""
    report, end_us = single(), BASE.job.start_us + 2_300_000
    phases = replace(report.phases, phases=(replace(report.phases.phases[0], end_us=end_us),))
    return sections.summary(replace(report, job=replace(BASE.job, end_us=end_us), phases=phases))


def paused() -> sections.Fragment:
    report, start_us = single(), BASE.job.start_us
    gap = Gap(node=BASE.job.nodes[0].name, start_us=start_us + 60_000_000, end_us=start_us + 600_000_000)
    return sections.summary(replace(report, phases=replace(report.phases, gaps=(gap,))))


def beside_results() -> sections.Fragment:
    """Samples without steps, and results of SageMaker Debugger."""
    job = replace(BASE.job, sources=(*BASE.job.sources, DEBUGGER_RESULTS))
    return sections.summary(replace(BASE, job=job, steps=None, phases=replace(BASE.phases, basis="gpu")))


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "three phases": lambda: sections.summary(BASE),
    "one phase": lambda: sections.summary(single()),
    "one phase with a pause": paused,
    "work by steps and GPUs": lambda: sections.summary(
        replace(BASE, phases=replace(BASE.phases, basis="both"))
    ),
    "work by GPUs, beside results": beside_results,
    "two seconds": short,
    "use of all time": lambda: with_use(17.2, used=14.6, lost=70.3, unknown=15.1),
    "use, all measured": lambda: with_use(17.2, used=14.6, lost=70.3),
}


def test_work_by_steps_and_gpus_has_one_name() -> None:
    report = replace(BASE, phases=replace(BASE.phases, basis="both"))
    before, loop, *after = BASE.phases.phases

    assert (before.key, loop.key) == ("before", "loop")
    assert "The work took " in page_of(report).text
    assert report.phases.middle == "work"
    assert report.phases.bounds == ("start of the work", "end of the work")[: 1 + len(after)]


def test_phases_are_drawn_once_in_their_colors() -> None:
    page = page_of(BASE)

    assert "fig-phases" in page.ids
    (strip,) = re.findall(r'<svg class="strip.*?</svg>', sections.summary(BASE).html, re.DOTALL)
    assert re.findall(r'<rect class="(\w+)"', strip) == ["n1", "u", "n2"]
    assert sections.summary(BASE).html.count("<svg") == 1 + len(BASE.phases.phases)


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
