"""Jobs of several ranks, from how long each of them computes in the phases of each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jobrules.model import Events, Job, Panel
from tests.copies import replace
from tests.jobs import joined_steps, make_events, make_job, make_steps

#: Milliseconds of a rank in a step.
Time = Callable[[int, int], float]
FORWARD, BACKWARD, FETCH, OPTIMIZER = "Forward", "Backward(post-forward)", "DataLoaderIter", "Optimizer"
OWN_MS = {FETCH: 8.0, FORWARD: 7.0, BACKWARD: 2.0, OPTIMIZER: 1.0}


def slow(by: float, *ranks: int, steps: Callable[[int], bool] = lambda step: True) -> Time:
    """Milliseconds that some ranks take longer, in some steps."""
    return lambda rank, step: by if rank in ranks and steps(step) else 0.0


def in_step(
    n: int,
    longer: dict[str, Time] | None = None,
    *,
    steps: int = 60,
    together: bool = True,
    phases: tuple[str, ...] = (FETCH, FORWARD, BACKWARD, OPTIMIZER),
    per_node: int = 64,
    seed: int = 3,
    extra: Callable[[float], tuple[Panel, ...]] | None = None,
) -> Job:
    """Ranks that exchange gradients at the end of the backward pass, where each waits for the last; or that run alone.

    What is not among `phases` is not recorded.
    """
    random = np.random.default_rng(seed)
    now_s = np.full(n, 1.237)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(n)]
    rows: list[list[tuple[str, str, float, float]]] = [[] for _ in range(n)]
    for step in range(steps):
        began = now_s.copy()
        for kind, ms in OWN_MS.items():
            more = np.array([longer[kind](r, step) if longer and kind in longer else 0.0 for r in range(n)])
            took = (ms + more) / 1000 * random.uniform(0.97, 1.05, n)
            end_s = now_s + took
            if kind == BACKWARD and together:
                end_s = np.full(n, end_s.max()) + random.uniform(0.0, 0.0003, n)
            if kind in phases:
                name = "_SingleProcessDataLoaderIter::DataLoaderIter::GetNext" if kind == FETCH else kind
                for r in range(n):
                    rows[r].append((kind, name, float(now_s[r]), float(end_s[r])))
            now_s = end_s
        for r in range(n):
            spans[r].append((float(began[r]), float(now_s[r])))
    node = [f"node-{r // per_node}" for r in range(n)]
    table = joined_steps(*(make_steps(spans[r], rank=str(r), node=node[r]) for r in range(n)))
    events = Events.joined([make_events(rows[r], rank=str(r), node=node[r], pid=100 + r) for r in range(n)])
    return make_job(
        steps=replace(table, whole=True), events=events, extra=extra(float(now_s.max())) if extra else ()
    )
