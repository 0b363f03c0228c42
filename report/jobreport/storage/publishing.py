"""The files of a report appear in object storage so that no interruption leaves a mixture that a reader takes.

An object appears whole, a set of objects does not. So the manifest says "writing" first, then the files are put, the page last,
and then the manifest says "complete", with size and hash of each. Each put of the manifest is conditional on the last one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobreport import __version__
from jobreport.errors import UsageError
from jobreport.files import REPORT, Product
from jobreport.scratch import Scratch
from jobreport.storage import manifest
from jobreport.storage.fetching import run
from jobreport.storage.manifest import File, Manifest
from jobreport.storage.stores import Answer, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobreport.options import Options
    from jobreport.storage.stores import Store
    from jobreport.storage.urls import Url

#: Puts at a time, and seconds after which a run that still says "writing" has died.
_AT_A_TIME, _DEAD_S = 8, 3600
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".ipynb": "application/x-ipynb+json",
    ".md": "text/markdown; charset=utf-8",
    ".xml": "application/xml",
}


def reserved(url: Url, options: Options, product: Product = REPORT) -> Callable[[Mapping[str, bytes]], None]:
    """What writes the files below a URL, once they are made.

    Both raise ``UsageError`` if there is a report already, if another run writes one, or if storage cannot be used.
    """
    place = _Place(url, options, product)
    run(place.check())
    return lambda files: run(place.publish(files))


class _Place:
    """A folder in object storage."""

    def __init__(self, url: Url, options: Options, product: Product) -> None:
        self._url, self._options, self._product = url, options, product
        self._about = url / manifest.name(product)
        self._is_conditional = True

    async def check(self) -> None:
        """Whether a report may be written there now."""
        async with opened(self._url, self._options.storage_option, "Writing") as store:
            before = await self._before(store)
            data = self._url / self._product.files["json"]
            # Someone may have copied a report there.
            if before is None and not self._options.force and await store.find(data.key):
                raise UsageError(self._taken)
            # A name that other programs write, too.
            junit = self._product.files["junit"]
            is_ours = before is not None and junit in before.own(self._product)
            if "junit" in self._options.formats and not is_ours and await store.find((self._url / junit).key):
                raise UsageError(
                    f"{self._url} contains {junit}, which {self._product.maker} did not write. Choose another --out."
                )

    async def publish(self, files: Mapping[str, bytes]) -> None:
        """Put the files, and remove those of an earlier report."""
        page = self._product.files["html"]
        async with opened(self._url, self._options.storage_option, "Writing") as store:
            before = await self._before(store)
            older = sorted(before.own(self._product)) if before else []
            begun = Manifest(state="writing", id=os.urandom(8).hex(), version=__version__, older=older)
            tag = await self._put_about(
                store, begun, None if self._options.force else before.tag if before else ""
            )
            limit = asyncio.Semaphore(_AT_A_TIME)
            await asyncio.gather(*(self._put(store, limit, one, files[one]) for one in files if one != page))
            if page in files:
                await self._put(store, limit, page, files[page])
            about = {one: File.of(data) for one, data in files.items()}
            done = msgspec.structs.replace(begun, state="complete", files=about, older=[])
            await self._put_about(store, done, tag)
            for one in sorted({*older} - {*files, manifest.name(self._product)}):
                await store.delete((self._url / one).key)

    async def _before(self, store: Store) -> Manifest | None:
        """What is known of an earlier report, if it may be replaced."""
        with Scratch() as folder:
            found = await manifest.read(store, self._url, self._product, Path(folder) / "manifest")
        if found and not self._options.force:
            if found.is_complete:
                raise UsageError(self._taken)
            if found.age_s < _DEAD_S:
                raise UsageError(self._busy)
        return found

    async def _put(self, store: Store, limit: asyncio.Semaphore, name: str, data: bytes) -> None:
        async with limit:
            await store.put((self._url / name).key, data, _KINDS[os.path.splitext(name)[1]])  # noqa: PTH122 - a key

    async def _put_about(self, store: Store, about: Manifest, tag: str | None) -> str:
        """Put the manifest if that in storage still has this tag."""
        data, kind = msgspec.json.encode(about), _KINDS[".json"]
        put = partial(store.put, self._about.key, data, kind)
        try:
            return await put(tag if self._is_conditional else None)
        except Answer as answer:
            if answer.status == 412:
                with Scratch() as folder:
                    now = await manifest.read(store, self._url, self._product, Path(folder) / "manifest")
                # The answer to an earlier try may have been lost.
                if now and (now.id, now.state) == (about.id, about.state):
                    return now.tag
                if about.is_complete:
                    raise UsageError(self._mixed) from None
                raise UsageError(self._taken if now and now.is_complete else self._busy) from None
            if answer.status != 501 or tag is None:
                raise
        if self._options.strict:
            raise UsageError(f"{self._no_conditions} With --strict, nothing is written.")
        print(f"Warning: {self._no_conditions}", file=sys.stderr)
        self._is_conditional = False
        return await put(None)

    @property
    def _taken(self) -> str:
        noun = self._product.noun
        return f"{self._url} already contains a {noun}. Use --force to replace it, or choose another --out."

    @property
    def _busy(self) -> str:
        return f"Another run writes to {self._url}. Wait for its end, or choose another --out. If it has died, use --force."

    @property
    def _mixed(self) -> str:
        noun = self._product.noun
        return f"Another run wrote to {self._url} at the same time, so files of both may stand there. Make the {noun} again with --force."

    @property
    def _no_conditions(self) -> str:
        return f"{self._url.scheme}:// here has no conditional writes, so two runs that write at once are not kept apart."
