"""``report.json``: everything the page shows, and nothing that a rule or a reader keeps to itself.

This is the seam between computing and showing: notebook and page are made from this file alone.
``docs/report.schema.json`` is its JSON Schema, made from these classes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from jobreport.errors import NothingReadableError
from jobreport.remarks import Quality
from jobrules.analyses.balance import Balance
from jobrules.analyses.bottlenecks import Bottlenecks
from jobrules.analyses.close_ups import CloseUp
from jobrules.analyses.data_loading import DataLoading
from jobrules.analyses.devices import DeviceGrid
from jobrules.analyses.framework import FrameworkTime
from jobrules.analyses.gpu_memory import MemoryUse
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.nodes import NodeComparison
from jobrules.analyses.power import GPUState
from jobrules.analyses.steps import StepTimes
from jobrules.analyses.time_lines import Columns, TimeLine
from jobrules.analyses.utilization import UsageRow
from jobrules.model import DeviceStatus, Measure, Profile, Reason, RuleResult, Status
from jobrules.rule import parameter_fields, written
from jobrules.text import escape_name
from jobrules.verdict.findings import Verdict
from jobrules.verdict.phases import JobPhases

if TYPE_CHECKING:
    from pathlib import Path

    from jobrules.rule import Rule

#: Raised when a field changes its meaning or goes away; additions keep it.
SCHEMA_VERSION = 2


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One machine of the job."""

    name: str
    #: Devices of which anything was sampled, their use or not.
    gpus: int
    cores: int
    #: Sampling interval in seconds (median distance of snapshots); none with fewer than two.
    interval_s: float | None
    first_us: int
    last_us: int


class JobFacts(Struct, frozen=True, kw_only=True):
    """The head of the page."""

    name: str
    start_us: int
    end_us: int
    nodes: tuple[NodeFacts, ...]
    #: Kinds of input that were found, in words: "system samples".
    sources: tuple[str, ...]
    #: Recorded training steps over all workers.
    steps: int
    #: Whether the job said that it ended; none where its source cannot say.
    finished: bool | None
    #: What the profiler was told to record, in words; empty where no file says it.
    recorded: tuple[str, ...] = ()


class Parameter(Struct, frozen=True, kw_only=True):
    """A rule's threshold with the value in force."""

    name: str
    value: float | int | str | None
    #: "%", "samples", "min", "points" or empty, as for a time, which is written ``500s``.
    unit: str
    help: str
    default: float | int | str | None


class RuleCard(Struct, frozen=True, kw_only=True):
    """One rule: what it looks for and what it found."""

    name: str
    title: str
    checks: str
    why: str
    #: Sentences.
    advice: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    #: False for the two summaries, which never trigger.
    can_trigger: bool
    status: Status
    #: Why it was not evaluated; None if it was.
    reason: Reason | None
    headline: str
    measure: Measure | None
    triggered: int
    violations: int
    datapoints: int
    evaluated: int
    violating: int
    counted: str
    severity: float
    first_us: int | None
    last_us: int | None
    #: Anchor of the section with the evidence.
    section: str
    #: What the number is known to get wrong, where it is not ours.
    notes: tuple[str, ...] = ()
    #: The answer for each device, node or worker, where the rule judges these.
    devices: tuple[DeviceStatus, ...] = ()
    #: ``violating`` by kind, where the rule tells kinds apart: windows that are ``low``, and ``fluctuating``.
    kinds: dict[str, int] = field(default_factory=dict)


class Origin(StrEnum):
    """Whose numbers a report shows."""

    #: Ours, from the samples and events of the job.
    SAMPLES = "samples"
    #: The vendor's, from the rule results that its service left behind.
    DEBUGGER_RESULTS = "debugger_results"


