"""What rules share that judge every GPU once a minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobrules.result import Measure
from jobrules.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.job import IntArray, Job
    from jobrules.windows import Windows


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedGPU:
    """One GPU in the windows in which it was judged."""

    node: str
    device: str
    #: How many windows.
    judged: int
    #: Numbers of those in violation, ascending.
    hits: IntArray
    #: No sample above 0 %.
    unused: bool

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.node}/{self.device}"


@dataclass(frozen=True, kw_only=True)
class Judgement:
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
    def last_start_us(self) -> int:
        """Start of the last window in violation, the vendor's ``last_timestamp``."""
        return int(self.grid.starts_us[max(gpu.hits[-1] for gpu in self.gpus if len(gpu.hits))])

    @property
    def first_us(self) -> int:
        """Start of the first window in violation."""
        return int(self.grid.starts_us[min(gpu.hits[0] for gpu in self.gpus if len(gpu.hits))])

    @property
    def last_us(self) -> int:
        """End of the last window in violation."""
        return min(self.last_start_us + self.grid.width_us, self.end_us)

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
            f"{count(len(missing), 'GPU')} with too few samples to judge: {listed(missing)}"
            if missing
            else ""
        )

    def passed(self, every: str) -> str:
        """The headline of a rule that passed: ``every`` holds for the GPUs that were judged."""
        missing = sum(not gpu.judged for gpu in self.gpus)
        return f"{every}; {count(missing, 'GPU')} with too few samples to judge" if missing else every

    def facts(self) -> dict[str, Any]:
        """What a ``RuleResult`` says of counts, times and the bar."""
        share = round(100 * self.violating / self.evaluated, 1)
        span = {"first_us": self.first_us, "last_us": self.last_us} if self.violating else {}
        return {
            "triggered": self.violating,
            "violations": self.violating,
            "evaluated": self.evaluated,
            "violating": self.violating,
            "measure": Measure(
                value=share, limits=(0.0,), scale=100.0, unit="% of windows", limit_text="triggers on any"
            ),
            **span,
        }
