"""The rule results that the vendor's own service left behind: one JSON document a rule.

Counters, parameters and ``Details`` as the vendor's schema has them. Everything may be missing or of
a wrong type: a missing value is none, a wrong one is none and counted. Keys that are not known are
ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Struct

from jobreport.readers.sensors import as_name
from jobreport.readers.tally import Tally
from jobreport.readers.text_files import DamagedError, chunks
from jobreport.remarks import SourceQuality
from jobrules.model import SECOND_US
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from jobreport.readers.base import SourceFile

#: The vendor's rules, in the order of the report.
NAMES = (
    "CPUBottleneck",
    "IOBottleneck",
    "LowGPUUtilization",
    "StepOutlier",
    "GPUMemoryIncrease",
    "BatchSize",
    "MaxInitializationTime",
    "LoadBalancing",
    "Dataloader",
    "OverallSystemUsage",
    "OverallFrameworkMetrics",
)
SOURCE = "rule results of the vendor"
LOOKS_FOR = "the vendor's rule results (profiler-reports/*.json)"

#: A result holds a line for each bottleneck, about 70 bytes; no job has a million of them.
_LARGEST = 64 << 20
#: Result folders carry the time at which they were begun.
_RUN = re.compile(r"(?:^|/)ProfilerReport-([0-9]{1,18})(?=/)")
#: Seconds of a year up to 9999.
_TIME = re.compile(r"[0-9]{1,11}(\.[0-9]{1,12})?")
_MOST_PARAMETERS = 100
#: The schema has six levels. A report writes a result again with an indent for each, so that deep ones would grow.
_DEEPEST = 16
_KEYS = ("RuleTriggered", "Violations", "Datapoints", "Details", "RuleParameters")
#: No job lasts longer.
LONGEST_S = 366 * 86400

_Number = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15, description="bytes a second")]
_Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
#: What is set to the nearer bound, as a sample is: bounds and words.
_CLAMPED = {
    kind: told
    for name, told in (
        (_Percent, (0.0, 100.0, "percentage outside 0 to 100, set to the nearer bound")),
        (_Rate, (0.0, 1e15, "rate outside 0 to 10^15, set to the nearer bound")),
    )
    for kind in (name, name | None)
}
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
#: The years 1970 to 9999, which are what can be printed.
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=253402300799)]
_Micros = Annotated[int, msgspec.Meta(gt=0, le=253402300799 * SECOND_US)]


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU under LowGPUUtilization: the window of the last trigger, and the history until then."""

    gpu_max: _Percent | None = None
    gpu_95: _Percent | None = None
    gpu_5: _Percent | None = None
    p25: _Percent | None = None
    p50: _Percent | None = None
    p75: _Percent | None = None
    p95: _Percent | None = None
    upper: _Percent | None = None
    lower: _Percent | None = None


class GpuMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU under GPUMemoryIncrease: the last increase, in points, and the history until then."""

    increase: _Number | None = None
    gpu_max: _Percent | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a node over the whole job; a table needs all of it."""

    min: _Rate
    p50: _Rate
    p95: _Rate
    p99: _Rate
    max: _Rate


class PercentUsage(Usage, frozen=True, kw_only=True):
    """The same, of a metric in percent."""

    min: _Percent
    p50: _Percent
    p95: _Percent
    p99: _Percent
    max: _Percent


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of steps in seconds."""

    mean: _Amount | None = None
    p50: _Amount | None = None
    max: _Amount | None = None


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The one phase of a worker that StepOutlier kept."""

    step_stats: StepStats = StepStats()
    number_of_outliers: _Count | None = None
    phase: str = ""
    #: A step that lies in several scans is listed in each.
    step_numbers: tuple[str, ...] = ()


class Loader(msgspec.Struct, frozen=True, kw_only=True):
    """The last data loader that was set up, and how many processes loaded at a time."""

    cores: _Count | None = None
    dataloaders: _Count | None = None
    num_workers: _Count | None = None
    pin_memory: bool | None = None


class JobTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the first and the last sample."""

    job_start: _Seconds | None = None
    job_end: _Seconds | None = None


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds at which the first and the last step began."""

    first: _Micros | None = None
    last: _Micros | None = None


