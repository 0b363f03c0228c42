from __future__ import annotations

from jobrules.model import Job
from tests.copies import replace
from tests.jobs import make_job


def test_a_value_is_computed_once_for_each_job() -> None:
    calls: list[Job] = []

    def of(job: Job) -> int:
        calls.append(job)
        return len(calls)

    job = make_job(gpu=[1.0])

    assert [job.once(of), job.once(of)] == [1, 1]
    assert replace(job, name="other").once(of) == 2
