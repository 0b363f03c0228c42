"""Finding the files of a job directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jobreport.errors import NothingReadableError
from jobreport.readers.base import SourceFile
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from jobreport.readers.tally import Tally

#: Names of folders that every job has.
_GENERIC = re.compile(
    r"|profiler-output|system|incremental|framework|rule-output|profiler-reports|ProfilerReport-[0-9]+"
)
_END_MARKER = "training_job_end.ts"
_END_MARKER_FOLDERS = {"system", "framework"}
#: What SageMaker calls the directory of a job.
_PROFILER = "profiler-output"
#: What the processes of record-job leave for each other.
_RECORDER_NOTES = re.compile(r"(?:.*/)?jobrecord/(?:[^/]+/.+|[^/]+\.json\.tmp)", re.DOTALL)


def job_name(directory: Path) -> str:
    """Name of the directory, or of the first one above it that does not exist in every job."""
    try:
        root = directory.resolve()
    except (OSError, RuntimeError):  # a loop of links: ``listing`` raises
        root = directory.absolute()
    return name_among(folder.name for folder in (root, *root.parents))


def name_among(folders: Iterable[str]) -> str:
    """The first name of a folder that does not exist in every job."""
    return next((_text(name) for name in folders if not _GENERIC.fullmatch(name)), "job")


def listing(directory: Path, tally: Tally, leave: Collection[str] = ()) -> tuple[SourceFile, ...]:
    """All plain files below the directory, sorted by name; of a file that file alone.

    Links are not followed: a target inside the directory is found at its own place, and a target outside is no part
    of the job. Absolute paths in ``leave`` are skipped.
    """
    try:
        root = directory.resolve(strict=True)
        if root.is_file():
            return (SourceFile(name=_text(directory.name), place=str(root), size=root.stat().st_size),)
        with os.scandir(root):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        raise NothingReadableError(_no_directory(directory, error)) from error
    files: list[SourceFile] = []
    #: Path, and how the names of its files begin.
    folders = [(str(root), "")]
    while folders:
        folder, before = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = before + _text(entry.name)
                    if entry.path in leave:
                        continue
                    if entry.is_symlink():
                        tally.note("directory.link", file=name, target=_target(Path(entry.path), root))
                    elif entry.is_dir():
                        folders.append((entry.path, f"{name}/"))
                    elif entry.is_file() and not os.access(entry.path, os.R_OK):
                        tally.note("directory.denied", file=name)
                    elif entry.is_file():
                        files.append(SourceFile(name=name, place=entry.path, size=_size(entry)))
                    else:
                        tally.note("directory.special", file=name)
        except PermissionError:
            tally.note("directory.denied", file=before.removesuffix("/") or ".")
        except OSError as error:
            folder_name = before.removesuffix("/") or "."
            tally.note("directory.folder", file=folder_name, reason=error.strerror or "")
    return tuple(sorted(files))


def is_end_marker(file: SourceFile) -> bool:
    """True for the file, often empty, that marks the end of the job."""
    *folders, name = file.name.split("/")
    return name == _END_MARKER and (not folders[:-1] or folders[-1] in _END_MARKER_FOLDERS)


def has_end_marker(directory: Path) -> bool:
    """Whether the marker stands at one of its usual places, without a walk through all folders."""
    within = ("", *_END_MARKER_FOLDERS)
    return any((directory / top / one / _END_MARKER).exists() for top in ("", _PROFILER) for one in within)


def is_recorder_note(file: SourceFile) -> bool:
    """True for a file that only record-job itself needs."""
    return _RECORDER_NOTES.fullmatch(file.name) is not None


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:  # deleted since; its reader remarks on it
        return 0


def _target(path: Path, root: Path) -> str:
    """Where a link leads, in words."""
    try:
        inside = path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return "that leads nowhere"
    return "to another place in the directory, read there" if inside else "out of the directory"


def _no_directory(directory: Path, error: Exception) -> str:
    name = escape_name(_text(str(directory)), 200)
    if isinstance(error, FileNotFoundError):
        return f"Directory not found: {name}. Check the path given with --job-dir."
    if isinstance(error, NotADirectoryError):
        return f"{name} is neither a directory nor a file. Check the path given with --job-dir."
    return f"Cannot open the directory {name}: {getattr(error, 'strerror', None) or error}."


def _text(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 are written as escapes."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