class Bottlenecks(Struct, frozen=True, kw_only=True):
    """Snapshots in which a GPU idled, and those of them with the cause that the rule looks for."""

    low: int | None = None
    count: int = 0
    first_us: int | None = None
    last_us: int | None = None


class RuleDocument(Struct, frozen=True, kw_only=True, eq=False):
    """One rule's result."""

    rule: str
    file: str
    triggered: int | None
    violations: int | None
    datapoints: int | None
    #: The thresholds in force, by name, as written.
    parameters: dict[str, str]
    #: The document as it was read, fit to be written again.
    raw: dict[str, Any]


class RuleResults(Struct, frozen=True, kw_only=True, eq=False):
    """All results of one run of the vendor's service."""

    documents: tuple[RuleDocument, ...] = ()
    start_us: int | None = None
    end_us: int | None = None
    first_step_us: int | None = None
    last_step_us: int | None = None
    low_gpu: dict[tuple[str, str], GpuUse]
    low_gpu_last_us: int | None = None
    memory: dict[tuple[str, str], GpuMemory]
    memory_last_us: int | None = None
    #: GPUs (node, name) that were little used together with CPU and memory.
    small_batch: tuple[tuple[str, str], ...] = ()
    #: GPU → samples in 49 bins from 0 to 98 %.
    workloads: dict[tuple[str, str], tuple[int, ...]]
    #: Metric → node → distribution.
    usage: dict[str, dict[str, Usage]]
    bottlenecks: dict[str, Bottlenecks]
    #: Worker → series.
    steps: dict[str, StepSeries]
    loader: Loader
    #: Phase → percent.
    phases: dict[str, float]
    quality: SourceQuality

    def __getitem__(self, rule: str) -> RuleDocument | None:
        """The result of a rule, if there is one that could be read."""
        return next((one for one in self.documents if one.rule == rule), None)


def matches_content(file: SourceFile) -> bool:
    """Whether the file is named like a rule result, or lies where these lie."""
    *folders, name = file.name.split("/")
    stem, dot, ending = name.partition(".")
    return (
        bool(dot) and ending in ("json", "json.gz") and (stem in NAMES or "profiler-reports" in folders[-1:])
    )


def read(files: Sequence[SourceFile]) -> RuleResults:
    """The results of the newest run; what is damaged, older or not a result is counted."""
    tally = Tally()
    runs: defaultdict[int, dict[str, RuleDocument]] = defaultdict(dict)
    for file in sorted(files):
        document = _document(file, tally)
        if document is None:
            continue
        run = runs[max(map(int, _RUN.findall(file.name)), default=-1)]
        if document.rule in run:
            reason = f"a second result of {document.rule}; the first by name is used"
            tally.add("skipped", "files", reason, file=file.name)
        else:
            run[document.rule] = document
    newest = max(runs, default=-1)
    for number, documents in runs.items():
        if number != newest:
            first = min(one.file for one in documents.values())
            reason = f"of another run than the newest, ProfilerReport-{newest}"
            tally.add("skipped", "files", reason, count=len(documents), file=first)
    chosen = runs.get(newest, {})
    return decoded(tuple(chosen[name] for name in NAMES if name in chosen), tally)


def _document(file: SourceFile, tally: Tally) -> RuleDocument | None:
    rule = file.name.rpartition("/")[2].partition(".")[0]
    if rule not in NAMES:
        tally.add("skipped", "files", "not the result of a rule that is known", file=file.name)
        return None
    try:
        raw, not_finite = _result(_text(file.path))
    except ValueError as error:
        tally.add("skipped", "files", str(error), file=file.name)
        return None
    tally.add("dropped", "values", "value is NaN or infinite", count=not_finite, file=file.name)
    counters = {}
    for key in _KEYS[:3]:
        counters[key] = _converted(raw.get(key), _Count, tally, file.name)
    written = raw.get("RuleParameters")
    lines = written.split("\n") if isinstance(written, str) else []
    left = len(lines[_MOST_PARAMETERS:])
    tally.add(
        "skipped", "lines", f"parameters behind the first {_MOST_PARAMETERS}", count=left, file=file.name
    )
    named = (line.partition(":") for line in lines[:_MOST_PARAMETERS])
    return RuleDocument(
        rule=rule,
        file=file.name,
        triggered=counters["RuleTriggered"],
        violations=counters["Violations"],
        datapoints=counters["Datapoints"],
        parameters={
            escape_name(name.strip()): escape_name(value.strip()) for name, colon, value in named if colon
        },
        raw=raw,
    )


