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
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from msgspec import Struct

from jobreport.errors import JobReportError, NothingReadableError
from jobreport.readers.tally import Tally, UnusableError
from jobreport.scratch import Scratch
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase, BufferedReader

    from jobreport.readers.base import SourceFile
    from jobreport.remarks import Remark

    #: Opens a member; returns None if it has no content.
    Source = Callable[[], IO[bytes] | None]

#: Bytes of a read. One that meets damage returns nothing of what comes before the damage.
_READ = 1 << 14
#: Unpacking stops here; no job is that large. The limits grow with the archive up to these, so that a few kilobytes
#: do not take minutes.
MAX_BYTES = 50 << 30
MAX_MEMBERS = 1_000_000
_BYTES, _BYTES_PER_BYTE = 1 << 30, 1000
_MEMBERS, _BYTES_PER_MEMBER = 50_000, 64
#: Nested folders; more could not be removed again.
MAX_FOLDERS = 100
#: Bytes of a tar file's description of a member, such as a long name; tarfile keeps them in memory.
_MAX_HEAD = 1 << 20
SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar", ".zip")
#: Flag of a member of a zip file.
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

    #: Or a single file of a job.
    directory: Path
    #: The name of the archive or of the single file without its suffix; None for a plain directory.
    name: str | None = None
    #: What was not unpacked, or not fetched.
    remarks: tuple[Remark, ...] = ()
    #: The files of a copy, by the names that they have where they were fetched; None for all files of the directory.
    files: tuple[SourceFile, ...] | None = None


@contextlib.contextmanager
def unpacked(job: Path) -> Iterator[Unpacked]:
    """The directory or the single file itself, or a temporary folder with an archive's plain files.

    Raises ``NothingReadableError`` if nothing can be unpacked.
    """
    suffix = next((s for s in SUFFIXES if job.name.lower().endswith(s)), None)
    if suffix is None or not job.is_file():
        stem = job.name.partition(".")[0] if job.is_file() else ""
        yield Unpacked(directory=job, name=printable(stem) or None)
        return
    shown = escape_name(str(job), 200)
    with Scratch() as folder:
        extraction = _Extraction(Path(folder), job.stat().st_size)
        try:
            for name, source in _zipped(job) if suffix == ".zip" else _taped(job, extraction.spend):
                extraction.take(name, source)
        except _LimitError as limit:
            extraction.tally.note(limit.code, file=extraction.name, **limit.fields)
        except _DAMAGE as error:
            if not extraction.files:
                reason = escape_name(str(error).partition(":\n")[0], 200)
                raise NothingReadableError(
                    f"Cannot unpack {shown}: {reason}. Copy or download the archive again."
                ) from error
            extraction.tally.note("archive.cut", file=job.name)
        remarks = extraction.tally.remarks()
        if not extraction.files and remarks:
            raise NothingReadableError(f"Cannot unpack {shown}: {remarks[0].reason} ({remarks[0].place}).")
        yield Unpacked(
            directory=Path(folder), name=printable(job.name[: -len(suffix)]) or "job", remarks=remarks
        )


def printable(name: str) -> str:
    """A file name with bytes that are not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class _LimitError(UnusableError):
    """Nothing more is unpacked."""


class _Extraction:
    """Writes regular files below a folder and remarks on everything else."""

    def __init__(self, folder: Path, size: int) -> None:
        """``size`` is that of the archive in bytes."""
        self.files = 0
        self.tally = Tally()
        #: Of the current member.
        self.name = ""
        self._folder = folder
        self._bytes = self._max_bytes = min(MAX_BYTES, _BYTES + _BYTES_PER_BYTE * size)
        self._members = self._max_members = min(MAX_MEMBERS, _MEMBERS + size // _BYTES_PER_MEMBER)

    def take(self, name: str, source: Source | str | None) -> None:
        """Write one member. ``source`` opens it, or is the code of a remark; a folder has none."""
        self.name = name
        self._count()
        if source is None:
            return
        path = PurePosixPath(name.replace("\\", "/"))
        target = self._folder.joinpath(*path.parts)
        if not path.parts or ".." in path.parts or not target.is_relative_to(self._folder):
            self.tally.note("archive.outside", file=name)
        elif isinstance(source, str):
            self.tally.note(source, file=name)
        elif len(path.parts) > MAX_FOLDERS:
            self.tally.note("archive.deep", file=name, folders=MAX_FOLDERS)
        else:
            try:
                self._write(target, source(), name)
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise JobReportError(
                        f"No space left to unpack into {self._folder.parent}. Set TMPDIR to another folder."
                    ) from error
                self.tally.note("archive.damaged", file=name)

    def spend(self, size: int) -> None:
        """Count bytes that are unpacked or skipped."""
        self._bytes -= size
        if self._bytes < 0:
            raise _LimitError("archive.limit", limit=f"{round(self._max_bytes / 2**30)} GiB unpacked")

    def _count(self) -> None:
        self._members -= 1
        if self._members < 0:
            raise _LimitError("archive.limit", limit=f"{self._max_members:,} files and folders")

    def _make(self, folder: Path) -> None:
        """Make a folder and its parents; each counts as a member."""
        if not folder.is_dir():
            self._make(folder.parent)
            self._count()
            folder.mkdir()

    def _write(self, target: Path, source: IO[bytes] | None, name: str) -> None:
        if source is None:
            return
        self._make(target.parent)
        if target.is_file():
            self.tally.note("archive.replaced", file=name)
        with source, target.open("wb") as sink:
            self.files += 1
            while block := source.read(_READ):
                self.spend(len(block))
                sink.write(block)


def _zipped(job: Path) -> Iterator[tuple[str, Source | str | None]]:
    with zipfile.ZipFile(job) as archive:
        for info in archive.infolist():
            if stat.S_ISLNK(info.external_attr >> 16):
                yield info.filename, "archive.link"
            elif info.flag_bits & _ENCRYPTED:
                yield info.filename, "archive.encrypted"
            elif info.filename.endswith("/"):  # is_dir() fails on a member without a name
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
                    yield member.name, None if member.isdir() else "archive.link"
                bounded.left = _MAX_HEAD
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them


def _unzipped(packed: BufferedReader) -> BufferedIOBase:
    head = packed.read(6)
    packed.seek(0)
    return next((opened(packed) for magic, opened in _COMPRESSED.items() if head.startswith(magic)), packed)


class _Bounded:
    """A file of which tarfile reads at most ``left`` bytes, and skips no more than it may spend."""

    def __init__(self, file: BufferedIOBase, spend: Callable[[int], None]) -> None:
        self.left: float = _MAX_HEAD
        self.tell, self.seekable = file.tell, file.seekable
        self._read, self._seek, self._spend = file.read, file.seek, spend

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            self._spend(max(0, offset - self.tell()))
        return self._seek(offset, whence)

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise tarfile.ReadError("the description of a member is too long")
        return self._read(size)
