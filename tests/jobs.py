"""Jobs built in a test instead of read from files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.model import (
    SECOND_US,
    Events,
    EventSource,
    Job,
    JobInMemory,
    Lane,
    Loader,
    Metric,
    Panel,
    Steps,
)

#: A full minute, so that windows begin with the first sample.
START_US = 1_700_000_040 * SECOND_US

Values = Sequence[float] | Sequence[Sequence[float]] | np.ndarray


def make_panel(
    metric: Metric,
    values: Values,
    *,
    node: str = "algo-1",
    interval_s: float = 0.5,
    start_us: int = START_US,
    time_us: Sequence[int] | np.ndarray | None = None,
    prefix: str = "gpu",
) -> Panel:
    """One row a tick; a flat list is one device."""
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    ticks = np.arange(len(table), dtype=np.int64)
    times = start_us + (ticks * interval_s * SECOND_US).astype(np.int64) if time_us is None else time_us
    times = np.asarray(times, dtype=np.int64)
    return Panel(
        node=node,
        metric=metric,
        devices=tuple(f"{prefix}{i}" for i in range(table.shape[1])),
        time_us=times,
        snapshot=ticks,
        values=table,
        last_us=int(times[-1]),
    )


def make_steps(
    spans_s: Sequence[tuple[float, float]],
    *,
    phase: str = "TRAIN",
    node: str = "algo-1",
    rank: str = "33",
    start_us: int = START_US,
) -> Steps:
    """Steps of one rank from (start, end) in seconds after ``start_us``."""
    starts, ends = zip(*spans_s, strict=True)
    n = len(spans_s)
    return Steps.of(
        [(node, rank, phase)],
        np.zeros(n, np.int32),
        number=np.arange(n, dtype=np.int64),
        start_us=start_us + np.round(np.array(starts) * SECOND_US).astype(np.int64),
        end_us=start_us + np.round(np.array(ends) * SECOND_US).astype(np.int64),
    )


def joined_steps(*tables: Steps) -> Steps:
    """The steps of several ranks or modes in one table, sorted by start."""
    return Steps.joined(tables)


def make_events(
    rows: Sequence[tuple[str, str, float, float]],
    *,
    node: str = "algo-1",
    rank: str = "33",
    source: EventSource = EventSource.PYTHON,
    pid: int = 33,
    thread: int = -1,
    step: int | Sequence[int] = -1,
    start_us: int = START_US,
    loaders: Sequence[Loader] = (),
) -> Events:
    """Events of one rank from (phase, name, start, end), seconds after ``start_us``, in any order."""
    lanes = list(dict.fromkeys(phase for phase, *_ in rows))
    names = list(dict.fromkeys(name for _, name, *_ in rows))
    n = len(rows)
    starts = start_us + np.round(np.array([row[2] for row in rows]) * SECOND_US).astype(np.int64)
    ends = start_us + np.round(np.array([row[3] for row in rows]) * SECOND_US).astype(np.int64)
    order = np.lexsort((ends, starts))
    return Events(
        lanes=tuple(Lane(node=node, rank=rank, event_type=phase, source=source) for phase in lanes),
        names=tuple(names),
        lane=np.array([lanes.index(row[0]) for row in rows], np.int32)[order],
        name=np.array([names.index(row[1]) for row in rows], np.int32)[order],
        start_us=starts[order],
        end_us=ends[order],
        step=np.broadcast_to(np.array(step, np.int64), n)[order],
        pid=np.full(n, pid, np.int64),
        thread=np.full(n, thread, np.int64),
        loaders=tuple(loaders),
    )


def make_job(
    *,
    gpu: Values | None = None,
    cpu: Values | None = None,
    memory: Values | None = None,
    io_wait: Values | None = None,
    steps: Steps | None = None,
    events: Events | None = None,
    node: str = "algo-1",
    interval_s: float = 0.5,
    start_us: int = START_US,
    extra: Sequence[Panel] = (),
) -> Job:
    """``make_job(gpu=[10, 20])`` is a job of two samples of one GPU."""
    given = (
        (Metric.GPU_UTILIZATION, gpu, "gpu"),
        (Metric.GPU_MEMORY_ACTIVITY, memory, "gpu"),
        (Metric.CPU_UTILIZATION, cpu, "cpu"),
        (Metric.IO_WAIT, io_wait, "cpu"),
    )
    panels = [
        make_panel(metric, values, node=node, interval_s=interval_s, start_us=start_us, prefix=prefix)
        for metric, values, prefix in given
        if values is not None
    ]
    return JobInMemory(
        name="job",
        panels=(*panels, *extra),
        steps=steps or Steps(),
        events=events or Events(),
        finished=True,
    )


def sampled(interval_s: float = 1.0, *, extra: Sequence[Panel] = (), **values: Values) -> Job:
    """``sampled(gpu_power=[300, 310])`` is a job of two samples of a metric, by its key."""
    panels = [make_panel(Metric(key), table, interval_s=interval_s) for key, table in values.items()]
    return make_job(extra=[*panels, *extra])
