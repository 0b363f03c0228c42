"""What the training processes of a job leave behind: trace files, a minute of a process each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from generator.horovod import horovod_rows
from generator.operators import BACKWARD, FORWARD, OPTIMIZER, Pattern
from generator.steps import EVAL, TRAIN, Timetable, timetable
from generator.trace import Rows, event, format_trace, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.arrays import BoolArray, IntArray
    from generator.job import JobSpec
    from generator.steps import Steps

MINUTE_US = 60_000_000
#: The recording begins this long before the first step.
AHEAD_US = 5_000_000
#: Shares of a step at which the forward pass, the backward pass and the optimizer end.
FORWARD_END, BACKWARD_END, OPTIMIZER_END = 0.34, 0.93, 0.99
MODEL = "ResNet"
ITERATOR = "_MultiProcessingDataLoaderIter"
#: The lanes, in the order of their numbers in the files; the one of the process's GPU follows.
LANES = (
    "Step:ModeKeys.TRAIN",
    "Forward",
    "Backward(post-forward)",
    "Step:ModeKeys.EVAL",
    "DataLoaderIterInitialize",
    "DataLoaderIter",
    "DataLoaderWorker",
    "cpu_functions",
)
#: Threads that call operators: the main one, and that of the engine that runs backward.
MAIN, ENGINE = 1, 2


@dataclass(frozen=True, kw_only=True)
class Process:
    """A training process: one for each GPU."""

    plan: Steps
    node: int
    device: int
    rank: int
    ranks: int
    pid: int
    #: Loading processes.
    loaders: int
    #: When the times of its rows begin: since the start of the job, and since the epoch by the node's clock.
    begin_us: int
    base_us: int


def trace_files(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield path below ``framework/pevents`` and text of every trace file."""
    if spec.steps is None:
        return
    for node in range(1, spec.nodes + 1):
        for device in range(spec.gpus):
            process = process_of(spec, spec.steps, node, device)
            table = timetable(spec.steps, process.begin_us, spec.duration_us / 1e6, spec.seed, process.rank)
            for end_us, text in python_files(process, table):
                yield path_of(process, end_us, "python"), text
            if process.rank == 0:
                for end_us, text in horovod_files(process, table):
                    yield path_of(process, end_us, "horovod"), text


def process_of(spec: JobSpec, plan: Steps, node: int, device: int) -> Process:
    """Describe the process of a GPU."""
    loaders = max(1, round(plan.loaders_per_core * spec.cores / spec.gpus))
    begin_us = round((plan.start_s - plan.warm_up_s) * 1e6) - AHEAD_US
    return Process(
        plan=plan,
        node=node,
        device=device,
        rank=(node - 1) * spec.gpus + device,
        ranks=spec.nodes * spec.gpus,
        pid=33 + (1 + loaders) * device,
        loaders=loaders,
        begin_us=begin_us,
        base_us=spec.clock_us(node) + begin_us,
    )


