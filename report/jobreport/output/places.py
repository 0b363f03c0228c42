"""Where the files of a report, or of a comparison, are written: a folder, or object storage."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.files import REPORT, Product
from jobreport.output import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from jobreport.options import Options
    from jobreport.storage.urls import Url


class Place(Struct, frozen=True, kw_only=True):
    """A place that a run may write to."""

    #: As it is shown.
    folder: Path | Url
    publish: Callable[[Mapping[str, bytes]], None]
    #: The folder itself, behind links; None in object storage.
    real: Path | None = None

    @property
    def leave(self) -> frozenset[str]:
        """Absolute paths of the files of an older report there, which are no part of a job."""
        if self.real is None:
            return frozenset()
        return frozenset(str(self.real / file) for file in (*publish.own_files(self.real), *publish.HIDDEN))


@contextlib.contextmanager
def reserved(
    out: Path | Url, names: Collection[str], options: Options, product: Product = REPORT
) -> Iterator[Place]:
    """A place for files of these names, held until the end. Raises ``UsageError`` if it cannot be used."""
    if not isinstance(out, Path):
        from jobreport.storage import publishing  # noqa: PLC0415 - few runs need it

        yield Place(folder=out, publish=publishing.reserved(out, options, product))
        return
    folder = Path(os.path.abspath(out))  # noqa: PTH100 - Path.absolute keeps ".."
    with publish.reserved(folder, names, force=options.force, product=product):
        real = Path(os.path.realpath(folder))
        put = partial(publish.publish, real, force=options.force, product=product)
        yield Place(folder=folder, publish=put, real=real)
