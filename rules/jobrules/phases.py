"""The job in time: what came before the training loop, the loop, what came after, and the gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """Phases by the recorded steps; without steps by the first and last GPU work, said in ``basis``."""
    start_us, end_us = job.span_us
    work = work_span_us(job)
    basis, middle = ("steps", job.steps.span_us) if len(job.steps) else ("gpu", work)
    if middle and end_us > start_us:
        bounds = (start_us, *middle, end_us)
        named = zip(("before", "loop", "after"), _LABELS[basis], bounds[:-1], bounds[1:], strict=True)
        stretches = [(key, label, a, b) for key, label, a, b in named if b > a]
    else:
        basis, stretches = "none", [("whole", "Whole job", start_us, end_us)]
    # A job of one moment has one phase, and that is all of it.
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
