"""Rule results of SageMaker Debugger: one JSON document per rule, with counters, parameters and ``Details``."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from jobreport.readers.bounds import Microseconds
from jobreport.readers.debugger_results.details import (
    GPU,
    Bins,
    BottleneckEntry,
    Count,
    GpuMemory,
    GpuUse,
    JobTimes,
    Loader,
    PercentUsage,
    Signed,
    StepSeries,
    Table,
    Usage,
    Workloads,
)
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally, UnusableError
from jobreport.readers.text_files import content, noting
from jobreport.remarks import SourceQuality
from jobrules.model import SECOND_US
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.model import IntArray

#: The rules of SageMaker Debugger, in the order of the report.
NAMES = (
    "CPUBottleneck",
    "IOBottleneck",
    "LowGPUUtilization",
    "StepOutlier",
    "GPUMemoryIncrease",
    "BatchSize",
    "MaxInitializationTime",
    "LoadBalancing",
    "OverallSystemUsage",
    "Dataloader",
    "OverallFrameworkMetrics",
)
SOURCE = "rule results of SageMaker Debugger"
LOOKS_FOR = "SageMaker Debugger's rule results (profiler-reports/*.json)"

#: A bottleneck takes about 70 bytes; no job has a million of them.
_MAX_BYTES = 64 << 20
#: Levels of JSON. The format has six; a report writes the document with an indent per level.
_MAX_DEPTH = 16
#: The folder of a run carries the time at which the run began.
_RUN = re.compile(r"(?:^|/)ProfilerReport-([0-9]{1,18})(?=/)")
#: A key that is a time in seconds.
_TIME = re.compile(r"[1-9][0-9]{8,10}(\.[0-9]{1,12})?")
#: ``name:value``; each becomes a row on the page.
_Parameters = Annotated[list[str], Meta(max_length=100)]
_KEYS = {"RuleTriggered", "Violations", "Datapoints", "Details", "RuleParameters"}


class _Counters(Struct, frozen=True, rename="pascal"):
    rule_triggered: Count | None = None
    violations: Count | None = None
    datapoints: Count | None = None


class Bottlenecks(Struct, frozen=True, kw_only=True, eq=False):
    """Snapshots with an idle GPU, and those of them with the cause that the rule looks for."""

    low: int | None = None
    #: (n,) of each bottleneck, in the order of time: when, idle GPUs, and cores that count.
    time_us: IntArray
    gpus: IntArray
    cores: IntArray

    @property
    def count(self) -> int:
        """How many bottlenecks."""
        return len(self.time_us)

    @property
    def first_us(self) -> int | None:
        """When the first was; None without any."""
        return int(self.time_us[0]) if self.count else None

    @property
    def last_us(self) -> int | None:
        """When the last was; None without any."""
        return int(self.time_us[-1]) if self.count else None


class RuleDocument(Struct, frozen=True, kw_only=True, eq=False):
    """Result of one rule."""

    rule: str
    file: str
    triggered: int | None
    violations: int | None
    datapoints: int | None
    #: Parameter → value, as written.
    parameters: dict[str, str]
    #: The document as it was read, fit to be written again.
    raw: dict[str, Any]


class RuleResults(Struct, frozen=True, kw_only=True, eq=False):
    """All results of one run of SageMaker Debugger's rules."""

    documents: tuple[RuleDocument, ...] = ()
    start_us: int | None = None
    end_us: int | None = None
    first_step_us: int | None = None
    last_step_us: int | None = None
    low_gpu: dict[GPU, GpuUse]
    low_gpu_last_us: int | None = None
    memory: dict[GPU, GpuMemory]
    memory_last_us: int | None = None
    #: GPUs on which CPU, GPU, and GPU memory activity were low together.
    small_batch: tuple[GPU, ...] = ()
    #: Histograms of GPU utilization.
    workloads: dict[GPU, Bins]
    #: Metric → node → distribution.
    usage: dict[str, dict[str, Usage]]
    bottlenecks: dict[str, Bottlenecks]
    #: Rank → steps.
    steps: dict[str, StepSeries]
    loader: Loader
    #: Mode or event type → percent of the time.
    phases: dict[str, float]
    quality: SourceQuality

    def __getitem__(self, rule: str) -> RuleDocument | None:
        """Result of a rule, if there is one that could be read."""
        return next((one for one in self.documents if one.rule == rule), None)


def matches_content(file: SourceFile) -> bool:
    """Whether the file is named like a rule result, or lies in the folder of rule results."""
    *folders, name = file.name.split("/")
    stem, dot, ending = name.partition(".")
    return (
        bool(dot) and ending in ("json", "json.gz") and (stem in NAMES or "profiler-reports" in folders[-1:])
    )


def read(files: Sequence[SourceFile]) -> RuleResults:
    """Read the results of the newest run; count files that are damaged, older, or no result."""
    tally = Tally()
    runs: defaultdict[int, dict[str, RuleDocument]] = defaultdict(dict)
    for file in sorted(files):
        with noting(file, tally):
            document = _document(file, tally)
            run = runs[max(map(int, _RUN.findall(file.name)), default=-1)]
            if run.setdefault(document.rule, document) is not document:
                tally.note("debugger.second", file=file.name, rule=document.rule)
    newest = max(runs, default=-1)
    chosen = runs.pop(newest, {})
    for older in runs.values():
        for document in older.values():
            tally.note("debugger.older_run", file=document.file, run=newest)
    return decoded(tuple(chosen[name] for name in NAMES if name in chosen), tally)


