"""Each scenario of the generator triggers the rules it is made for, and no unrelated one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import write_job

from jobreport.readers import read_job
from jobrules import RULES
from jobrules.result import Status
from jobrules.rule import run_rules
from tests.paths import ROOT

SEEDS = (1, 2, 3)
START_US = 1_741_080_077_500_000
JUDGES = tuple(rule for rule in RULES if rule.judges)
PAGE = ROOT / "docs" / "scenarios.md"


@cache
def statuses(name: str, seed: int) -> dict[str, Status]:
    """What each rule says of a scenario's job, on its own machine and with its own duration."""
    scenario = SCENARIOS[name]
    spec = JobSpec(
        scenario=scenario,
        steps=scenario.steps,
        nodes=scenario.nodes,
        gpus=scenario.gpus,
        cores=scenario.cores,
        duration_us=round(scenario.duration_s * 1e6),
        interval_us=500_000,
        start_us=START_US,
        seed=seed,
    )
    with TemporaryDirectory() as folder:
        write_job(spec, Path(folder), gzipped=False)
        job, _ = read_job(Path(folder), strict=True)
    results = run_rules([rule() for rule in JUDGES], job, strict=True)
    return {result.rule: result.status for result in results}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_triggers_its_rules_and_no_unrelated_one(name: str, seed: int) -> None:
    scenario = SCENARIOS[name]
    triggered = {rule for rule, status in statuses(name, seed).items() if status is Status.TRIGGERED}

    assert set(scenario.triggers) <= triggered
    assert triggered <= {*scenario.triggers, *scenario.also}


def test_every_rule_has_a_scenario_and_the_healthy_job_is_judged_by_all() -> None:
    assert {rule for one in SCENARIOS.values() for rule in one.triggers} == {r.__name__ for r in JUDGES}
    assert set(statuses("healthy", SEEDS[0]).values()) == {Status.PASSED}


def cell(name: str, rule: str) -> str:
    told = [statuses(name, seed)[rule] for seed in SEEDS]
    times = told.count(Status.TRIGGERED)
    if times:
        return f"**{times}**" if rule in SCENARIOS[name].triggers else str(times)
    return "–" if set(told) == {Status.NOT_EVALUATED} else ""


def page() -> str:
    """The table, and how to read it."""
    rules = [rule.__name__ for rule in JUDGES]
    rows = [
        "# Scenarios and rules\n",
        f"In how many of {len(SEEDS)} jobs, made with the seeds {', '.join(map(str, SEEDS))}, a rule triggers: "
        "**bold** where the scenario is made for the rule, plain where the rule sees the same cause, – where it "
        "cannot be evaluated, empty where it passes. Thresholds are the defaults. `tests/rules/test_scenarios.py` "
        "makes the jobs and this table.\n",
        f"| scenario | {' | '.join(rules)} |",
        f"|---|{'---|' * len(rules)}",
        *(f"| {name} | {' | '.join(cell(name, rule) for rule in rules)} |" for name in SCENARIOS),
        "",
        *(f"* **{name}**: {one.summary}" for name, one in SCENARIOS.items()),
    ]
    return "\n".join(rows) + "\n"


def test_the_table_in_the_docs_is_what_the_rules_say(request: pytest.FixtureRequest) -> None:
    told = page()
    print(told)
    if request.config.getoption("--accept-golden"):
        PAGE.write_text(told, "utf-8")

    assert PAGE.read_text("utf-8") == told
