"""A job directory that arrives packed: a tar file, compressed or not, or a zip file."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import lzma
import math
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from msgspec import Struct

from jobreport.errors import JobReportError, NothingReadableError
from jobreport.remarks import Remark
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase, BufferedReader

    #: Opens a member; none where it has no content.
    Source = Callable[[], IO[bytes] | None]

#: A read that meets damage gives nothing of what stands before it.
_READ = 1 << 14
#: Unpacking stops here: no profile of a job is that large in an archive, or has as many files. What is allowed
#: grows with the archive up to there, so that a few kilobytes do not take minutes.
MOST_BYTES = 50 << 30
MOST_MEMBERS = 1_000_000
_BYTES, _BYTES_A_BYTE = 1 << 30, 1000
_MEMBERS, _BYTES_A_MEMBER = 50_000, 64
#: Folders in one another; more could not be removed again.
MOST_FOLDERS = 100
#: Bytes that a tar file may say of one member besides its content, as a long name; tarfile keeps them in memory.
_MOST_HEAD = 1 << 20
SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar", ".zip")
_LINK = "link or device in the archive"
#: Of the flags of a member of a zip file.
_ENCRYPTED = 0x1
#: How a compressed tar file begins, and what reads it.
_COMPRESSED: dict[bytes, Callable[[BufferedReader], BufferedIOBase]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
#: What a damaged archive raises, whichever library finds the damage.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    MemoryError,
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
    with tempfile.TemporaryDirectory(prefix="jobreport-") as folder:
        extraction = _Extraction(Path(folder), job.stat().st_size)
        try:
            for name, source in _zipped(job) if suffix == ".zip" else _taped(job, extraction.spend):
                extraction.take(name, source)
        except _LimitError as limit:
            extraction.remark(f"past the limit of {limit}, and all that follow", extraction.name)
        except _DAMAGE as error:
            if not extraction.files:
                raise NothingReadableError(
                    f"Cannot unpack {escape_name(str(job), 200)}: {_reason(error)}."
                ) from error
            extraction.remark("the archive is cut short or damaged; what comes before is in use", job.name)
        if not extraction.files and extraction.remarks:
            why = next(iter(extraction.remarks.values()))
            raise NothingReadableError(
                f"Nothing of {escape_name(str(job), 200)} can be unpacked: {why.reason} ({why.place})."
            )
        yield Unpacked(
            directory=Path(folder),
            name=printable(job.name[: -len(suffix)]) or "job",
            remarks=tuple(extraction.remarks.values()),
        )


def _reason(error: Exception) -> str:
    """What a library says of a damaged archive, which may be several lines, in its first words."""
    return escape_name(str(error).partition(":\n")[0], 200)


def printable(name: str) -> str:
    """A file name that is not UTF-8, with its odd bytes as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class _LimitError(Exception):
    """No more is unpacked; the limit in words."""


