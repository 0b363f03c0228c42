"""The section on goodput."""

from __future__ import annotations

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


def test_the_parts_stand_in_their_order_with_seconds_and_percent() -> None:
    html = sections.goodput(report(goodput())).html
    names, cells = Cells.of(html, "th")[3:], Cells.of(html, "td")

    assert names == [TIME_PARTS[key].title for key in PARTS]
    assert cells[::2] == [f"{SECONDS.get(key, 0.0):.1f}" for key in PARTS]
    assert cells[2 * names.index("Productive") + 1] == "54.9"
    assert "Goodput was 54.9%: training that was kept took 9 min 20 s of 17 min." in text(report(goodput()))


def test_evaluation_is_left_out_of_a_second_percentage() -> None:
    found = goodput({"evaluation": 100.0, "productive": 300.0, "before-first-step": 100.0})

    assert "was kept took 5 min of 8 min 20 s. Without evaluation: 75.0%." in text(report(found))
    assert "Without evaluation" not in text(report(goodput()))


def test_what_is_not_measured_is_named_with_what_to_record() -> None:
    found = text(
        report(goodput({"productive": 90.0, "before-first-step": 10.0}, "checkpoint", "data-loading"))
    )

    assert "Goodput was at most 90.0%" in found
    assert found.count("not measured") == 2
    assert "Not measured: checkpoint and waiting for data; their time is in other parts." in found
    assert "Load batches with" not in found
    assert "load batches with jobrecord.data(loader)." in found
    assert set(TO_RECORD) <= set(PARTS)


def test_used_gpu_time_is_another_measure() -> None:
    assert "GPUs were used for 3.28 of 8.00 GPU-hours (41.0%). That is not goodput" in text(report(goodput()))
    assert "GPUs were used" not in text(replace(examples.cpu_job(), goodput=goodput()))


def test_without_steps_there_is_nothing_to_show() -> None:
    of_results = replace(examples.empty_job(), origin=Origin.DEBUGGER_RESULTS)

    assert text(report(None)) == "Goodput: No training steps were recorded."
    assert "do not contain single steps" in text(of_results)
    assert "Goodput" not in summary.markdown(report(None))


def test_the_summary_has_the_sentence() -> None:
    assert "Goodput was 54.9%: training that was kept took" in summary.markdown(report(goodput()))
