"""The contract between the reading of a directory and the readers of single formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from jobrules.model import Events, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.remarks import SourceQuality
    from jobrules.model import Panel, Profile


#: Bytes of text in a byte of gzip, for samples and traces.
_UNZIPPED = 10


class SourceFile(Struct, frozen=True, kw_only=True, order=True):
    """A file of the job directory."""

    #: Path relative to the job directory, with ``/``; what messages and the report show.
    name: str
    #: Where it lies. There may be many files, and text is made and sent sooner than paths.
    place: str
    #: Bytes, as found in the directory.
    size: int = 0

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(self.place)

    @property
    def own_name(self) -> str:
        """Its name without the folders."""
        return self.place.rpartition(os.sep)[2]

    @property
    def text_size(self) -> int:
        """About how many bytes its text has."""
        return self.size * _UNZIPPED if self.name.endswith(".gz") else self.size


class Found(Struct, frozen=True, kw_only=True):
    """The tables that one reader made of its files."""

    quality: SourceQuality
    panels: tuple[Panel, ...] = ()
    steps: Steps = field(default_factory=Steps)
    events: Events = field(default_factory=Events)
    profiles: tuple[Profile, ...] = ()
    #: What the profiler was told to record, in words.
    recorded: tuple[str, ...] = ()
    #: Whether the files say that the job ended; none where they cannot say.
    finished: bool | None = None


class Reader(Protocol):
    """One input format."""

    #: The kind of file, as the page names it, in the plural.
    source: str
    #: What a user should look for in the directory, for the message when nothing is found; empty for
    #: what no report can be made from alone.
    looks_for: str
    #: Bytes of memory that it takes for a byte of text, while it reads.
    memory: float
    #: What a row of its files is: ``samples``, each a row of its own, or ``rows`` of a GPU's samples at a moment.
    rows: str

    def matches_name(self, file: SourceFile) -> bool:
        """Whether the file belongs to this reader by its name alone."""

    def matches_content(self, file: SourceFile) -> bool:
        """Whether the file, which no reader knows by its name, belongs to this one by its first bytes."""

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Claimed files that can be read apart from one another, as far as the names tell: by machine.

        What turns out to hold tables of the same machine is read again together.
        """

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the files of one group.

        A damaged file or line costs itself and a remark, never the rest.
        """
