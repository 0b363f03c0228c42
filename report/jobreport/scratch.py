"""Folders for a while, which the next run removes where this one is killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and nothing swept
    fcntl = None  # type: ignore[assignment]

#: No user would call a folder so: what is called so may be removed.
TEMPORARY, STAGING = "jobreport-temporary-", ".jobreport-unfinished-"
_OURS = re.compile(rf"(?:{re.escape(TEMPORARY)}[a-z0-9_]{{8}}|{re.escape(STAGING)}[0-9a-f]{{16}})")
#: A folder that was made just now may not be locked yet.
_MADE_JUST_NOW_S = 60.0


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder for this user alone."""

    def __init__(self) -> None:
        """Make and lock the folder; ``OSError`` where that is not possible."""
        sweep(tempfile.gettempdir())
        super().__init__(prefix=TEMPORARY)
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(locked(Path(self.name)))

    def cleanup(self) -> None:
        """Remove the folder."""
        self._lock.close()
        super().cleanup()


@cache
def sweep(parent: str) -> None:
    """Remove what runs have left in a folder that were killed; once in a process."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if fcntl and _OURS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_dead(entry)


def _remove_dead(folder: os.DirEntry[str]) -> None:
    known = folder.stat(follow_symlinks=False)
    if known.st_uid == os.geteuid() and time.time() - known.st_mtime > _MADE_JUST_NOW_S:
        with locked(Path(folder.path), wait=False):
            shutil.rmtree(folder.path, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Keep a folder locked, which is opened for that; without ``wait``, ``OSError`` where somebody else does.

    Where the file system knows no locks it is not locked.
    """
    if fcntl is None:
        yield None
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if wait:
            with contextlib.suppress(OSError):
                fcntl.flock(opened, fcntl.LOCK_EX)
        else:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield opened
    finally:
        os.close(opened)
