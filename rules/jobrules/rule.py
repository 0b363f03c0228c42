"""The contract of a rule, and the running of rules.

A rule is a frozen dataclass: its fields are its thresholds, the report and the documentation print its docstring,
and ``check`` computes its result. It reads no file and draws nothing.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.model import SECOND_US, Finding, Reason, ReasonKind, RuleResult, Severity, Status
from jobrules.model.order import median
from jobrules.model.result import THIS_JOB
from jobrules.text import NBSP, escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, IntArray, Job, Metric
    from jobrules.model.claims import Cause


def percent(default: float, help: str) -> Any:
    """A threshold from 0 to 100%."""
    return field(default=default, metadata={"unit": "%", "low": 0, "high": 100, "help": help})


#: A number of samples, or a time that is turned into samples by the sampling interval.
Amount: TypeAlias = int | timedelta


def samples(default: Amount, help: str) -> Any:
    """An ``Amount``: a number of samples, at least 1, or a time."""
    return field(default=default, metadata={"unit": "samples", "low": 1, "high": None, "help": help})


def in_samples(amount: Amount, time_us: IntArray) -> int:
    """The number of samples that an amount comes to, given the times of a series."""
    if isinstance(amount, int):
        return amount
    return samples_in(amount, int(median(np.diff(time_us))) if len(time_us) > 1 else 0)


def samples_in(time: timedelta, interval_us: int) -> int:
    """The number of samples that a time comes to, rounded up; 1 if the sampling interval is not known (0)."""
    return max(1, -(-(time // timedelta(microseconds=1)) // interval_us)) if interval_us else 1


def number(default: float, help: str, *, unit: str = "", low: float = 0, high: float | None = None) -> Any:
    """Any other number in a range; whole if the default is."""
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "help": help})


def minutes(default: float, help: str) -> Any:
    """A time in minutes, at least 0."""
    return field(default=default, metadata={"unit": "min", "low": 0, "high": None, "help": help})


def text(help: str) -> Any:
    """A name to look for; None by default."""
    return field(default=None, metadata={"unit": "", "low": None, "high": None, "help": help})


class Documentation(Struct, frozen=True, kw_only=True):
    """The parts of a rule's docstring."""

    #: What the rule checks, why it matters.
    checks: str
    why: str
    #: What to do, sentence by sentence: an item each.
    advice: tuple[str, ...]
    #: What the report leaves to docs/rules.md; empty for most rules.
    details: str = ""


class Role(StrEnum):
    """How a rule's findings stand in the verdict."""

    #: On their own, with the severity of the rule.
    OBSERVATION = "observation"
    #: Only with the lost time that ``Rule.causes`` claims, and with its severity.
    CAUSE = "cause"
    #: Inside the finding on the cause, or as what is unexplained.
    SYMPTOM = "symptom"
    #: Inside the finding on start-up; on their own if no GPU was sampled.
    START_UP = "start-up"


_HEADINGS = {
    "What it checks": "checks",
    "Why it matters": "why",
    "What to do": "advice",
    "Details": "details",
}


