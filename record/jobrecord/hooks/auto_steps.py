"""A script that was not changed is recorded: Python runs ``auto/sitecustomize.py`` when it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord.hooks import parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).with_name("auto")
#: Set for all processes of a job that is recorded so.
AUTO = "JOBRECORD_AUTO"
_NO_SITE = frozenset("IES")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for the child of this process, by which its processes are recorded."""
    paths = [str(FOLDER), *filter(None, [environment.get("PYTHONPATH", "")])]
    return {"PYTHONPATH": os.pathsep.join(paths), AUTO: "1"}


def obstacle(command: Sequence[str]) -> str:
    """Why the steps of a command cannot be recorded; empty if nothing speaks against it."""
    if not command:
        return "not possible: the process runs already"
    if not Path(command[0]).name.startswith("python"):
        return ""
    for option in command[1:]:
        if not option.startswith("-") or option in {"-c", "-m"}:
            break
        if not option.startswith("--") and (letters := _NO_SITE & set(option)):
            return f"not possible: python -{min(letters)} ignores PYTHONPATH or sitecustomize"
    return ""


def begin() -> None:
    """Wait for the libraries that trainings use. Nothing is written by a process that does not train."""
    if AUTO in os.environ:
        parts.await_all()
