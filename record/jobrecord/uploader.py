"""The uploader: copies the files of a recording to object storage, until the owner of the recording ends it.

Its argument is the run. Standard input holds words of the owner, a line each: the node's name, `hurry`, `end`; its end without a word says that the
owner was killed. Standard output has the answers: `ready`, at the end `put` for each file and `left` with a number and the reason, or
`refused` with the reason instead of any.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jobrecord import facts, settings
from jobrecord.folder import PARTS, Folder
from jobrecord.storage.stores import Answer, StorageError, opened, sentence
from jobrecord.storage.urls import Url, parse

if TYPE_CHECKING:
    from jobrecord.settings import Settings
    from jobrecord.storage.stores import Store

_NICENESS = 10
#: Puts at a time of files up to a size, and bytes of the largest file, and of facts.
_AT_A_TIME, _SMALL_BYTES, _MAX_BYTES, _MAX_FACTS = 8, 16 << 20, 1 << 30, 8 << 20
#: Seconds for the sampler's end, once the owner is gone, and before each round of the end.
_SAMPLER_S, _LAST_S = 3.0, (0.0, 5.0)
#: Not asyncio's own, whose end is waited for.
_READER = ThreadPoolExecutor(1)
_KIND = "application/octet-stream"
#: What is said of options that record-job does not have.
_OPTIONS = re.compile(r"(?: Public data:|, or) --storage-option \w+=true")


class File(NamedTuple):
    """A file of the recording, by its path in it, as it was seen."""

    path: str
    size: int
    changed_ns: int

    @property
    def is_open(self) -> bool:
        """Whether rows are appended to it."""
        is_minute = self.path.startswith("system/") and self.path.endswith(".json")
        return is_minute or self.path.endswith((".tmp", ".jsonl"))

    @property
    def place(self) -> int:
        """Its place where time is short: facts, open files, the rest."""
        return 0 if self.path.startswith(f"{facts.FOLDER}/") else 1 if self.is_open else 2


def main() -> None:
    """Copy until standard input ends."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        asyncio.run(_Uploader(replace(settings.read(os.environ), run=sys.argv[1])).run())
    except StorageError as error:
        _say(f"refused {_OPTIONS.sub('', str(error))}")
    except Exception as error:  # noqa: BLE001 - the job and its samples go on
        _say(f"refused The uploader failed: {type(error).__name__}.")
    # A thread may still wait for a word.
    os._exit(0)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


async def _word() -> str:
    """The next word of the owner; empty at the end of the pipe."""
    line: str = await asyncio.get_running_loop().run_in_executor(_READER, sys.stdin.readline)
    return line.strip()