def path_of(process: Process, end_us: int, source: str) -> str:
    """Return where a file lies whose last event ends at ``end_us``, as the rows count it."""
    end_us += process.base_us
    hour = datetime.fromtimestamp(end_us // 1_000_000, UTC).strftime("%Y%m%d%H")
    suffix = "pythontimeline" if source == "python" else f"{source}_timeline"
    return f"{hour}/{end_us}_{process.rank}-algo-{process.node}_{suffix}.json"


def python_files(process: Process, table: Timetable) -> Iterator[tuple[int, str]]:
    """Yield the last end, as the rows count it, and the text of each minute's file."""
    loading = loader_rows(process, table)
    minute = table.end_us // MINUTE_US
    last_us = max([*table.end_us[-1:].tolist(), *(int(part.time_us[-1]) for part in loading)], default=-1)
    for k in range(last_us // MINUTE_US + 1):
        steps = slice(*np.searchsorted(minute, (k, k + 1)))
        taken = (table.mode[steps], table.number[steps], table.start_us[steps], table.end_us[steps])
        parts = step_rows(process, *taken) + operator_rows(process, *taken)
        parts += [between(part, k * MINUTE_US, (k + 1) * MINUTE_US) for part in loading]
        if any(part.texts for part in parts):
            end_us = max(int(part.time_us.max(initial=0)) for part in parts)
            yield end_us, format_trace(process.base_us, parts)


def horovod_files(process: Process, table: Timetable) -> Iterator[tuple[int, str]]:
    """Yield the last time, as the rows count it, and the text of each minute's Horovod file."""
    recorded = (table.mode == TRAIN) & member(table.number, process.plan.horovod_of)
    start_us, length_us = table.start_us[recorded], (table.end_us - table.start_us)[recorded]
    begin_us, end_us = (start_us + scaled(length_us, share) for share in (FORWARD_END, BACKWARD_END))
    minute = end_us // MINUTE_US
    # A pass is never split: no file begins with the end of something.
    for k in np.unique(minute).tolist():
        parts = horovod_rows(begin_us[minute == k], end_us[minute == k], process.ranks)
        yield max(int(part.time_us.max()) for part in parts), format_trace(process.base_us, parts)


def step_rows(
    process: Process, mode: IntArray, number: IntArray, start_us: IntArray, end_us: IntArray
) -> list[Rows]:
    """Return the steps, and the passes of the training steps."""
    length_us = end_us - start_us
    args = f'"pid": {process.pid}, "step_num": "%d"'
    train, validation = (mode == code for code in (TRAIN, EVAL))
    start, length, step = start_us[train], length_us[train], number[train]
    forward, backward = scaled(length, FORWARD_END), scaled(length, BACKWARD_END)
    return [
        events("Forward", MODEL, args, start, forward, step),
        events("Backward(post-forward)", MODEL, args, start + forward, backward - forward, step),
        events(LANES[0], LANES[0], args, start, length, step),
        events(LANES[3], LANES[3], args, start_us[validation], length_us[validation], number[validation]),
    ]


def operator_rows(
    process: Process, mode: IntArray, number: IntArray, start_us: IntArray, end_us: IntArray
) -> list[Rows]:
    """Return the operators of the training steps that are recorded so closely, on CPU and GPU."""
    recorded = (mode == TRAIN) & member(number, process.plan.operators_of)
    if not recorded.any():
        return []
    step, start, length = number[recorded], start_us[recorded], (end_us - start_us)[recorded]
    passes: tuple[tuple[Pattern, int, float, float], ...] = (
        (FORWARD, MAIN, 0.0, FORWARD_END),
        (BACKWARD, ENGINE, FORWARD_END, BACKWARD_END),
        (OPTIMIZER, MAIN, BACKWARD_END, OPTIMIZER_END),
    )
    parts = []
    device = process.device
    for pattern, thread, first, last in passes:
        begin = start + scaled(length, first)
        room = scaled(length, last) - scaled(length, first)
        args = f'"tid": {thread}, "step_num": %d, "device": "cpu"'
        for call in pattern.calls:
            at, until = scaled(room, call.begin), scaled(room, call.end)
            parts.append(events("cpu_functions", call.name, args, begin + at, until - at, step))
        for kernel in pattern.kernels:
            at, until = scaled(room, kernel.begin), scaled(room, kernel.end)
            args_of_gpu = (
                f'"tid": {device}, "step_num": %d, "event_name": "{kernel.call.name}", "device": {device},'
                f' "start_cpu_thread": {thread}, "cpu_thread_start_time": %d'
            )
            called_us = process.base_us + begin + scaled(room, kernel.call.begin)
            parts.append(
                events(
                    f"gpu_functions-dev:{device}",
                    kernel.call.kernel,
                    args_of_gpu,
                    begin + at,
                    until - at,
                    step,
                    called_us,
                )
            )
    return parts


def loader_rows(process: Process, table: Timetable) -> list[Rows]:
    """Return what is recorded of the data loader at the start of the loop."""
    train = table.mode == TRAIN
    start_us, end_us = table.start_us[train], table.end_us[train]
    if not len(start_us):
        return []
    set_up = start_us[:1] - 1_400_000
    setting_up = np.array([160_000 + 9_000 * process.loaders])
    # Each batch is fetched in the pause before its step.
    batch = np.flatnonzero(start_us < start_us[0] + process.plan.loaders_recorded_s * 1e6)
    ready = np.concatenate((set_up + setting_up, end_us))[batch]
    pause = start_us[batch] - ready
    fetch = ready + scaled(pause, 0.04)
    loader = np.arange(process.loaders)
    born = set_up + 20_000 + 9_000 * loader
    # They live until the end of the epoch.
    died = end_us[table.epoch[train] == 0][-1] + 30_000 + 1_500 * loader
    init_args = f'"num_workers": {process.loaders}, "pin_memory": true, "pid": {process.pid}'
    fetch_args = f'"pid": {process.pid}, "worker_id": %d'
    pid_of_loader = process.pid + 1 + loader
    return [
        events("DataLoaderIterInitialize", f"{ITERATOR}.__init__", init_args, set_up, setting_up),
        events(
            "DataLoaderIter",
            f"{ITERATOR}::GetNext",
            fetch_args,
            fetch,
            scaled(pause, 0.92),
            batch % process.loaders,
        ),
        events(
            "DataLoaderWorker",
            "DataLoaderWorker",
            '"pid": %d, "worker_id": %d',
            born,
            died - born,
            pid_of_loader,
            loader,
        ),
    ]


def events(
    lane: str, name: str, args: str, start_us: IntArray, length_us: IntArray, *columns: IntArray
) -> Rows:
    """Return complete events, written when they end; ``args`` asks for the columns."""
    pid = LANES.index(lane) + 1 if lane in LANES else len(LANES) + 1
    template = event(name, pid, args)
    return rows(pid, lane, start_us + length_us, template, start_us, length_us, *columns)


def scaled(length_us: IntArray, share: float) -> IntArray:
    """Return a share of each length, rounded down: a larger share never gives less."""
    return np.asarray(length_us * share).astype(np.int64)


def member(number: IntArray, wanted: range) -> BoolArray:
    """Tell which numbers lie in a range of step 1."""
    return (number >= wanted.start) & (number < wanted.stop)


def between(part: Rows, first_us: int, last_us: int) -> Rows:
    """Return the rows written in a stretch; they must be in the order of time."""
    first, last = np.searchsorted(part.time_us, (first_us, last_us)).tolist()
    return Rows(pid=part.pid, lane=part.lane, time_us=part.time_us[first:last], texts=part.texts[first:last])
