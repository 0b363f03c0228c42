"""A script that was not changed is recorded: Python runs ``auto/sitecustomize.py`` when it starts."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord.hooks import parts, startup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).with_name("auto")
#: Set for all processes of a job that is recorded so.
AUTO = "JOBRECORD_AUTO"
_NO_SITE = frozenset("IES")
#: Libraries that train, by their modules.
LIBRARIES = ("torch", "jax", "tensorflow", "keras")


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
        atexit.register(_note_end, os.getpid())
        startup.begin()
        parts.await_all()


def _note_end(pid: int) -> None:
    """Leave a note on the end of this process, not on that of the child of a fork."""
    error = getattr(sys, "last_value", None)
    is_odd = error is not None or any(name in sys.modules for name in LIBRARIES)
    # Imports now would make Python forget that it is to end by the signal of an interrupt.
    if is_odd and os.getpid() == pid and not isinstance(error, KeyboardInterrupt):
        with suppress(Exception):
            import_module("jobrecord.hooks.endings").note_end()
