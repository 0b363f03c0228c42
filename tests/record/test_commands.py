"""Commands that one script runs one after the other are runs of their own; a job that is started again is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobreport.errors import UsageError
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.readers.registry import read_directory
from tests.record.recordings import PYTHON, record
from tests.record.reports import report

TRAIN = """
import sys, time, jobrecord
jobrecord.start()
steps, step_s = int(sys.argv[1]), float(sys.argv[2])
for _ in range(steps):
    time.sleep(step_s)
    jobrecord.step()
"""
SHORT, LONG = "train.py 20 0.01", "train.py 60 0.01"


@pytest.mark.parametrize(
    ("commands", "steps", "runs"),
    [
        (f"python {SHORT}; python {LONG}", [60], [False, True]),
        (f"python {LONG}; python {SHORT}", [60], [True, False]),
        (f"python {SHORT}; python {SHORT}", [40], []),
        (f"RANK=0 python {SHORT}; RANK=0 python {LONG}", [60], [False, True]),
        (f"python {SHORT} --rank 0 & python {LONG} --rank 1; wait", [20, 60], []),
    ],
)
def test_the_longest_command_is_reported(
    commands: str, steps: list[int], runs: list[bool], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    out = tmp_path / "job"
    record(out, "--quiet", command=["sh", "-c", commands.replace("python", PYTHON)], cwd=tmp_path)

    found = report(out)

    assert found["job"]["steps"] == sum(steps)
    assert sorted(one["steps"] for one in found["steps"]["rows"]) == steps
    assert [run["reported"] for run in found["quality"]["runs"]] == runs


def test_a_recording_that_goes_on_is_one_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    out = tmp_path / "job"
    for command in (SHORT, LONG):
        record(out, "--quiet", "--force", command=[PYTHON, *command.split()], cwd=tmp_path)

    found = report(out)

    assert (found["job"]["steps"], found["quality"]["runs"]) == (80, [])


def test_any_command_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    out = tmp_path / "job"
    commands = f"python {SHORT}; python {LONG}".replace("python", PYTHON)
    record(out, "--quiet", command=["sh", "-c", commands], cwd=tmp_path)
    # A row without a date does not say when its command ran.
    last = max(out.glob("framework/pevents/*/*.json"))
    head, *_, row = json.loads(last.read_text())
    row["ts"] = 5 - head["args"]["start_time_since_epoch_in_micros"]
    last.write_text(last.read_text().replace("\n]", f",\n{json.dumps(row)}\n]"))
    steps = {}
    for run in (1, 2, "all"):
        chosen = Options(formats=["json"], strict=True, force=True, run=run)
        steps[run] = make_report(out, tmp_path / "report", chosen).report.job.steps

    assert steps == {1: 20, 2: 60, "all": 80}
    with pytest.raises(UsageError):
        make_report(out, tmp_path / "report", Options(formats=["json"], force=True, run=3))


def test_what_another_command_learned_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{TRAIN}    jobrecord.log(loss=steps)\n")
    out = tmp_path / "job"
    commands = f"python {LONG}; python {SHORT}".replace("python", PYTHON)
    record(out, "--quiet", command=["sh", "-c", commands], cwd=tmp_path)

    readings = [read_directory(out, Options(strict=True, run=run)) for run in (None, 2)]

    losses = [one.job.learning and one.job.learning.series("loss") for one in readings]
    assert [one and one.value.tolist() for one in losses] == [[60.0] * 60, [20.0] * 20]
    left_out = [one for reading in readings for source in reading.quality.sources for one in source.remarks]
    assert [one.count for one in left_out if one.code == "learning.other_command"] == [1, 1]