@dataclass(frozen=True)
class Rule(ABC):
    """One check of a job."""

    #: The failing state in words: "GPU utilization is low".
    title: ClassVar[str]
    #: Metrics that the job must have samples of.
    requires: ClassVar[tuple[Metric, ...]] = ()
    #: True if the rule judges traces of PyTorch's profiler.
    of_traces: ClassVar[bool] = False
    #: True if the rule judges the training itself, not the machine.
    of_learning: ClassVar[bool] = False
    #: True if the rule is about GPUs though it requires no metric of theirs.
    of_gpus: ClassVar[bool] = False
    #: Anchor of the page's section that holds the evidence.
    section: ClassVar[str] = "rules"
    role: ClassVar[Role] = Role.OBSERVATION
    #: False if the verdict and the page use the result of the whole job, not of its work.
    of_work: ClassVar[bool] = True
    #: False for a summary, which states figures and never triggers.
    can_trigger: ClassVar[bool] = True
    #: Second names that SageMaker Debugger has for a parameter, as ``{"threshold": "stddev"}``.
    aliases: ClassVar[dict[str, str]] = {}

    @property
    def name(self) -> str:
        """The name in files, options and the report."""
        return type(self).__name__

    @property
    def key(self) -> str:
        """Key of its finding: ``cpu-bottleneck``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", self.name).lower()

    @abstractmethod
    def check(self, job: Job) -> RuleResult:
        """Check a job that has samples of all ``requires``."""

    def without(self, job: Job, missing: Reason) -> RuleResult:
        """Result of a job that lacks samples of one of ``requires``."""
        del job
        return self.not_evaluated(missing)

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        """The lost GPU time that this rule explains, given its result during the work (``measures.work``); by default
        none.

        It is asked whether the rule triggered or not: the claims decide. A cause with less than 5% of the GPU time of the
        job has no finding.
        """
        del job, result
        return ()

    def not_evaluated(self, reason: Reason, **facts: Any) -> RuleResult:
        """Result of a rule that lacks data."""
        headline = f"Not evaluated: {reason}"
        return RuleResult(
            rule=self.name, status=Status.NOT_EVALUATED, reason=reason, headline=headline, **facts
        )

    def failed(self, error: BaseException) -> RuleResult:
        """Result of a rule that raised ``error``."""
        what = escape_name(f"{type(error).__name__}: {error}", 200)
        reason = Reason(kind=ReasonKind.ERROR, what=what)
        return RuleResult(
            rule=self.name, status=Status.ERROR, reason=reason, headline=f"The rule failed: {what}"
        )

    def passed(self, headline: str, **facts: Any) -> RuleResult:
        """Result of a rule whose threshold is kept; the headline is a fact with its number."""
        return RuleResult(rule=self.name, status=Status.PASSED, headline=headline, **facts)

    def triggered(self, finding: Finding | str, **facts: Any) -> RuleResult:
        """Result of a rule with a finding, or of a cause with a headline; counters that are not given are 1."""
        found = (finding,) if isinstance(finding, Finding) else ()
        headline = finding.title if isinstance(finding, Finding) else finding
        known: dict[str, Any] = {"triggered": 1, "violations": 1, "headline": headline} | facts
        return RuleResult(rule=self.name, status=Status.TRIGGERED, findings=found, **known)

    def finding(
        self, title: str, *evidence: Fact, severity: Severity = Severity.WARNING, **facts: Any
    ) -> Finding:
        """Finding of this rule, with the advice of its docstring unless another is given."""
        known: dict[str, Any] = {
            "key": self.key,
            "advice": self.documentation().advice,
            "section": self.section,
        }
        return Finding(
            title=title, evidence=evidence, severity=severity, rules=(self.name,), **(known | facts)
        )

    @classmethod
    def documentation(cls) -> Documentation:
        """The docstring by its headings; ``KeyError`` if one of the first three is missing.

        A line of "What to do" that starts with ``* `` starts a sentence of the advice.
        """
        parts = re.split(rf"^({'|'.join(_HEADINGS)})$", inspect.getdoc(cls) or "", flags=re.M)
        bodies = {_HEADINGS[head]: body for head, body in zip(parts[1::2], parts[2::2], strict=True)}
        items = re.split(r"^\s*\* ", bodies["advice"], flags=re.M)
        return Documentation(
            checks=_paragraph(bodies["checks"]),
            why=_paragraph(bodies["why"]),
            advice=tuple(paragraph for item in items if (paragraph := _paragraph(item))),
            details=_paragraph(bodies.get("details", "")),
        )


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def not_recorded(metric: Metric) -> Reason:
    """Reason of a rule that lacks a metric."""
    return Reason(kind=ReasonKind.NOT_RECORDED, what=metric.quantity.noun, verb=metric.quantity.verb)


#: Reason of a rule on GPUs, if only other devices were sampled.
NO_GPU = Reason(kind=ReasonKind.NOT_APPLICABLE, what="no GPU was sampled")

#: Reason of a rule on other sources, if only traces were recorded.
ONLY_TRACES = Reason(
    kind=ReasonKind.NOT_APPLICABLE,
    what="needs samples, steps, or events of a whole job; only PyTorch traces were recorded",
)
#: Reason of a rule that lacks steps.
NO_STEPS = Reason(kind=ReasonKind.NOT_RECORDED, what="steps", verb="were")


def needs_gpus(rule: Rule) -> bool:
    """True if a rule does not apply to a job without GPUs."""
    return rule.of_gpus or any(metric.of_gpus for metric in rule.requires)


def missing_metric(job: Job, rule: Rule) -> Reason | None:
    """Reason why a rule cannot run: the first metric without samples; None if all have samples."""
    if needs_gpus(rule) and job.samples_us and not any(part.gpus for part in job.facts):
        return NO_GPU
    return next((not_recorded(metric) for metric in rule.requires if not job.has(metric)), None)


def reason_few_samples(have: int, more_than: int, what: str = "samples", whose: str = THIS_JOB) -> Reason:
    """Reason of a rule that waits for more than so many samples."""
    return Reason(kind=ReasonKind.TOO_FEW, what=what, needed=more_than + 1, have=have, whose=whose)


def reason_short(have_us: float, needed_min: float, what: str = "samples") -> Reason:
    """Reason of a rule that waits for so many minutes."""
    return Reason(kind=ReasonKind.TOO_SHORT, what=what, needed=needed_min * 60, have=have_us / SECOND_US)


def severity_of(part: float) -> Severity:
    """Severity of a share: critical from 0.5, warning from 0.05, otherwise info."""
    if part >= 0.5:
        return Severity.CRITICAL
    return Severity.WARNING if part >= 0.05 else Severity.INFO


def run_rules(rules: Sequence[Rule], job: Job, *, strict: bool = False) -> tuple[RuleResult, ...]:
    """Every rule's result, in order. A rule that raises has a result of its own, unless ``strict``."""
    results = []
    for rule in rules:
        try:
            missing = missing_metric(job, rule)
            result = rule.without(job, missing) if missing else rule.check(job)
            results.append(result if rule.of_traces or rule.of_learning else _of_no_trace(result, job))
        # A rule of a user's own may also end the program.
        except (Exception, SystemExit) as error:
            if strict:
                raise
            results.append(rule.failed(error))
    return tuple(results)


