"""Where the Python code of processes was: ``framework/pythonstacks/<rank>-<node>/<pid>.jsonl``, a file for each process.

Each line is a JSON array: a frame, a node of the tree of stacks, or a sample, which names its innermost node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.bounds import Microseconds  # noqa: TC001 - msgspec reads the annotation
from jobreport.readers.names import as_name, node_and_rank
from jobreport.readers.tally import Tally, UnusableError
from jobreport.remarks import SourceQuality
from jobrules.model import CodeFrame, ProcessStacks, natural_key
from jobrules.model.stacks import Place
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.model import IntArray

_NAME = re.compile(r"(?:.*/)?pythonstacks/(?P<who>[^/]+)/[0-9]+(?:-[0-9]+)?\.jsonl(?:\.gz)?", re.DOTALL)
#: Bytes of a line, and samples at a time.
_LONGEST, _BATCH = 1 << 14, 1 << 13
#: Of one process; stacks that are deeper are none of the recorder.
_MAX_FRAMES, _MAX_NODES, _MAX_DEPTH = 1 << 16, 1 << 18, 200

_Id: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
#: Three years.
_Time: TypeAlias = Annotated[int, Meta(ge=0, lt=10**14)]
_Text: TypeAlias = Annotated[str, Meta(max_length=1000)]


class _About(Struct):
    pid: Annotated[int, Meta(ge=0, lt=1 << 53)]
    kind: Literal["main", "loader"]
    interval_us: Annotated[int, Meta(gt=0, lt=10**12)]
    started_us: Microseconds


_HEAD = msgspec.json.Decoder(tuple[Literal["stacks"], Literal[1], _About])
_FRAME = msgspec.json.Decoder(tuple[Literal["frame"], _Id, Place, _Text, _Id, _Text])
_NODE = msgspec.json.Decoder(tuple[Literal["stack"], _Id, Annotated[int, Meta(ge=-1, lt=1 << 31)], _Id])
_SAMPLES = msgspec.json.Decoder(list[tuple[_Time, _Id, _Time]])


class PythonStacks:
    """Reads samples of the stacks of Python code. Absent, they change no number of the report."""

    source = "stacks of Python code"
    looks_for = ""
    memory = 4.0
    rows = "samples"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By its folder."""
        return _NAME.fullmatch(file.name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """Never: without its folder, nobody knows of which rank it is."""
        del file
        return False

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the node that the folder names."""
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            found[_who(file)[0]].append(file)
        return found

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the samples of every process."""
        tally = Tally()
        read: list[_Process] = []
        for file in sorted(files):
            with text_files.noting(file, tally):
                lines = text_files.lines(file.path, _LONGEST)
                read.append(process := _Process(file, _about(lines), tally))
                process.add(lines)
        found = [process.table() for process in read]
        found.sort(
            key=lambda one: (natural_key(one.node), natural_key(one.rank), one.kind != "main", one.pid)
        )
        quality = SourceQuality(
            source=self.source,
            files=len(found),
            rows=sum(len(one.time_us) for one in found),
            remarks=tally.remarks(),
        )
        return Found(quality=quality, stacks=tuple(one for one in found if len(one.time_us)))


def _who(file: SourceFile) -> tuple[str, str]:
    """Node and rank."""
    match = _NAME.fullmatch(file.name)
    node, rank = node_and_rank(match["who"] if match else "")
    return as_name(node), rank


def _about(lines: Iterator[bytes | None]) -> _About:
    """What the first line says. Raises ``UnusableError``."""
    line = next(lines, None)
    if not line:
        raise UnusableError("file.empty" if line is None else "stacks.unknown")
    try:
        return _HEAD.decode(line)[2]
    except (ValueError, RecursionError):
        raise UnusableError("stacks.unknown") from None


class _Process:
    """The samples of one process, as far as they were read."""

    def __init__(self, file: SourceFile, about: _About, tally: Tally) -> None:
        self._file, self._about, self._tally = file, about, tally
        self._depth: list[int] = []
        #: Position of each frame and node by its id; and by what it is, since the recorder may number it again.
        self._frame_at: dict[int, int] = {}
        self._node_at: dict[int, int] = {-1: -1}
        self._frame_of: dict[CodeFrame, int] = {}
        self._node_of: dict[tuple[int, int], int] = {}
        self._samples: list[IntArray] = []

    def add(self, lines: Iterator[bytes | None]) -> None:
        """Read all lines, up to what they raise; no node is before its caller, so none is its own."""
        samples: list[bytes] = []
        try:
            for line in lines:
                if line is None:
                    self._note("stacks.line")
                elif line.startswith(b'["'):
                    self._name(line)
                else:
                    samples.append(line)
                if len(samples) == _BATCH:
                    self._add_samples(samples)
                    samples = []
        finally:
            self._add_samples(samples)

    def _add_samples(self, samples: Sequence[bytes]) -> None:
        try:
            rows = _SAMPLES.decode(b"[%b]" % b",".join(samples))
        except (ValueError, RecursionError):
            rows = []
            for line in samples:
                try:
                    rows += _SAMPLES.decode(b"[%b]" % line)
                except (ValueError, RecursionError):
                    self._note("stacks.line")
        self._samples.append(np.array(rows, np.int64).reshape(-1, 3))

    def _name(self, line: bytes) -> None:
        try:
            if line.startswith(b'["frame"'):
                _, number, place, file, at, function = _FRAME.decode(line)
                name = escape_name(function.replace(".<locals>", ""), 120)
                one = CodeFrame(place=place, file=escape_name(file, 200), line=at, function=name)
                if one in self._frame_of or len(self._frame_of) < _MAX_FRAMES:
                    self._frame_at[number] = self._frame_of.setdefault(one, len(self._frame_of))
            elif line.startswith(b'["stack"'):
                _, number, caller, frame = _NODE.decode(line)
                self._add_node(number, self._node_at.get(caller), self._frame_at.get(frame))
            elif line.startswith(b'["gap"'):
                self._tally.note("stacks.gap", file=self._file.name)
            else:
                self._note("stacks.line")
        except (ValueError, RecursionError):
            self._note("stacks.line")

    def _add_node(self, number: int, parent: int | None, frame: int | None) -> None:
        if parent is not None and frame is not None and number not in self._node_at:
            at = self._node_of.get((parent, frame))
            depth = self._depth[parent] + 1 if parent >= 0 else 0
            if at is None and len(self._depth) < _MAX_NODES and depth < _MAX_DEPTH:
                at = self._node_of[parent, frame] = len(self._depth)
                self._depth.append(depth)
            if at is not None:
                self._node_at[number] = at
                return
        self._note("stacks.lost")

    def _note(self, code: str) -> None:
        self._tally.note(code, file=self._file.name)

    def table(self) -> ProcessStacks:
        """What was read, without samples of stacks that are not known."""
        samples = np.concatenate([np.empty((0, 3), np.int64), *self._samples])
        del self._node_at[-1]
        ids = np.array(sorted(self._node_at), np.int64)
        place = np.array([self._node_at[one] for one in ids.tolist()], np.int32)
        at = np.searchsorted(ids, samples[:, 1])
        known = np.append(ids, -1)[at] == samples[:, 1]
        self._tally.note("stacks.unknown_stack", count=int((~known).sum()), file=self._file.name)
        # A late sample is of the moment in which it was due.
        due_us = samples[:, 0] - samples[:, 2] + self._about.started_us
        order = np.flatnonzero(known)[np.argsort(due_us[known], kind="stable")]
        parent, frame = np.array([*self._node_of], np.int32).reshape(-1, 2).T
        node, rank = _who(self._file)
        return ProcessStacks(
            node=node,
            rank=rank,
            kind=self._about.kind,
            pid=self._about.pid,
            interval_us=self._about.interval_us,
            frames=tuple(self._frame_of),
            parent=parent,
            frame=frame,
            time_us=due_us[order],
            stack=place[at[order]],
        )
