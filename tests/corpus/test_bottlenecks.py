"""The bottleneck rules of real jobs against those of SageMaker Debugger.

The kept rows cannot check its bottlenecks, for want of single cores and of I/O wait; they can check
in which snapshots a GPU idled.
"""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.measures.snapshots import TOLERANCE_US
from jobrules.model import SECOND_US, Metric, Status
from jobrules.rule import run_rules
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from tests.corpus.test_debugger_results import JOBS, cut_job, written
from tests.paths import needs_corpus

pytestmark = needs_corpus

GPU_JOBS = [name for name in JOBS if written(name, "LowGPUUtilization")["Datapoints"]]


def test_there_are_jobs_with_gpus() -> None:
    assert len(GPU_JOBS) >= 8


@pytest.mark.parametrize("name", JOBS)
def test_snapshots_of_an_idle_gpu_are_as_many_as_in_sagemaker_debugger(name: str) -> None:
    (ours,) = run_rules([CPUBottleneck()], cut_job(name))
    theirs = written(name, "CPUBottleneck")
    if name not in GPU_JOBS:
        assert (ours.status, str(ours.reason)) == (Status.NOT_EVALUATED, "no GPU was sampled")
        assert ours.details == theirs["Details"] == {"low_gpu_utilization": 0, "bottlenecks": {}}
        return

    assert ours.details["low_gpu_utilization"] == theirs["Details"]["low_gpu_utilization"]
    # SageMaker Debugger also counts moments in which no GPU was read.
    assert ours.datapoints <= theirs["Datapoints"] < 1.02 * ours.datapoints


@pytest.mark.parametrize("rule", ["CPUBottleneck", "IOBottleneck"])
@pytest.mark.parametrize("name", GPU_JOBS)
def test_gpus_of_sagemaker_debuggers_bottlenecks_are_idle(name: str, rule: str) -> None:
    (panel,) = cut_job(name).panels_of(Metric.GPU_UTILIZATION)
    idle = (panel.values < 10).sum(axis=1)

    for seconds, counts in written(name, rule)["Details"]["bottlenecks"].items():
        time_us = round(float(seconds) * SECOND_US)
        row = int(np.argmin(np.abs(panel.time_us - time_us)))
        assert abs(panel.time_us[row] - time_us) <= TOLERANCE_US, seconds
        assert idle[row] == counts["GPUs"], seconds
