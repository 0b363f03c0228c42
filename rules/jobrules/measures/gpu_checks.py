"""What rules share that judge every GPU once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.model import DeviceStatus, Finding, Measure, RuleResult
from jobrules.rule import severity_of
from jobrules.text import between, count, join_names, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.minutes import Windows
    from jobrules.model import IntArray, Job
    from jobrules.rule import Rule


class CheckedGPU(Struct, frozen=True, kw_only=True, eq=False):
    """One GPU in the windows in which it was judged."""

    node: str
    device: str
    #: How many windows.
    checks: int
    #: Numbers of those in violation, ascending.
    violations: IntArray
    #: No sample above 0 %.
    unused: bool
    #: Why it was not judged in any; empty if it was.
    reason: str = ""

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """First and last number of neighboring windows in violation."""
        ends = np.flatnonzero(np.diff(self.violations) > 1)
        first, last = (
            self.violations[np.append(0, ends + 1)],
            self.violations[np.append(ends, len(self.violations) - 1)],
        )
        return tuple(zip(first.tolist(), last.tolist(), strict=True))

    @property
    def answer(self) -> DeviceStatus:
        """What became of it."""
        return DeviceStatus.of(self.name, self.reason, self.checks, len(self.violations))


class GPUChecks(Struct, frozen=True, kw_only=True):
    """All GPUs of a job under one rule."""

    gpus: Sequence[CheckedGPU]
    grid: Windows
    #: End of the job: the last window does not reach past it.
    end_us: int

    @classmethod
    def of(cls, job: Job, grid: Windows, gpus: Sequence[CheckedGPU]) -> GPUChecks:
        """The judgement on a job."""
        return cls(gpus=gpus, grid=grid, end_us=job.span_us[1])

    @property
    def evaluated(self) -> int:
        """Windows judged, over all GPUs."""
        return sum(gpu.checks for gpu in self.gpus)

    @property
    def violating(self) -> int:
        """Windows in violation, over all GPUs."""
        return sum(len(gpu.violations) for gpu in self.gpus)

    @property
    def answers(self) -> tuple[DeviceStatus, ...]:
        """What became of each GPU."""
        return tuple(gpu.answer for gpu in self.gpus)

    @property
    def last_start_us(self) -> int:
        """Start of the last window in violation, the vendor's ``last_timestamp``."""
        return self.grid.begin_us(max(gpu.violations[-1] for gpu in self.gpus if len(gpu.violations)))

    def span_us(self, gpus: Sequence[CheckedGPU]) -> tuple[int, int]:
        """Start of the first and end of the last window in violation of some GPUs."""
        hits = [gpu.violations for gpu in gpus if len(gpu.violations)]
        last_us = self.grid.begin_us(max(h[-1] for h in hits) + 1)
        return self.grid.begin_us(min(h[0] for h in hits)), min(last_us, self.end_us)

    @property
    def named_gpus(self) -> list[CheckedGPU]:
        """The GPUs that a finding is about.

        Those in violation that worked at all: that an unused GPU is also low is no news. Where only
        unused ones are in violation, these.
        """
        violating = [gpu for gpu in self.gpus if len(gpu.violations)]
        return [gpu for gpu in violating if not gpu.unused] or violating

    @property
    def share(self) -> float:
        """Share of the windows in violation, over the GPUs that ``told`` is chosen from."""
        pool = [gpu for gpu in self.gpus if gpu.unused == self.named_gpus[0].unused]
        return sum(len(gpu.violations) for gpu in pool) / sum(gpu.checks for gpu in pool)

    @property
    def which(self) -> str:
        """The GPUs told, in words."""
        if 1 < len(self.named_gpus) == len(self.gpus):
            return "All GPUs"
        return join_names([f"{gpu.node} {gpu.device}" for gpu in self.named_gpus])

    @property
    def not_judged(self) -> str:
        """A clause on GPUs that were not judged; empty if all were."""
        missing = [f"{gpu.node} {gpu.device}" for gpu in self.gpus if not gpu.checks]
        return (
            f"{count(len(missing), 'GPU')} not judged for want of samples: {join_names(missing)}"
            if missing
            else ""
        )

    def finding(self, rule: Rule, title: str, clauses: Sequence[str] = ()) -> Finding:
        """What a rule tells of the windows in violation; ``title`` ends before the share of windows."""
        start_us, end_us = self.span_us(self.named_gpus)
        when = f"{self.which}, {between(start_us, end_us)}."
        aside = sum(gpu.unused for gpu in self.gpus) if not self.named_gpus[0].unused else 0
        of_which = f", {count(aside, 'unused GPU')} aside" if aside else ""
        rest = "; ".join(filter(None, (*clauses, self.not_judged)))
        return rule.finding(
            f"{title} in {share(self.share)} of the windows judged{of_which}",
            f"{when} {rest}." if rest else when,
            severity=severity_of(self.share),
            devices=tuple(gpu.name for gpu in self.named_gpus),
            share=self.share,
            share_of="of windows",
            start_us=start_us,
            end_us=end_us,
        )

    def passed(self, rule: Rule, every: str, **facts: Any) -> RuleResult:
        """The answer of a rule that no window violates; ``every`` holds for the GPUs that were judged."""
        missing = sum(not gpu.checks for gpu in self.gpus)
        headline = f"{every}; {count(missing, 'GPU')} not judged for want of samples" if missing else every
        return rule.passed(headline, **self._counts(), **facts)

    def triggered(self, rule: Rule, finding: Finding, **facts: Any) -> RuleResult:
        """The answer of a rule that some window violates."""
        first_us, last_us = self.span_us(self.gpus)
        return rule.triggered(finding, first_us=first_us, last_us=last_us, **self._counts(), **facts)

    def _counts(self) -> dict[str, Any]:
        measure = Measure(
            value=round(100 * self.violating / self.evaluated, 1),
            limits=(0.0,),
            scale=100.0,
            unit="% of windows",
            limit_text="triggers on any",
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
