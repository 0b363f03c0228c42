"""How long steps took: per worker and phase, as a histogram, over time, and what the slow ones spent it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.job import Job
    from jobrules.step_outlier import StepOutlier


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Durations of the recorded steps."""

    #: Recorded steps over all workers.
    count: int


def step_times(job: Job, rule: StepOutlier) -> StepTimes | None:
    """The durations of all steps; none where no step was recorded."""
    return None
