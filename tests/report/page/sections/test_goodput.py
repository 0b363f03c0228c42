"""The section on goodput."""

from __future__ import annotations

from collections.abc import Callable

from jobreport.document import Origin, Report
from jobreport.output import summary
from jobreport.page import sections
from jobreport.page.sections.goodput import TO_RECORD
from jobrules.analyses.goodput import PARTS, Goodput
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_cost import goodput
from tests.report.page.sections.html import Page


def report(found: Goodput | None) -> Report:
    return replace(examples.gpu_job(), goodput=found)


def text(made: Report) -> str:
    return Page.of(sections.goodput(made).html).text.replace("\u00a0", " ")


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "all measured": lambda: sections.goodput(report(goodput())),
    "with evaluation": lambda: sections.goodput(
        report(goodput({"evaluation": 100.0, "productive": 300.0, "before-first-step": 100.0}))
    ),
    "not all measured": lambda: sections.goodput(
        report(goodput({"productive": 90.0, "before-first-step": 10.0}, "checkpoint", "data-loading"))
    ),
    "no GPU": lambda: sections.goodput(replace(examples.cpu_job(), goodput=goodput())),
    "no steps": lambda: sections.goodput(report(None)),
    "results": lambda: sections.goodput(replace(examples.empty_job(), origin=Origin.DEBUGGER_RESULTS)),
}


def test_the_summary_has_the_sentence() -> None:
    assert set(TO_RECORD) <= set(PARTS)
    assert "Goodput" not in summary.markdown(report(None))
    assert "Goodput was 54.9%: training that was kept took" in summary.markdown(report(goodput()))
