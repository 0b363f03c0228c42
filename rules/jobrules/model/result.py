"""The result of one rule."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from jobrules.model.finding import Finding, Measure
from jobrules.model.names import OwnText, PlaceName
from jobrules.model.types import SECOND_US
from jobrules.text import capitalized, count, duration, number, took


class Status(StrEnum):
    """Outcome of a rule."""

    TRIGGERED = "triggered"
    PASSED = "passed"
    NOT_EVALUATED = "not evaluated"
    ERROR = "error"


class ReasonKind(StrEnum):
    """What a rule lacks, in the order of the page."""

    ERROR = "error"
    NOT_RECORDED = "not recorded"
    TOO_SHORT = "too short"
    TOO_FEW = "too few"
    NO_DEVICE = "no device"
    NOT_APPLICABLE = "not applicable"
    OTHER = "other"


#: Who has too little.
THIS_JOB, ITS_WORK = "this job", "the work of this job"


class Reason(Struct, frozen=True, kw_only=True):
    """Why a rule, or a rule on one device, was not evaluated; ``str`` gives a clause."""

    kind: ReasonKind
    #: What was not recorded ("GPU power"); what there is too little of ("samples"); what no device is or does
    #: ("GPU was active"); the error; any other reason as a clause.
    what: OwnText
    #: Of ``what``.
    verb: OwnText = "was"
    #: How much of ``what`` the rule needs and how much there is, in seconds if the kind is too short. If the
    #: kind is not recorded: the number of GPUs, and how many of them have it; 0 if none has.
    needed: float = 0.0
    have: float = 0.0
    #: Who has ``have``.
    whose: OwnText = THIS_JOB

    @property
    def amounts(self) -> tuple[str, str]:
        """Needed and recorded: ``15 min of samples`` and ``14 min 59 s``, ``101 steps`` and ``32``."""
        if self.kind is ReasonKind.TOO_SHORT:
            # Rounded down: 14 min 59.9 s are not 15 min.
            unit_us, in_words = (SECOND_US, duration) if self.needed >= 1 else (1000, took)
            needed, have = (
                in_words(seconds * SECOND_US // unit_us * unit_us) for seconds in (self.needed, self.have)
            )
            if 0 < self.have * SECOND_US < unit_us:
                have = f"less than {in_words(unit_us)}"
            return f"{needed} of {self.what}", have
        return f"{number(int(self.needed))} {self.what}", number(int(self.have))

    def __str__(self) -> str:
        """A clause: ``GPU power not recorded``, ``15 min of samples needed, 14 min 59 s recorded``."""
        match self.kind:
            case ReasonKind.TOO_SHORT | ReasonKind.TOO_FEW:
                needed, have = self.amounts
                return f"{needed} needed, {have} {'in the work' if self.whose == ITS_WORK else 'recorded'}"
            case ReasonKind.NOT_RECORDED:
                return f"{self.what} not recorded{self._of_gpus}"
            case ReasonKind.NO_DEVICE:
                return f"no {self.what}"
        return self.what

    @property
    def missing(self) -> str:
        """What was not recorded: ``GPU power``, ``GPU utilization for 3 of 8 GPUs``."""
        return f"{self.what}{self._of_gpus}"

    @property
    def _of_gpus(self) -> str:
        missing = int(self.needed - self.have)
        return f" for {number(missing)} of {count(int(self.needed), 'GPU')}" if self.needed else ""

    @property
    def sentence(self) -> str:
        """Why a rule was not evaluated, without a period at the end."""
        match self.kind:
            case ReasonKind.TOO_SHORT | ReasonKind.TOO_FEW:
                needed, have = self.amounts
                return f"Needs {needed}; {self.whose} has {have}"
            case ReasonKind.NOT_RECORDED:
                return f"{capitalized(self.what)} {self.verb} not recorded{self._of_gpus}"
            case ReasonKind.ERROR:
                return f"The rule failed: {self.what}. Other rules are not affected"
        return capitalized(str(self))


class DeviceStatus(Struct, frozen=True, kw_only=True):
    """Result of a rule on one device, node, or rank."""

    #: ``node/device``, ``node`` or ``node/rank``.
    name: PlaceName
    #: Triggered, passed or not evaluated.
    status: Status
    #: Why it was not evaluated; None if it was.
    reason: Reason | None = None
    #: How much was evaluated, and how much of it violates; of what the result's ``counted`` says.
    evaluated: int = 0
    violating: int = 0

    @classmethod
    def of(cls, name: str, reason: Reason | None, evaluated: int, violating: int) -> DeviceStatus:
        """Not evaluated, for the reason given, if nothing was evaluated."""
        if not evaluated:
            return cls(name=name, status=Status.NOT_EVALUATED, reason=reason)
        status = Status.TRIGGERED if violating else Status.PASSED
        return cls(name=name, status=status, evaluated=evaluated, violating=violating)


class RuleResult(Struct, frozen=True, kw_only=True):
    """Result of one rule."""

    rule: str
    status: Status
    #: Why it was not evaluated; None if it was.
    reason: Reason | None = None
    #: The result as a fact, with its number.
    headline: str
    measure: Measure | None = None
    #: SageMaker Debugger's three counters; what they count differs per rule, its module says how.
    triggered: int = 0
    violations: int = 0
    datapoints: int = 0
    #: Samples per series (``node/device``) where that is what ``datapoints`` counts.
    datapoints_per_series: dict[str, int] = field(default_factory=dict)
    #: How many ``counted`` were evaluated, and how many of them violate.
    evaluated: int = 0
    violating: int = 0
    #: What was evaluated: "windows of a GPU".
    counted: str = ""
    #: The result for each device, if the rule checks devices.
    devices: tuple[DeviceStatus, ...] = ()
    #: First and last violation.
    first_us: int | None = None
    last_us: int | None = None
    findings: tuple[Finding, ...] = ()
    #: Numbers of the one-minute windows in violation by device (``node/device``), from first to last of
    #: each run, where a rule judges the windows of devices.
    runs: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    #: ``Details`` of SageMaker Debugger's JSON. Where its keys are nodes or metrics, it has no others.
    details: dict[str, Any] = field(default_factory=dict)
    #: What ``details`` has no place for.
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def was_evaluated(self) -> bool:
        """Whether the rule triggered or passed."""
        return self.status in (Status.TRIGGERED, Status.PASSED)

    @property
    def severity(self) -> float:
        """Share of what was evaluated that violates: comparable between rules, unlike the counters."""
        return self.violating / self.evaluated if self.evaluated else 0.0
