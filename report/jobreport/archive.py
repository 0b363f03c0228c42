"""A job directory that arrives packed: ``.tar``, ``.tar.gz`` or ``.zip``."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from jobreport.errors import NothingReadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: More than this unpacked is refused: no profile of a job is that large in an archive.
MOST_BYTES = 50 * 2**30
_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")


@contextlib.contextmanager
def unpacked(job: Path) -> Iterator[tuple[Path, str | None]]:
    """The job's directory and none, or a temporary copy of an archive's plain files and its name."""
    suffix = next((s for s in _SUFFIXES if job.name.lower().endswith(s)), None)
    if job.is_dir() or suffix is None or not job.is_file():
        yield job, None
        return
    with tempfile.TemporaryDirectory(prefix="jobreport-") as folder:
        try:
            with zipfile.ZipFile(job) if suffix == ".zip" else tarfile.open(job) as archive:
                _extract(archive, Path(folder))
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, ValueError) as error:
            if not any(Path(folder).iterdir()):
                raise NothingReadableError(f"Cannot unpack {job}: {error}.") from error
        yield Path(folder), job.name[: -len(suffix)]


def _extract(archive: tarfile.TarFile | zipfile.ZipFile, folder: Path) -> None:
    """Regular files only, and none outside the folder; links and devices stay behind."""
    left = MOST_BYTES
    for name, source in _members(archive):
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            continue
        target = folder.joinpath(*path.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as sink:
            while block := source.read(1 << 20):
                left -= len(block)
                if left < 0:
                    raise ValueError(f"it holds more than {MOST_BYTES >> 30} GiB")
                sink.write(block)


def _members(archive: tarfile.TarFile | zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes]]]:
    if isinstance(archive, zipfile.ZipFile):
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, archive.open(info)
    else:
        for member in archive:
            source = archive.extractfile(member) if member.isfile() else None
            if source is not None:
                yield member.name, source
