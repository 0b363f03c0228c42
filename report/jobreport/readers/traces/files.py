"""What the name of a trace file, and the folders it lies in, tell about its events."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers import text_files
from jobreport.readers.ranks import node_and_worker
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
#: Where a row may begin: an object that is not the value of a key. In the first bytes so many are looked at.
_ROW = re.compile(r'(?<![ \t\r\n:])[ \t\r\n]*+(?=\{[ \t\r\n]*+")')
_MOST_LOOKS = 256

_METADATA = re.compile(r"(?P<who>.+)_(?P<start>[0-9]{10,17})_(?P<end>[0-9]{10,17})\.metadata", re.DOTALL)
#: Folders between a trace of the TensorFlow profiler and the folder that has its metadata.
_FOLDERS_ABOVE = 3
_MOMENT = re.compile(r"([0-9]{4})_([0-9]{2})_([0-9]{2})_([0-9]{2})_([0-9]{2})_([0-9]{2})")
#: Such a moment may be one of any time zone; all differ by whole quarters of an hour.
_QUARTER_US = 900 * SECOND_US
#: A profile begins with its moment, give or take this.
_NEAR_US = 5 * SECOND_US
_STEP_FOLDER = re.compile(r"(?:.*/)?([0-9]{1,18})/plugins/.*", re.DOTALL)
_FLAG = re.compile(r"tf_dataloader_(?:start|end)_flag\.tmp")
_SUMMARY = re.compile(r".+\.(?:input_pipeline|kernel_stats|overview_page|tensorflow_stats)\.pb", re.DOTALL)
_PROFILER_FOLDER = "detailed_profiling"

#: An early form: ``4487_0000``.
_EARLY_WHO = re.compile(r"(?P<worker>[0-9]{1,18})_(?P<node>.+)", re.DOTALL)
#: Machine of events whose file names none.
_NAMELESS = "node"

#: Files of these may be of something else; their first bytes tell.
DOUBTFUL = frozenset({EventSource.OTHER, EventSource.PROFILER})
FLAG = "flag for the recording of data loading; it holds no event"
SUMMARY = "summary of the TensorFlow profiler; only its traces are read"


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
    #: Time base by the path; 0 where it tells none.
    base_us: int = 0
    #: Step that the events belong to, where the path tells that and no time base; -1 otherwise.
    step: int = -1
    #: What is uncertain about node or time base, in words.
    doubt: str = ""


class Metadata(Struct, frozen=True, kw_only=True):
    """What the name of a ``.metadata`` file tells about the trace below its folder."""

    file: SourceFile
    node: str
    rank: str
    start_us: int


def origin(file: SourceFile) -> Origin | None:
    """What the name alone tells; none for a file that is no trace by its name.

    A name ``<time>_<node>_<anything>.json`` may also be of something else.
    """
    name = file.own_name
    if _NOT_OURS in name:
        return None
    if match := _KNOWN.fullmatch(name):
        node, worker = _who(match["who"] or "")
        return Origin(
            node=node,
            rank=worker,
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
        node, worker = _who(match["who"])
        return Origin(node=node, rank=worker, source=EventSource.OTHER, timed=True)
    return None


def is_trace(file: SourceFile) -> bool:
    """Whether the file is a trace: by its name, and where that leaves doubt by its first bytes."""
    known = origin(file)
    if known is None:
        return False
    if known.source == EventSource.OTHER:
        return _begins_with_row(file)
    return known.source != EventSource.PROFILER or not _is_of_others(_head(file))


def folder(file: SourceFile) -> str:
    """The folder of a file, relative to the job directory."""
    return file.name.rpartition("/")[0]


def metadata(file: SourceFile) -> Metadata | None:
    """What a ``.metadata`` file tells; none for any other file."""
    match = _METADATA.fullmatch(file.own_name)
    if match is None:
        return None
    node, worker = _who(match["who"])
    return Metadata(file=file, node=node, rank=worker, start_us=int(match["start"]))


def beside_traces(file: SourceFile) -> str:
    """Why a file that belongs to traces is not read; empty for other files."""
    name = file.own_name
    if _FLAG.fullmatch(name):
        return FLAG
    is_summary = name.endswith(".pb") or name.startswith("events.out.tfevents")
    if _SUMMARY.fullmatch(name) or (is_summary and _PROFILER_FOLDER in file.name.split("/")):
        return SUMMARY
    return ""


def with_metadata(
    known: Origin, file: SourceFile, notes: Mapping[str, Sequence[Metadata]]
) -> tuple[Origin, Metadata | None]:
    """Node, worker and time base of a trace of the TensorFlow profiler, by what lies above it.

    ``notes`` are the metadata files of each folder.
    """
    folders = file.name.split("/")[:-1]
    moment = next((us for one in reversed(folders) if (us := _moment(one)) is not None), None)
    for depth in range(len(folders), max(-1, len(folders) - _FOLDERS_ABOVE - 1), -1):
        if here := notes.get("/".join(folders[:depth])):
            host = file.own_name.removesuffix(".gz").removesuffix(".trace.json")
            mine = [one for one in here if one.node in (host, known.node)] or here
            far = sorted((_apart(one.start_us, moment), one.file.name, one) for one in mine)
            chosen = far[0][2]
            near = [one for apart, _, one in far if apart <= _NEAR_US]
            if len(mine) > 1 and near != [chosen]:
                doubt = "one of several .metadata files tells its time, its name tells the machine"
                return replace(known, base_us=chosen.start_us, doubt=doubt), chosen
            told = replace(known, base_us=chosen.start_us, node=chosen.node, rank=chosen.rank)
            return told, chosen
    if moment is not None:
        doubt = "no .metadata file; its times are about those of its folder, taken for UTC"
        return replace(known, base_us=moment, doubt=doubt), None
    if match := _STEP_FOLDER.fullmatch(file.name):
        return replace(known, step=int(match[1])), None
    return known, None


def at_step(known: Origin, start_us: int) -> Origin:
    """The same with the start of its step as time base; as it is where that is 0."""
    doubt = "no .metadata file; its times are about those of the step that its folder names"
    return replace(known, base_us=start_us, doubt=doubt) if start_us else known


def _apart(start_us: int, moment_us: int | None) -> int:
    """How far a start lies from a moment of a time zone that is not known; the same for any without one."""
    if moment_us is None:
        return _QUARTER_US
    past = (start_us - moment_us) % _QUARTER_US
    return min(past, _QUARTER_US - past)


def _moment(text: str) -> int | None:
    """``2020_08_05_13_37_44`` in microseconds."""
    match = _MOMENT.fullmatch(text)
    try:
        return int(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp()) * SECOND_US if match else None  # type: ignore[misc, arg-type]
    except ValueError:
        return None


def _who(text: str) -> tuple[str, str]:
    """Node and worker of ``33-algo-1``, ``4487_0000`` or ``0001``, which is a node."""
    if match := _EARLY_WHO.fullmatch(text):
        return match["node"], match["worker"]
    node, worker = node_and_worker(text)
    return node or _NAMELESS, worker


def _head(file: SourceFile) -> bytes:
    """How the text of a file begins; empty for one that cannot be read."""
    try:
        return next(text_files.chunks(file.path))[:_HEAD].lstrip()
    except (OSError, text_files.DamagedError):
        return b""


def _is_of_others(head: bytes) -> bool:
    return head.startswith(b"{") and any(key in head for key in _KEYS_OF_OTHERS)


def _begins_with_row(file: SourceFile) -> bool:
    """Whether the file is an object with ``traceEvents``, or has a row with a ``ph`` of one letter among its first."""
    head = _head(file)
    if _is_of_others(head):
        return False
    if head.startswith(b"{") and b'"traceEvents"' in head:
        return True
    text = head.decode("utf-8", "replace")
    return any(_is_row(text, begin.end()) for begin in islice(_ROW.finditer(text), _MOST_LOOKS))


def _is_row(text: str, at: int) -> bool:
    try:
        row, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return False
    kind = row.get("ph")
    return isinstance(kind, str) and len(kind) == 1 and kind.isalpha()