class _Extraction:
    """Writes regular files below a folder and remarks on everything else."""

    def __init__(self, folder: Path, size: int) -> None:
        """``size`` is that of the archive in bytes."""
        self.files = 0
        self.remarks: dict[str, Remark] = {}
        #: Of the member at hand.
        self.name = ""
        self._folder = folder
        self._bytes = self._most_bytes = min(MOST_BYTES, _BYTES + _BYTES_A_BYTE * size)
        #: Folders that were members and are not made yet, and the other way round.
        self._ahead = self._behind = 0
        self._members = self._most_members = min(MOST_MEMBERS, _MEMBERS + size // _BYTES_A_MEMBER)

    def take(self, name: str, source: Source | str | None) -> None:
        """Write one member; ``source`` opens it, or says why it is left behind. A folder has none."""
        self.name = name
        if source is None:
            if self._behind:
                self._behind -= 1
            else:
                self._count()
                self._ahead += 1
            return
        self._count()
        path = PurePosixPath(name.replace("\\", "/"))
        target = self._folder.joinpath(*path.parts)
        if not path.parts or ".." in path.parts or not target.is_relative_to(self._folder):
            self.remark("the path leaves the archive", name)
        elif isinstance(source, str):
            self.remark(source, name)
        elif len(path.parts) > MOST_FOLDERS:
            self.remark(f"more than {MOST_FOLDERS} folders in one another", name)
        else:
            try:
                self._write(target, source(), name)
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    told = (
                        f"There is no room to unpack into {self._folder.parent}; TMPDIR names another folder."
                    )
                    raise JobReportError(told) from error
                self.remark("damaged in the archive, or in the way of another file", name)

    def spend(self, size: int) -> None:
        """Count bytes that are unpacked, or passed over."""
        self._bytes -= size
        if self._bytes < 0:
            raise _LimitError(f"{self._most_bytes / 2**30:,.0f} GiB unpacked")

    def remark(self, reason: str, name: str) -> None:
        """Count a member that was left behind, wholly or in part."""
        known = self.remarks.get(reason)
        self.remarks[reason] = Remark.worded(
            action="skipped",
            count=known.count + 1 if known else 1,
            unit="files",
            reason=reason,
            place=known.place if known else escape_name(name, 200),
        )

    def _count(self) -> None:
        self._members -= 1
        if self._members < 0:
            raise _LimitError(count(self._most_members, "file or folder", "files and folders"))

    def _make(self, folder: Path) -> None:
        """Make a folder and those that it lies in; each counts as a file does, as a member or here."""
        if not folder.is_dir():
            self._make(folder.parent)
            if self._ahead:
                self._ahead -= 1
            else:
                self._count()
                self._behind += 1
            folder.mkdir()

    def _write(self, target: Path, source: IO[bytes] | None, name: str) -> None:
        if source is None:
            return
        self._make(target.parent)
        if target.is_file():
            self.remark("another file of the archive has the same name and comes later", name)
        with source, target.open("wb") as sink:
            self.files += 1
            while block := source.read(_READ):
                self.spend(len(block))
                sink.write(block)


def _zipped(job: Path) -> Iterator[tuple[str, Source | str | None]]:
    with zipfile.ZipFile(job) as archive:
        for info in archive.infolist():
            if stat.S_ISLNK(info.external_attr >> 16):
                yield info.filename, _LINK
            elif info.flag_bits & _ENCRYPTED:
                yield info.filename, "encrypted in the archive"
            elif info.filename.endswith("/"):  # is_dir() cannot tell of a member without a name
                yield info.filename, None
            else:
                yield info.filename, partial(archive.open, info)


def _taped(job: Path, spend: Callable[[int], None]) -> Iterator[tuple[str, Source | str | None]]:
    with job.open("rb") as packed:
        bounded = _Bounded(_unzipped(packed), spend)
        with tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r:") as archive:
            while (member := archive.next()) is not None:
                bounded.left = math.inf
                if member.isfile():
                    yield member.name, partial(archive.extractfile, member)
                else:
                    yield member.name, None if member.isdir() else _LINK
                bounded.left = _MOST_HEAD
                archive.members.clear()  # type: ignore[attr-defined]  # it would remember all


def _unzipped(packed: BufferedReader) -> BufferedIOBase:
    head = packed.read(6)
    packed.seek(0)
    return next((opened(packed) for magic, opened in _COMPRESSED.items() if head.startswith(magic)), packed)


class _Bounded:
    """A file of which tarfile reads no more than ``left`` bytes, and passes over no more than it may spend."""

    def __init__(self, file: BufferedIOBase, spend: Callable[[int], None]) -> None:
        self.left: float = _MOST_HEAD
        self.tell, self.seekable = file.tell, file.seekable
        self._read, self._seek, self._spend = file.read, file.seek, spend

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            self._spend(max(0, offset - self.tell()))
        return self._seek(offset, whence)

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise tarfile.ReadError("what it says of a file is too long")
        return self._read(size)
