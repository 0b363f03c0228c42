"""A stand-in costs no import, is the module where it is used, and is not seen by others."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jobreport.output.postponed import postponed

if TYPE_CHECKING:
    from pathlib import Path


def test_a_module_is_imported_when_it_is_first_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with postponed("late_module"):
        stand_in = importlib.import_module("late_module")

    assert "late_module" not in sys.modules
    with pytest.raises(AttributeError):
        stand_in.MISSING  # noqa: B018
    assert stand_in.ANSWER == 42
    late_module = importlib.import_module("late_module")
    assert late_module.__file__ == str(tmp_path / "late_module.py")
    with postponed("late_module"):
        assert sys.modules["late_module"] is late_module
    monkeypatch.delitem(sys.modules, "late_module")


def test_what_no_notebook_needs_is_not_imported() -> None:
    """If this fails after an update: another of the libraries imports it, or uses it at once."""
    script = "import sys, jobreport.output.notebook, jobreport.output.export; print({'requests', 'soupsieve'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_engine_of_papermill_may_need_a_part_of_what_is_postponed(tmp_path: Path) -> None:
    (tmp_path / "own_engine.py").write_text("from requests.exceptions import ConnectionError as Engine\n")
    (tmp_path / "own_engine-1.0.dist-info").mkdir()
    (tmp_path / "own_engine-1.0.dist-info" / "entry_points.txt").write_text(
        "[papermill.engine]\nown = own_engine:Engine\n"
    )
    script = "import jobreport.output.notebook, papermill.engines as p; print(*p.papermill_engines._engines)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert "own" in done.stdout.split()
