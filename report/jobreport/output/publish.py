"""The files of a report appear all at once, or not at all.

They are written into a folder of their own beside the one that was asked for, which then takes its place in one step
of the file system. Where there can be no such step, every file takes the place of the old one by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import document
from jobreport.errors import JobReportError, UsageError
from jobreport.output.files import FILES
from jobreport.scratch import STAGING, locked, sweep
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of renameat2 on Linux.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Place:
    """Where a report is to appear, and where its files are written until then."""

    def __init__(self, folder: Path, staging: Path, lock: contextlib.ExitStack, *, force: bool) -> None:
        """``staging`` lies beside the folder, or in it; ``lock`` keeps it locked."""
        self.staging = staging
        self._lock = lock
        self._folder = folder
        self._force = force

    @property
    def own(self) -> frozenset[str]:
        """Paths of files of this and of an older report: they are no part of a job, should they lie in its directory."""
        older = {str(self._folder / name) for name in _older(self._folder)}
        return frozenset({str(self.staging)} | older)

    def publish(self) -> frozenset[Path]:
        """Put the files where they are wanted, in the place of an older report's.

        Returns their paths, relative to the folder. Raises ``UsageError`` where another run was faster.
        """
        # Once it is the report's folder, others may want to replace it.
        with self._lock:
            return frozenset(self._published())

    def _published(self) -> set[Path]:
        new = {path.relative_to(self.staging) for path in self.staging.rglob("*") if path.is_file()}
        if not self._folder.exists():
            with contextlib.suppress(OSError):  # another run is faster
                self.staging.rename(self._folder)
                return new
        with _uninterrupted(), _held(self._folder):
            older = _older(self._folder)
            if older and not self._force:
                raise UsageError(_there(self._folder))
            if not self._swapped(older):
                self._moved(new, older)
        return new

    def _swapped(self, older: set[Path]) -> bool:
        """Whether the staging folder has taken the place of one that holds nothing but the older report."""
        if self.staging.parent == self._folder or _is_within(self._folder):
            return False
        if _holds_others(self._folder, older):
            return False
        try:
            _alike(self._folder, self.staging)
            _exchange(self._folder, self.staging)
            if _holds_others(self.staging, older):  # somebody's file came in the meantime
                _exchange(self._folder, self.staging)
                return False
        except OSError:
            return False
        return True

    def _moved(self, new: set[Path], older: set[Path]) -> None:
        """Every file by itself; an older report's that have no successor go."""
        if taken := [name for name in sorted(new | older) if (self._folder / name).is_dir()]:
            place = escape_name(str(self._folder / taken[0]), 200)
            raise UsageError(f"{place} is a folder, in the place of a file of the report. Use another --out.")
        (self._folder / "rules").mkdir(exist_ok=True)
        for name in sorted(new):
            (self.staging / name).replace(self._folder / name)
        for stale in older - new:
            (self._folder / stale).unlink(missing_ok=True)


@contextlib.contextmanager
def place(folder: Path, *, force: bool) -> Iterator[Place]:
    """A place for a report; whatever happens, nothing but a report is left there.

    Raises ``UsageError`` where the folder holds a report already and ``force`` is not set, or cannot be written into.
    """
    real = Path(os.path.realpath(folder))
    missing: list[Path] = []
    done = False
    try:
        with contextlib.ExitStack() as stack:
            try:
                if real.exists() and not real.is_dir():
                    raise UsageError(f"{escape_name(str(folder), 200)} is a file; name a folder with --out.")
                if not force and any((real / name).exists() for name in (*FILES.values(), "rules")):
                    raise UsageError(_there(folder))
                missing = [parent for parent in real.parents if not parent.exists()]
                real.parent.mkdir(parents=True, exist_ok=True)
                staging, lock = stack.enter_context(_staging(real))
            except OSError as error:
                raise UsageError(
                    f"Cannot write into {escape_name(str(folder), 200)}: {error.strerror}. Name another folder with --out."
                ) from error
            yield Place(real, staging, lock, force=force)
            done = True
    finally:
        for parent in () if done else missing:
            with contextlib.suppress(OSError):  # something was written into it in the meantime
                parent.rmdir()


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[tuple[Path, contextlib.ExitStack]]:
    """An empty folder beside another one, or in it where that must be, and what keeps it locked.

    It is removed at the end, if still there.
    """
    with contextlib.ExitStack() as stack:
        try:
            if os.path.ismount(folder):
                raise OSError
            made = stack.enter_context(_made(folder.parent))
        except OSError:
            if not folder.exists():
                raise
            made = stack.enter_context(_made(folder))
        yield made


@contextlib.contextmanager
def _made(parent: Path) -> Iterator[tuple[Path, contextlib.ExitStack]]:
    """A new folder that may become the report's: tempfile's are for one user alone."""
    sweep(str(parent))
    made = parent / f"{STAGING}{secrets.token_hex(8)}"
    made.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        lock = stack.enter_context(contextlib.ExitStack())
        lock.enter_context(locked(made))
        yield made, lock


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and its like wait until this is over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal interrupts this one
        return
    came: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _: came.append(number))
        for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler or signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other runs from changing a folder: the files of two must not mix.

    The one that was locked may be another by then, where a run before this one has swapped it.
    """
    while True:
        with locked(folder) as opened:
            if opened is None or os.path.samestat(os.fstat(opened), folder.stat()):
                yield
                return


def _holds_others(folder: Path, report: set[Path]) -> bool:
    """Whether there is anything in a folder but the files of a report."""
    rules = folder / "rules"
    found = {*folder.iterdir(), *(rules.iterdir() if rules.is_dir() else ())} - {rules}
    return bool(found - {folder / name for name in report}) or any(map(Path.is_dir, found))


def _alike(old: Path, new: Path) -> None:
    """Give the new folder what the old one has: owner, rights, attributes."""
    owner = old.stat()
    if (owner.st_uid, owner.st_gid) != ((mine := new.stat()).st_uid, mine.st_gid):
        os.chown(new, owner.st_uid, owner.st_gid)
    shutil.copystat(old, new)


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places in one step; ``OSError`` where system or file system cannot do that."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError) as error:
        raise OSError from error
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def _older(folder: Path) -> set[Path]:
    """The files of the report that lies in the folder, of any version; none if there is none."""
    try:
        names = document.rule_names(folder / FILES["json"])
    except JobReportError:
        return set()
    return {Path(name) for name in FILES.values()} | {Path("rules") / f"{name}.json" for name in names}


def _there(folder: Path) -> str:
    return f"{escape_name(str(folder), 200)} already holds a report. Use --force to replace it, or another --out."


def _is_within(folder: Path) -> bool:
    """Whether this process was started in the folder: a shell would stay behind in one that is gone."""
    try:
        here = Path.cwd()
    except OSError:  # that is what has become of it
        return False
    return here == folder or folder in here.parents
