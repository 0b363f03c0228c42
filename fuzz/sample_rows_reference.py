"""How many system samples stand in files, and how many of them are kept, by a reader that is slow and easy to check.

A *row* is a line that is not blank: JSON or not, sample or not. The text of damaged compressed data is what can be
unpacked before the damage. A row is *kept* if it is a sample of a known sensor, with a finite value and a time between
1990 and 2100, unless it

* lies more than 30 days from most of the samples of its node;
* is not the first of its device in 20 ms, or the same as another.

Nothing here is taken from the reader.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST = re.compile(r"[0-9]{10,}\.(?P<host>.+?)\.json(\.gz)?")
_LONGEST_LINE = 4 << 20
_MOMENT_US = 20_000
_FAR_US = 30 * 24 * 3600 * 1_000_000
#: Type and dimension of sensors that measure a device each; type, dimension and name of those of a node.
_OF_DEVICES = {
    ("cpu", "CPUUtilization"),
    ("cpu", "I/OWaitPercentage"),
    ("gpu", "GPUUtilization"),
    ("gpu", "GPUMemoryUtilization"),
    ("gpu", "GPUMemoryUsedInBytes"),
    ("gpu", "GPUMemoryTotalInBytes"),
    ("gpu", "PowerInWatts"),
    ("gpu", "PowerLimitInWatts"),
    ("gpu", "EnergyInJoules"),
    ("gpu", "TemperatureInCelsius"),
    ("gpu", "SMClockInMHz"),
    ("gpu", "ThermalSlowdownPercentage"),
    ("gpu", "PowerCapPercentage"),
    ("gpu", "HardwareSlowdownPercentage"),
    ("gpu", "ECCCorrected"),
    ("gpu", "ECCUncorrected"),
    ("gpu", "SMActivePercentage"),
    ("gpu", "TensorActivePercentage"),
    ("gpu", "DRAMActivePercentage"),
    ("process", "CPUUtilization"),
    ("process", "ResidentBytes"),
    ("process", "Threads"),
    ("disk", "FreeBytes"),
}
_OF_NODES = {
    ("memory", "", "MemoryUsedPercent"),
    ("network", "Algorithm", "ReceiveBytesPerSecond"),
    ("network", "Algorithm", "TransmitBytesPerSecond"),
    ("network", "Platform", "ReceiveBytesPerSecond"),
    ("network", "Platform", "TransmitBytesPerSecond"),
    ("i/o", "", "IOPS"),
    ("i/o", "", "ReadThroughputInBytesPerSecond"),
    ("i/o", "", "WriteThroughputInBytesPerSecond"),
    ("memory", "", "MemoryUsedInBytes"),
    ("memory", "", "MemoryTotalInBytes"),
    ("memory", "", "SwapUsedInBytes"),
    ("network", "RDMA", "ReceiveBytesPerSecond"),
    ("network", "RDMA", "TransmitBytesPerSecond"),
    ("container", "", "CPUUsedCores"),
    ("container", "", "CPULimitCores"),
    ("container", "", "CPUThrottledPercentage"),
    ("container", "", "OOMKills"),
    ("pressure", "SomePercentage", "CPU"),
    ("pressure", "SomePercentage", "IO"),
    ("pressure", "SomePercentage", "Memory"),
}


class Rows(NamedTuple):
    """What a careful reader finds in files."""

    #: Rows in the files.
    rows: int
    #: Those that must be in use.
    kept: int


class Sample(NamedTuple):
    """A sample of a known sensor."""

    node: str
    time_us: int
    #: Type and dimension with a device, or type, dimension and name.
    sensor: tuple[str, str, str]
    value: float


def rows(files: Mapping[str, bytes], *, with_far: bool = False) -> Rows:
    """Of all files of system samples of a job, by their paths; ``with_far`` keeps samples with any time."""
    many = 0
    found: list[Sample] = []
    for name, content in files.items():
        for line in unpacked(content).removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            if line.strip(b" \t\r"):
                many += 1
                one = sample_of(line, name)
                if one:
                    found.append(one)
    return Rows(many, _kept(set(found), with_far=with_far))


def unpacked(content: bytes) -> bytes:
    """The text of a file, and of one whose compressed data is damaged what stands in front of the damage."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    text = []
    while content:
        unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            text.append(unzip.copy().decompress(content))
            unzip.decompress(content)
        except zlib.error:
            # A byte at a time: what makes a call fail costs all that the call has unpacked.
            for at in range(len(content)):
                try:
                    text.append(unzip.decompress(content[at : at + 1]))
                except zlib.error:
                    break
            break
        content = unzip.unused_data.lstrip(b"\0")
    return b"".join(text)


def sample_of(line: bytes, file: str) -> Sample | None:
    """The sample in a line of a file; None if there is none."""
    try:
        row = json.loads(line.decode())
        seconds, value = _number(row["Timestamp"]), _number(row["Value"])
        names = [_text(row.get(key)) for key in ("Type", "Dimension", "Name")]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    if row.get("Type") is None or not 631_152_000 <= seconds <= 4_102_444_800 or not math.isfinite(value):
        return None
    node = _text(row.get("NodeId")) or _host(file)
    known = _sensor(*names)
    if known is None or len(line) > _LONGEST_LINE:
        return None
    return Sample(node, round(seconds * 1e6), known, value)


def _sensor(kind: str, dimension: str, name: str) -> tuple[str, str, str] | None:
    if (kind, dimension) in _OF_DEVICES:
        return kind, dimension, name or kind
    # Memory needs no name.
    known = kind, dimension, name or ("MemoryUsedPercent" if kind == "memory" else "")
    return known if known in _OF_NODES else None


def _host(file: str) -> str:
    match = _HOST.fullmatch(file.rpartition("/")[2])
    return match["host"] if match else "node"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | float | int):
        raise TypeError
    return float(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _kept(found: set[Sample], *, with_far: bool) -> int:
    """How many samples are in use: of a device's samples at one moment the first is, and there the smallest."""
    kept = 0
    for moments in moments_of(found).values():
        used = [
            time
            for moment in moments
            for time in {one.sensor: one.time_us for one in reversed(moment)}.values()
        ]
        first, last = _near(Counter(used))
        kept += sum(with_far or first - _FAR_US <= time <= last + _FAR_US for time in used)
    return kept


def moments_of(found: set[Sample]) -> dict[str, list[list[Sample]]]:
    """Samples of each node by the moments at which they were taken, in order of time, then value."""
    moments: defaultdict[str, list[list[Sample]]] = defaultdict(list)
    for one in sorted(found, key=lambda one: (one.time_us, one.value)):
        own = moments[one.node]
        if not own or one.time_us - own[-1][0].time_us > _MOMENT_US:
            own.append([])
        own[-1].append(one)
    return moments


def _near(times: Counter[int]) -> tuple[int, int]:
    """First and last time of the most samples without a gap of 30 days; of equally many the last ones."""
    spans: list[tuple[int, int, int]] = []
    for time, many in sorted(times.items()):
        if spans and time - spans[-1][1] <= _FAR_US:
            first, _, before = spans.pop()
            spans.append((first, time, before + many))
        else:
            spans.append((time, time, many))
    first, last, _ = max(spans, key=lambda span: (span[2], span[0]))
    return first, last
