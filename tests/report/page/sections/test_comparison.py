"""The page of a comparison: sections of pairs and of many variants, hostile names, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from jobreport.comparison.budgets import limit_of
from jobreport.comparison.build import Settings, compare
from jobreport.comparison.document import Comparison, Word, to_json
from jobreport.comparison.markdown import MAX_CHARACTERS, markdown, terminal
from jobreport.comparison.measures import KINDS
from jobreport.comparison.profiled import PARTS
from jobreport.cost.prices import Machine, Prices
from jobreport.document import Report
from jobreport.page.sections import Fragment, comparison
from jobreport.page.sections.comparison import marks
from jobreport.page.sections.comparison.outline import SECTIONS
from tests.captured_jobs import training
from tests.copies import replace
from tests.report.comparison.runs import of_traces, published, report_of, run, steady
from tests.report.page.sections.html import Page

CALLS: dict[str, Callable[[Comparison], Fragment]] = {
    name: getattr(comparison, name)
    for name in ("head", "contents", "verdict", "budgets", *(anchor for anchor, _ in SECTIONS))
}
PRICES = Prices(
    currency="USD",
    source="list",
    as_of="2026-01-01",
    machines=(
        Machine(type="big", per_hour=8.0, gpus=4, cores=8),
        Machine(type="small", per_hour=2.0, gpus=1, cores=4),
    ),
)
HOSTILE = "</script><img src=x onerror=alert(1)>"


def older(report: Report) -> Report:
    return replace(report, blocks=UNSET, time_blocks=UNSET, goodput=UNSET, demand=UNSET)


def hostile() -> Comparison:
    """Names from data in every place that has one."""
    report = steady()
    use = report.verdict.use
    assert use
    named = replace(
        report,
        version=HOSTILE,
        job=replace(report.job, name=HOSTILE, sources=(HOSTILE,)),
        verdict=replace(
            report.verdict, use=replace(use, parts=tuple(replace(p, label=HOSTILE) for p in use.parts))
        ),
        rules=tuple(
            replace(card, name=HOSTILE, title=HOSTILE, headline=HOSTILE) for card in report.rules[:1]
        ),
    )
    runs = [
        replace(
            run(label, named, **{"instance_type": HOSTILE, HOSTILE: HOSTILE}),
            name=HOSTILE,
            page=f"../{HOSTILE}",
        )
        for label in "AB"
    ]
    return compare(runs, Settings(), HOSTILE)


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
    return compare(runs, Settings(limits=(limit_of("step_s<=0.1"),)), "compare-reports")


EXAMPLES: dict[str, Callable[[], Comparison]] = {
    "pair": lambda: compare(
        [run("A", steady()), run("B", steady(1.3, 2))], Settings(), "compare-reports A B"
    ),
    "priced": lambda: compare(
        [
            run("A", steady(), instance_type="big", batch_size=64.0),
            run("B", steady(2.0, 2, 200), instance_type="small", batch_size=128.0),
        ],
        Settings(
            prices=PRICES, limits=(limit_of("cost<=0.01"), limit_of("gpu_use_percent>=1")), runs_per_month=30
        ),
        "compare-reports A B",
    ),
    "published": lambda: compare([published("A"), published("B")], Settings(prices=PRICES), ""),
    "repeats": repeats,
    "older": lambda: compare([run("A", older(steady())), run("B", older(steady(1.2)))], Settings(), ""),
    "one older": lambda: compare([run("A", older(steady())), run("B", steady(1.2))], Settings(), ""),
    "few steps": lambda: compare([run("A", steady(n=20)), run("B", steady(n=30))], Settings(), ""),
    "twelve": lambda: compare([run(f"v{i}", steady(1 + i / 50, i)) for i in range(12)], Settings(), ""),
    "hostile": hostile,
    "traces": lambda: compare([run("A", traced("copy", 0.3)), run("B", traced())], Settings(), ""),
    "traces of three": lambda: compare(
        [run("A", traced()), run("B", traced("copy", 0.3)), run("C", traced(operator=HOSTILE))],
        Settings(),
        "",
    ),
    "short traces": lambda: compare(
        [run(label, traced(steps=1, length=20_000)) for label in "AB"], Settings(), ""
    ),
    "traces and samples": lambda: compare(
        [
            run("A", replace(steady(), captures=traced("copy", 0.3).captures)),
            run("B", replace(steady(1.2, 2), captures=traced(operator="aten::sort").captures)),
        ],
        Settings(),
        "",
    ),
    "one traced": lambda: compare([run("A", traced()), run("B", steady())], Settings(), ""),
    "one traced too": lambda: compare([run("A", steady()), run("B", traced())], Settings(prices=PRICES), ""),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_section_of_every_example_is_sound(name: str) -> None:
    found = EXAMPLES[name]()
    ids: list[str] = []
    for section, call in CALLS.items():
        fragment = call(found)
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


def test_equal_input_gives_equal_bytes() -> None:
    one, other = EXAMPLES["priced"](), EXAMPLES["priced"]()

    assert to_json(one) == to_json(other)
    assert all(call(one).html == call(other).html for call in CALLS.values())


def test_the_verdict_of_a_priced_pair_names_costs_first() -> None:
    found = EXAMPLES["priced"]()

    assert found.verdict.startswith("B costs 74.9% less than A ")
    assert terminal(found)[0] == "1\u00a0budget is broken: cost of B."
    assert markdown(found).splitlines()[2] == "**1\u00a0budget is broken: cost of B.**"
    text = Page.of(comparison.verdict(found).html).text
    assert "1 of 2" in text
    assert "What makes the difference in cost" in text


def test_the_published_pair_costs_82_percent_less_for_fewer_gpus() -> None:
    prices = replace(
        PRICES,
        machines=(
            Machine(type="p3.8xlarge", per_hour=14.688, gpus=4, cores=32),
            Machine(type="p3.2xlarge", per_hour=3.825, gpus=1, cores=8),
        ),
    )
    found = compare([published("A"), published("B")], Settings(prices=prices), "")

    assert found.verdict.replace("\u00a0", " ") == (
        "B costs 82.7% less than A ($1.07 against $6.16, if both did the same work) in about the same time (502 s against 503 s, not tested); "
        "main reason: 2 GPUs in place of 12."
    )
    changes = {one.key: one.against["B"] for one in found.measures}
    assert round(changes["gpu_p95"].points or 0, 1) == 32.5
    assert round(changes["cpu_p95"].points or 0, 1) == 36.6
    assert changes["gpu_p95"].word is Word.NOT_TESTED
    small = Page.of(comparison.sizes(found).html).text.replace("\u00a0", " ")
    assert "2 × ml.p3.2xlarge, as B" in small
    assert "cores: 30 needed, 16 there" in small


def test_repeats_have_no_assumed_noise_and_a_note_on_their_order_only_if_needed() -> None:
    found = repeats()

    assert found.measure("step_s").against["new"].word is Word.BETTER
    assert "an assumed" not in Page.of(comparison.measures(found).html).text
    assert [note.kind for note in found.notes] == ["no-cost"]
    assert found.next == ""
    assert "averaged over the runs" in Page.of(comparison.steps(found).html).text


def test_a_change_that_is_real_but_does_not_count_is_not_called_open() -> None:
    """1.5% between runs that differ by 0.4%: the interval excludes 0, and holds changes that count."""
    scales = {"A": (1.0, 1.004, 0.996), "B": (1.015, 1.019, 1.011)}
    found = compare(
        [
            run(label, report_of([0.5 * scale] * 120, start_s=1000.0 * i))
            for label, own in scales.items()
            for i, scale in enumerate(own)
        ],
        Settings(),
        "",
    )

    assert found.measure("step_s").against["B"].word is Word.SMALL
    assert found.verdict.endswith("real, but small.")
    assert "Real, but small the interval excludes 0" in " ".join(
        Page.of(comparison.measures(found).html).text.split()
    )


def test_steps_that_stalled_are_counted_with_the_step_times() -> None:
    lasts = [0.5 + 0.01 * (i % 7) for i in range(300)]
    stalled = [30.0 if i in (50, 170) else one for i, one in enumerate(lasts)]
    found = compare([run("A", report_of(lasts)), run("B", report_of(stalled))], Settings(), "")

    text = " ".join(Page.of(comparison.steps(found).html).text.split())
    assert "B: 2 of 290 steps that stalled, against 0 of 290, carry 99.9% of the difference." in text


def test_a_base_that_changed_its_course_is_named_in_the_figure_and_the_notes() -> None:
    found = compare(
        [run("A", report_of([0.5] * 150 + [0.6] * 150)), run("B", report_of([0.5] * 300))], Settings(), ""
    )

    assert "A changed its course." in Page.of(comparison.steps(found).html).text
    assert next(note.text for note in found.notes if note.kind == "course").startswith("A changed its course")


def test_a_section_without_data_says_why() -> None:
    found = EXAMPLES["older"]()

    assert "older version" in Page.of(comparison.steps(found).html).text
    assert "--prices" in Page.of(comparison.cost(found).html).text
    assert comparison.budgets(found).html == ""


def test_the_axis_holds_all_intervals_up_to_its_largest_limit() -> None:
    found = EXAMPLES["pair"]()
    changes = [one.against["B"] for one in found.measures if one.against["B"].low is not None]
    scale = marks.Scale.of(changes)

    assert scale.limit == 50
    places = [scale.place(value) for value in (-80, -50, -10, 0, 10, 50, 80)]
    assert places == sorted(places)
    assert (places[0], places[3], places[-1]) == (0, 50, 100)
    assert marks.Scale.of([]).limit == marks.LIMITS[0]


def test_profiled_time_and_what_ran_stand_under_where_the_time_went() -> None:
    text = Page.of(comparison.time(EXAMPLES["traces of three"]()).html).text

    assert "Computing in the profiled time: A 100.0%, B 70.0%, C 100.0%." in text
    assert (
        "says nothing of the whole job" in Page.of(comparison.method(EXAMPLES["traces of three"]()).html).text
    )
    assert HOSTILE[:20] in text
    assert "have the same calls" in Page.of(comparison.time(EXAMPLES["short traces"]()).html).text
    measures = Page.of(comparison.measures(EXAMPLES["traces and samples"]()).html).text
    assert "of the profiled stretch without a test" in measures


def test_what_runs_do_not_have_in_common_is_no_large_number() -> None:
    page = Page.of(comparison.verdict(EXAMPLES["one traced"]()).html)

    assert "cannot be compared" in page.text
    assert not [
        attributes for _, attributes in page.elements if "num" in (attributes.get("class") or "").split()
    ]


def test_the_head_of_traces_names_ranks_and_steps_and_no_nodes() -> None:
    text = Page.of(comparison.head(EXAMPLES["one traced"]()).html).text.replace("\u00a0", " ")

    assert "1 profiled rank, 1 GPU, 10 steps, 1 run" in text
    assert text.count("1970") == 0
    assert "1 node" in text


def test_the_contents_name_all_sections() -> None:
    entries = Page.of(comparison.contents(EXAMPLES["priced"]()).html)
    links = [attributes["href"] for tag, attributes in entries.elements if tag == "a"]

    assert links == ["#verdict", "#budgets", *(f"#{anchor}" for anchor, _ in SECTIONS)]


def test_costs_of_other_work_are_shown_but_not_compared() -> None:
    facts = {"instance_type": "big", "batch_size": 8}
    half, same, dear = (
        Page.of(
            comparison.cost(compare([run("A", steady(), **facts), other], Settings(prices=PRICES), "")).html
        ).text
        for other in (
            run("B", steady(1.0, 2, 200), **facts),
            run("B", steady(0.5, 2), **facts),
            run("B", steady(1.0, 2), **facts, price_per_node_hour=80.0),
        )
    )

    assert "Which costs less is not known: the runs did not do the same work." in half
    assert "−" not in half
    other = run("B", steady(1.0, 2, 200), **facts)
    page = comparison.verdict(compare([run("A", steady(), **facts), other], Settings(prices=PRICES), "")).html
    assert "What makes the difference in cost" not in page
    assert "B costs least, 45.5% less than A." in same
    assert "$4.87 × 10 " in dear


def test_the_type_of_a_machine_is_one_cell_of_markdown() -> None:
    facts = {"instance_type": "a|b\n<img src=x>", "cost": 1.0}
    found = compare([run("A", steady(), **facts), run("B", steady(1.2, 2), **facts)], Settings(), "")

    assert r"| A | a\|b\\n\<img src=x\> | 1 |" in markdown(found)


def test_what_many_runs_save_or_cost_is_an_amount_without_a_sign() -> None:
    runs = [
        run("A", steady(), cost=2.0),
        run("B", steady(1.2, 2), cost=5.0),
        run("C", steady(1.2, 2), cost=1.0),
    ]
    page = Page.of(comparison.cost(compare(runs, Settings(runs_per_month=10), "")).html).text

    assert "10 runs of B instead of A cost 30.00 more." in page
    assert "10 runs of C instead of A save 10.00." in page


def test_markdown_counts_what_could_not_be_tested_by_its_reason() -> None:
    text = markdown(EXAMPLES["pair"]())

    assert (
        "16\u00a0measures could not be tested: 14 not tested \\(one number for each run\\); "
        "2 not tested \\(both are 0\\)." in text
    )


def test_parts_of_a_profiled_step_say_what_they_leave_out() -> None:
    found = EXAMPLES["traces of three"]()
    steps = next(one for one in found.measures if one.key == "profiled_step_s")
    longer = replace(steps, values={label: 1.1 * (value or 0) for label, value in steps.values.items()})
    measures = tuple(longer if one is steps else one for one in found.measures)

    left_out = Page.of(comparison.time(replace(found, measures=measures)).html).text.replace("\u00a0", " ")
    assert "The parts hold 50.0 ms of 55.0 ms of A, " in left_out
    assert "The parts hold" not in Page.of(comparison.time(found).html).text


def test_communication_with_and_without_waiting_has_two_names() -> None:
    (measure,) = (kind for kind in KINDS if kind.key == "profiled_exposed_communication_percent")

    assert measure.label == f"Profiled: {PARTS['exposed_communication'][0].lower()} and waiting"
