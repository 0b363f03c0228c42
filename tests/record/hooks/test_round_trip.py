"""From a training script to its report: everything that was recorded is there, as what it is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.record.hooks import fake_torch
from tests.record.recordings import PYTHON, facts, record
from tests.record.reports import remarks, report

#: Steps, pause between two in seconds, and how it ends.
LOOP = """
import os, sys, time, jobrecord
from tests.record.hooks.fake_torch import Loader

steps, pause_s, ends = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
jobrecord.start()
for epoch in range(2):
    for _ in jobrecord.data(Loader(steps, lambda batch: time.sleep(pause_s))):
        time.sleep(0.005)
        jobrecord.batch(samples=8)
        jobrecord.step()
    with jobrecord.eval():
        for _ in jobrecord.data(Loader(5)):
            time.sleep(0.005)
    with jobrecord.phase("Checkpoint"):
        time.sleep(0.05)
if ends == "killed":
    os.kill(os.getpid(), 9)
"""
RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env=os.environ | {"RANK": rank}) for rank in "01"]
sys.exit(max(rank.wait() for rank in ranks))
"""
UNTOUCHED = """
import time
from torch.optim.optimizer import Optimizer
for _ in range(30):
    time.sleep(0.02)
    Optimizer().step()
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name, text in {"loop": LOOP, "ranks": RANKS, "untouched": UNTOUCHED}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path / "job"


def trained(found: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Steps by rank and mode; a rank that is a process number is empty."""
    return {
        (row["rank"][:1] * (len(row["rank"]) == 1), row["mode"]): row["steps"]
        for row in found["steps"]["rows"]
    }


@pytest.mark.parametrize(
    ("command", "expected", "codes"),
    [
        pytest.param(
            ["loop.py", "20", "0.01", "exits"], {("", "TRAIN"): 40, ("", "EVAL"): 10}, set(), id="one process"
        ),
        pytest.param(
            ["ranks.py", "loop.py", "20", "0.01", "exits"],
            {(rank, mode): steps for rank in "01" for mode, steps in (("TRAIN", 40), ("EVAL", 10))},
            set(),
            id="two ranks",
            marks=pytest.mark.slow,
        ),
        # The last second of a killed process is lost.
        pytest.param(
            ["loop.py", "100", "0.01", "killed"],
            None,
            {"traces.growing"},
            id="killed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_steps_of_a_script(
    out: Path, command: list[str], expected: dict[tuple[str, str], int] | None, codes: set[str]
) -> None:
    record(out, "--interval", "100ms", command=[PYTHON, *command], PYTHONPATH=os.pathsep.join(sys.path))

    found = report(out)

    assert remarks(found) == codes
    steps = trained(found)
    assert steps == expected or (expected is None and 100 < steps["", "TRAIN"] <= 200)
    assert found["steps"]["cut"] == found["steps"]["profiled"] == 0
    shown = {one["name"] for one in found["framework"]["event_types"]}
    assert shown == {"DataLoaderIter", "DataLoaderIterInitialize", "Checkpoint"}
    (setup, *_) = found["data_loading"]["setups"]
    assert (setup["iterator"], setup["num_workers"]) == ("_SingleProcessDataLoaderIter", 0)


def test_steps_of_an_untouched_script(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(out.with_name("lib"), monkeypatch)
    record(out, "--steps", "auto", command=[PYTHON, "untouched.py"], PYTHONPATH=str(out.with_name("lib")))

    found = report(out)

    # Nothing says when the first step began.
    assert remarks(found) == set()
    assert (trained(found), found["steps"]["cut"]) == ({("", "TRAIN"): 29}, 1)


@pytest.mark.slow
def test_job_that_is_started_again_is_one_rank_with_an_interruption(out: Path) -> None:
    for ends, pause_s in (("killed", 1), ("exits", 0)):
        command = [PYTHON, "loop.py", "20", "0.03", ends]
        record(out, "--force", "--interval", "100ms", command=command, PYTHONPATH=os.pathsep.join(sys.path))
        time.sleep(pause_s)

    found = report(out, "html")

    assert remarks(found) == {"traces.growing"}
    assert len({row["rank"] for row in found["steps"]["rows"]}) == 1
    assert 40 < trained(found)["", "TRAIN"] <= 80
    (earlier,) = facts(out)["earlier"]
    assert (earlier["ended_by"], facts(out)["ended_by"]) == ("signal:9", "exit")
    page = " ".join((out.with_name("report") / "report.html").read_text().replace("\xa0", " ").split())
    assert "The job was started again once, after " in page
    assert "killed by signal 9" in page


@pytest.mark.slow
def test_data_loader_is_judged_with_its_number_of_processes(out: Path) -> None:
    command = [PYTHON, "loop.py", "200", "0.03", "exits"]
    record(out, command=command, PYTHONPATH=os.pathsep.join(sys.path))

    found = report(out)

    (rule,) = (rule for rule in found["rules"] if rule["name"] == "Dataloader")
    assert rule["status"] in {"triggered", "passed"}
    assert "itself" in rule["headline"]