def decoded(documents: tuple[RuleDocument, ...], tally: Tally) -> RuleResults:
    """Decode the ``Details`` of the documents; count values that cannot be used."""
    details = {name: Table(None, tally, None) for name in NAMES}
    details |= {one.rule: Table(one.raw.get("Details"), tally, one.file) for one in documents}
    times = details["MaxInitializationTime"].whole(JobTimes)
    low_gpu, memory = details["LowGPUUtilization"], details["GPUMemoryIncrease"]
    return RuleResults(
        documents=documents,
        start_us=_micros(times.job_start),
        end_us=_micros(times.job_end),
        first_step_us=times.step_num.first,
        last_step_us=times.step_num.last,
        low_gpu=low_gpu.of_gpus(GpuUse),
        low_gpu_last_us=low_gpu.get("last_timestamp", Microseconds),
        memory=memory.of_gpus(GpuMemory),
        memory_last_us=memory.get("last_timestamp", Microseconds),
        small_batch=_small_batch(details["BatchSize"]),
        workloads=_workloads(details["LoadBalancing"]),
        usage=_usage(details["OverallSystemUsage"]),
        bottlenecks={rule: _bottlenecks(details[rule]) for rule in ("CPUBottleneck", "IOBottleneck")},
        steps=details["StepOutlier"].each("step_details", StepSeries),
        loader=details["Dataloader"].whole(Loader),
        phases=details["OverallFrameworkMetrics"].each("phase", Signed),
        quality=SourceQuality(
            source=SOURCE, files=len(documents), rows=len(documents), remarks=tally.remarks()
        ),
    )


def _small_batch(details: Table) -> tuple[GPU, ...]:
    """The GPUs among the devices, which are CPUs and the memory of GPUs, too."""
    devices = details.of_gpus(dict[str, Any])
    return tuple(gpu for gpu in devices if gpu[1] != "cpu" and not gpu[1].endswith("_memory"))


def _workloads(details: Table) -> dict[GPU, Bins]:
    return {
        (as_name(node), as_name(device)): bins
        for node, found in details.entries(details.values, Workloads).items()
        for device, bins in found.workloads.items()
    }


def _usage(details: Table) -> dict[str, dict[str, Usage]]:
    usage: dict[str, dict[str, Usage]] = {}
    for metric, value in details.values.items():
        # A node without samples of the metric has an empty entry.
        sampled = {as_name(node): one for node, one in details.mapping(value).items() if one}
        usage[metric] = details.entries(sampled, Usage if metric == "Network" else PercentUsage)
    return usage


def _bottlenecks(details: Table) -> Bottlenecks:
    """Bottlenecks, whose times are keys of ``bottlenecks``, or in files of 2020 of ``Details`` itself."""
    by_time = details.mapping(details.values.get("bottlenecks", details.values))
    found = sorted(
        (round(float(key) * SECOND_US), details.typed(value, BottleneckEntry) or BottleneckEntry())
        for key, value in by_time.items()
        if _TIME.fullmatch(key)
    )
    return Bottlenecks(
        low=details.get("low_gpu_utilization", Count),
        time_us=np.array([us for us, _ in found], np.int64),
        gpus=np.array([entry.gpus for _, entry in found], np.int64),
        cores=np.array([entry.cores for _, entry in found], np.int64),
    )


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_US)


# Files


def _document(file: SourceFile, tally: Tally) -> RuleDocument:
    rule = file.name.rpartition("/")[2].partition(".")[0]
    if rule not in NAMES:
        raise UnusableError("debugger.no_result")
    raw, not_finite = _json(content(file.path, _MAX_BYTES))
    if not isinstance(raw, dict) or not raw.keys() & _KEYS:
        raise UnusableError("debugger.no_result")
    if _is_deep(raw):
        raise UnusableError("debugger.no_result")
    if "Status" in raw and "Origin" not in raw:
        raise UnusableError("debugger.own")
    tally.note("debugger.value", count=not_finite, file=file.name)
    table = Table(raw, tally, file.name)
    counters = table.typed(raw, _Counters) or _Counters()
    lines = (table.get("RuleParameters", str) or "").split("\n")
    named = (line.partition(":") for line in table.typed(lines, _Parameters) or ())
    return RuleDocument(
        rule=rule,
        file=file.name,
        triggered=counters.rule_triggered,
        violations=counters.violations,
        datapoints=counters.datapoints,
        parameters={
            escape_name(name.strip()): escape_name(value.strip()) for name, colon, value in named if colon
        },
        raw=raw,
    )


def _json(text: bytes) -> tuple[Any, int]:
    """Decode JSON as Python writes it: with NaN and infinity, which become None and are counted."""
    not_finite: list[str] = []
    try:
        try:
            return msgspec.json.decode(text), 0
        except msgspec.DecodeError:
            value = json.loads(text, parse_constant=not_finite.append)
            # Python reads halves of characters, which no JSON can hold.
            sound = json.dumps(value, ensure_ascii=False).encode(errors="replace")
            return msgspec.json.decode(sound), len(not_finite)
    except (ValueError, RecursionError) as error:
        raise UnusableError("file.not_json") from error


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        below = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for several in below for one in several if isinstance(one, dict | list)]
    return bool(level)
