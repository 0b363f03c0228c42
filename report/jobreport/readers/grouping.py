"""Reading the files of a job in groups, wherever an engine does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.progress import Progress
from jobreport.readers.base import FileFailedError, Found
from jobreport.readers.connected import connected
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobreport.tables.engine import Task
from jobrules.model import Events, Job, JobInMemory, Steps
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import Reader, SourceFile
    from jobreport.tables.engine import Engine, Handle, Made
    from jobrules.model import PartFacts

#: A group grows up to so many bytes of text and so many nodes.
_GROUP_BYTES, _GROUP_NODES = 32 << 20, 64


class Group(Struct, frozen=True, kw_only=True):
    """Files that are read together."""

    reader: Reader
    files: list[SourceFile]
    #: The node of the files by their names; the first of several.
    node: str = ""


class Piece(Struct, frozen=True, kw_only=True):
    """What a reader made of a group; the engine keeps the tables."""

    group: Group
    #: Without panels, steps, events, and stacks.
    found: Found
    #: Facts of each node, and the handles of its tables: of a job of that node alone.
    facts: tuple[PartFacts, ...]
    handles: Sequence[Handle]

    @property
    def nodes(self) -> Iterator[tuple[PartFacts, Handle]]:
        """What is known of each node, with the handle of its tables."""
        return zip(self.facts, self.handles, strict=True)


def groups_of(reader: Reader, files: Sequence[SourceFile]) -> list[Group]:
    """The reader's groups. Small ones are put together, because starting one costs as much as some megabytes."""
    found: list[Group] = []
    bytes_left = nodes = 0
    for node, some in reader.groups(files).items():
        size = sum(file.text_size for file in some)
        if found and size <= bytes_left and nodes < _GROUP_NODES:
            found[-1].files.extend(some)
            nodes += 1
        else:
            found.append(Group(reader=reader, files=some, node=node))
            bytes_left, nodes = _GROUP_BYTES, 1
        bytes_left -= size
    return found


def read_groups(engine: Engine, groups: Sequence[Group], progress: Progress, *, strict: bool) -> list[Piece]:
    """Read all groups. Those of one reader that turn out to hold the same node are read again as one group."""
    pieces = _read_groups(engine, groups, progress, strict=strict)
    nodes = [[(piece.group.reader.source, facts.node) for facts in piece.facts] for piece in pieces]
    same_node = [[pieces[number] for number in some] for some in connected(nodes)]
    joined = [
        replace(some[0].group, files=sorted(file for piece in some for file in piece.group.files))
        for some in same_node
        if len(some) > 1
    ]
    read_again = _read_groups(engine, joined, Progress(), strict=strict)
    return [some[0] for some in same_node if len(some) == 1] + read_again


def _read_groups(engine: Engine, groups: Sequence[Group], progress: Progress, *, strict: bool) -> list[Piece]:
    sizes = [sum(file.size for file in group.files) for group in groups]
    tasks = [
        Task(
            args=(group.reader, group.files, strict),
            memory=group.reader.memory * sum(file.text_size for file in group.files),
            machine=group.node,
        )
        for group in groups
    ]
    made = engine.keep(_read, tasks, lambda number: progress.finish(sizes[number]))
    return [
        Piece(group=group, found=found, facts=facts, handles=handles)
        for group, (handles, (found, facts)) in zip(groups, made, strict=True)
    ]


def _read(_: Sequence[Job], reader: Reader, files: Sequence[SourceFile], strict: bool) -> Made:
    """The tables of each node in a group of files, and what else was found, with the facts of each node.

    A file at which the reader stops is left out.
    """
    left, failures = [*files], Tally()
    found = Found(quality=SourceQuality(source=reader.source, files=0, rows=0))
    while left:
        try:
            found = reader.read(left)
            break
        except Exception as error:
            if strict:
                raise
            failed = [error.file] if isinstance(error, FileFailedError) else left
            note_failure(failures, reader.source, failed, error.__cause__ or error)
            left = [file for file in left if file not in failed]
    remarks = (*found.quality.remarks, *failures.remarks())
    found = replace(found, quality=replace(found.quality, remarks=remarks))
    tables = {name: getattr(found, name) for name in ("panels", "steps", "events", "stacks")}
    whole = JobInMemory(name="", **tables)
    rest = replace(found, panels=(), steps=Steps(), events=Events(), stacks=())
    return list(whole.parts), (rest, whole.facts)


def note_failure(tally: Tally, source: str, files: Sequence[SourceFile], error: BaseException) -> None:
    """Remark on a reader that stopped."""
    tally.note(
        "reader.failed",
        count=len(files),
        file=files[0].name,
        source=source,
        kind=type(error).__name__,
        error=escape_name(str(error), 200),
    )
