"""Each scenario of the generator triggers the rules it is made for, and no unrelated one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import LogSpec, write_job

from jobreport.readers.registry import read_job
from jobrules import RULES
from jobrules.model import RuleResult, Severity, Status
from jobrules.rule import run_rules
from jobrules.rules.traces.shares import CaptureRule
from jobrules.verdict.findings import Verdict
from tests.once import slow_but
from tests.paths import ROOT
from tests.rules.diagnosis_jobs import CAUSES, SHAPES
from tests.rules.test_diagnosis import TOLERANCE, graded, hits_of, matrix
from tests.verdicts import verdict_of

SEEDS = (1, 2, 3)
# Rules on traces and on the training itself have jobs of their own.
JUDGES = tuple(
    rule for rule in RULES if rule.can_trigger and not (rule.of_learning or issubclass(rule, CaptureRule))
)
#: Scenarios that lose no GPU time: their rules trigger, and the verdict finds nothing.
WITHOUT_LOSS = ("few-loaders", "many-loaders", "memory-jump")
#: Scenarios that are made for a comparison: GPUs wait for data in both, and more is lost without a cause.
COMPARED = ("oversized", "right-sized")
PAGE = ROOT / "docs" / "scenarios.md"
#: Scenarios and seeds; those that are read in moments in every run of the tests, the others in ``make test-slow``.
QUICK = ("cpu", "cpu-bottleneck", "fluctuating", "throttled", "idle-gaps", "lopsided")
EACH = slow_but({(name, SEEDS[0]) for name in QUICK}, [(name, seed) for seed in SEEDS for name in SCENARIOS])
LOGGED = ("healthy", "throttled", "idle-gpu", "leaking", "lopsided", "slow-clock")
LOGS = slow_but(
    {(name, SEEDS[0]) for name in LOGGED[:3]}, [(name, seed) for seed in SEEDS for name in LOGGED]
)


@cache
def judged(name: str, seed: int, *, logged: bool = False) -> tuple[dict[str, RuleResult], Verdict]:
    """What each rule says of a scenario's job, on its own machine and with its own duration, and all of them.

    Of what is ``logged`` there is nothing but a log of nvidia-smi.
    """
    spec = JobSpec.of(SCENARIOS[name], seed=seed)
    with TemporaryDirectory() as folder:
        log = LogSpec() if logged else None
        write_job(spec, Path(folder), gzipped=False, log=log)
        job, _ = read_job(Path(folder), strict=True)
    rules = [rule() for rule in JUDGES]
    results = run_rules(rules, job, strict=True)
    return {result.rule: result for result in results}, verdict_of(job, *rules)


def statuses(name: str, seed: int) -> dict[str, Status]:
    """What each rule says."""
    return {rule: result.status for rule, result in judged(name, seed)[0].items()}


@pytest.mark.parametrize(("name", "seed"), EACH)
def test_a_scenario_triggers_its_rules_and_no_unrelated_one_and_details_are_plain_json(
    name: str, seed: int
) -> None:
    scenario = SCENARIOS[name]
    for result in judged(name, seed)[0].values():
        assert json.dumps(result.details, allow_nan=False)
    triggered = {rule for rule, status in statuses(name, seed).items() if status is Status.TRIGGERED}

    assert set(scenario.triggers) <= triggered
    assert triggered <= {*scenario.triggers, *scenario.also}


@pytest.mark.parametrize(("name", "seed"), LOGS)
def test_a_log_gives_one_warning_or_none(name: str, seed: int) -> None:
    verdict = judged(name, seed, logged=True)[1]

    warnings = [f for f in verdict.findings if f.severity is not Severity.INFO]

    assert len(warnings) == len(SCENARIOS[name].triggers)
    assert all(f.rules[0] in SCENARIOS[name].triggers for f in warnings)


@pytest.mark.parametrize(("name", "seed"), EACH)
def test_the_main_finding_is_what_the_scenario_is_made_for(name: str, seed: int) -> None:
    verdict = judged(name, seed)[1]
    main = verdict.main_finding

    if name in COMPARED:
        assert "data-loading" in [finding.key for finding in verdict.findings]
    elif SCENARIOS[name].triggers and name not in WITHOUT_LOSS:
        assert main is not None
        assert set(main.rules) & set(SCENARIOS[name].triggers)
    elif name == "two-clocks":
        assert main is not None
        assert main.key == "clocks-differ"
    else:
        assert verdict.lead is None


def test_every_rule_has_a_scenario() -> None:
    assert {rule for one in SCENARIOS.values() for rule in one.triggers} == {r.__name__ for r in JUDGES}


def cell(name: str, rule: str) -> str:
    found = [statuses(name, seed)[rule] for seed in SEEDS]
    times = found.count(Status.TRIGGERED)
    if times:
        return f"**{times}**" if rule in SCENARIOS[name].triggers else str(times)
    return "–" if set(found) == {Status.NOT_EVALUATED} else ""


def main(name: str) -> str:
    """The rules of the main finding, or its key; of a main cause with the share of GPU time that it explains."""
    columns: dict[str, list[int]] = {}
    for seed in SEEDS:
        verdict = judged(name, seed)[1]
        found = verdict.main_finding
        is_cause = found is not None and verdict.is_cause(found)
        text = " with ".join(found.rules) or found.key if found else "none"
        text = f"{'cause' if is_cause else 'finding'}: {text}" if found else text
        shares = columns.setdefault(text, [])
        if found and is_cause:
            shares.append(round(100 * (found.share or 0)))
    cells = []
    for text, shares in columns.items():
        ends = " to ".join(str(n) for n in sorted({min(shares), max(shares)})) if shares else ""
        cells.append(f"{text}, {ends}%" if ends else text)
    return "; ".join(cells)


def page() -> str:
    """The table, and how to read it."""
    rules = [rule.__name__ for rule in JUDGES]
    rows = [
        "# Scenarios and rules\n",
        f"In how many of {len(SEEDS)} jobs, made with the seeds {', '.join(map(str, SEEDS))}, a rule triggers: "
        "**bold** where the scenario is made for the rule, plain where the rule sees the same cause, – where it "
        "cannot be evaluated, empty where it passes. Then what the report tells first: *cause* is its main cause, "
        "with the share of GPU time that it explains; *finding* is a main finding that is none: it tells of less than "
        "a hundredth of GPU time, or of a loss without a known cause. Thresholds are the defaults. "
        "`tests/rules/test_scenarios.py` "
        "makes the jobs and this table. Jobs made from descriptions of real ones are in "
        "`tests/rules/described_jobs.py`.\n",
        f"| scenario | {' | '.join(rules)} | main cause or finding |",
        f"|---|{'---|' * len(rules)}---|",
        *(
            f"| {name} | {' | '.join(cell(name, rule) for rule in rules)} | {main(name)} |"
            for name in SCENARIOS
        ),
        "",
        *(f"* **{name}**: {one.summary}" for name, one in SCENARIOS.items()),
        "",
        *_diagnosis(),
    ]
    return "\n".join(rows) + "\n"


def _diagnosis() -> list[str]:
    """How often the first line is right about jobs with a known cause, by cause and shape."""
    wrong = graded(CAUSES, SHAPES, SEEDS)
    head, *rows = matrix(wrong)
    return [
        "## Is the first line right?\n",
        "Jobs of another generator (`tests/rules/diagnosis_jobs.py`), whose lost time is known by its cause: 20 to 90 "
        "minutes with a sample every 0.1, 0.5, or 1 s, noise, a start-up of 1 to 15%, pauses to evaluate or to save, and "
        "sensors that begin late. The columns are nodes × GPUs × cores of a node. A cell counts the jobs, one for each "
        "seed, whose first finding is the cause (of two, the larger) without any other warning; each share lies between "
        "what the cause took from busy GPUs and all that was lost meanwhile, or is off by at most "
        f"{100 * TOLERANCE:.0f} points. {hits_of(wrong)} are right. `python -m tests.rules.test_diagnosis --seeds 1,2,3` "
        "says what is wrong with the others.\n",
        f"| {' | '.join(head)} |",
        f"|---|{'---|' * len(head[1:])}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


@pytest.mark.slow
def test_the_table_in_the_docs_is_what_the_rules_say(request: pytest.FixtureRequest) -> None:
    rendered = page()
    print(rendered)
    if request.config.getoption("--accept-golden"):
        PAGE.write_text(rendered, "utf-8")

    assert PAGE.read_text("utf-8") == rendered
