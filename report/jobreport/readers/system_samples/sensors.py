"""The sensors of system samples, and the metric and device of each."""

from __future__ import annotations

from jobreport.readers.names import as_name
from jobrules.model import Metric

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


def sensor(type_: str, dimension: str, name: str) -> tuple[Metric, str] | None:
    """Metric and device of a sensor; None for an unknown one."""
    metric = _DEVICES.get((type_, dimension))
    if metric is None:
        return _WHOLE_NODE.get((type_, dimension, name))
    return metric, as_name(name or type_)
