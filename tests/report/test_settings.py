from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jobreport.errors import UsageError
from jobreport.settings import load
from jobrules import RULES, BatchSize, LowGPUUtilization, StepOutlier
from jobrules.rules.learning.stalled_training import StalledTraining


def test_by_default_all_rules_run_with_their_defaults() -> None:
    settings = load()

    assert settings.rules == tuple(rule() for rule in RULES)
    assert settings.options == ()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text('ignore = ["BatchSize"]\n[LowGPUUtilization]\nthreshold_p95 = 50\nwindow = 100\n')

    settings = load(config, ["lowgpuutilization.THRESHOLD_P95=60.5"])

    assert LowGPUUtilization(threshold_p95=60.5, window=100) in settings.rules
    assert settings.options == (
        "--ignore BatchSize",
        "--set LowGPUUtilization.threshold_p95=60.5",
        "--set LowGPUUtilization.window=100",
    )


def test_select_and_ignore_keep_the_order_of_the_report() -> None:
    settings = load(select=["OverallSystemUsage", "LowGPUUtilization", "BatchSize"], ignore=["batchsize"])

    assert [rule.name for rule in settings.rules] == ["LowGPUUtilization", "OverallSystemUsage"]


def test_a_rule_of_sagemaker_debugger_may_end_with_rule() -> None:
    settings = load(select=["StalledTrainingRule"], assignments=["StalledTrainingRule.threshold=60"])

    assert settings.rules == (StalledTraining(threshold=60.0),)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("LowGPUUtilisation.window=5", "Did you mean LowGPUUtilization?"),
        ("LowGPUUtilization.treshold_p95=5", "Did you mean threshold_p95? `--explain LowGPUUtilization`"),
        ("LowGPUUtilization.window=2.5", "a whole number of at least 1"),
        ("LowGPUUtilization.window=0", "a whole number of at least 1"),
        ("LowGPUUtilization.threshold_p95=120", "=120: expected a number from 0 to 100."),
        ("LowGPUUtilization.threshold_p95=nan", "a number from 0 to 100"),
        ("LowGPUUtilization.threshold_p95=much", "a number from 0 to 100"),
        ("LowGPUUtilization.window=5 weeks", ", or a time such as 500s."),
        ("LowGPUUtilization.window=0.0000001s", ", or a time such as 500s."),
        ("LowGPUUtilization.window=99999999999999999999", ", or a time such as 500s."),
        ("Dataloader.min_threshold=300", "Dataloader.min_threshold = 300 is above max_threshold = 200."),
        ("LowGPUUtilization.window=0s", ", or a time such as 500s."),
        ("LowGPUUtilization.window=" + "9" * 400 + "h", ", or a time such as 500s."),
        ("LowGPUUtilization.threshold_p95=10s", "a number from 0 to 100."),
        ("LowGPUUtilization_treshold_p95=5", "Did you mean threshold_p95? `--explain LowGPUUtilization`"),
        ("LowGPUUtilisation_window=5", "Did you mean LowGPUUtilization?"),
        ("LowGPUUtilization.threshold_p95", "expected RULE.PARAMETER=VALUE"),
        ("LowGPUUtilization=5", "expected RULE.PARAMETER=VALUE"),
        ("OverallSystemUsage.window=5", "has no parameters"),
        ("zzz.window=5", "Unknown rule zzz. `--list-rules` shows all rules."),
    ],
)
def test_a_wrong_assignment_is_answered_with_what_would_be_right(assignment: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load(assignments=[assignment])

    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "select = 5",
        "select = []",
        'ignore = ["Nothing"]',
        "[LowGPUUtilization",
        "LowGPUUtilization = 5",
        "\x00",
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    config = tmp_path / "broken.toml"
    config.write_text(text)

    with pytest.raises(UsageError, match=r"broken\.toml: "):
        load(config)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.toml"):
        load(tmp_path / "no.toml")


def test_a_selection_on_the_command_line_takes_the_place_of_the_files(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text('select = ["BatchSize", "LowGPUUtilization"]\nignore = ["IOBottleneck"]\n')

    assert [rule.name for rule in load(config).rules] == ["LowGPUUtilization", "BatchSize"]
    assert [rule.name for rule in load(config, select=["CPUBottleneck", "IOBottleneck"]).rules] == [
        "CPUBottleneck"
    ]


@pytest.mark.parametrize(("text", "mode"), [("TRAIN", "TRAIN"), ("none", None), ("", None)])
def test_a_text_is_taken_as_it_is(text: str, mode: str | None) -> None:
    settings = load(assignments=[f"StepOutlier.mode={text}", "StepOutlier.threshold=4"])

    assert StepOutlier(mode=mode, stddev=4.0) in settings.rules


def test_nothing_left_to_run_is_an_error() -> None:
    with pytest.raises(UsageError, match="No rule is left"):
        load(select=["BatchSize"], ignore=["BatchSize"])


def test_the_vendors_way_to_write_a_parameter_is_read(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text("lowgpuutilization_threshold_p95 = 50\nBatchSize_patience = 7\n")

    settings = load(config, ["LowGPUUtilization_THRESHOLD_p95=60", "LowGPUUtilization_window=9"])

    by_name = {rule.name: rule for rule in settings.rules}
    assert by_name["LowGPUUtilization"] == LowGPUUtilization(threshold_p95=60.0, window=9)
    assert by_name["BatchSize"] == BatchSize(patience=7)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500s", 500), ("10min", 600), ("2m", 120), ("1.5 h", 5400), ("250ms", 0.25)]
)
def test_samples_may_be_given_as_a_time(text: str, seconds: float) -> None:
    settings = load(assignments=[f"LowGPUUtilization.patience={text}"])

    assert LowGPUUtilization(patience=timedelta(seconds=seconds)) in settings.rules
    (option,) = settings.options
    again = load(assignments=[option.removeprefix("--set ")])
    assert again == settings
