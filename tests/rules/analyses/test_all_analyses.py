"""What every analysis gives of a job that has nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jobrules.analyses.balance import balance
from jobrules.analyses.bottlenecks import bottlenecks
from jobrules.analyses.data_loading import data_loading
from jobrules.analyses.demand import demand
from jobrules.analyses.devices import devices
from jobrules.analyses.goodput import goodput
from jobrules.analyses.gpu_memory import gpu_memory
from jobrules.analyses.host import host
from jobrules.analyses.power import power
from jobrules.analyses.steps import steps
from jobrules.analyses.time_lines import Columns
from jobrules.model import SECOND_US, Job
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.step_outlier import StepOutlier
from tests.jobs import START_US, make_events, make_job, make_steps

GRID = Columns(start_us=START_US, width_us=60 * SECOND_US, count=10)
NOTHING = make_job()
GPU, CPU, MEMORY = make_job(gpu=[0.0, 2.0]), make_job(cpu=[99.0, 50.0]), make_job(memory=[1.0, 2.0])
STEP, EVALUATION = (make_job(steps=make_steps([(0, 1)], phase=mode)) for mode in ("TRAIN", "EVAL"))
EVENT = make_job(cpu=[50.0], events=make_events([("Forward", "conv", 0, 1)]))


@pytest.mark.parametrize(
    ("analysis", "jobs"),
    [
        (partial(balance, rule=LoadBalancing()), [NOTHING, CPU]),
        (lambda job: bottlenecks(job, CPUBottleneck(), GRID), [NOTHING, GPU, CPU]),
        (lambda job: bottlenecks(job, IOBottleneck(), GRID), [NOTHING, GPU]),
        (partial(data_loading, rule=Dataloader()), [NOTHING, EVENT]),
        (demand, [NOTHING, STEP]),
        (lambda job: devices(job, GRID, 90), [NOTHING, MEMORY]),
        (goodput, [NOTHING, GPU, EVALUATION]),
        (lambda job: gpu_memory(job, GPUMemoryIncrease(), GRID), [GPU]),
        (host, [NOTHING, GPU]),
        (power, [NOTHING, GPU]),
        (partial(steps, rule=StepOutlier()), [NOTHING, GPU]),
    ],
)
def test_without_its_samples_there_is_nothing(analysis: Callable[[Job], Any], jobs: list[Job]) -> None:
    assert not any(map(analysis, jobs))
