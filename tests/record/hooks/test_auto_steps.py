"""``--steps auto``: steps of a script that does not know of the recorder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobrecord.hooks import auto_steps
from tests.record.hooks import fake_torch
from tests.record.hooks.written import steps
from tests.record.recordings import facts, record

TRAIN = "from torch.optim.optimizer import Optimizer\nfor _ in range(7): Optimizer().step()\n"


@pytest.mark.parametrize(
    ("command", "is_possible"),
    [
        (["python", "train.py", "-I"], True),
        (["python3.12", "-u", "-m", "train", "-S"], True),
        (["torchrun", "-I", "train.py"], True),
        (["python", "-I", "train.py"], False),
        (["/usr/bin/python3", "-uE", "train.py"], False),
        (["python", "-S", "-c", "0"], False),
        # ``--pid``.
        ([], False),
    ],
)
def test_python_that_ignores_the_environment_is_named(command: list[str], is_possible: bool) -> None:
    assert (auto_steps.obstacle(command) == "") == is_possible


@pytest.mark.parametrize("option", ["auto", "script"])
def test_untouched_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    fake_torch.install(tmp_path / "lib", monkeypatch)
    run = record(
        tmp_path / "job",
        "--steps",
        option,
        command=[sys.executable, "-c", TRAIN],
        PYTHONPATH=str(tmp_path / "lib"),
    )

    assert run.returncode == 0, run.stderr
    assert [event.step for event in steps(tmp_path / "job")] == list(range(7 if option == "auto" else 0))
    assert facts(tmp_path / "job")["overhead"].get("steps") == (7 if option == "auto" else None)


def test_python_that_does_not_have_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = getattr(sys, "_base_executable", "")
    looks = [base, "-c", "import importlib.util as i; print(i.find_spec('jobrecord'))"]
    if not base or subprocess.run(looks, capture_output=True, text=True, check=False).stdout != "None\n":
        pytest.skip("there is no Python without the recorder")
    fake_torch.install(tmp_path / "lib", monkeypatch)
    run = record(tmp_path / "job", command=[base, "-c", TRAIN], PYTHONPATH=str(tmp_path / "lib"))

    assert run.returncode == 0, run.stderr
    assert [event.step for event in steps(tmp_path / "job")] == list(range(7))


def test_script_without_the_recorder_is_recorded_without_steps(tmp_path: Path) -> None:
    run = record(
        tmp_path / "job", "--steps", "auto", command=[sys.executable, "-I", "-c", "print('trained')"]
    )

    assert (run.returncode, run.stdout) == (0, "trained\n")
    assert "--steps auto: not possible: python -I" in run.stderr
    assert facts(tmp_path / "job")["auto_steps"].startswith("not possible: python -I ignores")
