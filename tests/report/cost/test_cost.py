"""Cost and size of the published pair, to the digits that were published, and lists of prices that are wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.cost.billing import cost, cost_of, missing, wrong_machine
from jobreport.cost.document import RunCost
from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Machine, Prices, Pricing, read_prices
from jobreport.errors import UsageError
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, compared, listed, published, run, steady


@pytest.mark.parametrize(
    ("billing", "costs", "saving"),
    [("1s", ["6.15672", "1.06675"], "0.826734"), ("1h", ["44.06400", "7.65000"], "0.826389")],
)
def test_the_published_pair_costs_what_was_published(billing: str, costs: list[str], saving: str) -> None:
    runs = {label: [cost_of(published(label), PUBLISHED, billing)] for label in "AB"}
    found = cost(runs, PUBLISHED, billing)

    assert found
    assert [f"{row.cost:.5f}" for row in found.rows] == costs
    assert f"{found.saving['B']:.6f}" == saving
    factors = found.factors["B"]
    assert [f"{one:.6f}" for one in (factors.count, factors.price)] == ["0.166667", "1.041667"]
    assert f"{factors.time:.6f}" == ("0.998012" if billing == "1s" else "1.000000")


@pytest.mark.parametrize(
    ("facts", "prices", "paid"),
    [
        (
            {"instance_type": "ml.p3.8xlarge", "price_per_node_hour": 1.0, "nodes": 3},
            PUBLISHED,
            3 * run("A", steady()).seconds / 3600,
        ),
        ({"nodes": 1, "price_per_node_hour": 1.0, "cost": 7.0}, None, 7.0),
        ({"nodes": 1, "cost": 7.0}, None, 7.0),
    ],
)
def test_a_price_that_is_given_for_a_run_stands_over_the_list(
    facts: dict[str, Any], prices: Prices | None, paid: float
) -> None:
    found = cost_of(run("A", steady(), **facts), prices, "1s")

    assert found
    assert found.cost == pytest.approx(paid)
    assert found.per_hour * found.hours * found.nodes == pytest.approx(paid)
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
    found = listed(*(Machine(type="x", region=region, per_hour=price) for region, price in rows))

    machines = [found.machine("x", region) for region in ("east", "west", "north")]
    assert [one.per_hour for one in machines if one] == [2.0, 3.0, 1.0]


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
