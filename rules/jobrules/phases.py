"""The job in time: what came before the training loop, the loop, what came after, and the gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.coverage import gaps
from jobrules.result import Course, Phase
from jobrules.rounding import apportion
from jobrules.usage import work_span_us

if TYPE_CHECKING:
    from jobrules.job import Job

_LABELS = {
    "steps": ("Before the first step", "Training loop", "After the last step"),
    "gpu": ("Before the first GPU work", "First to last GPU work", "After the last GPU work"),
}


def course(job: Job) -> Course:
    """Phases by the recorded steps; without steps by the first and last GPU work, said in ``basis``.

    A phase of one sampling interval or less is the grain of the samples and belongs to the loop.
    """
    start_us, end_us = job.span_us
    interval_us = float(np.median([p.interval_us for p in job.panels] or [0]))
    work = work_span_us(job)
    basis, middle = ("steps", job.steps.span_us) if len(job.steps) else ("gpu", work)
    if middle and job.covers_time and end_us - start_us > interval_us:
        first_us = start_us if middle[0] - start_us <= interval_us else middle[0]
        last_us = end_us if end_us - middle[1] <= interval_us else middle[1]
        bounds = (start_us, first_us, last_us, end_us)
        named = zip(("before", "loop", "after"), _LABELS[basis], bounds[:-1], bounds[1:], strict=True)
        stretches = [(key, label, a, b) for key, label, a, b in named if b > a]
    else:
        basis, stretches = "none", [("whole", "Whole job", start_us, end_us)]
    percents = apportion([max(b - a, 1) for _, _, a, b in stretches], 100.0, 1)
    return Course(
        basis=basis,
        phases=tuple(
            Phase(key=key, label=label, start_us=a, end_us=b, percent=percent)
            for (key, label, a, b), percent in zip(stretches, percents, strict=True)
        ),
        gaps=gaps(job),
        first_work_us=work[0] if work else None,
        last_work_us=work[1] if work else None,
    )
