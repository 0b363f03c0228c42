"""Profiles of Python code."""

from __future__ import annotations

from msgspec import Struct


class Function(Struct, frozen=True, kw_only=True):
    """A function in a profile of Python code."""

    #: Where it is defined; empty and 0 for what is built in.
    file: str
    line: int
    name: str
    #: None where the profiler takes samples and does not count.
    calls: int | None
    #: Seconds in the function itself, and with all it called.
    self_s: float
    total_s: float


class Profile(Struct, frozen=True, kw_only=True):
    """Where a process's Python code spent a stretch of time."""

    node: str
    rank: str
    #: ``cProfile`` or ``Pyinstrument``.
    profiler: str
    start_us: int
    end_us: int
    #: Where it began and ended in words: "train step 9, step start".
    begin: str
    end: str
    #: Most self time first, 25 at most.
    functions: tuple[Function, ...]
    #: Functions in the file, and their self time in all.
    count: int
    self_s: float
