"""What is true of a training job: rules and measures over its tables. Computes; reads and draws nothing."""

from jobrules.batch_size import BatchSize
from jobrules.capture_rules.allocation_stall import AllocationStall
from jobrules.capture_rules.data_loader_wait import DataLoaderWait
from jobrules.capture_rules.exposed_communication import ExposedCommunication
from jobrules.capture_rules.exposed_copies import ExposedCopies
from jobrules.capture_rules.launch_bound import LaunchBound
from jobrules.capture_rules.no_tensor_cores import NoTensorCores
from jobrules.capture_rules.profiler_overhead import ProfilerOverhead
from jobrules.capture_rules.straggler_rank import StragglerRank
from jobrules.capture_rules.synchronization_stall import SynchronizationStall
from jobrules.capture_rules.uneven_ranks import UnevenRanks
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.ecc_errors import ECCErrors
from jobrules.energy import Energy
from jobrules.gpu_memory_full import GPUMemoryFull
from jobrules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.gpu_memory_leak import GPUMemoryLeak
from jobrules.idle_gaps import IdleGaps
from jobrules.io_bottleneck import IOBottleneck
from jobrules.load_balancing import LoadBalancing
from jobrules.low_gpu_utilization import LowGPUUtilization
from jobrules.low_mean_utilization import LowMeanUtilization
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.overall_system_usage import OverallSystemUsage
from jobrules.power_cap import PowerCap
from jobrules.rule import Rule
from jobrules.slow_clock import SlowClock
from jobrules.step_outlier import StepOutlier
from jobrules.thermal_throttling import ThermalThrottling
from jobrules.unused_gpu import UnusedGPU

__all__ = [
    "RULES",
    "AllocationStall",
    "BatchSize",
    "CPUBottleneck",
    "DataLoaderWait",
    "Dataloader",
    "ECCErrors",
    "Energy",
    "ExposedCommunication",
    "ExposedCopies",
    "GPUMemoryFull",
    "GPUMemoryIncrease",
    "GPUMemoryLeak",
    "IOBottleneck",
    "IdleGaps",
    "LaunchBound",
    "LoadBalancing",
    "LowGPUUtilization",
    "LowMeanUtilization",
    "MaxInitializationTime",
    "NoTensorCores",
    "OverallFrameworkMetrics",
    "OverallSystemUsage",
    "PowerCap",
    "ProfilerOverhead",
    "Rule",
    "SlowClock",
    "StepOutlier",
    "StragglerRank",
    "SynchronizationStall",
    "ThermalThrottling",
    "UnevenRanks",
    "UnusedGPU",
]

#: Every rule, in the order of the report.
RULES: tuple[type[Rule], ...] = (
    CPUBottleneck,
    IOBottleneck,
    LowGPUUtilization,
    StepOutlier,
    GPUMemoryIncrease,
    BatchSize,
    MaxInitializationTime,
    LoadBalancing,
    OverallSystemUsage,
    Dataloader,
    OverallFrameworkMetrics,
    UnusedGPU,
    IdleGaps,
    LowMeanUtilization,
    GPUMemoryFull,
    GPUMemoryLeak,
    ThermalThrottling,
    PowerCap,
    SlowClock,
    ECCErrors,
    Energy,
    ExposedCommunication,
    StragglerRank,
    UnevenRanks,
    LaunchBound,
    DataLoaderWait,
    SynchronizationStall,
    ExposedCopies,
    AllocationStall,
    NoTensorCores,
    ProfilerOverhead,
)
