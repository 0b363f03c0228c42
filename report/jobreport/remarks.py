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
    # Logs of nvidia-smi
    # Python profiles
    # Profiler configuration
    # Rule results of SageMaker Debugger
    # Rules and analyses
    "rules.not_loaded": Wording("failed", "rules", "the rule {name} of {package} ({error})"),
    "rules.thresholds_without_effect": Wording(
        "skipped", "thresholds", "without effect: the results of SageMaker Debugger are shown as they are"
    ),
    "analyses.failed": Wording("failed", "sections", "the analysis of {name} stopped: {error}"),
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
