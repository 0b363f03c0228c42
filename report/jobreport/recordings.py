"""What record-job noted about the recording of a node: limits, what it left out, and what it cost."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from jobrules.model.names import (
    DeviceName,
    ErrorName,
    FileName,
    FunctionName,
    Message,
    Name,
    NodeName,
    OwnText,
)


class GPUModel(Struct, frozen=True, kw_only=True):
    """GPUs of one model."""

    name: Message
    count: int


class LeftOut(Struct, frozen=True, kw_only=True):
    """Readings of a sensor that failed."""

    #: ``gpu0 ECC errors``; it may name a path.
    sensor: Annotated[str, Name("sensor")]
    reason: Message
    count: int


class SharedGPU(Struct, frozen=True, kw_only=True):
    """A GPU on which processes of others computed, and how many at most."""

    device: DeviceName
    processes: int


class LessWritten(Struct, frozen=True, kw_only=True):
    """From when on a training process wrote less, because writing took too much time, or more again."""

    #: Rank or process number.
    rank: Message
    at_us: int
    written: Message


class RecordedRun(Struct, frozen=True, kw_only=True):
    """A run of the job, from the start of its recording."""

    start_us: int
    #: None while it goes on, and if the machine went away.
    end_us: int | None
    #: ``exit``, ``signal:<number>``, ``detached`` (the job may go on), ``parent gone`` (record-job was killed), or empty.
    ended_by: OwnText
    exit_status: int | None
    #: The same of a sampler that ended before the job.
    sampler_ended_by: OwnText
    dropped_samples: int
    dropped_events: int
    #: Why, from when, and to when; the last is None if it went on to the end.
    dropped_reason: Message
    dropped_since_us: int | None
    dropped_until_us: int | None
    #: The rule for which record-job stopped it.
    stopped_by: Message | UnsetType = UNSET


class Label(Struct, frozen=True, kw_only=True):
    """A fact that the user gave with ``--label``."""

    key: Message
    value: Annotated[str, Name("label")]


class Version(Struct, frozen=True, kw_only=True):
    """That of something that ran."""

    #: ``python``, ``torch``, ``driver``.
    what: Message
    number: Annotated[str, Name("version")]


class Logged(Struct, frozen=True, kw_only=True):
    """A number that the script logged."""

    mode: Message
    name: Annotated[str, Name("label")]
    values: int
    #: How many were no finite numbers; the last one that was, and its step.
    not_finite: int
    step: int
    value: float | None


class RecordedPart(Struct, frozen=True, kw_only=True):
    """Something that is recorded of a script that was not changed."""

    name: Message
    #: Why it is not; empty if it is.
    off: Message


class Raised(Struct, frozen=True, kw_only=True):
    """An exception that ended a process of the job."""

    #: Of the process, or of the one that the exception of a launcher is about; empty if it has none.
    rank: Message
    #: ``MemoryError``, ``json.decoder.JSONDecodeError``.
    type: ErrorName
    #: At most 200 characters, without what looks secret.
    message: Message
    #: The innermost frame of the user's own code; line 0 if there is none.
    file: FileName
    line: int
    function: FunctionName
    #: The training step that had begun; None outside of a recorded training.
    step: int | None
    at_us: int
    #: Memory that ran out: ``gpu``, ``host``, or empty.
    memory: OwnText
    #: Bytes as the message has them; None where it has none.
    asked: int | None
    used: int | None
    total: int | None
    #: How the process of the rank ended, or minus the signal that did, if a launcher raised this; else None.
    exit_code: int | None


class Recording(Struct, frozen=True, kw_only=True):
    """The recording of one node; None for what is not known."""

    node: NodeName
    #: ``jobrecord 0.1.0``.
    recorder: Message
    interval_s: float
    #: Each start of the job into the same folder, oldest first; the facts below are of the last one.
    runs: tuple[RecordedRun, ...]
    #: Cores of the machine, those that the job may run on, and how many of them the container's CPU limit allows.
    cores: int | None
    affinity: int | None
    core_limit: float | None
    #: Bytes: of the machine, and the container's limit.
    memory: int | None
    memory_limit: int | None
    #: Of those that the job sees, in their order; instances of a divided one (MIG) count as GPUs.
    gpus: tuple[GPUModel, ...]
    #: Why no GPU was sampled.
    gpu_reason: Message
    #: Of the GPUs, if their driver is too slow for the sampling interval.
    gpu_interval_s: float | None
    shared_gpus: tuple[SharedGPU, ...]
    #: False if pressure is that of the machine, not of the container.
    container_pressure: bool
    left_out: tuple[LeftOut, ...]
    late_ticks: int
    #: Milliseconds that reading all sensors took: median, and 99th percentile.
    tick_p50_ms: float
    tick_p99_ms: float
    clock_steps: int
    #: CPU time of the sampler, and time that the hooks took in the training processes, in seconds.
    sampler_s: float
    hook_s: float | None
    hooked_processes: int
    less_written: tuple[LessWritten, ...]
    #: Steps of optimizers in other threads, and events of too many lanes.
    other_threads: int
    other_lane_events: int
    #: Why ``--steps auto`` recorded none.
    no_steps: Message
    labels: tuple[Label, ...]
    #: Of the job, if record-job was asked to keep it (``--record-command``).
    command: Annotated[str, Name("command")] = ""
    #: The trainer that told where its loop is, such as ``Lightning Trainer``.
    framework: Message = ""
    #: Those whose libraries the job imported.
    parts: tuple[RecordedPart, ...] = ()
    #: Of the last run, the first ones.
    exceptions: tuple[Raised, ...] = ()
    #: Those that processes without a recorded step had imported, such as ``torch``.
    libraries: tuple[OwnText, ...] = ()
    versions: tuple[Version, ...] = ()
    #: The commit of the working directory, and whether its files were changed; empty without one.
    commit: Annotated[str, Name("commit")] = ""
    is_changed: bool | None = None
    #: Operating system and processor.
    system: Annotated[str, Name("system")] = ""
    cpu_model: Message = ""
    #: Training processes of the job, as they say.
    world_size: int | None = None
    #: What the script gave to ``jobrecord.config``.
    config: tuple[Label, ...] = ()
    #: By the first rank of the node, in the last run.
    logged: tuple[Logged, ...] = ()
    #: Operations of a step of each training process that knows them, and from where: ``given``, ``counted``.
    flops_per_step: tuple[float, ...] = ()
    flops_source: OwnText = ""
    #: Of the model, if each token goes through all of them, and they are known.
    parameters: int | None = None
    #: In which products of matrices are computed: ``bfloat16``; of processes that differ, all of them.
    precision: OwnText = ""
