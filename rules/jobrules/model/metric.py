"""Sampled quantities, their labels and units."""

from __future__ import annotations

from enum import StrEnum


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
    #: Memory that is in use, and that there is.
    GPU_MEMORY_USED = "gpu_memory_used"
    GPU_MEMORY_TOTAL = "gpu_memory_total"
    GPU_POWER = "gpu_power"
    GPU_POWER_LIMIT = "gpu_power_limit"
    GPU_TEMPERATURE = "gpu_temperature"
    #: Of the processors that compute.
    GPU_CLOCK = "gpu_clock"
    #: Why it is low, 100 while the reason holds: heat, the power limit, the hardware (for heat or another reason).
    GPU_THERMAL_SLOWDOWN = "gpu_thermal_slowdown"
    GPU_POWER_CAP = "gpu_power_cap"
    GPU_HARDWARE_SLOWDOWN = "gpu_hardware_slowdown"
    #: Memory errors since a moment before the job.
    GPU_ECC_CORRECTED = "gpu_ecc_corrected"
    GPU_ECC_UNCORRECTED = "gpu_ecc_uncorrected"

    @property
    def label(self) -> str:
        """The name a reader sees."""
        return _LABELS[self]

    @property
    def of_gpus(self) -> bool:
        """Whether it is sampled of each GPU."""
        return self.name.startswith("GPU_")

    @property
    def unit(self) -> str:
        """``%`` (of one device, 0 to 100), ``B/s``, ``1/s``, ``B``, ``W``, ``°C``, ``MHz``; empty for a count."""
        return _UNITS.get(self, "%")


_LABELS = {
    Metric.GPU_UTILIZATION: "GPU",
    Metric.GPU_MEMORY_ACTIVITY: "GPU memory activity",
    Metric.CPU_UTILIZATION: "CPU",
    Metric.IO_WAIT: "I/O wait",
    Metric.HOST_MEMORY: "Host memory",
    Metric.NETWORK_RECEIVE: "Network receive",
    Metric.NETWORK_TRANSMIT: "Network transmit",
    Metric.PLATFORM_RECEIVE: "Platform receive",
    Metric.PLATFORM_TRANSMIT: "Platform transmit",
    Metric.DISK_READ: "Disk read",
    Metric.DISK_WRITE: "Disk write",
    Metric.DISK_OPERATIONS: "Disk operations",
    Metric.GPU_MEMORY_USED: "GPU memory in use",
    Metric.GPU_MEMORY_TOTAL: "GPU memory total",
    Metric.GPU_POWER: "GPU power",
    Metric.GPU_POWER_LIMIT: "GPU power limit",
    Metric.GPU_TEMPERATURE: "GPU temperature",
    Metric.GPU_CLOCK: "GPU clock",
    Metric.GPU_THERMAL_SLOWDOWN: "Thermal slowdown",
    Metric.GPU_POWER_CAP: "Held by the power limit",
    Metric.GPU_HARDWARE_SLOWDOWN: "Hardware slowdown",
    Metric.GPU_ECC_CORRECTED: "Corrected memory errors",
    Metric.GPU_ECC_UNCORRECTED: "Uncorrected memory errors",
}

_UNITS = {
    Metric.NETWORK_RECEIVE: "B/s",
    Metric.NETWORK_TRANSMIT: "B/s",
    Metric.PLATFORM_RECEIVE: "B/s",
    Metric.PLATFORM_TRANSMIT: "B/s",
    Metric.DISK_READ: "B/s",
    Metric.DISK_WRITE: "B/s",
    Metric.DISK_OPERATIONS: "1/s",
    Metric.GPU_MEMORY_USED: "B",
    Metric.GPU_MEMORY_TOTAL: "B",
    Metric.GPU_POWER: "W",
    Metric.GPU_POWER_LIMIT: "W",
    Metric.GPU_TEMPERATURE: "°C",
    Metric.GPU_CLOCK: "MHz",
    Metric.GPU_ECC_CORRECTED: "",
    Metric.GPU_ECC_UNCORRECTED: "",
}
