"""Which machines are proposed: those of which everything is known, or on which the work was measured."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.comparison.runs import RunOf
from jobreport.cost import sizes
from jobreport.cost.document import Candidate, Sizing
from jobreport.cost.facts import GIB
from jobreport.cost.prices import Machine, Prices
from jobreport.cost.sizes import Variant, demand_of, sizing, whole
from jobreport.page.sections.parts.sizes_table import sizes as shown
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, compared, listed, published, run, steady

BIG = Machine(
    type="big", per_hour=32.77, gpus=8, gpu_model="A100", gpu_memory_gib=40, cores=96, memory_gib=1152
)
SMALL = Machine(
    type="small", per_hour=4.1, gpus=1, gpu_model="A100", gpu_memory_gib=40, cores=12, memory_gib=144
)


def job(
    *,
    label: str = "A",
    nodes: int = 1,
    each: int = 8,
    machine: str = "big",
    seconds: float = 1234.0,
    **demand: Any,
) -> RunOf:
    """On machines of so many GPUs, with this demand; what is not named is low."""
    low = {
        "gpus": 0.7,
        "cores": 3.2,
        "host_memory_percent": 5.0,
        "gpu_memory": 3.7 * GIB,
        "gpu_memory_total": 40 * GIB,
        "highest_gpu_percent": 23.0,
        "mean_gpu_percent": 9.0,
        "used_gpus": nodes * each,
        "all_gpus": nodes * each,
        "seconds": 1111.0,
        "coverage_percent": 97.0,
    }
    node, start_us = steady().job.nodes[0], steady().job.start_us
    facts = replace(
        steady().job,
        end_us=start_us + round(seconds * 1e6),
        nodes=tuple(replace(node, name=f"n{i}", gpus=each, cores=12 * each) for i in range(nodes)),
    )
    one = run(label, replace(steady(), job=facts), instance_type=machine, batch_size=64)
    return asking(one, **low | demand)


def asking(one: RunOf, **demand: Any) -> RunOf:
    """The run with this demand."""
    known = steady().demand
    assert known
    return replace(one, report=replace(one.report, demand=replace(known, **demand)))


def size(one: RunOf, *machines: Machine, others: tuple[Variant, ...] = ()) -> Sizing:
    found = sizing([one], listed(*machines), others)
    assert found
    return found


def of(found: Sizing, machine: str, count: int = 1) -> Candidate:
    return next(one for one in found.candidates if (one.machine, one.count) == (machine, count))


def lead(found: Sizing) -> str:
    html, _ = shown(found, "USD", "A")
    return html.markup.partition("<b>")[2].partition("</b>")[0]


def test_what_holds_all_needs_is_proposed_by_name() -> None:
    found = size(job(), BIG, SMALL)

    assert of(found, "small").holds
    assert lead(found) == "To test for A: 1 × small, 87.5% less per hour."


@pytest.mark.parametrize(
    ("need", "unknown"),
    [
        ("cores", "cores in use"),
        ("host_memory_percent", "host memory in use"),
        ("gpu_memory", "GPU memory in use"),
    ],
)
def test_a_need_that_was_not_recorded_is_not_held(need: str, unknown: str) -> None:
    changed: dict[str, Any] = {need: None}
    found = size(job(**changed), BIG, SMALL)

    small = of(found, "small")
    assert unknown in small.unknown
    assert not small.holds
    assert not found.advised
    assert lead(found) == "Nothing is proposed for A."
    needed = shown(found, "USD", "A")[1].rows[0]
    assert [cell for cell in needed if "not known" in str(cell)] == ["not known"]


@pytest.mark.parametrize(
    ("lacks", "unknown"),
    [
        ({"cores": None}, "cores of the machine"),
        ({"memory_gib": None}, "host memory of the machine"),
        ({"gpu_memory_gib": None}, "GPU memory of the machine"),
        ({"gpus": None}, "GPUs of the machine"),
        ({"gpu_model": ""}, "its model of GPU"),
    ],
)
def test_a_machine_of_which_the_list_says_little_is_not_proposed(lacks: dict[str, Any], unknown: str) -> None:
    tiny = replace(SMALL, type="tiny", per_hour=0.95, **lacks)

    found = size(job(), BIG, tiny)
    assert of(found, "tiny").unknown == (unknown,)
    assert lead(found) == "Nothing is proposed for A."
    # One that is known stands above it, although it costs more.
    assert lead(size(job(), BIG, tiny, SMALL)).startswith("To test for A: 1 × small")


def test_gpus_of_another_model_are_not_counted_one_to_one() -> None:
    old = replace(SMALL, type="old", per_hour=0.9, gpus=8, gpu_model="K80", cores=32, memory_gib=488)

    found = size(job(), BIG, old)
    candidate = of(found, "old")
    assert (candidate.unknown, candidate.saving) == (("how fast K80 GPUs are: test",), None)
    assert lead(found) == "Nothing is proposed for A."


# --- GPUs


@pytest.mark.parametrize(
    ("there", "demand", "needed"),
    [
        (8, {"gpus": 7.6, "used_gpus": 8, "mean_gpu_percent": 95.0}, 8),
        (1, {"gpus": 0.95, "used_gpus": 1, "mean_gpu_percent": 95.0}, 1),
        (8, {"gpus": 1.9, "used_gpus": 2, "mean_gpu_percent": 24.0}, 2),
        # To put the work of more GPUs on fewer needs some room.
        (8, {"gpus": 1.7, "used_gpus": 8, "mean_gpu_percent": 21.0}, 3),
    ],
)
def test_gpus_in_use_need_no_headroom(there: int, demand: dict[str, Any], needed: int) -> None:
    found = size(job(each=there, **demand), replace(BIG, gpus=there), SMALL)

    assert found.needs["gpus"] == needed


def test_unused_gpus_are_no_uneven_work() -> None:
    two_of_eight: dict[str, Any] = {
        "all_gpus": 8,
        "gpus": 1.9,
        "highest_gpu_percent": 96.0,
        "mean_gpu_percent": 24.0,
    }

    found = size(job(used_gpus=2, **two_of_eight), BIG, replace(SMALL, gpus=2, per_hour=8.2))
    assert "2 of 8 GPUs were used: first try the same machine type with so many." in found.guards
    assert not any("balance" in guard for guard in found.guards)
    assert found.advised
    # All of them were used, one much more than the others.
    uneven = size(job(used_gpus=8, **two_of_eight), BIG, SMALL)
    assert any("first balance the work" in guard for guard in uneven.guards)
    assert not uneven.advised


def test_fewer_gpus_at_one_global_batch_need_more_memory_each() -> None:
    said = "Fewer GPUs at the same global batch need more memory each."

    assert said in size(job(), BIG, SMALL).guards
    # As many GPUs as are in use.
    assert said not in size(job(each=1), replace(BIG, gpus=1), SMALL).guards


def test_nothing_is_proposed_above_cheaper_choices() -> None:
    """A short measurement holds back advice: then no choice is said to be known to hold the demand."""
    found = size(job(coverage_percent=41.0), BIG, SMALL)

    assert lead(found) == "Nothing is proposed for A."
    assert "known to hold" not in shown(found, "USD", "A")[1].caption


# --- memory of the host


@pytest.mark.parametrize(("percent", "holds"), [(60.0, True), (85.0, False)])
def test_host_memory_is_that_of_the_processes_of_each_gpu(percent: float, holds: bool) -> None:
    """Nodes of two GPUs are held against nodes of one, which have half of the memory, and half of the processes."""
    pairs = replace(SMALL, type="big", per_hour=8.2, gpus=2, cores=24, memory_gib=288)

    found = size(job(nodes=4, each=2, host_memory_percent=percent), pairs, SMALL)
    assert found.needs["memory_gib"] == pytest.approx(percent / 100 * 288 / 0.8 / 2)
    one = of(found, "small")
    assert one.holds is holds
    assert bool(one.fails) is not holds
    table = shown(found, "USD", "A")[1]
    assert str(table.rows[0][3]).endswith("GiB\u00a0per GPU")
    assert "Host memory, each" in table.heads


# --- measured


def measured(label: str = "B", **changed: Any) -> tuple[Variant, RunOf]:
    other = job(label=label, each=1, machine="small", seconds=1300.0)
    return Variant(label=label, run=other, seconds=1300.0, cost=0.1318, **changed), other


def test_what_a_variant_measured_stands_over_the_estimate() -> None:
    """By the estimate, one small machine lacks cores; the same work ran on it."""
    one = job(cores=88.0)
    variant, other = measured()
    assert of(size(one, BIG, SMALL), "small").fails

    found = size(one, BIG, SMALL, others=(variant,))
    candidate = of(found, "small")
    assert (candidate.label, candidate.measured_s, candidate.fails) == ("B", 1300.0, ())
    assert lead(found) == "Measured: B ran on 1 × small and cost 86.8% less than A."

    page = compared(one, other, prices=listed(BIG, SMALL))
    assert page.cost
    assert of(page.candidates["A"], "small").saving == pytest.approx(page.cost.saving["B"])
    assert of(page.candidates["A"], "small").measured_s == pytest.approx(1300.0)


@pytest.mark.parametrize(
    ("price", "said"), [(0.97, "cost 3.0% less than A, not tested."), (0.7, "30.0% less than A.")]
)
def test_a_cost_that_was_measured_can_be_lower_by_chance(price: float, said: str) -> None:
    runs = [job(), job(label="B", machine="small")]
    prices = listed(BIG, replace(BIG, type="small", per_hour=price * BIG.per_hour))
    found = compared(*runs, prices=prices)

    assert lead(found.candidates["A"]).endswith(said)


def test_a_variant_of_other_work_measured_nothing() -> None:
    one, (_, other) = job(cores=88.0), measured()
    less = replace(other, facts=other.facts | {"samples": 0.5 * (other.number("samples") or 0)})
    cut = replace(other, facts=other.facts | {"finished": "false"})

    for variant in (less, cut):
        found = compared(one, variant, prices=listed(BIG, SMALL)).candidates["A"]
        candidate = of(found, "small")
        assert candidate.label == "B"
        assert candidate.measured_s is None
        assert candidate.fails
        assert lead(found) == "Nothing is proposed for A."


# --- the published pair


def known_memory(gib: float, facts: dict[str, Any] | None = None, **changed: float) -> RunOf:
    """The first published run, with a demand of which all is known."""
    one = published("A")
    known = {
        "gpus": 1.6,
        "cores": 8.0,
        "gpu_memory": gib * GIB,
        "gpu_memory_total": 16 * GIB,
        "seconds": 3600.0,
        "coverage_percent": 100.0,
        "host_memory_percent": 10.0,
        "highest_gpu_percent": 20.0,
        "mean_gpu_percent": 15.0,
        "used_gpus": 12,
        "all_gpus": 12,
    }
    return replace(asking(one, **known | changed), facts=one.facts | (facts or {}))


def of_published(one: RunOf, prices: Prices = PUBLISHED) -> Sizing:
    return size(one, *prices.machines)


def test_needs_keep_a_fifth_free() -> None:
    assert whole(8 * 0.2) == 2  # 2.0000000000000004 is not 3
    assert whole(12 * 0.135) == 3
    assert whole(12 * 0.13) == 2
    assert whole(96 * 0.244) == 30


def test_the_machines_of_the_second_published_run_do_not_hold_the_first() -> None:
    found = of_published(published("A"))

    assert found.upper_estimate
    assert (found.needs["gpus"], found.needs["cores"]) == (3, 30)
    small = [one for one in found.candidates if one.machine == "ml.p3.2xlarge"]
    assert all(any(fail.startswith("cores: 30 needed") for fail in one.fails) for one in small)
    # Less memory than today is no advice as long as nobody knows what is in use.
    assert not found.advised
    assert all("GPU memory in use" in one.unknown for one in found.candidates)


def test_a_mean_of_unknown_cores_says_nothing_of_the_cores_in_use() -> None:
    """Was: 2 cores needed, of a machine with 96 whose mean was sampled."""
    report = published("A").report
    nodes = tuple(replace(node, cores=1) for node in report.job.nodes)
    one = replace(published("A"), report=replace(report, job=replace(report.job, nodes=nodes)))

    needs = of_published(one).needs
    assert (needs["gpus"], needs["cores"]) == (3, None)


def test_machines_that_hold_all_needs_are_candidates_the_cheapest_first() -> None:
    found = of_published(known_memory(4.0))

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

    assert of_published(in_east, replace(PUBLISHED, machines=zones)) == of_published(in_east)


def test_machines_are_held_against_what_was_paid() -> None:
    """A contract at a tenth of the price of the list, and spot machines."""
    contract, spot = known_memory(4.0, {"price_per_node_hour": 1.4688}), known_memory(4.0, {"spot": "yes"})
    big, small = PUBLISHED.machines
    with_spot = (replace(big, spot_per_hour=4.0), replace(small, spot_per_hour=1.0), replace(small, type="x"))

    own = of_published(contract)
    assert own.now.per_hour == pytest.approx(3 * 1.4688)
    assert [(one.machine, one.count) for one in own.candidates] == [
        ("ml.p3.8xlarge", 1),
        ("ml.p3.8xlarge", 2),
        ("ml.p3.2xlarge", 1),  # it lacks GPUs
    ]
    assert own.candidates[0].saving == pytest.approx(2 / 3)

    found = of_published(spot, replace(PUBLISHED, machines=with_spot))
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
    more = tuple(
        Machine(type=f"m{i}", per_hour=price, gpus=count, cores=size, gpu_memory_gib=16, memory_gib=244)
        for i, (price, count, size) in enumerate(rows)
    )
    prices = replace(PUBLISHED, machines=(*PUBLISHED.machines, *more))

    found = of_published(asked, prices)
    with patch.object(sizes._Today, "counts", lambda self, _: range(1, nodes + 1)):
        assert found == of_published(asked, prices)


def test_any_number_of_machines_takes_no_time() -> None:
    assert of_published(known_memory(4.0, {"nodes": 1e14}))


@pytest.mark.parametrize(
    ("changed", "guard"),
    [
        ({"seconds": 599.0}, "short"),
        ({"coverage_percent": 79.0}, "short"),
        ({"highest_gpu_percent": 90.0}, "balance"),
    ],
)
def test_guards_hold_back_advice(changed: dict[str, Any], guard: str) -> None:
    found = of_published(known_memory(4.0, **changed))

    assert not found.advised
    assert guard in found.guards[0]


def test_the_demand_of_steady_use_is_its_level() -> None:
    assert list(demand_of(steady()) or ()) == pytest.approx([0.5, 1.0, 0])
