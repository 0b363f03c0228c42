"""What was found in a job: the typed results that rules return and figures draw.

Shares are fractions from 0 to 1 unless a field says percent; ``percent`` fields are rounded for
print, and those of one whole add up to 100.0. Times are microseconds since the epoch (UTC).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field


class Status(StrEnum):
    """What became of a rule."""

    TRIGGERED = "triggered"
    PASSED = "passed"
    NOT_EVALUATED = "not evaluated"
    ERROR = "error"


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing worth telling, with its evidence and one piece of advice."""

    #: Short name for links, the same in every report: ``low-gpu-utilization``.
    key: str
    severity: Severity
    #: The fact with its number.
    title: str
    #: Where, when, how much.
    evidence: str
    #: What to try, and what it will not solve.
    advice: str
    #: Names of the rules that saw it; empty for what no rule looks for, as a gap in the samples.
    rules: tuple[str, ...]
    #: The section of the page that holds the evidence, by its anchor.
    section: str
    #: The devices it is about, as ``node/device``; empty where it is about no device in particular.
    devices: tuple[str, ...] = ()
    #: Share of the whole that ``share_of`` names; none where no share makes sense.
    share: float | None = None
    #: "of GPU time", "of windows".
    share_of: str = ""
    #: The same amount in GPU-seconds, where it is GPU time.
    gpu_s: float | None = None
    start_us: int | None = None
    end_us: int | None = None


class Measure(Struct, frozen=True, kw_only=True):
    """What a rule compared with its limits, for the bar on its card."""

    value: float
    limits: tuple[float, ...]
    #: Right end of the bar.
    scale: float
    #: Written after value and limits: "% of windows", "min".
    unit: str
    #: What the limit means: "triggers above 20 min".
    limit_text: str


class Box(Struct, frozen=True, kw_only=True):
    """Distribution of one device's samples of one metric; values in ``unit``."""

    node: str
    device: str
    metric: str
    unit: str
    #: ``whole job`` or ``training loop``.
    basis: str
    #: None where the source does not say it, as everything below with a default.
    n: int | None = None
    mean: float | None = None
    min: float | None = None
    p5: float | None = None
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float | None = None
    max: float
    #: Whisker ends: the quartile and 1.5 times the interquartile range, cut at the extremes.
    lower: float
    upper: float
    #: Shares of the samples below 10, from there to 90, and above (percent metrics), rounded so that
    #: they add up to 1.000.
    below_10: float | None = None
    from_10_to_90: float | None = None
    above_90: float | None = None


class UsageRow(Struct, frozen=True, kw_only=True):
    """Distribution of a metric of one node over its snapshots, the mean over the devices of each."""

    node: str
    label: str
    #: ``%``, ``B`` or ``B/s``.
    unit: str
    #: Snapshots; none where the source does not say it, as everything below with a default.
    n: int | None = None
    min: float
    p50: float
    p90: float | None = None
    p95: float
    p99: float
    max: float
    mean: float | None = None


#: Parts of the lost time that no cause is known of: while all GPUs of a node idled at once (IdleGaps), else
#: below 10 % of a device, and above.
REST = ("idle-gaps", "idle", "partly")


class Part(Struct, frozen=True, kw_only=True):
    """One part of a whole, as time."""

    #: ``used``, ``idle-before``, ``idle-after``, ``idle``, ``partly``, ``unmeasured``, or the key of the
    #: finding on the cause of the loss.
    key: str
    label: str
    #: ``used``, ``lost`` or ``unknown``: decides the colour.
    role: str
    #: Device-hours, rounded so that the parts add up to the printed total.
    hours: float
    #: Rounded so that the parts add up to 100.0.
    percent: float
    #: Key of the finding that tells it, with the same amount; empty where none does.
    finding: str = ""


class RoleSum(Struct, frozen=True, kw_only=True):
    """All parts of one role together, as printed."""

    #: ``used``, ``lost`` or ``unknown``.
    role: str
    #: Device-hours, and percent of all.
    hours: float
    percent: float