def _text(path: Path) -> bytes:
    """The text of a file; ``ValueError`` says why there is none."""
    parts, size = [], 0
    try:
        for chunk in chunks(path):
            size += len(chunk)
            if size > _LARGEST:
                raise ValueError(f"larger than {_LARGEST >> 20} MiB")
            parts.append(chunk)
    except OSError as error:
        raise ValueError(f"cannot be opened: {error.strerror}") from error
    except DamagedError as error:
        raise ValueError("compressed data is damaged") from error
    return b"".join(parts)


def _result(text: bytes) -> tuple[dict[str, Any], int]:
    """A rule result as JSON, and how many values were NaN or infinite and are none, as JSON has none.

    ``ValueError`` says what it is instead.
    """
    not_finite: list[float] = []
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        try:
            value = _clean(json.loads(text), not_finite)
        except (ValueError, RecursionError) as error:
            raise ValueError("not a complete JSON document") from error
    if not isinstance(value, dict) or not any(key in value for key in _KEYS):
        raise ValueError("JSON, but not a rule result")
    if _is_deep(value):
        raise ValueError("nested too deeply")
    if "Status" in value and "Origin" not in value:
        raise ValueError("a rule result that jobreport wrote itself")
    return value, len(not_finite)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        below = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for several in below for one in several if isinstance(one, dict | list)]
    return bool(level)


def _clean(value: Any, not_finite: list[float]) -> Any:
    """Without what Python reads and JSON does not have: NaN and infinity, which are noted, halves of characters."""
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(value)
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_clean(one, not_finite) for one in value]
    if isinstance(value, dict):
        return {_clean(key, not_finite): _clean(one, not_finite) for key, one in value.items()}
    return value


T = TypeVar("T")


def _converted(value: Any, kind: Any, tally: Tally, file: str) -> Any:
    """A value in its type; none where it is missing, or is of another type or out of range, which is counted.

    Of an object each field is converted alone, and one without a field that it needs is none.
    """
    if value is None:
        return None
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = {
            one.name: converted
            for one in msgspec.structs.fields(kind)
            if (converted := _converted(value.get(one.name), one.type, tally, file)) is not None
        }
        try:
            return kind(**known)
        except TypeError:
            tally.add("dropped", "values", "lacks a figure", file=file)
            return None
    if kind in _CLAMPED and type(value) in (int, float):
        lowest, highest, reason = _CLAMPED[kind]
        if not lowest <= value <= highest:
            tally.add("corrected", "values", reason, file=file)
        value = min(max(value, lowest), highest)
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        tally.add("dropped", "values", "of another type or range than the schema's", file=file)
        return None


