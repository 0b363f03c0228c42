"""Cost and size of the published pair, to the digits that were published, and lists of prices that are wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.comparison.runs import RunOf
from jobreport.cost import sizes, words
from jobreport.cost.billing import cost, cost_of, missing, wrong_machine
from jobreport.cost.document import Cost, RunCost, Sizing
from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Machine, Prices, Pricing, read_prices
from jobreport.cost.sizes import demand_of, sizing, whole
from jobreport.errors import UsageError
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, compared, listed, published, run, steady


def published_cost(billing: str = "1s") -> Cost:
    found = cost(
        {label: [cost_of(published(label), PUBLISHED, billing)] for label in "AB"}, PUBLISHED, billing
    )
    assert found
    return found


def test_the_published_pair_costs_what_was_published() -> None:
    found = published_cost()
    a, b = found.rows

    assert (f"{a.cost:.5f}", f"{b.cost:.5f}") == ("6.15672", "1.06675")
    assert (words.money(a.cost, "USD"), words.money(b.cost, "USD")) == ("$6.16", "$1.07")
    assert f"{found.saving['B']:.6f}" == "0.826734"
    assert f"{100 * found.saving['B']:.1f}" == "82.7"
    factors = found.factors["B"]
    assert (f"{factors.time:.6f}", f"{factors.count:.6f}", f"{factors.price:.6f}") == (
        "0.998012",
        "0.166667",
        "1.041667",
    )
    assert f"{factors.time * factors.count * factors.price:.6f}" == "0.173266"


def test_billing_by_the_hour() -> None:
    found = published_cost("1h")

    assert [f"{row.cost:.3f}" for row in found.rows] == ["44.064", "7.650"]
    assert f"{100 * found.saving['B']:.1f}" == "82.6"


def test_a_price_that_is_given_for_a_run_stands_over_the_list() -> None:
    given_price = run("A", steady(), instance_type="ml.p3.8xlarge", price_per_node_hour=1.0, nodes=3)
    given_cost = run("A", steady(), nodes=1, price_per_node_hour=1.0, cost=7.0)

    assert (found := cost_of(given_price, PUBLISHED, "1s"))
    assert found.cost == pytest.approx(3 * given_price.seconds / 3600)
    assert (found := cost_of(given_cost, None, "1s"))
    assert found.cost == 7.0
    assert (found := cost_of(run("A", steady(), nodes=1, cost=7.0), None, "1s"))
    assert found.per_hour * found.hours == pytest.approx(7.0)
    assert cost_of(run("A", steady()), PUBLISHED, "1s") is None


def test_prices_of_reports_have_no_machines_to_name() -> None:
    """A machine type for ``--set`` needs a list."""
    of_reports = replace(PUBLISHED, machines=())

    assert missing(run("B", steady()), of_reports) == missing(run("B", steady()), None) == "prices"


@given(
    st.lists(
        st.tuples(st.integers(1, 100_000), st.integers(1, 64), st.integers(0, 16), st.floats(0.01, 500.0)),
        min_size=2,
        max_size=4,
    )
)
def test_the_factors_multiply_to_the_ratio_of_the_costs(runs: list[tuple[int, int, int, float]]) -> None:
    report = steady(n=40)

    def priced(i: int) -> RunCost | None:
        seconds, nodes, gpus, price = runs[i]
        job = replace(report.job, end_us=report.job.start_us + seconds * 1_000_000)
        facts = {"nodes": nodes, "gpus_per_node": gpus, "price_per_node_hour": price}
        return cost_of(run(str(i), replace(report, job=job), **facts), None, "1s")

    found = cost({str(i): [priced(i)] for i in range(len(runs))}, None, "1s")

    assert found
    base = found.rows[0].cost
    for row in found.rows[1:]:
        factors = found.factors[row.label]
        logs = sum(map(math.log, (factors.time, factors.count, factors.price)))
        assert logs == pytest.approx(math.log(row.cost / base), abs=1e-12)


# --- sizes


def test_needs_keep_a_fifth_free() -> None:
    assert whole(8 * 0.2) == 2  # 2.0000000000000004 is not 3
    assert whole(12 * 0.135) == 3
    assert whole(12 * 0.13) == 2
    assert whole(96 * 0.244) == 30


def test_the_machines_of_the_second_published_run_do_not_hold_the_first() -> None:
    found = size(published("A"))

    assert found.upper_estimate
    assert (found.needs["gpus"], found.needs["cores"]) == (3, 30)
    small = [one for one in found.candidates if one.machine == "ml.p3.2xlarge"]
    assert all(any(fail.startswith("cores: 30 needed") for fail in one.fails) for one in small)
    # Less memory than today is no advice as long as nobody knows what is in use.
    assert not found.advised
    assert all("GPU memory in use" in one.unknown for one in found.candidates)


def test_a_mean_of_unknown_cores_says_nothing_of_the_cores_in_use() -> None:
    """Was: 2 cores needed, of a machine with 96 whose mean was sampled."""
    one = published("A")
    nodes = tuple(replace(node, cores=1) for node in one.report.job.nodes)
    one = replace(one, report=replace(one.report, job=replace(one.report.job, nodes=nodes)))
    found = size(one)

    assert (found.needs["gpus"], found.needs["cores"]) == (3, None)


def known_memory(gib: float, facts: dict[str, Any] | None = None, **changed: float) -> RunOf:
    one = published("A")
    demand = steady().demand
    assert demand
    known = replace(
        demand,
        gpus=1.6,
        cores=8.0,
        gpu_memory=gib * 1024**3,
        gpu_memory_total=16 * 1024.0**3,
        seconds=3600.0,
        coverage_percent=100.0,
        host_memory_percent=10.0,
        highest_gpu_percent=20.0,
        mean_gpu_percent=15.0,
        used_gpus=12,
        all_gpus=12,
    )
    report = replace(one.report, demand=replace(known, **changed))
    return replace(one, report=report, facts=one.facts | (facts or {}))


def size(one: RunOf, prices: Prices = PUBLISHED) -> Sizing:
    found = sizing([one], prices)
    assert found
    return found


def test_machines_that_hold_all_needs_are_candidates_the_cheapest_first() -> None:
    found = size(known_memory(4.0))

    assert found.advised
    assert [(one.machine, one.count, one.fails) for one in found.candidates] == [
        ("ml.p3.2xlarge", 2, ()),
        ("ml.p3.2xlarge", 3, ()),
        ("ml.p3.8xlarge", 1, ()),
    ]
    first = found.candidates[0]
    assert first.saving == pytest.approx(1 - 7.65 / 44.064)
    assert first.break_even_s == pytest.approx(503 * 44.064 / 7.65)


def test_a_type_is_a_candidate_once_in_its_region() -> None:
    zones = tuple(
        replace(machine, region=region, per_hour=machine.per_hour * factor)
        for machine in PUBLISHED.machines
        for region, factor in (("east", 1.0), ("east", 1.0), ("west", 0.5))
    )
    in_east = known_memory(4.0, {"region": "east"})

    assert size(in_east, replace(PUBLISHED, machines=zones)) == size(in_east)


def test_machines_are_held_against_what_was_paid() -> None:
    """A contract at a tenth of the price of the list, and spot machines."""
    contract, spot = known_memory(4.0, {"price_per_node_hour": 1.4688}), known_memory(4.0, {"spot": "yes"})
    big, small = PUBLISHED.machines
    with_spot = (replace(big, spot_per_hour=4.0), replace(small, spot_per_hour=1.0), replace(small, type="x"))

    own = size(contract)
    assert own.now.per_hour == pytest.approx(3 * 1.4688)
    assert [(one.machine, one.count) for one in own.candidates] == [
        ("ml.p3.8xlarge", 1),
        ("ml.p3.8xlarge", 2),
        ("ml.p3.2xlarge", 1),  # it lacks GPUs
    ]
    assert own.candidates[0].saving == pytest.approx(2 / 3)

    found = size(spot, replace(PUBLISHED, machines=with_spot))
    assert (found.now.per_hour, found.candidates[0].per_hour) == (12.0, 2.0)
    # The list has no spot price of it.
    assert "x" not in {one.machine for one in found.candidates}


@given(
    st.lists(
        st.tuples(st.floats(0.1, 50.0), st.integers(0, 8), st.floats(0.3, 96.0)), min_size=1, max_size=6
    ),
    st.integers(1, 40),
    st.floats(0.0, 60.0),
    st.floats(0.1, 400.0),
)
def test_the_best_of_all_numbers_of_machines_are_found(
    rows: list[tuple[float, int, float]], nodes: int, gpus: float, cores: float
) -> None:
    """Held against a look at every number."""
    asked = known_memory(4.0, {"nodes": nodes, "gpus": 4 * nodes}, gpus=gpus, cores=cores)
    listed = tuple(
        Machine(type=f"m{i}", per_hour=price, gpus=count, cores=size, gpu_memory_gib=16, memory_gib=244)
        for i, (price, count, size) in enumerate(rows)
    )
    prices = replace(PUBLISHED, machines=(*PUBLISHED.machines, *listed))

    found = sizing([asked], prices)
    with patch.object(sizes._Today, "counts", lambda self, _: range(1, nodes + 1)):
        assert found == sizing([asked], prices)


def test_any_number_of_machines_takes_no_time() -> None:
    assert size(known_memory(4.0, {"nodes": 1e14}))


@pytest.mark.parametrize(
    ("changed", "guard"),
    [
        ({"seconds": 599.0}, "short"),
        ({"coverage_percent": 79.0}, "short"),
        ({"highest_gpu_percent": 90.0}, "balance"),
    ],
)
def test_guards_hold_back_advice(changed: dict[str, Any], guard: str) -> None:
    found = size(known_memory(4.0, **changed))

    assert not found.advised
    assert guard in found.guards[0]


def test_the_demand_of_steady_use_is_its_level() -> None:
    found = demand_of(steady())

    assert found
    assert list(found) == pytest.approx([0.5, 1.0, 0])


# --- lists

TOML = """currency = "USD"
source = "page"
as_of = 2021-02-01
[[machine]]
type = "ml.p3.2xlarge"
region = "us-west-2"
per_hour = 3.825
spot_per_hour = 1.1
gpus = 1
cores = 8
"""
CSV = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Region,SpotPrice,Price
p3.2xlarge,V100,1,8,61,"{'Gpus': []}",us-east-1,0.9,3.06
p3.2xlarge,V100,1,8,61,,us-west-2,0.9,3.26
m5.large,,,2,8,,us-east-1,,0.096
spot-only,V100,1,8,61,,us-east-1,0.9,
"""


