"""The rule files as a reader of SageMaker Debugger's format takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import write_job

from jobreport import pipeline
from jobreport.options import Options
from jobreport.readers.debugger_results.rule_results import NAMES
from jobreport.settings import load
from jobrules import RULES
from tests import scenario_d1
from tests.once import slow_but
from tests.paths import SAMPLES

Files = dict[str, dict[str, Any]]
#: Low thresholds make more rules trigger: details are written then.
SETTINGS = (
    "CPUBottleneck.threshold=0",
    "CPUBottleneck.patience=120s",
    "LowGPUUtilization.patience=8m",
    "LowGPUUtilization.window=240",
)
BOX = ("p25", "p50", "p75", "p95", "upper", "lower")


def d1(folder: Path) -> None:
    scenario_d1.write_samples(folder)
    scenario_d1.write_events(folder)


def generated(name: str, folder: Path) -> None:
    spec = JobSpec.of(SCENARIOS[name], nodes=2, gpus=2, cores=4, duration_us=900_000_000)
    write_job(spec, folder, gzipped=False)


def sample(path: Path, folder: Path) -> None:
    folder.symlink_to(path)


JOBS: dict[str, Callable[[Path], None]] = {
    "d1": d1,
    "cpu-bottleneck": partial(generated, "cpu-bottleneck"),
    "few-loaders": partial(generated, "few-loaders"),
    **{path.name: partial(sample, path) for path in SAMPLES},
}


@pytest.fixture(scope="module", params=slow_but({"d1", "cpu-bottleneck", "few-loaders", "cpu-only"}, JOBS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    JOBS[request.param](root / "job")
    pipeline.make_report(
        root / "job",
        root / "out",
        Options(settings=load(assignments=SETTINGS), formats=["json"], strict=True),
    )
    return root / "out" / "rules"


@pytest.fixture
def files(folder: Path) -> Files:
    return {path.stem: json.loads(path.read_bytes()) for path in folder.glob("*.json")}


@pytest.fixture
def file(files: Files, rule: str) -> dict[str, Any]:
    if rule not in files:
        pytest.skip(f"{rule} was not evaluated")
    return files[rule]


#: What ``Details`` of an evaluated rule have in any case.
SCHEMA = {
    "CPUBottleneck": {"low_gpu_utilization", "bottlenecks"},
    "IOBottleneck": {"low_gpu_utilization", "bottlenecks"},
    "Dataloader": {"cores", "dataloaders"},
    "MaxInitializationTime": {"step_num", "job_start", "job_end"},
    "OverallFrameworkMetrics": {"ratio", "phase", "phase_time"},
    "OverallSystemUsage": {"Network", "GPU", "CPU", "CPU memory", "GPU memory", "I/O"},
    "StepOutlier": {"step_details"},
}


def test_the_folder_has_the_evaluated_rules_of_sagemaker_debugger_and_no_others(folder: Path) -> None:
    found = {path.stem: json.loads(path.read_bytes()) for path in folder.rglob("*.json")}
    expected = {path.stem for path in folder.glob("*.json")}
    assert found.keys() == {rule.__name__ for rule in RULES}
    evaluated = {name for name, file in found.items() if file["Status"] in ("passed", "triggered")}
    # Of logs alone, its figures are evaluated, but not those that readers look for.
    assert evaluated & set(NAMES) - expected <= {"OverallSystemUsage"}
    assert expected <= evaluated & set(NAMES)
    for name in expected:
        assert SCHEMA.get(name, set()) <= found[name]["Details"].keys()


def test_a_rule_that_raises_is_not_where_readers_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    d1(tmp_path / "job")
    monkeypatch.setattr("jobrules.rules.step_outlier.StepOutlier.check", fail)
    pipeline.make_report(tmp_path / "job", tmp_path / "out", Options(formats=["json"]))

    assert not (tmp_path / "out" / "rules" / "StepOutlier.json").exists()
    assert json.loads((tmp_path / "out/rules/more/StepOutlier.json").read_bytes())["Status"] == "error"


def test_counters_are_whole_and_parameters_can_be_read(files: Files) -> None:
    for rule, file in files.items():
        counters = [file[key] for key in ("RuleTriggered", "Violations", "Datapoints")]
        assert all(type(one) is int and one >= 0 for one in counters), rule
        parameters = dict(line.split(":") for line in file["RuleParameters"].splitlines())
        for name in ("patience", "window", "n_outliers"):
            assert int(parameters.get(name, 1)) >= 1
        assert all(value == "None" or float(value) >= 0 for value in parameters.values())
    times = {rule: file["ParameterTimes"] for rule, file in files.items() if file["ParameterTimes"]}
    expected = {"CPUBottleneck": {"patience": "120s"}, "LowGPUUtilization": {"patience": "480s"}}
    assert times == {rule: one for rule, one in expected.items() if rule in files}


@pytest.mark.parametrize("rule", ["LowGPUUtilization", "GPUMemoryIncrease", "BatchSize"])
def test_below_a_node_are_its_devices_with_their_figures(file: dict[str, Any]) -> None:
    details = file["Details"]
    assert type(details.pop("last_timestamp", 0)) is int
    for devices in details.values():
        for figures in devices.values():
            assert all(isinstance(figures[name], float) for name in BOX)


@pytest.mark.parametrize("rule", ["LoadBalancing"])
def test_below_a_node_are_histograms_and_the_distances_that_are_too_large(file: dict[str, Any]) -> None:
    for node in file["Details"].values():
        assert all(type(n) is int for bins in node["workloads"].values() for n in bins)
        assert {len(bins) for bins in node["workloads"].values()} == {49}
        rows = node.get("distances", {"": {"": 1.0}}).values()
        assert all(distance > 0.2 for row in rows for distance in row.values())


@pytest.mark.parametrize("rule", ["OverallSystemUsage"])
def test_usage_has_six_metrics_and_below_each_the_nodes(file: dict[str, Any]) -> None:
    details = file["Details"]
    assert list(details) == ["Network", "GPU", "CPU", "CPU memory", "GPU memory", "I/O"]
    for metric, nodes in details.items():
        assert nodes.keys() == details["CPU"].keys() or metric in ("GPU", "GPU memory")
        for figures in nodes.values():
            assert all(isinstance(figures[name], float) for name in ("max", "p99", "p95", "p50", "min"))


@pytest.mark.parametrize("rule", ["CPUBottleneck", "IOBottleneck"])
def test_keys_of_bottlenecks_are_times(file: dict[str, Any]) -> None:
    details = file["Details"]
    assert type(details["low_gpu_utilization"]) is int
    for key, found in details["bottlenecks"].items():
        assert 1e9 < float(key) < 2e9
        nodes = file["MoreDetails"]["bottlenecks"][key].values()
        assert found == {what: sum(one[what] for one in nodes) for what in ("GPUs", "CPUs")}
        assert min(found.values()) > 0
    if file["RuleTriggered"]:
        check_framework(details)


def check_framework(details: dict[str, Any]) -> None:
    for key in ("ratio", "phase", "phase_time"):
        assert all(isinstance(value, float | int) for value in details[key].values())


def test_framework_time_is_a_table(files: Files) -> None:
    for rule in ("OverallFrameworkMetrics", "StepOutlier"):
        if rule in files and (files[rule]["RuleTriggered"] or rule != "StepOutlier"):
            check_framework(files[rule]["Details"])


@pytest.mark.parametrize("rule", ["StepOutlier"])
def test_steps_are_tables(file: dict[str, Any]) -> None:
    details = file["Details"]
    for rank in details["step_details"].values():
        assert set(rank["step_stats"]) == {"mean", "max", "p99", "p95", "p50", "min"}
        assert len(rank["binedges"]) == len(rank["probs"]) + 1
        assert type(rank["number_of_outliers"]) is int
        assert all(int(number) >= 0 for number in rank["step_numbers"])


@pytest.mark.parametrize("rule", ["Dataloader"])
def test_loaders_are_counted(file: dict[str, Any]) -> None:
    assert all(type(file["Details"][key]) is int for key in ("cores", "dataloaders"))


def test_the_walk_meets_what_it_looks_for(tmp_path: Path) -> None:
    """The jobs above trigger all rules that have tables of nodes."""
    d1(tmp_path / "job")
    pipeline.make_report(tmp_path / "job", tmp_path / "out", Options(formats=["json"], strict=True))
    for rule in ("LowGPUUtilization", "GPUMemoryIncrease", "BatchSize", "LoadBalancing", "StepOutlier"):
        assert json.loads((tmp_path / "out" / "rules" / f"{rule}.json").read_bytes())["RuleTriggered"], rule
