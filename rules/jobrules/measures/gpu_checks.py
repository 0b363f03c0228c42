"""What rules share that judge every GPU once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobrules.model import DeviceStatus, Finding, Measure, RuleResult
from jobrules.rule import severity_of
from jobrules.text import between, count, listed, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.measures.minutes import Windows
    from jobrules.model import IntArray, Job
    from jobrules.rule import Rule


class JudgedGPU(Struct, frozen=True, kw_only=True, eq=False):
    """One GPU in the windows in which it was judged."""

    node: str
    device: str
    #: How many windows.
    judged: int
    #: Numbers of those in violation, ascending.
    hits: IntArray
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
        """First and last number of neighbouring windows in violation."""
        ends = np.flatnonzero(np.diff(self.hits) > 1)
        first, last = self.hits[np.append(0, ends + 1)], self.hits[np.append(ends, len(self.hits) - 1)]
        return tuple(zip(first.tolist(), last.tolist(), strict=True))

    @property
    def answer(self) -> DeviceStatus:
        """What became of it."""
        return DeviceStatus.of(self.name, self.reason, self.judged, len(self.hits))


class Judgement(Struct, frozen=True, kw_only=True):
    """All GPUs of a job under one rule."""

    gpus: Sequence[JudgedGPU]
    grid: Windows
    #: End of the job: the last window does not reach past it.
    end_us: int

    @classmethod
    def of(cls, job: Job, grid: Windows, gpus: Sequence[JudgedGPU]) -> Judgement:
        """The judgement on a job."""
        return cls(gpus=gpus, grid=grid, end_us=job.span_us[1])

    @property
    def evaluated(self) -> int:
        """Windows judged, over all GPUs."""
        return sum(gpu.judged for gpu in self.gpus)

    @property
    def violating(self) -> int:
        """Windows in violation, over all GPUs."""
        return sum(len(gpu.hits) for gpu in self.gpus)

    @property
    def answers(self) -> tuple[DeviceStatus, ...]:
        """What became of each GPU."""
        return tuple(gpu.answer for gpu in self.gpus)

    @property
    def last_start_us(self) -> int:
        """Start of the last window in violation, the vendor's ``last_timestamp``."""
        return self.grid.begin_us(max(gpu.hits[-1] for gpu in self.gpus if len(gpu.hits)))

    def span_us(self, gpus: Sequence[JudgedGPU]) -> tuple[int, int]:
        """Start of the first and end of the last window in violation of some GPUs."""
        hits = [gpu.hits for gpu in gpus if len(gpu.hits)]
        last_us = self.grid.begin_us(max(h[-1] for h in hits) + 1)
        return self.grid.begin_us(min(h[0] for h in hits)), min(last_us, self.end_us)

    @property
    def told(self) -> list[JudgedGPU]:
        """The GPUs that a finding is about.

        Those in violation that worked at all: that an unused GPU is also low is no news. Where only
        unused ones are in violation, these.
        """
        violating = [gpu for gpu in self.gpus if len(gpu.hits)]
        return [gpu for gpu in violating if not gpu.unused] or violating

    @property
    def share(self) -> float:
        """Share of the windows in violation, over the GPUs that ``told`` is chosen from."""
        pool = [gpu for gpu in self.gpus if gpu.unused == self.told[0].unused]
        return sum(len(gpu.hits) for gpu in pool) / sum(gpu.judged for gpu in pool)

    @property
    def which(self) -> str:
        """The GPUs told, in words."""
        if 1 < len(self.told) == len(self.gpus):
            return "All GPUs"
        return listed([f"{gpu.node} {gpu.device}" for gpu in self.told])

    @property
    def not_judged(self) -> str:
        """A clause on GPUs that were not judged; empty if all were."""
        missing = [f"{gpu.node} {gpu.device}" for gpu in self.gpus if not gpu.judged]
        return (
            f"{count(len(missing), 'GPU')} not judged for want of samples: {listed(missing)}"
            if missing
            else ""
        )

    def finding(self, rule: Rule, title: str, clauses: Sequence[str] = ()) -> Finding:
        """What a rule tells of the windows in violation; ``title`` ends before the share of windows."""
        start_us, end_us = self.span_us(self.told)
        when = f"{self.which}, {between(start_us, end_us)}."
        aside = sum(gpu.unused for gpu in self.gpus) if not self.told[0].unused else 0
        of_which = f", {count(aside, 'unused GPU')} aside" if aside else ""
        rest = "; ".join(filter(None, (*clauses, self.not_judged)))
        return rule.finding(
            f"{title} in {share(self.share)} of the windows judged{of_which}",
            f"{when} {rest}." if rest else when,
            severity=severity_of(self.share),
            devices=tuple(gpu.name for gpu in self.told),
            share=self.share,
            share_of="of windows",
            start_us=start_us,
            end_us=end_us,
        )

    def passed(self, rule: Rule, every: str, **facts: Any) -> RuleResult:
        """The answer of a rule that no window violates; ``every`` holds for the GPUs that were judged."""
        missing = sum(not gpu.judged for gpu in self.gpus)
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
            "runs": {gpu.name: gpu.runs for gpu in self.gpus if len(gpu.hits)},
        }
