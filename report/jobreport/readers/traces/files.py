"""What the name of a trace file, and the folders it lies in, say about its events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers import text_files
from jobreport.readers.names import node_and_rank
from jobrules.model import SECOND_US, EventSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.readers.base import SourceFile

_MERGED = "merged_timeline"
_SOURCES = {
    "pythontimeline": EventSource.PYTHON,
    "model_timeline": EventSource.MODEL,
    "horovod_timeline": EventSource.HOROVOD,
    "smdataparallel_timeline": EventSource.SMDATAPARALLEL,
    _MERGED: EventSource.OTHER,
}
#: ``1700000161000000_33-algo-1_pythontimeline.json``, and ``33-algo-1_pythontimeline.tmp`` while it is written.
_KNOWN = re.compile(
    r"(?:(?P<end>[0-9]{10,20})_)?(?:(?P<who>.+)_)?"
    rf"(?P<suffix>{'|'.join(_SOURCES)})(?:\.json)?(?P<growing>\.tmp)?(?<!timeline)(?:\.gz)?",
    re.DOTALL,
)
#: The file that Horovod itself writes may be called anything.
_RAW_HOROVOD = re.compile(r".*horovod_timeline.*\.json(?:\.gz)?", re.DOTALL)
_OTHER = re.compile(r"(?P<end>[0-9]{10,20})_(?P<who>[^_]+)_.+\.json(?:\.gz)?", re.DOTALL)
_PROFILER = re.compile(r".+\.trace\.json(?:\.gz)?", re.DOTALL)
#: Of another profiler, by the name or by what its files begin with.
_NOT_OURS = ".pt.trace.json"
_KEYS_OF_OTHERS = (b'"schemaVersion"', b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"distributedInfo"')
_HEAD = 1 << 16
_ROW = re.compile(rb'"ph"\s*+:\s*+"[A-Za-z]"')

_METADATA = re.compile(r"(?P<who>.+)_(?P<start>[0-9]{10,17})_(?P<end>[0-9]{10,17})\.metadata", re.DOTALL)
#: Folders between a trace of the TensorFlow profiler and the folder that has its metadata.
_FOLDERS_ABOVE = 3
_MOMENT = re.compile(r"([0-9]{4})_([0-9]{2})_([0-9]{2})_([0-9]{2})_([0-9]{2})_([0-9]{2})")
#: A profile begins at its moment, within this.
_NEAR_US = 5 * SECOND_US
_FLAG = re.compile(r"tf_dataloader_(?:start|end)_flag\.tmp")
_SUMMARY = re.compile(r".+\.(?:input_pipeline|kernel_stats|overview_page|tensorflow_stats)\.pb", re.DOTALL)
_PROFILER_FOLDER = "detailed_profiling"

#: An early form: ``4487_0000``.
_EARLY_WHO = re.compile(r"(?P<rank>[0-9]{1,18})_(?P<node>.+)", re.DOTALL)
#: Node of events whose file names none.
_NAMELESS = "node"

#: Files of these may be of something else, by their first bytes.
DOUBTFUL = frozenset({EventSource.OTHER, EventSource.PROFILER})


class Origin(Struct, frozen=True, kw_only=True):
    """Where the events of a file come from."""

    node: str
    rank: str
    source: EventSource
    #: Made of other traces.
    merged: bool = False
    #: Not closed by its writer yet.
    growing: bool = False
    #: Named for a time by the profiler that can also say when the job ends.
    timed: bool = False
    #: Time base by the path; 0 if it has none.
    base_us: int = 0


class Metadata(Struct, frozen=True, kw_only=True):
    """What the name of a ``.metadata`` file says about the trace below its folder."""

    file: SourceFile
    node: str
    rank: str
    start_us: int


def origin(file: SourceFile) -> Origin | None:
    """What the name alone says; None for a file that is no trace by its name.

    A name ``<time>_<node>_<anything>.json`` may also be of something else.
    """
    name = file.own_name
    if _NOT_OURS in name:
        return None
    if match := _KNOWN.fullmatch(name):
        node, rank = _who(match["who"] or "")
        return Origin(
            node=node,
            rank=rank,
            source=_SOURCES[match["suffix"]],
            merged=match["suffix"] == _MERGED,
            growing=match["growing"] is not None,
            timed=match["suffix"] != _MERGED and (match["end"] or match["growing"]) is not None,
        )
    if _RAW_HOROVOD.fullmatch(name):
        return Origin(node=_NAMELESS, rank="", source=EventSource.HOROVOD)
    if _PROFILER.fullmatch(name):
        return Origin(node=name.partition(".")[0] or _NAMELESS, rank="", source=EventSource.PROFILER)
    if match := _OTHER.fullmatch(name):
        node, rank = _who(match["who"])
        return Origin(node=node, rank=rank, source=EventSource.OTHER, timed=True)
    return None


def is_trace(file: SourceFile) -> bool:
    """Whether the file is a trace: by its name, and where that leaves doubt by its first bytes."""
    known = origin(file)
    if known is None:
        return False
    if known.source == EventSource.OTHER:
        return _begins_with_row(file)
    return known.source != EventSource.PROFILER or not _is_of_others(
        text_files.beginning(file.path, _HEAD).lstrip()
    )


def folder(file: SourceFile) -> str:
    """The folder of a file, relative to the job directory."""
    return file.name.rpartition("/")[0]


def metadata(file: SourceFile) -> Metadata | None:
    """What a ``.metadata`` file says; None for any other file."""
    match = _METADATA.fullmatch(file.own_name)
    if match is None:
        return None
    node, rank = _who(match["who"])
    return Metadata(file=file, node=node, rank=rank, start_us=int(match["start"]))


def code_of_unread(file: SourceFile) -> str:
    """The remark on a file that belongs to traces and is not read; empty for other files."""
    name = file.own_name
    if _FLAG.fullmatch(name):
        return "traces.flag"
    is_summary = name.endswith(".pb") or name.startswith("events.out.tfevents")
    if _SUMMARY.fullmatch(name) or (is_summary and _PROFILER_FOLDER in file.name.split("/")):
        return "traces.summary"
    return ""


def with_metadata(
    known: Origin, file: SourceFile, notes: Mapping[str, Sequence[Metadata]]
) -> tuple[Origin, Metadata | None, str]:
    """Node, rank and time base of a trace of the TensorFlow profiler, by what lies above it.

    ``notes`` are the metadata files of each folder. Returns also the one that is used and a remark on what is uncertain.
    """
    folders = file.name.split("/")[:-1]
    moment = next((us for one in reversed(folders) if (us := _moment(one)) is not None), None)
    above = ("/".join(folders[:depth]) for depth in range(len(folders), -1, -1)[: _FOLDERS_ABOVE + 1])
    if here := next((notes[one] for one in above if one in notes), None):
        host = file.own_name.removesuffix(".gz").removesuffix(".trace.json")
        mine = [one for one in here if one.node in (host, known.node)] or here
        chosen = min(mine, key=lambda one: (abs(one.start_us - (moment or 0)), one.file.name))
        near = [one for one in mine if moment is not None and abs(one.start_us - moment) <= _NEAR_US]
        if len(mine) > 1 and near != [chosen]:
            return replace(known, base_us=chosen.start_us), chosen, "traces.several_metadata"
        return replace(known, base_us=chosen.start_us, node=chosen.node, rank=chosen.rank), chosen, ""
    if moment is not None:
        return replace(known, base_us=moment), None, "traces.no_metadata"
    return known, None, ""


def _moment(text: str) -> int | None:
    """``2020_08_05_13_37_44`` in microseconds."""
    match = _MOMENT.fullmatch(text)
    try:
        return int(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp()) * SECOND_US if match else None  # type: ignore[misc, arg-type]
    except ValueError:
        return None


def _who(text: str) -> tuple[str, str]:
    """Node and rank of ``33-algo-1``, ``4487_0000`` or ``0001``, which is a node."""
    if match := _EARLY_WHO.fullmatch(text):
        return match["node"], match["rank"]
    node, rank = node_and_rank(text)
    return node or _NAMELESS, rank


def _is_of_others(head: bytes) -> bool:
    return head.startswith(b"{") and any(key in head for key in _KEYS_OF_OTHERS)


def _begins_with_row(file: SourceFile) -> bool:
    head = text_files.beginning(file.path, _HEAD).lstrip()
    return not _is_of_others(head) and (b'"traceEvents"' in head or _ROW.search(head) is not None)
