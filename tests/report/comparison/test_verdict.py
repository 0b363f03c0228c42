"""What the verdict says of pairs whose truth is known by construction, and what it says to do next."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

from jobreport.comparison import words
from jobreport.comparison.build import Settings, compare
from jobreport.comparison.comparing import Options
from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.markdown import markdown
from jobreport.comparison.verdict import _best
from jobreport.cost.prices import Machine, Prices
from jobreport.cost.words import origin
from jobreport.document import Report
from jobrules.model import Finding, Severity
from tests.captured_jobs import training
from tests.copies import replace
from tests.report.comparison.runs import of_traces, report_of, run, shared, steady, stopped

PRICES = Prices(
    currency="USD",
    source="list",
    as_of="2026-01-01",
    machines=(Machine(type="big", per_hour=8.0, gpus=4), Machine(type="small", per_hour=1.0, gpus=1)),
)
BIG, SMALL = {"instance_type": "big"}, {"instance_type": "small"}
THREE_TIMES = "Run each variant three times, in turn: one run cannot show how much runs differ."


GIVE_BATCHES = "Give the batch sizes, to compare throughput: --set A.batch_size=N --set B.batch_size=N."
IF = ", if runs of one code differ by no more than 3%"
RECORD_STEPS = "Record steps (record-job finds those of PyTorch; others call jobrecord.step())"


def pair(
    a: Report, b: Report, a_facts: dict[str, Any] | None = None, b_facts: dict[str, Any] | None = None
) -> Comparison:
    runs = [run("A", a, **(a_facts or {})), run("B", b, **(b_facts or {}))]
    return compare(runs, Settings(prices=PRICES if (a_facts or {}).get("instance_type") else None), "")


def older(report: Report) -> Report:
    return replace(report, blocks=UNSET, time_blocks=UNSET, goodput=UNSET, demand=UNSET)


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


def of_gpus(count: int, price: float, batch_size: int | None = None) -> dict[str, Any]:
    return {
        "nodes": 1,
        "gpus_per_node": count,
        "price_per_node_hour": price,
        "batch_size": batch_size,
    }


@pytest.mark.parametrize(
    ("found", "verdict", "step"),
    [
        pytest.param(
            lambda: pair(steady(), steady(1.0, 2)),
            "B took about as long as A (219 s against 218 s); steps per second: −9.1 to +9.4%, not resolved.",
            THREE_TIMES,
            id="same code",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.05, 2)),
            "B ran longer than A (229 s against 218 s); steps per second: −13.5 to +4.1%, not resolved.",
            THREE_TIMES,
            id="5% slower",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.2, 2)),
            f"B is slower than A: 16.9% fewer steps per second (−24.3 to −8.9%{IF}).",
            "",
            id="20% slower",
        ),
        pytest.param(
            # Start-up has a larger share of the faster job. It is no reason for that.
            lambda: pair(steady(), steady(1 / 3, 2)),
            f"B is faster than A: 3.0 times as many steps per second (× 2.73 to 3.28{IF}).",
            "",
            id="three times as fast",
        ),
        pytest.param(
            lambda: pair(steady(), steady(2.0, 2, 200), {"batch_size": 32.0}, {"batch_size": 64.0}),
            "B took about as long as A (219 s against 218 s); samples per second: −9.2 to +9.2%, not resolved.",
            THREE_TIMES,
            id="other batch",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.2, 2, 200)),
            f"B did 17.0% fewer steps per second than A (−24.3 to −9.0%{IF}), slower if a step did the same work; "
            "ran shorter (139 s against 218 s; the numbers of steps differ, and the batch sizes are not known).",
            GIVE_BATCHES,
            id="other steps",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.2, 2, 200), {"batch_size": 32.0}),
            f"B did 17.0% fewer steps per second than A (−24.3 to −9.0%{IF}), slower if a step did the same work; "
            "ran shorter (139 s against 218 s, not tested).",
            GIVE_BATCHES,
            id="one batch size",
        ),
        pytest.param(
            lambda: pair(report_of([0.5] * 40), report_of([0.6] * 40)),
            "B ran longer than A (44 s against 40 s); steps per second: −16.7%, not tested (fewer than 100 steps).",
            "Record at least 100 steps of each run after the first 10, or run each variant three times.",
            id="few steps",
        ),
        pytest.param(
            lambda: pair(older(steady()), steady(1.2, 2)),
            "B ran longer than A (259 s against 218 s, not tested).",
            "Make the report of A again: an older version kept nothing that can be tested.",
            id="older report",
        ),
        pytest.param(
            lambda: pair(steady(), shared(steady(1.2, 2))),
            "B ran longer than A (259 s against 218 s); steps per second: −24.3 to −8.9%, not resolved "
            "(other processes used the cores of B).",
            "Run each variant three times, in turn, on cores that no other process uses.",
            id="shared cores",
        ),
        pytest.param(
            lambda: pair(steady(), stopped(steady(1.2, 2, 200))),
            f"B is slower than A: 17.0% fewer steps per second (−24.3 to −9.0%{IF}).",
            "",
            id="stopped",
        ),
        pytest.param(
            lambda: pair(report_of([0.5] * 40), stopped(report_of([0.6] * 40))),
            "B was recorded for 44 s against 40 s (B was stopped, or the end was not recorded); steps per second: "
            "−16.7%, not tested (fewer than 100 steps).",
            "Let each run do at least 110 steps, which are tested within a run: B was stopped before.",
            id="stopped early",
        ),
        pytest.param(
            lambda: pair(without_steps(steady()), stopped(without_steps(steady(1.2, 2)))),
            "B was recorded for 259 s against 218 s (B was stopped, or the end was not recorded).",
            f"{RECORD_STEPS}: throughput can be compared of runs that were stopped. Or let B run to the end.",
            id="stopped, without steps",
        ),
        pytest.param(
            lambda: pair(without_steps(steady()), without_steps(steady(1.2, 2))),
            "B ran longer than A (259 s against 218 s, not tested).",
            f"{RECORD_STEPS}: throughput is tested within a run. Durations are tested only of repeats: run each variant "
            "three times.",
            id="without steps",
        ),
        pytest.param(
            lambda: pair(steady(), stopped(steady(1.2, 2, 200)), BIG, SMALL),
            "B costs 84.1% less per 1,000 steps than A ($0.193 against $1.21) and is slower: 17.0% fewer steps per second "
            f"(−24.3 to −9.0%{IF}).",
            "",
            id="stopped, with prices",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.2, 2), BIG, SMALL),
            "B costs 85.2% less than A ($0.0719 against $0.486) and is slower: 16.9% fewer steps per second "
            f"(−24.3 to −8.9%{IF}); main reason: the price of an hour of a GPU.",
            "",
            id="prices",
        ),
        pytest.param(
            lambda: pair(on_gpus(steady(), 4), steady(1.0, 2), {"batch_size": 64}, {"batch_size": 64}),
            "B took 0.061 GPU-h against 0.243 GPU-h of A in about the same time (219 s against 218 s); "
            "samples per second: −9.1 to +9.4%, not resolved.",
            THREE_TIMES,
            id="fewer GPUs",
        ),
        pytest.param(
            # As many steps, of batches that nobody knows: each GPU may have done as much as before.
            lambda: pair(on_gpus(steady(), 1), on_gpus(steady(1.2, 2), 2), of_gpus(1, 2.0), of_gpus(2, 4.0)),
            f"B did 16.9% fewer steps per second than A (−24.3 to −8.9%{IF}), slower if a step did the same work; "
            "ran longer (259 s against 218 s; the numbers of GPUs differ, and the batch sizes are not known).",
            GIVE_BATCHES,
            id="more GPUs, unknown batches",
        ),
        pytest.param(
            # More GPUs at half the price: the price and the time lowered the cost, not their number.
            # Of both together, only the time explains it.
            lambda: pair(steady(), steady(0.5, 2), of_gpus(2, 10.0, 64), of_gpus(5, 12.5, 64)),
            "B costs 31.9% less than A (0.413 against 0.607, not tested) and is faster: 99.4% more samples per second "
            f"(+81.7 to +118.7%{IF}).",
            "",
            id="a factor in the other direction",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.0, 2), of_gpus(2, 10.0, 64), of_gpus(4, 10.0, 64)),
            "B cost 0.608 against 0.607 of A (not tested) in about the same time (219 s against 218 s); "
            "samples per second: −9.1 to +9.4%, not resolved.",
            THREE_TIMES,
            id="nothing to give a reason for",
        ),
        pytest.param(
            lambda: pair(steady(), steady(1.0, 2), SMALL, BIG),
            "B costs 8.0 times as much as A ($0.487 against $0.0607) in about the same time (219 s against 218 s); "
            "steps per second: −9.1 to +9.4%, not resolved; main reason for the cost: the price of an hour of a GPU.",
            THREE_TIMES,
            id="many times the cost",
        ),
    ],
)
def test_the_verdict_says_what_is_known(found: Any, verdict: str, step: str) -> None:
    comparison = found()

    assert comparison.verdict.replace("\u00a0", " ") == verdict
    assert comparison.next == step


def test_repeats_of_equal_code_and_price_have_no_change_of_cost() -> None:
    """Runs of one code that differ by 3%: their costs do as well."""
    a, b = (
        [run(label, steady(scale, i, start_s=1000.0 * i), **SMALL) for i, scale in enumerate(scales)]
        for label, scales in (("A", (1.0, 1.03, 0.97)), ("B", (0.99, 0.95, 0.96)))
    )
    found = compare([*a, *b], Settings(prices=PRICES), "")

    cost, duration = found.measure("cost").against["B"], found.measure("duration_s").against["B"]
    assert cost.word is Word.NOT_RESOLVED
    assert (cost.low, cost.high) == pytest.approx((duration.low, duration.high))
    assert found.verdict.replace("\u00a0", " ").startswith(
        f"B cost $0.0589 against $0.0608 of A ({words.interval(cost)}, not resolved) and ran shorter"
    )
    many = [run("C", steady(0.6 + i / 100, i, start_s=9000.0 + 1000 * i), **SMALL) for i in range(3)]
    less = compare([*a, *many], Settings(prices=PRICES), "").verdict
    assert less.startswith("C costs 35.6% less than A ($0.0391 against $0.0608, −39.1 to −32.0%)")


def test_the_reason_of_a_longer_job_is_the_part_that_grew() -> None:
    """A start that takes a minute longer; the steps are equal."""
    late = steady(1.0, 2)
    assert late.goodput
    minute = {"before-first-step": 60.0}
    parts = tuple(replace(p, amount=p.amount + minute.get(p.key, 0)) for p in late.goodput.parts)
    late = replace(
        late,
        job=replace(late.job, end_us=late.job.end_us + 60_000_000),
        goodput=replace(late.goodput, parts=parts),
    )

    assert pair(steady(), late).verdict.endswith(
        "; main reason: time to the first step took 70\u00a0s instead of 10\u00a0s."
    )
    unmeasured = tuple(replace(part, measured=part.key != "before-first-step") for part in parts)
    unknown = replace(late, goodput=replace(late.goodput, parts=unmeasured))
    assert "main reason" not in pair(steady(), unknown).verdict


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ({}, {}, "A is not known: no price was given; use --prices FILE with --set A.instance_type=TYPE, or"),
        (of_gpus(4, 2.0), {}, "B is not known: no price was given; use --prices FILE with --set B.instance"),
        (BIG, {}, "B is not known: name the type of the machines with --set B.instance_type=TYPE"),
        (BIG, {"instance_type": "huge"}, "B is not known: the list of prices (list) lacks huge; add it, or"),
        (BIG, {"nodes": None}, "B is not known: name the type of the machines with --set"),
        (
            BIG,
            {"nodes": None, "cost": 2.0},
            "B is not known: give the number of machines with --set B.nodes=N",
        ),
        # The price of a machine that cannot be taken away is no guess for one that can.
        (
            BIG,
            BIG | {"spot": "true"},
            "B is not known: the list of prices (list) has no spot price of big; add",
        ),
    ],
)
def test_without_a_cost_the_page_says_what_to_give(a: dict[str, Any], b: dict[str, Any], text: str) -> None:
    assert pair(steady(), steady(1.0, 2), a, b).no_cost.startswith(f"The cost of {text}")


def test_of_traces_alone_the_duration_is_what_is_missing() -> None:
    found = pair(of_traces(training()), of_traces(training()), of_gpus(1, 2.0), of_gpus(1, 2.0))

    assert found.no_cost == "The cost of A is not known: the duration of the job was not recorded."


def test_the_origin_of_prices_is_that_of_each_variant() -> None:
    own = BIG | {"price_per_node_hour": 2.0}
    of_list, mixed, given = (
        pair(steady(), steady(1.0, 2), *facts).cost for facts in ((BIG, SMALL), (BIG, own), (own, own))
    )

    assert of_list
    assert mixed
    assert given
    assert [origin(found) for found in (of_list, mixed, given)] == [
        "Prices: list, as of 2026-01-01; billed to the second.",
        "Prices: list, as of 2026-01-01; given for B; billed to the second.",
        "Prices: given for A and B; billed to the second.",
    ]


def notes(found: Comparison) -> dict[str, str]:
    return {note.kind: note.text for note in found.notes}


def test_what_is_missing_to_know_the_work_is_named() -> None:
    assert notes(pair(older(steady()), steady(1.0, 2), {}, {"batch_size": 8.0}))["work"] == (
        "Whether B did the same work as A is not known: add --set A.batch_size=N --set A.steps=N."
    )
    assert notes(pair(steady(), steady(1.0, 2, 200)))["work"].endswith(
        ": add --set A.batch_size=N --set B.batch_size=N."
    )


def test_runs_at_the_same_time_are_named_in_their_order() -> None:
    assert notes(pair(steady(), steady(0.5, 2)))["overlap"].startswith("Runs of A and B overlap in time.")


def test_a_ratio_beyond_all_measure_is_a_few_characters() -> None:
    found = pair(steady(), steady(1.0, 2), {"cost": 1e-9}, {"cost": 1e9})

    assert (
        "B costs 1e+18 times as much as A (1,000,000,000.00 against under 0.0001) in"
        in found.verdict.replace("\u00a0", " ")
    )


def of_many(scales: dict[str, float], **prices: float) -> str:
    """The verdict of variants by the length of their steps."""
    runs = [
        run(label, steady(scale), **(of_gpus(1, prices[label]) if prices else {}))
        for label, scale in scales.items()
    ]
    return compare(runs, Settings(), "").verdict.replace("\u00a0", " ")


def with_stalls(seed: int, *places: int) -> Report:
    lasts = np.random.default_rng(seed).normal(0.5, 0.02, 400)
    lasts[list(places)] *= 60
    return report_of(lasts.tolist())


def test_a_few_stalls_are_no_slower_code_and_are_named() -> None:
    """Four steps of 390 make the mean 70% longer; equal code has as many by chance."""
    found = pair(with_stalls(1), with_stalls(2, 40, 145, 237, 350))
    change = found.measure("steps_per_s").against["B"]

    assert change.word is Word.NOT_RESOLVED
    assert change.change == pytest.approx(-37.8, abs=1)
    assert change.d is not None
    assert math.expm1(change.d) == pytest.approx((change.change or 0) / 100)
    assert found.verdict.endswith(
        "not resolved; 4 of 390 steps that stalled, against 0 of 390, carry 99.6% of the difference."
    )
    assert "stalled" not in pair(steady(), steady(1.2, 2)).verdict
    many = [40 + 20 * i for i in range(18)]
    assert (
        "main reason: 18 of 390 steps that stalled, against 0 of 390"
        in pair(with_stalls(1), with_stalls(2, *many)).verdict
    )


def with_waits(report: Report, *shares: float) -> Report:
    """Steps that wait for data for a share of their time, which changes over the run."""
    blocks = report.blocks
    assert blocks
    waits = tuple(shares[i % len(shares)] * total for i, total in enumerate(blocks.sum_s))
    return replace(report, blocks=replace(blocks, fetch_s=waits))


@pytest.mark.parametrize(
    ("scale", "before", "after", "reason"),
    [
        (1.55, 0.04, 0.38, "a step waited 294.1 ms for data instead of 18.9 ms"),
        (1.55, 0.04, 0.03, "without its wait for data, a step took 750.7 ms instead of 478.9 ms"),
        (0.65, 0.38, 0.04, "a step waited 13.0 ms for data instead of 179.5 ms"),
    ],
)
def test_the_reason_of_slower_steps_is_the_part_of_them_that_grew(
    scale: float, before: float, after: float, reason: str
) -> None:
    found = pair(with_waits(steady(), before, before * 0.9), with_waits(steady(scale, 2), after))

    assert found.verdict.replace("\u00a0", " ").endswith(f"; main reason: {reason}.")


def test_a_settled_comparison_says_what_is_left_to_win_in_the_best_run() -> None:
    """A third of each job is start-up; the faster one is the best."""
    lost = Finding(
        key="long-start-up",
        severity=Severity.WARNING,
        title="Start-up took 50.0% of the job",
        evidence=(),
        advice=("Cache the data set.", "It helps little in long jobs."),
        rules=(),
        section="summary",
    )
    found_in = [replace(r, verdict=replace(r.verdict, findings=())) for r in (steady(), steady(0.7, 2))]
    best = replace(found_in[1], verdict=replace(found_in[1].verdict, findings=(lost,)))

    settled = pair(found_in[0], best)
    assert (settled.next, settled.left) == ("", "B: Start-up took 50.0% of the job. Cache the data set.")
    assert "What is left to win in B: Start-up took 50" in markdown(settled)
    assert pair(best, found_in[0]).left.startswith("A: ")
    assert pair(found_in[1], replace(best, blocks=found_in[0].blocks)).left == ""
    assert pair(best, best).left == ""  # not resolved
    # As fast, and on half of the GPUs.
    runs = [
        run(label, replace(own, job=replace(own.job, start_us=i)), gpus_per_node=gpus, batch_size=8)
        for i in range(3)
        for label, own, gpus in (("A", found_in[1], 2), ("B", best, 1))
    ]
    assert compare(runs, Settings(), "").left.startswith("B: ")


def test_three_runs_are_advised_and_never_two() -> None:
    for n, step in (
        (1, THREE_TIMES),
        (2, "Run each variant three times, in turn: two runs find less than one."),
        (3, "Run each variant more often, in turn."),
    ):
        a, b = ([run(x, steady(s + i / 20, i), n=n) for i in range(n)] for x, s in (("A", 1.0), ("B", 1.02)))
        assert compare([*a, *b], Settings(), "").next == step


def test_of_many_variants_the_best_one_is_named() -> None:
    scales = {"A": 1.0, "B": 0.8, "C": 0.5, "D": 1.2}

    assert of_many(scales).startswith(
        "Of 3 variants compared with A, C does the most steps per second. C is faster than A: "
    )
    assert of_many(scales, A=9.0, B=1.0, C=8.0, D=2.0).startswith(
        "Of 3 variants compared with A, B costs least. B costs 90.9% less than A "
    )
    # Equal prices: what one costs less is its time, which is not shown to be shorter.
    equal = {"A": 1.0, "B": 0.97, "C": 1.02, "D": 1.01}
    assert of_many(equal, **dict.fromkeys(equal, 3.0)).startswith(
        "None of 3 variants is shown to be better than A; B comes nearest. B cost "
    )
    assert of_many({"A": 0.5, "B": 0.9, "C": 0.8, "D": 1.2}).startswith(
        "None of 3 variants does more steps per second than A; C comes nearest. C is slower than A: "
    )
    assert of_many({"A": 1.0, "B": 0.999, "C": 1.2, "D": 1.3}).startswith(
        "None of 3 variants is shown to be better than A; B comes nearest. "
    )


@pytest.mark.parametrize(
    ("a", "b", "price", "said"),
    [
        # A price of 3% less explains most of a change that is no more than chance in the time.
        (
            steady(),
            steady(0.98, 2),
            0.97,
            "B cost 0.579 against 0.607 of A (not tested) in about the same time",
        ),
        # Price and time nearly cancel, and nothing says how much of the time is chance.
        (
            report_of([0.5] * 40),
            report_of([0.7] * 40),
            0.8,
            "B cost 0.104 against 0.110 of A (not tested) and ran",
        ),
        (steady(), steady(0.98, 2), 0.8, "B costs 21.3% less than A (0.478 against 0.607) in"),
    ],
)
def test_a_change_of_the_cost_is_said_where_it_is_more_than_chance(
    a: Report, b: Report, price: float, said: str
) -> None:
    found = pair(a, b, of_gpus(1, 10.0, 64), of_gpus(1, 10.0 * price, 64)).verdict.replace("\u00a0", " ")

    assert found.startswith(said)
    assert ("main reason for the cost: the price of an hour of a GPU" in found) is ("costs" in found)


def test_the_cheapest_of_many_may_owe_it_to_a_time_that_is_shown_to_be_shorter() -> None:
    found = of_many({"A": 1.0, "a100": 1 / 8, "h100": 1 / 12, "l4": 1.01}, A=1.0, a100=4.0, h100=11.5, l4=1.1)

    assert found.startswith("Of 3 variants compared with A, a100 costs least. a100 costs ")
    # The price makes C cheaper; that B took less time can be chance.
    found = of_many({"A": 1.0, "B": 0.93, "C": 1.0, "D": 1.1}, A=1.0, B=0.95, C=0.9, D=1.0)
    assert found.startswith("Of 3 variants compared with A, C costs least. C costs 10")


def test_as_fast_under_a_condition_has_the_condition() -> None:
    wide = Settings(options=Options(min_effect={"": 12.0}))
    found = compare([run("A", steady()), run("B", steady(1.0, 2))], wide, "").verdict

    assert found == f"B is as fast as A within 12% (steps per second: −9.1 to +9.4%{IF})."


def test_what_holds_if_a_step_did_the_same_work_is_judged_as_all_else() -> None:
    """On shared cores never, and of several variants only what is no chance."""
    one, slower, equal = steady(), steady(1.11, 2, 200), steady(1.0, 3, 200)

    def said(*reports: Report) -> bool:
        runs = [run(label, report) for label, report in zip("ABC", reports, strict=False)]
        return "if a step did the same work" in compare(runs, Settings(), "").verdict

    assert said(one, slower)
    assert not said(one, shared(slower))
    assert not said(one, slower, equal)


def test_gpus_that_the_user_gives_are_those_of_gpu_hours_and_costs() -> None:
    found = pair(steady(), steady(1.0, 2), {"nodes": 2.0, "gpus_per_node": 8.0}, of_gpus(4, 2.0))

    hours = found.measure("gpu_hours").values
    durations = found.measure("duration_s").values
    assert {label: round(3600 * (hours[label] or 0) / (durations[label] or 1)) for label in "AB"} == {
        "A": 16,
        "B": 4,
    }


def of_variants(against: dict[str, tuple[float, Word]]) -> Comparison:
    """A throughput of the variants and of A, 100, and what is known of each."""
    found = pair(steady(), steady(0.5))
    blank = found.measure("steps_per_s")
    values = {"A": 100.0} | {label: value for label, (value, _) in against.items()}
    changes = {label: replace(blank.against["B"], word=word) for label, (_, word) in against.items()}
    variants = tuple(replace(found.variants[0], label=label) for label in values)
    return replace(found, variants=variants, measures=(replace(blank, values=values, against=changes),))


def test_the_best_variant_is_one_that_is_shown_to_be_better() -> None:
    noisy = {"X": (110.0, Word.NOT_RESOLVED), "Y": (108.0, Word.BETTER), "Z": (90.0, Word.WORSE)}
    alike = {"X": (100.1, Word.SAME), "Y": (98.0, Word.WORSE), "Z": (90.0, Word.WORSE)}

    assert _best(of_variants(noisy), ())[0] == "Y"
    assert _best(of_variants(alike), ())[1] == (
        "None of 3 variants is shown to be better than A; X comes nearest."
    )
