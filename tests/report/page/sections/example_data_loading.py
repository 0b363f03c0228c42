"""Data loading and GPU memory for reports built by code."""

from __future__ import annotations

from jobrules.analyses.data_loading import (
    DataLoading,
    FetchTimes,
    LoadersAtWork,
    LoaderSetup,
    NodeLoading,
    Spread,
)
from jobrules.analyses.gpu_memory import GPUMemory, MemoryBand, MemoryLine, MemoryRise, MemoryUse, Trend
from jobrules.analyses.time_lines import Columns

START_US = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC
SECOND_US = 1_000_000


def node_loading(name: str, **facts: object) -> NodeLoading:
    """One process on eight cores."""
    known: dict[str, object] = {
        "pipeline": False,
        "prefetch": None,
        "cores": 8,
        "gpus": 1,
        "seconds": 60,
        "loaders": 1,
        "mean": 1.25,
        "lowest": 1,
        "highest": 3,
        "answer": "too few",
        "reason": "",
        "of_cores_percent": 12.5,
        "evaluated": 2,
        "violating": 2,
    }
    return NodeLoading(name=name, **(known | facts))  # type: ignore[arg-type]


def data_loading(name: str) -> DataLoading:
    """A node, an iterator and fetches of which two took long; ten seconds without loading."""
    held = [None if 20 <= i < 30 else 1 for i in range(70)]
    return DataLoading(
        min_percent=70.0,
        max_percent=200.0,
        nodes=(node_loading(name),),
        nodes_left_out=0,
        setups=(LoaderSetup(node=name, iterator=name, num_workers=1, pin_memory=False, fetches=120),),
        setups_left_out=0,
        times=(
            Spread(key="fetch", count=120, p50_s=0.046, p95_s=0.062, max_s=1.25, total_s=7.9, outliers=2),
            Spread(key="distance", count=119, p50_s=0.5, p95_s=0.52, max_s=4.1, total_s=61.0, outliers=1),
            Spread(key="worker", count=1, p50_s=60.0, p95_s=60.0, max_s=60.0, total_s=60.0, outliers=0),
        ),
        fetches=FetchTimes(
            log=False,
            edges_s=(0.03, 0.04, 0.05, 0.06, 0.07),
            step=0.01,
            counts=(30, 50, 30, 8),
            beyond=2,
            p25_s=0.041,
            p50_s=0.046,
            p95_s=0.062,
            max_s=1.25,
        ),
        columns=Columns(start_us=START_US, width_us=SECOND_US, count=70),
        at_work=(
            LoadersAtWork(
                node=name,
                cores=8,
                mean=tuple(None if one is None else 1.3 for one in held),
                low=tuple(held),
                high=tuple(None if one is None else 3 for one in held),
            ),
        ),
    )


def gpu_memory(node: str, device: str, **facts: object) -> GPUMemory:
    """A GPU that rose once and does not grow."""
    known: dict[str, object] = {
        "samples": 3600,
        "mean": 57.5,
        "p50": 58.0,
        "p95": 73.0,
        "max": 74.0,
        "loop_p5": 57.0,
        "loop_p95": 73.0,
        "rise": 14.0,
        "rise_us": START_US + 600 * SECOND_US,
        "events": 1,
        "trend": Trend(points_per_hour=-0.4, agreement=0.3, steady=False),
    }
    return GPUMemory(node=node, device=device, **(known | facts))  # type: ignore[arg-type]


def memory_use(node: str, device: str, count: int, holes: range = range(0)) -> MemoryUse:
    """Two GPUs of a node over ``count`` columns, one of which rises in the middle; holes have no sample."""

    def curve(before: float, after: float) -> tuple[float | None, ...]:
        return tuple(None if i in holes else before if i < count // 2 else after for i in range(count))

    return MemoryUse(
        limit=5.0,
        window="10",
        loop="training loop",
        gpus=(gpu_memory(node, device), gpu_memory(node, "gpu1", rise=0.4, events=0, p95=59.0)),
        gpus_left_out=0,
        alike=False,
        columns=Columns(start_us=START_US, width_us=3_600_000_000 // count, count=count),
        bands=(MemoryBand(node=node, devices=2, mean=curve(58, 65), low=curve(57, 57), high=curve(60, 74)),),
        lines=(
            MemoryLine(node=node, device=device, mean=curve(58, 72)),
            MemoryLine(node=node, device="gpu1", mean=curve(59, 59)),
        ),
        rises=(
            MemoryRise(
                node=node,
                device=device,
                start_us=START_US + 600 * SECOND_US,
                end_us=START_US + 605 * SECOND_US,
                from_percent=58.0,
                to_percent=72.0,
                points=14.0,
            ),
        ),
        rises_left_out=0,
    )
