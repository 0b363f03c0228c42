"""A job in object storage becomes local files: listed once, chosen by name, copied; then it is read as any other."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import os
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from jobreport.errors import JobReportError, NothingReadableError, UsageError
from jobreport.files import FILES, REPORT
from jobreport.readers import archive
from jobreport.readers.archive import Unpacked
from jobreport.readers.base import SourceFile
from jobreport.readers.listing import is_recorder_note, name_among
from jobreport.readers.registry import is_known_by_name, known_by_content, may_be_known
from jobreport.readers.tally import Tally
from jobreport.scratch import Scratch
from jobreport.storage import manifest
from jobreport.storage.stores import Answer, StorageError, opened
from jobreport.storage.urls import MAX_KEY
from jobrules.text import count, escape_name

with contextlib.suppress(ImportError):  # Windows
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence

    from jobreport.options import Options
    from jobreport.progress import Progress
    from jobreport.storage.stores import Object, Store
    from jobreport.storage.urls import Url

_Result = TypeVar("_Result")
#: Requests at a time.
_AT_A_TIME = 16
#: Objects of a listing at most; folders of several jobs that are named.
MAX_OBJECTS, _MAX_NAMED = 1_000_000, 10
#: What only content can tell is looked at up to this size, by its first bytes; of a small one by all of it.
_MAX_LOOKED_AT, _HEAD, _SMALL = 1 << 30, 1 << 16, 1 << 20
#: Share of the chosen objects that may fail.
_MAX_FAILED = 0.1
#: A key with other parts, or more of them, is stored under a number.
_PART = re.compile(r"[^\x00-\x1f\x7f\\\ud800-\udfff]{1,60}")
_MAX_PARTS = 40
#: What says that an object has to be restored first.
_ARCHIVED = re.compile(r"InvalidObjectState|BlobArchived")
#: Between looks at a report that is being written; bytes of one.
_WAITS_S = [10.0, 10.0]
_MAX_REPORT = (64 << 20) + 1
_INDEX, _LOCK, _TREE, _NUMBERED = "objects.json", ".lock", "files", "others"
#: A folder that each job has one of, and one in which a rule of SageMaker has one, too.
_OF_JOB, _OF_RULE = "profiler-output", "rule-output"


@contextlib.contextmanager
def fetched(url: Url, options: Options, progress: Progress, out: Url | None = None) -> Iterator[Unpacked]:
    """The files of a job that readers may read, without those of an older report at ``out``.

    Raises ``UsageError`` if storage cannot be used, and ``NothingReadableError`` if nothing there is of a job.
    """
    with contextlib.ExitStack() as stack:
        if options.cache:
            folder = options.cache / hashlib.sha256(str(url).encode()).hexdigest()[:16]
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.name == "posix" and folder.stat().st_uid != os.getuid():
                raise UsageError(f"--cache: {escape_name(str(folder), 200)} belongs to somebody else.")
            stack.enter_context(_held(folder))
            for part in folder.glob("*.part"):  # of a run that was killed
                part.unlink()
        else:
            folder = Path(stack.enter_context(Scratch()))
        copy = _Copy(url, options, progress, folder, out)
        run(copy.make())
        remarks = copy.tally.remarks()
        if copy.is_one_object:
            inner = stack.enter_context(archive.unpacked(copy.files[0].path))
            yield replace(inner, remarks=(*remarks, *inner.remarks))
            return
        yield Unpacked(directory=folder, name=name_of(url), remarks=remarks, files=tuple(sorted(copy.files)))


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """A lock on a copy that is kept, where there are locks."""
    with (folder / _LOCK).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another run uses {escape_name(str(folder), 200)}. Wait for its end, or choose another --cache."
            ) from None
        except (OSError, NameError):  # of a file system, or Windows
            yield
            return
        try:
            yield
        finally:
            # Processes that this one started may have a copy of the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)


def name_of(url: Url) -> str:
    """Name of a job in object storage."""
    return name_among([*reversed(url.key.split("/")), url.bucket])


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """What a coroutine gives at its end; what storage says becomes an error of this program."""
    try:
        if _is_in_loop():
            with ThreadPoolExecutor(1) as other:
                return other.submit(asyncio.run, work).result()
        return asyncio.run(work)
    except StorageError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise JobReportError(
                "No space left for the copy of the job. Set TMPDIR to another folder."
            ) from None
        raise


def _is_in_loop() -> bool:
    """Whether this thread has a loop that runs, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Copy:
    """The copy of a job in a folder."""

    def __init__(self, url: Url, options: Options, progress: Progress, folder: Path, out: Url | None) -> None:
        self.files: list[SourceFile] = []
        self.tally = Tally()
        self.is_one_object = False
        self._url, self._options, self._progress = url, options, progress
        self._folder, self._out = folder, out
        self._failed = 0
        self._numbers = itertools.count()
        #: Path in the folder of each file, by name.
        self._at: dict[str, str] = {}
        #: Bytes of what was fetched, by name.
        self._have: dict[str, int] = {}
        #: Of a copy that is kept: what is at each path in the folder; as it is, and as it was.
        self._index: dict[str, _Kept] = {}
        self._older = _read_index(folder / _INDEX)

    async def make(self) -> None:
        """List, choose, and fetch."""
        self._progress.stage("Listing the job")
        async with opened(self._url, self._options.storage_option) as store:
            objects = await self._listed(store)
            self._at = places([*objects])
            files = [
                SourceFile(name=name, place=str(self._folder / self._at[name]), size=one.size)
                for name, one in objects.items()
            ]
            certain = [one for one in files if is_known_by_name(one) or self._is_job(one)]
            names = {one.name for one in certain}
            doubtful = [one for one in files if one.name not in names and may_be_known(one)]
            small = [one for one in doubtful if one.size <= _SMALL]
            large = [one for one in doubtful if _SMALL < one.size <= _MAX_LOOKED_AT]
            self._check_size([*certain, *small], objects, _HEAD * len(large))

            if doubtful:
                size = sum(one.size for one in small) + _HEAD * len(large)
                self._progress.stage("Looking at files", size, "B")
            await self._each(
                [*small, *large], lambda one: self._fetch(store, objects[one.name], one, one.size > _SMALL)
            )
            there = [one for one in (*small, *large) if one.name in self._have]
            known = known_by_content(there, self._options) if large else set()
            certain += [one for one in large if one.name in known]
            self._check_size(certain, objects)
            if certain:
                self._progress.stage("Fetching the job", sum(one.size for one in certain), "B")
            await self._each(certain, lambda one: self._fetch(store, objects[one.name], one))
        chosen = [*certain, *small]
        self._note_others(files, {one.name for one in chosen})
        if self._failed > _MAX_FAILED * len(chosen):
            why = next(one.reason for one in self.tally.remarks() if one.code == "storage.failed")
            raise UsageError(
                f"{count(self._failed, 'object')} of {len(chosen):,} could not be fetched, so a report would mislead: "
                f"{why}. Try again later."
            )
        self.files = [replace(one, size=self._have[one.name]) for one in chosen if one.name in self._have]
        if not self.files:
            raise NothingReadableError(self._nothing(files))
        self._keep_index()

    def _is_job(self, file: SourceFile) -> bool:
        """Whether a file is all of the job: an archive, or one log."""
        return self.is_one_object and (file.name.lower().endswith(archive.SUFFIXES) or may_be_known(file))

    async def _listed(self, store: Store) -> dict[str, Object]:
        """The objects of the job by their names; a URL without a folder of that name may be one object."""
        prefix = f"{self._url.key}/" if self._url.key else ""
        found: dict[str, Object] = {}
        async for page in store.pages(prefix):
            for one in page:
                if one.size or not one.key.endswith("/"):
                    found[one.key[len(prefix) :].encode("utf-8", "backslashreplace").decode()] = one
            if len(found) > MAX_OBJECTS:
                raise UsageError(
                    f"More than {MAX_OBJECTS:,} objects below {self._url}. Name the folder of one job."
                )
        if self._out is not None and f"{self._out.key}/".startswith(prefix):
            own = f"{self._out.key}/"[len(prefix) :] if self._out.key else ""
            if f"{own}{manifest.name(REPORT)}" in found:
                found = {name: one for name, one in found.items() if not manifest.is_own(name, own, REPORT)}
        if not found and self._url.key:
            single = await store.find(self._url.key)
            found = {self._url.name: single} if single else {}
            self.is_one_object = bool(found)
        found = {
            name: one for name, one in found.items() if not is_recorder_note(SourceFile(name=name, place=""))
        }
        if not found:
            raise NothingReadableError(f"Nothing is stored at {self._url}/. Check the URL.")
        jobs = sorted({name[: end + len(_OF_JOB)] for name in found if (end := _job_in(name)) >= 0})
        if len(jobs) > 1:
            shown = ", ".join(escape_name(one) for one in jobs[:_MAX_NAMED])
            raise UsageError(
                f"{len(jobs):,} jobs below {self._url}: {shown}. Name the folder of one of them."
            )
        return found

    def _check_size(self, files: Sequence[SourceFile], objects: Mapping[str, Object], more: int = 0) -> None:
        size = more + sum(one.size for one in files if not self._is_kept(one, objects[one.name]))
        most, free = self._options.max_download, shutil.disk_usage(self._folder).free * 9 // 10
        if size > min(most, free):
            raise UsageError(
                f"{self._url} has {_size(size)} to copy; --max-download is {_size(most)}, and {_size(free)} of the disk of "
                "TMPDIR or --cache may be used."
            )

    async def _each(self, files: Sequence[SourceFile], call: Callable[[SourceFile], Awaitable[None]]) -> None:
        """Call for each file, some at a time. The first error ends all."""
        left = iter(files)

        async def worker() -> None:
            for one in left:
                await call(one)

        tasks = [asyncio.create_task(worker()) for _ in range(min(_AT_A_TIME, len(files)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, store: Store, one: Object, file: SourceFile, is_head: bool = False) -> None:
        """Fetch a file, or its beginning; a remark says why that was not possible."""
        if self._is_kept(file, one):
            self._have[file.name] = file.size
            self._index[self._at[file.name]] = self._older[self._at[file.name]]
            self._progress.advance(_HEAD if is_head else file.size)
            return
        # Not below the files, where a key may have any name.
        part, tag = str(self._folder / f"{next(self._numbers)}.part"), one.tag
        size: int | None = one.size
        while True:
            try:
                got = await store.get(
                    one.key,
                    part,
                    tag=tag,
                    size=size,
                    most=_HEAD if is_head else 0,
                    advance=self._progress.advance,
                )
                break
            except Answer as answer:
                if answer.status == 401:
                    raise
                if answer.status == 412 and tag:
                    # A newer version is whole, too; only its size is not known.
                    tag, size = "", None
                    continue
                self._have.pop(file.name, None)
                self._note_missing(file, answer)
                return
        if not tag and one.tag and not is_head:
            self.tally.note("storage.changed", file=file.name)
        os.makedirs(os.path.dirname(file.place), exist_ok=True)  # noqa: PTH103, PTH120 - many
        os.replace(part, file.place)  # noqa: PTH105 - many
        self._have[file.name] = got.size
        if not is_head:
            time_ns = os.stat(file.place).st_mtime_ns  # noqa: PTH116 - many
            # A list and a request may write the same tag in two ways.
            self._index[self._at[file.name]] = _Kept(file.name, tag or got.tag, got.size, time_ns)

    def _note_missing(self, file: SourceFile, answer: Answer) -> None:
        code = {403: "storage.denied", 404: "storage.gone"}.get(answer.status, "storage.failed")
        if _ARCHIVED.search(answer.reason):
            code = "storage.archived"
        if code == "storage.failed":
            self._failed += 1
            self.tally.note(code, file=file.name, reason=answer.reason)
        else:
            self.tally.note(code, file=file.name)

    def _is_kept(self, file: SourceFile, one: Object) -> bool:
        kept = self._older.get(self._at[file.name])
        if kept is None or not one.tag or kept[:3] != (file.name, one.tag, one.size):
            return False
        with contextlib.suppress(OSError):
            facts = os.stat(file.place, follow_symlinks=False)  # noqa: PTH116 - many
            return (facts.st_size, facts.st_mtime_ns) == (kept.size, kept.time_ns)
        return False

    def _keep_index(self) -> None:
        """Of a copy that is kept: what it holds; files of objects that are gone are removed."""
        if self._options.cache:
            for place in self._older.keys() - self._index.keys():
                (self._folder / place).unlink(missing_ok=True)
            part = self._folder / f"{_INDEX}.part"
            part.write_bytes(msgspec.json.encode(self._index))
            part.replace(self._folder / _INDEX)

    def _note_others(self, files: Sequence[SourceFile], chosen: Collection[str]) -> None:
        others = [one for one in files if one.name not in chosen]
        size = _size(sum(one.size for one in others))
        for one in others:
            self.tally.note("storage.not_fetched", file=one.name, size=size)

    def _nothing(self, files: Sequence[SourceFile]) -> str:
        if missing := [one for one in self.tally.remarks() if one.code != "storage.not_fetched"]:
            return (
                f"No readable input in {self._url}: {count(missing[0].count, 'object')}: {missing[0].reason}."
            )
        kinds = Counter(os.path.splitext(one.name)[1][:20] or "none" for one in files)  # noqa: PTH122 - many
        shown = ", ".join(f"{escape_name(kind)} ({n:,})" for kind, n in kinds.most_common(5))
        return (
            f"No readable input in {self._url}: {count(len(files), 'object')} found, by suffix: {shown}. Looked for: the "
            "files of docs/job-directory.md."
        )


class _Kept(NamedTuple):
    """A file of a copy that is kept."""

    name: str
    tag: str
    size: int
    time_ns: int


def _read_index(file: Path) -> dict[str, _Kept]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return msgspec.json.decode(file.read_bytes(), type=dict[str, _Kept])
    return {}


def _job_in(name: str) -> int:
    """Where the folder of a job begins in a name; below 0 if there is none."""
    folders = name.split("/")[:-1]
    if _OF_JOB not in folders or _OF_RULE in folders[: folders.index(_OF_JOB)]:
        return -1
    return sum(len(one) + 1 for one in folders[: folders.index(_OF_JOB)])


def places(names: Sequence[str]) -> dict[str, str]:
    """A path in the folder of the copy for each name: the name itself, or a number where that is none, or meets another."""
    taken: dict[str, tuple[str, bool]] = {}

    @cache
    def fits(path: str, is_folder: bool) -> bool:
        above, slash, own = path.rpartition("/")
        if not _is_part(own) or (slash and not fits(above, True)):
            return False
        return taken.setdefault(path.casefold(), (path, is_folder)) == (path, is_folder)

    found = {}
    for number, name in enumerate(names):
        is_short = name.count("/") < _MAX_PARTS and len(name.encode("utf-8", "replace")) <= MAX_KEY
        if is_short and fits(name, False):
            found[name] = f"{_TREE}/{name}"
        else:
            own = name.rpartition("/")[2]
            # Its last part may be what a reader knows it by.
            found[name] = f"{_NUMBERED}/{number}/{own if _is_part(own) else number}"
    return found


def _is_part(name: str) -> bool:
    """Whether a part of a key may be the name of a file or folder."""
    return name not in (".", "..") and _PART.fullmatch(name) is not None


def _size(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


@contextlib.contextmanager
def report(url: Url, options: Options) -> Iterator[Path | None]:
    """A local copy of the ``report.json`` at a URL, or in the folder there; None if there is none.

    Raises ``UsageError`` if a run is writing it, or storage cannot be used.
    """
    name = FILES["json"]
    folder = url._replace(key=url.key.rpartition("/")[0]) if url.name == name else url
    with Scratch() as scratch:
        file = Path(scratch) / name
        yield file if run(_report(folder, options, file)) else None


async def _report(folder: Url, options: Options, file: Path) -> bool:
    """Write the ``report.json`` of a folder into a file; False if there is none."""
    async with opened(folder, options.storage_option) as store:
        for wait in (*_WAITS_S, None):
            about = await manifest.read(store, folder, REPORT, file.with_suffix(".part"))
            if about is None or about.is_complete:
                try:
                    await store.get((folder / file.name).key, str(file), most=_MAX_REPORT)
                except Answer as answer:
                    if answer.status != 404:
                        raise
                    if about is None:
                        return False
                if file.exists() and (about is None or about.is_of(file)):
                    return True
            if wait is not None:
                await asyncio.sleep(wait)
        raise StorageError(f"The report at {folder} is being written. Try again when that has ended.")
