from __future__ import annotations

from pathlib import Path

import pytest

from jobreport.errors import UsageError
from jobreport.settings import load
from jobrules import RULES, LowGPUUtilization


def test_by_default_all_rules_run_with_their_defaults() -> None:
    settings = load()

    assert settings.rules == tuple(rule() for rule in RULES)
    assert settings.options == ()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text('ignore = ["BatchSize"]\n[LowGPUUtilization]\nthreshold_p95 = 50\nwindow = 100\n')

    settings = load(config, ["lowgpuutilization.THRESHOLD_P95=60.5"])

    assert settings.rules[0] == LowGPUUtilization(threshold_p95=60.5, window=100)
    assert settings.options == (
        "--ignore BatchSize",
        "--set LowGPUUtilization.threshold_p95=60.5",
        "--set LowGPUUtilization.window=100",
    )


def test_select_and_ignore_keep_the_order_of_the_report() -> None:
    settings = load(select=["OverallSystemUsage", "LowGPUUtilization", "BatchSize"], ignore=["batchsize"])

    assert [rule.name for rule in settings.rules] == ["LowGPUUtilization", "OverallSystemUsage"]


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("LowGPUUtilisation.window=5", "Did you mean LowGPUUtilization?"),
        ("LowGPUUtilization.treshold_p95=5", "Did you mean threshold_p95?"),
        ("LowGPUUtilization.window=2.5", "a whole number of at least 1"),
        ("LowGPUUtilization.window=0", "a whole number of at least 1"),
        ("LowGPUUtilization.threshold_p95=120", "a number from 0 to 100"),
        ("LowGPUUtilization.threshold_p95=nan", "a number from 0 to 100"),
        ("LowGPUUtilization.threshold_p95=much", "a number from 0 to 100"),
        ("LowGPUUtilization.threshold_p95", "write Rule.parameter=value"),
        ("LowGPUUtilization=5", "write Rule.parameter=value"),
        ("OverallSystemUsage.window=5", "has no parameters"),
        ("zzz.window=5", "Known: LowGPUUtilization"),
    ],
)
def test_a_wrong_assignment_is_answered_with_what_would_be_right(assignment: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        load(assignments=[assignment])

    assert told in str(error.value)


@pytest.mark.parametrize("text", ["select = 5", "[LowGPUUtilization", "LowGPUUtilization = 5", "\x00"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    config = tmp_path / "broken.toml"
    config.write_text(text)

    with pytest.raises(UsageError):
        load(config)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.toml"):
        load(tmp_path / "no.toml")


def test_nothing_left_to_run_is_an_error() -> None:
    with pytest.raises(UsageError, match="No rule is left"):
        load(select=["BatchSize"], ignore=["BatchSize"])
