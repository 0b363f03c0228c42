from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.base import SourceFile
from jobreport.readers.debugger_results import rule_results
from jobreport.readers.debugger_results.details import GpuUse
from jobreport.readers.debugger_results.rule_results import RuleResults
from jobreport.readers.registry import read_directory, read_job
from jobreport.remarks import Remark
from tests.report.readers.samples import FILE, remarks, sample, write

START = 1_700_000_000.5


def result(details: Any = None, **keys: Any) -> dict[str, Any]:
    """A rule result as SageMaker Debugger writes it."""
    empty = {"RuleTriggered": 0, "Violations": 0, "Datapoints": 0, "RuleParameters": ""}
    return empty | {"Details": {} if details is None else details} | keys


def read(directory: Path, files: dict[str, Any]) -> RuleResults:
    """Write documents (or texts, or bytes) below a directory and read them as rule results."""
    plain = (str, bytes)
    write(directory, {n: c if isinstance(c, plain) else json.dumps(c) for n, c in files.items()})
    return rule_results.read([SourceFile(name=name, place=str(directory / name)) for name in files])


def remarks_of(results: RuleResults) -> dict[str, Remark]:
    return {remark.code: remark for remark in results.quality.remarks}


def test_results_are_recognized_by_name_or_folder() -> None:
    results = ("LowGPUUtilization.json", "a/BatchSize.json.gz", "profiler-reports/Unheard.json")
    others = ("Unheard.json", "LowGPUUtilization.txt", "LowGPUUtilization", FILE)
    deeper = ("profiler-reports/deeper/Unheard.json", "profiler-output/profiler-report.html")

    for name in (*results, *others, *deeper):
        assert rule_results.matches_content(SourceFile(name=name, place=name)) == (name in results), name


def test_counters_and_parameters_are_read_by_name(tmp_path: Path) -> None:
    written = result(
        RuleTriggered=3, Violations=38, Datapoints=2159, RuleParameters="stddev:3\nmode:None\nn: 10 \nnoise"
    )

    found = read(tmp_path, {"StepOutlier.json": written})["StepOutlier"]

    assert found is not None
    assert (found.triggered, found.violations, found.datapoints) == (3, 38, 2159)
    assert found.parameters == {"stddev": "3", "mode": "None", "n": "10"}
    assert found.raw == written


def test_every_rule_is_decoded(tmp_path: Path) -> None:
    use = {"gpu_max": 86, "gpu_95": 77.0, "p25": 0, "p50": 0, "p75": 25, "p95": 78}
    times = {"job_start": START, "job_end": START + 60, "step_num": {"first": 1_700_000_010_000_000}}
    usage = {"min": 0, "p50": 1, "p95": 2, "p99": 3, "max": 4}
    outliers = {"number_of_outliers": 2, "step_stats": {"max": 8.5, "p50": 0.02}, "step_numbers": ["3", 3]}

    results = read(
        tmp_path,
        {
            "LowGPUUtilization.json": result(
                {
                    "algo-1": {"gpu0": use | {"upper": 62.5, "lower": 0, "new": 1}},
                    "last_timestamp": round(START * 1e6),
                }
            ),
            "GPUMemoryIncrease.json": result({"algo-1": {"gpu0": {"increase": 5.5, "gpu_max": 39}}}),
            "BatchSize.json": result({"algo-1": {"cpu": {}, "gpu1": {}, "gpu1_memory": {}}}),
            "LoadBalancing.json": result({"algo-1": {"workloads": {"gpu0": [1] * 49}}}),
            "MaxInitializationTime.json": result(times),
            "OverallSystemUsage.json": result({"CPU": {"algo-1": usage}, "GPU": {}, "I/O": {"algo-1": {}}}),
            "StepOutlier.json": result({"step_details": {"algo-1-33": outliers}, "ratio": {}}),
            "Dataloader.json": result({"cores": 4, "dataloaders": 2, "num_workers": 2}),
            "OverallFrameworkMetrics.json": result({"phase": {"others": 87.2, "Step:ModeKeys.TRAIN": 12.8}}),
        },
    )

    assert results.quality.remarks == ()
    assert results.low_gpu["algo-1", "gpu0"] == GpuUse(
        gpu_max=86, gpu_95=77, p25=0, p50=0, p75=25, p95=78, upper=62.5, lower=0
    )
    assert results.low_gpu_last_us == START * 1e6
    assert results.memory["algo-1", "gpu0"].increase == 5.5
    assert results.small_batch == (("algo-1", "gpu1"),)
    assert results.workloads == {("algo-1", "gpu0"): (1,) * 49}
    assert (results.start_us, results.end_us) == (1_700_000_000_500_000, 1_700_000_060_500_000)
    assert (results.first_step_us, results.last_step_us) == (1_700_000_010_000_000, None)
    assert {metric: set(nodes) for metric, nodes in results.usage.items() if nodes} == {"CPU": {"algo-1"}}
    assert results.usage["CPU"]["algo-1"].p99 == 3
    assert results.steps["algo-1-33"].step_stats.max == 8.5
    assert (results.loader.cores, results.loader.num_workers) == (4, 2)
    assert results.phases == {"others": 87.2, "Step:ModeKeys.TRAIN": 12.8}


