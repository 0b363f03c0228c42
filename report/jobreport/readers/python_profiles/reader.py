"""Profiles of Python code: what cProfile or Pyinstrument recorded for a stretch of training.

``framework/<framework>/<profiler>/<rank>-<host>/<begin>_<end>/python_stats`` (cProfile) or
``python_stats.json`` (Pyinstrument). The path says who was profiled and when; the folder of an
early layout is ``<start>_<end>_<rank>-<host>_<step>``.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.faults import EARLIEST_S, LATEST_S
from jobreport.readers.python_profiles.function_times import (
    UnusableError,
    of_dump,
    of_tree,
    pyinstrument_session,
    session_span,
)
from jobreport.readers.ranks import node_and_worker
from jobreport.readers.sensors import as_name
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.model import SECOND_US, Function, Profile, natural_key
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.python_profiles.function_times import Key, Spent

_CPROFILE, _PYINSTRUMENT, _RENDERED = "python_stats", "python_stats.json", "python_stats.html"

_HALF = (
    r"(?P<{0}_mode>train|eval|predict|global|prestepzero|posthookclose)-(?P<{0}_step>-?[0-9]{{1,18}}|\*)"
    r"-(?P<{0}_phase>start|stepstart|forwardpassend|stepend|end)-[0-9.]+"
)
#: ``train-9-stepstart-1700000123456789.0_train-9-stepend-1700000124000001.5``
_STRETCH = re.compile(f"{_HALF.format('begin')}_{_HALF.format('end')}", re.IGNORECASE)
#: ``1700000123456789.0_1700000124000001.5_151-algo-1_3``
_EARLY_STRETCH = re.compile(r"[0-9.]+_[0-9.]+_(?P<who>.+)_(?P<step>-?[0-9]{1,18})", re.DOTALL)
#: Microseconds between 1990 and 2100.
_TIME = re.compile(r"(?<![0-9.])[0-9]{15,16}(?:\.[0-9]{1,9})?(?![0-9.])")

_PHASES = {"stepstart": "step start", "stepend": "step end", "forwardpassend": "end of the forward pass"}
_UNTOLD = "start of the profile", "end of the profile"

#: Machine of a profile whose path names none.
_NAMELESS = "node"
_MOST_FUNCTIONS = 25
#: A dump of 10 000 functions takes a megabyte.
_LARGEST = 16 << 20


class PythonProfiles:
    """Reads profiles of Python code."""

    source = "Python profiles"
    looks_for = ""
    memory = 0.0
    rows = "samples"

    def matches_name(self, file: SourceFile) -> bool:
        """By the name and the folder."""
        return _kind(file) in (_CPROFILE, _PYINSTRUMENT, _RENDERED)

    def matches_content(self, _: SourceFile) -> bool:
        """None without its name."""
        return False

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read every profile; pages that were made of one are left out."""
        tally = Tally()
        found: dict[Profile, None] = {}
        used = 0
        beside = {file.path.parent for file in files if _kind(file) == _PYINSTRUMENT}
        for file in sorted(files):
            if _kind(file) == _RENDERED:
                made = file.path.parent in beside
                reason = (
                    "page made of the profile beside it"
                    if made
                    else "page without the profile it was made of"
                )
                tally.add("skipped", "files", reason, file=file.name)
                continue
            try:
                profile = _profile(file, tally)
            except UnusableError as error:
                tally.add("skipped", "files", str(error), file=file.name)
                continue
            if profile in found:
                tally.add("dropped", "files", "exact repetition of another profile", file=file.name)
                continue
            used += 1
            found[profile] = None
        profiles = sorted(
            found, key=lambda p: (natural_key(p.node), natural_key(p.rank), p.start_us, p.end_us)
        )
        rows = sum(profile.count for profile in profiles)
        quality = SourceQuality(source=self.source, files=used, rows=rows, remarks=tally.remarks())
        return Found(quality=quality, profiles=tuple(profiles))


class _Stretch(Struct, frozen=True, kw_only=True):
    """Who was profiled, and from when to when."""

    node: str
    rank: str
    #: None where the path does not say.
    span_us: tuple[int, int] | None
    begin: str
    end: str


def _kind(file: SourceFile) -> str:
    return file.own_name.removesuffix(".gz")


