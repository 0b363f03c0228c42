"""The object that says whether a report in object storage is whole: nothing there can be renamed or locked."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from jobreport.storage.stores import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from jobreport.files import Product
    from jobreport.storage.stores import Store
    from jobreport.storage.urls import Url

#: Bytes that are read of one.
_MAX = 1 << 20
_RULES = re.compile(r"rules/(?:more/)?\w{1,100}\.json")


class File(msgspec.Struct, frozen=True):
    """A file of the report."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> File:
        """That with this content."""
        return cls(size=len(data), sha256=hashlib.sha256(data).hexdigest())


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the report."""

    state: Literal["writing", "complete"]
    #: Of the run that writes it, a random number.
    id: str
    version: str = ""
    files: dict[str, File] = {}
    #: Those of the earlier report, which the run removes at its end, or whoever takes over.
    older: list[str] = []
    #: Of the object; not in its content.
    tag: str = ""
    age_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether all of its files are there."""
        return self.state == "complete"

    def is_of(self, file: Path) -> bool:
        """Whether a local copy of a file is that of this report."""
        return self.files.get(file.name) == File.of(file.read_bytes())

    def own(self, product: Product) -> set[str]:
        """Names of its files; none of what the product never writes."""
        return {one for one in (*self.files, *self.older) if is_own(one, "", product)}


def name(product: Product) -> str:
    """The name of the object."""
    return f"{product.noun}.manifest.json"


def is_own(path: str, folder: str, product: Product) -> bool:
    """Whether a path is that of a file that the product writes into a folder, which ends in ``/``."""
    rest = path.removeprefix(folder)
    own = {*product.files.values(), name(product)}
    return path.startswith(folder) and (rest in own or _RULES.fullmatch(rest) is not None)


async def read(store: Store, folder: Url, product: Product, file: Path) -> Manifest | None:
    """The manifest in a folder, by way of a local file; None if there is none."""
    try:
        got = await store.get((folder / name(product)).key, str(file), most=_MAX)
    except Answer as answer:
        if answer.status == 404:
            return None
        raise
    return msgspec.structs.replace(decoded(file.read_bytes()), tag=got.tag, age_s=got.age_s)


def decoded(data: bytes) -> Manifest:
    """A manifest; one that is damaged is being written."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError):
        return Manifest(state="writing", id="")
