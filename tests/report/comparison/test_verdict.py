"""What the verdict says of pairs whose truth is known by construction, and what it says to do next."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobreport.comparison.comparing import Options
from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.markdown import markdown
from jobreport.comparison.verdict import _best
from jobreport.cost.prices import Machine
from jobreport.cost.words import origin
from jobreport.document import Report
from jobrules.model import Finding, Severity
from tests.captured_jobs import training
from tests.copies import replace
from tests.report.comparison.runs import (
    compared,
    listed,
    of_traces,
    older,
    priced,
    report_of,
    run,
    shared,
    steady,
    stopped,
)
from tests.report.comparison.test_known import VERDICTS as OF_PARTS
from tests.report.comparison.test_profiled import VERDICTS as OF_TRACES

PRICES = listed(Machine(type="big", per_hour=8.0, gpus=4), Machine(type="small", per_hour=1.0, gpus=1))
BIG, SMALL = {"instance_type": "big"}, {"instance_type": "small"}


def pair(
    a: Report, b: Report, a_facts: dict[str, Any] | None = None, b_facts: dict[str, Any] | None = None
) -> Comparison:
    runs = [run("A", a, **(a_facts or {})), run("B", b, **(b_facts or {}))]
    return compared(*runs, prices=PRICES if (a_facts or {}).get("instance_type") else None)


def without_steps(report: Report) -> Report:
    return replace(report, blocks=None, goodput=None)


def on_gpus(report: Report, gpus: int) -> Report:
    """The same on so many GPUs."""
    nodes = tuple(replace(node, gpus=gpus) for node in report.job.nodes)
    use = report.verdict.use
    assert use
    return replace(
        report,
        job=replace(report.job, nodes=nodes),
        verdict=replace(report.verdict, use=replace(use, count=gpus)),
    )


def of_many(scales: dict[str, float], **prices: float) -> Comparison:
    """Variants by the length of their steps."""
    runs = [
        run(label, steady(scale), **(priced(1, prices[label]) if prices else {}))
        for label, scale in scales.items()
    ]
    return compared(*runs)


def with_stalls(seed: int, *places: int) -> Report:
    lasts = np.random.default_rng(seed).normal(0.5, 0.02, 400)
    lasts[list(places)] *= 60
    return report_of(lasts.tolist())


def with_waits(report: Report, *shares: float) -> Report:
    """Steps that wait for data for a share of their time, which changes over the run."""
    blocks = report.blocks
    assert blocks
    waits = tuple(shares[i % len(shares)] * total for i, total in enumerate(blocks.sum_s))
    return replace(report, blocks=replace(blocks, fetch_s=waits))


def late(*, measured: bool) -> Report:
    """A start that takes a minute longer; the steps are equal."""
    found = steady(1.0, 2)
    assert found.goodput
    minute = {"before-first-step": 60.0}
    parts = [replace(p, amount=p.amount + minute.get(p.key, 0)) for p in found.goodput.parts]
    parts = [replace(p, measured=measured or p.key not in minute) for p in parts]
    return replace(
        found,
        job=replace(found.job, end_us=found.job.end_us + 60_000_000),
        goodput=replace(found.goodput, parts=tuple(parts)),
    )


def repeats(n: int) -> Comparison:
    a, b = ([run(x, steady(s + i / 20, i), n=n) for i in range(n)] for x, s in (("A", 1.0), ("B", 1.02)))
    return compared(*a, *b)


def at_one_price(*scales: float) -> Comparison:
    """Repeats on one machine, which differ by 3%, against three others."""
    a, b = (
        [run(label, steady(scale, i, start_s=1000.0 * i), **SMALL) for i, scale in enumerate(own)]
        for label, own in (("A", (1.0, 1.03, 0.97)), ("B", scales))
    )
    return compared(*a, *b, prices=PRICES)


def with_finding(report: Report, *, best: bool) -> Report:
    """A third of the best job is start-up; the other has nothing to find."""
    lost = Finding(
        key="long-start-up",
        severity=Severity.WARNING,
        title="Start-up took 50.0% of the job",
        evidence=(),
        advice=("Cache the data set.", "It helps little in long jobs."),
        rules=(),
        section="summary",
    )
    return replace(report, verdict=replace(report.verdict, findings=(lost,) if best else ()))


#: Pairs whose truth is known by construction; what is said of each is accepted in ``tests/golden``.
VERDICTS: dict[str, Callable[[], Comparison]] = {
    "same code": lambda: pair(steady(), steady(1.0, 2)),
    "5% slower": lambda: pair(steady(), steady(1.05, 2)),
    "20% slower": lambda: pair(steady(), steady(1.2, 2)),
    # Start-up has a larger share of the faster job. It is no reason for that.
    "three times as fast": lambda: pair(steady(), steady(1 / 3, 2)),
    "other batch": lambda: pair(steady(), steady(2.0, 2, 200), {"batch_size": 32.0}, {"batch_size": 64.0}),
    "other steps": lambda: pair(steady(), steady(1.2, 2, 200)),
    "one batch size": lambda: pair(steady(), steady(1.2, 2, 200), {"batch_size": 32.0}),
    "few steps": lambda: pair(report_of([0.5] * 40), report_of([0.6] * 40)),
    "older report": lambda: pair(older(steady()), steady(1.2, 2)),
    "shared cores": lambda: pair(steady(), shared(steady(1.2, 2))),
    "stopped": lambda: pair(steady(), stopped(steady(1.2, 2, 200))),
    "stopped early": lambda: pair(report_of([0.5] * 40), stopped(report_of([0.6] * 40))),
    "stopped, without steps": lambda: pair(without_steps(steady()), stopped(without_steps(steady(1.2, 2)))),
    "without steps": lambda: pair(without_steps(steady()), without_steps(steady(1.2, 2))),
    "stopped, with prices": lambda: pair(steady(), stopped(steady(1.2, 2, 200)), BIG, SMALL),
    "prices": lambda: pair(steady(), steady(1.2, 2), BIG, SMALL),
    "fewer GPUs": lambda: pair(on_gpus(steady(), 4), steady(1.0, 2), {"batch_size": 64}, {"batch_size": 64}),
    # As many steps, of batches that nobody knows: each GPU may have done as much as before.
    "more GPUs, unknown batches": lambda: pair(
        on_gpus(steady(), 1), on_gpus(steady(1.2, 2), 2), priced(1, 2.0), priced(2, 4.0)
    ),
    # More GPUs at half the price: the price and the time lowered the cost, not their number.
    # Of both together, only the time explains it.
    "a factor in the other direction": lambda: pair(
        steady(), steady(0.5, 2), priced(2, 10.0, 64), priced(5, 12.5, 64)
    ),
    "nothing to give a reason for": lambda: pair(
        steady(), steady(1.0, 2), priced(2, 10.0, 64), priced(4, 10.0, 64)
    ),
    "many times the cost": lambda: pair(steady(), steady(1.0, 2), SMALL, BIG),
    # The price of a machine that cannot be taken away is no guess for one that can.
    "no spot price": lambda: pair(steady(), steady(1.0, 2), BIG, BIG | {"spot": "true"}),
    "a price of A alone": lambda: pair(steady(), steady(1.0, 2), priced(4, 2.0)),
    "a machine of A alone": lambda: pair(steady(), steady(1.0, 2), BIG),
    "a machine that is not listed": lambda: pair(steady(), steady(1.0, 2), BIG, {"instance_type": "huge"}),
    "an unknown number of machines": lambda: pair(
        steady(), steady(1.0, 2), BIG, {"nodes": None, "cost": 2.0}
    ),
    "traces alone": lambda: pair(
        of_traces(training()), of_traces(training()), priced(1, 2.0), priced(1, 2.0)
    ),
    "a ratio beyond all measure": lambda: pair(steady(), steady(1.0, 2), {"cost": 1e-9}, {"cost": 1e9}),
    "a longer start": lambda: pair(steady(), late(measured=True)),
    "a longer start that is not measured": lambda: pair(steady(), late(measured=False)),
    "longer waits": lambda: pair(with_waits(steady(), 0.04, 0.036), with_waits(steady(1.55, 2), 0.38)),
    "longer steps": lambda: pair(with_waits(steady(), 0.04, 0.036), with_waits(steady(1.55, 2), 0.03)),
    "shorter waits": lambda: pair(with_waits(steady(), 0.38, 0.342), with_waits(steady(0.65, 2), 0.04)),
    # Equal code has as many by chance.
    "4 stalls": lambda: pair(with_stalls(1), with_stalls(2, 40, 145, 237, 350)),
    "18 stalls": lambda: pair(with_stalls(1), with_stalls(2, *range(40, 400, 20))),
    # A price of 3% less explains most of a change that is no more than chance in the time.
    "a price of 3% less": lambda: pair(steady(), steady(0.98, 2), priced(1, 10.0, 64), priced(1, 9.7, 64)),
    # Price and time nearly cancel, and nothing says how much of the time is chance.
    "a price of 20% less, few steps": lambda: pair(
        report_of([0.5] * 40), report_of([0.7] * 40), priced(1, 10.0, 64), priced(1, 8.0, 64)
    ),
    "a price of 20% less": lambda: pair(steady(), steady(0.98, 2), priced(1, 10.0, 64), priced(1, 8.0, 64)),
    "as fast under a condition": lambda: compared(
        run("A", steady()), run("B", steady(1.0, 2)), options=Options(min_effect={"": 12.0})
    ),
    # Runs of one code that differ by 3%: their costs do as well.
    "repeats at one price": lambda: at_one_price(0.99, 0.95, 0.96),
    "shorter repeats at one price": lambda: at_one_price(0.6, 0.61, 0.62),
    "two runs": lambda: repeats(2),
    "three runs": lambda: repeats(3),
    "of many, the fastest": lambda: of_many({"A": 1.0, "B": 0.8, "C": 0.5, "D": 1.2}),
    "of many, the cheapest": lambda: of_many(
        {"A": 1.0, "B": 0.8, "C": 0.5, "D": 1.2}, A=9.0, B=1.0, C=8.0, D=2.0
    ),
    # Equal prices: what one costs less is its time, which is not shown to be shorter.
    "of many, equal prices": lambda: of_many(
        {"A": 1.0, "B": 0.97, "C": 1.02, "D": 1.01}, A=3.0, B=3.0, C=3.0, D=3.0
    ),
    "of many, the base": lambda: of_many({"A": 0.5, "B": 0.9, "C": 0.8, "D": 1.2}),
    "of many, none": lambda: of_many({"A": 1.0, "B": 0.999, "C": 1.2, "D": 1.3}),
    "of many, the cheapest for its time": lambda: of_many(
        {"A": 1.0, "a100": 1 / 8, "h100": 1 / 12, "l4": 1.01}, A=1.0, a100=4.0, h100=11.5, l4=1.1
    ),
    # The price makes C cheaper; that B took less time can be chance.
    "of many, the cheapest for its price": lambda: of_many(
        {"A": 1.0, "B": 0.93, "C": 1.0, "D": 1.1}, A=1.0, B=0.95, C=0.9, D=1.0
    ),
    **OF_PARTS,
    **OF_TRACES,
}


#: What keeps a reader from taking a number for more than it is.
CAVEATS = re.compile(
    r"not tested|not resolved|may be chance|if both did the same work|if a step did the same work|not known|not recorded"
)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_answer_says_no_more_than_the_verdict(name: str) -> None:
    found = VERDICTS[name]()
    # Details of a clause are behind a semicolon; of many, the best is named before.
    first = found.verdict.split("; ")[0] if len(found.others) == 1 else ""

    assert set(CAVEATS.findall(first)) <= set(CAVEATS.findall(found.answer))
    assert set(re.findall(r"[\d.]+", found.answer)) <= set(re.findall(r"[\d.]+", found.verdict))
    assert "(" not in found.answer or found.answer.count("(") == found.answer.count(")")
    assert not re.search(r"\(\)|\( |  | [,.;]|[\x02\x03]", found.answer)


def test_variants_of_runs_and_of_traces_have_no_best() -> None:
    found = VERDICTS["samples with traces, and traces"]()

    assert [sentence.split(" ", 1)[0] for sentence in found.answer.split(". ")] == ["B", "C"]


def test_a_change_of_the_cost_that_may_be_chance_has_no_reason() -> None:
    for name in ("a price of 3% less", "a price of 20% less, few steps", "a price of 20% less"):
        found = VERDICTS[name]().verdict
        assert ("main reason for the cost" in found) is ("costs" in found), name


def test_repeats_of_equal_code_and_price_have_no_change_of_cost() -> None:
    found = VERDICTS["repeats at one price"]()

    cost, duration = found.measure("cost").against["B"], found.measure("duration_s").against["B"]
    assert cost.word is Word.NOT_RESOLVED
    assert (cost.low, cost.high) == pytest.approx((duration.low, duration.high))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ((), "list, as of 2026-01-01"),
        (("B",), "list, as of 2026-01-01; given for B"),
        (("A", "B"), "given for A and B"),
    ],
)
def test_the_origin_of_prices_is_that_of_each_variant(own: tuple[str, ...], said: str) -> None:
    facts = [BIG | ({"price_per_node_hour": 2.0} if label in own else {}) for label in "AB"]

    cost = pair(steady(), steady(1.0, 2), *facts).cost
    assert cost
    assert origin(cost) == f"Prices: {said}; billed to the second."


@pytest.mark.parametrize(
    ("other", "facts", "kind", "said"),
    [
        (steady(1.0, 2), {"batch_size": 8.0}, "work", "add --set A.batch_size=N --set A.steps=N."),
        (steady(1.0, 2, 200), {}, "work", "add --set A.batch_size=N --set B.batch_size=N."),
        (steady(0.5, 2), {}, "overlap", "Runs of A and B overlap in time."),
    ],
)
def test_notes_name_what_is_missing_and_whose_it_is(
    other: Report, facts: dict[str, Any], kind: str, said: str
) -> None:
    base = older(steady()) if facts else steady()
    (note,) = (one.text for one in pair(base, other, {}, facts).notes if one.kind == kind)
    assert said in note


def test_a_few_stalls_are_no_slower_code() -> None:
    """Four steps of 390 make the mean 70% longer."""
    change = VERDICTS["4 stalls"]().measure("steps_per_s").against["B"]

    assert change.word is Word.NOT_RESOLVED
    assert change.change == pytest.approx(-37.8, abs=1)
    assert change.d is not None
    assert math.expm1(change.d) == pytest.approx((change.change or 0) / 100)


def test_a_settled_comparison_says_what_is_left_to_win_in_the_best_run() -> None:
    """The faster run is the best."""
    slow, fast = (with_finding(steady(*of), best=False) for of in ((), (0.7, 2)))
    best = with_finding(fast, best=True)

    settled = pair(slow, best)
    assert (settled.next, settled.left) == ("", "B: Start-up took 50.0% of the job. Cache the data set.")
    assert f"What is left to win in {settled.left.partition('.')[0]}" in markdown(settled)
    assert pair(best, slow).left.startswith("A: ")
    assert pair(fast, replace(best, blocks=slow.blocks)).left == ""
    assert pair(best, best).left == ""  # not resolved
    # As fast, and on half of the GPUs.
    runs = [
        run(label, replace(own, job=replace(own.job, start_us=i)), gpus_per_node=gpus, batch_size=8)
        for i in range(3)
        for label, own, gpus in (("A", fast, 2), ("B", best, 1))
    ]
    assert compared(*runs).left.startswith("B: ")


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([steady(1.11, 2, 200)], True),
        # On shared cores never, and of several variants only what is no chance.
        ([shared(steady(1.11, 2, 200))], False),
        ([steady(1.11, 2, 200), steady(1.0, 3, 200)], False),
    ],
)
def test_what_holds_if_a_step_did_the_same_work_is_judged_as_all_else(
    others: list[Report], said: bool
) -> None:
    runs = [run(label, report) for label, report in zip("ABC", [steady(), *others], strict=False)]

    assert ("if a step did the same work" in compared(*runs).verdict) is said


def test_gpus_that_the_user_gives_are_those_of_gpu_hours_and_costs() -> None:
    found = pair(steady(), steady(1.0, 2), {"nodes": 2.0, "gpus_per_node": 8.0}, priced(4, 2.0))

    hours, durations = found.measure("gpu_hours").values, found.measure("duration_s").values
    assert [round(3600 * (hours[one] or 0) / (durations[one] or 1)) for one in "AB"] == [16, 4]


@pytest.mark.parametrize(
    ("against", "best"),
    [
        ({"X": (110.0, Word.NOT_RESOLVED), "Y": (108.0, Word.BETTER), "Z": (90.0, Word.WORSE)}, "Y"),
        ({"X": (100.1, Word.SAME), "Y": (98.0, Word.WORSE), "Z": (90.0, Word.WORSE)}, "X"),
    ],
)
def test_the_best_variant_is_one_that_is_shown_to_be_better(
    against: dict[str, tuple[float, Word]], best: str
) -> None:
    """By a throughput of 100 of A, those of the variants, and what is known of each."""
    found = pair(steady(), steady(0.5))
    blank = found.measure("steps_per_s")
    values = {"A": 100.0} | {label: value for label, (value, _) in against.items()}
    changes = {label: replace(blank.against["B"], word=word) for label, (_, word) in against.items()}
    variants = tuple(replace(found.variants[0], label=label) for label in values)
    made = replace(found, variants=variants, measures=(replace(blank, values=values, against=changes),))

    assert _best(made, ())[0] == best
