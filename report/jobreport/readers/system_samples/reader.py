"""System samples: what a profiling agent or record-job measured on each node, one JSON object per line.

``system/incremental/<hour>/<time>.<host>.json``, one file per node and minute. Files are recognized in any folder, by
their names or by their first lines.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.bounds import MAX_GPUS
from jobreport.readers.names import as_name
from jobreport.readers.system_samples import lines
from jobreport.readers.system_samples.sensors import sensor
from jobreport.readers.system_samples.sorting import SampleSorter
from jobreport.readers.system_samples.text import SoundFiles
from jobreport.readers.tally import Tally, most_frequent
from jobreport.remarks import SourceQuality
from jobreport.tables.forked import shared
from jobrules.measures.allowed_cores import with_allowed_cores
from jobrules.measures.snapshots import MOST_CELLS, Series, node_panels
from jobrules.model import SECOND_US, FloatArray, IntArray, Metric, Panel, natural_key, natural_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.system_samples.lines import Rows
    from jobreport.readers.system_samples.sorting import Part

_NAME = re.compile(r"[0-9]{10,}\.(?P<host>.+?)\.json(\.gz)?")
#: Suffix of PyTorch's profiler, whose file names can look like those of samples.
_NOT_OURS = ".pt.trace.json"
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_KEYS = {"Type", "Value", "Timestamp"}
#: Lines that show what a file holds.
_FIRST = 64

#: Node of samples without one, in a file without one in its name.
_NAMELESS = "node"
#: Of a metric and a node; more are damage or malice.
_MAX_DEVICES = 4096
#: Of what is not in percent; no machine comes near.
_MAX_VALUE = 1e15
#: Unknown sensors that a group of files names. The report names fewer, but those with most samples of all groups.
_MAX_UNKNOWN = 100
#: Files whose rows are taken together: enough to join many arrays at once, few enough to bound memory.
_BATCH_BYTES, _BATCH_FILES = 256 << 20, 4096
#: Between the folder of a job and its samples, as they are usually kept.
_FOLDERS = "/system/incremental/"


class SystemSamples:
    """Reads system samples.

    Each line that is not blank is a row: a sample in use, or counted in a remark. The text of damaged compressed data
    is what can be unpacked before the damage.
    """

    source = "system samples"
    looks_for = "samples of record-job or SageMaker Debugger (system/incremental/…/<time>.<host>.json)"
    memory = 0.2
    rows = "samples"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By ``<time>.<host>.json``."""
        name = file.own_name
        return _NOT_OURS not in name and _NAME.fullmatch(name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """By its first lines: at least as many samples as complete JSON of other kinds."""
        name = file.own_name
        return name.endswith(_SUFFIXES) and _NOT_OURS not in name and _begins_with_samples(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the node in the name."""
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            found[_host(file)].append(file)
        return found

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all samples into panels; the order of files and of lines does not matter."""
        files = sorted(files)
        samples, *others = shared(_samples_of, files, [file.text_size for file in files])
        for other in others:
            samples.add(other)
        return samples.found()


def _samples_of(files: Sequence[SourceFile]) -> _Samples:
    samples, sound = _Samples(files), SoundFiles()
    for batch in _batches(files):
        samples.read(batch, sound)
        progress.advance(sum(files[number].size for number in batch))
    return samples


def _batches(files: Sequence[SourceFile]) -> Iterator[list[int]]:
    """Numbers of files whose rows are taken together."""
    batch: list[int] = []
    total = 0
    for number, file in enumerate(files):
        if batch and (total + file.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
            yield batch
            batch, total = [], 0
        batch.append(number)
        total += file.size
    if batch:
        yield batch


def _begins_with_samples(file: SourceFile) -> bool:
    head = text_files.beginning(file.path)
    found = Counter(_is_sample(line) for line in head.split(b"\n", _FIRST)[:_FIRST] if line.strip())
    return found[True] > 0 and found[True] >= found[False]


def _is_sample(line: bytes) -> bool | None:
    """True for a sample, False for another object or one in a list, None for anything else."""
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


class _Samples:
    """Samples on their way from rows to panels."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.files = [*files]
        self.tally = Tally()
        self._parts: defaultdict[str, defaultdict[tuple[Metric, str], list[Part]]]
        self._parts = defaultdict(partial(defaultdict, list))
        #: Files that gave a sample.
        self._used = 0

    def read(self, batch: Sequence[int], sound_files: SoundFiles) -> None:
        """Read some files, given by their numbers: sound ones by arrays over their bytes, others line by line."""
        rows: list[Rows] = []
        for number in batch:
            sound = sound_files.rows(number, self.files[number].path)
            rows += lines.rows(number, self.files[number], self.tally) if sound is None else sound
        self._take(rows)

    def add(self, other: _Samples) -> None:
        """Add the samples of other files, which come after these."""
        self.files += other.files
        self.tally.add(other.tally)
        self._used += other._used
        for node, series in other._parts.items():
            for known, parts in series.items():
                self._parts[node][known] += parts

    def _take(self, rows: list[Rows]) -> None:
        groups: defaultdict[tuple[str, str, str, str], list[Rows]] = defaultdict(list)
        for row in rows:
            key = (
                as_name(row.node or _host(self.files[row.file])),
                row.type,
                row.dimension or "",
                row.name or "",
            )
            groups[key].append(row)
        clock, used = _Clock(), set[int]()
        for (node, *names), group in sorted(groups.items(), key=lambda item: item[0]):
            if (known := sensor(*names)) is None:
                label = as_name(" ".join(filter(None, names)))
                for row in group:
                    file = self.files[row.file].name
                    self.tally.note("samples.unknown", count=len(row.values), file=file, name=label)
            else:
                seconds, values = _joined(group)
                used.update(row.file for row in group)
                self._note_first_outside(known[0], values, group)
                self._parts[node][known].append((clock.microseconds(seconds), values))
        self._used += len(used)

    def found(self) -> Found:
        """The panels of all samples, and what was left out."""
        self._note_folders()
        panels: list[Panel] = []
        samples = 0
        for node in natural_sorted(set(self._parts)):
            series = self._series(self._parts.pop(node))
            made = node_panels(node, series)
            samples += sum(len(one.values) for one in series) - made.surplus - made.sparse
            panels += with_allowed_cores(made.panels)
            self.tally.note("samples.second", count=made.surplus)
            self.tally.note("samples.sparse", count=made.sparse, devices=MOST_CELLS)
        quality = SourceQuality(
            source=SystemSamples.source,
            files=self._used,
            rows=samples,
            remarks=most_frequent(self.tally.remarks(), _MAX_UNKNOWN),
        )
        return Found(quality=quality, panels=tuple(panels), finished=False if panels else None)

    def _series(self, parts: dict[tuple[Metric, str], list[Part]]) -> list[Series]:
        series: list[Series] = []
        devices: Counter[Metric] = Counter()
        sorter = SampleSorter()
        for metric, device in sorted(parts, key=lambda key: (key[0], natural_key(key[1]))):
            time_us, values, repeated = sorter.sorted(parts.pop((metric, device)))
            self.tally.note("samples.repeated", count=repeated)
            devices[metric] += 1
            limit = MAX_GPUS if metric.of_gpus else _MAX_DEVICES
            if devices[metric] > limit:
                self.tally.note("samples.devices", count=len(values), limit=limit)
                continue
            lowest, highest = _bounds(metric)
            if values.min() < lowest or values.max() > highest:
                outside = int(np.count_nonzero((values < lowest) | (values > highest)))
                self.tally.note(_outside(metric), count=outside)
                values = np.clip(values, lowest, highest)
            series.append(Series(metric=metric, device=device, time_us=time_us, values=values))
        return series

    def _note_first_outside(self, metric: Metric, values: FloatArray, group: list[Rows]) -> None:
        """Note the first file with a value to correct; how many there are is counted without repetitions."""
        lowest, highest = _bounds(metric)
        if values.min() < lowest or values.max() > highest:
            first = next(row for row in group if row.values.min() < lowest or row.values.max() > highest)
            self.tally.place(_outside(metric), self.files[first.file].name)

    def _note_folders(self) -> None:
        """Remark on nodes that two jobs may have in common: they are read as one."""
        folders: defaultdict[str, dict[str, SourceFile]] = defaultdict(dict)
        for file in self.files:
            folder, is_there, _ = f"/{file.name}".partition(_FOLDERS)
            if is_there:
                folders[_host(file)].setdefault(folder, file)
        for found in folders.values():
            if len(found) > 1:
                second = sorted(found.values())[1]
                self.tally.note("samples.jobs", file=second.name)


class _Clock:
    """Seconds to whole microseconds; keeps the last ones, which neighboring sensors share."""

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
    return 0.0, 100.0 if metric.unit == "%" else _MAX_VALUE


def _outside(metric: Metric) -> str:
    """Code of the remark on values outside the bounds."""
    return "samples.percent" if metric.unit == "%" else "samples.value"
