"""Rules and analyses give the same results wherever the nodes of a job lie."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import write_job

from jobreport import document
from jobreport.build import build_report
from jobreport.readers.registry import read_job
from jobreport.remarks import Quality
from jobrules import RULES, Rule
from jobrules.model import SECOND_US, Events, Job, JobInMemory, Metric, natural_key
from jobrules.rule import run_rules
from jobrules.rules.batch_size import BatchSize
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.gpu_memory_full import GPUMemoryFull
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.rules.gpu_memory_leak import GPUMemoryLeak
from jobrules.rules.idle_gaps import IdleGaps
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.low_gpu_utilization import LowGPUUtilization
from jobrules.rules.low_mean_utilization import LowMeanUtilization
from jobrules.rules.step_outlier import StepOutlier
from jobrules.rules.unused_gpu import UnusedGPU
from tests.copies import replace
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, joined_steps, make_events, make_panel, make_steps

#: Scenarios and numbers of nodes; of more than four nodes, only some are drawn.
JOBS = (
    ("cpu-bottleneck", 3),
    ("small-batch", 6),
    ("healthy", 2),
    ("io-bottleneck", 2),
    ("imbalance", 2),
    ("memory-jump", 2),
    ("step-outliers", 2),
    ("few-loaders", 2),
    ("horovod", 2),
    ("two-clocks", 2),
    ("cpu", 2),
)


def job_of(name: str, nodes: int) -> tuple[Job, Quality]:
    """A job of several nodes that is long enough for its scenario's rules."""
    scenario = SCENARIOS[name]
    spec = JobSpec.of(
        scenario,
        nodes=nodes,
        gpus=scenario.gpus and 2,
        cores=4,
        duration_us=round(max(900.0, scenario.duration_s) * 1e6),
    )
    with TemporaryDirectory() as folder:
        write_job(spec, Path(folder), gzipped=False)
        return read_job(Path(folder), strict=True)


#: What a GPU's power, heat, clock, and memory errors may be.
CONDITIONS: dict[Metric, tuple[float, ...]] = {
    Metric.GPU_POWER: (70, 300, 395, 400),
    Metric.GPU_POWER_LIMIT: (400,),
    Metric.GPU_TEMPERATURE: (40, 80, 92),
    Metric.GPU_CLOCK: (210, 1200, 1980),
    Metric.GPU_THERMAL_SLOWDOWN: (0, 0, 0, 100),
    Metric.GPU_POWER_CAP: (0, 100),
    Metric.GPU_HARDWARE_SLOWDOWN: (0, 0, 100),
    Metric.GPU_ECC_CORRECTED: (0, 3, 7),
    Metric.GPU_ECC_UNCORRECTED: (0, 0, 1),
}


def odd_job(seed: int) -> JobInMemory:
    """Nodes that differ in kind: in GPUs and cores, without one or the other, with steps or events only."""
    rng = np.random.default_rng(seed)
    panels, steps, events = [], [], []
    for i, node in enumerate(("algo-10", "algo-2", "B", "b", "01", "algo-1")):
        n, gpus = int(rng.integers(1, 1500)), int(rng.integers(0, 4))
        start_us = START_US + int(rng.integers(0, 90)) * SECOND_US
        for metric, many, prefix in (
            (Metric.GPU_UTILIZATION, gpus, "gpu"),
            (Metric.GPU_MEMORY_ACTIVITY, gpus if i % 2 else 0, "gpu"),
            (Metric.CPU_UTILIZATION, i % 3 * 2, "cpu"),
            (Metric.IO_WAIT, i % 3 * 2, "cpu"),
            (Metric.GPU_MEMORY_USED, gpus if i % 2 else 0, "gpu"),
            (Metric.GPU_MEMORY_TOTAL, gpus if i % 2 else 0, "gpu"),
        ):
            if many:
                values = np.round(
                    rng.choice([0.0, 5.0, 95.0, 100.0], (n, many)) + rng.random((n, many)) - 1, 2
                )
                values = np.clip(values, 0, 100) + 0.0  # without -0.0, as from readers
                values[rng.random(values.shape) < 0.05 * (i % 2)] = np.nan
                values[0] = 1.0
                values[:, 0] = np.nan_to_num(values[:, 0])
                panels.append(make_panel(metric, values, node=node, start_us=start_us, prefix=prefix))
        for metric, levels in CONDITIONS.items() if gpus else ():
            if rng.random() < 0.8:
                # At moments of their own.
                times = start_us + np.cumsum(rng.integers(1, 3, n)) * SECOND_US
                values = rng.choice(levels, (n, gpus)).astype(float)
                values[1:][rng.random((n - 1, gpus)) < 0.1] = np.nan
                values[:, 0] = np.nan_to_num(values[:, 0])
                values[:, -1] = levels[0] if metric is Metric.GPU_CLOCK else values[:, -1]
                panels.append(make_panel(metric, values, node=node, time_us=times))
        if i in (0, 3, 4):
            spans = [(0.5 * k, 0.5 * k + float(rng.random())) for k in range(int(rng.integers(1, 150)))]
            steps.append(make_steps(spans, node=node, rank=f"{i}", start_us=start_us))
        if i in (2, 3):
            rows = [("cpu_functions", f"op{k % 7}", 0.3 * k, 0.3 * k + 0.2) for k in range(200)]
            events.append(make_events(rows, node=node, rank=f"{i}", start_us=start_us))
    return JobInMemory(
        name="odd",
        panels=tuple(
            sorted(panels, key=lambda panel: (natural_key(panel.node), list(Metric).index(panel.metric)))
        ),
        steps=joined_steps(*steps),
        events=Events.joined(events),
        finished=True,
    )


