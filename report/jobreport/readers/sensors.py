"""The sensors that system samples may name, and what they are in our words."""

from __future__ import annotations

from jobrules.job import Metric

#: Device names of metrics of the whole node.
_MEMORY, _NETWORK, _DISK = "memory", "network", "disk"

#: By type and dimension; every name is a device.
_DEVICES = {
    ("cpu", "CPUUtilization"): Metric.CPU_USE,
    ("cpu", "I/OWaitPercentage"): Metric.IO_WAIT,
    ("gpu", "GPUUtilization"): Metric.GPU_USE,
    ("gpu", "GPUMemoryUtilization"): Metric.GPU_MEMORY,
}
#: By type, dimension and name.
_WHOLE_NODE = {
    ("memory", "", ""): (Metric.MEMORY, _MEMORY),
    ("memory", "", "MemoryUsedPercent"): (Metric.MEMORY, _MEMORY),
    ("network", "Algorithm", "ReceiveBytesPerSecond"): (Metric.NETWORK_RECEIVE, _NETWORK),
    ("network", "Algorithm", "TransmitBytesPerSecond"): (Metric.NETWORK_TRANSMIT, _NETWORK),
    ("network", "Platform", "ReceiveBytesPerSecond"): (Metric.PLATFORM_RECEIVE, _NETWORK),
    ("network", "Platform", "TransmitBytesPerSecond"): (Metric.PLATFORM_TRANSMIT, _NETWORK),
    ("i/o", "", "IOPS"): (Metric.DISK_OPERATIONS, _DISK),
    ("i/o", "", "ReadThroughputInBytesPerSecond"): (Metric.DISK_READ, _DISK),
    ("i/o", "", "WriteThroughputInBytesPerSecond"): (Metric.DISK_WRITE, _DISK),
}
#: The longest name that DNS allows a machine.
_LONGEST_NAME = 253


def sensor(type_: str, dimension: str, name: str) -> tuple[Metric, str] | None:
    """Metric and device of a sensor, or none for one that we do not know."""
    metric = _DEVICES.get((type_, dimension))
    if metric is None:
        return _WHOLE_NODE.get((type_, dimension, name))
    return (metric, name or type_) if is_name(name or type_) else None


def is_name(name: str) -> bool:
    """Whether a machine or a device may be called so: one short line that can be printed."""
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()
