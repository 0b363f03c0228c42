"""``report.json``: everything the page shows, and nothing else.

Notebook and page are made from this file alone. ``docs/report.schema.json`` is its JSON Schema, made from these
classes.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from jobreport import formats
from jobreport.cost.document import JobCost, ShareOfPeak
from jobreport.ended import Ended
from jobreport.errors import NothingReadableError
from jobreport.remarks import Quality
from jobrules.analyses.balance import Balance
from jobrules.analyses.blocks import StepBlocks, TimeBlocks
from jobrules.analyses.bottlenecks import Bottlenecks
from jobrules.analyses.close_ups import CloseUp
from jobrules.analyses.code_lines import CodeLines
from jobrules.analyses.data_loading import DataLoading
from jobrules.analyses.demand import Demand
from jobrules.analyses.devices import DeviceGrid
from jobrules.analyses.framework import FrameworkTime
from jobrules.analyses.goodput import Goodput
from jobrules.analyses.gpu_memory import MemoryUse
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.host import HostUse
from jobrules.analyses.learning.plots import LearningPlots
from jobrules.analyses.nodes import NodeComparison
from jobrules.analyses.power import GPUState
from jobrules.analyses.rank_waits import WaitsOfRanks
from jobrules.analyses.steps import StepTimes
from jobrules.analyses.throughput import Throughput
from jobrules.analyses.time_lines import Columns, TimeLine
from jobrules.analyses.typical_step import TypicalStep
from jobrules.analyses.utilization import UsageRow
from jobrules.model import Amount, Count, DeviceStatus, Measure, Profile, Reason, RuleResult, Severity, Status
from jobrules.model.captures import AcrossRanks, Capture
from jobrules.model.names import Name, NodeName, OwnText
from jobrules.rule import parameter_fields, samples_in, written
from jobrules.text import escape_name
from jobrules.verdict.findings import Verdict
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.starting import StartUpParts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jobrules.model import Metric
    from jobrules.rule import Rule

#: Raised when a field changes its meaning or goes away; additions keep it.
SCHEMA_VERSION = 3

#: What sentences call SageMaker Debugger, and its results among the sources.
DEBUGGER, DEBUGGER_RESULTS = "SageMaker Debugger", "rule results of SageMaker Debugger"


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One node of the job."""

    name: NodeName
    #: GPUs with samples of any metric.
    gpus: Count
    cores: Count
    #: Sampling interval in seconds (median distance of snapshots); None with fewer than two snapshots.
    interval_s: Amount | None
    first_us: int
    last_us: int