class TimeUse(Struct, frozen=True, kw_only=True):
    """How the time of all devices of one kind was spent; each moment of a device is in one part."""

    #: ``GPU`` or ``CPU``.
    device: str
    count: int
    #: Device-hours from the first to the last record of the job, rounded as the parts are.
    hours: float
    #: Digits after the point that ``hours`` are rounded to.
    digits: int
    #: Used; lost by cause, the largest first; lost without a known cause; not measured.
    parts: tuple[Part, ...]
    #: The parts by role.
    roles: tuple[RoleSum, ...]
    #: More GPUs, of which something was sampled, but not their use: they are in no part.
    unknown: int | UnsetType = UNSET

    @classmethod
    def of_parts(
        cls,
        device: str,
        count: int,
        hours: float,
        digits: int,
        parts: tuple[Part, ...],
        unknown: int | UnsetType = UNSET,
    ) -> TimeUse:
        """With the parts summed up by role."""
        roles = tuple(
            RoleSum(
                role=role,
                hours=round(sum(p.hours for p in parts if p.role == role), digits),
                percent=round(sum(p.percent for p in parts if p.role == role), 1),
            )
            for role in dict.fromkeys(p.role for p in parts)
        )
        return cls(
            device=device, count=count, hours=hours, digits=digits, parts=parts, roles=roles, unknown=unknown
        )

    @property
    def time(self) -> str:
        """What the percentages are of: ``GPU time``, or ``the time of 1 of 4 GPUs``."""
        return (
            f"the time of {self.count} of {self.count + self.unknown} GPUs"
            if self.unknown
            else f"{self.device} time"
        )

    @property
    def noun(self) -> str:
        """What the hours are hours of: ``GPU`` or ``core``."""
        return "GPU" if self.device == "GPU" else "core"

    @property
    def lost_word(self) -> str:
        """What unused time is called: a GPU's is lost, a core's is free for other work."""
        return "lost" if self.device == "GPU" else "free"

    def of(self, role: str) -> tuple[float, float]:
        """(device-hours, percent) of all parts of one role, as printed."""
        return next(((one.hours, one.percent) for one in self.roles if one.role == role), (0.0, 0.0))


class Phase(Struct, frozen=True, kw_only=True):
    """A stretch of the job."""

    #: ``before``, ``loop``, ``after`` or ``whole``.
    key: str
    label: str
    start_us: int
    end_us: int
    #: Of the job's duration; the phases add up to 100.0.
    percent: float


class Gap(Struct, frozen=True, kw_only=True):
    """A time without samples on one node."""

    node: str
    start_us: int
    end_us: int


class Missing(Struct, frozen=True, kw_only=True):
    """All times without samples of one node, or those that all nodes have in common."""

    #: Empty where it is all nodes.
    node: str
    #: Start of the first and end of the last.
    start_us: int
    end_us: int
    #: How many there are, how long they are together, and in percent of the job, one digit.
    count: int
    length_us: int
    percent: float
    #: What is left of the job, in percent.
    measured_percent: float


class Course(Struct, frozen=True, kw_only=True):
    """The job in time."""

    #: What separates the phases: ``steps``, ``gpu`` (first and last GPU work) or ``none``.
    basis: str
    phases: tuple[Phase, ...]
    gaps: tuple[Gap, ...]
    #: First and last sample of a GPU above 0 %.
    first_work_us: int | None
    last_work_us: int | None
    #: The gaps by node, the longest in all first; and the times in which none of several nodes was sampled.
    missing: tuple[Missing, ...] = ()
    interrupted: Missing | None = None


