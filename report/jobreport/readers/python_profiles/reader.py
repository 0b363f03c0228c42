"""Profiles of Python code: what cProfile or Pyinstrument recorded during a part of the training.

``framework/<framework>/<profiler>/<rank>-<host>/<begin>_<end>/python_stats`` (cProfile) or ``python_stats.json``
(Pyinstrument). The path has rank, node and time; the folder of an early layout is
``<start>_<end>_<rank>-<host>_<step>``.
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
from jobreport.readers.bounds import EARLIEST_US, LATEST_US
from jobreport.readers.names import as_name, node_and_rank
from jobreport.readers.tally import Tally, UnusableError
from jobreport.remarks import SourceQuality
from jobrules.model import Function, Profile, natural_key
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.python_profiles.function_times import FunctionTime, Key

_CPROFILE, _PYINSTRUMENT, _RENDERED = "python_stats", "python_stats.json", "python_stats.html"

_HALF = r"(?P<{0}_mode>[a-z]{{1,20}})-(?P<{0}_step>-?[0-9]{{1,18}}|\*)-(?P<{0}_phase>[a-z]{{1,20}})-[0-9.]+"
#: ``train-9-stepstart-1700000123456789.0_train-9-stepend-1700000124000001.5``
_SPAN = re.compile(f"{_HALF.format('begin')}_{_HALF.format('end')}", re.IGNORECASE)
#: ``1700000123456789.0_1700000124000001.5_151-algo-1_3``
_EARLY = re.compile(r"[0-9.]+_[0-9.]+_(?P<who>.+)_(?P<step>-?[0-9]{1,18})", re.DOTALL)
#: Microseconds between 1990 and 2100.
_TIME = re.compile(r"(?<![0-9.])[0-9]{15,16}(?:\.[0-9]{1,9})?(?![0-9.])")

_MODES = {"train", "eval", "predict"}
_PHASES = {
    "start": "start",
    "stepstart": "step start",
    "stepend": "step end",
    "forwardpassend": "end of the forward pass",
}
_UNNAMED = "start of the profile", "end of the profile"

#: Node of a profile without one in its path.
_NAMELESS = "node"
_MAX_FUNCTIONS = 25
#: A dump of 10 000 functions takes a megabyte.
_MAX_BYTES = 16 << 20


class PythonProfiles:
    """Reads profiles of Python code."""

    source = "Python profiles"
    looks_for = ""
    memory = 0.0
    rows = "samples"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By the name and the folder."""
        return _kind(file) in (_CPROFILE, _PYINSTRUMENT, _RENDERED)

    def matches_content(self, _: SourceFile) -> bool:
        """No file without its name."""
        return False

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read every profile; skip rendered pages."""
        tally = Tally()
        found: dict[Profile, None] = {}
        for file in sorted(files):
            with text_files.noting(file, tally):
                profile = _profile(file, tally)
                tally.note("profiles.repeated", count=profile in found, file=file.name)
                found[profile] = None
        profiles = sorted(
            found, key=lambda p: (natural_key(p.node), natural_key(p.rank), p.start_us, p.end_us)
        )
        rows = sum(profile.count for profile in profiles)
        quality = SourceQuality(source=self.source, files=len(found), rows=rows, remarks=tally.remarks())
        return Found(quality=quality, profiles=tuple(profiles))


class _Recording(Struct, frozen=True, kw_only=True):
    """Which rank was profiled, and when."""

    node: str
    rank: str
    #: None if the path has no times.
    span_us: tuple[int, int] | None
    begin: str
    end: str


def _kind(file: SourceFile) -> str:
    return file.own_name.removesuffix(".gz")


def _profile(file: SourceFile, tally: Tally) -> Profile:
    from jobreport.readers.python_profiles.function_times import (  # noqa: PLC0415 - few jobs have profiles
        of_dump,
        of_tree,
        pyinstrument_session,
        session_span,
    )

    if _kind(file) == _RENDERED:
        raise UnusableError("profiles.page")
    recording = _recording(file.name)
    data = text_files.content(file.path, _MAX_BYTES)
    faults: Counter[str] = Counter()
    span_us = recording.span_us
    if _kind(file) == _CPROFILE:
        profiler, unit, times = "cProfile", "functions", of_dump(data, faults)
    else:
        profiler, unit, session = "Pyinstrument", "frames", pyinstrument_session(data)
        times = of_tree(session["root_frame"], faults)
        span_us = span_us or session_span(session)
    if span_us is None:
        raise UnusableError("profiles.undated")
    if not times:
        raise UnusableError("profiles.no_function")
    for code, number in faults.items():
        tally.note(code, count=number, file=file.name, unit=unit)
    order = heapq.nsmallest(_MAX_FUNCTIONS, times, key=lambda key: (-times[key].self_s, key))
    return Profile(
        node=as_name(recording.node),
        rank=recording.rank,
        profiler=profiler,
        start_us=span_us[0],
        end_us=span_us[1],
        begin=recording.begin,
        end=recording.end,
        functions=tuple(_function(key, times[key]) for key in order),
        count=len(times),
        self_s=math.fsum(one.self_s for one in times.values()),
    )


def _function(key: Key, time: FunctionTime) -> Function:
    file, line, name = key
    built_in = file in ("", "~") or file.startswith("<built-in")
    return Function(
        file="" if built_in else escape_name(file, 200),
        line=0 if built_in else line,
        name=escape_name(name, 120),
        calls=time.calls,
        self_s=time.self_s,
        total_s=time.total_s,
    )


def _recording(name: str) -> _Recording:
    """Rank, node and time from the folders of a file, as far as they have them."""
    *_, holder, folder = ("", "", *name.split("/")[:-1])
    span_us = _span(folder)
    if match := _SPAN.fullmatch(folder):
        begin = _moment(match["begin_mode"], match["begin_step"], match["begin_phase"])
        end = _moment(match["end_mode"], match["end_step"], match["end_phase"])
        node, rank = node_and_rank(holder)
    elif match := _EARLY.fullmatch(folder):
        begin = end = "before step 0" if match["step"].startswith("-") else f"step {int(match['step'])}"
        node, rank = node_and_rank(match["who"])
    else:
        begin, end = _UNNAMED
        node, rank = node_and_rank(holder)
        if not rank:  # it may be any folder
            node = ""
    return _Recording(node=node or _NAMELESS, rank=rank, span_us=span_us, begin=begin, end=end)


def _span(folder: str) -> tuple[int, int] | None:
    """The two times in the name of a folder, in whole microseconds."""
    times = [float(text) for text in _TIME.findall(folder)]
    if len(times) != 2 or not all(EARLIEST_US <= time <= LATEST_US for time in times):
        return None
    if times[1] < times[0]:
        raise UnusableError("profiles.undated")
    return round(times[0]), round(times[1])


def _moment(mode: str, step: str, phase: str) -> str:
    """``train step 9, step start``; ``before step 0, start``; ``end of the script``. Unknown words are left out."""
    mode, phase = mode.lower(), phase.lower()
    if mode == "posthookclose":
        return "end of the script"
    where = "before step 0" if mode == "prestepzero" else f"step {step}" if step != "*" else "unknown step"
    if mode in _MODES:
        where = f"{mode} {where}"
    return f"{where}, {_PHASES[phase]}" if phase in _PHASES else where
