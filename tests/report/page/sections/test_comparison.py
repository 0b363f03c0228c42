"""The page of a comparison: sections of pairs and of many variants, hostile names, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from jobreport.comparison.budgets import limit_of
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings
from jobreport.comparison.document import Comparison, Word, to_json
from jobreport.comparison.markdown import markdown, terminal
from jobreport.comparison.measures import KINDS
from jobreport.cost.prices import Machine
from jobreport.document import Report
from jobreport.markdown import MAX_CHARACTERS
from jobreport.page.sections import Fragment, comparison
from jobreport.page.sections.comparison import marks
from jobreport.page.sections.comparison.outline import SECTIONS
from jobrules.model.time_parts import TIME_PARTS
from tests.captured_jobs import training
from tests.copies import replace
from tests.report.comparison.runs import compared, listed, of_traces, older, published, report_of, run, steady
from tests.report.page.sections.html import Page

PRICES = listed(
    Machine(type="big", per_hour=8.0, gpus=4, cores=8), Machine(type="small", per_hour=2.0, gpus=1, cores=4)
)
HOSTILE = "</script><img src=x onerror=alert(1)>"


def hostile() -> Comparison:
    """Names from data in every place that has one."""
    report = steady()
    use = report.verdict.use
    assert use
    parts = tuple(replace(part, label=HOSTILE) for part in use.parts)
    named = replace(
        report,
        version=HOSTILE,
        job=replace(report.job, name=HOSTILE, sources=(HOSTILE,)),
        verdict=replace(report.verdict, use=replace(use, parts=parts)),
        rules=(replace(report.rules[0], name=HOSTILE, title=HOSTILE, headline=HOSTILE),),
    )
    facts = {"instance_type": HOSTILE, HOSTILE: HOSTILE}
    runs = [replace(run(label, named, **facts), name=HOSTILE, page=f"../{HOSTILE}") for label in "AB"]
    return compare(runs, Settings(), HOSTILE)


@cache
def traced(cause: str = "", share: float = 0.0, *, operator: str = "", **options: Any) -> Report:
    trace = training(cause, share, **options)
    if operator:
        trace.operator(operator, 1000, 2000, thread=2)
        trace.mark(operator, 1000, 2000, thread=2)
    return of_traces(trace)


def repeats() -> Comparison:
    runs = [
        run(label, steady(scale, i, start_s=1000.0 * i))
        for i, (label, scale) in enumerate([("old", 1.0), ("new", 0.9), ("old", 1.01), ("new", 0.89)])
    ]
    return compared(*runs, limits=(limit_of("step_s<=0.1"),))


def of(*reports: Report, **settings: Any) -> Comparison:
    """The variants A, B, and C."""
    return compared(*(run(label, one) for label, one in zip("ABC", reports, strict=False)), **settings)


EXAMPLES: dict[str, Callable[[], Comparison]] = {
    "pair": lambda: of(steady(), steady(1.3, 2)),
    "priced": lambda: compared(
        run("A", steady(), instance_type="big", batch_size=64.0),
        run("B", steady(2.0, 2, 200), instance_type="small", batch_size=128.0),
        prices=PRICES,
        limits=(limit_of("cost<=0.01"), limit_of("gpu_use_percent>=1")),
        runs_per_month=30,
    ),
    "published": lambda: compared(published("A"), published("B"), prices=PRICES),
    "repeats": repeats,
    "older": lambda: of(older(steady()), older(steady(1.2))),
    "one older": lambda: of(older(steady()), steady(1.2)),
    "few steps": lambda: of(steady(n=20), steady(n=30)),
    "twelve": lambda: compared(*(run(f"v{i}", steady(1 + i / 50, i)) for i in range(12))),
    "hostile": hostile,
    "traces": lambda: of(traced("copy", 0.3), traced()),
    "traces of three": lambda: of(traced(), traced("copy", 0.3), traced(operator=HOSTILE)),
    "short traces": lambda: of(*[traced(steps=1, length=20_000)] * 2),
    "traces and samples": lambda: of(
        replace(steady(), captures=traced("copy", 0.3).captures),
        replace(steady(1.2, 2), captures=traced(operator="aten::sort").captures),
    ),
    "one traced": lambda: of(traced(), steady()),
    "one traced too": lambda: of(steady(), traced(), prices=PRICES),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_section_of_every_example_is_sound(name: str) -> None:
    found = EXAMPLES[name]()
    ids: list[str] = []
    for section, fragment in comparison.page(found).items():
        page = Page.of(fragment.html)
        assert "failed" not in fragment.facts, (section, fragment.facts)
        assert page.faults == [], section
        assert "img" not in {tag for tag, _ in page.elements}, section
        assert "nan" not in page.text.lower().split(), section
        ids += [attributes["id"] for _, attributes in page.elements if attributes.get("id")]  # type: ignore[misc]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", EXAMPLES)
def test_markdown_and_terminal_fit_their_places(name: str) -> None:
    found = EXAMPLES[name]()

    assert len(markdown(found)) <= MAX_CHARACTERS
    assert not re.search(r"(?<!\\)<", markdown(found))
    assert 1 <= len(terminal(found)) <= 5
    assert all("\n" not in line for line in terminal(found))


def of_costs(scale: float, steps: int = 400, **given: float) -> Comparison:
    """A pair of one machine."""
    facts: dict[str, Any] = {"instance_type": "big", "batch_size": 8}
    other = run("B", steady(scale, 2, steps), **facts, **given)
    return compared(run("A", steady(), **facts), other, prices=PRICES)


def of_many_runs() -> Comparison:
    costs = {"A": 2.0, "B": 5.0, "C": 1.0}
    runs = [run(label, steady(1.0 if label == "A" else 1.2, 2), cost=cost) for label, cost in costs.items()]
    return compared(*runs, runs_per_month=10)


def real_but_small() -> Comparison:
    """1.5% between runs that differ by 0.4%: the interval excludes 0, and holds changes that count."""
    scales = {"A": (1.0, 1.004, 0.996), "B": (1.015, 1.019, 1.011)}
    runs = [
        run(label, report_of([0.5 * scale] * 120, start_s=1000.0 * i))
        for label, own in scales.items()
        for i, scale in enumerate(own)
    ]
    return compared(*runs)


def of_parts_left_out() -> Comparison:
    """Steps that take a tenth longer than their parts."""
    found = EXAMPLES["traces of three"]()
    steps = found.measure("profiled_step_s")
    longer = replace(steps, values={label: 1.1 * (value or 0) for label, value in steps.values.items()})
    return replace(found, measures=tuple(longer if one is steps else one for one in found.measures))


EVEN = [0.5 + 0.01 * (i % 7) for i in range(300)]
STALLED = [30.0 if i in (50, 170) else lasted for i, lasted in enumerate(EVEN)]
VARIANTS: dict[str, Callable[[], Fragment]] = {
    "steps": lambda: comparison.steps(EXAMPLES["pair"]()),
    "steps of repeats": lambda: comparison.steps(repeats()),
    "steps of an older version": lambda: comparison.steps(EXAMPLES["older"]()),
    "steps that stalled": lambda: comparison.steps(of(report_of(EVEN), report_of(STALLED))),
    "steps that changed their course": lambda: comparison.steps(
        of(report_of([0.5] * 150 + [0.6] * 150), report_of([0.5] * 300))
    ),
    "cost of other work": lambda: comparison.cost(of_costs(1.0, 200)),
    "cost of the same work": lambda: comparison.cost(of_costs(0.5)),
    "cost at a high price": lambda: comparison.cost(of_costs(1.0, price_per_node_hour=80.0)),
    "cost of many runs": lambda: comparison.cost(of_many_runs()),
    "cost without prices": lambda: comparison.cost(EXAMPLES["older"]()),
    "verdict on other work": lambda: comparison.verdict(of_costs(1.0, 200)),
    "verdict of one traced": lambda: comparison.verdict(EXAMPLES["one traced"]()),
    "head of one traced": lambda: comparison.head(EXAMPLES["one traced"]()),
    "profiled time of three": lambda: comparison.time(EXAMPLES["traces of three"]()),
    "profiled time with parts left out": lambda: comparison.time(of_parts_left_out()),
    "profiled time of short traces": lambda: comparison.time(EXAMPLES["short traces"]()),
    "method of traces": lambda: comparison.method(EXAMPLES["traces of three"]()),
    "measures of traces and samples": lambda: comparison.measures(EXAMPLES["traces and samples"]()),
    "measures of repeats": lambda: comparison.measures(repeats()),
    "measures with a real, but small change": lambda: comparison.measures(real_but_small()),
}


def test_equal_input_gives_equal_bytes() -> None:
    one, other = EXAMPLES["priced"](), EXAMPLES["priced"]()

    assert to_json(one) == to_json(other)
    assert comparison.page(one) == comparison.page(other)


def test_a_broken_budget_is_said_first() -> None:
    found = EXAMPLES["priced"]()

    assert terminal(found)[0] == "1\u00a0budget is broken: cost of B."
    assert markdown(found).splitlines()[2] == "**1 budget is broken: cost of B.**"


def test_the_published_pair_costs_82_percent_less_for_fewer_gpus() -> None:
    prices = listed(
        Machine(type="p3.8xlarge", per_hour=14.688, gpus=4, cores=32),
        Machine(type="p3.2xlarge", per_hour=3.825, gpus=1, cores=8),
    )
    found = compared(published("A"), published("B"), prices=prices)

    assert found.cost
    assert round(found.cost.saving["B"], 3) == 0.827
    changes = {one.key: one.against["B"] for one in found.measures}
    assert [round(changes[key].points or 0, 1) for key in ("gpu_p95", "cpu_p95")] == [32.5, 36.6]
    assert changes["gpu_p95"].word is Word.NOT_TESTED
    small = next(one for one in found.candidates["A"].candidates if one.label == "B")
    assert (small.machine, small.count, small.offers["cores"]) == ("ml.p3.2xlarge", 2, 16)


def test_repeats_have_no_assumed_noise_and_a_note_on_their_order_only_if_needed() -> None:
    found = repeats()

    assert found.measure("step_s").against["new"].word is Word.BETTER
    assert [note.kind for note in found.notes] == ["no-cost"]
    assert found.next == ""


def test_a_change_that_is_real_but_does_not_count_is_not_called_open() -> None:
    assert real_but_small().measure("step_s").against["B"].word is Word.SMALL


def test_the_axis_holds_all_intervals_up_to_its_largest_limit() -> None:
    found = EXAMPLES["pair"]()
    changes = [one.against["B"] for one in found.measures if one.against["B"].low is not None]
    scale = marks.Scale.of(changes)

    assert scale.limit == 50
    places = [scale.place(value) for value in (-80, -50, -10, 0, 10, 50, 80)]
    assert places == sorted(places)
    assert (places[0], places[3], places[-1]) == (0, 50, 100)
    assert marks.Scale.of([]).limit == marks.LIMITS[0]


def test_the_contents_name_all_sections() -> None:
    entries = Page.of(comparison.page(EXAMPLES["priced"]())["contents"].html)
    links = [attributes["href"] for tag, attributes in entries.elements if tag == "a"]

    assert links == ["#verdict", "#budgets", *(f"#{anchor}" for anchor, _ in SECTIONS)]


def test_the_type_of_a_machine_is_one_cell_of_markdown() -> None:
    facts = {"instance_type": "a|b\n<img src=x>", "cost": 1.0}
    found = compared(run("A", steady(), **facts), run("B", steady(1.2, 2), **facts))

    assert r"| A | a\|b\n\<img src=x> | 1 |" in markdown(found)


def test_markdown_counts_what_could_not_be_tested_by_its_reason() -> None:
    assert "16 measures could not be tested: 14 not tested" in markdown(EXAMPLES["pair"]())


def test_communication_with_and_without_waiting_has_two_names() -> None:
    (measure,) = (kind for kind in KINDS if kind.key == "profiled_exposed_communication_percent")

    assert measure.label == f"Profiled: {TIME_PARTS['communication'].name} and waiting"


def test_time_that_was_not_recorded_is_not_0() -> None:
    report = steady()
    assert report.goodput
    parts = [
        replace(part, amount=0.0, measured=False) if part.key == "data-loading" else part
        for part in report.goodput.parts
    ]
    known = [
        replace(part, amount=5.0) if part.key == "data-loading" else part for part in report.goodput.parts
    ]
    reports = [replace(report, goodput=replace(report.goodput, parts=tuple(one))) for one in (parts, known)]

    page = Page.of(comparison.time(of(*reports)).html)

    assert "Waiting for data not measured – 5.0" in " ".join(page.text.split())


def test_what_is_refused_has_values_and_reason_but_no_large_number() -> None:
    found = EXAMPLES["few steps"]()
    page = comparison.page(found)["verdict"].html
    refused = {one.key: one for one in found.measures if one.against["B"].word is Word.REFUSED}

    assert {"gpu_hours", "duration_s"} <= {*refused}
    assert page.count("<h3>Duration</h3>") == page.count("<h3>GPU-hours</h3>") == 1
    assert 'class="num' not in page
    assert page.count(refused["duration_s"].against["B"].reason) >= 2
    assert 'class="num' in comparison.page(EXAMPLES["pair"]())["verdict"].html