def _mapping(value: Any, tally: Tally, file: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    _converted(value, dict[str, Any], tally, file)
    return {}


def decoded(documents: tuple[RuleDocument, ...], tally: Tally) -> RuleResults:
    """What the documents say; what is of a wrong type is counted."""
    details = {d.rule: _mapping(d.raw.get("Details"), tally, d.file) for d in documents}
    files = {d.rule: d.file for d in documents}

    def one(rule: str, key: str | None, kind: type[T]) -> T | None:
        found = details.get(rule, {})
        value = found if key is None else found.get(key)
        converted: T | None = _converted(value, kind, tally, files.get(rule, ""))
        return converted

    def of_gpus(rule: str, kind: Any, inner: str | None = None) -> dict[tuple[str, str], Any]:
        """What is said of each GPU that a rule names, be it nothing that can be read."""
        pairs = _pairs(details.get(rule, {}), inner, tally, files.get(rule, ""))
        return {
            (node, device): _converted(value, kind, tally, files[rule]) or kind()
            for node, device, value in pairs
        }

    times = one("MaxInitializationTime", None, JobTimes) or JobTimes()
    step_times = one("MaxInitializationTime", "step_num", StepTimes) or StepTimes()
    start_us, end_us = _micros(times.job_start), _micros(times.job_end)
    if start_us is not None and end_us is not None and not 0 <= end_us - start_us <= LONGEST_S * SECOND_US:
        tally.add(
            "dropped", "values", "job start and end that do not fit", file=files["MaxInitializationTime"]
        )
        start_us = end_us = None
    usage: dict[str, dict[str, Usage]] = {}
    for metric, node, value in _pairs(
        details.get("OverallSystemUsage", {}), None, tally, files.get("OverallSystemUsage", "")
    ):
        # A node on which nothing of the kind was sampled stands there with nothing in it.
        kind = Usage if metric == "Network" else PercentUsage
        distribution = _converted(value or None, kind, tally, files["OverallSystemUsage"])
        if distribution is not None:
            usage.setdefault(metric, {})[node] = distribution
    steps = {}
    for worker, value in _mapping(
        details.get("StepOutlier", {}).get("step_details"), tally, files.get("StepOutlier", "")
    ).items():
        series = _converted(value, StepSeries, tally, files["StepOutlier"])
        if series is not None:
            steps[worker] = series
    phases = {}
    for phase, value in _mapping(
        details.get("OverallFrameworkMetrics", {}).get("phase"),
        tally,
        files.get("OverallFrameworkMetrics", ""),
    ).items():
        percent = _converted(value, _Number, tally, files["OverallFrameworkMetrics"])
        if percent is not None:
            phases[phase] = percent
    batch = of_gpus("BatchSize", dict[str, Any])
    workloads = of_gpus("LoadBalancing", tuple[_Count, ...], "workloads")
    return RuleResults(
        documents=documents,
        start_us=start_us,
        end_us=end_us,
        first_step_us=step_times.first,
        last_step_us=step_times.last,
        low_gpu=of_gpus("LowGPUUtilization", GpuUse),
        low_gpu_last_us=one("LowGPUUtilization", "last_timestamp", _Micros),
        memory=of_gpus("GPUMemoryIncrease", GpuMemory),
        memory_last_us=one("GPUMemoryIncrease", "last_timestamp", _Micros),
        small_batch=tuple((n, d) for n, d in batch if d != "cpu" and not d.endswith("_memory")),
        workloads={gpu: bins for gpu, bins in workloads.items() if bins},
        usage=usage,
        bottlenecks={
            rule: _bottlenecks(details[rule], tally, files[rule])
            for rule in ("CPUBottleneck", "IOBottleneck")
            if rule in details
        },
        steps=steps,
        loader=one("Dataloader", None, Loader) or Loader(),
        phases=phases,
        quality=SourceQuality(
            source=SOURCE,
            files=len(documents),
            rows=len(documents),
            remarks=tally.remarks(),
        ),
    )


def _pairs(
    details: Mapping[str, Any], inner: str | None, tally: Tally, file: str
) -> Iterator[tuple[str, str, Any]]:
    """``{a: {b: value}}``, or ``{a: {inner: {b: value}}}``, as rows; the names as those of samples are."""
    for outer, held in details.items():
        if outer == "last_timestamp":
            continue
        entries = _mapping(held, tally, file)
        if inner is not None:
            entries = _mapping(entries.get(inner), tally, file)
        for name, value in entries.items():
            yield as_name(outer), as_name(name), value


def _bottlenecks(details: Mapping[str, Any], tally: Tally, file: str) -> Bottlenecks:
    """Times as keys: in ``bottlenecks``, in files of 2020 beside ``low_gpu_utilization``."""
    held = _mapping(details.get("bottlenecks", details), tally, file)
    times = [seconds for key in held if _TIME.fullmatch(key) and (seconds := float(key)) > 0]
    if held is not details:
        tally.add("dropped", "values", "bottleneck without a time", count=len(held) - len(times), file=file)
    return Bottlenecks(
        low=_converted(details.get("low_gpu_utilization"), _Count, tally, file),
        count=len(times),
        first_us=_micros(min(times, default=None)),
        last_us=_micros(max(times, default=None)),
    )


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_US)
