"""The wheel, installed into a clean environment, makes a report away from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.paths import ROOT, SAMPLES

pytestmark = pytest.mark.slow


def run(*arguments: str | Path, cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, arguments)), cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment's programs, with nothing in it but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env")
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", folder / "env", "--disable-pip-version-check")
    # Most of what is installed is never imported: compiling all of it would take longer than the rest.
    install = ("install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel)
    run(*pip, *install, cwd=folder)
    return programs


def test_the_wheel_makes_a_whole_report(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES[-1], tmp_path / "job")

    printed = run(installed / "make-report", "--job-dir", "job", cwd=tmp_path)

    folder = tmp_path / "job-report"
    assert printed == f"{folder / 'report.html'}\n"
    expected = ["report.html", "report.ipynb", "report.json", "rules", "summary.md"]
    assert sorted(p.name for p in folder.iterdir()) == expected
    page = (folder / "report.html").read_text("utf-8")
    assert "</html>" in page
    assert str(tmp_path) not in page
    assert str(ROOT) not in page
    assert json.loads((folder / "report.ipynb").read_bytes())["nbformat"] == 4


def test_only_our_own_names_are_installed(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print(*m.files('jobreport'), sep='\\n')"
    names = {line.split("/")[0] for line in run(installed / "python", "-c", code, cwd=tmp_path).split()}

    assert {n for n in names if not n.endswith(".dist-info")} == {"..", "jobreport", "jobrules"}
