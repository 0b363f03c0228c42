"""The sensors of system samples, of SageMaker's profiler and of record-job, and the metric and device of each.

docs/architecture.md shows where the page has each metric.
"""

from __future__ import annotations

from jobreport.readers.names import as_name
from jobrules.model import Metric

#: Device names of metrics of the whole node.
_MEMORY, _NETWORK, _DISK, _CPU, _SWAP = "memory", "network", "disk", "cpu", "swap"

#: By type and dimension; each name is a device.
_DEVICES = {
    ("cpu", "CPUUtilization"): Metric.CPU_UTILIZATION,
    ("cpu", "I/OWaitPercentage"): Metric.IO_WAIT,
    ("gpu", "GPUUtilization"): Metric.GPU_UTILIZATION,
    ("gpu", "GPUMemoryUtilization"): Metric.GPU_MEMORY_ACTIVITY,
    ("gpu", "GPUMemoryUsedInBytes"): Metric.GPU_MEMORY_USED,
    ("gpu", "GPUMemoryTotalInBytes"): Metric.GPU_MEMORY_TOTAL,
    ("gpu", "PowerInWatts"): Metric.GPU_POWER,
    ("gpu", "PowerLimitInWatts"): Metric.GPU_POWER_LIMIT,
    ("gpu", "EnergyInJoules"): Metric.GPU_ENERGY,
    ("gpu", "TemperatureInCelsius"): Metric.GPU_TEMPERATURE,
    ("gpu", "SMClockInMHz"): Metric.GPU_CLOCK,
    ("gpu", "ThermalSlowdownPercentage"): Metric.GPU_THERMAL_SLOWDOWN,
    ("gpu", "PowerCapPercentage"): Metric.GPU_POWER_CAP,
    ("gpu", "HardwareSlowdownPercentage"): Metric.GPU_HARDWARE_SLOWDOWN,
    ("gpu", "ECCCorrected"): Metric.GPU_ECC_CORRECTED,
    ("gpu", "ECCUncorrected"): Metric.GPU_ECC_UNCORRECTED,
    ("gpu", "SMActivePercentage"): Metric.GPU_SM_ACTIVITY,
    ("gpu", "TensorActivePercentage"): Metric.GPU_TENSOR_ACTIVITY,
    ("gpu", "DRAMActivePercentage"): Metric.GPU_DRAM_ACTIVITY,
    ("process", "CPUUtilization"): Metric.PROCESS_CPU,
    ("process", "ResidentBytes"): Metric.PROCESS_MEMORY,
    ("process", "Threads"): Metric.PROCESS_THREADS,
    ("disk", "FreeBytes"): Metric.FREE_SPACE,
}
#: By type, dimension and name.
_WHOLE_NODE = {
    ("memory", "", ""): (Metric.HOST_MEMORY, _MEMORY),
    ("memory", "", "MemoryUsedPercent"): (Metric.HOST_MEMORY, _MEMORY),
    ("memory", "", "MemoryUsedInBytes"): (Metric.HOST_MEMORY_USED, _MEMORY),
    ("memory", "", "MemoryTotalInBytes"): (Metric.HOST_MEMORY_TOTAL, _MEMORY),
    ("memory", "", "SwapUsedInBytes"): (Metric.SWAP_USED, _SWAP),
    ("network", "Algorithm", "ReceiveBytesPerSecond"): (Metric.NETWORK_RECEIVE, _NETWORK),
    ("network", "Algorithm", "TransmitBytesPerSecond"): (Metric.NETWORK_TRANSMIT, _NETWORK),
    ("network", "Platform", "ReceiveBytesPerSecond"): (Metric.PLATFORM_RECEIVE, _NETWORK),
    ("network", "Platform", "TransmitBytesPerSecond"): (Metric.PLATFORM_TRANSMIT, _NETWORK),
    ("network", "RDMA", "ReceiveBytesPerSecond"): (Metric.RDMA_RECEIVE, _NETWORK),
    ("network", "RDMA", "TransmitBytesPerSecond"): (Metric.RDMA_TRANSMIT, _NETWORK),
    ("container", "", "CPUUsedCores"): (Metric.CONTAINER_CPU, _CPU),
    ("container", "", "CPULimitCores"): (Metric.CONTAINER_CPU_LIMIT, _CPU),
    ("container", "", "CPUThrottledPercentage"): (Metric.CONTAINER_CPU_THROTTLED, _CPU),
    ("container", "", "OOMKills"): (Metric.OOM_KILLS, _MEMORY),
    ("process", "CPUUsedCores", "job"): (Metric.JOB_CPU, _CPU),
    ("pressure", "SomePercentage", "CPU"): (Metric.CPU_PRESSURE, _CPU),
    ("pressure", "SomePercentage", "IO"): (Metric.IO_PRESSURE, _DISK),
    ("pressure", "SomePercentage", "Memory"): (Metric.MEMORY_PRESSURE, _MEMORY),
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