class JobFacts(Struct, frozen=True, kw_only=True):
    """The head of the page."""

    name: Annotated[str, Name("job")]
    start_us: int
    end_us: int
    nodes: tuple[NodeFacts, ...]
    #: Kinds of input: ``system samples``.
    sources: tuple[OwnText, ...]
    #: Recorded steps of all ranks.
    steps: Count
    #: Whether the end of the job was recorded; None if its sources cannot record it.
    finished: bool | None
    #: Settings of the profiler, a sentence each; empty if no file has them.
    recorded: tuple[OwnText, ...] = ()

    @property
    def spans_days(self) -> bool:
        """Whether the job crosses midnight, so that times need a date."""
        return formats.spans_days(self.start_us, self.end_us)


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of a rule, with the value that was used."""

    name: OwnText
    value: float | int | OwnText | None
    #: ``%``, ``samples``, ``min``, ``points``; empty for a time, which is written ``500s``, and for other numbers.
    unit: OwnText
    help: OwnText
    default: float | int | OwnText | None


class RuleCard(Struct, frozen=True, kw_only=True):
    """One rule: its documentation, parameters, and result."""

    name: OwnText
    title: OwnText
    checks: OwnText
    why: OwnText
    #: Sentences.
    advice: tuple[OwnText, ...]
    parameters: tuple[Parameter, ...]
    #: False for summaries, which never trigger.
    can_trigger: bool
    status: Status
    #: Why it was not evaluated; None if it was.
    reason: Reason | None
    headline: OwnText
    measure: Measure | None
    triggered: int
    violations: int
    datapoints: int
    evaluated: int
    violating: int
    counted: OwnText
    severity: float
    first_us: int | None
    last_us: int | None
    #: Anchor of the section with the evidence.
    section: OwnText
    #: Known errors of SageMaker Debugger's numbers.
    notes: tuple[OwnText, ...] = ()
    #: The result of each device, node, or rank, if the rule has one for each.
    devices: tuple[DeviceStatus, ...] = ()
    #: ``violating`` by kind, if the rule has kinds: windows that are ``low``, and ``fluctuating``.
    kinds: dict[OwnText, int] = field(default_factory=dict)

    @property
    def was_evaluated(self) -> bool:
        """Whether the rule triggered or passed."""
        return self.status in (Status.TRIGGERED, Status.PASSED)


class Origin(StrEnum):
    """Where the numbers of a report come from."""

    #: Computed from the samples and events of the job.
    SAMPLES = "samples"
    #: Copied from the rule results of SageMaker Debugger.
    DEBUGGER_RESULTS = "debugger_results"


class Report(Struct, frozen=True, kw_only=True):
    """Everything the page shows."""

    schema_version: int
    #: Version of jobreport that wrote the file.
    version: OwnText
    #: The command that reproduces the report, without paths of the machine that made it.
    command: OwnText
    job: JobFacts
    verdict: Verdict
    phases: JobPhases
    utilization: tuple[UsageRow, ...]
    columns: Columns
    time_lines: tuple[TimeLine, ...]
    boxes: tuple[Box, ...]
    rules: tuple[RuleCard, ...]
    quality: Quality
    #: None if nothing of it was recorded, or OverallFrameworkMetrics did not run.
    framework: FrameworkTime | None = None
    #: The analyses; None or empty if what they need was not recorded.
    steps: StepTimes | None = None
    rank_waits: WaitsOfRanks | UnsetType = UNSET
    startup_parts: StartUpParts | UnsetType = UNSET
    typical_step: TypicalStep | UnsetType = UNSET
    throughput: Throughput | UnsetType = UNSET
    share_of_peak: ShareOfPeak | UnsetType = UNSET
    #: Left out if nothing of the training itself was recorded.
    learning: LearningPlots | UnsetType = UNSET
    #: Left out if no stacks of Python code were sampled.
    code_lines: CodeLines | UnsetType = UNSET
    balance: Balance | None = None
    data_loading: DataLoading | None = None
    bottlenecks: tuple[Bottlenecks, ...] = ()
    gpu_memory: MemoryUse | None = None
    devices: DeviceGrid | None = None
    close_ups: tuple[CloseUp, ...] = ()
    #: At most 12, those with most self time, and the number of all others.
    profiles: tuple[Profile, ...] = ()
    profiles_left: int = 0
    #: Comparison of the nodes; None in a report of SageMaker Debugger's results.
    nodes: NodeComparison | None = None
    origin: Origin = Origin.SAMPLES
    #: Power, temperature, clock, and memory in use of each GPU; left out if none of these was sampled.
    power: tuple[GPUState, ...] | UnsetType = UNSET
    #: Processes of the job, and free space; left out if neither was sampled.
    host: HostUse | UnsetType = UNSET
    #: Traces of PyTorch's profiler, and what their ranks have in common; left out if there are none.
    captures: tuple[Capture, ...] | UnsetType = UNSET
    across_ranks: AcrossRanks | UnsetType = UNSET
    #: For compare-reports, cost, and goodput; left out by older versions. None or empty if what they need was not recorded.
    blocks: StepBlocks | UnsetType | None = UNSET
    time_blocks: tuple[TimeBlocks, ...] | UnsetType = UNSET
    goodput: Goodput | UnsetType | None = UNSET
    demand: Demand | UnsetType | None = UNSET
    #: Left out of a job that ended well, and if its end was not recorded.
    ended: Ended | UnsetType = UNSET
    #: Left out if no price was given.
    cost: JobCost | UnsetType = UNSET
    #: When the report was made, of a job that ran then (``make-report --watch``); left out of all other reports.
    made_us: int | UnsetType = UNSET

    @property
    def of_debugger(self) -> bool:
        """Whether the numbers are copied from the rule results of SageMaker Debugger."""
        return self.origin is Origin.DEBUGGER_RESULTS

    @property
    def gpus_of_debugger(self) -> bool:
        """Whether what is known of the GPUs is copied from these results."""
        return self.of_debugger or bool(self.verdict.use and self.verdict.use.source == DEBUGGER)

    @property
    def has_debugger(self) -> bool:
        """Whether these results are among the sources."""
        return self.of_debugger or DEBUGGER_RESULTS in self.job.sources

    @property
    def only_traces(self) -> bool:
        """Whether nothing but traces was recorded: nothing is known of the whole job, not even how long it took."""
        return bool(self.captures) and not self.job.nodes

    @property
    def only_learning(self) -> bool:
        """Whether nothing but the training itself was recorded."""
        return bool(self.learning) and not self.job.nodes and not self.captures

    @property
    def has_times(self) -> bool:
        """Whether anything says when the job ran; what a script logged need not."""
        return bool(self.job.end_us) or not self.only_learning

    def sign(self, card: RuleCard) -> Severity | Status:
        """Severity of the worst finding of a triggered rule; otherwise its status."""
        if card.status is not Status.TRIGGERED:
            return card.status
        found = [one.severity for one in self.verdict.findings if card.name in one.rules]
        return min(found, key=list(Severity).index, default=Severity.INFO)

    @property
    def judging(self) -> list[RuleCard]:
        """The rules that are no summaries: by severity, then those that failed, passed, and were not evaluated."""
        order = [*Severity, Status.ERROR, Status.PASSED, Status.NOT_EVALUATED]
        cards = [card for card in self.rules if card.can_trigger]
        return sorted(cards, key=lambda card: (order.index(self.sign(card)), -card.severity, card.name))

    def card(self, rule: str) -> RuleCard | None:
        """The card of a rule; None if it was not selected."""
        return next((card for card in self.rules if card.name == rule), None)


def to_json(report: Report) -> bytes:
    """Content of the file: the same for equal reports; a capture is one line, as a job may have a thousand."""
    text = msgspec.json.format(msgspec.json.encode(replace(report, captures=UNSET)), indent=1)
    if report.captures:
        lines = b",\n  ".join(map(msgspec.json.encode, report.captures))
        text = text.removesuffix(b"\n}") + b',\n "captures": [\n  ' + lines + b"\n ]\n}"
    return text + b"\n"


def checked(result: RuleResult) -> RuleResult:
    """The result with plain numbers: a rule of a user may return those of numpy.

    Raises ``TypeError`` or ``msgspec.ValidationError`` if it cannot be written.
    """
    if not isinstance(result, RuleResult):
        raise TypeError(f"check returned {type(result).__name__}, not a RuleResult")
    # Details may be large, and any JSON is allowed in them.
    encoded = msgspec.json.encode(replace(result, details={}, more={}), enc_hook=_of_numpy)
    return replace(msgspec.json.decode(encoded, type=RuleResult), details=result.details, more=result.more)


def _of_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def from_json(data: bytes) -> Report:
    """Inverse of ``to_json``; raises ``msgspec.ValidationError`` for other content."""
    return msgspec.json.decode(data, type=Report)


def load(path: Path) -> Report:
    """Read a report file; raises ``NothingReadableError`` if it is missing, no report, or of another schema."""
    try:
        report = from_json(path.read_bytes())
    except OSError as error:
        raise NothingReadableError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise NothingReadableError(
            f"{path} is not a report of this version of jobreport (schema {SCHEMA_VERSION}): "
            f"{escape_name(str(error), 200)}"
        ) from error
    if report.schema_version != SCHEMA_VERSION:
        raise NothingReadableError(
            f"{path} has schema {report.schema_version}, this version of jobreport reads {SCHEMA_VERSION}."
        )
    return report


class _Named(msgspec.Struct):
    name: str


class _Rules(msgspec.Struct):
    schema_version: int
    rules: list[_Named]


def rule_names(path: Path) -> list[str]:
    """The rules of a report file of any version; raises ``NothingReadableError`` for other files."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Rules)
    except (OSError, ValueError, RecursionError) as error:
        raise NothingReadableError(f"{path} is no report.") from error
    return [one.name for one in found.rules if one.name.isidentifier()]


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``report.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}


