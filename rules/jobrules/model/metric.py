"""Sampled quantities: one table of their nouns, labels and units."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Quantity(Struct, frozen=True):
    """A quantity in words."""

    #: In a sentence.
    noun: str
    #: In the head of a table or figure.
    label: str
    #: ``%`` (of one device, 0 to 100), ``B/s``, ``1/s``, ``B``, ``W``, ``°C``, ``MHz``; empty for a count.
    unit: str = "%"
    #: Of the noun.
    verb: str = "was"


class Metric(StrEnum):
    """A sampled quantity, named for what it is and not for the tool that sampled it."""

    GPU_UTILIZATION = "gpu_utilization"
    #: The share of time in which the GPU's memory was read or written, not how much of it is in use.
    GPU_MEMORY_ACTIVITY = "gpu_memory_activity"
    CPU_UTILIZATION = "cpu_utilization"
    IO_WAIT = "io_wait"
    HOST_MEMORY = "host_memory"
    NETWORK_RECEIVE = "network_receive"
    NETWORK_TRANSMIT = "network_transmit"
    PLATFORM_RECEIVE = "platform_receive"
    PLATFORM_TRANSMIT = "platform_transmit"
    DISK_READ = "disk_read"
    DISK_WRITE = "disk_write"
    DISK_OPERATIONS = "disk_operations"
    #: Bytes in use, and the size of the memory.
    GPU_MEMORY_USED = "gpu_memory_used"
    GPU_MEMORY_TOTAL = "gpu_memory_total"
    GPU_POWER = "gpu_power"
    GPU_POWER_LIMIT = "gpu_power_limit"
    GPU_TEMPERATURE = "gpu_temperature"
    #: Of the processors that compute.
    GPU_CLOCK = "gpu_clock"
    #: Throttle reasons, 100 while one holds: heat, the power limit, the hardware (heat or another reason).
    GPU_THERMAL_SLOWDOWN = "gpu_thermal_slowdown"
    GPU_POWER_CAP = "gpu_power_cap"
    GPU_HARDWARE_SLOWDOWN = "gpu_hardware_slowdown"
    #: Memory errors, counted from before the job.
    GPU_ECC_CORRECTED = "gpu_ecc_corrected"
    GPU_ECC_UNCORRECTED = "gpu_ecc_uncorrected"

    @property
    def quantity(self) -> Quantity:
        """The metric in words."""
        return _QUANTITIES[self]

    @property
    def label(self) -> str:
        """Name in tables and figures."""
        return self.quantity.label

    @property
    def unit(self) -> str:
        """Unit of ``quantity``."""
        return self.quantity.unit

    @property
    def of_gpus(self) -> bool:
        """True if it is sampled per GPU."""
        return self.name.startswith("GPU_")


_QUANTITIES = {
    Metric.GPU_UTILIZATION: Quantity("GPU utilization", "GPU"),
    Metric.GPU_MEMORY_ACTIVITY: Quantity("GPU memory activity", "GPU memory activity"),
    Metric.CPU_UTILIZATION: Quantity("CPU utilization", "CPU"),
    Metric.IO_WAIT: Quantity("I/O wait", "I/O wait"),
    Metric.HOST_MEMORY: Quantity("host memory", "Host memory"),
    Metric.NETWORK_RECEIVE: Quantity("network traffic", "Network receive", "B/s"),
    Metric.NETWORK_TRANSMIT: Quantity("network traffic", "Network transmit", "B/s"),
    Metric.PLATFORM_RECEIVE: Quantity("platform traffic", "Platform receive", "B/s"),
    Metric.PLATFORM_TRANSMIT: Quantity("platform traffic", "Platform transmit", "B/s"),
    Metric.DISK_READ: Quantity("disk traffic", "Disk read", "B/s"),
    Metric.DISK_WRITE: Quantity("disk traffic", "Disk write", "B/s"),
    Metric.DISK_OPERATIONS: Quantity("disk operations", "Disk operations", "1/s", "were"),
    Metric.GPU_MEMORY_USED: Quantity("GPU memory in use", "GPU memory in use", "B"),
    Metric.GPU_MEMORY_TOTAL: Quantity("GPU memory size", "GPU memory size", "B"),
    Metric.GPU_POWER: Quantity("GPU power", "GPU power", "W"),
    Metric.GPU_POWER_LIMIT: Quantity("GPU power limit", "GPU power limit", "W"),
    Metric.GPU_TEMPERATURE: Quantity("GPU temperature", "GPU temperature", "°C"),
    Metric.GPU_CLOCK: Quantity("GPU clocks", "GPU clock", "MHz", "were"),
    Metric.GPU_THERMAL_SLOWDOWN: Quantity("throttle reasons", "Thermal slowdown", "%", "were"),
    Metric.GPU_POWER_CAP: Quantity("throttle reasons", "At the power limit", "%", "were"),
    Metric.GPU_HARDWARE_SLOWDOWN: Quantity("throttle reasons", "Hardware slowdown", "%", "were"),
    Metric.GPU_ECC_CORRECTED: Quantity("memory errors", "Corrected memory errors", "", "were"),
    Metric.GPU_ECC_UNCORRECTED: Quantity("memory errors", "Uncorrected memory errors", "", "were"),
}
