"""The verdict on rule results alone, on small results that are written by hand; situations f and h of the issue too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.debugger_report.histograms import LEVELS, Histogram
from jobreport.document import Report
from jobreport.output import summary
from jobreport.page.sections import findings as findings_section
from jobreport.page.sections import verdict as verdict_section
from jobrules.model import Severity, in_words
from jobrules.verdict.accounting import UNEXPLAINED
from tests.jobs import make_job
from tests.report.debugger_report.written_results import built
from tests.report.page.sections.html import read
from tests.verdicts import found, keys, parts, verdict_of

START = 1_700_000_000
#: A job of 1,000 s with two samples per second.
LENGTH, SAMPLES = 1000, 2000


def result(details: Any, datapoints: int = SAMPLES, triggered: int = 0) -> dict[str, Any]:
    return {
        "RuleTriggered": triggered,
        "Violations": triggered,
        "Datapoints": datapoints,
        "Details": details,
        "RuleParameters": "patience:1000",
    }


def balance(**gpus: dict[int, int]) -> dict[str, Any]:
    """Samples by percent, of GPUs of one node."""
    bins = {gpu: np.bincount([p // 2 for p in at], list(at.values()), 50) for gpu, at in gpus.items()}
    return result({"algo-1": {"workloads": {gpu: [int(n) for n in one[:49]] for gpu, one in bins.items()}}})


def times(first: float | None = None, last: float | None = None) -> dict[str, Any]:
    steps = {} if first is None or last is None else {"first": micros(first), "last": micros(last)}
    return result({"job_start": START, "job_end": START + LENGTH, "step_num": steps})


def micros(at: float) -> int:
    return int((START + at) * 1e6)


def bottlenecks(at: dict[float, int], gpus: int = 1) -> dict[str, Any]:
    """Number of cores by the second of the job."""
    entries = {f"{START + second:.6f}": {"GPUs": gpus, "CPUs": n} for second, n in at.items()}
    return result({"low_gpu_utilization": len(at), "bottlenecks": entries})


def loader(fetch_s: float, num_workers: int = 0, cores: int = 8) -> dict[str, Any]:
    details = {
        "cores": cores,
        "dataloaders": max(1, num_workers),
        "num_workers": num_workers,
        "dataloading_time": {"p50": fetch_s},
    }
    return result(details, datapoints=10)


def usage(gpu_max: float = 100) -> dict[str, Any]:
    def of(most: float) -> dict[str, Any]:
        return {"algo-1": {"min": 0, "p50": 0, "p95": most, "p99": most, "max": most}}

    return result({"GPU": of(gpu_max), "CPU": of(60), "I/O": of(5)})


def outside(others: float) -> dict[str, Any]:
    return result({"phase": {"others": others, "Step:ModeKeys.TRAIN": 100 - others}}, datapoints=0)


def steps(p50: float, mean: float, n: int) -> dict[str, Any]:
    stats = {"p50": p50, "mean": mean, "max": 10 * p50}
    details = {"algo-1-27": {"phase": "Step:ModeKeys.TRAIN", "number_of_outliers": 0, "step_stats": stats}}
    return result({"step_details": details}, datapoints=n)


def test_h_how_much_was_used_comes_from_the_histogram(tmp_path: Path) -> None:
    """Was: GPU-hours cannot be computed without samples."""
    # A quarter of the samples is at 99%, where the histogram has no bin.
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1000, 20: 500, 99: 500}),
    )

    assert report.verdict.use is not None
    used = (500 * 20.5 + 500 * 99.5) / SAMPLES
    assert parts(report.verdict)["used"] == pytest.approx(used, abs=0.1)
    assert report.verdict.use.hours == pytest.approx(LENGTH / 3600, abs=0.001)
    page = read(verdict_section(report)).text
    for text in (page, summary.markdown(report), summary.terminal(report)[0]):
        assert "30.0" in text
        assert "according to SageMaker Debugger" in text
        assert "edian" not in text


def test_what_a_histogram_lacks_is_not_above_98_percent_if_no_sample_ever_was(tmp_path: Path) -> None:
    fewer = balance(gpu0={0: 900, 20: 900})

    busy = built(
        tmp_path / "a", MaxInitializationTime=times(), LoadBalancing=fewer, OverallSystemUsage=usage()
    )
    never = built(
        tmp_path / "b", MaxInitializationTime=times(), LoadBalancing=fewer, OverallSystemUsage=usage(20)
    )

    assert parts(busy.verdict)["used"] == pytest.approx((900 * 20.5 + 200 * 99.5) / SAMPLES, abs=0.1)
    assert parts(never.verdict)["used"] == pytest.approx(20.5 / 2, abs=0.1)


def test_one_gpu_at_its_limit_is_a_quarter_of_the_mean_of_four(tmp_path: Path) -> None:
    idle = {0: SAMPLES}
    quantiles = usage(25)
    quantiles["Details"]["GPU"]["algo-1"]["p50"] = 25
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 400, 99: 1600}, gpu1=idle, gpu2=idle, gpu3=idle),
        OverallSystemUsage=quantiles,
    )

    assert parts(report.verdict)["used"] == pytest.approx(0.8 * 99.5 / 4, abs=0.1)


def test_a_gpu_that_was_sampled_for_a_shorter_time_was_not_measured_meanwhile(tmp_path: Path) -> None:
    """Datapoints are those of one GPU; the quantiles of the other node bound what its histogram may lack."""
    both = balance(gpu0={0: 1000, 60: 1000})
    both["Details"]["algo-2"] = balance(gpu0={0: 800, 60: 200})["Details"]["algo-1"]
    quantiles = usage()
    quantiles["Details"]["GPU"]["algo-2"] = {"min": 0, "p50": 0, "p95": 60, "p99": 60, "max": 99}
    report = built(
        tmp_path, MaxInitializationTime=times(0, LENGTH), LoadBalancing=both, OverallSystemUsage=quantiles
    )

    # One sample in a hundred may be above 98%.
    second = (200 * 60.5 + 20 * 99.5) / SAMPLES
    assert parts(report.verdict)["used"] == pytest.approx((60.5 / 2 + second) / 2, abs=0.1)
    assert parts(report.verdict)["unmeasured"] == pytest.approx(980 / SAMPLES * 50, abs=0.1)


def test_a_gpu_that_was_measured_for_a_shorter_time_lost_as_much_per_time(tmp_path: Path) -> None:
    both = balance(gpu0={0: 1000, 60: 1000})
    both["Details"]["algo-2"] = balance(gpu0={0: 500, 60: 500})["Details"]["algo-1"]
    # The datapoints are those of the last GPU.
    both["Datapoints"] = 1000
    report = built(tmp_path, MaxInitializationTime=times(0, LENGTH), LoadBalancing=both)

    assert parts(report.verdict)["unmeasured"] == pytest.approx(25, abs=0.1)
    assert "load-balancing" not in parts(report.verdict)


def test_entries_of_a_node_whose_gpus_were_never_used_say_nothing_of_another(tmp_path: Path) -> None:
    both = balance(gpu0={0: 1000, 90: 1000})
    both["Details"]["algo-2"] = balance(gpu0={0: SAMPLES})["Details"]["algo-1"]
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=both,
        IOBottleneck=bottlenecks({i / 2: 1 for i in range(2000)}),
    )

    assert "io-bottleneck" not in parts(report.verdict)


def test_a_gpu_without_a_sample_is_unknown_and_not_unused(tmp_path: Path) -> None:
    report = built(
        tmp_path / "used",
        MaxInitializationTime=times(),
        LoadBalancing=balance(gpu0={0: 1000, 90: 1000}, gpu1={}) | {"Datapoints": 0},
    )

    assert "gpu-never-used" not in keys(report.verdict)
    assert report.verdict.use is not None
    assert (report.verdict.use.count, report.verdict.use.unknown) == (1, 1)
    idle = built(
        tmp_path / "idle",
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: SAMPLES}, gpu1={}) | {"Datapoints": 0},
    )
    assert idle.verdict.findings[0].title.startswith("1 of 2\u00a0GPUs was never used")


@pytest.mark.parametrize("glances", [(0,) * 100, (1,) * 100, (1,) * 96 + (9,) * 4])
def test_a_gpu_that_shows_a_glance_is_never_used_by_samples_and_results(
    tmp_path: Path, glances: tuple[int, ...]
) -> None:
    used, idle = [90] * SAMPLES, [0] * (SAMPLES - 100) + [*glances]
    by_results = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0=Counter(used), gpu1=Counter(idle)),
    )
    by_samples = verdict_of(make_job(gpu=np.column_stack([used, idle]), interval_s=0.5))

    first = [verdict.findings[0] for verdict in (by_results.verdict, by_samples)]
    assert first[0].title == first[1].title
    assert [finding.key for finding in first] == ["gpu-never-used"] * 2
    assert [finding.devices for finding in first] == [("algo-1/gpu1",)] * 2


def test_f_bottlenecks_count_although_the_rule_wants_more_samples(tmp_path: Path) -> None:
    """Was: no rule could judge 955 of 1,001 samples, of which 60% are CPU bottlenecks."""
    idle = {0: 955 - 300, 90: 300}
    every = {i * LENGTH / 955: 6 for i in range(573)}
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0=idle) | {"Datapoints": 955},
        CPUBottleneck=bottlenecks(every) | {"Datapoints": 955},
        Dataloader=loader(0, 0) | {"Details": {"cores": 8}},
        OverallSystemUsage=usage(90),
    )

    main = report.verdict.main_finding
    assert main is not None
    assert (main.key, main.severity) == ("cpu-bottleneck", Severity.CRITICAL)
    assert "60.0% of snapshots" in main.title
    assert main.share == pytest.approx(0.6, abs=0.002)
    assert "The rule itself needs" not in main.title


def test_half_of_the_cores_are_a_saturated_cpu(tmp_path: Path) -> None:
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1000, 90: 1000}),
        CPUBottleneck=bottlenecks({100 + i / 2: 4 + i % 3 for i in range(800)}),
        Dataloader=loader(0, 0) | {"Details": {"cores": 8}},
    )

    assert keys(report.verdict)[0] == "cpu-bottleneck"
    assert parts(report.verdict)["cpu-bottleneck"] == pytest.approx(40, abs=0.1)
    evidence = in_words(report.verdict.findings[0].evidence).replace("\u00a0", " ")
    assert "5 of 8 cores were saturated (median)." in evidence
    assert evidence.endswith("Inferred from SageMaker Debugger's results: entries of CPUBottleneck.")


@pytest.mark.parametrize(
    ("full", "cores", "which"), [(3, {"cores": 8}, "one process"), (4, {}, "a CPU core")]
)
def test_fewer_saturated_cores_or_of_an_unknown_number_are_a_cause_of_their_own(
    tmp_path: Path, full: int, cores: dict[str, int], which: str
) -> None:
    """Entries are of idle GPUs only, so the amount is an upper bound."""
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1000, 90: 1000}),
        CPUBottleneck=bottlenecks({100 + i / 2: full for i in range(800)}),
        Dataloader=loader(0, 0) | {"Details": cores},
        OverallSystemUsage=usage(),
    )

    (main, *_) = report.verdict.findings
    assert main.key == "saturated-process"
    assert main.share == pytest.approx(0.4, abs=0.002)
    assert main.title == f"A GPU was idle while {which} was saturated in 40.0% of snapshots"
    evidence = in_words(main.evidence)
    # The steps show that there is none.
    assert "Start-up may be" not in evidence
    assert "while GPUs were active, too, is not recorded, so the amount is an upper bound." in evidence
    assert ("The number of cores is not known" in evidence) == (not cores)


def test_saturated_cores_are_loading_where_training_waits_for_data(tmp_path: Path) -> None:
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1000, 90: 1000}),
        CPUBottleneck=bottlenecks({100 + i / 2: 1 for i in range(800)}),
        OverallFrameworkMetrics=outside(45),
        Dataloader=loader(0.4),
    )

    assert keys(report.verdict)[0] == "data-loading"
    assert "saturated-process" not in parts(report.verdict)


@pytest.mark.parametrize("file", ["CPUBottleneck", "IOBottleneck"])
def test_without_its_file_nothing_is_ruled_out(tmp_path: Path, file: str) -> None:
    files = {"CPUBottleneck": bottlenecks({}), "IOBottleneck": bottlenecks({})}
    what = {"CPUBottleneck": "CPU utilization", "IOBottleneck": "I/O wait"}
    del files[file]
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1500, 90: 500}),
        OverallSystemUsage=usage(),
        **files,
    )

    evidence = in_words(found(report.verdict, "unexplained").evidence)
    (other,) = files
    assert f"Recorded, and not the cause: {what[other]}." in evidence
    assert f"Not recorded: {what[file]} and" in evidence


def test_each_moment_has_one_cause_and_none_outside_of_the_work(tmp_path: Path) -> None:
    """The same 200 s wait for I/O and have full cores; 100 s of them come before the first step."""
    entries = {200 + i / 2: 8 for i in range(400)}
    report = built(
        tmp_path,
        MaxInitializationTime=times(300, LENGTH),
        LoadBalancing=balance(gpu0={0: 1400, 90: 600}),
        CPUBottleneck=bottlenecks(entries),
        IOBottleneck=bottlenecks(entries),
        Dataloader=loader(0, 0) | {"Details": {"cores": 8}},
    )

    found_parts = parts(report.verdict)
    assert found_parts["start-up"] == pytest.approx(30, abs=0.1)
    assert found_parts["io-bottleneck"] == pytest.approx(10, abs=0.2)
    assert "cpu-bottleneck" not in found_parts
    assert sum(found_parts.values()) == pytest.approx(100)


def test_c_results_name_the_loader_that_the_batch_size_waits_for(tmp_path: Path) -> None:
    """Was: raise the batch size."""
    # 1,000 s of work with 2,000 steps of 0.1 s; the result has half of the 800 s outside of them.
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1500, 60: 500}),
        BatchSize=result({"algo-1": {"gpu0": {}}}, triggered=9),
        StepOutlier=steps(0.1, 0.1, 2000),
        OverallFrameworkMetrics=outside(100 * 400 / 600),
        Dataloader=loader(0.4),
    )

    main = report.verdict.main_finding
    assert main is not None
    assert main.key == "data-loading"
    # The histogram has 84.9% lost, 80 of them outside of steps.
    assert parts(report.verdict)["data-loading"] == pytest.approx(80, abs=0.2)
    evidence = in_words(main.evidence)
    assert "``num_workers`` is 0" in evidence
    assert "Inferred from SageMaker Debugger's results" in evidence
    assert main.advice[0].startswith("Set ``num_workers`` above 0 (8 to start with")
    said = read(findings_section(report)).text + summary.markdown(report)
    assert "batch size" not in said.lower()


def unexplained(folder: Path, **rules: dict[str, Any]) -> str:
    """What the finding on unexplained loss says of a job of 1,000 s with a GPU that is idle for three quarters."""
    gpu = {"LoadBalancing": balance(gpu0={0: 1500, 60: 500})}
    report = built(folder, **({"MaxInitializationTime": times(0, LENGTH)} | gpu | rules))
    return in_words(found(report.verdict, "unexplained").evidence).replace("\u00a0", " ")


@pytest.mark.parametrize(("mean", "said"), [(0.1, False), (0.19, False), (0.25, True)])
def test_long_steps_that_take_most_of_the_time_may_hold_fetches(
    tmp_path: Path, mean: float, said: bool
) -> None:
    evidence = unexplained(tmp_path, StepOutlier=steps(0.1, mean, 1000), OverallFrameworkMetrics=outside(80))

    sentence = "A step takes 0.25 s on average, 0.1 s in the median: the long ones take most of the time"
    assert (sentence in evidence) is said
    assert "not the cause: steps" not in evidence


@pytest.mark.parametrize(("start_s", "said"), [(0, False), (0, True), (600, False)])
def test_steps_hold_what_gpus_wait_for_only_if_these_idle_in_the_work(
    tmp_path: Path, start_s: int, said: bool
) -> None:
    # 5% of the job, all of it in the last 400 s.
    gpu = {0: 1950, 90: 50} if said else {0: 1800, 90: 200}
    evidence = unexplained(
        tmp_path,
        MaxInitializationTime=times(start_s, LENGTH),
        LoadBalancing=balance(gpu0=gpu),
        StepOutlier=steps(0.1, 0.1, 10 * (LENGTH - start_s)),
        OverallFrameworkMetrics=outside(0),
    )

    assert ("they hold what the GPUs wait for" in evidence) is (said or start_s == 0)


@pytest.mark.parametrize(
    ("gpu", "percent"),
    [
        # The job lost as much as training waited where steps were recorded; and much less.
        ({0: 1500, 60: 500}, 80),
        ({0: 200, 90: 1800}, 8),
    ],
)
def test_steps_of_a_part_speak_for_the_work_if_it_lost_as_much(
    tmp_path: Path, gpu: dict[int, int], percent: float
) -> None:
    report = built(
        tmp_path,
        MaxInitializationTime=times(100, 200),
        LoadBalancing=balance(gpu0=gpu),
        StepOutlier=steps(0.1, 0.1, 200),
        OverallFrameworkMetrics=outside(66.7),
        Dataloader=loader(0.4),
    )

    assert parts(report.verdict)["data-loading"] == pytest.approx(percent, abs=0.2)
    evidence = in_words(found(report.verdict, "data-loading").evidence).replace("\u00a0", " ")
    assert "Steps were recorded for 1 min 40 s of 16 min 40 s." in evidence


def test_first_fetches_alone_make_the_amount_an_upper_bound(tmp_path: Path) -> None:
    for fetches in (1, 10):
        report = built(
            tmp_path / str(fetches),
            MaxInitializationTime=times(0, LENGTH),
            LoadBalancing=balance(gpu0={0: 1500, 60: 500}),
            StepOutlier=steps(0.1, 0.1, 2000),
            OverallFrameworkMetrics=outside(66.7),
            Dataloader=loader(0.4) | {"Datapoints": fetches},
        )
        evidence = in_words(found(report.verdict, "data-loading").evidence)
        assert ("the amount is an upper bound" in evidence) is (fetches == 1)


@pytest.mark.parametrize(
    ("gpu", "cpu", "rules", "claims"),
    [
        ({40: 1900, 0: 100}, 60.0, {}, True),
        # Often idle, above 70%, no room on the CPU, CPU not known, other causes.
        ({40: 1700, 0: 300}, 60.0, {}, False),
        ({40: 1800, 90: 200}, 60.0, {}, False),
        ({40: 1900, 0: 100}, 80.0, {}, False),
        ({40: 1900, 0: 100}, None, {}, False),
        (
            {40: 1900, 0: 100},
            60.0,
            {"IOBottleneck": bottlenecks({300 + i / 2: 1 for i in range(500)})},
            False,
        ),
    ],
)
def test_small_batches_need_the_grounds_of_samples(
    tmp_path: Path,
    gpu: dict[int, int],
    cpu: float | None,
    rules: dict[str, dict[str, Any]],
    claims: bool,
) -> None:
    quantiles = usage()
    quantiles["Details"]["CPU"] = (
        {"algo-1": {"min": 0, "p50": cpu, "p95": cpu, "p99": cpu, "max": 100}} if cpu else {}
    )
    # Idle before the first step.
    start = {0: gpu.get(0, 0) + 500}
    report = built(
        tmp_path,
        MaxInitializationTime=times(200, LENGTH),
        LoadBalancing=balance(gpu0=gpu | start) | {"Datapoints": 2500},
        OverallSystemUsage=quantiles,
        BatchSize=result({}),
        Dataloader=loader(0.0, num_workers=1, cores=4),
        **rules,
    )

    assert ("batch-size" in keys(report.verdict)) is claims
    if claims:
        share = parts(report.verdict)
        assert share["batch-size"] == pytest.approx(1900 / 2500 * 59.5, abs=0.1)
        # What is left is that of idle samples.
        assert share["idle"] == pytest.approx(100 / 2500 * 100, abs=0.1)
        evidence = in_words(found(report.verdict, "batch-size").evidence)
        assert evidence.endswith("results: LoadBalancing and OverallSystemUsage.")


@pytest.mark.parametrize(
    ("cores", "cpu", "first"),
    [
        (8, 13.2, "one-process"),
        (16, 6.6, "one-process"),
        (4, 50.0, "batch-size"),
        (8, 5.0, "batch-size"),
        (None, 13.2, "unexplained"),
    ],
)
def test_results_of_a_steady_gpu_with_one_core_in_use_name_one_process(
    tmp_path: Path, cores: int | None, cpu: float, first: str
) -> None:
    quantiles = usage()
    quantiles["Details"]["CPU"] = {
        "algo-1": {"min": 0, "p50": cpu, "p95": cpu + 1, "p99": cpu + 2, "max": cpu + 9}
    }
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={30: 2000}) | {"Datapoints": 2000},
        OverallSystemUsage=quantiles,
        BatchSize=result({}),
        CPUBottleneck=bottlenecks({}),
        **({"Dataloader": loader(0.0, num_workers=1, cores=cores)} if cores else {}),
    )

    assert keys(report.verdict)[0] == first


def test_phases_that_cannot_be_are_named_and_not_used(tmp_path: Path) -> None:
    wrong = result({"phase": {"others": -39.0, "Step:ModeKeys.TRAIN": 139.0}}, datapoints=0)
    report = built(
        tmp_path,
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={0: 1500, 60: 500}),
        StepOutlier=steps(0.1, 0.1, 2000),
        OverallFrameworkMetrics=wrong,
        Dataloader=loader(0.3),
    )

    main = found(report.verdict, "data-loading")
    assert "impossible" in in_words(main.evidence)
    assert "139.0%" in in_words(main.evidence)
    assert main.share == pytest.approx(0.75, abs=0.005)


def test_loader_processes_fetch_during_the_steps(tmp_path: Path) -> None:
    def of(fetch_s: float) -> Report:
        return built(
            tmp_path / str(fetch_s),
            MaxInitializationTime=times(0, LENGTH),
            LoadBalancing=balance(gpu0={0: 1500, 60: 500}),
            StepOutlier=steps(0.1, 0.1, 2000),
            OverallFrameworkMetrics=outside(90),
            Dataloader=loader(fetch_s, num_workers=4),
        )

    assert "data-loading" not in keys(of(0.4).verdict)
    # A fetch takes 0.3 s longer than four steps.
    assert found(of(0.8).verdict, "data-loading").share == pytest.approx(0.5, abs=0.01)


def test_without_steps_work_is_the_longest_time_without_a_bottleneck(tmp_path: Path) -> None:
    gpu = balance(gpu0={0: 800, 90: 1200})
    edge = {float(i): 1 for i in range(370)}

    quiet = built(
        tmp_path / "a", MaxInitializationTime=times(), LoadBalancing=gpu, CPUBottleneck=bottlenecks(edge)
    )
    all_along = built(
        tmp_path / "b",
        MaxInitializationTime=times(),
        LoadBalancing=gpu,
        CPUBottleneck=bottlenecks(edge | {700.0: 1}),
    )

    assert keys(quiet.verdict) == ["start-up"]
    assert parts(quiet.verdict)["start-up"] == pytest.approx(36.9, abs=0.2)
    assert [phase.key for phase in quiet.phases.phases] == ["before", "loop"]
    evidence = in_words(quiet.verdict.findings[0].evidence)
    assert evidence.endswith(
        "Inferred from SageMaker Debugger's results: the longest time without a bottleneck."
    )
    assert "start-up" not in keys(all_along.verdict)
    assert all("Start-up may be part of it" in in_words(f.evidence) for f in all_along.verdict.findings)


def test_steps_of_a_part_are_not_the_work(tmp_path: Path) -> None:
    """Steps of a minute in a job whose GPU was busy for ten."""
    report = built(
        tmp_path,
        MaxInitializationTime=times(100, 160),
        LoadBalancing=balance(gpu0={0: 800, 90: 1200}),
    )

    assert {"start-up", "wind-down"}.isdisjoint(parts(report.verdict))


def test_gpus_that_were_never_used_and_those_that_differ(tmp_path: Path) -> None:
    used = {0: 1000, 80: 1000}
    never = built(
        tmp_path / "a", MaxInitializationTime=times(), LoadBalancing=balance(gpu0=used, gpu1={0: SAMPLES})
    )
    differ = built(
        tmp_path / "b",
        MaxInitializationTime=times(0, LENGTH),
        LoadBalancing=balance(gpu0={80: 2000}, gpu1={0: 1000, 80: 1000}),
    )

    first = never.verdict.findings[0]
    assert (first.key, first.devices, first.share) == ("gpu-never-used", ("algo-1/gpu1",), 0.5)
    assert parts(differ.verdict)["load-balancing"] == pytest.approx(20.1, abs=0.1)
    assert found(differ.verdict, "load-balancing").title.endswith("40.2% to 80.5% on average")
    late = built(
        tmp_path / "c",
        MaxInitializationTime=times(200, LENGTH),
        LoadBalancing=balance(gpu0={0: 400, 80: 1600}, gpu1={0: 1200, 80: 800}),
    )
    # In the work, as all that the verdict says.
    assert found(late.verdict, "load-balancing").title.endswith("40.2% to 80.5% on average")


def test_without_times_or_histograms_the_median_stays(tmp_path: Path) -> None:
    for name, rules in {
        "times": {"LoadBalancing": balance(gpu0={0: 1000, 80: 1000})},
        "histogram": {"MaxInitializationTime": times(0, LENGTH)},
    }.items():
        report = built(tmp_path / name, OverallSystemUsage=usage(), **rules)

        assert report.verdict.use is None
        assert "Median GPU utilization" in summary.headline(report)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=400))
def test_a_histogram_is_as_good_as_its_samples(samples: list[int]) -> None:
    counts = np.bincount([min(49, s // 2) for s in samples], minlength=50).astype(float)
    one = Histogram(samples=counts)

    assert 100 * one.used == pytest.approx(float(np.mean(samples)), abs=1.5)
    assert one.used + sum(one.lost.values()) == pytest.approx(1)
    levels = LEVELS[np.minimum(49, np.array(samples) // 2)]
    below = [(0, 10), (10, 70), (70, 101)]
    for key, (low, high) in zip(UNEXPLAINED, below, strict=True):
        own = levels[(levels >= low) & (levels < high)]
        assert one.lost[key] == pytest.approx(float((100 - own).sum()) / len(samples) / 100)
