"""Facts of runs: what the user gave, what was measured, and labels of recordings."""

from __future__ import annotations

from typing import Any

import pytest

from jobreport.comparison.measures import BY_KEY
from jobreport.comparison.runs import differences
from jobreport.cost.billing import cost_of
from jobreport.cost.facts import OF_WHAT_RAN, facts_of
from jobreport.cost.prices import Machine
from jobreport.cost.sizes import sizing
from jobreport.document import Report
from jobreport.recordings import GPUModel, Label, Logged, Version
from jobreport.remarks import Quality, SourceQuality
from jobrules.analyses.throughput import Throughput
from tests.copies import replace
from tests.report.comparison.runs import listed, of_traces, run, steady
from tests.report.page.sections.test_recordings import recording

PRICES = listed(
    Machine(type="big", region="here", per_hour=8.0, spot_per_hour=3.0, gpus=2, cores=8),
    Machine(type="big", region="there", per_hour=9.0, gpus=2, cores=8),
)


def priced_at(report: Report, **given: float) -> float:
    """What a node-hour costs by the list."""
    found = cost_of(run("A", report, **given), PRICES, "1s")
    assert found
    return found.per_hour


def labeled(report: Report, *nodes: dict[str, str], gpu: str = "H100") -> Report:
    """The report of a job that record-job recorded on these nodes, with their labels."""
    recordings = tuple(
        recording(
            f"n{i}",
            labels=tuple(Label(key=key, value=value) for key, value in labels.items()),
            gpus=(GPUModel(name=gpu, count=1),),
        )
        for i, labels in enumerate(nodes)
    )
    source = SourceQuality(source="record-job", files=1, rows=1, recordings=recordings)
    return replace(report, quality=Quality(sources=(source,)))


@pytest.mark.parametrize(
    ("labels", "fact", "value"),
    [
        ([{"batch_size": "256"}], "batch_size", 256.0),
        ([{"batch_size": "256"}, {"batch_size": "256.0"}], "batch_size", 256.0),
        ([{"batch_size": "256"}, {"batch_size": "512"}], "batch_size", "256 / 512"),
        ([{"batch_size": "nan"}], "batch_size", "nan"),
        ([{"batch_size": "-1"}], "batch_size", "-1"),
        ([{"batch_size": "1e400"}], "batch_size", "1e400"),
        ([{"batch_size": "many"}], "batch_size", "many"),
        ([{"world_size": "8"}], "world_size", 8.0),
        ([{"instance_type": "p3.8xlarge"}], "instance_type", "p3.8xlarge"),
        ([{"precision": "bf16"}], "precision", "bf16"),
        ([{"learning_rate": "0.1"}], "learning_rate", "0.1"),
        # What was measured stands: a label may mean another thing.
        ([{"steps": "90000"}], "steps", 390 + 10),
        ([{"steps": "90000"}], "label steps", 90000),
        ([{"version": "2"}], "label version", "2"),
        ([{"nodes": "3"}], "nodes", 1),
        # A redacted label says nothing.
        ([{"batch_size": "…"}], "batch_size", None),
        ([{"…": "1"}], "…", None),
        ([{}], "gpu_model", "H100"),
    ],
)
def test_a_label_is_a_fact_of_the_run(
    labels: list[dict[str, str]], fact: str, value: str | float | None
) -> None:
    assert facts_of(labeled(steady(), *labels), {}).get(fact) == value


def test_what_the_user_gives_stands_over_a_label() -> None:
    report = labeled(steady(), {"batch_size": "64"})

    assert run("A", report).facts["samples"] == 64 * 400
    assert run("A", report, batch_size=1.0).facts["samples"] == 400


def of_batches(report: Report, **changes: Any) -> Report:
    """The report of a job with epochs of 50 steps, 63 batches of 256 samples and a rest."""
    found = Throughput(
        samples_per_step=250.0,
        tokens_per_step=1000.0,
        batch_size=256,
        ranks=2,
        ranks_known=2,
        inferred=True,
        start_us=0,
        width_us=1,
    )
    return replace(report, throughput=replace(found, **changes))


@pytest.mark.parametrize(
    ("report", "given", "batch_size", "per_step", "tokens"),
    [
        (of_batches(steady()), {}, 256, 250, 1000),
        # One rank of two says nothing of both.
        (of_batches(steady(), ranks_known=1, batch_size=None), {}, None, None, None),
        (of_batches(steady()), {"batch_size": 512.0, "tokens_per_step": 7.0}, 512, 512, 7),
        (labeled(of_batches(steady()), {"batch_size": "128"}), {}, 128, 128, 1000),
        (labeled(of_batches(steady()), {"batch_size": "256"}), {}, 256, 250, 1000),
    ],
    ids=["recorded", "one of two ranks", "given", "label", "equal label"],
)
def test_recorded_batches_count_as_known_unless_somebody_says_otherwise(
    report: Report,
    given: dict[str, float],
    batch_size: int | None,
    per_step: float | None,
    tokens: float | None,
) -> None:
    one = run("A", report, **given)

    assert one.facts["batch_size"] == batch_size
    assert one.facts["samples"] == (per_step and per_step * 400)
    steps_per_s = BY_KEY["steps_per_s"].of(one).value
    assert steps_per_s
    for key, size in (("samples_per_s", per_step), ("tokens_per_s", tokens)):
        rate = BY_KEY[key].of(one)
        assert rate.value == (size and pytest.approx(size * steps_per_s))
        # Tested within a run, as the time of steps is.
        assert (rate.sample is None) == (size is None)


