"""The verdict on rule results alone, on small results that are written by hand; situations f and h of the issue too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.debugger_report.histograms import LEVELS, Histogram
from jobreport.headline import headline
from jobreport.output import summary
from jobreport.page.sections import findings as findings_section
from jobreport.page.sections import verdict as verdict_section
from jobrules.model import Severity, in_words
from jobrules.verdict.accounting import UNEXPLAINED
from tests.jobs import make_job
from tests.report.debugger_report.written_results import (
    CORES,
    LENGTH,
    SAMPLES,
    balance,
    bottlenecks,
    built,
    loader,
    outside,
    steps,
    times,
    usage,
)
from tests.report.page.sections.html import read
from tests.report.readers.debugger_results.test_rule_results import result
from tests.verdicts import found, keys, parts, verdict_of

Rules = dict[str, Any]
#: Steps all along, a GPU that is idle for half of the time, and one that is for three quarters.
STEPS = {"MaxInitializationTime": times(0, LENGTH)}
HALF = STEPS | {"LoadBalancing": balance(gpu0={0: 1000, 90: 1000})}
WAITS = STEPS | {"LoadBalancing": balance(gpu0={0: 1500, 60: 500})}
#: 2,000 steps of 0.1 s; the result has half of the 800 s outside of them.
LOADED = {"StepOutlier": steps(0.1, 0.1, 2000), "OverallFrameworkMetrics": outside(66.7)}
#: Utilization of a node with a second one, and entries of 400 s and of 200.
FEWER = {"MaxInitializationTime": times(), "LoadBalancing": balance(gpu0={0: 900, 20: 900})}
LONG, SHORT = 100 + np.arange(800) / 2, 200 + np.arange(400) / 2


def two_nodes(first: dict[int, int], second: dict[int, int], datapoints: int = SAMPLES) -> Rules:
    both = balance(gpu0=first)
    both["Details"]["algo-2"] = balance(gpu0=second)["Details"]["algo-1"]
    return STEPS | {"LoadBalancing": both | {"Datapoints": datapoints}}


def steady(at: dict[int, int], cpu: tuple[float, float, float], cores: int | None, **more: Any) -> Rules:
    """A GPU that was idle before the first step after 200 s, if it was ever idle."""
    start = {0: at[0] + 500} if 0 in at else {}
    known = {
        "MaxInitializationTime": times(200 if start else 0, LENGTH),
        "LoadBalancing": balance(gpu0=at | start) | {"Datapoints": 2500 if start else SAMPLES},
        "OverallSystemUsage": usage(cpu=cpu),
        "BatchSize": result({}),
    }
    return known | ({"Dataloader": loader(0.0, 1, cores)} if cores else {}) | more


SLOW = {40: 1900, 0: 100}

#: Results, and the percent of GPU time of each part; None of a part that is not there.
AMOUNTS: dict[str, tuple[Rules, dict[str, float | None]]] = {
    # A quarter of the samples is at 99%, where the histogram has no bin.
    "above 98%": (
        STEPS | {"LoadBalancing": balance(gpu0={0: 1000, 20: 500, 99: 500})},
        {"used": (500 * 20.5 + 500 * 99.5) / SAMPLES},
    ),
    "busy, as far as it lacks samples": (
        FEWER | {"OverallSystemUsage": usage()},
        {"used": (900 * 20.5 + 200 * 99.5) / SAMPLES},
    ),
    "never above 98%": (FEWER | {"OverallSystemUsage": usage((0, 20, 20))}, {"used": 20.5 / 2}),
    # By the p95 of its node, at most half of the samples.
    "half above 98%": (
        STEPS | {"LoadBalancing": balance(gpu0={0: 400, 20: 400}), "OverallSystemUsage": usage((0, 99, 99))},
        {"used": (400 * 20.5 + 1000 * 99.5) / 1800},
    ),
    # One GPU at its limit is a quarter of the mean of four.
    "one of four": (
        STEPS
        | {
            "LoadBalancing": balance(gpu0={0: 400, 99: 1600}, **{f"gpu{i}": {0: SAMPLES} for i in (1, 2, 3)}),
            "OverallSystemUsage": usage((25, 25, 25)),
        },
        {"used": 0.8 * 99.5 / 4},
    ),
    # Datapoints are those of one GPU; by the quantiles of its node, one sample in a hundred may be above 98%.
    "a GPU that was sampled for a shorter time": (
        two_nodes({0: 1000, 60: 1000}, {0: 800, 60: 200})
        | {"OverallSystemUsage": usage(**{"algo-2": (0, 60, 99)})},
        {
            "used": (60.5 / 2 + (200 * 60.5 + 20 * 99.5) / SAMPLES) / 2,
            "unmeasured": 980 / SAMPLES * 50,
        },
    ),
    "as much per time": (
        two_nodes({0: 1000, 60: 1000}, {0: 500, 60: 500}, datapoints=1000),
        {"unmeasured": 25, "load-balancing": None},
    ),
    "entries may be of the node whose GPU was never used": (
        two_nodes({0: 1000, 90: 1000}, {0: SAMPLES}) | {"IOBottleneck": bottlenecks(np.arange(2000) / 2)},
        {"io-bottleneck": None},
    ),
    "half of the cores": (
        HALF | {"CPUBottleneck": bottlenecks(LONG, [4 + i % 3 for i in range(800)]), "Dataloader": CORES},
        {"cpu-bottleneck": 40, "saturated-process": None},
    ),
    "fewer cores": (
        HALF | {"CPUBottleneck": bottlenecks(LONG, 3), "Dataloader": CORES},
        {"saturated-process": 40, "cpu-bottleneck": None},
    ),
    "cores of an unknown number": (HALF | {"CPUBottleneck": bottlenecks(LONG, 4)}, {"saturated-process": 40}),
    "saturated cores are loading where training waits for data": (
        HALF
        | {
            "CPUBottleneck": bottlenecks(LONG),
            "OverallFrameworkMetrics": outside(45),
            "Dataloader": loader(0.4),
        },
        {"saturated-process": None},
    ),
    # The same 200 s wait for I/O and have full cores; 100 s of them come before the first step.
    "each moment has one cause, and none outside of the work": (
        {
            "MaxInitializationTime": times(300, LENGTH),
            "LoadBalancing": balance(gpu0={0: 1400, 90: 600}),
            "CPUBottleneck": bottlenecks(SHORT, 8),
            "IOBottleneck": bottlenecks(SHORT, 8),
            "Dataloader": CORES,
        },
        {"start-up": 30, "io-bottleneck": 10, "cpu-bottleneck": None},
    ),
    "outside of steps": (WAITS | LOADED | {"Dataloader": loader(0.4)}, {"data-loading": 80}),
    # The job lost as much as training waited where steps were recorded; and much less.
    "steps of a part of a job like it": (
        WAITS
        | LOADED
        | {
            "MaxInitializationTime": times(100, 200),
            "StepOutlier": steps(0.1, 0.1, 200),
            "Dataloader": loader(0.4),
        },
        {"data-loading": 80},
    ),
    "steps of a part of a job unlike it": (
        LOADED
        | {
            "MaxInitializationTime": times(100, 200),
            "LoadBalancing": balance(gpu0={0: 200, 90: 1800}),
            "StepOutlier": steps(0.1, 0.1, 200),
            "Dataloader": loader(0.4),
        },
        {"data-loading": 8},
    ),
    "impossible phases": (
        WAITS | LOADED | {"OverallFrameworkMetrics": outside(-39), "Dataloader": loader(0.3)},
        {"data-loading": 75},
    ),
    "loaders fetch during the steps": (
        WAITS | LOADED | {"OverallFrameworkMetrics": outside(90), "Dataloader": loader(0.4, 4)},
        {"data-loading": None},
    ),
    # A fetch takes 0.3 s longer than four steps.
    "loaders fetch for longer than the steps": (
        WAITS | LOADED | {"OverallFrameworkMetrics": outside(90), "Dataloader": loader(0.8, 4)},
        {"data-loading": 50},
    ),
    "without steps, work is the longest time without an entry": (
        {
            "MaxInitializationTime": times(),
            "LoadBalancing": balance(gpu0={0: 800, 90: 1200}),
            "CPUBottleneck": bottlenecks(range(370)),
        },
        {"start-up": 36.9},
    ),
    "entries all along": (
        {
            "MaxInitializationTime": times(),
            "LoadBalancing": balance(gpu0={0: 800, 90: 1200}),
            "CPUBottleneck": bottlenecks(np.append(np.arange(370), 700)),
        },
        {"start-up": None},
    ),
    # Steps of a minute in a job whose GPU was busy for ten.
    "steps of a part are not the work": (
        {"MaxInitializationTime": times(100, 160), "LoadBalancing": balance(gpu0={0: 800, 90: 1200})},
        {"start-up": None, "wind-down": None},
    ),
    "GPUs that differ": (
        STEPS | {"LoadBalancing": balance(gpu0={80: 2000}, gpu1={0: 1000, 80: 1000})},
        {"load-balancing": 20.1},
    ),
    # What is left is that of idle samples.
    "small batches": (steady(SLOW, (60, 60, 100), 4), {"batch-size": 1900 / 2500 * 59.5, "idle": 4}),
    "often idle": (steady({40: 1700, 0: 300}, (60, 60, 100), 4), {"batch-size": None}),
    "above 70%": (steady({40: 1800, 90: 200, 0: 0}, (60, 60, 100), 4), {"batch-size": None}),
    "no room on the CPU": (steady(SLOW, (80, 80, 100), 4), {"batch-size": None}),
    "no CPU": (
        steady(SLOW, (0, 0, 0), 4) | {"OverallSystemUsage": usage(cpu=None)},
        {"batch-size": None},
    ),
    "other causes": (
        steady(SLOW, (60, 60, 100), 4, IOBottleneck=bottlenecks(300 + np.arange(500) / 2)),
        {"batch-size": None},
    ),
}


@pytest.mark.parametrize(("rules", "expected"), AMOUNTS.values(), ids=AMOUNTS)
def test_the_parts_of_gpu_time(tmp_path: Path, rules: Rules, expected: dict[str, float | None]) -> None:
    amounts = parts(built(tmp_path, **rules).verdict)

    for key, percent in expected.items():
        assert amounts.get(key) == (percent if percent is None else pytest.approx(percent, abs=0.2)), key
    assert sum(amounts.values()) == pytest.approx(100)


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
def test_a_steady_gpu_with_one_core_in_use_names_one_process(
    tmp_path: Path, cores: int | None, cpu: float, first: str
) -> None:
    rules = steady({30: 2000}, (cpu, cpu + 1, cpu + 9), cores, CPUBottleneck=bottlenecks(range(0)))

    assert keys(built(tmp_path, **rules).verdict)[0] == first


def test_about_one_core_for_each_gpu_clears_no_cpu(tmp_path: Path) -> None:
    levels = {30: SAMPLES}
    rules = steady(levels, (26, 27, 40), 8, CPUBottleneck=bottlenecks(range(0)))
    alone = built(tmp_path / "alone", **rules)

    both = built(tmp_path / "both", **rules | {"LoadBalancing": balance(gpu0=levels, gpu1=levels)})

    assert (keys(alone.verdict)[0], keys(both.verdict)[0]) == ("batch-size", "unexplained")
    assert "CPU" not in str(both.verdict.findings[0])


#: Results, and the key of a finding.
EVIDENCE: dict[str, tuple[Rules, str]] = {
    "a saturated CPU": (
        HALF | {"CPUBottleneck": bottlenecks(LONG, [4 + i % 3 for i in range(800)]), "Dataloader": CORES},
        "cpu-bottleneck",
    ),
    # Entries are of idle GPUs only. The steps show that there is no start-up.
    "a known number of cores": (
        HALF | {"CPUBottleneck": bottlenecks(LONG, 3), "Dataloader": CORES, "OverallSystemUsage": usage()},
        "saturated-process",
    ),
    "an unknown number of cores": (
        HALF | {"CPUBottleneck": bottlenecks(LONG, 4), "OverallSystemUsage": usage()},
        "saturated-process",
    ),
    "loading": (
        WAITS
        | LOADED
        | {"BatchSize": result({"algo-1": {"gpu0": {}}}, RuleTriggered=9), "Dataloader": loader(0.4)},
        "data-loading",
    ),
    "a first fetch": (
        WAITS | LOADED | {"Dataloader": loader(0.4, fetches=1)},
        "data-loading",
    ),
    "steps of a part": (
        AMOUNTS["steps of a part of a job like it"][0],
        "data-loading",
    ),
    "impossible phases": (
        WAITS | LOADED | {"OverallFrameworkMetrics": outside(-39), "Dataloader": loader(0.3)},
        "data-loading",
    ),
    "small batches": (
        steady(SLOW, (60, 60, 100), 4),
        "batch-size",
    ),
    "start-up without steps": (
        {
            "MaxInitializationTime": times(),
            "LoadBalancing": balance(gpu0={0: 800, 90: 1200}),
            "CPUBottleneck": bottlenecks(range(370)),
        },
        "start-up",
    ),
    "maybe start-up": (
        {
            "MaxInitializationTime": times(),
            "LoadBalancing": balance(gpu0={0: 800, 90: 1200}),
            "CPUBottleneck": bottlenecks(np.append(np.arange(370), 700)),
        },
        "saturated-process",
    ),
    "no file on I/O": (
        WAITS | {"CPUBottleneck": bottlenecks(range(0)), "OverallSystemUsage": usage()},
        "unexplained",
    ),
    "no file on cores": (
        WAITS | {"IOBottleneck": bottlenecks(range(0)), "OverallSystemUsage": usage()},
        "unexplained",
    ),
    # Long steps that take most of the time may hold fetches.
    "few long steps": (
        WAITS | {"StepOutlier": steps(0.1, 0.19, 1000), "OverallFrameworkMetrics": outside(80)},
        "unexplained",
    ),
    "long steps": (
        WAITS | {"StepOutlier": steps(0.1, 0.25, 1000), "OverallFrameworkMetrics": outside(80)},
        "unexplained",
    ),
    # 5% of the job, all of it in the last 400 s.
    "steps hold what GPUs wait for": (
        {
            "MaxInitializationTime": times(0, LENGTH),
            "LoadBalancing": balance(gpu0={0: 1950, 90: 50}),
            "StepOutlier": steps(0.1, 0.1, 10 * LENGTH),
            "OverallFrameworkMetrics": outside(0),
        },
        "unexplained",
    ),
    "only if these idle in the work": (
        {
            "MaxInitializationTime": times(600, LENGTH),
            "LoadBalancing": balance(gpu0={0: 1800, 90: 200}),
            "StepOutlier": steps(0.1, 0.1, 4000),
            "OverallFrameworkMetrics": outside(0),
        },
        "unexplained",
    ),
}


def evidence(rules: Rules, key: str) -> str:
    with TemporaryDirectory() as folder:
        one = found(built(Path(folder), **rules).verdict, key)
    return f"{key}\n{in_words(one.evidence)}".replace("\u00a0", " ").replace(". ", ".\n")


VARIANTS: dict[str, Callable[[], str]] = {name: partial(evidence, *one) for name, one in EVIDENCE.items()}


def test_h_how_much_was_used_comes_from_the_histogram(tmp_path: Path) -> None:
    """Was: GPU-hours cannot be computed without samples."""
    report = built(tmp_path, **AMOUNTS["above 98%"][0])

    assert report.verdict.use is not None
    assert report.verdict.use.hours == pytest.approx(LENGTH / 3600, abs=0.001)
    page = read(verdict_section(report)).text
    for text in (page, summary.markdown(report), summary.terminal(report)[1]):
        assert "30%" in text.replace("\n%", "%").replace(" %", "%")
        assert "according to SageMaker Debugger" in text
        assert "edian" not in text


def test_a_gpu_without_a_sample_is_unknown_and_not_unused(tmp_path: Path) -> None:
    used, idle = (
        built(
            tmp_path / str(percent),
            **STEPS,
            LoadBalancing=balance(gpu0={percent: SAMPLES}, gpu1={}) | {"Datapoints": 0},
        )
        for percent in (90, 0)
    )

    assert "gpu-never-used" not in keys(used.verdict)
    assert used.verdict.use is not None
    assert (used.verdict.use.count, used.verdict.use.unknown) == (1, 1)
    assert idle.verdict.findings[0].title.startswith("1 of 2\u00a0GPUs was never used")


@pytest.mark.parametrize("glances", [(0,) * 100, (1,) * 100, (1,) * 96 + (9,) * 4])
def test_a_gpu_that_shows_a_glance_is_never_used_by_samples_and_results(
    tmp_path: Path, glances: tuple[int, ...]
) -> None:
    used, idle = [90] * SAMPLES, [0] * (SAMPLES - 100) + [*glances]
    by_results = built(tmp_path, **STEPS, LoadBalancing=balance(gpu0=Counter(used), gpu1=Counter(idle)))
    by_samples = verdict_of(make_job(gpu=np.column_stack([used, idle]), interval_s=0.5))

    first = [verdict.findings[0] for verdict in (by_results.verdict, by_samples)]
    assert first[0].title == first[1].title
    assert [(one.key, one.devices) for one in first] == [("gpu-never-used", ("algo-1/gpu1",))] * 2
    assert first[0].share == 0.5


def test_f_bottlenecks_count_although_the_rule_wants_more_samples(tmp_path: Path) -> None:
    """Was: no rule could judge 955 of 1,001 samples, of which 60% are CPU bottlenecks."""
    report = built(
        tmp_path,
        **STEPS,
        LoadBalancing=balance(gpu0={0: 955 - 300, 90: 300}) | {"Datapoints": 955},
        CPUBottleneck=bottlenecks(np.arange(573) * LENGTH / 955, 6, Datapoints=955),
        Dataloader=CORES,
        OverallSystemUsage=usage((0, 90, 90)),
    )

    main = report.verdict.findings[0]
    assert (main.key, main.severity) == ("cpu-bottleneck", Severity.CRITICAL)
    assert "in 60.0% of snapshots" in in_words(main.evidence)
    assert main.share == pytest.approx(0.6, abs=0.002)


def test_c_results_name_the_loader_that_the_batch_size_waits_for(tmp_path: Path) -> None:
    """Was: raise the batch size."""
    report = built(tmp_path, **EVIDENCE["loading"][0])

    assert keys(report.verdict)[0] == "data-loading"
    assert "``num_workers`` above 0 (8 to start with" in report.verdict.findings[0].advice[0]
    assert "batch size" not in (read(findings_section(report)).text + summary.markdown(report)).lower()


@pytest.mark.parametrize("start", [0, 200])
def test_means_of_gpus_that_differ_are_those_of_the_work(tmp_path: Path, start: int) -> None:
    idle = 2 * start
    gpus = balance(
        gpu0={0: idle, 80: SAMPLES - idle}, gpu1={0: idle + (SAMPLES - idle) // 2, 80: (SAMPLES - idle) // 2}
    )
    report = built(tmp_path, MaxInitializationTime=times(start, LENGTH), LoadBalancing=gpus)

    assert "40.2% to 80.5%" in found(report.verdict, "load-balancing").title


@pytest.mark.parametrize("missing", ["MaxInitializationTime", "LoadBalancing"])
def test_without_times_or_histograms_the_median_stays(tmp_path: Path, missing: str) -> None:
    rules = {rule: one for rule, one in HALF.items() if rule != missing}
    report = built(tmp_path, **rules, OverallSystemUsage=usage())

    assert report.verdict.use is None
    assert "median GPU utilization" in headline(report).second


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
