"""Free bytes of the file systems that a job fills: the recording's, the working directory's, shared memory."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord.files import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrecord.sensors.base import Machine


class Space:
    """One row per file system, named by its mount point."""

    every_s = 60.0

    def __init__(self, out: Path, machine: Machine) -> None:
        self._machine = machine
        self._folders = [out, Path("/dev/shm")]  # noqa: S108 - where loaders hand over batches
        # The job may have removed its working directory by now.
        with contextlib.suppress(OSError):
            self._folders.append(Path.cwd())

    def rows(self) -> Iterator[Row]:
        """Free bytes for this user."""
        mounts = {_mount(folder.resolve()) for folder in self._folders if folder.is_dir()}
        for mount in sorted(mounts):
            try:
                yield Row("disk", str(mount), "FreeBytes", shutil.disk_usage(mount).free)
            except OSError as error:
                self._machine.left_out.add(f"disk {mount}", error.strerror or str(error))


def _mount(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_mount())
