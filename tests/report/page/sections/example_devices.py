"""The use of devices over time as pages must be able to tell it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.analyses.devices import FULL, NOT_MEASURED, CoreUse, DeviceGrid, DeviceRows
from jobrules.analyses.time_lines import Columns

START_US = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC
GPU, CPU, MEMORY = "gpu_utilization", "cpu_utilization", "gpu_memory_activity"


def rows(node: str, metric: str, devices: Sequence[str], values: Sequence[Sequence[int]]) -> DeviceRows:
    """A row of columns for each device; 255 is not measured, a full core is 101 more."""
    table = np.array(values, np.uint8).tobytes()
    return DeviceRows(node=node, metric=metric, devices=tuple(devices), left_out=0, values=table)


def core(node: str, device: str, mean: float, at_limit: float = 0.0) -> CoreUse:
    return CoreUse(
        node=node,
        device=device,
        n=3600,
        mean=mean,
        p50=mean,
        p95=99.0,
        p99=99.5,
        max=100.0,
        below_10=0.125,
        from_10_to_90=0.625,
        above_90=0.25,
        at_limit=at_limit,
    )


def devices(
    name: str,
    *,
    nodes: int = 1,
    gpus: int = 2,
    cores: int = 4,
    count: int = 60,
    gap: bool = True,
    gpu: str = "gpu",
) -> DeviceGrid:
    """GPU i at 20 + 30 i %, core 0 full from the middle on, nothing measured in the last tenth but one.

    Nodes are called ``name`` and, if there are several, a number behind it; GPUs ``gpu`` and a number.
    """
    names = [name] if nodes == 1 else [f"{name}-{i:02}" for i in range(nodes)]
    hole = slice(8 * count // 10, 9 * count // 10) if gap else slice(0, 0)
    tables, use = [], []
    for at, node in enumerate(names):
        busy = np.full((gpus, count), 0, np.int64) + np.minimum(20 + 30 * np.arange(gpus) + at, 100)[:, None]
        work = np.full((cores, count), 35, np.int64)
        work[:1, count // 2 :] = FULL + 95
        memory = np.full((gpus, count), 75, np.int64)
        for metric, values in ((GPU, busy), (CPU, work), (MEMORY, memory)):
            values[:, hole] = NOT_MEASURED
            kind = "cpu" if metric == CPU else gpu
            if len(values):
                tables.append(rows(node, metric, [f"{kind}{i}" for i in range(len(values))], values.tolist()))
        use += [core(node, f"cpu{i}", 35.0 + i, 0.0 if i else 0.444) for i in range(cores)]
    columns = Columns(start_us=START_US, width_us=3_600_000_000 // count, count=count)
    return DeviceGrid(columns=columns, rows=tuple(tables), cores=tuple(use), limit=90.0)
