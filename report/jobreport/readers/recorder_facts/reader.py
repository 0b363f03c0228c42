"""Facts about the recording of each node: ``jobrecord/<node>.json``, which record-job rewrites every minute.

The command line, if it is kept, is in ``jobrecord/<node>.command.json``, which others than its owner may not read.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, field
from msgspec.structs import replace

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.bounds import Microseconds  # noqa: TC001 - msgspec reads the annotation
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally, UnusableError
from jobreport.recordings import (
    GPUModel,
    Label,
    LeftOut,
    LessWritten,
    Raised,
    RecordedPart,
    RecordedRun,
    Recording,
    SharedGPU,
    Version,
)
from jobreport.remarks import SourceQuality
from jobrules.model import natural_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile

_NAME = re.compile(r"(?:.*/)?jobrecord/[^/]+\.json", re.DOTALL)
_FACTS, _COMMAND = ".json", ".command.json"
_RULE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_ENDED_BY = re.compile(r"exit|signal:[0-9]{1,3}|detached|parent gone")
#: What may be joined by a plus sign: words of ours.
_WORDS = re.compile(r"(?:\+?(?:given|counted|bfloat16|float16|float32|float64|tf32)){1,5}")
#: Training processes of a node.
_MAX_RANKS = 4096
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
#: Those that train.
_LIBRARIES = ("torch", "jax", "tensorflow", "keras")
#: Far more than a recorder writes: labels, a command line, and a thousand earlier runs.
_MAX_BYTES = 8 << 20
#: Entries of each list, and characters of a text and of the command, that are kept.
_MAX_ENTRIES, _MAX_TEXT, _MAX_COMMAND = 512, 300, 2000

_Read = TypeVar("_Read")
Count: TypeAlias = Annotated[int, Meta(ge=0, le=10**15)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e15)]


class RecorderFacts:
    """Reads what record-job noted about a recording. Absent facts change no number of the report."""

    source = "facts of record-job"
    looks_for = ""
    memory = 0.0
    rows = "samples"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By its folder."""
        return _NAME.fullmatch(file.name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """Never: a file elsewhere is of no recording."""
        del file
        return False

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the facts of every node."""
        tally = Tally()
        found: dict[str, Recording] = {}
        commands: dict[str, list[str]] = {}
        for file in sorted(files):
            with text_files.noting(file, tally):
                if file.name.endswith(_COMMAND):
                    commands[file.name.removesuffix(_COMMAND)] = _read(file, list[str])
                else:
                    found[file.name.removesuffix(_FACTS)] = _recording(file, tally)
        for name in found.keys() & commands.keys():
            command = shlex.join(commands[name][:_MAX_ENTRIES])[:_MAX_COMMAND]
            found[name] = replace(found[name], command=command)
        recordings = sorted(found.values(), key=lambda one: natural_key(one.node))
        quality = SourceQuality(
            source=self.source,
            files=len(recordings),
            rows=len(recordings),
            remarks=tally.remarks(),
            recordings=tuple(recordings),
        )
        ended = any(one.runs[-1].ended_by.startswith(("exit", "signal")) for one in recordings)
        return Found(quality=quality, finished=True if ended else None)


class _Cores(Struct):
    host: Count | None = None
    affinity: Count | None = None
    limit: Amount | None = None


class _Memory(Struct):
    host_bytes: Count | None = None
    limit_bytes: Count | None = None


class _GPU(Struct):
    name: str | None = None


class _LeftOut(Struct):
    sensor: str
    reason: str
    count: Count


class _Ticks(Struct):
    p50: Amount = 0.0
    p99: Amount = 0.0


class _Dropped(Struct):
    samples: Count = 0
    events: Count = 0
    reason: str | None = None
    since_us: Microseconds | None = None
    until_us: Microseconds | None = None


class _Run(Struct):
    started_us: Microseconds
    ended_us: Microseconds | None = None
    ended_by: str | None = None
    stopped_by: str | None = None
    sampler_ended_by: str | None = None
    exit_status: Annotated[int, Meta(ge=-(10**9), le=10**9)] | None = None
    dropped: _Dropped | None = None


class _NotUploaded(Struct):
    files: Count = 0


class _Overhead(Struct):
    sampler_cpu_s: Amount = 0.0
    hook_s: Amount | None = None
    processes: Count = 1


class _Change(Struct):
    worker: str
    at_us: Microseconds
    written: str


class _Hooks(Struct):
    other_threads: Count = 0
    other_lane_events: Count = 0
    written: list[_Change] = field(default_factory=list)
    framework: str = ""
    parts: dict[str, str] = field(default_factory=dict)


class _Place(Struct):
    file: str
    line: Annotated[int, Meta(ge=0, le=10**9)]
    function: str = ""


class _Exception(Struct):
    type: str
    at_us: Microseconds
    message: str = ""
    place: _Place | None = None
    rank: str = ""
    step: Count | None = None
    memory: str = ""
    asked_bytes: Count | None = None
    free_bytes: Count | None = None
    total_bytes: Count | None = None
    launcher: bool = False
    passing: bool = False
    exit_code: Annotated[int, Meta(ge=-255, le=255)] | None = None


class _Host(Struct):
    os: str = ""
    cpu: str = ""


class _Git(Struct):
    commit: str
    dirty: bool | None = None


class _Flops(Struct):
    per_step: list[Annotated[float, Meta(gt=0, le=1e30)]] = field(default_factory=list)
    source: str = ""


class _Facts(_Run, kw_only=True):
    """The file, as far as the report shows it: the last run, and what is kept of those before."""

    #: Of another number, names may mean something else.
    schema: Annotated[int, Meta(ge=1, le=1)]
    recorder: str
    node: str
    interval_ms: Amount
    earlier: list[_Run] = field(default_factory=list)
    cores: _Cores = field(default_factory=_Cores)
    memory: _Memory = field(default_factory=_Memory)
    gpus: list[_GPU] = field(default_factory=list)
    gpu_reason: str | None = None
    gpu_interval_ms: Amount | None = None
    shared_gpus: dict[str, Count] = field(default_factory=dict)
    pressure: str = ""
    left_out: list[_LeftOut] = field(default_factory=list)
    late_ticks: Count = 0
    tick_ms: _Ticks = field(default_factory=_Ticks)
    overhead: _Overhead = field(default_factory=_Overhead)
    clock_steps: Count = 0
    hooks: _Hooks = field(default_factory=_Hooks)
    auto_steps: str | None = None
    exceptions: list[_Exception] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    not_uploaded: _NotUploaded = field(default_factory=_NotUploaded)
    labels: dict[str, str] = field(default_factory=dict)
    host: _Host = field(default_factory=_Host)
    git: _Git | None = None
    driver: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    world_size: Annotated[int, Meta(ge=1, le=10**7)] | None = None
    config: dict[str, str] = field(default_factory=dict)
    flops: _Flops = field(default_factory=_Flops)
    parameters: Count | None = None
    precision: str = ""


def _read(file: SourceFile, kind: type[_Read]) -> _Read:
    """The JSON in a file. Raises ``UnusableError``."""
    content = text_files.content(file.path, _MAX_BYTES)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError:
        raise UnusableError("facts.unknown") from None
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json") from None


def _recording(file: SourceFile, tally: Tally) -> Recording:
    """The facts in a file. Raises ``UnusableError``."""
    facts = _read(file, _Facts)
    tally.note("facts.not_uploaded", count=facts.not_uploaded.files)
    models = Counter(gpu.name or "" for gpu in facts.gpus[:_MAX_ENTRIES])
    return Recording(
        node=as_name(facts.node),
        recorder=_text(facts.recorder),
        interval_s=facts.interval_ms / 1000,
        runs=tuple(map(_run, [*facts.earlier[-_MAX_ENTRIES:], facts])),
        cores=facts.cores.host,
        affinity=facts.cores.affinity,
        core_limit=facts.cores.limit,
        memory=facts.memory.host_bytes,
        memory_limit=facts.memory.limit_bytes,
        gpus=tuple(GPUModel(name=_text(name), count=count) for name, count in models.items()),
        gpu_reason=_text(facts.gpu_reason or ""),
        gpu_interval_s=None if facts.gpu_interval_ms is None else facts.gpu_interval_ms / 1000,
        shared_gpus=tuple(
            SharedGPU(device=as_name(device), processes=processes)
            for device, processes in list(facts.shared_gpus.items())[:_MAX_ENTRIES]
            if processes
        ),
        container_pressure=facts.pressure == "cgroup",
        left_out=tuple(
            LeftOut(sensor=_text(one.sensor), reason=_text(one.reason), count=one.count)
            for one in facts.left_out[:_MAX_ENTRIES]
        ),
        late_ticks=facts.late_ticks,
        tick_p50_ms=facts.tick_ms.p50,
        tick_p99_ms=facts.tick_ms.p99,
        clock_steps=facts.clock_steps,
        sampler_s=facts.overhead.sampler_cpu_s,
        hook_s=facts.overhead.hook_s,
        hooked_processes=facts.overhead.processes,
        less_written=tuple(
            LessWritten(rank=as_name(one.worker), at_us=one.at_us, written=_text(one.written))
            for one in facts.hooks.written[:_MAX_ENTRIES]
        ),
        other_threads=facts.hooks.other_threads,
        other_lane_events=facts.hooks.other_lane_events,
        framework=_text(facts.hooks.framework),
        parts=tuple(
            RecordedPart(name=_text(name), off=_text(off))
            for name, off in list(facts.hooks.parts.items())[:_MAX_ENTRIES]
        ),
        no_steps=_text(facts.auto_steps or ""),
        # One that passed while the recording ended did not end a job of which no bad exit status is known.
        exceptions=tuple(
            _raised(one) for one in facts.exceptions[:_MAX_ENTRIES] if facts.exit_status or not one.passing
        ),
        libraries=tuple(one for one in _LIBRARIES if one in facts.libraries),
        labels=_labels(facts.labels),
        versions=tuple(
            Version(what=_text(what), number=_text(number))
            for what, number in [*facts.versions.items(), ("driver", facts.driver)][-_MAX_ENTRIES:]
            if number
        ),
        commit=facts.git.commit if facts.git and _COMMIT.fullmatch(facts.git.commit) else "",
        is_changed=facts.git.dirty if facts.git else None,
        system=_text(facts.host.os),
        cpu_model=_text(facts.host.cpu),
        world_size=facts.world_size,
        config=_labels(facts.config),
        flops_per_step=tuple(facts.flops.per_step[:_MAX_RANKS]),
        flops_source=facts.flops.source if _WORDS.fullmatch(facts.flops.source) else "",
        parameters=facts.parameters or None,
        precision=facts.precision if _WORDS.fullmatch(facts.precision) else "",
    )


def _labels(values: dict[str, str]) -> tuple[Label, ...]:
    return tuple(
        Label(key=_text(key), value=_text(value)) for key, value in list(values.items())[:_MAX_ENTRIES]
    )


def _run(facts: _Run) -> RecordedRun:
    dropped = facts.dropped or _Dropped()
    return RecordedRun(
        start_us=facts.started_us,
        end_us=facts.ended_us,
        ended_by=_ended_by(facts.ended_by),
        exit_status=facts.exit_status,
        sampler_ended_by=_ended_by(facts.sampler_ended_by),
        dropped_samples=dropped.samples,
        dropped_events=dropped.events,
        dropped_reason=_text(dropped.reason or ""),
        dropped_since_us=dropped.since_us,
        dropped_until_us=dropped.until_us,
        stopped_by=rule if _RULE.fullmatch(rule := facts.stopped_by or "") else UNSET,
    )


def _raised(one: _Exception) -> Raised:
    where, free, total = one.place or _Place("", 0), one.free_bytes, one.total_bytes
    return Raised(
        rank=as_name(one.rank),
        type=as_name(one.type),
        message=_text(one.message),
        file=as_name(where.file),
        line=where.line,
        function=as_name(where.function),
        step=one.step,
        at_us=one.at_us,
        memory=one.memory if one.memory in ("gpu", "host") else "",
        asked=one.asked_bytes,
        used=None if free is None or total is None or free > total else total - free,
        total=total,
        exit_code=(one.exit_code or 0) if one.launcher else None,
    )


def _ended_by(text: str | None) -> str:
    return text if text and _ENDED_BY.fullmatch(text) else ""


def _text(text: str) -> str:
    return text[:_MAX_TEXT]
