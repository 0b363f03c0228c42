"""The wheels, installed into a clean environment, record a job and make its report away from the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from tests.paths import ROOT, SAMPLES

pytestmark = pytest.mark.slow


def run(*arguments: str | Path, cwd: Path, **variables: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | variables
    done = subprocess.run(
        list(map(str, arguments)), cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment's programs, with nothing in it but the wheels and what they ask for."""
    folder = tmp_path_factory.mktemp("wheel")
    for source in (ROOT, ROOT / "record"):
        run(
            sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, cwd=folder
        )
    venv.create(folder / "env")
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", folder / "env", "--disable-pip-version-check")
    # Most of what is installed is never imported: compiling all of it would take longer than the rest.
    install = ("install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt")
    run(*pip, *install, "--find-links", folder, "jobreport[record]", cwd=folder)
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


def test_the_commands_of_the_readme_lead_from_a_script_to_a_page(installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## Record your own job")[2]
    block, script = re.findall(r"```(?:console|python)\n(.*?)```", text, re.DOTALL)
    commands = [line.removeprefix("$ ").split() for line in block.splitlines()]
    assert [command[0] for command in commands] == ["pip", "record-job", "make-report"]
    (tmp_path / "train.py").write_text("loader = range(200)\n" + textwrap.dedent(script))
    programs = f"{installed}{os.pathsep}{os.environ['PATH']}"

    for command in commands[1:]:
        run(*command, cwd=tmp_path, PATH=programs)

    report = json.loads((tmp_path / "my-job-report" / "report.json").read_bytes())
    assert report["steps"]["count"] == 200


def test_only_our_own_names_are_installed(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print(*m.files('jobreport'), sep='\\n')"
    names = {line.split("/")[0] for line in run(installed / "python", "-c", code, cwd=tmp_path).split()}

    assert {n for n in names if not n.endswith(".dist-info")} == {"..", "jobreport", "jobrules"}
