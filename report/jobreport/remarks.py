"""What was read, skipped and corrected on the way from files to tables."""

from __future__ import annotations

from msgspec import Struct


class Remark(Struct, frozen=True, kw_only=True):
    """One thing that the reader left out or changed, counted."""

    #: What happened to them: ``skipped`` (not read), ``dropped`` (read, not used), ``corrected``, or
    #: ``failed`` (a reader of ours stopped).
    action: str
    #: How many of ``unit``.
    count: int
    #: What is counted, in the plural: ``lines``, ``samples``, ``rows``, ``events``, ``files``.
    unit: str
    #: Why, as the end of a sentence: "not a complete JSON object".
    reason: str
    #: The first place: a path relative to the job directory, with the line number where there is one.
    example: str | None = None


class SourceQuality(Struct, frozen=True, kw_only=True):
    """One kind of input file."""

    #: The kind, as the page names it: "system samples".
    source: str
    #: Files that gave at least one row.
    files: int
    #: Rows (samples, events) in use. With those that the remarks count as skipped or dropped they are all rows of
    #: the files: lines that are not blank, values in the list of a trace; the begin and the end of an event are one.
    rows: int
    remarks: tuple[Remark, ...] = ()


class Quality(Struct, frozen=True, kw_only=True):
    """What became of every file of the job directory."""

    sources: tuple[SourceQuality, ...] = ()
    #: Files that no reader recognised or that could not be opened.
    remarks: tuple[Remark, ...] = ()
