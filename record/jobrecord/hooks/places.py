"""Where a line of code lies: in the user's own code, in a library, or in Python itself; and its path, shortened."""

from __future__ import annotations

import os
from functools import lru_cache

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


@lru_cache(maxsize=4096)
def place(file: str) -> tuple[str, str]:
    """Whose code a file is, as ``co_filename`` names it, and its path, relative to the working directory or its library."""
    if file.startswith("<"):
        kind = OWN if file.startswith(_TYPED) else PYTHON if file.startswith("<frozen ") else LIBRARY
        return kind, file
    parts = file.replace("\\", "/").split("/") if os.sep == "\\" else file.split("/")
    for number, part in enumerate(reversed(parts)):
        if part in _INSTALLED:
            return LIBRARY, "/".join(parts[len(parts) - number :])
        if part.startswith(_COMPILED):
            # Behind it is the name of a user.
            return LIBRARY, "/".join(("torchinductor", *parts[len(parts) - number :]))
    if file.startswith(_STANDARD):
        return PYTHON, file[len(_STANDARD) :]
    if file.startswith(_OURS):
        return LIBRARY, f"jobrecord/{file[len(_OURS) :]}"
    return OWN, file.removeprefix(_START)
