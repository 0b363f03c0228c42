"""A job cut to the work of its nodes, in memory and in parts that lie elsewhere, and its rules run again on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.registry import read_directory, read_job
from jobreport.tables.engine import LocalEngine
from jobrules import RULES, Rule
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Job, RuleResult
from jobrules.rule import run_rules
from jobrules.verdict.findings import judge
from jobrules.verdict.in_work import results_in_work
from jobrules.verdict.phases import job_phases
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, make_events, make_job, make_steps
from tests.once import slow_but
from tests.paths import ROOT
from tests.rules.verdict.random_jobs import random_job

SAMPLES = sorted(path.parent for path in (ROOT / "sample_data").glob("*/system"))


def rows(job: Job) -> dict[str, list[Any]]:
    """All samples, steps and events as plain rows."""
    return {
        "samples": [
            (panel.node, panel.metric, device, int(t), float(value))
            for panel in job.panels
            for column, device in enumerate(panel.devices)
            for t, value in zip(*panel.series(column), strict=True)
        ],
        "steps": [
            (job.steps.node[i], job.steps.rank[i], int(job.steps.start_us[i]), int(job.steps.end_us[i]))
            for i in range(len(job.steps))
        ],
        "events": [
            (job.events.lanes[job.events.lane[i]].node, int(job.events.start_us[i]))
            for i in range(len(job.events))
        ],
    }


def spans_of(job: Job, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
    """Some stretch of each node."""
    start_us, end_us = job.span_us
    return {
        node: tuple(sorted(rng.integers(start_us - 5 * SECOND_US, end_us + 5 * SECOND_US, 2).tolist()))
        for node in job.nodes
    }


def same_facts(one: Job, other: Job) -> None:
    """The same nodes, sizes and times, known without the tables."""
    assert one.nodes == other.nodes
    assert one.span_us == other.span_us
    assert one.facts == other.facts


@given(st.integers(0, 2**32 - 1))
def test_a_cut_job_holds_what_lies_in_the_span_of_its_node(seed: int) -> None:
    job = random_job(seed)
    spans = spans_of(job, np.random.default_rng(seed))
    cut, whole = job.within(spans), rows(job)

    def inside(node: str, start_us: int) -> bool:
        return spans[node][0] <= start_us <= spans[node][1]

    assert rows(cut) == {
        "samples": [row for row in whole["samples"] if inside(row[0], row[3])],
        "steps": [row for row in whole["steps"] if inside(row[0], row[2])],
        "events": [],
    }
    away = JobElsewhere(job).within(spans)
    same_facts(away, cut)
    rules = [rule() for rule in RULES]
    assert plain(run_rules(rules, away)) == plain(run_rules(rules, cut))


def test_what_began_in_time_is_kept_whole() -> None:
    steps = make_steps([(0, 5), (8, 30), (40, 41)])
    events = make_events([("cpu_functions", "op", t, t + 20.0) for t in (1.0, 9.0, 39.0)])
    job = make_job(gpu=[50.0] * 50, interval_s=1, steps=steps, events=events)

    cut = job.within({"algo-1": (START_US + 5 * SECOND_US, START_US + 20 * SECOND_US)})

    assert [len(panel.time_us) for panel in cut.panels] == [16]
    assert (cut.steps.end_us - START_US).tolist() == [30 * SECOND_US]
    assert (cut.events.end_us - START_US).tolist() == [29 * SECOND_US]
    assert len(job.steps) == 3
    empty = job.within({"algo-1": (0, 1)})
    assert (empty.panels, len(empty.steps), len(empty.events), empty.nodes) == ((), 0, 0, ())


def on_disk() -> LocalEngine:
    """In this process, with nothing in memory."""
    return LocalEngine(1, in_memory=0)


def processes() -> LocalEngine:
    """In two processes."""
    return LocalEngine(2)


def plain(results: tuple[RuleResult, ...]) -> list[Any]:
    return [msgspec.to_builtins(result, str_keys=True, enc_hook=str) for result in results]


@pytest.mark.parametrize(
    ("folder", "opened"),
    slow_but((SAMPLES[0], on_disk), [*((folder, on_disk) for folder in SAMPLES), (SAMPLES[0], processes)]),
    ids=lambda one: getattr(one, "name", None),
)
def test_a_job_in_parts_is_cut_and_judged_as_one_in_memory(
    folder: Any, opened: Callable[[], LocalEngine]
) -> None:
    here = read_job(folder)[0]
    start_us, end_us = here.span_us
    third = (end_us - start_us) // 3
    spans = {node: (start_us + third + i, end_us - third) for i, node in enumerate(here.nodes)}
    rules = [rule() for rule in RULES]
    with opened() as engine:
        job = read_directory(folder, engine=engine).job
        cut = job.within(spans)
        same_facts(cut, here.within(spans))
        assert rows(cut) == rows(here.within(spans))
        again = {node: (a + third // 4, b) for node, (a, b) in spans.items()}
        same_facts(cut.within(again), here.within(again))
        assert rows(cut.within(again)) == rows(here.within(again))
        results, expected = run_rules(rules, job), run_rules(rules, here)
        during = results_in_work(rules, results, job)
        assert plain(during) == plain(results_in_work(rules, expected, here))
        assert judge(job, rules, during, job_phases(job)) == judge(here, rules, during, job_phases(here))
        del job, cut


# Rules during the work


@dataclasses.dataclass(frozen=True)
class Seen(Rule):
    """The samples that a rule sees."""

    title = "seen"

    def check(self, job: Job) -> RuleResult:
        """Counts the snapshots and the steps."""
        snapshots = sum(len(panel.time_us) for panel in job.panels)
        return self.passed("seen", datapoints=snapshots, violations=job.step_count)


@dataclasses.dataclass(frozen=True)
class SeenWhole(Seen):
    """Of the whole job."""

    of_work = False


def test_rules_run_again_on_the_work_but_for_those_on_the_whole_job() -> None:
    gpu = [0.0] * 100 + [90.0] * 300 + [0.0] * 50
    job = make_job(gpu=gpu, interval_s=1, steps=make_steps([(120.0 + t, 121.0 + t) for t in range(90)]))
    rules = (SeenWhole(), Seen())
    results = run_rules(rules, job)

    during = results_in_work(rules, results, job)

    assert [one.datapoints for one in results] == [450, 450]
    assert [(one.datapoints, one.violations) for one in during] == [(450, 90), (300, 90)]
    assert during[0] is results[0]


@pytest.mark.parametrize(
    "job",
    [
        make_job(gpu=[90.0] * 100),
        make_job(gpu=[0.0] * 100),
        make_job(cpu=[90.0] * 100, steps=make_steps([(10, 20)])),
    ],
    ids=["all work", "no work", "no GPU"],
)
def test_results_of_a_job_without_edges_are_those_of_the_whole_job(job: Job) -> None:
    results = run_rules((Seen(),), job)

    (during,) = results_in_work((Seen(),), results, job)

    assert during is results[0]


def test_a_rule_that_fails_on_the_work_alone_has_its_own_error() -> None:
    class Fails(Seen):
        def check(self, job: Job) -> RuleResult:
            if job.span_us[0] > START_US:
                raise ValueError("by hand")
            return self.passed("whole")

    job = make_job(gpu=[0.0] * 100 + [90.0] * 300, interval_s=1)
    rules = (Fails(), Seen())
    results = run_rules(rules, job)

    failed, seen = results_in_work(rules, results, job)

    assert (failed.status, str(failed.reason)) == ("error", "ValueError: by hand")
    assert seen.datapoints == 300
    with pytest.raises(ValueError, match="by hand"):
        results_in_work(rules, results, job, strict=True)


def test_the_work_of_the_cut_job_is_the_work() -> None:
    """Cutting twice changes nothing: results are those of the work itself."""
    gpu = [0.0] * 100 + [90.0] * 300 + [0.0] * 50
    job = make_job(gpu=gpu, interval_s=1)
    work = Work.of(job)
    assert work is not None

    cut = job.within({"algo-1": work.span_us("algo-1")})

    again = Work.of(cut)
    assert again is not None
    assert again.whole
    assert (again.begin_us, again.end_us) == (work.begin_us, work.end_us)
