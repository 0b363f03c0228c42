"""The section on goodput."""

from __future__ import annotations

from collections.abc import Callable

from jobreport.document import Origin, Report
from jobreport.output import summary
from jobreport.page import sections
from jobreport.page.sections.goodput import TO_RECORD
from jobrules.analyses.goodput import PARTS, Goodput
from jobrules.model.time_parts import TIME_PARTS
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_cost import SECONDS, goodput
from tests.report.page.sections.html import Cells, Page


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


def test_the_parts_stand_in_their_order_with_seconds_and_percent() -> None:
    html = sections.goodput(report(goodput())).html
    names, cells = Cells.of(html, "th")[3:], Cells.of(html, "td")

    assert names == [TIME_PARTS[key].title for key in PARTS]
    assert cells[::2] == [f"{SECONDS.get(key, 0.0):.1f}" for key in PARTS]
    assert cells[2 * names.index("Productive") + 1] == "54.9"
    assert "Goodput was 54.9%: training that was kept took 9 min 20 s of 17 min." in text(report(goodput()))


def test_the_summary_has_the_sentence() -> None:
    assert set(TO_RECORD) <= set(PARTS)
    assert "Goodput" not in summary.markdown(report(None))
    assert "Goodput was 54.9%: training that was kept took" in summary.markdown(report(goodput()))
