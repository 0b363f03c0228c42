"""The files of a report, or of a comparison, appear in their folder so that no interruption leaves a page next to other data.

All files are written next to their places first, as ``report.json.<random>.part``. Once all are complete, the files
of an older report are removed, its page first; then each file is renamed into its place, ``report.json`` first and
the page last. A run that is killed leaves the older report whole, or a folder without a page. A run holds its folder
from its start to its end, so that no other run writes to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from jobreport import document
from jobreport.errors import JobReportError, UsageError
from jobreport.files import REPORT, Product
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

with contextlib.suppress(ImportError):  # Windows
    import fcntl

#: Folders below that of the report, which are removed if nothing is left in them.
_FOLDERS = ("rules/more", "rules")
_PART = ".part"
#: A hidden file that stands in the folder of a run until its end.
LOCK = ".jobreport.lock"
#: The same of a watch, which makes one report after the other.
WATCH_LOCK = ".jobreport.watch.lock"
#: What a watch keeps of its actions.
ACTIONS = ("actions.json", "actions.log", "actions.json.part")
#: Files beside a report that are no part of a job.
HIDDEN = (LOCK, WATCH_LOCK, *ACTIONS)
#: Pattern of the random part of such a name.
_RANDOM = "[0-9a-f]" * 8


@contextlib.contextmanager
def reserved(
    folder: Path, names: Collection[str], *, force: bool, product: Product = REPORT
) -> Iterator[None]:
    """Hold the folder, so that no other run writes to it. One that is missing is made, and removed if it stays empty.

    The kernel releases the folder of a run that is killed; its parts are removed by the next run. Where the file
    system has no locks, runs into one folder are not kept apart.

    Raises ``UsageError`` as ``_check`` does, and if another run holds the folder.
    """
    with held(folder / LOCK) as has_lock:
        _check(folder, names, force=force, product=product)
        if has_lock:
            known = own_files(folder, product).union(names)
            for within in {os.path.dirname(name) for name in known}:  # noqa: PTH120 - empty for the folder itself
                for part in (folder / within).glob(f"*.{_RANDOM}{_PART}"):
                    if part.relative_to(folder).as_posix().rsplit(".", 2)[0] in known:
                        part.unlink(missing_ok=True)
        try:
            yield
        finally:
            _remove_empty([folder / name for name in _FOLDERS])


@contextlib.contextmanager
def held(lock: Path) -> Iterator[bool]:
    """Hold the folder of a lock; False where there are none. A folder that is missing is made, and removed if it stays empty.

    Raises ``UsageError`` if another run holds the lock, or if nothing can be written there.
    """
    folder = lock.parent
    _check_place(folder)
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_place(folder, error) from error
        with _locked(lock) as has_lock:
            yield has_lock
    finally:
        _remove_empty(made)


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """A lock on the folder of the file; False where there are none. Raises ``UsageError`` if another run holds it.

    NFS passes on a lock on a file that is open for writing, but none on a folder.
    """
    descriptor, busy = None, False
    try:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_lock = os.path.samestat(os.fstat(descriptor), file.lstat())
            busy = not has_lock  # another run has just ended, and a third one may have begun
        except AttributeError:  # Windows
            has_lock = False
        except OSError as error:
            has_lock = False
            # Files and folders vanish when another run ends.
            busy = error.errno in (errno.EWOULDBLOCK, errno.ENOENT, errno.ESTALE)
        if busy:
            raise UsageError(
                f"Another run writes to {escape_name(str(file.parent), 200)}. Wait for its end, or choose another --out."
            )
        yield has_lock
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                if not busy:
                    file.unlink(missing_ok=True)
                # Processes that this one started may have a copy of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _check(folder: Path, names: Collection[str], *, force: bool, product: Product = REPORT) -> None:
    """Raise ``UsageError`` if files of these names cannot be written to the folder.

    Files of an older product of the kind are replaced with ``force`` only, files of others never.
    """
    place = escape_name(str(folder), 200)
    older = own_files(folder, product)
    real = folder.resolve()
    both = sorted(older.union(names))
    for within in sorted({(real / name).parent for name in both}):
        if within != within.resolve():
            raise UsageError(f"{place} contains {within.relative_to(real)}, a link. Choose another --out.")
    for name in both:
        if os.path.lexists(folder / name) and (name not in older or (folder / name).is_dir()):
            raise UsageError(
                f"{place} contains {name}, which {product.maker} did not write. Choose another --out."
            )
    if older and not force:
        raise UsageError(
            f"{place} already contains a {product.noun}. Use --force to replace it, or choose another --out."
        )


def _check_place(folder: Path) -> None:
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    if not existing.is_dir():
        raise UsageError(f"{escape_name(str(existing), 200)} is a file. Choose another --out.")
    if not os.access(existing, os.W_OK):
        read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
        reason = "the file system is read-only" if read_only else "permission denied"
        raise UsageError(f"Cannot write to {escape_name(str(folder), 200)}: {reason}. Choose another --out.")


def rule_file(rule: str, *, for_readers: bool) -> str:
    """File of a rule's result; in ``rules`` are only those that readers of SageMaker Debugger's format expect there."""
    return f"rules/{rule}.json" if rule in NAMES and for_readers else f"rules/more/{rule}.json"


def rule_files(rules: Iterable[str]) -> set[str]:
    """All files that results of these rules may have."""
    return {rule_file(rule, for_readers=one) for rule in rules for one in (True, False)}


def own_files(folder: Path, product: Product = REPORT) -> set[str]:
    """Files of the product in the folder, of any version, relative to it; empty if there is none.

    Without ``junit.xml`` where another program wrote it: many use that name.
    """
    data = folder / product.files["json"]
    if not data.is_file():  # nor a pipe, which would be waited for
        return set()
    try:
        if product is not REPORT:
            msgspec.json.decode(data.read_bytes(), type=_Comparison)
            rules = []
        else:
            rules = document.rule_names(data)
    except (JobReportError, OSError, ValueError, RecursionError):
        return set()
    junit = product.files["junit"]
    foreign = {junit} if _is_foreign(folder / junit, product) else set()
    return {*product.files.values(), *rule_files(rules)} - foreign


def _is_foreign(junit: Path, product: Product) -> bool:
    """Whether there is a ``junit.xml`` that is not the product's."""
    try:
        if not stat.S_ISREG(junit.lstat().st_mode):  # nor a pipe, which would be waited for
            return True
        with junit.open("rb") as file:
            return file.read(len(product.junit_head)) != product.junit_head
    except FileNotFoundError:
        return False
    except OSError:
        return True


