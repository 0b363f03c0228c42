"""What a rule sees of a training job, and what it returns: tables, facts, findings, results."""

from jobrules.model.events import Events, EventSource, Lane, Loader
from jobrules.model.finding import (
    AlsoSeenAs,
    Fact,
    Finding,
    HowMuch,
    Inferred,
    Measure,
    Note,
    Severity,
    When,
    Where,
    in_words,
)
from jobrules.model.job import ByNode, Frame, Job, JobInMemory, PanelFacts, PartFacts
from jobrules.model.loop_facts import LoopFacts, Stalls
from jobrules.model.metric import Metric, Quantity
from jobrules.model.panel import OfGPU, Panel
from jobrules.model.profiles import Function, Profile
from jobrules.model.result import DeviceStatus, Reason, ReasonKind, RuleResult, Status
from jobrules.model.steps import StepMark, Steps, StepSeries
from jobrules.model.types import (
    SECOND_US,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    MarkArray,
    StrArray,
    natural_key,
    natural_sorted,
    span_of,
)

__all__ = [
    "SECOND_US",
    "AlsoSeenAs",
    "BoolArray",
    "ByNode",
    "CodeArray",
    "DeviceStatus",
    "EventSource",
    "Events",
    "Fact",
    "Finding",
    "FloatArray",
    "Frame",
    "Function",
    "HowMuch",
    "Inferred",
    "IntArray",
    "Job",
    "JobInMemory",
    "Lane",
    "Loader",
    "LoopFacts",
    "MarkArray",
    "Measure",
    "Metric",
    "Note",
    "OfGPU",
    "Panel",
    "PanelFacts",
    "PartFacts",
    "Profile",
    "Quantity",
    "Reason",
    "ReasonKind",
    "RuleResult",
    "Severity",
    "Stalls",
    "Status",
    "StepMark",
    "StepSeries",
    "Steps",
    "StrArray",
    "When",
    "Where",
    "in_words",
    "natural_key",
    "natural_sorted",
    "span_of",
]
