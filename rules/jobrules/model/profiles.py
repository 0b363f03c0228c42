"""Profiles of Python code."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from jobrules.model.names import Name, NodeName, OwnText, RankName


class Function(Struct, frozen=True, kw_only=True):
    """A function in a profile of Python code."""

    #: Where it is defined; empty and 0 for what is built in.
    file: Annotated[str, Name("file")]
    line: int
    name: Annotated[str, Name("function")]
    #: None where the profiler takes samples and does not count.
    calls: int | None
    #: Seconds in the function itself, and with all it called.
    self_s: float
    total_s: float


class Profile(Struct, frozen=True, kw_only=True):
    """Where a process's Python code spent a stretch of time."""

    node: NodeName
    rank: RankName
    #: ``cProfile`` or ``Pyinstrument``.
    profiler: OwnText
    start_us: int
    end_us: int
    #: Where it began and ended in words: "train step 9, step start".
    begin: OwnText
    end: OwnText
    #: Most self time first, 25 at most.
    functions: tuple[Function, ...]
    #: Functions in the file, and their self time in all.
    count: int
    self_s: float