def _profile(file: SourceFile, tally: Tally) -> Profile:
    stretch = _stretch(file.name)
    data = _content(file)
    faults: Counter[str] = Counter()
    span_us = stretch.span_us
    if _kind(file) == _CPROFILE:
        profiler, unit, spent = "cProfile", "functions", of_dump(data, faults)
    else:
        profiler, unit, session = "Pyinstrument", "frames", pyinstrument_session(data)
        spent = of_tree(session["root_frame"], faults)
        span_us = span_us or session_span(session)
    if span_us is None:
        raise UnusableError("nothing says when it was recorded")
    if not spent:
        raise UnusableError("holds no function that can be used")
    for reason, times in faults.items():
        tally.add("dropped", unit, reason, count=times, file=file.name)
    order = heapq.nsmallest(_MOST_FUNCTIONS, spent, key=lambda key: (-spent[key].self_s, key))
    return Profile(
        node=as_name(stretch.node),
        rank=stretch.rank,
        profiler=profiler,
        start_us=span_us[0],
        end_us=span_us[1],
        begin=stretch.begin,
        end=stretch.end,
        functions=tuple(_function(key, spent[key]) for key in order),
        count=len(spent),
        self_s=math.fsum(one.self_s for one in spent.values()),
    )


def _function(key: Key, spent: Spent) -> Function:
    file, line, name = key
    built_in = file in ("", "~") or file.startswith("<built-in")
    return Function(
        file="" if built_in else escape_name(file, 200),
        line=0 if built_in else line,
        name=escape_name(name, 120),
        calls=spent.calls,
        self_s=spent.self_s,
        total_s=spent.total_s,
    )


def _content(file: SourceFile) -> bytes:
    parts, size = [], 0
    try:
        for part in text_files.chunks(file.path):
            parts.append(part)
            size += len(part)
            if size > _LARGEST:
                raise UnusableError(f"larger than {_LARGEST >> 20} MiB")
    except OSError as error:
        raise UnusableError(f"cannot be opened: {error.strerror}") from error
    except text_files.DamagedError as error:
        raise UnusableError("compressed data is damaged") from error
    if not size:
        raise UnusableError("empty")
    return b"".join(parts)


def _stretch(name: str) -> _Stretch:
    """Read the folders above a file; what they do not say stays open."""
    *_, holder, folder = ("", "", *name.split("/")[:-1])
    span_us = _span(folder)
    if match := _STRETCH.fullmatch(folder):
        begin = _moment(match["begin_mode"], match["begin_step"], match["begin_phase"])
        end = _moment(match["end_mode"], match["end_step"], match["end_phase"])
        node, worker = node_and_worker(holder)
    elif match := _EARLY_STRETCH.fullmatch(folder):
        begin = end = "before step 0" if match["step"].startswith("-") else f"step {int(match['step'])}"
        node, worker = node_and_worker(match["who"])
    else:
        begin, end = _UNTOLD
        node, worker = node_and_worker(holder)
        if not worker:  # any folder may stand there
            node = ""
    return _Stretch(node=node or _NAMELESS, rank=worker, span_us=span_us, begin=begin, end=end)


def _span(folder: str) -> tuple[int, int] | None:
    """The two times in the name of a folder, in whole microseconds."""
    times = [float(text) for text in _TIME.findall(folder)]
    if len(times) != 2 or not all(EARLIEST_S <= time / SECOND_US <= LATEST_S for time in times):
        return None
    return _ordered(round(times[0]), round(times[1]))


def _ordered(start_us: int, end_us: int) -> tuple[int, int]:
    if end_us < start_us:
        raise UnusableError("ends before it begins")
    return start_us, end_us


def _moment(mode: str, step: str, phase: str) -> str:
    """``train step 9, step start``; ``before step 0, start``; ``end of the script``."""
    mode, phase = mode.lower(), phase.lower()
    if mode == "posthookclose":
        return "end of the script"
    where = "before step 0" if mode == "prestepzero" else f"step {step}" if step != "*" else "unknown step"
    if mode not in ("prestepzero", "global"):
        where = f"{mode} {where}"
    return f"{where}, {_PHASES.get(phase, phase)}"
