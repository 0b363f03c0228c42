"""A short run of what ``make fuzz`` runs for long: the regressions, and some hundred damaged files for each reader."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz import checks
from fuzz.checks import TARGETS
from jobreport.readers.traces import rows as trace_rows
from tests.once import slow_but
from tests.paths import ROOT

#: Modules that make what they read run, or crash the interpreter; what makes code of a text; and who may call it.
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "unsafe_load"}
ALLOWED = {
    # What this run has written itself, in a folder that it made for itself.
    ("report/jobreport/tables/engine.py", "pickle"),
    # What a process of this run says to the one that started it.
    ("report/jobreport/tables/forked.py", "pickle"),
}


@pytest.mark.parametrize(("last", "many"), slow_but((40, 3), [(40, 3), (1000, 40)]))
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_of_each_reader_are_survived_and_accounted_for(name: str, last: int, many: int) -> None:
    """The damaged ones come last, before them the regressions, before these the seeds: each form of log."""
    for data in [*checks.damaged(name, range(many))][-last:]:
        checks.check(name, data)


def test_a_row_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = trace_rows._ByLine.read

    def losing(self: Any, text: bytes, *, is_last: bool) -> tuple[list[Any], int]:
        rows, used = read(self, text, is_last=is_last)
        return rows[:-1], used

    monkeypatch.setattr(trace_rows._ByLine, "read", losing)

    with pytest.raises(AssertionError):
        checks.check("trace", checks.inputs("trace")[0])


def test_each_regression_belongs_to_a_target() -> None:
    assert {path.name for path in checks.CORPUS.iterdir()} <= set(TARGETS)
    assert all(path.stat().st_size <= checks.LONGEST for path in checks.CORPUS.glob("*/*"))


def _without_atheris(folder: Path, setup: str = "") -> subprocess.CompletedProcess[str]:
    """The command, where importing atheris does something else and fails."""
    (folder / "atheris.py").write_text(f"{setup}\nraise ImportError")
    command = [sys.executable, "-m", "fuzz.targets", "config", "--seconds=0", f"--out={folder / 'out'}"]
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_without_atheris_the_command_does_numbered_damage(tmp_path: Path) -> None:
    done = _without_atheris(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_an_input_that_hangs_is_a_finding(tmp_path: Path) -> None:
    done = _without_atheris(
        tmp_path,
        """
import time
from fuzz import checks
checks.TIMEOUT_S = 0.1
checks.TARGETS["config"] = checks.Target(lambda data: time.sleep(60), lambda: [b"hangs"])
""",
    )

    assert done.returncode == 1
    assert "atheris is not installed" in done.stdout
    assert "1 executions in 0 s, a finding" in done.stdout
    assert "Timeout (0:00:00.100000)!" in done.stdout
    (kept,) = (tmp_path / "out").glob("config-crash-*")
    assert kept.read_bytes().startswith(b"hangs")


def test_nothing_of_a_job_is_unpickled_or_run() -> None:
    sources = [*(ROOT / "report").rglob("*.py"), *(ROOT / "rules").rglob("*.py")]
    found = {
        (path.relative_to(ROOT).as_posix(), name) for path in sources for name in _dangers(path.read_text())
    }

    assert len(sources) > 50
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "import marshal",
        "from pickle import loads",
        "import a, cloudpickle as b",
        "def f(x):\n    return eval(x)",
        "builtins.exec(x)",
        "import importlib\nimportlib.import_module('pickle')",
        "numpy.load(x, allow_pickle=True)",
    ],
)
def test_each_way_to_run_data_is_seen(source: str) -> None:
    assert _dangers(source)


def _dangers(source: str) -> set[str]:
    """What a module uses that could run what it reads."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0]} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            # A regular expression is compiled too, and is no code.
            owner = getattr(node.func, "value", None)
            is_re = isinstance(owner, ast.Name) and owner.id == "re"
            found |= {called} & FORBIDDEN_CALLS if not is_re else set()
            found |= {
                str(one.value) for one in node.args if isinstance(one, ast.Constant)
            } & FORBIDDEN_MODULES
            found |= {"allow_pickle" for one in node.keywords if one.arg == "allow_pickle"}
    return found
