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
    # Machines that several readers have tables of
    "machines.joined": Wording(
        "corrected",
        "logs",
        "joined to the samples of {node}, the only machine with samples: as many GPUs, overlapping times",
    ),
    "machines.several": Wording(
        "corrected",
        "logs",
        "a machine of its own: {machines} machines have samples, and the path of the log names none of them",
    ),
    "machines.other_gpus": Wording(
        "corrected",
        "logs",
        "a machine of its own: {found} GPUs in the log, {gpus} GPUs in the samples of {node}",
    ),
    "machines.other_zone": Wording(
        "corrected",
        "logs",
        "a machine of its own: its times do not overlap those of {node}; for local times try --timezone {offset}",
    ),
    "machines.other_times": Wording(
        "corrected", "logs", "a machine of its own: its times do not overlap those of {node} in any time zone"
    ),
    # Logs of nvidia-smi
    "nvidia_smi.unreadable": Wording("skipped", "files", "cannot be read: {error}"),
    "nvidia_smi.cut_short": Wording(
        "skipped", "files", "compressed data is cut short or damaged; what comes before is in use"
    ),
    "nvidia_smi.no_header": Wording(
        "skipped",
        "rows",
        "no header line in front; for rows such as “{row}” "
        "add --columns timestamp,index,utilization.gpu,… with a name for each column",
    ),
    "nvidia_smi.other_fields": Wording(
        "skipped", "rows", "not as many fields as columns: a message, or a damaged row"
    ),
    "nvidia_smi.cut_line": Wording("skipped", "rows", "the last line has no end: it may be half of a row"),
    "nvidia_smi.no_time_column": Wording("skipped", "rows", "no column of times"),
    "nvidia_smi.no_time": Wording("skipped", "rows", "no time that can be read"),
    "nvidia_smi.other_time": Wording("skipped", "rows", "times of another kind than most in the file"),
    "nvidia_smi.no_value": Wording("skipped", "rows", "no value that is read"),
    "nvidia_smi.no_gpu": Wording("skipped", "rows", "no GPU named, as in other rows"),
    "nvidia_smi.no_host": Wording("skipped", "rows", "no machine named, as in other rows"),
    "nvidia_smi.many_hosts": Wording(
        "dropped", "rows", "more than {machines} machines in one file; those with most rows are in use"
    ),
    "nvidia_smi.many_gpus": Wording("dropped", "rows", "more than {gpus} GPUs of one machine"),
    "nvidia_smi.repeated_row": Wording("dropped", "rows", "repetition of another row"),
    "nvidia_smi.second_row": Wording(
        "dropped", "rows", "second row of a GPU at the same time; one is in use"
    ),
    "nvidia_smi.joined_row": Wording(
        "dropped", "rows", "row with other values of a GPU at the same time, joined to the first"
    ),
    "nvidia_smi.added_process": Wording(
        "dropped", "rows", "another process of the same GPU at the same time, added to the first"
    ),
    "nvidia_smi.second_value": Wording(
        "dropped", "values", "second value of a GPU in the same snapshot; one is in use"
    ),
    "nvidia_smi.not_available": Wording("dropped", "values", "no value reported, such as [N/A]"),
    "nvidia_smi.implausible_value": Wording(
        "dropped", "values", "no number that a GPU can have, or in a unit of something else"
    ),
    "nvidia_smi.out_of_range": Wording(
        "corrected", "values", "percentage outside 0 to 100, set to the nearer bound"
    ),
    "nvidia_smi.equal_column": Wording(
        "dropped", "columns", "another column of the same measure ({metric}); the first is in use"
    ),
    "nvidia_smi.assumed_utc": Wording(
        "corrected", "files", "no time zone in the log; assumed: UTC (change with --timezone)"
    ),
    "nvidia_smi.zone": Wording("corrected", "files", "no time zone in the log; read as {zone}"),
    "nvidia_smi.no_dates": Wording(
        "corrected", "files", "no dates in the log: its times count from its start"
    ),
    "nvidia_smi.restarted": Wording(
        "corrected", "files", "times begin again, as of another run: they go on where those before ended"
    ),
    "nvidia_smi.assumed_second": Wording(
        "corrected",
        "files",
        "no times in the log; assumed: one second from row to row, the default of the tool",
    ),
    "nvidia_smi.full_seconds": Wording(
        "corrected", "files", "several rows of a GPU in each full second: spread evenly within it"
    ),
    "nvidia_smi.in_turn": Wording(
        "corrected", "files", "no GPU named: the order of the rows numbers the GPUs"
    ),
    "nvidia_smi.summed": Wording(
        "corrected", "files", "utilization of each GPU is the sum over its processes"
    ),
    "nvidia_smi.machines": Wording(
        "corrected",
        "files",
        "logs of the same GPUs at the same times: taken as of several machines, named after folders and files",
    ),
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
    #: What the wording names: numbers, and names from data (``node``, ``device``, ``file``, ``name``, ``error``,
    #: ``row``).
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