@pytest.mark.parametrize("layout", ["new", "of 2020"])
def test_bottlenecks_are_read_in_both_layouts(tmp_path: Path, layout: str) -> None:
    times = {"1736889979.003288": {"GPUs": 1, "CPUs": 4}, "1736889978.00174": {"GPUs": 1, "CPUs": 1}}
    details = {"bottlenecks": times} if layout == "new" else times

    results = read(tmp_path, {"IOBottleneck.json": result({"low_gpu_utilization": 3100, **details})})

    found = results.bottlenecks["IOBottleneck"]
    assert (found.low, found.count) == (3100, 2)
    assert found.time_us.tolist() == [1_736_889_978_001_740, 1_736_889_979_003_288]
    assert (found.first_us, found.last_us) == (found.time_us[0], found.time_us[1])
    assert (found.gpus.tolist(), found.cores.tolist()) == ([1, 1], [1, 4])


def test_a_wrong_value_is_none_and_counted(tmp_path: Path) -> None:
    good = {"increase": 5.5, "gpu_max": 39}
    bad = {"increase": {"deep": {"er": []}}, "gpu_max": 39}
    details = {"algo-1": {"gpu0": bad, "gpu1": good, "gpu2": []}, "algo-2": 7, "last_timestamp": "soon"}

    results = read(tmp_path, {"GPUMemoryIncrease.json": result(details, RuleTriggered=[1], Datapoints=-3)})

    memory = {gpu: (use.increase, use.gpu_max) for (_, gpu), use in results.memory.items()}
    assert memory == {"gpu0": (None, None), "gpu1": (5.5, 39), "gpu2": (None, None)}
    found = results["GPUMemoryIncrease"]
    assert found is not None
    assert (found.triggered, found.violations, found.datapoints) == (None, None, None)
    assert remarks_of(results)["debugger.value"].count == 5


def test_a_node_whose_figures_cannot_be_used_costs_no_other_node(tmp_path: Path) -> None:
    usage = {"min": 0, "p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0}
    nodes = {
        "algo-1": usage,
        "algo-2": usage | {"max": None},
        "algo-3": usage | {"max": "x"},
        "algo-4": usage | {"p99": 101},
        "algo-5": {},
    }
    results = read(
        tmp_path,
        {"OverallSystemUsage.json": result({"CPU": nodes, "Network": {"algo-1": usage | {"max": 1e9}}})},
    )

    assert [(node, use.max) for node, use in results.usage["CPU"].items()] == [("algo-1", 4)]
    assert results.usage["Network"]["algo-1"].max == 1e9
    assert remarks_of(results)["debugger.value"].count == 3


def test_parameters_without_end_are_not_read(tmp_path: Path) -> None:
    results = read(tmp_path, {"StepOutlier.json": result(RuleParameters="p:1\n" * 100)})

    assert results.documents[0].parameters == {}
    assert remarks_of(results)["debugger.value"].count == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "file.empty"),
        ('{"RuleTriggered": 1', "file.not_json"),
        ("[" * 100_000, "file.not_json"),
        ('{"RuleTriggered": ' + "9" * 5000 + "}", "file.not_json"),
        (b"\x00\xff\xfe", "file.not_json"),
        ("[1, 2]", "debugger.no_result"),
        ('{"other": 1}', "debugger.no_result"),
        ('{"Details": ' + '{"a": ' * 900 + "1" + "}" * 901, "debugger.no_result"),
        (gzip.compress(b"{}" * 50, mtime=0)[:-12], "file.damaged"),
        (gzip.compress(b" " * (65 << 20)), "file.large"),
    ],
    ids=range(10),
)
def test_what_is_no_result_is_skipped_with_a_reason(tmp_path: Path, content: str | bytes, code: str) -> None:
    results = read(tmp_path, {"BatchSize.json": content, "Dataloader.json": result()})

    assert [one.rule for one in results.documents] == ["Dataloader"]
    assert remarks_of(results)[code].place == "BatchSize.json"


def test_numbers_that_json_does_not_have_are_none(tmp_path: Path) -> None:
    text = '{"RuleTriggered": 1, "Details": {"phase": {"a": NaN, "b": -Infinity, "\\ud800": 5}}}'

    results = read(tmp_path, {"OverallFrameworkMetrics.json": text})

    assert list(results.phases.values()) == [5]
    assert json.dumps(results.documents[0].raw, allow_nan=False)
    assert remarks_of(results)["debugger.value"].count == 2


@pytest.mark.parametrize(
    "times", [(START, START - 1), (1.0, START), (-5.0, START), (START, 1e18), ("x", START)]
)
def test_times_of_a_job_that_cannot_be_are_none(tmp_path: Path, times: tuple[float, float]) -> None:
    results = read(
        tmp_path, {"MaxInitializationTime.json": result({"job_start": times[0], "job_end": times[1]})}
    )

    assert (results.start_us, results.end_us) == (None, None)
    assert remarks_of(results)["debugger.value"].count == 1


