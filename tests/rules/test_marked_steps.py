"""Steps under a profiler, and steps recorded in part, change no number that steps are compared by."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jobrules import Dataloader, StepOutlier
from jobrules.analyses.data_loading import data_loading
from jobrules.analyses.steps import steps
from jobrules.measures.data_waits import waits
from jobrules.measures.work import Work
from jobrules.model import Job, StepMark, Steps
from tests.jobs import make_events, make_job, make_steps

#: 300 steps of 0.1 s; these take 2 s more.
MARKED = {5: StepMark.PROFILED, 6: StepMark.PROFILED, 150: StepMark.CUT}


def spans() -> list[tuple[float, float]]:
    lasted = np.array([0.1 + 2 * (i in MARKED) + 0.1 * (i % 60 == 7) for i in range(300)])
    ends = np.cumsum(lasted)
    return list(zip((ends - lasted).tolist(), ends.tolist(), strict=True))


def marked_steps() -> Steps:
    marks = np.array([MARKED.get(i, StepMark.NONE) for i in range(300)], np.int8)
    return replace(make_steps(spans()), mark=marks, whole=True)


def job_of(found: Steps) -> Job:
    fetches = [("DataLoaderIter", "Iter::GetNext", start, start + 0.03) for start, _ in spans()]
    return make_job(cpu=[[50, 50]] * 80, gpu=[50] * 80, steps=found, events=make_events(fetches))


def test_numbers_are_those_without_them() -> None:
    marked = marked_steps()
    job, reference = job_of(marked), job_of(marked.where(marked.mark == 0))
    rule, loading = StepOutlier(n_outliers=3), Dataloader()

    result, expected = rule.check(job), rule.check(reference)
    assert result.status == expected.status == "triggered"
    assert (result.details["step_details"], result.findings) == (
        expected.details["step_details"],
        expected.findings,
    )
    found, without = steps(job, rule), steps(reference, rule)
    assert found is not None
    assert without is not None
    assert (found.profiled, found.cut) == (2, 1)
    assert replace(found, profiled=0, cut=0) == without
    assert data_loading(job, loading) == data_loading(reference, loading)
    (wait,) = job.gathered(waits, Work.of(job))  # type: ignore[arg-type]
    assert wait.step_us == pytest.approx(100_000)


def test_steps_that_all_have_a_mark_are_compared_with_one_another() -> None:
    marked = replace(marked_steps(), mark=np.full(300, StepMark.PROFILED, np.int8))
    found = steps(job_of(marked), StepOutlier())

    assert found is not None
    assert (found.count, found.profiled) == (300, 0)


def test_steps_of_several_tables_keep_their_marks() -> None:
    other = make_steps([(0, 0.05)], rank="1")
    found = Steps.joined([marked_steps(), other])

    assert found.whole
    assert {
        int(number): int(mark) for number, mark in zip(found.number, found.mark, strict=True) if mark
    } == MARKED
