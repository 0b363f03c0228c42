"""The contract of a rule, and the running of rules.

A rule is a frozen dataclass: its fields are its thresholds, its docstring is what the report and
the documentation print, ``check`` is the judgement. It computes; it reads no file and draws nothing.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from msgspec import Struct

from jobrules.model import SECOND_US, Finding, RuleResult, Severity, Status
from jobrules.text import count, duration, escape_name
from jobrules.text import number as in_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import IntArray, Job, Metric


def percent(default: float, help: str) -> Any:
    """A threshold from 0 to 100%."""
    return field(default=default, metadata={"unit": "%", "low": 0, "high": 100, "help": help})


#: A number of samples, or a time that is turned into samples by the sampling interval.
Amount: TypeAlias = int | timedelta


def samples(default: Amount, help: str) -> Any:
    """An ``Amount``: a number of samples, at least 1, or a time."""
    return field(default=default, metadata={"unit": "samples", "low": 1, "high": None, "help": help})


def in_samples(amount: Amount, time_us: IntArray) -> int:
    """An amount for the series with these times: a time is rounded up to whole samples of it.

    The sampling interval is the median distance of the samples.
    """
    if isinstance(amount, int):
        return amount
    interval_us = int(np.median(np.diff(time_us))) if len(time_us) > 1 else 0
    return max(1, -(-(amount // timedelta(microseconds=1)) // interval_us)) if interval_us else 1


def number(default: float, help: str, *, unit: str = "", low: float = 0, high: float | None = None) -> Any:
    """Any other number in a range; whole where the default is."""
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "help": help})


def minutes(default: float, help: str) -> Any:
    """A time in minutes, at least 0."""
    return field(default=default, metadata={"unit": "min", "low": 0, "high": None, "help": help})


def text(help: str) -> Any:
    """A name to look for; none unless given."""
    return field(default=None, metadata={"unit": "", "low": None, "high": None, "help": help})


class Documentation(Struct, frozen=True, kw_only=True):
    """What a rule's docstring says, by its headings."""

    checks: str
    why: str
    advice: str


@dataclass(frozen=True)
class Rule(ABC):
    """One question asked of a job."""

    #: The failing state in words: "GPU utilization is low".
    title: ClassVar[str]
    #: Metrics that a job must have samples of for the rule to be evaluated.
    requires: ClassVar[tuple[Metric, ...]] = ()
    #: Anchor of the page's section that holds the evidence.
    section: ClassVar[str] = "rules"
    #: False for a summary, which states figures and never triggers.
    can_trigger: ClassVar[bool] = True
    #: Second names that the vendor has for a parameter, as ``{"threshold": "stddev"}``.
    aliases: ClassVar[dict[str, str]] = {}

    @property
    def name(self) -> str:
        """The name in files, options and the report."""
        return type(self).__name__

    @abstractmethod
    def check(self, job: Job) -> RuleResult:
        """Judge a job that has what ``requires`` names."""

    def not_evaluated(self, reason: str, **facts: Any) -> RuleResult:
        """The answer of a rule that cannot answer, with the reason as a clause: "no step events"."""
        headline = f"Not evaluated: {reason}"
        return RuleResult(
            rule=self.name, status=Status.NOT_EVALUATED, reason=reason, headline=headline, **facts
        )

    def failed(self, error: BaseException) -> RuleResult:
        """The answer in place of one that could not be given."""
        reason = escape_name(f"{type(error).__name__}: {error}", 200)
        return RuleResult(
            rule=self.name, status=Status.ERROR, reason=reason, headline=f"The rule stopped: {reason}"
        )

    def passed(self, headline: str, **facts: Any) -> RuleResult:
        """The answer of a rule that found nothing amiss; the headline is a fact with its number."""
        return RuleResult(rule=self.name, status=Status.PASSED, headline=headline, **facts)

    def triggered(self, finding: Finding, **facts: Any) -> RuleResult:
        """The answer of a rule that found something; counters that are not given are 1."""
        told: dict[str, Any] = {"triggered": 1, "violations": 1, "headline": finding.title} | facts
        return RuleResult(rule=self.name, status=Status.TRIGGERED, findings=(finding,), **told)

    def finding(
        self, title: str, evidence: str, *, severity: Severity = Severity.WARNING, **facts: Any
    ) -> Finding:
        """What the rule found, with the advice of its docstring unless another is given."""
        key = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", self.name).lower()
        told: dict[str, Any] = {"key": key, "advice": self.documentation().advice, "section": self.section}
        return Finding(
            title=title, evidence=evidence, severity=severity, rules=(self.name,), **(told | facts)
        )

    @classmethod
    def documentation(cls) -> Documentation:
        """The docstring's three parts, each one paragraph."""
        parts = re.split(
            r"^(What it checks|Why it matters|What to do)$", inspect.getdoc(cls) or "", flags=re.M
        )
        told = {head: " ".join(body.split()) for head, body in zip(parts[1::2], parts[2::2], strict=True)}
        return Documentation(
            checks=told["What it checks"], why=told["Why it matters"], advice=told["What to do"]
        )


def missing_metric(job: Job, needs: Sequence[Metric]) -> str | None:
    """The first thing that a job lacks of what a rule needs, in words; none if it has all."""
    return next((f"{metric.label} was not sampled" for metric in needs if not job.has(metric)), None)


def reason_few_samples(most: int, more_than: int) -> str:
    """Why a rule that waits for more than so many samples gave no answer: "only 612 of 1 001 samples"."""
    return f"only {in_digits(most)} of {count(more_than + 1, 'sample')}"


def reason_short(lasted_us: float, wanted_min: float, what: str) -> str:
    """Why a rule that waits for so many minutes gave no answer: "only 9 min of 15 min measured"."""
    # Rounded down: 14 min 59.9 s are not 15 min.
    lasted_us -= lasted_us % SECOND_US
    return f"only {duration(lasted_us)} of {duration(wanted_min * 60 * SECOND_US)} {what}"


def severity_of(part: float) -> Severity:
    """Critical from half of what was judged, info below a twentieth, else a warning."""
    if part >= 0.5:
        return Severity.CRITICAL
    return Severity.WARNING if part >= 0.05 else Severity.INFO


def run_rules(rules: Sequence[Rule], job: Job, *, strict: bool = False) -> tuple[RuleResult, ...]:
    """Every rule's result, in order. A rule that raises costs itself only, unless ``strict``."""
    results = []
    for rule in rules:
        try:
            lack = missing_metric(job, rule.requires)
            results.append(rule.not_evaluated(lack) if lack else rule.check(job))
        # A rule of a user's own may also end the program.
        except (Exception, SystemExit) as error:
            if strict:
                raise
            results.append(rule.failed(error))
    return tuple(results)


def written(value: Any) -> float | int | str | None:
    """A parameter's value as it is typed in a configuration: a time as ``500s``."""
    return f"{value.total_seconds():.15g}s" if isinstance(value, timedelta) else value


def default_text(value: Any) -> str:
    """A parameter's value as printed: ``none`` where nothing is looked for."""
    plain = written(value)
    return "none" if plain is None else f"{plain:g}" if isinstance(plain, float) else str(plain)


def parameter_fields(rule: Rule | type[Rule]) -> tuple[tuple[str, Any, dict[str, Any]], ...]:
    """(name, default, metadata) of a rule's thresholds, in order."""
    return tuple((f.name, f.default, dict(f.metadata)) for f in fields(rule))
