"""What was read, skipped, and corrected on the way from files to tables.

A remark is data: a code, a count, a place, and fields. ``REMARKS`` is the one table that words the codes; whoever
shows a remark asks for its ``action``, ``unit``, and ``reason``. Redaction replaces fields, never words.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Wording(NamedTuple):
    """How a code is worded."""

    #: ``failed`` (a reader of ours stopped), ``skipped`` (not read), ``dropped`` (read, not used) or ``corrected``.
    action: str
    #: What is counted, in the plural: ``lines``, ``samples``, ``rows``, ``events``, ``files``.
    unit: str
    #: Why, as the end of a sentence: "not a complete JSON object"; ``{field}`` stands for a field of the remark.
    reason: str


#: By code. A code is ``<area>.<what>``, and stays when its words change.
REMARKS: dict[str, Wording] = {
    # Until every caller has a code of its own (``Tally.add``).
    "text": Wording("{action}", "{unit}", "{reason}"),
    # Job directory and archives
    # Text files
    # Grouping and times
    # System samples
    # Traces
    "traces.unreadable": Wording("skipped", "files", "cannot be read: {error}"),
    "traces.empty": Wording("skipped", "files", "empty"),
    "traces.merged": Wording("skipped", "files", "made from the other traces"),
    "traces.flag": Wording("skipped", "files", "flag for the recording of data loading; it holds no event"),
    "traces.summary": Wording(
        "skipped", "files", "summary of the TensorFlow profiler; only its traces are read"
    ),
    "traces.unused_metadata": Wording("skipped", "files", "gives the time of a trace that is missing"),
    "traces.several_metadata": Wording(
        "corrected", "files", "node from its name, time from one of several .metadata files"
    ),
    "traces.no_metadata": Wording(
        "corrected", "files", "no .metadata file; times are approximate, from the name of its folder in UTC"
    ),
    "traces.damaged_gzip": Wording(
        "corrected", "files", "compressed data is cut short or damaged; the rows before the damage are in use"
    ),
    "traces.no_end": Wording(
        "corrected", "files", "cut short or still being written; the complete rows are in use"
    ),
    "traces.growing": Wording("corrected", "files", "still being written; the complete rows are in use"),
    "traces.rest": Wording("skipped", "bytes", "after the last readable row: damaged or cut short"),
    "traces.not_json": Wording("skipped", "lines", "not complete JSON"),
    "traces.odd_row": Wording("skipped", "rows", "not a trace event: a value has an unexpected type"),
    "traces.no_type": Wording("skipped", "rows", "has no type (ph)"),
    "traces.other_type": Wording("skipped", "rows", "type (ph) is not read"),
    "traces.instant": Wording("skipped", "rows", "instant event without a duration"),
    "traces.counter": Wording("skipped", "rows", "counter without a duration"),
    "traces.flow": Wording("skipped", "rows", "flow event without a duration"),
    "traces.async": Wording("skipped", "rows", "asynchronous event; asynchronous events are not read"),
    "traces.begin_only": Wording("skipped", "rows", "begin event without an end event in its file"),
    "traces.end_only": Wording("skipped", "rows", "end event without a begin event in its file"),
    "traces.no_name": Wording("skipped", "rows", "has no name"),
    "traces.no_start": Wording("skipped", "rows", "has no start"),
    "traces.bad_time": Wording("skipped", "rows", "start or duration is negative, infinite, or too large"),
    "traces.time_base": Wording("skipped", "time bases", "not a date"),
    "traces.undated": Wording("dropped", "rows", "time is not a date: the file has no time base"),
    "traces.relative": Wording(
        "corrected",
        "rows",
        "time is not a date: the file has no time base; only durations and distances are right",
    ),
    "traces.repeated": Wording("dropped", "rows", "repetition of an event in another file"),
    "traces.long_name": Wording("corrected", "names", "longer than 1,000 characters, shortened"),
    # Logs of nvidia-smi
    # Python profiles
    # Profiler configuration
    # Rule results of SageMaker Debugger
    # Rules and analyses
}


class Remark(Struct, frozen=True, kw_only=True):
    """One thing that was left out or changed, counted."""

    #: Key of ``REMARKS``.
    code: str
    #: How many of ``unit``.
    count: int
    #: The first place: a path relative to the job directory, with the line number where there is one.
    place: str | None = None
    #: What the wording names: numbers, and names from data (``node``, ``device``, ``file``, ``name``, ``error``).
    fields: dict[str, str | int | float] = {}

    def __hash__(self) -> int:
        return hash((self.code, self.count, self.place, *self.fields.items()))

    @classmethod
    def worded(cls, *, action: str, count: int, unit: str, reason: str, place: str | None = None) -> Remark:
        """Of a caller without a code of its own."""
        return cls(
            code="text", count=count, place=place, fields={"action": action, "unit": unit, "reason": reason}
        )

    @property
    def action(self) -> str:
        """``failed``, ``skipped``, ``dropped`` or ``corrected``."""
        return REMARKS[self.code].action.format_map(self.fields)

    @property
    def unit(self) -> str:
        """What is counted, in the plural."""
        return REMARKS[self.code].unit.format_map(self.fields)

    @property
    def reason(self) -> str:
        """Why, as the end of a sentence."""
        return REMARKS[self.code].reason.format_map(self.fields)


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
    #: Files that no reader recognized or that could not be opened.
    remarks: tuple[Remark, ...] = ()
