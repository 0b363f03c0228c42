"""Checks of every GPU, once per minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.model import DeviceStatus, Finding, Measure, Note, OfGPU, Reason, RuleResult, When, Where
from jobrules.rule import severity_of
from jobrules.text import capitalized, count, join_names, number, some_of, without_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.minutes import Windows
    from jobrules.model import IntArray, Job
    from jobrules.rule import Rule


class CheckedGPU(OfGPU, frozen=True, kw_only=True, eq=False):
    """One GPU in the windows in which a rule checked it."""

    #: How many windows.
    checks: int
    #: Numbers of those that violate, ascending.
    violations: IntArray
    #: True if it was never used.
    unused: bool
    #: Why it has no check, if it has none.
    reason: Reason

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """First and last number of each run of neighboring windows that violate."""
        runs = np.split(self.violations, np.flatnonzero(np.diff(self.violations) > 1) + 1)
        return tuple((int(run[0]), int(run[-1])) for run in runs)

    @property
    def answer(self) -> DeviceStatus:
        """Its result."""
        return DeviceStatus.of(self.name, self.reason, self.checks, len(self.violations))


class GPUChecks(Struct, frozen=True, kw_only=True):
    """All GPUs of a job that one rule checked."""

    gpus: Sequence[CheckedGPU]
    grid: Windows
    #: End of the job: the last window does not reach past it.
    end_us: int

    @classmethod
    def of(cls, job: Job, grid: Windows, gpus: Sequence[CheckedGPU]) -> GPUChecks:
        """The GPUs of a job."""
        return cls(gpus=gpus, grid=grid, end_us=job.span_us[1])

    @property
    def evaluated(self) -> int:
        """Windows checked, over all GPUs."""
        return sum(gpu.checks for gpu in self.gpus)

    @property
    def violating(self) -> int:
        """Windows that violate, over all GPUs."""
        return sum(len(gpu.violations) for gpu in self.gpus)

    @property
    def answers(self) -> tuple[DeviceStatus, ...]:
        """The result of each GPU."""
        return tuple(gpu.answer for gpu in self.gpus)

    @property
    def last_start_us(self) -> int:
        """Start of the last window that violates, SageMaker Debugger's ``last_timestamp``."""
        return self.grid.begin_us(max(gpu.violations[-1] for gpu in self.gpus if len(gpu.violations)))

    def span_us(self, gpus: Sequence[CheckedGPU]) -> tuple[int, int]:
        """Start of the first and end of the last window in which one of some GPUs violates."""
        hits = [gpu.violations for gpu in gpus if len(gpu.violations)]
        last_us = self.grid.begin_us(max(h[-1] for h in hits) + 1)
        return self.grid.begin_us(min(h[0] for h in hits)), min(last_us, self.end_us)

    @property
    def named_gpus(self) -> list[CheckedGPU]:
        """GPUs named in the finding: violating ones that were ever used; without any, the never-used ones."""
        violating = [gpu for gpu in self.gpus if len(gpu.violations)]
        return [gpu for gpu in violating if not gpu.unused] or violating

    @property
    def windows(self) -> tuple[int, int]:
        """(violating, all) windows of the used GPUs, or of the never-used ones if the finding names these."""
        pool = [gpu for gpu in self.gpus if gpu.unused == self.named_gpus[0].unused]
        return sum(len(gpu.violations) for gpu in pool), sum(gpu.checks for gpu in pool)

    @property
    def not_evaluated(self) -> list[str]:
        """Names of the GPUs without a check."""
        return [gpu.label for gpu in self.gpus if not gpu.checks]

    def finding(self, rule: Rule, title: str, notes: Sequence[str] = (), *, seen_as: str = "") -> Finding:
        """Finding of a rule; ``title`` and ``seen_as`` end before the number of windows."""
        start_us, end_us = self.span_us(self.named_gpus)
        violating, windows = self.windows
        names = tuple(gpu.label for gpu in self.named_gpus)
        if len(names) == len(self.gpus) > 1:
            names = (capitalized(some_of(len(names), len(names), "GPU")),)
        never_used = sum(gpu.unused for gpu in self.gpus) if not self.named_gpus[0].unused else 0
        if never_used:
            notes = [*notes, f"Not counted: {count(never_used, 'never-used GPU')}"]
        if missing := self.not_evaluated:
            notes = [*notes, f"Too few samples on {count(len(missing), 'GPU')}: {join_names(missing)}"]
        of_windows = f"of {count(windows, 'window')}"
        return rule.finding(
            f"{title} {of_windows}",
            Where(names),
            When(start_us, end_us),
            *map(Note, notes),
            seen_as=f"{seen_as} in {number(violating)} {of_windows}" if seen_as else "",
            severity=severity_of(violating / windows),
            devices=tuple(gpu.name for gpu in self.named_gpus),
            share=violating / windows,
            share_of="of windows",
            start_us=start_us,
            end_us=end_us,
        )

    def passed(self, rule: Rule, headline: str, **facts: Any) -> RuleResult:
        """Result of a rule without a violation."""
        limit = without_check(len(self.not_evaluated), "GPU")
        return rule.passed(f"{headline}{limit}", **self._counts(), **facts)

    def triggered(self, rule: Rule, finding: Finding | str, **facts: Any) -> RuleResult:
        """Result of a rule with a violation: its finding, or the headline of a cause."""
        first_us, last_us = self.span_us(self.gpus)
        return rule.triggered(finding, first_us=first_us, last_us=last_us, **self._counts(), **facts)

    def _counts(self) -> dict[str, Any]:
        measure = Measure(
            value=round(100 * self.violating / self.evaluated, 1),
            limits=(0.0,),
            scale=100.0,
            unit="% of windows",
            limit_text="threshold 0%",
        )
        return {
            "triggered": self.violating,
            "violations": self.violating,
            "evaluated": self.evaluated,
            "violating": self.violating,
            "devices": self.answers,
            "measure": measure,
            "runs": {gpu.name: gpu.runs for gpu in self.gpus if len(gpu.violations)},
        }