def test_the_newest_run_is_taken_by_the_number_of_its_folder(tmp_path: Path) -> None:
    place = "ProfilerReport-{}/profiler-output/profiler-reports/{}.json"

    results = read(
        tmp_path,
        {
            place.format(999, "BatchSize"): result(Datapoints=1),
            place.format(999, "Dataloader"): result(Datapoints=1),
            place.format(1700000000, "BatchSize"): result(Datapoints=2),
            "BatchSize.json": result(Datapoints=3),
        },
    )

    assert [(one.rule, one.datapoints) for one in results.documents] == [("BatchSize", 2)]
    (remark,) = results.quality.remarks
    assert (remark.code, remark.count, remark.fields) == ("debugger.older_run", 3, {"run": 1_700_000_000})


def test_a_newer_run_of_damaged_files_does_not_hide_an_older_one(tmp_path: Path) -> None:
    files = {"ProfilerReport-1/BatchSize.json": result(Datapoints=1), "ProfilerReport-2/BatchSize.json": "{"}

    assert [one.datapoints for one in read(tmp_path, files).documents] == [1]


def test_of_two_results_of_a_rule_the_first_by_name_is_used(tmp_path: Path) -> None:
    files = {"b/BatchSize.json": result(Datapoints=2), "a/BatchSize.json": result(Datapoints=1)}

    results = read(tmp_path, files)

    assert [one.datapoints for one in results.documents] == [1]
    assert remarks_of(results)["debugger.second"].place == "b/BatchSize.json"


def test_what_make_report_wrote_is_no_result_of_sagemaker_debugger(tmp_path: Path) -> None:
    ours = result(Status="passed")

    results = read(
        tmp_path,
        {"BatchSize.json": ours, "Dataloader.json": ours | {"Origin": "debugger_results", "Datapoints": 4}},
    )

    assert [(one.rule, one.datapoints) for one in results.documents] == [("Dataloader", 4)]
    assert list(remarks_of(results)) == ["debugger.own"]


def test_results_next_to_samples_are_used_in_addition(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            FILE: [sample()],
            "profiler-reports/BatchSize.json": json.dumps(result()),
            "rules/Dataloader.json": json.dumps(result(Status="passed")),
        },
    )

    reading = read_directory(tmp_path)

    assert reading.debugger_results is not None
    assert not reading.has_results_alone
    assert reading.job.panels
    (source,) = (one for one in reading.quality.sources if one.source == rule_results.SOURCE)
    assert [(one.code, one.count, one.place) for one in source.remarks] == [
        ("debugger.in_addition", 1, "profiler-reports/BatchSize.json"),
        ("debugger.own", 1, "rules/Dataloader.json"),
    ]


def test_results_next_to_samples_give_steps_and_fetches(tmp_path: Path) -> None:
    first, last = 1_700_000_010_000_000, 1_700_000_500_000_000
    results = {
        "BatchSize": result(),
        "MaxInitializationTime": result({"step_num": {"first": first, "last": last}}),
        "OverallFrameworkMetrics": result({"phase": {"others": 80, "Step:ModeKeys.TRAIN": 20}}),
        "Dataloader": result({"num_workers": 0, "dataloading_time": {"p50": 0.5}}, Datapoints=7),
    }
    write(
        tmp_path,
        {FILE: [sample()]}
        | {f"profiler-reports/{name}.json": json.dumps(one) for name, one in results.items()},
    )

    reading = read_directory(tmp_path)

    facts = reading.job.loop_facts
    assert facts is not None
    assert (facts.steps_us, facts.num_workers, facts.fetch_s, facts.fetches) == ((first, last), 0, 0.5, 7)
    # Half of the time outside of steps is missing in the result.
    assert facts.outside == pytest.approx(160 / 180)
    assert facts.waited == facts.outside
    (source,) = (one for one in reading.quality.sources if one.source == rule_results.SOURCE)
    assert source.files == 4
    assert [(one.action, one.count) for one in source.remarks] == [("used", 4)]


def test_a_reader_that_stops_costs_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(rule_results, "read", fail)
    write(tmp_path, {FILE: [sample()], "BatchSize.json": json.dumps(result())})

    found = remarks(read_directory(tmp_path).quality)

    assert [one.action for reason, one in found.items() if "ZeroDivisionError: no" in reason] == ["failed"]
    with pytest.raises(ZeroDivisionError):
        read_directory(tmp_path, Options(strict=True))


def test_results_alone_are_a_reading_but_no_job(tmp_path: Path) -> None:
    write(tmp_path, {"BatchSize.json": json.dumps(result()), "profiler-report.html": "<html>"})

    reading = read_directory(tmp_path)

    assert reading.debugger_results is not None
    assert [one.rule for one in reading.debugger_results.documents] == ["BatchSize"]
    assert "profiler-report.html" in {one.place for one in reading.quality.remarks}
    with pytest.raises(NothingReadableError, match="holds rule results, but no samples"):
        read_job(tmp_path)
