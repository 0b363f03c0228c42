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
    #: ``%`` (of one device, 0 to 100), ``B/s``, ``1/s``, ``B``, ``W``, ``°C``, ``MHz``, ``J``, ``cores``, ``% of a core``;
    #: empty for a count.
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
    #: Shares of time in which the GPU's processors, its matrix units, and its memory worked, by hardware counters.
    GPU_SM_ACTIVITY = "gpu_sm_activity"
    GPU_TENSOR_ACTIVITY = "gpu_tensor_activity"
    GPU_DRAM_ACTIVITY = "gpu_dram_activity"
    #: Counted from before the job.
    GPU_ENERGY = "gpu_energy"
    #: Of the container where it has a limit, otherwise of the node.
    HOST_MEMORY_USED = "host_memory_used"
    HOST_MEMORY_TOTAL = "host_memory_total"
    SWAP_USED = "swap_used"
    #: Traffic that network interfaces do not count.
    RDMA_RECEIVE = "rdma_receive"
    RDMA_TRANSMIT = "rdma_transmit"
    #: Cores that the job's container (its cgroup) uses and may use, and the share of the scheduler's periods in which it
    #: had to wait.
    CONTAINER_CPU = "container_cpu"
    CONTAINER_CPU_LIMIT = "container_cpu_limit"
    CONTAINER_CPU_THROTTLED = "container_cpu_throttled"
    #: Of all cores of the machine, where CPU_UTILIZATION is that of the cores that the container allows.
    MACHINE_CPU = "machine_cpu"
    #: Processes that the kernel killed for lack of memory, counted from before the job.
    OOM_KILLS = "oom_kills"
    #: Shares of time in which some process waited.
    CPU_PRESSURE = "cpu_pressure"
    IO_PRESSURE = "io_pressure"
    MEMORY_PRESSURE = "memory_pressure"
    #: Of each file system.
    FREE_SPACE = "free_space"
    #: Cores that all processes of the job use.
    JOB_CPU = "job_cpu"
    #: Of each process of the job; loader processes of a rank are added up.
    PROCESS_CPU = "process_cpu"
    PROCESS_MEMORY = "process_memory"
    PROCESS_THREADS = "process_threads"

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
    Metric.GPU_SM_ACTIVITY: Quantity("SM activity", "SM activity"),
    Metric.GPU_TENSOR_ACTIVITY: Quantity("tensor core activity", "Tensor core activity"),
    Metric.GPU_DRAM_ACTIVITY: Quantity("DRAM activity", "DRAM activity"),
    Metric.GPU_ENERGY: Quantity("GPU energy", "GPU energy", "J"),
    Metric.HOST_MEMORY_USED: Quantity("host memory in use", "Host memory in use", "B"),
    Metric.HOST_MEMORY_TOTAL: Quantity("host memory size", "Host memory size", "B"),
    Metric.SWAP_USED: Quantity("swap in use", "Swap in use", "B"),
    Metric.RDMA_RECEIVE: Quantity("RDMA traffic", "RDMA receive", "B/s"),
    Metric.RDMA_TRANSMIT: Quantity("RDMA traffic", "RDMA transmit", "B/s"),
    Metric.CONTAINER_CPU: Quantity("cores in use", "Cores in use", "cores", "were"),
    Metric.CONTAINER_CPU_LIMIT: Quantity("CPU limit", "CPU limit", "cores"),
    Metric.CONTAINER_CPU_THROTTLED: Quantity("CPU throttling", "CPU throttled"),
    Metric.MACHINE_CPU: Quantity("CPU utilization of the machine", "CPU, whole machine"),
    Metric.OOM_KILLS: Quantity("kills for lack of memory", "Kills for lack of memory", "", "were"),
    Metric.CPU_PRESSURE: Quantity("CPU pressure", "CPU pressure"),
    Metric.IO_PRESSURE: Quantity("I/O pressure", "I/O pressure"),
    Metric.MEMORY_PRESSURE: Quantity("memory pressure", "Memory pressure"),
    Metric.FREE_SPACE: Quantity("free space", "Free space", "B"),
    Metric.JOB_CPU: Quantity("cores that the job uses", "Cores in use by the job", "cores", "were"),
    Metric.PROCESS_CPU: Quantity("CPU use of processes", "CPU of a process", "% of a core"),
    Metric.PROCESS_MEMORY: Quantity("memory of processes", "Memory of a process", "B"),
    Metric.PROCESS_THREADS: Quantity("threads of processes", "Threads of a process", "", "were"),
}
