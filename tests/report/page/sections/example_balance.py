"""Loads and boxes for the sections on workload balance and batch size, made by the functions they are made by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.analyses.balance import Balance
from jobrules.analyses.balance import balance as measured
from jobrules.analyses.gpu_utilization import Box, gpu_utilization
from jobrules.model import JobInMemory, Metric, Panel
from jobrules.rules.load_balancing import LoadBalancing
from tests.copies import replace
from tests.jobs import make_panel

#: Samples of each GPU; the rule wants more than 1000.
SAMPLES = 1200


def panel(
    node: str, levels: Sequence[float], prefix: str = "gpu", metric: Metric = Metric.GPU_UTILIZATION
) -> Panel:
    """A node whose GPUs swing by 3 points around their level; NaN is a GPU that is sampled once only."""
    wave = 3 * np.sin(np.arange(SAMPLES))[:, None]
    values = np.clip(np.array(levels)[None, :] + wave, 0, 100)
    values[0] = np.where(np.isnan(values[0]), 40.0, values[0])
    made = make_panel(metric, values, node=node)
    return replace(made, devices=tuple(f"{prefix}{i}" for i in range(len(levels))))


def of_panels(*panels: Panel) -> Balance:
    """The loads of a job of these nodes."""
    found = measured(JobInMemory(name="job", panels=panels), LoadBalancing())
    assert found
    return found


def balance(name: str) -> Balance:
    """Two nodes whose names and GPUs have a given name: the last GPU of the first is used less, one was hardly sampled."""
    first = panel(f"{name}-1", [90, 90, 91, 90, float("nan"), 40], prefix=name)
    return of_panels(first, panel(f"{name}-2", [90, 91], prefix=name))


def boxes(node: str, gpus: Sequence[float], memory: Sequence[float], cpu: float | None) -> tuple[Box, ...]:
    """All boxes of one node from the levels of its GPUs, their memory and its CPU; none where not sampled."""
    panels = [panel(node, gpus)]
    panels += [panel(node, memory, metric=Metric.GPU_MEMORY_ACTIVITY)] if memory else []
    panels += [panel(node, [cpu - 4, cpu + 4], "cpu", Metric.CPU_UTILIZATION)] if cpu is not None else []
    return gpu_utilization(JobInMemory(name="job", panels=tuple(panels)))
