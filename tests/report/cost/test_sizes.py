"""Which machines are proposed: those of which everything is known, or on which the work was measured."""

from __future__ import annotations

from typing import Any

import pytest

from jobreport.comparison.runs import RunOf
from jobreport.cost.document import Candidate, Sizing
from jobreport.cost.facts import GIB
from jobreport.cost.prices import Machine
from jobreport.cost.sizes import Variant, sizing
from jobreport.page.sections.parts.sizes_table import sizes as shown
from tests.copies import replace
from tests.report.comparison.runs import compared, listed, run, steady

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
    report = steady()
    assert report.demand
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
    names = [f"n{i}" for i in range(nodes)]
    facts = replace(
        report.job,
        end_us=report.job.start_us + round(seconds * 1e6),
        nodes=tuple(replace(report.job.nodes[0], name=name, gpus=each, cores=12 * each) for name in names),
    )
    known = replace(report.demand, **low | demand)
    return run(label, replace(report, job=facts, demand=known), instance_type=machine, batch_size=64)


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