class TimeLine(Struct, frozen=True, kw_only=True):
    """A metric of one node over time, reduced to columns so that every peak survives.

    The lists hold one entry a column; none means that the column has no sample. The columns of
    all time lines of a job are the same.
    """

    node: str
    #: The metric's key, as ``gpu_utilization`` or ``network_receive``.
    key: str
    label: str
    unit: str
    devices: int
    mean: tuple[float | None, ...]
    #: Lowest and highest sample of any device in the column; of what either holds or not, as a slowdown, the lowest
    #: and highest mean of a device.
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    #: Mean of the samples, where they are known, else of the columns; lowest and highest sample; none without any.
    average: float | None
    lowest: float | None
    highest: float | None
    #: Columns without a sample, in percent of all, one digit.
    missing_percent: float


class Columns(Struct, frozen=True, kw_only=True):
    """The time columns that all time lines share: column i starts at ``start_us + i * width_us``."""

    start_us: int
    width_us: int
    count: int


class Slice(Struct, frozen=True, kw_only=True):
    """One part of a time that was told apart by what it was spent on."""

    name: str
    seconds: float
    #: Rounded so that the parts add up to 100.0.
    percent: float
    #: How many parts it stands for; more than 1 in the last one, which joins what is left out.
    count: int = 1


class Operator(Struct, frozen=True, kw_only=True):
    """An operator of the framework, on CPU or GPU."""

    name: str
    calls: int
    #: Seconds without, and with the operators that it calls.
    self_s: float
    total_s: float
    #: Of the own time of all operators of the same kind of device.
    percent: float
    #: Own seconds of a call.
    call_s: float


class Operators(Struct, frozen=True, kw_only=True):
    """The operators of one kind of device."""

    #: ``CPU`` or ``GPU``.
    device: str
    #: Most own time first, 25 at most.
    rows: tuple[Operator, ...]
    #: How many others there are, their calls, and their own time in seconds and percent.
    others: int
    others_calls: int
    others_s: float
    others_percent: float
    #: Own time of all in seconds, and in percent of that of all kinds of device; and their calls.
    self_s: float
    self_percent: float
    calls: int
    #: Seconds of the job in which any of them ran; none where that is not known.
    ran_s: float | None = None


class WorkerTime(Struct, frozen=True, kw_only=True):
    """How one worker spent the time from its first step to its last."""

    node: str
    worker: str
    seconds: float
    #: For each of ``FrameworkTime.kinds``, rounded so that they add up to 100.0.
    percents: tuple[float, ...]


class PhaseTime(Struct, frozen=True, kw_only=True):
    """A phase beside steps and operators, over the stretch in which it was recorded.

    The stretch of a worker lies between its first and its last such event. Shares are of the stretches
    of all workers with three such events, none without one.
    """

    #: Empty for the rest, which ``count`` phases share.
    name: str
    count: int = 1
    events: int
    #: Of all events together.
    seconds: float
    #: First start and last end, over all workers.
    first_us: int
    last_us: int
    #: Steps that began in a worker's stretch, of the worker with most of them.
    steps: int
    #: Share of the stretches in which it ran, in percent.
    percent: float | None = None
    #: Share in which it ran of what lay between the steps in these stretches, in percent.
    outside_percent: float | None = None


class FrameworkTime(Struct, frozen=True, kw_only=True):
    """Where the time of the framework went."""

    #: Steps by phase and the time outside of steps, over all workers, from the first step of each to its last.
    steps: tuple[Slice, ...]
    #: Forward, backward, data loading and the like; what was profiled, often a few steps.
    general: tuple[Slice, ...]
    operators: tuple[Operators, ...]
    horovod: tuple[Slice, ...]
    #: First and last step that operators were recorded for; none where they name none.
    first_step: int | None
    last_step: int | None
    #: Whether a forward pass was recorded and no backward pass: then steps end with the forward pass.
    forward_only: bool
    #: Forward and backward pass, the longer first; empty where one of them was not recorded.
    passes: tuple[Slice, ...] = ()
    #: Seconds of the job in which any of ``general`` ran; and its phases, the largest share first.
    general_s: float | None = None
    phases: tuple[PhaseTime, ...] = ()
    #: What the workers' time is told apart by: the time outside of steps first, then phases.
    kinds: tuple[str, ...] = ()
    #: 16 at most; of more those whose time outside of steps is farthest from the median, farthest first.
    workers: tuple[WorkerTime, ...] = ()
    #: How many other workers there are, and the mean of their percents.
    other_workers: int = 0
    other_percents: tuple[float, ...] = ()
    #: The time outside of steps of the median worker, in percent; none without workers.
    outside_median: float | None = None


