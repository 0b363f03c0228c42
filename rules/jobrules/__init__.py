"""What is true of a training job: rules and measures over its tables. Computes; reads and draws nothing."""

from jobrules.batch_size import BatchSize
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.io_bottleneck import IOBottleneck
from jobrules.load_balancing import LoadBalancing
from jobrules.low_gpu_utilization import LowGPUUtilization
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.overall_system_usage import OverallSystemUsage
from jobrules.rule import Rule
from jobrules.step_outlier import StepOutlier

__all__ = [
    "RULES",
    "BatchSize",
    "CPUBottleneck",
    "Dataloader",
    "GPUMemoryIncrease",
    "IOBottleneck",
    "LoadBalancing",
    "LowGPUUtilization",
    "MaxInitializationTime",
    "OverallFrameworkMetrics",
    "OverallSystemUsage",
    "Rule",
    "StepOutlier",
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
)
