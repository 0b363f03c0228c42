"""What is true of a training job: rules and measures over its tables. Computes; reads and draws nothing."""

from jobrules.batch_size import BatchSize
from jobrules.low_gpu_utilization import LowGPUUtilization
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.overall_system_usage import OverallSystemUsage
from jobrules.rule import Rule

__all__ = ["RULES", "BatchSize", "LowGPUUtilization", "MaxInitializationTime", "OverallSystemUsage", "Rule"]

#: Every rule, in the order of the report.
RULES: tuple[type[Rule], ...] = (
    LowGPUUtilization,
    BatchSize,
    MaxInitializationTime,
    OverallSystemUsage,
)
