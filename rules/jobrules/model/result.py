"""The result of one rule."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from jobrules.model.finding import Finding, Measure


class Status(StrEnum):
    """What became of a rule."""

    TRIGGERED = "triggered"
    PASSED = "passed"
    NOT_EVALUATED = "not evaluated"
    ERROR = "error"


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