#: Keys of ``rules/<RuleName>.json`` in addition to the five of SageMaker Debugger, and their meaning.
EXTRA_KEYS = {
    "Status": "`triggered`, `passed`, `not evaluated` or `error`",
    "Reason": "why the rule was not evaluated: what is missing, with the count",
    "Severity": "share of `Evaluated` that is in violation, 0 to 1: comparable between rules",
    "Evaluated": "how many of `Counted` were checked",
    "InViolation": "how many of these are in violation",
    "Counted": "what was checked, such as windows",
    "DatapointsPerSeries": "samples of each device or node, if that is what `Datapoints` counts",
    "Devices": "result of each device, node, or rank: status, reason, number of checks and of violations",
    "MoreDetails": "figures that SageMaker Debugger's `Details` have no place for",
    "ParameterTimes": "the parameters that were given as a time; `RuleParameters` has them in samples",
}


def rule_json(rule: Rule, result: RuleResult, intervals_us: Mapping[Metric, int]) -> bytes:
    """The file of a rule: the keys of SageMaker Debugger, then ``EXTRA_KEYS``.

    ``intervals_us`` are the sampling intervals of the job, by which a time is written in samples.
    """
    values = {name: getattr(rule, name) for name, _, _ in parameter_fields(rule)}
    times = {name: value for name, value in values.items() if isinstance(value, timedelta)}
    interval_us = next((intervals_us[metric] for metric in rule.requires if metric in intervals_us), 0)
    values |= {name: samples_in(value, interval_us) for name, value in times.items()}
    values = {second: values[name] for second, name in rule.aliases.items()} | values
    extra = (
        result.status,
        str(result.reason or ""),
        result.severity,
        result.evaluated,
        result.violating,
        result.counted,
        result.datapoints_per_series,
        {one.name: _without_name(one) for one in result.devices},
        result.more,
        {name: written(value) for name, value in times.items()},
    )
    document = {
        "RuleTriggered": result.triggered,
        "Violations": result.violations,
        "Details": result.details,
        "Datapoints": result.datapoints,
        "RuleParameters": "\n".join(f"{name}:{_plain(value)}" for name, value in values.items()),
        **dict(zip(EXTRA_KEYS, extra, strict=True)),
    }
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=_of_numpy), indent=1) + b"\n"


#: Metrics that each node has in ``Details`` of OverallSystemUsage.
_OF_EACH_NODE = ("Network", "CPU", "CPU memory", "I/O")


def has_schema(result: RuleResult) -> bool:
    """True if readers of SageMaker Debugger's format find what they look for, and take no missing answer for a pass."""
    if result.status in (Status.NOT_EVALUATED, Status.ERROR):
        return False
    if result.rule != "OverallSystemUsage":
        return True
    details = result.details
    nodes = {node for metric in details.values() for node in metric}
    gpus = details["GPU"].keys() == details["GPU memory"].keys()
    return gpus and all(details[metric].keys() == nodes for metric in _OF_EACH_NODE)


def _without_name(one: DeviceStatus) -> dict[str, Any]:
    return {
        "Status": one.status,
        "Reason": str(one.reason or ""),
        "Evaluated": one.evaluated,
        "InViolation": one.violating,
    }


def _plain(value: Any) -> str:
    plain = written(value)
    return f"{plain:.15g}" if isinstance(plain, float) else str(plain)
