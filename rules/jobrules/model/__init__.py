"""What a rule sees of a training job, and what it returns: tables, facts, findings, results."""

from jobrules.model.events import Events, EventSource, Lane, Loader
from jobrules.model.finding import Finding, Measure, Severity
from jobrules.model.job import Frame, Job, JobInMemory, PanelFacts, PartFacts
from jobrules.model.metric import Metric
from jobrules.model.panel import Panel
from jobrules.model.profiles import Function, Profile
from jobrules.model.result import DeviceStatus, RuleResult, Status
from jobrules.model.steps import Steps, StepSeries
from jobrules.model.types import (
    SECOND_US,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    StrArray,
    natural_key,
    natural_sorted,
    span_of,
)

__all__ = [
    "SECOND_US",
    "BoolArray",
    "CodeArray",
    "DeviceStatus",
    "EventSource",
    "Events",
    "Finding",
    "FloatArray",
    "Frame",
    "Function",
    "IntArray",
    "Job",
    "JobInMemory",
    "Lane",
    "Loader",
    "Measure",
    "Metric",
    "Panel",
    "PanelFacts",
    "PartFacts",
    "Profile",
    "RuleResult",
    "Severity",
    "Status",
    "StepSeries",
    "Steps",
    "StrArray",
    "natural_key",
    "natural_sorted",
    "span_of",
]
