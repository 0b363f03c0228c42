"""Steps of a script that was not changed: Python runs ``auto/sitecustomize.py`` when it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord.hooks.imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

FOLDER = Path(__file__).with_name("auto")
#: Process id of ``record-job``, whose child is recorded; so is each process with a rank.
OWNER = "JOBRECORD_AUTO"
_NO_SITE = frozenset("IES")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for the child of this process, by which it records its steps."""
    paths = [str(FOLDER), *filter(None, [environment.get("PYTHONPATH", "")])]
    return {"PYTHONPATH": os.pathsep.join(paths), OWNER: str(os.getpid())}


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
    """Record this process as soon as it imports optimizers, if it is one that trains."""
    if "RANK" in os.environ or os.environ.get(OWNER) == str(os.getppid()):
        when_imported("torch.optim.optimizer", _start)


def _start(_optimizers: ModuleType) -> None:
    from jobrecord.hooks import current  # noqa: PLC0415 - most processes never come here

    if current.current() is None:
        current.start(begins=False)
