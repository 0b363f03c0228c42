"""Trainings with a fault trigger the rules that look for it, and those without a fault none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from generator.learning.scenarios import SCENARIOS

from jobreport.debugger_report import differences
from jobreport.readers.registry import read_job
from jobrules.model import Severity, Status
from jobrules.rule import run_rules
from jobrules.rules.learning import LEARNING_RULES
from tests.paths import ROOT

if TYPE_CHECKING:
    from jobrules.model import RuleResult

STORED = ROOT / "sample_data" / "learning"
EACH = [(name, seed) for name, scenario in SCENARIOS.items() for seed in scenario.seeds]
#: Stored trainings whose loss becomes NaN or infinite, and in which step.
SINCE = {"nan": 300, "exploding": 2, "lr-high": 6}


def judged(job_dir: Path) -> dict[str, RuleResult]:
    """What each rule on training says of a recording."""
    job, _ = read_job(job_dir, strict=True)
    return {one.rule: one for one in run_rules([rule() for rule in LEARNING_RULES], job, strict=True)}


def check(name: str, results: dict[str, RuleResult]) -> None:
    """Only the rules that the scenario names trigger; without a fault, with an info at most."""
    scenario = SCENARIOS[name]
    triggered = {rule: one for rule, one in results.items() if one.status is Status.TRIGGERED}

    assert set(scenario.triggers) <= triggered.keys() <= {*scenario.triggers, *scenario.also}
    if not scenario.triggers:
        severities = {found.severity for one in triggered.values() for found in one.findings}
        assert severities <= {Severity.INFO}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_stored_training_triggers_the_rules_that_look_for_its_fault_and_no_other(name: str) -> None:
    check(name, judged(STORED / name))


@pytest.mark.parametrize("name", SINCE)
def test_a_loss_that_is_not_finite_is_seen_from_its_step_on(name: str) -> None:
    assert judged(STORED / name)["ExplodingTensor"].details["since_step"] == SINCE[name]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "seed"), EACH)
def test_a_training_does_with_each_seed(name: str, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if SCENARIOS[name].task == "trees":
        pytest.importorskip("xgboost", reason="XGBoost is not installed")
    from generator.learning.recording import record  # noqa: PLC0415 - needs PyTorch

    record(SCENARIOS[name], seed, tmp_path)

    check(name, judged(tmp_path))


def test_trainings_without_a_fault_are_many_and_stored_ones_small() -> None:
    healthy = [seed for one in SCENARIOS.values() if not one.triggers for seed in one.seeds]
    sizes = [path.stat().st_size for path in STORED.rglob("*.gz")]

    assert {path.name for path in STORED.iterdir()} == SCENARIOS.keys()
    assert len(healthy) >= 49
    assert sum(sizes) < 2_000_000


def test_readme_states_what_each_training_triggers() -> None:
    rows = [
        f"| `{name}` | {one.summary} | {', '.join(one.triggers) or '–'} | {', '.join(one.also) or '–'} |"
        for name, one in SCENARIOS.items()
    ]

    assert (ROOT / "sample_data" / "README.md").read_text("utf-8").endswith("\n".join(["", *rows, ""]))


def test_the_page_of_differences_has_no_alarm_of_jobreport_without_a_fault_and_all_with_one() -> None:
    marks = "<!-- made by python -m benchmarks.learning_alarms --store -->", "<!-- end -->"
    table = differences.page().partition(marks[0])[2].partition(marks[1])[0].strip().splitlines()
    rows = {
        name: cells for name, *cells in ([cell.strip() for cell in row.split("|")[1:-1]] for row in table[3:])
    }

    assert rows.keys() == {rule for one in SCENARIOS.values() for rule in one.triggers}
    for rule, (_, alarms, _, found) in rows.items():
        runs = sum(len(one.seeds) for one in SCENARIOS.values() if rule in one.triggers)
        assert alarms.partition(",")[0] == "0"
        assert found == f"{runs} of {runs}"
