"""A run of make-report on a job whose every name was chosen to break something, as a user starts it in a terminal."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fuzz.hostile import NAMES, in_path, job, write
from jobreport.files import FILES
from tests.once import made_once
from tests.paths import ROOT

pty = pytest.importorskip("pty", reason="there are no terminals to open on this system")
termios = pytest.importorskip("termios")

#: A folder that is called by a program, which makes a file where it is run.
CODE = in_path(NAMES["python"] + "\x1b[31m\u202e")


class Made:
    """What a run of the command left behind, and what it said."""

    def __init__(self, folder: Path, job_dir: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.job_dir = folder, job_dir
        # As the program that pip installs: the working directory is not on the path.
        program = cwd.parent / "make-report"
        paths = [str(ROOT / name) for name in ("report", "rules")]
        program.write_text(f"import sys\nsys.path[:0] = {paths}\nfrom jobreport.cli import main\nmain()\n")
        before = sorted(path.name for path in cwd.iterdir())
        ours, theirs = pty.openpty()
        without_ci = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        termios.tcsetwinsize(theirs, (50, 400))
        with subprocess.Popen(
            [sys.executable, program, "--job-dir", job_dir, "--out", folder, "--formats", ",".join(FILES)],
            cwd=cwd,
            env={**without_ci, **environment},
            stdout=theirs,
            stderr=theirs,
            close_fds=True,
        ) as process:
            os.close(theirs)
            self.said = "".join(_read(ours))
        os.close(ours)
        self.status = process.returncode
        self.strays = sorted({path.name for path in cwd.iterdir()} - {*before})
        self.files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


def _read(terminal: int) -> Iterator[str]:
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # so Linux says that nobody writes any more
            return
        if not part:
            return
        yield part.decode()


def hostile_run(factory: pytest.TempPathFactory) -> Made:
    """The run in surroundings without traps, once for all workers."""
    folder = made_once(factory, "hostile-run", _run)
    found: Made = pickle.loads((folder / "made").read_bytes())
    return found


def _run(folder: Path) -> None:
    job_dir = folder / "job" / CODE
    write(job_dir, job(list(NAMES.values())))
    for name in ("home", "cwd"):
        (folder / name).mkdir()
    made = Made(folder / "out\x1b]0;\u202e", job_dir, folder / "cwd", {"HOME": str(folder / "home")})
    (folder / "made").write_bytes(pickle.dumps(made))
