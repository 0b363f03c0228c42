"""System samples written for a test, and a reader of them that is slow and easy to check."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from fuzz.sample_rows_reference import moments_of, sample_of
from jobreport.readers.registry import read_job
from jobreport.remarks import Quality, Remark
from jobrules.model import Job, Metric

T0 = 1_700_000_100.0
HOUR = "system/incremental/2023111422"
FILE = f"{HOUR}/1700000100.algo-1.json"

METRICS = {
    ("cpu", "CPUUtilization", None): Metric.CPU_UTILIZATION,
    ("cpu", "I/OWaitPercentage", None): Metric.IO_WAIT,
    ("gpu", "GPUUtilization", None): Metric.GPU_UTILIZATION,
    ("gpu", "GPUMemoryUtilization", None): Metric.GPU_MEMORY_ACTIVITY,
    ("memory", "", "MemoryUsedPercent"): Metric.HOST_MEMORY,
    ("network", "Algorithm", "ReceiveBytesPerSecond"): Metric.NETWORK_RECEIVE,
    ("network", "Algorithm", "TransmitBytesPerSecond"): Metric.NETWORK_TRANSMIT,
    ("network", "Platform", "ReceiveBytesPerSecond"): Metric.PLATFORM_RECEIVE,
    ("network", "Platform", "TransmitBytesPerSecond"): Metric.PLATFORM_TRANSMIT,
    ("i/o", "", "IOPS"): Metric.DISK_OPERATIONS,
    ("i/o", "", "ReadThroughputInBytesPerSecond"): Metric.DISK_READ,
    ("i/o", "", "WriteThroughputInBytesPerSecond"): Metric.DISK_WRITE,
}
#: The device of a metric of the whole node.
DEVICES = {"memory": "memory", "network": "network", "i/o": "disk"}

#: Node and metric, then time of the snapshot, then device: value.
Tables = dict[tuple[str, Metric], dict[int, dict[str, float]]]


def sample(
    value: object = 10,
    *,
    at: object = T0,
    name: object = "gpu0",
    kind: str = "gpu",
    dimension: str = "GPUUtilization",
    node: object = "algo-1",
    without: str = "",
) -> str:
    """One line; ``without`` names a key to leave out."""
    keys = {
        "Type": kind,
        "Name": name,
        "Dimension": dimension,
        "Value": value,
        "NodeId": node,
        "Timestamp": at,
    }
    return json.dumps({key: value for key, value in keys.items() if key != without})


def read(directory: Path, files: Mapping[str, str | bytes | Iterable[str]]) -> tuple[Job, Quality]:
    """Write the files below the directory and read it; an iterable of lines becomes a text."""
    write(directory, files)
    return read_job(directory)


def write(directory: Path, files: Mapping[str, str | bytes | Iterable[str]]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else "".join(f"{line}\n" for line in content))


def values(job: Job, metric: Metric = Metric.GPU_UTILIZATION, node: str = "algo-1") -> list[list[float]]:
    panel = job.panel(node, metric)
    assert panel is not None
    table: list[list[float]] = panel.values.tolist()
    return table


def remarks(quality: Quality) -> dict[str, Remark]:
    """All remarks by reason."""
    every = [*quality.remarks, *(r for source in quality.sources for r in source.remarks)]
    by_reason = {remark.reason: remark for remark in every}
    assert len(by_reason) == len(every)
    return by_reason


def tables(job: Job) -> Tables:
    """The panels of a job in the form that the slow reader makes."""
    return {
        (p.node, p.metric): {
            time: {d: v for d, v in zip(p.devices, row, strict=True) if not math.isnan(v)}
            for time, row in zip(p.time_us.tolist(), p.values.tolist(), strict=True)
        }
        for p in job.panels
    }


def slow_tables(lines: Iterable[str]) -> Tables:
    """What the lines hold, by one loop after another over Python objects."""
    found = {one for line in lines if (one := sample_of(line.encode(), FILE))}
    result: Tables = {}
    for node, moments in moments_of(found).items():
        for moment in moments:
            starts: dict[Metric, int] = {}
            for one in moment:
                kind, dimension, name = one.sensor
                metric = METRICS.get((kind, dimension, None)) or METRICS[one.sensor]
                start = starts.setdefault(metric, one.time_us)
                row = result.setdefault((node, metric), {}).setdefault(start, {})
                top = 100 if metric.unit == "%" else math.inf
                row.setdefault(DEVICES.get(kind, name), min(max(one.value, 0.0), top))
    return result