class _Comparison(msgspec.Struct):
    """What shows that a file is a comparison."""

    schema_version: int
    variants: list[msgspec.Raw]


def publish(folder: Path, files: Mapping[str, bytes], *, force: bool, product: Product = REPORT) -> None:
    """Write the files, named relative to a ``reserved`` folder, and remove those of an older product of the kind.

    Raises ``UsageError`` as ``_check`` does, and ``JobReportError`` if the files cannot be written.
    """
    _check(folder, files, force=force, product=product)  # again: another run may have been faster
    older = own_files(folder, product)

    def page_first(name: str) -> int:
        """Order of removal; the reverse is the order in which files appear."""
        return {product.files["html"]: 0, product.files["json"]: 2}.get(name, 1)

    parts = {name: folder / f"{name}.{os.urandom(4).hex()}{_PART}" for name in files}
    unchanged = f" The earlier {product.noun} is unchanged." if older else ""
    try:
        for name, part in parts.items():
            part.parent.mkdir(parents=True, exist_ok=True)
            # A new file: one that someone else put there is neither followed nor replaced.
            with part.open("xb") as file:
                file.write(files[name])
        unchanged = ""
        for name in sorted(older - {product.files["json"]}, key=page_first):
            (folder / name).unlink(missing_ok=True)
        for name in sorted(files, key=page_first, reverse=True):
            parts[name].replace(folder / name)
    except OSError as error:
        raise _no_place(folder, error, unchanged) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _no_place(folder: Path, error: OSError, unchanged: str = "") -> JobReportError:
    reason = (error.strerror or str(error)).lower()
    return JobReportError(f"Cannot write to {escape_name(str(folder), 200)}: {reason}.{unchanged}")
