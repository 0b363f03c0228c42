"""Where the code of processes was, by samples of their stacks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from jobrules.model.names import FileName, FunctionName, NodeName, RankName
from jobrules.model.types import CodeArray, IntArray

#: The job's own code, an installed package, or Python's standard library.
Place = Literal["own", "library", "python"]


class CodeFrame(Struct, frozen=True, kw_only=True):
    """A line of code in a function."""

    place: Place
    file: FileName
    line: int
    function: FunctionName

    @property
    def dotted(self) -> str:
        """``PIL.Image.open``, as one imports it."""
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"{module}.{self.function}"


class ProcessStacks(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of the main thread of one process."""

    node: NodeName
    #: Of the training process; a loader process has that of the one that started it.
    rank: RankName
    kind: Literal["main", "loader"]
    pid: int
    #: Mean time between two samples.
    interval_us: int
    frames: tuple[CodeFrame, ...]
    #: (nodes,) a tree of stacks: the place of the caller, which always comes before, -1 for the outermost; and the frame.
    parent: CodeArray
    frame: CodeArray
    #: (n,) when each sample was due, ascending, and its innermost node.
    time_us: IntArray
    stack: CodeArray

    def within(self, first_us: int, last_us: int) -> ProcessStacks:
        """The samples from one moment to another, with the whole tree."""
        first, stop = self.time_us.searchsorted((first_us, last_us + 1)).tolist()
        return replace(self, time_us=self.time_us[first:stop], stack=self.stack[first:stop])
