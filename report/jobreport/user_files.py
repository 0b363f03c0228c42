"""Small files that a user names on the command line: settings, prices, budgets."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

#: Bytes of a TOML file, and parts of a key such as ``a.b.c``: the parser takes time with their square.
MAX_TOML, _MAX_PARTS = 5 << 20, 100
_BETWEEN_KEYS = re.compile(r"[=\n,{}\[\]]")


def read(path: Path, most: int) -> bytes:
    """The content of a file or a pipe. Raises ``OSError`` if there is none, or more than ``most`` bytes."""
    with open(path, "rb", opener=_opened) as file:
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(file.fileno(), True)
        data = file.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, f"larger than {most >> 20} MB")
        if not data and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "nothing can be read from it")
    return data


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ``ValueError`` for other text."""
    if any(part.count(".") >= _MAX_PARTS for part in _BETWEEN_KEYS.split(text)):
        raise ValueError(f"a key has more than {_MAX_PARTS} parts")
    import tomllib  # noqa: PLC0415 - most commands name no such file

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error


def _opened(path: str, flags: int) -> int:
    """Do not wait for a writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
