"""Small jobs of any faults, and what a plain reader sees in them."""

from __future__ import annotations

import numpy as np

from jobrules.model import SECOND_US, Job, JobInMemory, Metric, Steps
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_panel, make_steps

INTERVAL_S = 20


def random_job(seed: int) -> Job:
    """Two nodes at most, of any faults, with samples that are missing, and steps."""
    rng = np.random.default_rng(seed)
    panels, steps = [], []
    n = int(rng.integers(20, 80))
    for node in ("a", "b")[: rng.integers(1, 3)]:
        gpus = int(rng.integers(1, 4))
        ticks = (
            np.sort(rng.choice(np.arange(n + 20), n, replace=False)) if rng.random() < 0.3 else np.arange(n)
        )
        time_us = START_US + ticks * INTERVAL_S * SECOND_US + rng.integers(0, 5) * SECOND_US
        idle = rng.choice([0.0, 0.4])
        gpu = rng.choice(
            [0.0, 2.0, 9.9, 10.0, 40.0, 69.9, 70.0, 100.0],
            (n, gpus),
            p=[idle, idle / 4, idle / 4, 0.1, 0.5 - idle, 0.1, 0.1, 0.2 - idle / 2],
        )
        if steady := bool(rng.random() < 0.2):
            gpu = rng.choice([10.0, 40.0, 70.0], (n, gpus))
        gpu[: rng.integers(0, n // 2)] = 0
        gpu[n - rng.integers(0, n // 4) - 1 :] = 0
        # A look at the GPUs is no work.
        gpu[rng.integers(0, 5)] = rng.choice([0.0, 1.0])
        if gpus > 1 and rng.random() < 0.3:
            gpu[:, rng.integers(0, gpus)] = rng.choice([0.0, 1.0])
        if rng.random() < 0.4:
            gpu[rng.random(gpu.shape) < 0.2] = np.nan
            gpu[n // 2] = 40.0
        keep = ~np.isnan(gpu).all(axis=1)
        panel = make_panel(Metric.GPU_UTILIZATION, gpu, node=node, time_us=time_us)
        panels.append(replace(panel, values=gpu[keep], time_us=time_us[keep], snapshot=panel.snapshot[keep]))
        for metric in (Metric.CPU_UTILIZATION, Metric.IO_WAIT):
            if rng.random() < 0.85:
                cores = int(rng.choice([1, 3, 4]))
                values = rng.choice([0.0, 30.0, 60.0, 95.0], (n, cores), p=[0.4, 0.4, 0.1, 0.1])
                values[rng.random(n) < (0.02 if steady else 0.2)] = 95.0
                if steady and rng.random() < 0.5:
                    # About one core of all.
                    values[rng.random(n) < rng.uniform(0.4, 1)] = 31.0
                panel = make_panel(metric, values, node=node, time_us=time_us, prefix="cpu")
                some = np.sort(rng.choice(n, n - rng.integers(0, 5), replace=False))
                panels.append(
                    replace(panel, values=values[some], time_us=time_us[some], snapshot=panel.snapshot[some])
                )
        for rank in ("0", "1")[: rng.integers(0, 3)]:
            lasts = rng.choice([1.0, 1.1, 30.0], 120, p=[0.6, 0.35, 0.05])
            starts = rng.uniform(0, 200) + np.cumsum(lasts + rng.uniform(0, 5)) - lasts
            spans = list(zip(starts.tolist(), (starts + lasts).tolist(), strict=True))
            # Without numbers: they say nothing about the clocks.
            table = make_steps(spans, node=node, rank=rank)
            steps.append(replace(table, number=np.full(len(table), -1)))
    return JobInMemory(
        name="job",
        panels=tuple(sorted(panels, key=lambda p: (p.node, p.metric))),
        steps=joined_steps(*steps) if steps else Steps(),
        finished=True,
    )


def plain_worked(values: list[float]) -> bool:
    """Whether a GPU was used at all."""
    return any(value >= 10 for value in values) or sum(value > 1 for value in values) >= 5


def plain_work_us(times: list[int], values: list[float]) -> tuple[int, int] | None:
    """First and last moment of a GPU's work, sample by sample."""
    active = [i for i, value in enumerate(values) if value > 0]
    if not plain_worked(values):
        return None
    whole = values[active[0] : active[-1] + 1]
    least = sum(whole) / len(whole) / 4 - 1e-9
    backwards = [-time_us for time_us in reversed(times)]
    begin = plain_begin(times, values, least)
    end = len(values) - 1 - plain_begin(backwards, values[::-1], least)
    return times[begin], times[max(begin, end)]


def plain_begin(times: list[int], values: list[float], least: float) -> int:
    """The first sample in use from which on the next minute is in use."""
    active = [i for i, value in enumerate(values) if value > 0]
    for i in active:
        ahead = [j for j in range(i, len(times)) if times[j] <= times[i] + 60 * SECOND_US]
        ahead = list(range(i, min(len(times), max(i + 5, ahead[-1] + 1))))
        if sum(values[j] for j in ahead) / len(ahead) >= least:
            return next(j for j in range(i, len(times)) if values[j] >= least)
    return active[0]