class DeviceStatus(Struct, frozen=True, kw_only=True):
    """What became of one device, node or worker under a rule."""

    #: ``node/device``, ``node`` or ``node/worker``.
    name: str
    #: Triggered, passed or not evaluated.
    status: Status
    #: Why it was not judged, with the count that was missing: "only 612 of 1 001 samples".
    reason: str = ""
    #: How much was judged, and how much of it in violation; of what the result's ``counted`` says.
    evaluated: int = 0
    violating: int = 0

    @classmethod
    def of(cls, name: str, reason: str, evaluated: int, violating: int) -> DeviceStatus:
        """Not evaluated, for the reason given, where nothing was judged."""
        if not evaluated:
            return cls(name=name, status=Status.NOT_EVALUATED, reason=reason)
        status = Status.TRIGGERED if violating else Status.PASSED
        return cls(name=name, status=status, evaluated=evaluated, violating=violating)


class RuleResult(Struct, frozen=True, kw_only=True):
    """What one rule says of a job."""

    rule: str
    status: Status
    #: Why there is no answer; empty when there is one.
    reason: str = ""
    #: The result as a fact, with its number.
    headline: str
    measure: Measure | None = None
    #: The vendor's three counters; what they count differs per rule, its module says how.
    triggered: int = 0
    violations: int = 0
    datapoints: int = 0
    #: Samples per series (``node/device``) where that is what ``datapoints`` counts.
    datapoints_per_series: dict[str, int] = field(default_factory=dict)
    #: How many ``counted`` were judged, and how many of them were in violation.
    evaluated: int = 0
    violating: int = 0
    #: What was judged: "windows of a GPU".
    counted: str = ""
    #: The answer for each device, where a rule judges devices.
    devices: tuple[DeviceStatus, ...] = ()
    #: First and last moment in violation.
    first_us: int | None = None
    last_us: int | None = None
    findings: tuple[Finding, ...] = ()
    #: Numbers of the one-minute windows in violation by device (``node/device``), from first to last of
    #: each run, where a rule judges the windows of devices.
    runs: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    #: ``Details`` of the vendor's JSON, with our extra keys.
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> float:
        """Share of what was judged that is in violation: comparable between rules, unlike the counters."""
        return self.violating / self.evaluated if self.evaluated else 0.0


class Unanswered(Struct, frozen=True, kw_only=True):
    """A rule that gave no answer."""

    rule: str
    status: Status
    reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer for a reader with ten seconds."""

    #: None where neither GPU nor CPU samples exist, or where they cover no time.
    use: TimeUse | None
    #: Everything worth telling, worst first; findings of one cause are one.
    findings: tuple[Finding, ...]
    unanswered: tuple[Unanswered, ...]
    #: Rules that judge; the two summaries are not among them.
    rules: int
    #: Key of the finding that a reader with ten seconds should see; empty for the first one.
    main: str = ""

    @property
    def main_finding(self) -> Finding | None:
        """The finding that explains most of the lost GPU time, else the first; none without findings."""
        return next((f for f in self.findings if f.key == self.main), next(iter(self.findings), None))

    @property
    def has_cause(self) -> bool:
        """Whether the main finding is a cause of lost time: it tells a part of the bar."""
        parts = self.use.parts if self.use else ()
        return bool(self.main) and any(part.finding == self.main for part in parts if part.key not in REST)