def test_the_price_of_a_region_stands_over_one_without() -> None:
    rows = (("", 1.0), ("east", 2.0), ("west", 3.0))
    found = replace(PUBLISHED, machines=tuple(Machine(type="x", region=r, per_hour=p) for r, p in rows))

    prices = [
        machine.per_hour for region in ("east", "west", "north") if (machine := found.machine("x", region))
    ]
    assert prices == [2.0, 3.0, 1.0]


def test_a_list_in_toml(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(TOML)
    found = read_prices(tmp_path / "prices.toml")

    assert (found.currency, found.source, found.as_of) == ("USD", "page", "2021-02-01")
    machine = found.machine("p3.2xlarge")
    assert machine
    assert (machine.type, machine.per_hour, machine.gpus, machine.cores) == ("ml.p3.2xlarge", 3.825, 1, 8.0)
    assert found.machine("p3.8xlarge") is None
    spot = cost_of(run("A", steady(), instance_type="p3.2xlarge", spot="true"), found, "1s")
    assert spot
    assert (spot.per_hour, spot.spot) == (1.1, True)


def test_a_list_in_the_columns_of_skypilot(tmp_path: Path) -> None:
    (tmp_path / "aws.csv").write_text(CSV)
    found = read_prices(tmp_path / "aws.csv", "2026-01-31")

    assert (found.currency, found.as_of, len(found.machines)) == ("USD", "2026-01-31", 3)
    assert (machine := found.machine("ml.p3.2xlarge", "us-west-2"))
    assert (machine.per_hour, machine.gpus, machine.gpu_model) == (3.26, 1, "V100")
    assert (machine := found.machine("m5.large"))
    assert machine.gpus == 0
    with pytest.raises(UsageError, match="several regions: us-east-1, us-west-2"):
        found.machine("p3.2xlarge")
    assert read_prices(tmp_path / "aws.csv").as_of.endswith("(date of the file)")
    twice = listed(*(Machine(type="x", per_hour=n) for n in (1.0, 2.0)))
    with pytest.raises(UsageError, match="x is listed with several prices"):
        twice.machine("x")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3.825", "0", "no number from 1e-9"),
        ("3.825", "-1", "no number from 1e-9"),
        ("3.825", "1e300", "to 1e15"),
        ("3.825", "1e-300", "no number from 1e-9"),
        ("3.825", "nan", "no number from 1e-9"),
        ("3.825", '"3"', "no number from 1e-9"),
        ("per_hour = 3.825\n", "", "lacks per_hour"),
        ("as_of = 2021-02-01\n", "", "lacks as_of"),
        ('currency = "USD"\n', "", "lacks currency"),
        ("[[machine]]", "[machine]", "tables"),
        ("gpus = 1", "gpus = -1", "no number of GPUs"),
        ("gpus = 1", "gpus = 100000000000000000000", "no number of GPUs"),
        ("[[machine]]", "[[machine]", "prices.toml"),
        ("gpus = 1", 'currency = "EUR"', "unknown key currency of"),
        ("SpotPrice,Price", "SpotPrice", "lacks the columns Price"),
        ("3.06", "abc", "Price of p3.2xlarge is no number"),
        ("3.06", "-1", "no number from 1e-9"),
    ],
)
def test_a_list_that_is_wrong_says_where(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("prices.csv" if old in CSV else "prices.toml")
    path.write_text((CSV if old in CSV else TOML).replace(old, new, 1))

    with pytest.raises(UsageError, match=message):
        read_prices(path)


def test_unequal_nodes_have_one_price_of_a_gpu_hour_in_both_products() -> None:
    """Of one of three machines with 4 GPUs each, only 2 were recorded."""
    a, b = published("A"), published("B")
    nodes = a.report.job.nodes
    job = replace(a.report.job, nodes=(*nodes[:-1], replace(nodes[-1], gpus=2)))
    a = run("A", replace(a.report, job=job), instance_type="p3.8xlarge")
    assert a.number("gpus") == 10

    pricing = [
        Pricing(prices=PUBLISHED, facts={"instance_type": name}) for name in ("p3.8xlarge", "p3.2xlarge")
    ]
    alone = [job_cost(one.report, its) for one, its in zip((a, b), pricing, strict=True)]
    found = cost({one.label: [cost_of(one, PUBLISHED, "1s")] for one in (a, b)}, PUBLISHED, "1s")

    assert found
    prices = [one.per_gpu_hour for one in alone if one and one.per_gpu_hour]
    assert prices == pytest.approx([3 * 14.688 / 10, 3.825])
    assert found.factors["B"].price == pytest.approx(prices[1] / prices[0])
    assert [row.gpus for row in found.rows] == [10, 2]
    assert wrong_machine(a, PUBLISHED).startswith("2\u00a0GPUs of a node were recorded, but p3.8xlarge has 4")
    assert not wrong_machine(b, PUBLISHED)


def test_recorded_gpus_stand_over_those_of_the_machine_type() -> None:
    """Both ran on one GPU; of one, the user named a machine that has four by the list."""
    a, b = (
        run(label, steady(1.0, seed, start_s=start_s), instance_type=machine)
        for label, seed, start_s, machine in (("A", 1, 0.0, "p3.8xlarge"), ("B", 2, 999.0, "p3.2xlarge"))
    )
    found = compared(a, b, prices=PUBLISHED)

    assert found.cost
    assert [row.gpus for row in found.cost.rows] == [1, 1]
    assert "in place of" not in found.verdict
    assert "the price of an hour of a GPU" in found.verdict
    said = [note.text.replace("\u00a0", " ") for note in found.notes if note.kind == "machine"]
    assert said == [
        "A: 1 GPU and 4 cores of a node were recorded, but p3.8xlarge has 4 GPUs and 32 cores by the list: "
        "check the machine type.",
        "B: 4 cores of a node were recorded, but p3.2xlarge has 8 cores by the list: check the machine type.",
    ]