def with_facts(**facts: Any) -> Report:
    source = SourceQuality(source="record-job", files=1, rows=1, recordings=(recording("n", **facts),))
    return replace(steady(), quality=Quality(sources=(source,)))


def logged(step: int, value: float) -> tuple[Logged, ...]:
    return (Logged(mode="TRAIN", name="loss", values=5, not_finite=0, step=step, value=value),)


def settings(**values: str) -> tuple[Label, ...]:
    return tuple(Label(key=key, value=value) for key, value in values.items())


def versions(**numbers: str) -> tuple[Version, ...]:
    return tuple(Version(what=what, number=number) for what, number in numbers.items())


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ({"commit": "a" * 40, "is_changed": False}, {"commit": "a" * 40, "is_changed": True}, {"commit"}),
        ({"commit": "a" * 40, "is_changed": False}, {}, set()),
        (
            {"versions": versions(torch="2.1", cuda="12")},
            {"versions": versions(torch="2.2", cuda="12")},
            {"version torch"},
        ),
        ({"versions": versions(torch="2.1")}, {}, set()),
        ({"config": settings(lr="1", a="1")}, {"config": settings(lr="1", b="1")}, {"config a", "config b"}),
        ({"config": settings(lr="1")}, {"config": settings(lr="2")}, {"config lr"}),
        # The other script gives none.
        ({"config": settings(lr="1")}, {}, set()),
        ({"config": settings(lr="1")}, {"config": settings(lr="…")}, set()),
        ({"config": settings(**{"…": "1"})}, {"config": settings(**{"…": "2"})}, set()),
        ({"logged": logged(5, 1.0)}, {"logged": logged(5, 2.0)}, {"log loss (TRAIN) at step 5"}),
        ({"logged": logged(5, 1.0)}, {"logged": logged(6, 2.0)}, set()),
        ({"world_size": 2}, {"world_size": 4}, {"world_size"}),
        ({"cpu_model": "a", "system": "b"}, {"cpu_model": "c", "system": "b"}, {"cpu_model"}),
    ],
)
def test_what_ran_is_a_difference_where_both_know_it(
    one: dict[str, Any], other: dict[str, Any], differ: set[str]
) -> None:
    found = differences({"A": facts_of(with_facts(**one), {}), "B": facts_of(with_facts(**other), {})})

    assert {fact.key for fact in found if fact.kind == "different"} == differ
    assert not {fact.key for fact in found if fact.kind != "different" and fact.key.startswith(OF_WHAT_RAN)}


BIG = {"instance_type": "big"}


@pytest.mark.parametrize(
    ("labels", "given", "per_hour"),
    [
        ({"region": "here"}, {}, 8.0),
        ({"region": "there"}, {}, 9.0),
        ({"region": "here", "spot": "true"}, {}, 3.0),
        # A label stands over the list, what is given over both.
        ({"region": "here", "price_per_node_hour": "2"}, {}, 2.0),
        ({"region": "here", "price_per_node_hour": "2"}, {"price_per_node_hour": 1.0}, 1.0),
        ({"region": "here", "cost": "5"}, {"price_per_node_hour": 1.0}, 1.0),
    ],
)
def test_region_spot_labels_and_what_is_given_choose_the_price(
    labels: dict[str, str], given: dict[str, float], per_hour: float
) -> None:
    assert priced_at(labeled(steady(), BIG | labels), **given) == per_hour


def test_memory_of_a_plain_data_parallel_job_is_no_reason_against_fewer_gpus() -> None:
    """A nearly full GPU may hold a part of a sharded model, unless a label says that it does not."""
    report = steady()
    assert report.demand
    memory = {"gpu_memory": 80.0 * 2**30, "gpu_memory_total": 96.0 * 2**30}
    full = replace(report, demand=replace(report.demand, gpus=0.5, used_gpus=2, all_gpus=2, **memory))
    prices = listed(
        Machine(type="big", per_hour=8.0, gpus=2, gpu_memory_gib=120, cores=8),
        Machine(type="small", per_hour=1.0, gpus=1, gpu_memory_gib=120, cores=8),
    )

    def fails(**labels: str) -> tuple[str, ...]:
        one = labeled(full, {"instance_type": "big", "gpus_per_node": "2", **labels})
        found = sizing(
            [run("A", replace(one, job=replace(one.job, nodes=(replace(one.job.nodes[0], gpus=2),))))], prices
        )
        assert found
        return next(one.fails for one in found.candidates if one.machine == "small")

    assert "GPU memory is nearly full, and may hold parts of a sharded model" in fails()
    assert fails(parallelism="ddp") == ()


def test_facts_that_only_traces_have_are_left_out_elsewhere() -> None:
    shown = {one.key for one in differences({"A": facts_of(steady(), {}), "B": facts_of(steady(), {})})}

    assert not {key for key in shown if key.startswith(("profile", "trace", "unknown"))}
    assert facts_of(of_traces(), {})["gpus"] is None