#: Thresholds that nearly everything exceeds.
EAGER = (
    CPUBottleneck(threshold=0.0, cpu_threshold=1.0, gpu_threshold=90.0, patience=1),
    LowGPUUtilization(threshold_p95=100.0, threshold_p5=0.0, patience=1, window=2),
    BatchSize(
        cpu_threshold_p95=100.0,
        gpu_threshold_p95=100.0,
        gpu_memory_threshold_p95=100.0,
        patience=1,
        window=2,
    ),
    GPUMemoryIncrease(increase=0.0, patience=1, window=2),
    LoadBalancing(threshold=0.0, patience=1),
    StepOutlier(stddev=0.5, n_outliers=0),
    UnusedGPU(threshold=100.0, patience=0.0),
    IdleGaps(threshold=0.0, patience=0.0, min_samples=1),
    LowMeanUtilization(threshold=100.0, patience=0.0),
    GPUMemoryFull(threshold=10.0, patience=0.1),
    GPUMemoryLeak(threshold=0.0, patience=1.0),
)


def rules_of(*, eager: bool) -> list[Rule]:
    """All rules, with these thresholds or their defaults."""
    chosen: dict[type[Rule], Rule] = {type(rule): rule for rule in EAGER} if eager else {}
    return [chosen.get(kind) or kind() for kind in RULES]


@pytest.mark.parametrize(
    ("seed", "eager"),
    [
        pytest.param(seed, eager, marks=() if (seed, eager) == (2, True) else pytest.mark.slow)
        for seed in range(6)
        for eager in (False, True)
    ],
)
def test_odd_jobs_give_the_same_elsewhere_and_in_any_layout_of_their_values(seed: int, eager: bool) -> None:
    job = odd_job(seed)
    turned = dataclasses.replace(
        job, panels=tuple(replace(panel, values=np.asfortranarray(panel.values)) for panel in job.panels)
    )
    rules = rules_of(eager=eager)
    quality = Quality()
    here, *others = (made(one, quality, rules) for one in (job, turned, JobElsewhere(job)))
    assert others == [here] * 2


def plain(value: Any) -> Any:
    """A result as plain values, with those that are not in its file."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


def made(job: Job, quality: Quality, rules: list[Rule]) -> tuple[list[Any], bytes]:
    """What each rule says, and the report."""
    results = run_rules(rules, job, strict=True)
    report = build_report(job, quality, rules, results, "make-report", strict=True)
    return [plain(result) for result in results], document.to_json(report)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), JOBS)
def test_results_and_report_of_parts_that_lie_elsewhere_are_the_same(name: str, nodes: int) -> None:
    job, quality = job_of(name, nodes)
    rules = rules_of(eager=False)

    assert made(JobElsewhere(job), quality, rules) == made(job, quality, rules)


def test_a_job_that_lies_elsewhere_keeps_its_tables_from_rules() -> None:
    job = odd_job(1)
    away = JobElsewhere(job)
    with pytest.raises(AssertionError, match="elsewhere"):
        assert away.panels
    assert away.each(lambda_free) == job.each(lambda_free)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        away.each(lambda part: part.nodes)


def lambda_free(part: Job) -> int:
    """A function of the tests, which can be pickled."""
    return len(part.panels) + len(part.steps)
