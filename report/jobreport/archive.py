"""A job directory that arrives packed: a tar file, compressed or not, or a zip file."""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from msgspec import Struct

from jobreport.errors import JobReportError, NothingReadableError
from jobreport.folders import Scratch
from jobreport.quality import Remark
from jobrules.words import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Unpacking stops here: no profile of a job is that large in an archive.
MOST_BYTES = 50 * 2**30
SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar", ".zip")
#: What a damaged archive raises, whichever library finds the damage.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class Unpacked(Struct, frozen=True, kw_only=True):
    """A job directory that is ready to be read."""

    directory: Path
    #: The archive's name without its ending; none for a plain directory.
    name: str | None = None
    #: What of the archive was left behind.
    remarks: tuple[Remark, ...] = ()


@contextlib.contextmanager
def unpacked(job: Path) -> Iterator[Unpacked]:
    """The directory itself, or a temporary folder with an archive's plain files.

    Raises ``NothingReadableError`` where nothing can be unpacked.
    """
    suffix = next((s for s in SUFFIXES if job.name.lower().endswith(s)), None)
    if suffix is None or not job.is_file():
        yield Unpacked(directory=job)
        return
    with Scratch() as folder:
        extraction = _Extraction(Path(folder))
        try:
            with zipfile.ZipFile(job) if suffix == ".zip" else tarfile.open(job) as archive:
                for name, source in _members(archive):
                    extraction.take(name, source)
        except _LimitError:
            pass
        except _DAMAGE as error:
            if not extraction.files:
                raise NothingReadableError(f"Cannot unpack {shown(str(job), 200)}: {error}.") from error
            extraction.remark("the archive is cut short or damaged; what comes before is in use", job.name)
        yield Unpacked(
            directory=Path(folder),
            name=printable(job.name[: -len(suffix)]) or "job",
            remarks=tuple(extraction.remarks.values()),
        )


def printable(name: str) -> str:
    """A file name that is not UTF-8, with its odd bytes as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class _LimitError(Exception):
    """The limit of unpacked bytes is reached."""


class _Extraction:
    """Writes regular files below a folder and remarks on everything else."""

    def __init__(self, folder: Path) -> None:
        self.files = 0
        self.remarks: dict[str, Remark] = {}
        self._folder = folder
        self._left = MOST_BYTES

    def take(self, name: str, source: Callable[[], IO[bytes] | None] | None) -> None:
        """Write one member; ``source`` opens it and is none for links and devices."""
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            self.remark("the path leaves the archive", name)
        elif source is None:
            self.remark("link or device in the archive", name)
        else:
            try:
                self._write(self._folder.joinpath(*path.parts), source(), name)
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    told = (
                        f"There is no room to unpack into {self._folder.parent}; TMPDIR names another folder."
                    )
                    raise JobReportError(told) from error
                self.remark("damaged in the archive, or in the way of another file", name)

    def remark(self, reason: str, name: str) -> None:
        """Count a member that was left behind, wholly or in part."""
        known = self.remarks.get(reason)
        self.remarks[reason] = Remark(
            action="skipped",
            count=known.count + 1 if known else 1,
            unit="files",
            reason=reason,
            example=known.example if known else shown(name, 200),
        )

    def _write(self, target: Path, source: IO[bytes] | None, name: str) -> None:
        if source is None:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as sink:
            self.files += 1
            while block := source.read(1 << 20):
                self._left -= len(block)
                if self._left < 0:
                    self.remark(
                        f"past the limit of {MOST_BYTES >> 30} GiB unpacked, and all that follow", name
                    )
                    raise _LimitError
                sink.write(block)


def _members(
    archive: tarfile.TarFile | zipfile.ZipFile,
) -> Iterator[tuple[str, Callable[[], IO[bytes] | None] | None]]:
    if isinstance(archive, zipfile.ZipFile):
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, partial(archive.open, info)
    else:
        for member in archive:
            if not member.isdir():
                yield member.name, partial(archive.extractfile, member) if member.isfile() else None
