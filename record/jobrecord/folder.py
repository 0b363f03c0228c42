"""The only way to the files of a recording: others may be able to write into its folder, and a link leads anywhere.

A folder is opened name by name from that of the recording on, and no link is followed; files are new, or regular files
with one name. So nobody leads a recorder to a file outside of the recording, whoever owns the folders. No folder stays
open: a script may close all files of its process.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Folders of a recording.
PARTS = ("system", "framework", "jobrecord")
#: Not on Windows, where links need rights of their own.
_BY_DESCRIPTOR = os.open in os.supports_dir_fd
# A FIFO is not waited for.
_SAFE = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "CLOEXEC", "NONBLOCK", "BINARY"))
# A folder that may be written to, and not listed, is no trouble.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _SAFE
#: What systems say of a link that is not followed.
_NO_LINK = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
#: Far more than facts are.
_MAX_BYTES = 8 << 20


class Folder:
    """A folder `inside` of that of the recording, as a context; made with `make`.

    All methods take names of its files, and raise OSError, whose text names a link or what else is no file.
    """

    def __init__(self, out: Path, inside: str = "", *, make: bool = False) -> None:
        self.path = out / inside
        self._descriptor: int | None = None
        if make:
            with suppress(FileExistsError):
                (out if _BY_DESCRIPTOR else self.path).mkdir(parents=True)
        if not _BY_DESCRIPTOR:
            return
        self._descriptor = _opened(out)
        try:
            for number, name in enumerate(parts := inside.split("/") if inside else []):
                self._enter(name, "/".join(parts[: number + 1]), make=make)
        except OSError:
            self.__exit__()
            raise

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def create(self, name: str, mode: int = 0o644) -> int:
        """Open a new file, to append to it."""
        return self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, mode)

    def create_next(self, stem: str) -> tuple[str, int]:
        """Open a new file of lines, ``<stem>.jsonl``, or with a number if there are such ones. Returns its name, too."""
        names = {*self.names()}
        numbered = (f"{stem}{f'-{number}' if number > 1 else ''}.jsonl" for number in count(1))
        name = next(one for one in numbered if one not in names)
        return name, self.create(name)

    def reopen(self, name: str) -> int:
        """Open a file to read and write it."""
        file = self._open(name, os.O_RDWR)
        if os.fstat(file).st_nlink != 1:
            os.close(file)
            raise OSError(errno.EMLINK, f"{name} is a hard link")
        return file

    def read(self, name: str, most: int = _MAX_BYTES) -> bytes:
        """A file, so much of it at most."""
        with os.fdopen(self._open(name, os.O_RDONLY), "rb") as stream:
            return stream.read(most)

    def names(self) -> list[str]:
        """Names of its files and folders."""
        if self._descriptor is None:
            return os.listdir(self.path)  # noqa: PTH208
        listed = os.open(".", os.O_RDONLY, dir_fd=self._descriptor)
        try:
            return os.listdir(listed)  # noqa: PTH208
        finally:
            os.close(listed)

    def has(self, name: str) -> bool:
        """Whether anything has this name."""
        try:
            os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def move(self, name: str, to: Folder, new: str) -> None:
        """Put a file into the place of another one."""
        source, target = self._at(name), to._at(new)
        os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=to._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._descriptor)

    def _at(self, name: str) -> str:
        if {os.sep, os.altsep} & {*name}:
            raise OSError(errno.EINVAL, f"{name} is not the name of a file")
        return name if self._descriptor is not None else str(self.path / name)

    def _open(self, name: str, flags: int, mode: int = 0) -> int:
        try:
            file = os.open(self._at(name), flags | _SAFE, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EMLINK}:
                error.strerror = f"{name} is a link"
            raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, f"{name} is not a regular file")
        return file

    def _enter(self, name: str, inside: str, *, make: bool) -> None:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._descriptor)
        try:
            entered = os.open(name, _FOLDER, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            error.strerror = f"{inside} is {'a link' if stat.S_ISLNK(found.st_mode) else 'not a folder'}"
            raise
        self.__exit__()
        self._descriptor = entered


def _opened(out: Path) -> int:
    """Open the folder of the recording, which may be a link of this user, or of root."""
    try:
        return os.open(out, _FOLDER)
    except OSError as error:
        if error.errno not in _NO_LINK or not stat.S_ISLNK((found := out.lstat()).st_mode):
            raise
        if found.st_uid not in {0, os.geteuid()}:
            error.strerror = "it is a link of another user"
            raise
        return os.open(out.resolve(), _FOLDER)


def check(out: Path, node: str) -> None:
    """Raise OSError that names a link, or a FIFO, in the recording that `out` may hold, but for files of other nodes.

    So a user reads of it before the job starts; each open looks again.
    """
    names = [*PARTS]
    while names:
        name = names.pop()
        if ".json" in name and node not in name:
            continue
        try:
            mode = (out / name).lstat().st_mode
            names += [f"{name}/{one}" for one in os.listdir(out / name)] if stat.S_ISDIR(mode) else []  # noqa: PTH208
        except OSError:  # gone by now, or closed to this user
            continue
        # A script may leave a socket, which leads nowhere.
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
            kind = "a link, and none is followed" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise OSError(errno.EINVAL, f"{name} is {kind}")
