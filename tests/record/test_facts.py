from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from jobrecord import facts
from jobrecord.settings import SettingError, Settings


def settings(out: Path, **options: Any) -> Settings:
    return Settings(out=out, node="n", run=options.pop("run", "r"), **options)


def earlier(out: Path, **changed: Any) -> Path:
    """Facts of an earlier recording of the node."""
    file = facts.path(out, "n")
    file.parent.mkdir(parents=True, exist_ok=True)
    facts.write(file, facts.first_facts(settings(out, run="earlier"), {}) | changed)
    return file


def test_first_facts(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "4", "SLURM_NODEID": "3", "SECRET_TOKEN": "hush"}

    facts.claim(settings(tmp_path, labels={"a": "b"}), environment, ["train.py", "--token", "hush"])

    text = facts.path(tmp_path, "n").read_text()
    found = json.loads(text)
    assert (found["nodes"], found["node_rank"], found["scheduler"]) == (
        4,
        3,
        {"kind": "slurm", "job_id": "17"},
    )
    assert (found["labels"], found["interval_ms"], found["ended_us"]) == ({"a": "b"}, 500, None)
    assert "hush" not in text


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({}, {}, r"already recorded into .* by process \d+"),
        ({"ended_us": 5}, {}, "already contains a recording of n"),
        ({"pid": 2**22 + 1}, {}, "already contains a recording"),
        # The number of the process is another's now.
        ({"started_us": 1000}, {}, "already contains a recording"),
        ({}, {"force": True}, None),
        ({"ended_us": 5}, {"run": "earlier"}, None),
        ({"ended_us": 5, "boot_id": "other"}, {}, "already contains a recording"),
        ({"pid": "x"}, {}, "already contains a recording"),
    ],
)
def test_a_second_recorder(
    changed: dict[str, Any], options: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    earlier(tmp_path, **changed)

    if message:
        with pytest.raises(SettingError, match=message):
            facts.claim(settings(tmp_path, **options), {})
    else:
        assert facts.claim(settings(tmp_path, **options), {}).node == "n"


def test_another_machine_of_the_same_name(tmp_path: Path) -> None:
    file = earlier(tmp_path, boot_id="other")

    second = facts.claim(settings(tmp_path), {})
    # Not rewritten for long: the machine went away, and its job goes on here.
    os.utime(file, (time.time() - 600, time.time() - 600))
    after_restart = facts.claim(settings(tmp_path, force=True), {})

    assert (second.node, after_restart.node) == ("n-2", "n")


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_damaged_facts_are_a_recording(text: str, tmp_path: Path) -> None:
    file = earlier(tmp_path)
    file.write_text(text)

    with pytest.raises(SettingError, match="already contains a recording"):
        facts.claim(settings(tmp_path), {})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingError, match=r"Cannot write to .*Not a directory"):
        facts.claim(settings(tmp_path / "file"), {})


@pytest.mark.parametrize(
    ("rank", "ended_by", "marked"),
    [(None, "exit", True), (0, "signal:9", True), (1, "exit", False), (0, "detached", False)],
)
def test_the_first_node_marks_the_end(rank: int | None, ended_by: str, marked: bool, tmp_path: Path) -> None:
    earlier(tmp_path, node_rank=rank)

    found = facts.end(settings(tmp_path), ended_by, 3)

    assert (found["ended_by"], found["exit_status"]) == (ended_by, 3)
    assert (tmp_path / "system/training_job_end.ts").exists() == marked
    assert (tmp_path / "framework/training_job_end.ts").exists() == marked


def test_a_command_line_without_secrets() -> None:
    shown = facts.without_secrets(
        [
            "train",
            "--api-key",
            "abc",
            "--token=xyz",
            "--lr",
            "1e-3",
            "WANDB_API_KEY=q",
            "--secret",
            "--flag",
            "--Password",
            "p",
        ]
    )

    assert shown == [
        "train", "--api-key", "***", "--token=***", "--lr", "1e-3", "WANDB_API_KEY=***", "--secret", "--flag", "--Password", "***"
    ]  # fmt: skip
