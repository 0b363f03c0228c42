"""A job judged node by node, wherever its nodes lie, gives what the whole job in memory gives."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import write_job

from jobreport import document
from jobreport.pipeline import build_report
from jobreport.readers import read_job
from jobrules import RULES
from jobrules.rule import run_rules
from tests.apart import Apart

if TYPE_CHECKING:
    from jobreport.quality import Quality
    from jobrules.job import Job

#: Scenarios and numbers of nodes; more than four nodes are ranked.
JOBS = (
    ("healthy", 2),
    ("cpu-bottleneck", 3),
    ("io-bottleneck", 2),
    ("imbalance", 2),
    ("memory-jump", 2),
    ("step-outliers", 2),
    ("small-batch", 6),
    ("few-loaders", 2),
    ("horovod", 2),
    ("two-clocks", 2),
    ("cpu", 2),
)


@cache
def job_of(name: str, nodes: int) -> tuple[Job, Quality]:
    """A job of several nodes that is long enough for its scenario's rules."""
    scenario = SCENARIOS[name]
    spec = JobSpec(
        scenario=scenario,
        steps=scenario.steps,
        nodes=nodes,
        gpus=scenario.gpus and 2,
        cores=4,
        duration_us=round(max(900.0, scenario.duration_s) * 1e6),
        interval_us=500_000,
        start_us=1_741_080_077_500_000,
        seed=1,
    )
    with TemporaryDirectory() as folder:
        write_job(spec, Path(folder), gzipped=False)
        return read_job(Path(folder), strict=True)


def plain(value: Any) -> Any:
    """As JSON has it, with whatever a rule keeps for the report only."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


@pytest.mark.parametrize("rule", [rule() for rule in RULES], ids=lambda rule: rule.name)
@pytest.mark.parametrize(("name", "nodes"), JOBS)
def test_every_rule_judges_parts_that_lie_elsewhere(name: str, nodes: int, rule: Any) -> None:
    job, _ = job_of(name, nodes)
    (here,), (away,) = (run_rules([rule], one, strict=True) for one in (job, Apart(job)))
    assert plain(away) == plain(here)


@pytest.mark.parametrize(("name", "nodes"), JOBS)
def test_the_report_of_parts_that_lie_elsewhere_is_the_same(name: str, nodes: int) -> None:
    job, quality = job_of(name, nodes)
    rules = [rule() for rule in RULES]
    made = []
    for one in (job, Apart(job)):
        results = run_rules(rules, one, strict=True)
        made.append(document.to_json(build_report(one, quality, rules, results, "make-report", strict=True)))
    assert made[1] == made[0]


def test_a_job_that_lies_elsewhere_keeps_its_tables_from_rules() -> None:
    job, _ = job_of("healthy", 2)
    away = Apart(job)
    with pytest.raises(AssertionError, match="elsewhere"):
        assert away.panels
    assert away.each(lambda_free) == job.each(lambda_free)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        away.each(lambda part: part.nodes)


def lambda_free(part: Job) -> int:
    """Something to ask of each part."""
    return len(part.panels) + len(part.steps)
