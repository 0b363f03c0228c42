"""Facts of runs: what the user gave, what was measured, and labels of recordings."""

from __future__ import annotations

import pytest

from jobreport.comparison.build import Settings, compare
from jobreport.comparison.runs import differences
from jobreport.cost.billing import cost_of
from jobreport.cost.facts import facts_of
from jobreport.cost.prices import Machine, Prices
from jobreport.cost.sizes import sizing
from jobreport.document import Report
from jobreport.recordings import GPUModel, Label
from jobreport.remarks import Quality, SourceQuality
from tests.copies import replace
from tests.report.comparison.runs import of_traces, run, steady
from tests.report.page.sections.test_recordings import recording

PRICES = Prices(
    currency="USD",
    source="list",
    as_of="2026-01-01",
    machines=(
        Machine(type="big", region="here", per_hour=8.0, spot_per_hour=3.0, gpus=2, cores=8),
        Machine(type="big", region="there", per_hour=9.0, gpus=2, cores=8),
    ),
)


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


def test_what_the_user_gives_stands_over_a_label_and_a_label_over_the_list() -> None:
    report = labeled(
        steady(), {"instance_type": "big", "region": "here", "price_per_node_hour": "2", "batch_size": "64"}
    )

    given = run("A", report, price_per_node_hour=1.0)
    assert (found := cost_of(given, PRICES, "1s"))
    assert found.per_hour == 1.0
    assert (found := cost_of(run("A", report), PRICES, "1s"))
    assert (found.per_hour, found.machine) == (2.0, "big")
    paid = run("A", labeled(steady(), {"cost": "5"}), price_per_node_hour=1.0)
    assert (found := cost_of(paid, None, "1s"))
    assert found.per_hour == 1.0
    assert run("A", report).facts["samples"] == 64 * 400
    assert run("A", report, batch_size=1.0).facts["samples"] == 400


@pytest.mark.parametrize(
    ("labels", "per_hour"),
    [({"region": "here"}, 8.0), ({"region": "there"}, 9.0), ({"region": "here", "spot": "true"}, 3.0)],
)
def test_region_and_spot_choose_the_price(labels: dict[str, str], per_hour: float) -> None:
    report = labeled(steady(), {"instance_type": "big", **labels})

    assert (found := cost_of(run("A", report), PRICES, "1s"))
    assert found.per_hour == per_hour


def test_batches_of_labels_decide_what_is_compared() -> None:
    a, b = labeled(steady(), {"batch_size": "64"}), labeled(steady(2.0, n=200), {"batch_size": "128"})
    found = compare([run("A", a), run("B", b)], Settings(), "")

    assert found.headline == "samples_per_s"
    assert {fact.key for fact in found.differences if fact.kind == "different"} >= {"batch_size"}
    assert not any(note.kind == "work" for note in found.notes)


def test_memory_of_a_plain_data_parallel_job_is_no_reason_against_fewer_gpus() -> None:
    """A nearly full GPU may hold a part of a sharded model, unless a label says that it does not."""
    report = steady()
    assert report.demand
    full = replace(
        report,
        demand=replace(
            report.demand,
            gpus=0.5,
            used_gpus=2,
            all_gpus=2,
            gpu_memory=80.0 * 2**30,
            gpu_memory_total=96.0 * 2**30,
        ),
    )
    prices = replace(
        PRICES,
        machines=(
            Machine(type="big", per_hour=8.0, gpus=2, gpu_memory_gib=120, cores=8),
            Machine(type="small", per_hour=1.0, gpus=1, gpu_memory_gib=120, cores=8),
        ),
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
