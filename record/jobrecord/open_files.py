"""Open files of the recorder in a process whose script may close all files, and open its own under their numbers."""

from __future__ import annotations

import os


def identity(file: int) -> tuple[int, int]:
    """Device and inode of an open file. Raises OSError."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def is_open(file: int, known: tuple[int, int]) -> bool:
    """Whether `file` is open, and still the file with this identity."""
    try:
        return identity(file) == known
    except OSError:
        return False
