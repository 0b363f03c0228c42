"""Distributions over time, sums of events, data loading, windows, and exported tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jobreport import JobReportError, open_job
from jobreport.compare import compare_reports
from jobreport.library import captures, machine_time, results
from jobreport.library.job import JobFrames
from jobreport.options import Options
from jobrules.model import SECOND_US, Function, Job, JobInMemory, Metric, Profile
from tests import copies
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.paths import ROOT
from tests.report.library.frames import opened
from tests.report.library.test_tables import nested, types, uneven
from tests.stacks import make_stacks

BUSY = "cpu-bottleneck-2gpu"


@pytest.fixture(scope="module")
def busy() -> JobFrames:
    return open_job(ROOT / "sample_data" / BUSY)


@pytest.fixture(scope="module")
def page() -> Any:
    return json.loads((ROOT / "tests" / "golden" / f"{BUSY}.json").read_bytes())


def test_a_mean_is_weighted_by_time() -> None:
    (row,) = opened(uneven()).percentiles("gpu_utilization", q=(0, 0.5, 0.5, 0.7, 1)).to_dict("records")

    assert row == {
        "metric": "gpu_utilization",
        "node": "algo-1",
        "device": "gpu0",
        "phase": "",
        "unit": "%",
        "measured_s": 5,
        "mean": 30,
        "min": 0,
        "max": 100,
        "p0": 0,
        "p50": 0,
        "p70": 50,
        "p100": 100,
    }


@pytest.mark.parametrize(
    ("asked", "mean", "measured_s"),
    [
        ({"start": "500ms", "end": "2s"}, 100 / 3, 1.5),
        ({"phase": "TRAIN"}, (50 + 0 + 0.5 * 50) / 3.5, 3.5),
        ({"phase": "TRAIN", "start": "4s"}, 50, 0.5),
    ],
)
def test_a_distribution_is_of_a_window_and_of_a_phase(asked: Any, mean: float, measured_s: float) -> None:
    steps = joined_steps(make_steps([(0.5, 3), (3.5, 4.5)]), make_steps([(4.5, 5)], phase="EVAL"))
    job = replace(in_memory(uneven()), steps=steps)

    (row,) = opened(job).percentiles(**asked).to_dict("records")

    assert row["mean"] == pytest.approx(mean)
    assert row["measured_s"] == measured_s


def in_memory(job: Job) -> JobInMemory:
    assert isinstance(job, JobInMemory)
    return job


def test_quantiles_are_those_of_values_that_are_repeated_for_as_long_as_they_hold() -> None:
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.integers(1, 50, 300))
    values = rng.integers(0, 100, 300).astype(float)
    panel = make_panel(Metric.GPU_POWER, values, time_us=[START_US + int(one) * 1000 for one in times])
    job = opened(make_job(extra=[panel]))
    held = np.sort(np.repeat(values[:-1], np.diff(times)))

    found = job.percentiles(q=(0.1, 0.5, 0.9), end=int(panel.time_us[-1]))

    assert found["mean"][0] == pytest.approx(held.mean())
    assert [found[name][0] for name in ("p10", "p50", "p90")] == [
        held[int(np.ceil(q * len(held))) - 1] for q in (0.1, 0.5, 0.9)
    ]


def test_a_distribution_of_each_phase_is_that_of_its_time(busy: JobFrames) -> None:
    phases = busy.phases()

    found = busy.percentiles("gpu_utilization", by=("node", "phase"))

    assert len(phases) > 1
    assert found["phase"].tolist() == phases["name"].tolist()
    for i, (start, end) in enumerate(zip(phases["start_us"], phases["end_us"], strict=True)):
        (alone,) = busy.percentiles("gpu_utilization", by=("node",), start=start, end=end).to_dict("records")
        assert found.loc[i].to_dict() == alone | {"phase": phases["name"][i]}
    whole = busy.percentiles("gpu_utilization", by=("node",))
    assert found["measured_s"].sum() == pytest.approx(whole["measured_s"][0])


def test_a_phase_begins_by_the_clock_of_each_node() -> None:
    late_us = 120 * SECOND_US
    parts = [
        make_job(
            extra=[make_panel(Metric.GPU_UTILIZATION, values, interval_s=1, start_us=start, node=node)],
            steps=make_steps([(i, i + 0.9) for i in range(20, 60)], node=node, start_us=start),
        )
        for node, start in (("algo-1", START_US), ("algo-2", START_US + late_us))
        for values in [[0] * 20 + [80] * 41]
    ]

    found = opened(*parts).percentiles(by=("node", "phase"), q=())

    assert found["node"].tolist() == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert found["mean"].tolist() == [0, 80, 0, 80]


def test_means_are_those_of_the_rule(busy: JobFrames) -> None:
    means = busy.rule("LowMeanUtilization", threshold=100).details["means"]

    found = busy.percentiles("gpu_utilization")

    assert dict(zip(found["node"] + "/" + found["device"], found["mean"], strict=True)) == pytest.approx(
        means
    )
    together = busy.percentiles("gpu_utilization", by=("node",))
    assert together["mean"][0] == pytest.approx(np.mean(list(means.values())))
    assert together["device"].tolist() == [""]


def test_sums_of_events_are_those_of_the_page(busy: JobFrames, page: Any) -> None:
    operators, phases = busy.framework_time("operator"), busy.framework_time()

    for table in page["framework"]["operators"]:
        own = operators[operators["kind"] == table["device"].lower()].set_index("name")
        assert own["self_us"].sum() == round(table["self_s"] * SECOND_US)
        for row in table["rows"]:
            one = own.loc[row["name"]]
            assert (one["calls"], one["self_us"], one["total_us"]) == (
                row["calls"],
                round(row["self_s"] * SECOND_US),
                round(row["total_s"] * SECOND_US),
            )
            assert 100 * one["share"] == pytest.approx(row["percent"], abs=0.051)
    general = phases[phases["kind"] == "general"]
    assert dict(zip(general["name"], general["total_us"] / SECOND_US, strict=True)) == {
        one["name"]: one["seconds"] for one in page["framework"]["general"]
    }


def test_data_loading_is_that_of_the_page(busy: JobFrames, page: Any) -> None:
    loaders, fetches = busy.loaders(), busy.fetches()
    (setup,), times = page["data_loading"]["setups"], page["data_loading"]["times"][0]

    assert loaders["fetches"].sum() == setup["fetches"] == len(fetches)
    assert set(loaders["kind"]) == {setup["iterator"]}
    assert set(loaders["processes"]) == set(fetches["processes"]) == {setup["num_workers"]}
    assert fetches["duration_us"].median() / SECOND_US == times["p50_s"]
    assert fetches["outlier"].sum() == times["outliers"]


def test_a_fetch_of_more_than_twice_the_median_is_an_outlier_and_its_loader_may_be_unknown() -> None:
    events = make_events([("DataLoaderIter", "GetNext", i, i + (0.5 if i == 3 else 0.1)) for i in range(5)])

    found = opened(make_job(events=events)).fetches()

    assert found["outlier"].tolist() == [False, False, False, True, False]
    assert found["processes"].isna().all()
    assert types(found) == machine_time.FETCHES


def test_phases_of_ranks_are_those_of_the_page(busy: JobFrames, page: Any) -> None:
    waits = page["rank_waits"]

    found = busy.rank_waits()

    assert found["median_us"].tolist() == [us for rank in waits["ranks"] for us in rank["median_us"]]
    assert found["part"].tolist() == 2 * [one["key"] for one in waits["phases"]]
    assert found["late"].sum() == waits["late"] * len(waits["phases"])


def test_lines_of_code_are_those_of_the_page() -> None:
    samples = [(i * 100_000, ["train.py:10 main", "data.py:4 load"]) for i in range(300)]
    job = make_job(gpu=[0, 90] * 30, cpu=[10] * 60, steps=make_steps([(0, 30)]))
    one = opened(replace(in_memory(job), stacks=(make_stacks(samples),)))

    found, lines = one.code_lines(), one.report().report.code_lines

    assert lines
    assert found["line"].tolist() == [line.place.name for line in lines.lines] == ["data.py:4 load"]
    assert found["samples"].sum() == lines.samples
    assert found.attrs["waiting"] == lines.waiting


def test_profiles_have_their_functions() -> None:
    function = Function(file="train.py", line=4, name="load", calls=None, self_s=1.5, total_s=2.0)
    profile = Profile(
        node="algo-1", rank="1", profiler="Pyinstrument", start_us=START_US, end_us=START_US + SECOND_US,
        begin="step 1", end="step 2", functions=(function,), count=9, self_s=3.0,
    )  # fmt: skip
    job = opened(make_job(cpu=[1, 2]), profiles=(profile,))

    (one,), (row,) = job.profiles().to_dict("records"), job.functions().to_dict("records")

    assert (one["worker"], one["functions"], one["self_s"], one["until"]) == ("1", 9, 3.0, "step 2")
    assert (row["function"], row["line"], row["self_s"], row["total_s"]) == ("load", 4, 1.5, 2.0)
    assert pd.isna(row["calls"])
    assert types(job.functions()) == types(opened(make_job(cpu=[1, 2])).functions())


def test_functions_are_those_of_a_phase_a_profiler_and_a_node() -> None:
    steps = make_steps([(i, i + 0.9) for i in range(20, 60)])
    function = Function(file="train.py", line=4, name="load", calls=None, self_s=1.5, total_s=2.0)
    early = Profile(
        node="algo-1", rank="0", profiler="Pyinstrument", start_us=START_US - SECOND_US, end_us=START_US + SECOND_US,
        begin="", end="", functions=(function,) * 25, count=99, self_s=3.0,
    )  # fmt: skip
    in_loop = copies.replace(early, profiler="cProfile", node="other", start_us=START_US + 30 * SECOND_US)
    job = opened(make_job(gpu=[0] * 40 + [80] * 80, steps=steps), profiles=(early, in_loop))
    before, loop, *_ = job.phases()["name"]

    def profilers(**asked: Any) -> list[str]:
        return list(dict.fromkeys(job.functions(**asked)["profiler"]))

    assert len(job.functions()) == 20
    assert len(job.functions(3)) == 6
    assert len(job.functions(None)) == 50
    assert profilers() == ["Pyinstrument", "cProfile"]
    assert profilers(phase=before) == profilers(node="algo-1") == profilers(timer="Pyinstrument")
    assert profilers(phase=loop) == profilers(node="other") == profilers(timer="cProfile") == ["cProfile"]
    assert profilers(phase=loop, node="algo-1") == []
    assert job.functions(timer="cProfile").attrs["filters"] == {"timer": "cProfile"}
    with pytest.raises(KeyError, match="did you mean cProfile"):
        job.functions(timer="cprofile")


def test_a_comparison_is_that_of_compare_reports(busy: JobFrames, tmp_path: Path) -> None:
    other = ROOT / "sample_data" / "healthy-8gpu"

    found = busy.compare(open_job(other))

    runs = [f"this={ROOT / 'sample_data' / BUSY}", f"other={other}"]
    compare_reports(runs, tmp_path / "out", options=Options(formats=["json"]))
    page = json.loads((tmp_path / "out" / "comparison.json").read_bytes())
    assert found.answer == page["answer"]
    assert found.measures["key"].tolist() == [one["key"] for one in page["measures"]]
    for column, value in (
        ("this", lambda one: one["values"]["this"]),
        ("other", lambda one: one["values"]["other"]),
        ("low", lambda one: one["against"]["other"]["low"]),
    ):
        values = [None if pd.isna(one) else one for one in found.measures[column]]
        assert values == [*map(value, page["measures"])]
    assert found.differences["fact"].tolist() == [one["label"] for one in page["differences"]]


def test_traces_of_pytorch_are_those_of_the_page() -> None:
    page = json.loads((ROOT / "tests" / "golden" / "late-rank-4gpu.json").read_bytes())
    job = open_job(ROOT / "sample_data" / "late-rank-4gpu")
    found = {name: job.captures(name) for name in captures.TABLES}
    devices = [one for capture in page["captures"] for one in capture["devices"]]

    for name, of_page in {
        "devices": devices,
        "kernels": [one for device in devices for one in device["kernels"]],
        "operators": [one for capture in page["captures"] for one in capture["operators"]],
        "collectives": page["across_ranks"]["collectives"],
    }.items():
        assert of_page
        columns = set(found[name]) & set(of_page[0])
        assert len(columns) >= len(set(found[name])) - 4
        for column in columns:
            values = [None if pd.isna(one) else one for one in found[name][column]]
            assert values == [one[column] for one in of_page], (name, column)
    idle = found["idle"].groupby(["file", "device"], sort=False)["idle_ns"].sum()
    assert idle.tolist() == [one["idle_ns"] for one in devices]
    assert found["devices"]["rank"].tolist() == [0, 1, 2, 3]
    for name, frame in found.items():
        assert types(frame) == {column: kind for column, (kind, _) in captures.TABLES[name].items()}
    empty = opened(make_job(cpu=[1, 2])).captures("idle")
    assert types(empty) == types(found["idle"])
    assert "no traces" in empty.attrs["reason"]


def test_a_window_holds_what_happened_in_it() -> None:
    job = opened(replace(in_memory(nested()), panels=in_memory(uneven()).panels))
    window = job.window("3s", "12s")

    found = window.summary()

    assert found[["kind", "name"]].to_numpy().tolist() == [
        ["metric", "gpu_utilization"],
        ["event type", "Forward"],
    ]
    assert found["mean"][0] == job.percentiles(start="3s", end="12s")["mean"][0]
    assert found["total_us"][1] == 9 * SECOND_US
    assert window.samples()["value"].tolist() == [50]
    assert window.steps()["step"].tolist() == [1]
    assert len(window.events(name="B")) == 1


def test_nothing_recorded_has_all_columns_and_a_reason() -> None:
    job = opened(make_job(cpu=[1, 2]))
    no_samples = opened(make_job(steps=make_steps([(0, 1)])))

    for found, columns, reason in (
        (job.framework_time(), machine_time.FRAMEWORK_TIME, "no traces were found"),
        (job.loaders(), machine_time.LOADERS, "no traces were found"),
        (job.fetches(), machine_time.FETCHES, "no traces were found"),
        (no_samples.percentiles(q=()), machine_time.PERCENTILES, "no samples were found"),
        (job.percentiles("gpu_power", q=()), machine_time.PERCENTILES, "gpu_power: not recorded"),
        (job.profiles(), results.PROFILES, "no profiles of Python code were found"),
        (job.functions(), results.FUNCTIONS, "no profiles of Python code were found"),
        (job.code_lines(), results.CODE_LINES, "no stacks of Python code were sampled"),
        (job.rank_waits(), results.RANK_WAITS, "no steps of several ranks end together"),
    ):
        assert found.empty
        kinds = {name: kind if isinstance(kind, str) else kind[0] for name, kind in columns.items()}
        assert types(found) == kinds
        assert found.attrs["reason"] == reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda job: job.percentiles(by=("worker",)), "worker; known are node, device, phase"),
        (lambda job: job.percentiles(phase="TRIAL"), "TRIAL; did you mean TRAIN?"),
        (lambda job: job.framework_time("operators"), "operators; did you mean operator?"),
        (lambda job: job.export("x", "xlsx"), "xlsx; known are parquet, csv, jsonl"),
        (lambda job: job.export("x", "csv", ["sample"]), "sample; did you mean samples?"),
    ],
)
def test_an_unknown_word_is_an_error_with_a_near_one(call: Any, message: str, busy: JobFrames) -> None:
    with pytest.raises(KeyError, match=re.escape(message)):
        call(busy)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_tables_are_exported(format: str, busy: JobFrames, tmp_path: Path) -> None:
    files = busy.export(tmp_path / "out", format, ["steps", "findings", "metrics"])

    assert [one.name for one in files] == [f"{name}.{format}" for name in ("steps", "metrics", "findings")]
    steps = pd.read_csv(files[0]) if format == "csv" else pd.read_json(files[0], lines=True)
    expected = busy.steps()
    assert list(steps) == list(expected)
    assert steps["duration_us"].tolist() == expected["duration_us"].tolist()
    assert pd.to_datetime(steps["start"], utc=True).tolist() == expected["start"].tolist()
    assert steps["since_start"][0] == expected["since_start"][0] // pd.Timedelta("1us")
    # An exported table leaves the frame as it was.
    assert busy.steps().attrs["job"] == BUSY


def test_parquet_says_what_it_needs(busy: JobFrames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobreport.library.job.find_spec", lambda _: None)

    with pytest.raises(JobReportError, match="pyarrow"):
        busy.export(tmp_path)
    assert not list(tmp_path.iterdir())


def test_parquet_keeps_types(busy: JobFrames, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    for file in busy.export(tmp_path, tables=["steps", "findings"]):
        found = pd.read_parquet(file)
        assert len(found) == len(getattr(busy, file.stem)())


def test_times_of_two_clocks_are_each_its_own() -> None:
    """A node whose clock is two minutes ahead: its samples stand for the time of its own clock."""
    late_us = 120 * SECOND_US
    parts = [
        make_job(
            extra=[make_panel(Metric.GPU_UTILIZATION, [50] * 61, interval_s=1, start_us=start, node=node)],
            steps=make_steps([(i, i + 0.9) for i in range(60)], node=node, start_us=start),
        )
        for node, start in (("algo-1", START_US), ("algo-2", START_US + late_us))
    ]

    found = opened(*parts).percentiles(by=("node",), q=())

    assert found["mean"].tolist() == [50, 50]
    assert found["measured_s"].tolist() == [60, 60]
