"""System samples: what a profiling agent measured on each machine, one JSON object a line.

``system/incremental/<hour>/<time>.<host>.json``, one file for each machine and minute. Files are
known by their names wherever they lie, or by their first lines; nothing else in the path counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.implausible_times import lone_spans, misnamed, within
from jobreport.readers.sensors import as_name, sensor
from jobreport.readers.system_samples.scan import scan
from jobreport.readers.tally import Tally
from jobreport.readers.timeline import Timeline
from jobreport.remarks import SourceQuality
from jobrules.measures.snapshots import MOST_CELLS, Series, node_panels
from jobrules.model import SECOND_US, FloatArray, IntArray, Metric, Panel, natural_key, natural_sorted
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.system_samples.rows import Rows
    from jobreport.readers.timeline import Part

_NAME = re.compile(r"[0-9]{10,}\.(?P<host>.+?)\.json(\.gz)?")
#: Of another profiler, whose names can look like ours.
_NOT_OURS = ".pt.trace.json"
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_KEYS = {"Type", "Value", "Timestamp"}
#: Lines that tell what a file holds.
_FIRST = 64

#: Machine of samples that name none, in a file that names none.
_NAMELESS = "node"
#: A machine has fewer cores, and fewer GPUs, each pair of which is compared; more columns are damage or malice.
_MOST_DEVICES, _MOST_GPUS = 4096, 512
_OF_GPUS = {Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY}
#: Bytes or operations per second; no machine comes near.
_HIGHEST_RATE = 1e15
#: How remarks on unknown sensors begin, and that on those without one of their own. A group of files names some.
UNKNOWN, OTHER_UNKNOWN = "unknown sensor ", "other unknown sensors"
_NAMED_UNKNOWNS = 100
#: Between the folder of a job and its samples, as they are usually kept.
_FOLDERS = "/system/incremental/"
_SEVERAL = "samples in the folders of several jobs, joined to one"
_SPARSE = (
    f"nearly each at a moment of its own; the {MOST_CELLS} devices of a machine with most samples are in use"
)
_MISNAMED = "the only one of its device, where another device lacks one: the name may be damaged"
_LONE = "alone and far from all other samples of its machine: the time may be damaged"


class SystemSamples:
    """Reads system samples.

    Each line that is not blank is a row: a sample in use, or counted under the reason why it is not. Of compressed
    data that is damaged, what can be unpacked in front of the damage is the text.
    """

    source = "system samples"
    looks_for = "system samples (system/incremental/…/<time>.<host>.json, also as .gz)"
    memory = 0.2
    rows = "samples"

    def matches_name(self, file: SourceFile) -> bool:
        """By ``<time>.<host>.json``."""
        name = file.own_name
        return _NOT_OURS not in name and _NAME.fullmatch(name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """By its first lines, of which as many or more are samples as are something else; damage is neither."""
        name = file.own_name
        return name.endswith(_SUFFIXES) and _NOT_OURS not in name and _begins_with_samples(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the machine that the name tells."""
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            found[_host(file)].append(file)
        return found

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all samples into panels; the order of files and of lines does not matter."""
        reading = _Reading(sorted(files))
        for rows, size in scan(reading.files, reading.tally):
            reading.take(rows)
            progress.advance(size)
        return reading.found()


def _begins_with_samples(file: SourceFile) -> bool:
    try:
        head = next(text_files.chunks(file.path))
    except (OSError, text_files.DamagedError):
        return False
    found = Counter(_is_sample(line) for line in head.split(b"\n", _FIRST)[:_FIRST] if line.strip())
    return found[True] > 0 and found[True] >= found[False]


def _is_sample(line: bytes) -> bool | None:
    """Whether a line is a sample or something else, as an object in a list; none where it is not a whole object."""
    text = line.rstrip(b" \t\r,")
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value.keys() >= _KEYS and b"," not in line[len(text) :]


def _host(file: SourceFile) -> str:
    match = _NAME.fullmatch(file.own_name)
    return match["host"] if match else _NAMELESS


class _Reading:
    """Samples on their way from rows to panels."""

    def __init__(self, files: list[SourceFile]) -> None:
        self.files = files
        self.tally = Tally()
        self._parts: defaultdict[str, defaultdict[tuple[Metric, str], list[Part]]]
        self._parts = defaultdict(lambda: defaultdict(list))
        self._unknown: Counter[str] = Counter()
        self._unknown_in: dict[str, str] = {}
        #: Numbers of the files that gave a sample.
        self._used: set[int] = set()

    def take(self, rows: list[Rows]) -> None:
        """Take over the samples of some files, which come in their order."""
        groups: defaultdict[tuple[str, str, str, str], list[Rows]] = defaultdict(list)
        for row in rows:
            key = (
                as_name(row.node or _host(self.files[row.file])),
                row.type,
                row.dimension or "",
                row.name or "",
            )
            groups[key].append(row)
        clock = _Clock()
        for (node, *names), group in sorted(groups.items(), key=lambda item: item[0]):
            if (known := sensor(*names)) is None:
                self._drop_unknown(" ".join(filter(None, names)), group)
            else:
                seconds, values = _joined(group)
                self._used.update(row.file for row in group)
                self._note_first_outside(known[0], values, group)
                self._parts[node][known].append((clock.microseconds(seconds), values))

    def found(self) -> Found:
        """The panels of all samples taken, and what was left out."""
        self._tell_unknown()
        self._tell_folders()
        panels: list[Panel] = []
        samples = 0
        for node in natural_sorted(set(self._parts)):
            series = self._without_lone(self._series(self._parts.pop(node)))
            wrong = misnamed(series)
            self.tally.add("dropped", "samples", _MISNAMED, count=len(wrong))
            series = [one for one in series if one not in wrong] if wrong else series
            made = node_panels(node, series)
            samples += sum(len(one.values) for one in series) - made.surplus - made.sparse
            panels += made.panels
            reason = "second value of a device in the same 20 ms; one is in use"
            self.tally.add("dropped", "samples", reason, count=made.surplus)
            self.tally.add("dropped", "samples", _SPARSE, count=made.sparse)
        quality = SourceQuality(
            source=SystemSamples.source, files=len(self._used), rows=samples, remarks=self.tally.remarks()
        )
        return Found(quality=quality, panels=tuple(panels), finished=False if panels else None)

    def _series(self, parts: dict[tuple[Metric, str], list[Part]]) -> list[Series]:
        series: list[Series] = []
        devices: Counter[Metric] = Counter()
        timeline = Timeline()
        for metric, device in sorted(parts, key=lambda key: (key[0], natural_key(key[1]))):
            time_us, values, repeated = timeline.merged(parts.pop((metric, device)))
            self.tally.add("dropped", "samples", "exact repetition of another sample", count=repeated)
            devices[metric] += 1
            most = _MOST_GPUS if metric in _OF_GPUS else _MOST_DEVICES
            if devices[metric] > most:
                reason = f"more than {most} devices of one machine"
                self.tally.add("dropped", "samples", reason, count=len(values))
                continue
            lowest, highest = _bounds(metric)
            if values.min() < lowest or values.max() > highest:
                outside = int(np.count_nonzero((values < lowest) | (values > highest)))
                self.tally.add("corrected", "samples", _outside(metric), count=outside)
                values = np.clip(values, lowest, highest)
            series.append(Series(metric=metric, device=device, time_us=time_us, values=values))
        return series

    def _without_lone(self, series: list[Series]) -> list[Series]:
        """The series of a machine without samples that lie far from all its others."""
        spans = lone_spans(series)
        kept = []
        for one in series:
            stay = ~within(one.time_us, spans) if spans else None
            if stay is None or stay.all():
                kept.append(one)
                continue
            self.tally.add("dropped", "samples", _LONE, count=int(np.count_nonzero(~stay)))
            if stay.any():
                kept.append(replace(one, time_us=one.time_us[stay], values=one.values[stay]))
        return kept

    def _note_first_outside(self, metric: Metric, values: FloatArray, group: list[Rows]) -> None:
        """Remember the first file with a value to correct; how many there are is counted without repetitions."""
        lowest, highest = _bounds(metric)
        if values.min() < lowest or values.max() > highest:
            first = next(row for row in group if row.values.min() < lowest or row.values.max() > highest)
            self.tally.add(
                "corrected", "samples", _outside(metric), count=0, file=self.files[first.file].name
            )

    def _drop_unknown(self, sensor_name: str, group: list[Rows]) -> None:
        label = escape_name(sensor_name)
        for row in group:
            self._unknown[label] += len(row.values)
            name = self.files[row.file].name
            self._unknown_in[label] = min(self._unknown_in.get(label, name), name)

    def _tell_unknown(self) -> None:
        ordered = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        for i, (label, count) in enumerate(ordered):
            reason = f"{UNKNOWN}{label}" if i < _NAMED_UNKNOWNS else OTHER_UNKNOWN
            self.tally.add("dropped", "samples", reason, count=count, file=self._unknown_in[label])

    def _tell_folders(self) -> None:
        """Say which machines two jobs may have in common: they are read as one."""
        folders: defaultdict[str, dict[str, SourceFile]] = defaultdict(dict)
        for file in self.files:
            folder, is_there, _ = f"/{file.name}".partition(_FOLDERS)
            if is_there:
                folders[_host(file)].setdefault(folder, file)
        for found in folders.values():
            if len(found) > 1:
                second = sorted(found.values())[1]
                self.tally.add("corrected", "machines", _SEVERAL, file=second.name)


class _Clock:
    """Seconds to whole microseconds; remembers the last ones, which neighboring sensors share."""

    def __init__(self) -> None:
        self._seconds: FloatArray = np.empty(0)
        self._time_us: IntArray = np.empty(0, np.int64)

    def microseconds(self, seconds: FloatArray) -> IntArray:
        """Rounded, and the same array again for the same seconds."""
        if not np.array_equal(seconds, self._seconds):
            self._seconds = seconds
            self._time_us = np.rint(seconds * SECOND_US).astype(np.int64)
        return self._time_us


def _joined(group: list[Rows]) -> tuple[FloatArray, FloatArray]:
    """Seconds and values of all rows."""
    values = np.concatenate([row.values for row in group])
    values += 0.0  # makes -0.0 the same as 0.0
    return np.concatenate([row.seconds for row in group]), values


def _bounds(metric: Metric) -> tuple[float, float]:
    return 0.0, 100.0 if metric.unit == "%" else _HIGHEST_RATE


def _outside(metric: Metric) -> str:
    if metric.unit == "%":
        return "percentage outside 0 to 100, set to the nearer bound"
    return "rate outside 0 to 10^15, set to the nearer bound"
