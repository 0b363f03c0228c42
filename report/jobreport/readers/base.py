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
    from jobrules.captures.collectives import Communication
    from jobrules.model import Panel, ProcessStacks, Profile
    from jobrules.model.captures import Capture
    from jobrules.model.learning import Learning


#: Bytes of text in a byte of gzip, for samples and traces.
_UNZIPPED = 10


class SourceFile(Struct, frozen=True, kw_only=True, order=True):
    """A file of the job directory."""

    #: Path relative to the job directory, with ``/``; what messages and the report show.
    name: str
    #: Absolute path, as text: there may be many files, and text is faster to make and to send than ``Path``.
    place: str
    #: Bytes, as found in the directory.
    size: int = 0

    @property
    def path(self) -> Path:
        """``place`` as a ``Path``."""
        return Path(self.place)

    @property
    def own_name(self) -> str:
        """The name without folders."""
        return self.place.rpartition(os.sep)[2]

    @property
    def text_size(self) -> int:
        """Estimated bytes of its text."""
        return self.size * _UNZIPPED if self.name.endswith(".gz") else self.size


class FileFailedError(Exception):
    """A reader stopped at one file, by its cause; the others can be read without it."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file.name)
        self.file = file


class CommandSpan(Struct, frozen=True, kw_only=True):
    """When a command ran that trained, as one of several in a script; or several that are one job."""

    #: When the last of its recordings began, and the marks of its command lines.
    recording: int
    marks: frozenset[str]
    start_us: int
    end_us: int
    #: Of its training steps, of all processes.
    trained_us: int

    def is_started_again(self, later: CommandSpan) -> bool:
        """Whether a later one is the same job: the same command, or one of another recording."""
        return self.recording != later.recording or not self.marks.isdisjoint(later.marks)

    def joined(self, other: CommandSpan) -> CommandSpan:
        """Both as one."""
        return CommandSpan(
            recording=max(self.recording, other.recording),
            marks=self.marks | other.marks,
            start_us=min(self.start_us, other.start_us),
            end_us=max(self.end_us, other.end_us),
            trained_us=self.trained_us + other.trained_us,
        )


class Found(Struct, frozen=True, kw_only=True):
    """The tables that one reader made of its files."""

    quality: SourceQuality
    panels: tuple[Panel, ...] = ()
    steps: Steps = field(default_factory=Steps)
    events: Events = field(default_factory=Events)
    stacks: tuple[ProcessStacks, ...] = ()
    profiles: tuple[Profile, ...] = ()
    captures: tuple[Capture, ...] = ()
    communication: tuple[Communication, ...] = ()
    #: Of each source, and rank; ``registry`` joins them.
    learning: tuple[Learning, ...] = ()
    #: What the profiler was configured to record, in words.
    recorded: tuple[str, ...] = ()
    #: Whether the files say that the job ended; None if they cannot say.
    finished: bool | None = None
    #: The commands that jobrecord recorded.
    commands: tuple[CommandSpan, ...] = ()


class Reader(Protocol):
    """One input format."""

    #: The kind of file, as the page names it, in the plural.
    source: str
    #: Which files it reads, for the message if nothing is readable; empty if no report can be made from them alone.
    looks_for: str
    #: Bytes of memory per byte of text, while it reads.
    memory: float
    #: What a row of its files is: one of ``samples``, one of ``events``, or one of ``rows`` with the samples of a GPU
    #: at a moment.
    rows: str
    #: False if a file may lack the name of its machine, as a log does.
    names_machines: bool

    def matches_name(self, file: SourceFile) -> bool:
        """True if the name alone shows that this reader reads the file."""

    def matches_content(self, file: SourceFile) -> bool:
        """True if the first bytes of a file that matches no reader's name show that this reader reads it."""

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Files that can be read separately, by the node in their names.

        Groups that turn out to hold the same node are read again together.
        """

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the files of one group. Damaged files and lines are skipped and counted in a remark.

        May raise ``FileFailedError``; then the others are read again without the file.
        """