def _of_no_trace(result: RuleResult, job: Job) -> RuleResult:
    """The result of a rule on other sources: where there are only traces, what it lacks was not to be expected."""
    only_traces = job.captures and not job.nodes
    if not only_traces or result.reason is None or result.reason.kind is not ReasonKind.NOT_RECORDED:
        return result
    return replace(result, reason=ONLY_TRACES, headline=f"Not evaluated: {ONLY_TRACES}")


def written(value: Any) -> float | int | str | None:
    """A parameter's value as it is typed in a configuration: a time as ``500s``."""
    return f"{value.total_seconds():.15g}s" if isinstance(value, timedelta) else value


def with_unit(value: Any, unit: str) -> str:
    """A parameter's value as printed: ``70%``, ``500 samples``, ``500s``, ``all`` for None."""
    plain = written(value)
    if plain is None or isinstance(plain, str):
        return plain or "all"
    return f"{plain:,.10g}" + (unit if unit.startswith("%") else f"{NBSP}{unit}" if unit else "")


def parameter_fields(rule: Rule | type[Rule]) -> tuple[tuple[str, Any, dict[str, Any]], ...]:
    """(name, default, metadata) of a rule's thresholds, in order."""
    return tuple((f.name, f.default, dict(f.metadata)) for f in fields(rule))
