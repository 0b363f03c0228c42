"""From the events of a trace to what is reported of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from jobrules.captures import kinds
from jobrules.captures.collectives import communication_of
from jobrules.captures.device_time import DeviceTime, device_times
from jobrules.captures.idle_causes import MAX_UNEXPLAINED, HostActivity, IdleParts, idle_parts
from jobrules.captures.kernels import estimates, kernel_table
from jobrules.captures.launches import launch_statistics
from jobrules.captures.memory import memory_curves
from jobrules.captures.operators import MAX_HOST_PARTS, call_sums, host_parts, operator_table
from jobrules.captures.step_lines import step_lines
from jobrules.captures.steps import HostSteps, device_windows, host_steps, incomplete_step
from jobrules.captures.trace import NOT_GIVEN
from jobrules.measures.intervals import union
from jobrules.model.captures import (
    IDLE_CAUSES,
    NOT_EXPLAINED,
    Capture,
    CaptureStep,
    DeviceCapture,
    DeviceStep,
    HostPart,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.captures.collectives import Communication
    from jobrules.captures.trace import DeviceProperties, HostCalls, Trace
    from jobrules.measures.intervals import Intervals
    from jobrules.model import CodeArray, IntArray

_CODE_OF_HOST = IDLE_CAUSES.index("host")
_CODE_OF_ALLOCATION = IDLE_CAUSES.index("memory_allocation")
#: Equal parts of a window without steps: what recurs is in most of them.
_PARTS = 10

#: Later times count from the epoch, whatever the file says of its base.
_ABSOLUTE_NS = 10**17
#: Description of the group of all ranks.
_DEFAULT_GROUP = "default_pg"


def reduced(trace: Trace, file: str) -> tuple[Capture, tuple[Communication, ...]]:
    """The numbers of one capture, and the communication of its devices."""
    steps = host_steps(trace)
    times = device_times(trace, steps)
    launched_ns = _launched_ns(times, len(trace.launches))
    sums = call_sums([trace.operators], len(trace.names), trace.launches, launched_ns)
    no_operator_ns = int(launched_ns[sums.innermost == NOT_GIVEN].sum())
    del launched_ns
    activity = HostActivity.of(trace, steps, times)
    idle = idle_parts(times, steps, trace.launches, activity)
    devices = tuple(
        _device(trace, steps, time, parts, activity, sums.innermost)
        for time, parts in zip(times, idle, strict=True)
    )
    marks = call_sums([trace.marks], len(trace.names))
    head = trace.head
    first, last = span_ns(trace)
    properties = _properties(trace, times)
    capture = Capture(
        file=file,
        rank=_rank(trace),
        world_size=head.world_size
        or max((one.group_size or 0 for one in trace.collectives), default=0)
        or None,
        host=head.host,
        base_ns=0 if first > _ABSOLUTE_NS else head.base_ns,
        start_ns=first,
        end_ns=last,
        steps=len(steps),
        no_steps=steps.missing,
        steps_elsewhere=steps.elsewhere,
        step_times=_step_times(steps),
        devices=devices,
        operators=operator_table(sums, trace.names, sums.self_ns, sums.device_self_ns),
        operator_names=int(np.count_nonzero(sums.calls)),
        operator_calls=len(trace.operators),
        marks=operator_table(marks, trace.names, marks.total_ns),
        no_operator_ns=no_operator_ns,
        host_parts=_host_parts(trace, idle),
        **_loading(trace),
        blocking_calls=_blocking(trace),
        memory=memory_curves(trace),
        overhead_ns=union(trace.overhead.start_ns, trace.overhead.end_ns).total,
        has_overhead=len(trace.overhead) > 0,
        recorded=head.recorded,
        python_calls=trace.python_calls,
        versions=head.versions,
        step_lines=step_lines(trace, steps, times, last),
        compute_major=properties.compute_major if properties else None,
        memory_bytes=properties.memory_bytes if properties else None,
    )
    communication = (
        communication_of(trace, time, steps, device_windows(time, steps) if len(steps) else steps.start, file)
        for time in times
    )
    return capture, tuple(one for one in communication if one is not None)


def _rank(trace: Trace) -> int | None:
    """What the trace says of its process, else its collectives of the group of all ranks, else its name."""
    ranks = {one.rank for one in trace.collectives if one.group_description == _DEFAULT_GROUP}
    of_group = ranks.pop() if len(ranks) == 1 else None
    return next((one for one in (trace.head.rank, of_group, trace.head.named_rank) if one is not None), None)


def _device(
    trace: Trace,
    steps: HostSteps,
    time: DeviceTime,
    idle: IdleParts,
    activity: HostActivity,
    operator: CodeArray,
) -> DeviceCapture:
    (causes,) = idle.by_cause(np.array([time.start_ns]), np.array([time.end_ns]))
    window = time.window.total
    device_steps = _device_steps(time, steps, idle)
    lead_in = np.array([time.steps_start_ns]), np.array([time.start_ns])
    names = {one.device: one.name for one in trace.head.devices}
    # Writers may number the devices of kernels in another way than those of the machine, which are mostly alike.
    models = set(names.values())
    model = models.pop() if len(models) == 1 else ""
    launched_by = np.where(time.launch == NOT_GIVEN, NOT_GIVEN, np.append(operator, NOT_GIVEN)[time.launch])
    return DeviceCapture(
        device=time.device,
        name=names.get(time.device, model),
        lead_in_ns=time.start_ns - time.steps_start_ns,
        lead_in_loading_ns=int(activity.loading.common_time.overlap(*lead_in)[0]),
        start_ns=time.start_ns,
        window_ns=window,
        compute_ns=time.computing.total,
        exposed_communication_ns=time.exposed_communication.total,
        exposed_copies_ns=time.exposed_copies.total,
        idle_ns=time.idle.total,
        idle_by_cause_ns=causes,
        events=len(time.events),
        communication_ns=time.communication.total,
        copies_ns=time.copies.total,
        busy_ns=time.busy.total,
        kernel_busy_ns=time.kernels.total,
        exposed_pageable_ns=time.exposed_pageable_ns,
        complete=sum(causes[cause] for cause in NOT_EXPLAINED) <= MAX_UNEXPLAINED * window,
        late_allocation_ns=_late_allocation_ns(time, device_steps, idle),
        steps=device_steps,
        incomplete_step=incomplete_step(time, steps),
        launches=launch_statistics(time, trace.launches),
        **kernel_table(time, trace.names, launched_by),
        **estimates(time),
    )


def _late_allocation_ns(time: DeviceTime, steps: Sequence[DeviceStep], idle: IdleParts) -> int:
    """Idle time during memory allocation that later iterations may need, too."""
    if steps:
        return sum(step.idle_by_cause_ns.get("memory_allocation", 0) for step in steps[1:])
    rows = idle.cause == _CODE_OF_ALLOCATION
    if not rows.any():
        return 0
    lengths = (idle.end_ns - idle.start_ns)[rows]
    part = (idle.start_ns[rows] - time.start_ns) * _PARTS // max(1, time.window.total)
    sums = np.bincount(part, lengths, _PARTS).astype(np.int64)
    return int(np.minimum(sums, np.median(sums)).sum())


def _device_steps(time: DeviceTime, steps: HostSteps, idle: IdleParts) -> tuple[DeviceStep, ...]:
    if not len(steps):
        return ()
    borders = device_windows(time, steps)
    start, end = borders[:-1], borders[1:]

    def parts(held: Intervals) -> Sequence[int]:
        return held.overlap(start, end).tolist()  # type: ignore[no-any-return]

    counts = np.bincount(time.step[time.step != NOT_GIVEN], minlength=len(steps))
    columns = zip(
        steps.number.tolist(),
        start.tolist(),
        end.tolist(),
        counts.tolist(),
        parts(time.computing),
        parts(time.exposed_communication),
        parts(time.exposed_copies),
        parts(time.idle),
        idle.by_cause(start, end),
        strict=True,
    )
    return tuple(
        DeviceStep(
            number=number,
            start_ns=begin,
            window_ns=until - begin,
            events=events,
            compute_ns=compute,
            exposed_communication_ns=communication,
            exposed_copies_ns=copies,
            idle_ns=idle_ns,
            idle_by_cause_ns={cause: ns for cause, ns in causes.items() if ns},
        )
        for number, begin, until, events, compute, communication, copies, idle_ns, causes in columns
    )


def _step_times(steps: HostSteps) -> tuple[CaptureStep, ...]:
    columns = zip(steps.number.tolist(), steps.start.tolist(), steps.end.tolist(), strict=True)
    return tuple(CaptureStep(number=number, start_ns=start, end_ns=end) for number, start, end in columns)


def _length(time: DeviceTime) -> IntArray:
    return time.events.end_ns - time.events.start_ns


def _launched_ns(times: Sequence[DeviceTime], launches: int) -> IntArray:
    """(launches,) length of the device events of each launch."""
    found = np.zeros(launches, np.int64)
    for time in times:
        linked = time.launch != NOT_GIVEN
        np.add.at(found, time.launch[linked], _length(time)[linked])
    return found


def _host_parts(trace: Trace, idle: Sequence[IdleParts]) -> tuple[HostPart, ...]:
    """What the host did; of several devices that waited at once, each counts. A step is not an operator."""
    sums: Counter[str] = Counter()
    for parts in idle:
        rows = parts.cause == _CODE_OF_HOST
        stretches = parts.start_ns[rows], parts.end_ns[rows], parts.thread[rows]
        sums += host_parts((trace.operators, trace.marks), trace.names, *stretches)
    sums[""] += sum(sums.pop(name) for name in list(sums) if kinds.STEP.match(name))
    sums = +sums
    ranked = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    return tuple(HostPart(name=name, time_ns=time_ns) for name, time_ns in ranked[:MAX_HOST_PARTS])


def _loading(trace: Trace) -> dict[str, Any]:
    rows = [(table, np.flatnonzero(trace.loads[table.name])) for table in (trace.marks, trace.operators)]
    return {
        "loader_calls": sum(len(some) for _, some in rows),
        "loader_ns": sum(int((table.end_ns[some] - table.start_ns[some]).sum()) for table, some in rows),
        "loader_names": tuple(
            sorted({trace.names[name] for table, some in rows for name in table.name[some].tolist()})
        ),
    }


def _blocking(trace: Trace) -> tuple[tuple[str, int], ...]:
    counts = Counter(trace.launches.name.tolist())
    found = {trace.names[name]: count for name, count in counts.items() if trace.blocks[name]}
    return tuple(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def span_ns(trace: Trace) -> tuple[int, int]:
    """The first and last moment of any event that is in use."""
    tables: list[HostCalls | Any] = [trace.device_events, trace.launches, trace.operators, trace.marks]
    used = [table for table in tables if len(table)]
    if not used:
        return 0, 0
    return min(int(table.start_ns.min()) for table in used), max(int(table.end_ns.max()) for table in used)


def _properties(trace: Trace, times: Sequence[DeviceTime]) -> DeviceProperties | None:
    number = times[0].device if times else None
    known = [one for one in trace.head.devices if number is None or one.device == number]
    return next(iter(known or trace.head.devices), None)
