"""Folders for temporary files; those of runs that were killed go with the next run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

with contextlib.suppress(ImportError):  # Windows
    import fcntl

_PREFIX = "jobreport-"
#: A younger folder may not be locked yet.
_MIN_AGE_S = 60


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder with a lock on it, which the kernel releases if the process dies."""

    def __init__(self) -> None:
        """Make it, and remove those of this user whose processes have died."""
        super().__init__(prefix=_PREFIX)
        self._lock = _locked(Path(self.name))
        for folder in Path(self.name).parent.glob(f"{_PREFIX}*"):
            _remove_stale(folder)

    def cleanup(self) -> None:
        """Remove the folder."""
        super().cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(folder: Path) -> int | None:
    """A descriptor that holds a lock; None if another process does, or there are no locks."""
    with contextlib.suppress(OSError, NameError, AttributeError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def _remove_stale(folder: Path) -> None:
    with contextlib.suppress(OSError, AttributeError):
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _MIN_AGE_S:
            return
        if (lock := _locked(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
