"""The sensors of system samples, and the metric and device of each."""

from __future__ import annotations

import hashlib

from jobrules.model import Metric
from jobrules.text import escape_name

#: Device names of metrics of the whole node.
_MEMORY, _NETWORK, _DISK = "memory", "network", "disk"

#: By type and dimension; each name is a device.
_DEVICES = {
    ("cpu", "CPUUtilization"): Metric.CPU_UTILIZATION,
    ("cpu", "I/OWaitPercentage"): Metric.IO_WAIT,
    ("gpu", "GPUUtilization"): Metric.GPU_UTILIZATION,
    ("gpu", "GPUMemoryUtilization"): Metric.GPU_MEMORY_ACTIVITY,
}
#: By type, dimension and name.
_WHOLE_NODE = {
    ("memory", "", ""): (Metric.HOST_MEMORY, _MEMORY),
    ("memory", "", "MemoryUsedPercent"): (Metric.HOST_MEMORY, _MEMORY),
    ("network", "Algorithm", "ReceiveBytesPerSecond"): (Metric.NETWORK_RECEIVE, _NETWORK),
    ("network", "Algorithm", "TransmitBytesPerSecond"): (Metric.NETWORK_TRANSMIT, _NETWORK),
    ("network", "Platform", "ReceiveBytesPerSecond"): (Metric.PLATFORM_RECEIVE, _NETWORK),
    ("network", "Platform", "TransmitBytesPerSecond"): (Metric.PLATFORM_TRANSMIT, _NETWORK),
    ("i/o", "", "IOPS"): (Metric.DISK_OPERATIONS, _DISK),
    ("i/o", "", "ReadThroughputInBytesPerSecond"): (Metric.DISK_READ, _DISK),
    ("i/o", "", "WriteThroughputInBytesPerSecond"): (Metric.DISK_WRITE, _DISK),
}
#: A node has fewer GPUs, each pair of which is compared; more are damage or malice.
MAX_GPUS = 512
#: Characters of a name in DNS.
_MAX_NAME = 253


def sensor(type_: str, dimension: str, name: str) -> tuple[Metric, str] | None:
    """Metric and device of a sensor; None for an unknown one."""
    metric = _DEVICES.get((type_, dimension))
    if metric is None:
        return _WHOLE_NODE.get((type_, dimension, name))
    return metric, as_name(name or type_)


def as_name(text: str) -> str:
    """Name of a node or a device: the text, if it is a short, printable line.

    Otherwise the text is escaped and cut, with a mark that differs from that of other texts that look the same then.
    """
    if len(text) <= _MAX_NAME and text.isprintable():
        return text
    mark = hashlib.blake2s(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{escape_name(text)} ({mark})"
