"""Whether a rule triggers, passes, or is not evaluated, and the sentence that says so."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
import pytest

from jobrules import (
    BatchSize,
    Dataloader,
    ECCErrors,
    GPUMemoryFull,
    GPUMemoryIncrease,
    GPUMemoryLeak,
    IdleGaps,
    LowGPUUtilization,
    LowMeanUtilization,
    OverallFrameworkMetrics,
    PowerCap,
    Rule,
    SlowClock,
    StepOutlier,
    ThermalThrottling,
    UnusedGPU,
)
from jobrules.model import SECOND_US, Job, Metric, Status
from jobrules.rule import run_rules
from tests.jobs import START_US, Values, joined_steps, make_events, make_job, make_panel, make_steps, sampled
from tests.rules.loading_jobs import MULTI, SINGLE, events_of, fetch, job_of, loader, worker

Cases: TypeAlias = dict[str, tuple[Rule, Job]]
N = np.nan


def gpu(values: Values, interval_s: float = 1.0, **more: Any) -> Job:
    return sampled(interval_s, gpu_utilization=values, **more)


def memory(percents: Values) -> Job:
    """Memory in use of a GPU, in percent."""
    return sampled(gpu_memory_used=percents, gpu_memory_total=[100.0] * len(percents))


def heat(heat: Values, hardware: Values | None = None, gpus: int = 1) -> Job:
    """Slowdowns of some of the ``gpus``."""
    more: dict[str, Any] = {} if hardware is None else {"gpu_hardware_slowdown": hardware}
    return gpu([[95.0] * gpus] * 60, gpu_thermal_slowdown=heat, **more)


def fetches(n: int, num_workers: int | None, kind: str = MULTI) -> Job:
    """A batch fetch a second on a node of 4 cores, by a loader with so many processes."""
    loaders = [] if num_workers is None else [loader(num_workers, kind=kind)]
    return job_of(events_of([fetch(i, i + 0.1, kind) for i in range(n)], loaders))


def steps(*lengths: float) -> Job:
    ends = np.cumsum((0.0, *lengths)).tolist()
    return make_job(steps=make_steps(list(itertools.pairwise(ends))))


def beside(metric: Metric, values: Values, node: str = "algo-2") -> Job:
    """A node with CPU and GPU, and samples of another node."""
    other = make_panel(metric, values, node=node, interval_s=30)
    return make_job(cpu=[20.0] * 20, gpu=[40.0] * 20, interval_s=30, extra=[other])


BATCH, LOW = BatchSize(window=4, patience=6), LowGPUUtilization(window=4, patience=6)
CPU_ONLY = make_panel(Metric.CPU_UTILIZATION, [20.0] * 20, node="algo-2", interval_s=30)
LATER = START_US + 7200 * SECOND_US
LATE_LIMIT = make_panel(Metric.GPU_POWER_LIMIT, [400.0] * 9, start_us=LATER, interval_s=1.0)
MODES = joined_steps(make_steps([(0, 1), (2, 3)]), make_steps([(1, 1.6)], phase="EVAL"))
OPERATORS = make_events([("cpu_functions", "aten::mm", 0, 1)] * 3)
WITHIN = "loader processes for 4 cores: within 70 to 200% of the cores"
ITSELF = "1 training process loads its batches itself"
NO_ERRORS = "No memory errors on 1 GPU during the job; uncorrected errors not recorded"

TRIGGERED: Cases = {
    "CPU and GPU were both low in 7 of 7 windows": (BATCH, beside(Metric.GPU_MEMORY_ACTIVITY, [95.0] * 20)),
    "9 loader processes for 4 cores: too many": (Dataloader(), fetches(20, 9)),
    "1 loader process for 4 cores: too few": (Dataloader(), fetches(11, 1)),
    f"{ITSELF}, without a loader process": (Dataloader(), fetches(20, 0)),
    "Mean GPU utilization was 0.0% over 2 GPUs": (LowMeanUtilization(), gpu([[0.0, 0.0]] * 700)),
    "Heat slowed algo-1 gpu0 for 100.0% of its time": (ThermalThrottling(), heat([100.0] * 10)),
    "The GPU was never used": (UnusedGPU(), gpu([0.0] * 602, 1.5)),
}
PASSED: Cases = {
    f"8 {WITHIN}": (Dataloader(), fetches(20, 8)),
    f"3 {WITHIN}": (Dataloader(), fetches(20, 3)),
    f"{ITSELF}, each counted as a loader: within 20 to 200% of the cores": (
        Dataloader(min_threshold=20),
        fetches(20, 0, SINGLE),
    ),
    NO_ERRORS: (ECCErrors(), sampled(gpu_ecc_corrected=[0, 0])),
    f"{NO_ERRORS}; 9 corrected errors before the job": (ECCErrors(), sampled(gpu_ecc_corrected=[9, 9, 0, 0])),
    "No memory errors on 2 GPUs during the job; 12 corrected errors before the job": (
        ECCErrors(),
        sampled(gpu_ecc_corrected=[[7, 5]] * 9, gpu_ecc_uncorrected=[[0, 0]] * 9),
    ),
    "GPU memory in use peaked at 97.0%": (GPUMemoryFull(), memory(([50.0] * 60 + [97.0] * 30) * 10)),
    "The GPU was idle for at most 0.0% of the time (threshold 5%)": (
        IdleGaps(),
        gpu([0.0] * 900 + [95.0] * 700 + [0.0] * 900),
    ),
    "GPU utilization was low or fluctuated in 0 of 7 windows; 1 GPU not evaluated": (
        LOW,
        gpu([[95.0, N]] * 16 + [[95.0, 0.0]] * 4, 30),
    ),
    "Mean GPU utilization was 40.0% (threshold 25%)": (LowMeanUtilization(), gpu([[40.0, 0.0, 0.0]] * 700)),
    "TRAIN 66.7%, EVAL 20.0%, outside steps 13.3% (3 events)": (
        OverallFrameworkMetrics(),
        make_job(steps=MODES, events=OPERATORS),
    ),
    "The GPU was at its power limit for less than 0.01% of its time": (
        PowerCap(),
        sampled(gpu_power_cap=[0.0] * 500 + [100.0] + [0.0] * 39_499),
    ),
    # What the driver says goes before the draw.
    "No GPU was at its power limit": (
        PowerCap(),
        sampled(gpu_power_cap=[0.0] * 99, gpu_power=[400.0] * 99, gpu_power_limit=[400.0] * 99),
    ),
    "At most 0 outliers per rank and mode (threshold 10)": (
        StepOutlier(stddev=1e30),
        steps(*[0.1] * 200, *[1.0] * 11),
    ),
    "Slowdowns took at most 0.90% of any GPU's time": (ThermalThrottling(), heat([100.0] * 9 + [0.0] * 992)),
    "Heat slowed no GPU": (ThermalThrottling(), heat([0.0] * 10)),
    # The last sample stands for no time.
    "Neither heat nor hardware slowed any GPU": (
        ThermalThrottling(),
        heat([0.0] * 59 + [100.0], [0.0] * 59 + [100.0]),
    ),
    "Heat slowed no GPU, recorded for 2 of 4 GPUs; the hardware slowed no GPU, recorded for 1 of 4 GPUs": (
        ThermalThrottling(),
        heat([[0.0, 0.0]] * 60, [0.0] * 60, gpus=4),
    ),
    "Slowdowns took at most 0.10% of any GPU's time, recorded for 1 of 4 GPUs": (
        ThermalThrottling(),
        heat([100.0] + [0.0] * 999, gpus=4),
    ),
}
NOT_EVALUATED: Cases = {
    "no node recorded both GPU and CPU": (BATCH, sampled(30, extra=[CPU_ONLY], gpu_utilization=[20.0] * 20)),
    "5 samples needed, 3 recorded": (
        BATCH,
        sampled(30, cpu_utilization=[20.0] * 20, gpu_utilization=[20.0] * 3),
    ),
    "11 s of data loading needed, 10 s recorded": (Dataloader(), fetches(10, 1)),
    "number of loader processes not recorded": (Dataloader(), fetches(20, None)),
    "loader events not recorded": (Dataloader(), make_job(cpu=[20.0] * 50)),
    "CPU utilization not recorded": (
        Dataloader(),
        make_job(events=events_of([worker(0, 30, 101)]), gpu=[1.0] * 50),
    ),
    "2 samples needed, 1 recorded": (ECCErrors(), sampled(gpu_ecc_corrected=[3])),
    "1,001 samples needed, 612 recorded": (GPUMemoryIncrease(), sampled(gpu_memory_activity=[5.0] * 612)),
    "1,000 samples needed, 612 recorded": (
        GPUMemoryIncrease(window=500, patience=10),
        sampled(gpu_memory_activity=[5.0] * 612),
    ),
    "1,001 samples needed, 611 recorded": (LowGPUUtilization(), gpu([5.0] * 611)),
    "30 min of training needed, 24 min 55 s recorded": (GPUMemoryLeak(), memory(np.linspace(30, 60, 1496))),
    "10 min of GPU work needed, 4 min 59 s recorded": (IdleGaps(), gpu([95.0] * 300)),
    "no GPU was active (10% or more)": (IdleGaps(), gpu([9.0] * 3000)),
    "10 min of samples needed, 8 min 19 s recorded": (LowMeanUtilization(), gpu([1.0] * 500)),
    # A GPU that was never used does not make a few samples of another one enough.
    "10 min of samples needed, 3 s recorded": (
        LowMeanUtilization(),
        gpu([[0.0, 90.0]] * 3 + [[0.0, N]] * 897),
    ),
    "GPU power limit not recorded": (PowerCap(), sampled(gpu_power=[400.0] * 99)),
    "no GPU has samples of power and power limit at the same time": (
        PowerCap(),
        sampled(gpu_power=[400.0] * 99, extra=[LATE_LIMIT]),
    ),
    "no peer: no other GPU with similar memory": (SlowClock(), gpu([98.0] * 99, gpu_clock=[1980.0] * 99)),
    "PREDICT steps not recorded": (StepOutlier(mode="PREDICT"), steps(*[0.1] * 300)),
    "10 samples needed, 9 recorded": (ThermalThrottling(), heat([100.0] * 9)),
    "throttle reasons not recorded": (ThermalThrottling(), sampled(gpu_temperature=[95.0] * 99)),
    "15 min of samples needed, 14 min 57 s recorded": (UnusedGPU(), gpu([0.0] * 599, 1.5)),
}


@pytest.mark.parametrize(
    ("status", "words", "rule", "job"),
    [
        pytest.param(status, words, rule, job, id=f"{rule.name}: {words}")
        for status, cases in (
            (Status.TRIGGERED, TRIGGERED),
            (Status.PASSED, PASSED),
            (Status.NOT_EVALUATED, NOT_EVALUATED),
        )
        for words, (rule, job) in cases.items()
    ],
)
def test_a_rule_says_whether_it_triggers(status: Status, words: str, rule: Rule, job: Job) -> None:
    (result,) = run_rules([rule], job, strict=True)

    said = str(result.reason or result.headline)
    assert (result.status, said.replace("\u00a0", " ")) == (status, words)
