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
    from collections.abc import Collection

    from jobreport.readers.tally import Tally

#: Folders that every job has; a job is not called so.
_GENERIC = re.compile(
    r"|profiler-output|system|incremental|framework|rule-output|profiler-reports|ProfilerReport-[0-9]+"
)
_END_MARKER = "training_job_end.ts"
_END_MARKER_FOLDERS = {"system", "framework"}


def job_name(directory: Path) -> str:
    """Name of the directory, or of the first one above it that is not one every job has."""
    try:
        root = directory.resolve()
    except (OSError, RuntimeError):  # a loop of links, which the walk will answer
        root = directory.absolute()
    names = (folder.name for folder in (root, *root.parents))
    return next((_text(name) for name in names if not _GENERIC.fullmatch(name)), "job")


def listing(directory: Path, tally: Tally, leave: Collection[str] = ()) -> tuple[SourceFile, ...]:
    """All plain files below the directory, sorted by name.

    Links are not followed: what they lead to inside is found at its own place, and what lies
    outside is not part of the job. Files and folders of the absolute paths in ``leave`` are passed over.
    """
    try:
        root = directory.resolve(strict=True)
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
                    if entry.path in leave:
                        continue
                    _sort_in(entry, root, before + _text(entry.name), folders, files, tally)
        except OSError as error:
            reason = f"folder cannot be opened: {error.strerror}"
            tally.add("skipped", "files", reason, file=before.removesuffix("/") or ".")
    return tuple(sorted(files))


def is_end_marker(file: SourceFile) -> bool:
    """Whether the file says that the job has ended; it may be empty."""
    *folders, name = file.name.split("/")
    return name == _END_MARKER and (not folders[:-1] or folders[-1] in _END_MARKER_FOLDERS)


def _sort_in(
    entry: os.DirEntry[str],
    root: Path,
    name: str,
    folders: list[tuple[str, str]],
    files: list[SourceFile],
    tally: Tally,
) -> None:
    if entry.is_symlink():
        tally.add("skipped", "files", _link(Path(entry.path), root), file=name)
    elif entry.is_dir():
        folders.append((entry.path, f"{name}/"))
    elif entry.is_file():
        try:
            size = entry.stat().st_size
        except OSError:  # it has just gone; whoever reads it will say so
            size = 0
        files.append(SourceFile(name=name, place=entry.path, size=size))
    else:
        tally.add("skipped", "files", "neither file nor folder", file=name)


def _link(path: Path, root: Path) -> str:
    try:
        inside = path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return "link that leads nowhere"
    return "link to another place in the directory, read there" if inside else "link out of the directory"


def _no_directory(directory: Path, error: Exception) -> str:
    name = escape_name(_text(str(directory)), 200)
    if isinstance(error, FileNotFoundError):
        return f"Directory not found: {name}. Check the path given with --job-dir."
    if isinstance(error, NotADirectoryError):
        return f"{name} is neither a directory nor an archive (.tar, .tar.gz, .zip) of one. Name that with --job-dir."
    return f"Cannot open the directory {name}: {getattr(error, 'strerror', None) or error}."


def _text(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 are written as escapes."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
