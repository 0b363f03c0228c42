"""Moments, profiles and workers' times for reports built by code."""

from __future__ import annotations

from typing import Any

import numpy as np

from jobrules.analyses.close_ups import CloseUp, close_ups
from jobrules.analyses.framework import EventTypeTime, RankTime, Slice
from jobrules.model import SECOND_US, Events, EventSource, Function, Job, JobInMemory, Metric, Profile
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.io_bottleneck import IOBottleneck
from tests.jobs import START_US, joined_steps, make_events, make_panel, make_steps


def job(name: str, *, steps: int = 60) -> Job:
    """A node of one GPU and two cores that idles in the middle minute; names are those given."""
    seconds = np.arange(4 * 60)
    gpu = np.where((seconds >= 60) & (seconds < 100), 2.0, 80.0)
    cores = np.column_stack((np.full(240, 95.0), np.full(240, 15.0)))
    wait = np.full((240, 2), 1.0)
    spans = [(4 * i, 4 * i + 3.0) for i in range(steps)]
    kinds = [("Forward", 0.0, 1.0), ("Backward(post-forward)", 1.0, 3.0), (name, 3.0, 3.9)]
    rows = [(kind, f"{name} {i % 3}", 4 * i + a, 4 * i + b) for i in range(steps) for kind, a, b in kinds]
    rows += [("DataLoaderWorker", "life", 0, 200), ("cpu_functions", "tiny", 10.0001, 10.0002)]
    tensors = make_events(
        [(f"tensor{i}", "ALLREDUCE", 2, 3) for i in range(4)],
        node=name,
        rank="1",
        source=EventSource.HOROVOD,
    )
    return JobInMemory(
        name=name,
        panels=(
            make_panel(Metric.CPU_UTILIZATION, cores, node=name, interval_s=1),
            make_panel(Metric.GPU_UTILIZATION, gpu, node=name, interval_s=1),
            make_panel(Metric.IO_WAIT, wait, node=name, interval_s=1),
        ),
        steps=joined_steps(
            make_steps(spans, node=name, rank="0"), make_steps(spans, node=name, rank="1", phase=name)
        ),
        events=Events.joined([make_events(rows, node=name, rank="0"), tensors]),
        profiles=(profile(name), profile(name, begin="before step 0, start")),
    )


def chosen(name: str) -> tuple[CloseUp, ...]:
    """The moments of a job with such names."""
    return close_ups(job(name), CPUBottleneck(), IOBottleneck())


def profile(name: str, *, functions: int | tuple[Function, ...] = 12, **more: Any) -> Profile:
    """A profile of functions whose self time halves from one to the next."""
    halving = tuple(
        Function(
            file=f"/usr/lib/python3/site-packages/a/long/way/to/{name}.py" if i else "",
            line=i,
            name=f"{name}{i}",
            calls=1000 * i + 1,
            self_s=2.0**-i,
            total_s=2.0 ** (1 - i),
        )
        for i in range(functions if isinstance(functions, int) else 0)
    )
    known: dict[str, Any] = {
        "node": name,
        "rank": "0",
        "profiler": "cProfile",
        "start_us": START_US,
        "end_us": START_US + 5 * SECOND_US,
        "begin": "train step 9, step start",
        "end": "train step 9, step end",
        "functions": halving or functions,
        "count": len(halving) + 30,
        "self_s": 2.0,
    }
    return Profile(**(known | more))


def profiles(name: str) -> tuple[Profile, ...]:
    """Four profiles, so that one is folded; of start-up, of a step, of one that takes samples."""
    sampled = tuple(
        Function(file="", line=0, name=f"f{i}", calls=None, self_s=1.0, total_s=1.0) for i in range(2)
    )
    return (
        profile(name, begin="before step 0, start", end="train step 0, step start"),
        profile(name),
        profile(name, functions=3, count=3, self_s=1.75),
        profile(
            name,
            begin="step 3",
            end="step 3",
            rank="1",
            profiler="Pyinstrument",
            functions=sampled,
            count=2,
            self_s=2.0,
        ),
    )


def phase_time(name: str, **more: Any) -> EventTypeTime:
    """A phase recorded for 100 s."""
    known: dict[str, Any] = {
        "name": name,
        "events": 39,
        "seconds": 50.0,
        "first_us": START_US,
        "last_us": START_US + 100 * SECOND_US,
        "steps": 0,
    }
    return EventTypeTime(**(known | more))


def more_framework(name: str, workers: int = 3, others: int = 0) -> dict[str, Any]:
    """What framework time holds of workers, passes and what was profiled."""
    return {
        "passes": (
            Slice(key="backward", name="Backward pass", seconds=6.0, percent=66.7),
            Slice(key="forward", name="Forward pass", seconds=3.0, percent=33.3),
        ),
        "general_s": 4.5,
        "event_types": (
            phase_time(name, seconds=1.0, percent=80.0, outside_percent=83.0, steps=39),
            phase_time("Forward", seconds=30.0, percent=25.0, outside_percent=0.0, steps=1199),
            phase_time("once", seconds=4.0, events=1),
        ),
        "kinds": ("Outside steps", "TRAIN", name),
        "ranks": tuple(
            RankTime(node=name, rank=str(i), seconds=660.0 + i, percents=(35.0 + i, 60.0 - i, 5.0))
            for i in range(workers)
        ),
        "other_ranks": others,
        "other_percents": (35.0, 60.0, 5.0) if others else (),
        "outside_median": 35.0,
    }
