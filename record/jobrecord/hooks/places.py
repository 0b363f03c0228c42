"""Where a line of code lies: in the user's own code, in a library, or in Python itself; and its path, shortened."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

OWN, LIBRARY, PYTHON = "own", "library", "python"
#: Code without a file that a user wrote.
_TYPED = ("<stdin>", "<string>", "<ipython-input-")
#: Folders of installed packages, and of code that torch.compile writes.
_INSTALLED = ("site-packages", "dist-packages")
_COMPILED = "torchinductor_"


def _folder(path: str) -> str:
    """The path with a slash at its end; empty for the working directory if it is gone."""
    try:
        return os.path.join(os.path.abspath(path), "")  # noqa: PTH100, PTH118 - Path drops the slash
    except OSError:
        return ""


#: At the start of the process: a script may go elsewhere.
_START = _folder(".")
_STANDARD = _folder(os.path.dirname(os.__file__))  # noqa: PTH120
_OURS = _folder(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120


class Place(NamedTuple):
    """The file of some code: whose it is, and its path, relative to the working directory or to the folder of its libraries."""

    kind: str
    path: str


@lru_cache(maxsize=4096)
def place(file: str) -> Place:
    """The place of a file, as ``co_filename`` of code names it."""
    if file.startswith("<"):
        kind = OWN if file.startswith(_TYPED) else PYTHON if file.startswith("<frozen ") else LIBRARY
        return Place(kind, file)
    parts = file.replace("\\", "/").split("/") if os.sep == "\\" else file.split("/")
    for number, part in enumerate(reversed(parts)):
        if part in _INSTALLED:
            return Place(LIBRARY, "/".join(parts[len(parts) - number :]))
        if part.startswith(_COMPILED):
            return Place(LIBRARY, "/".join(parts[len(parts) - number - 1 :]))
    if file.startswith(_STANDARD):
        return Place(PYTHON, file[len(_STANDARD) :])
    if file.startswith(_OURS):
        return Place(LIBRARY, f"jobrecord/{file[len(_OURS) :]}")
    return Place(OWN, file.removeprefix(_START))
