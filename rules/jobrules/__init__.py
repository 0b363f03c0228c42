"""What is true of a training job: rules and measures over its tables. Computes; reads and draws nothing."""

from jobrules.rule import Rule
from jobrules.rules.batch_size import BatchSize
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.ecc_errors import ECCErrors
from jobrules.rules.energy import Energy
from jobrules.rules.gpu_memory_full import GPUMemoryFull
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.rules.gpu_memory_leak import GPUMemoryLeak
from jobrules.rules.idle_gaps import IdleGaps
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.learning import LEARNING_RULES
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.low_gpu_utilization import LowGPUUtilization
from jobrules.rules.low_mean_utilization import LowMeanUtilization
from jobrules.rules.max_initialization_time import MaxInitializationTime
from jobrules.rules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.rules.overall_system_usage import OverallSystemUsage
from jobrules.rules.power_cap import PowerCap
from jobrules.rules.slow_clock import SlowClock
from jobrules.rules.step_outlier import StepOutlier
from jobrules.rules.thermal_throttling import ThermalThrottling
from jobrules.rules.traces.allocation_stall import AllocationStall
from jobrules.rules.traces.data_loader_wait import DataLoaderWait
from jobrules.rules.traces.exposed_communication import ExposedCommunication
from jobrules.rules.traces.exposed_copies import ExposedCopies
from jobrules.rules.traces.launch_bound import LaunchBound
from jobrules.rules.traces.no_tensor_cores import NoTensorCores
from jobrules.rules.traces.profiler_overhead import ProfilerOverhead
from jobrules.rules.traces.straggler_rank import StragglerRank
from jobrules.rules.traces.synchronization_stall import SynchronizationStall
from jobrules.rules.traces.uneven_ranks import UnevenRanks
from jobrules.rules.unused_gpu import UnusedGPU

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
    *LEARNING_RULES,
)
