"""What was not recorded is unknown, not 0: start and end of a job, and its GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE, MET, limit_of
from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.reading import facts
from jobreport.cost.facts import facts_of
from jobreport.document import Origin, Report
from jobreport.errors import UsageError
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, compared, run, steady


def log(seconds: float) -> Report:
    """Samples of so many seconds of a job, from a source that knows neither its start nor its end."""
    report = steady()
    end_us = report.job.start_us + round(seconds * 1e6)
    return replace(
        report, job=replace(report.job, end_us=end_us, finished=None), blocks=None, goodput=None, demand=None
    )


def events_only(report: Report) -> Report:
    """As recorded without system samples: the job seems to begin with its first event."""
    job = report.job
    node = replace(job.nodes[0], gpus=0, cores=0, interval_s=None)
    return replace(
        report,
        job=replace(job, start_us=job.start_us + 10_000_000, nodes=(node,)),
        utilization=(),
        time_blocks=(),
        demand=None,
    )


MACHINES = {"a": {"instance_type": "p3.8xlarge"}, "b": {"instance_type": "p3.2xlarge"}}


def pair(a: Report, b: Report, *budgets: str, **given: str) -> Comparison:
    runs = [run(label, report, **MACHINES[label], **given) for label, report in (("a", a), ("b", b))]
    return compared(*runs, prices=PUBLISHED, limits=tuple(map(limit_of, budgets)))


#: As in ``test_verdict``.
VERDICTS: dict[str, Callable[[], Comparison]] = {
    "logs of a part of a job": lambda: pair(log(900.0), log(899.0)),
    "logs of a whole job": lambda: pair(log(900.0), log(899.0), finished="true"),
    "a job and a log": lambda: pair(steady(), log(777.0)),
    # The same job: no duration, cost, or GPUs, and no time to the first step.
    "a job without samples": lambda: pair(steady(), events_only(steady())),
}


@pytest.mark.parametrize("name", [name for name in VERDICTS if name != "logs of a whole job"])
def test_what_is_a_part_of_a_job_has_neither_a_duration_nor_a_cost(name: str) -> None:
    found = VERDICTS[name]()

    assert found.cost is None
    for key in ("duration_s", "gpu_hours", "startup_s", "startup_percent"):
        measure = found.find(key)
        assert measure is None or not measure.against["b"].is_compared
    assert "--set b.finished=true" in next(one.text for one in found.notes if one.kind == "unrecorded")


def test_the_user_can_say_that_a_log_holds_the_whole_job() -> None:
    found = VERDICTS["logs of a whole job"]()

    assert found.measure("duration_s").against["b"].word is not Word.REFUSED
    assert facts(["b.finished=true"]) == {"b": {"finished": "true"}}
    with pytest.raises(UsageError, match="expected true or false"):
        facts(["b.finished=perhaps"])


def test_a_job_without_samples_has_no_known_start() -> None:
    found = VERDICTS["a job without samples"]()

    assert [one.facts["gpus"] for one in found.variants] == [1, None]
    assert found.measure("duration_s").against["b"].reason == "the start of b was not recorded"
    measured = {part.key: part.measured for part in found.goodput["b"]}
    assert (measured["before-first-step"], measured["productive"]) == (False, True)


@pytest.mark.parametrize(
    ("a", "b", "limit", "state"),
    [
        (log(900.0), log(899.0), "duration_s<=1000", INCONCLUSIVE),
        (log(900.0), log(899.0), "cost<=5", INCONCLUSIVE),
        # More than is allowed is more, however long the job went on.
        (log(900.0), log(899.0), "duration_s<=800", BROKEN),
        # Whatever the base lacks.
        (log(900.0), steady(), "duration_s<=600", MET),
        (steady(), log(200.0), "duration_s<=600", INCONCLUSIVE),
    ],
)
def test_a_limit_for_a_total_of_a_part_of_a_job_may_be_inconclusive(
    a: Report, b: Report, limit: str, state: str
) -> None:
    assert [one.state for one in pair(a, b, limit).budgets] == [state]


@pytest.mark.parametrize(
    ("origin", "finished", "known"),
    [
        (Origin.SAMPLES, True, "true"),
        (Origin.SAMPLES, False, "false"),
        (Origin.SAMPLES, None, None),
        # They hold the times of the job.
        (Origin.DEBUGGER_RESULTS, None, "true"),
    ],
)
def test_who_knows_start_and_end(origin: Origin, finished: bool | None, known: str | None) -> None:
    report = steady()
    report = replace(report, origin=origin, job=replace(report.job, finished=finished))

    assert facts_of(report, {})["finished"] == known
