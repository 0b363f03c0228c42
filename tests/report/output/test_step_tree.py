"""A typical step on the terminal."""

from __future__ import annotations

import pytest

from jobreport.build import build_report
from jobreport.output.step_tree import step_tree
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.model import Job
from jobrules.rule import run_rules
from tests.copies import replace
from tests.rules.rank_jobs import BACKWARD, FETCH, FORWARD, OPTIMIZER, in_step, slow


def tree(job: Job) -> list[str]:
    rules = [rule() for rule in RULES]
    report = build_report(job, Quality(), rules, run_rules(rules, job, strict=True), "", strict=True)
    return [line.replace("\u00a0", " ") for line in step_tree(report)]


@pytest.mark.parametrize(
    ("kind", "row"), [(FETCH, "Batch fetch"), (FORWARD, "Forward pass"), (OPTIMIZER, "Optimizer")]
)
def test_the_phase_that_is_to_blame_is_marked_and_all_add_up(kind: str, row: str) -> None:
    lines = tree(in_step(8, {kind: slow(60, 1)}, steps=800))

    assert lines[0].startswith("A step takes 7")
    assert lines[0].endswith("(mean of 799 steps, rank 1):")
    (marked,) = (line for line in lines if line.endswith("<"))
    assert marked.split("  ")[1] == row
    percents = [float(line.partition("%")[0].split()[-1]) for line in lines[1:]]
    assert sum(percents) == pytest.approx(100, abs=2)


def test_what_was_not_measured_is_told() -> None:
    (missing,) = (line for line in tree(in_step(1, steps=100, phases=(OPTIMIZER,))) if "Not measured" in line)

    assert "jobrecord.data(loader)" in missing
    assert "jobrecord.watch(model)" in missing
    assert not any("Not measured" in line for line in tree(in_step(1, steps=100)))


def test_a_phase_within_another_counts_once() -> None:
    job = in_step(1, steps=100, phases=(FETCH, FORWARD, BACKWARD, OPTIMIZER))
    twice = replace(
        job.events,
        lanes=(*job.events.lanes, replace(job.events.lanes[1], event_type="all of the model")),
        lane=job.events.lane.copy(),
    )
    rows = job.events.lane == 1
    events = type(job.events).joined(
        [job.events, replace(twice.where(rows), lane=job.events.lane[rows] * 0 + len(job.events.lanes))]
    )

    assert tree(replace(job, events=events)) == tree(job)


def test_steps_of_other_sources_have_no_tree() -> None:
    job = in_step(1, steps=100)

    assert tree(replace(job, steps=replace(job.steps, whole=False))) == []
