"""The section on cost and size, and money in the verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Pricing
from jobreport.document import Report
from jobreport.output import summary
from jobreport.page import sections
from jobreport.recordings import Label
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, published, steady
from tests.report.page.sections import examples
from tests.report.page.sections.example_cost import pricing
from tests.report.page.sections.html import Cells, Page
from tests.report.page.sections.test_recordings import recording, report_of


def priced(report: Report, given: Pricing) -> Report:
    return replace(report, cost=job_cost(report, given))


def text(report: Report) -> str:
    return Page.of(sections.cost(report).html).text.replace("\u00a0", " ")


NOWHERE = replace(examples.gpu_job(), job=replace(examples.gpu_job().job, nodes=()))
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "priced": lambda: sections.cost(examples.gpu_job()),
    "no machines, by their type": lambda: sections.cost(priced(NOWHERE, pricing())),
    "no machines, by their price": lambda: sections.cost(
        priced(NOWHERE, Pricing(facts={"price_per_node_hour": 3.0}))
    ),
    "no duration": lambda: sections.cost(priced(examples.single_sample(), pricing())),
    "no price": lambda: sections.cost(priced(examples.gpu_job(), Pricing())),
    "fewer GPUs than recorded": lambda: sections.cost(
        priced(examples.gpu_job(), pricing(instance_type="small big"))
    ),
    "no GPU": lambda: sections.cost(priced(examples.cpu_job(), Pricing(facts={"price_per_node_hour": 6.0}))),
    "verdict without GPU": lambda: sections.verdict(
        priced(examples.cpu_job(), Pricing(facts={"price_per_node_hour": 6.0}))
    ),
}


def rows(report: Report) -> dict[str, list[str]]:
    """Cells of each row of all tables, by its head; of two alike the first."""
    html = sections.cost(report).html.replace("\u00a0", " ")
    found = (Cells.of(row, "th", "td") for row in html.split("<tr>"))
    return {row[0]: row[1:] for row in reversed(list(found)) if row}


def test_the_published_job_costs_what_was_published() -> None:
    known = Pricing(prices=PUBLISHED, facts={"instance_type": "p3.8xlarge", "gpus_per_node": 4.0})
    found = priced(published("A").report, known)

    assert found.cost
    assert found.cost.run
    assert f"{found.cost.run.cost:.5f}" == "6.15672"
    shown = rows(found)
    assert shown["Machines"] == ["3 × p3.8xlarge"]
    assert shown["Node-hours"] == ["0.419 h"]
    assert shown["Price of a node-hour"] == ["$14.688"]
    assert shown["Cost"] == ["$6.16"]
    # The machine has one name, the one that the user gave.
    assert "3 × p3.8xlarge, today" in text(found)
    assert "ml.p3.8xlarge" not in text(found)


def test_lost_time_is_money_and_the_parts_add_up_to_the_cost() -> None:
    found = examples.gpu_job()

    assert found.cost
    assert found.cost.run
    # 8 GPUs for an hour, at 24.48 for all; 59% were lost.
    assert found.cost.run.cost == pytest.approx(24.48)
    assert sum(part.amount for part in found.cost.parts) == pytest.approx(24.48)
    assert found.cost.lost == pytest.approx(0.59 * 24.48)
    sentence = "Lost GPU time cost about $14.44 of $24.48."
    assert sentence in Page.of(sections.verdict(found).html).text
    assert sentence in summary.terminal(found)[1]
    assert sentence in summary.markdown(found)
    assert rows(found)["Lost: start-up"] == ["0.66", "$2.03"]


def test_fewer_gpus_than_were_recorded_make_no_part_cost_more_than_the_job() -> None:
    found = priced(examples.gpu_job(), Pricing(facts={"cost": 10.0, "gpus_per_node": 1.0}))

    assert found.cost
    assert sum(part.amount for part in found.cost.parts) == pytest.approx(10.0, rel=0.01)
    assert found.cost.lost == pytest.approx(5.9)


def test_what_is_billed_beyond_the_recorded_gpu_time_has_a_row() -> None:
    short = published("A").report
    known = Pricing(prices=PUBLISHED, billing="1h", facts={"instance_type": "p3.8xlarge"})
    half = replace(short, verdict=examples.gpu_job().verdict)

    assert "billed to the hour" in text(priced(half, known))
    found = rows(priced(half, known))
    assert found["Cost"] == ["$44.06"]
    # 8 GPUs of the verdict for 503 s, at the price of 12 for an hour.
    rest = 44.064 - 8 * 503 / 3600 * 44.064 / 12
    assert found["Billed, but not GPU time that was recorded"] == ["–", f"${rest:.2f}"]


def test_steps_and_samples_have_a_price() -> None:
    found = priced(steady(), Pricing(facts={"price_per_node_hour": 3600.0, "batch_size": 50.0}))

    # 400 steps, in about 220 s at 1 a second.
    assert found.cost
    assert found.cost.run
    assert found.cost.per_1000_steps == pytest.approx(found.cost.run.cost / 0.4)
    assert found.cost.per_million_samples == pytest.approx(found.cost.run.cost / 0.02)
    assert found.cost.source == "the command line"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Pricing(prices=PUBLISHED), "name the type of the machines with --set instance_type=TYPE"),
        (pricing(instance_type="p9"), "the list of prices (big page) lacks p9; add it, or use --set price"),
    ],
)
def test_a_list_without_the_price_says_why(given: Pricing, said: str) -> None:
    found = priced(examples.gpu_job(), given)

    assert f"Cost and size Cost is not known: {said}" in text(found)
    assert said in summary.terminal(found)[-1]
    assert said in summary.markdown(found).replace("\\", "")
    assert "cost" not in Page.of(sections.verdict(found).html).text


def test_a_cost_alone_is_enough() -> None:
    found = priced(examples.gpu_job(), Pricing(facts={"cost": 10.0}))

    assert rows(found)["Cost"] == ["10.00"]
    assert found.cost
    assert found.cost.lost == pytest.approx(5.9)


def test_labels_of_the_recording_name_the_machine_and_the_price() -> None:
    labels = (Label(key="instance_type", value="small big"), Label(key="price_per_node_hour", value="3"))
    recorded = report_of(recording("algo-1", labels=labels[:1]))
    by_label = report_of(recording("algo-1", labels=labels))

    listed, labeled = job_cost(recorded, pricing()), job_cost(by_label, Pricing())
    named = job_cost(recorded, Pricing(prices=pricing().prices))

    assert listed
    assert listed.run
    assert (listed.machine, listed.run.per_hour) == ("big", 24.48)
    assert named
    assert named.run
    assert (named.machine, named.run.per_hour, named.source) == ("small big", 12.24, "big page")
    assert labeled
    assert labeled.run
    assert (labeled.run.per_hour, labeled.source) == (3.0, "a label of the recording")