class Report(Struct, frozen=True, kw_only=True):
    """Everything the page shows."""

    schema_version: int
    #: Version of jobreport that wrote the file.
    version: str
    #: The command that makes this report again, without paths of the machine that made it.
    command: str
    job: JobFacts
    verdict: Verdict
    phases: JobPhases
    utilization: tuple[UsageRow, ...]
    columns: Columns
    time_lines: tuple[TimeLine, ...]
    boxes: tuple[Box, ...]
    rules: tuple[RuleCard, ...]
    quality: Quality
    #: None where nothing of it was recorded, or OverallFrameworkMetrics was not run.
    framework: FrameworkTime | None = None
    #: The analyses; none, or empty, where what they need was not recorded.
    steps: StepTimes | None = None
    balance: Balance | None = None
    data_loading: DataLoading | None = None
    bottlenecks: tuple[Bottlenecks, ...] = ()
    gpu_memory: MemoryUse | None = None
    devices: DeviceGrid | None = None
    close_ups: tuple[CloseUp, ...] = ()
    #: 12 at most, those with most self time, and how many others there are.
    profiles: tuple[Profile, ...] = ()
    profiles_left: int = 0
    #: The nodes beside one another; none for a report of the vendor's results.
    nodes: NodeComparison | None = None
    origin: Origin = Origin.SAMPLES
    #: Power, temperature, clock and memory in use of each GPU; left out where none of these was sampled.
    power: tuple[GPUState, ...] | UnsetType = UNSET


def to_json(report: Report) -> bytes:
    """The file's bytes: the same for equal reports."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def checked(result: RuleResult) -> RuleResult:
    """The result with plain numbers where a rule of a user's own left those of numpy.

    Raises ``TypeError`` or ``msgspec.ValidationError`` for what is no result that can be written.
    """
    if not isinstance(result, RuleResult):
        raise TypeError(f"check returned {type(result).__name__}, not a RuleResult")
    # Details may be large, and their numbers need no type of ours.
    told = msgspec.json.encode(replace(result, details={}), enc_hook=_of_numpy)
    return replace(msgspec.json.decode(told, type=RuleResult), details=result.details)


def _of_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def from_json(data: bytes) -> Report:
    """Read what ``to_json`` wrote; ``msgspec.ValidationError`` says what does not fit."""
    return msgspec.json.decode(data, type=Report)


def load(path: Path) -> Report:
    """Read a report file, with a sentence for what can go wrong."""
    try:
        report = from_json(path.read_bytes())
    except OSError as error:
        raise NothingReadableError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise NothingReadableError(
            f"{path} is not a report of this version of jobreport (schema {SCHEMA_VERSION}): {escape_name(str(error), 200)}"
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
    """The rules of a report file of any version; ``NothingReadableError`` where it is none."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Rules)
    except (OSError, ValueError, RecursionError) as error:
        raise NothingReadableError(f"{path} is no report.") from error
    return [one.name for one in found.rules if one.name.isidentifier()]


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``report.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}


#: Keys of ``rules/<RuleName>.json`` beside the vendor's five.
EXTRA_KEYS = {
    "Status": "`triggered`, `passed`, `not evaluated` or `error`",
    "Reason": "why there is no answer: what is missing, with the count",
    "Severity": "share of what was judged that is in violation, 0 to 1: comparable between rules",
    "Evaluated": "how many of `Counted` were judged",
    "InViolation": "how many of these are in violation",
    "Counted": "what was judged, in words",
    "DatapointsPerSeries": "samples of each device or node, where that is what `Datapoints` counts",
    "Devices": "the answer for each device, node or worker: status, reason, how many were judged and are in violation",
}


def rule_json(rule: Rule, result: RuleResult) -> bytes:
    """``rules/<RuleName>.json``: the vendor's five keys, then ours."""
    values = {name: getattr(rule, name) for name, _, _ in parameter_fields(rule)}
    values = {second: values[name] for second, name in rule.aliases.items()} | values
    ours = (
        result.status,
        str(result.reason or ""),
        result.severity,
        result.evaluated,
        result.violating,
        result.counted,
        result.datapoints_per_series,
        {one.name: _without_name(one) for one in result.devices},
    )
    document = {
        "RuleTriggered": result.triggered,
        "Violations": result.violations,
        "Details": result.details,
        "Datapoints": result.datapoints,
        "RuleParameters": "\n".join(f"{name}:{_plain(value)}" for name, value in values.items()),
        **dict(zip(EXTRA_KEYS, ours, strict=True)),
    }
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=_of_numpy), indent=1) + b"\n"


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