class _Uploader:
    """The files of one node, and what of them is in storage."""

    def __init__(self, options: Settings) -> None:
        url = parse(options.url)
        assert isinstance(url, Url)  # noqa: S101 - record-job has checked it
        self._url, self._out, self._run, self._node = url, options.out, options.run, options.node
        self._every_s = options.upload_every_s or None
        #: What was put of each path, and under which one.
        self._sent: dict[str, tuple[File, str]] = {}
        #: Of the facts in storage; empty if there are none.
        self._tag = ""
        #: Whether a put may depend on what is there.
        self._has_conditions = True
        #: Whether an earlier recording of the node is in storage, and what it left was not removed yet.
        self._is_continued = False
        self._is_last = False
        #: Why the last round left something, and whether another one may not.
        self._reason, self._may_pass = "", True

    async def run(self) -> None:
        """Follow the words of the owner."""
        async with opened(self._url, {}, "Writing") as store:
            try:
                await self._take_over(store)
            except Answer as answer:
                if not answer.may_pass:
                    raise
            _say("ready")
            claimed = await _word()
            if not claimed:
                return
            if claimed != self._node:
                self._node, self._tag, self._is_continued = claimed, "", False
            await self._put_facts(store)
            if await self._until_end(store) == "end":
                self._is_last = True
            else:
                await asyncio.sleep(_SAMPLER_S)
            for pause_s in _LAST_S:
                await asyncio.sleep(pause_s)
                if await self._round(store, with_open=True):
                    _say("left")
                    return
                if not self._may_pass:
                    break
        _say(f"left Files that are missing: {len(self._missing())}. {self._reason}")

    async def _until_end(self, store: Store) -> str:
        """Make rounds until the last word, which is empty if the owner was killed. A word ends a round."""
        word = asyncio.create_task(_word())
        while True:
            await asyncio.wait({word}, timeout=self._every_s)
            hurries = word.done()
            if hurries:
                if word.result() != "hurry":
                    return word.result()
                word = asyncio.create_task(_word())
            made = asyncio.create_task(self._round(store, with_open=hurries))
            await asyncio.wait({made, word}, return_when=asyncio.FIRST_COMPLETED)
            made.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await made

    async def _take_over(self, store: Store) -> None:
        """Bring facts of an earlier recording of the node to where whoever claims the folder looks for them."""
        self._tag, data, seen_s = await self._got(store, self._facts, _MAX_FACTS)
        if not self._tag:
            # A bucket that is missing has no facts, either.
            async for _ in store.pages(self._key(facts.FOLDER)):
                break
            return
        try:
            with (
                Folder(self._out, facts.FOLDER, make=True) as folder,
                os.fdopen(folder.create(f"{self._node}.json"), "wb") as file,
            ):
                file.write(data)
            os.utime(facts.path(self._out, self._node), (seen_s, seen_s))
            self._is_continued = True
        except FileExistsError:
            # The owner did not wait, and knows of no earlier recording: it is not replaced.
            self._tag = ""

    async def _clear(self, store: Store) -> None:
        """Remove what says that an earlier recording ended, and facts of its processes: in a folder, `facts.claim` does."""
        with contextlib.suppress(Answer):
            for path in facts.END_MARKERS:
                await store.delete(self._key(path))
            async for page in store.pages(f"{self._key(facts.hooks_folder(self._node))}/"):
                for one in page:
                    await store.delete(one.key)

    async def _got(self, store: Store, path: str, most: int) -> tuple[str, bytes, float]:
        """Tag of an object, its content up to `most` bytes, and when it was written; nothing where there is none."""
        file = self._out / f"uploader-{os.urandom(4).hex()}.tmp"
        try:
            got = await store.get(self._key(path), str(file), most=most)
            return got.tag, file.read_bytes(), time.time() - got.age_s
        except Answer as answer:
            if answer.status != 404:
                raise
            return "", b"", 0.0
        finally:
            file.unlink(missing_ok=True)

    async def _round(self, store: Store, *, with_open: bool) -> bool:
        """Put what changed, and with `with_open` also files that are open. Returns whether all is there."""
        self._reason, self._may_pass = "", True
        files = [one for one in self._missing() if with_open or not one.is_open]
        files.sort(key=lambda one: (one.place, one.size))
        if not await self._put_facts(store):
            return False
        while files:
            few = [
                one for one in files[:_AT_A_TIME] if one.place == files[0].place and one.size <= _SMALL_BYTES
            ]
            # A large file is put alone, for the memory.
            few = few or files[:1]
            if not all(await asyncio.gather(*(self._put(store, one) for one in few))):
                break
            del files[: len(few)]
        else:
            await self._remove_renamed(store)
        return await self._put_facts(store) and not self._missing()

    def _missing(self) -> list[File]:
        """Files that are not in storage as they are here; facts of the node are put otherwise."""
        found = []
        for part in PARTS:
            for folder, _, names in os.walk(self._out / part):
                inside = os.path.relpath(folder, self._out).replace(os.sep, "/")
                for name in names:
                    # Other names that end so are parts of a file that is being written.
                    if name.endswith(".tmp") and not name.endswith("_pythontimeline.tmp"):
                        continue
                    with contextlib.suppress(OSError):
                        seen = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - thousands of them
                        file = File(f"{inside}/{name}", seen.st_size, seen.st_mtime_ns)
                        known, _ = self._sent.get(file.path, (None, ""))
                        if stat.S_ISREG(seen.st_mode) and file.path != self._facts and file != known:
                            found.append(file)
        return found

    async def _put(self, store: Store, file: File) -> bool:
        """Put a file; False if storage does not take it. One that cannot be read is left."""
        folder, _, name = file.path.rpartition("/")
        try:
            if file.size > _MAX_BYTES:
                raise OSError(errno.EFBIG, f"{name} is too large")
            with Folder(self._out, folder) as inside:
                data = inside.read(name, _MAX_BYTES)
            _, path = self._sent.get(file.path, (file, ""))
            if path:
                await store.put(self._key(path), data, _KIND)
            else:
                path = await self._put_new(store, file.path, data)
        except Answer as answer:
            return self._refused(answer)
        except OSError as error:
            # A file that was renamed meanwhile comes with the next round.
            if not isinstance(error, FileNotFoundError):
                self._reason = f"{name}: {error.strerror}."
            return True
        self._sent[file.path] = (file, path)
        if self._is_last:
            _say("put")
        return True

    async def _put_new(self, store: Store, path: str, data: bytes) -> str:
        """Put a file under its path, or beside that of an earlier recording of the node. Returns where."""
        tag = "" if self._has_conditions else None
        for one in (path, f"{self._run}/{path}"):
            try:
                await store.put(self._key(one), data, _KIND, tag)
                return one
            except Answer as answer:
                if answer.status != 412:
                    raise
            # The answer to an earlier try may have been lost.
            if (await self._got(store, one, len(data) + 1))[1] == data:
                return one
        raise Answer(412, "two recordings of this run")

    async def _put_facts(self, store: Store) -> bool:
        """Put the facts of the node, which tell what is missing; False if storage does not take them.

        Raises StorageError if another recording has them.
        """
        known = facts.of_node(self._out, self._node)
        if not known:
            # What is in storage is better than nothing.
            self._reason, self._may_pass = "The recording was removed from its folder.", False
            return False
        missing = self._missing()
        known |= {
            "not_uploaded": {
                "files": len(missing),
                "bytes": sum(one.size for one in missing),
                "reason": self._reason or None,
            }
        }
        data = json.dumps(known, indent=1, ensure_ascii=False).encode("utf-8", "replace")
        put = partial(store.put, self._key(self._facts), data, _KIND)
        try:
            try:
                self._tag = await put(self._tag if self._has_conditions else None)
            except Answer as answer:
                if answer.status == 501:
                    self._has_conditions = False
                elif answer.status == 412:
                    await self._check_whose(store)
                else:
                    raise
                self._tag = await put(self._tag if self._has_conditions else None)
        except Answer as answer:
            return self._refused(answer)
        if self._is_continued:
            self._is_continued = False
            await self._clear(store)
        return True

    async def _check_whose(self, store: Store) -> None:
        """Raise StorageError if the facts in storage are not ours, put by a try whose answer was lost."""
        self._tag, there, _ = await self._got(store, self._facts, _MAX_FACTS)
        with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
            if not there or json.loads(there)["run"] == self._run:
                return
        raise StorageError(f"{self._url} already contains a recording of {self._node}.")

    def _refused(self, answer: Answer) -> bool:
        """Remember why storage does not take something. Returns False."""
        self._reason = _OPTIONS.sub("", sentence(answer, self._url))
        self._may_pass = answer.may_pass
        return False

    async def _remove_renamed(self, store: Store) -> None:
        """Remove what was put of open files that were closed since, under other names."""
        for path, (file, put) in [*self._sent.items()]:
            if file.is_open and not (self._out / path).exists():
                with contextlib.suppress(Answer):
                    await store.delete(self._key(put))
                    del self._sent[path]

    @property
    def _facts(self) -> str:
        return f"{facts.FOLDER}/{self._node}.json"

    def _key(self, path: str) -> str:
        return (self._url / path).key
