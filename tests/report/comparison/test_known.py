"""What was not recorded is unknown, not 0: start and end of a job, and its GPUs."""

from __future__ import annotations

import pytest

from jobreport.comparison.budgets import INCONCLUSIVE, MET, limit_of
from jobreport.comparison.build import Settings, compare
from jobreport.comparison.document import Comparison, Word
from jobreport.comparison.reading import facts
from jobreport.cost.facts import facts_of
from jobreport.document import Origin, Report
from jobreport.errors import UsageError
from tests.copies import replace
from tests.report.comparison.runs import PUBLISHED, run, steady


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


def compared(a: Report, b: Report, *budgets: str, **given: str) -> Comparison:
    runs = [run(label, report, **MACHINES[label], **given) for label, report in (("a", a), ("b", b))]
    return compare(runs, Settings(prices=PUBLISHED, limits=tuple(map(limit_of, budgets))), "")


def test_logs_of_a_part_of_a_job_have_neither_a_duration_nor_a_cost() -> None:
    found = compared(log(900.0), log(899.0))

    assert found.verdict.replace("\u00a0", " ") == (
        "b was recorded for 14 min 59 s against 15 min (the start and end of a and b were not recorded)."
    )
    assert found.cost is None
    assert (
        "its start or end was not recorded; use --set a.finished=true if the recording holds the whole job"
        in found.no_cost
    )
    for key in ("duration_s", "gpu_hours", "startup_s", "startup_percent"):
        assert found.measure(key).against["b"].word is Word.REFUSED
    (cost,) = compared(log(900.0), log(899.0), "cost<=5").budgets
    assert cost.reason == "not measured"
    (note,) = (one.text for one in found.notes if one.kind == "unrecorded")
    assert "--set a.finished=true --set b.finished=true" in note


def test_the_user_can_say_that_a_log_holds_the_whole_job() -> None:
    found = compared(log(900.0), log(899.0), finished="true")

    assert "costs 74.0% less than a" in found.verdict
    assert found.measure("duration_s").against["b"].word is not Word.REFUSED
    assert facts(["b.finished=true"]) == {"b": {"finished": "true"}}
    with pytest.raises(UsageError, match="expected true or false"):
        facts(["b.finished=perhaps"])


def test_one_log_is_enough_for_nothing_to_be_known() -> None:
    found = compared(steady(), log(777.0))

    assert "the start and end of b were not recorded" in found.verdict
    assert found.cost is None


def test_a_job_without_samples_has_no_known_start() -> None:
    """The same job, once without system samples: no duration, cost, or GPUs, and no time to the first step."""
    whole, part = steady(), events_only(steady())
    found = compared(whole, part)

    assert "less than a" not in found.verdict
    assert "the first step took" not in found.verdict
    assert found.cost is None
    assert [one.facts["gpus"] for one in found.variants] == [1, None]
    assert found.measure("duration_s").against["b"].reason == "the start of b was not recorded"
    measured = {part.key: part.measured for part in found.goodput["b"]}
    assert not measured["before-first-step"]
    assert measured["productive"]


def test_a_limit_for_a_total_of_a_part_of_a_job_is_inconclusive() -> None:
    found = compared(log(900.0), log(899.0), "duration_s<=1000", "cost<=5")

    assert [one.state for one in found.budgets] == [INCONCLUSIVE, INCONCLUSIVE]
    # More than is allowed is more, however long the job went on.
    (broken,) = compared(log(900.0), log(899.0), "duration_s<=800").budgets
    assert broken.state == "broken"


def test_a_limit_of_a_variant_is_judged_whatever_the_base_lacks() -> None:
    for a, b, state in ((log(900.0), steady(), MET), (steady(), log(200.0), INCONCLUSIVE)):
        assert [one.state for one in compared(a, b, "duration_s<=600").budgets] == [state]


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
