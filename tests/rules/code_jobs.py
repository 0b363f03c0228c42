"""Jobs whose stacks were sampled, from what each rank does one thing after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobrules.model import Events, Job, Metric, ProcessStacks
from tests.copies import replace
from tests.jobs import joined_steps, make_events, make_job, make_panel, make_steps
from tests.rules.loading_jobs import loader
from tests.stacks import FORKED, Stack, make_stacks

#: Seconds, the line or stack, percent of the GPU, and the recorded phase, empty for none.
Act = tuple[float, str | Stack, float, str]
MAIN = ("train.py:90 <module>", "train.py:30 main")
IMAGES = (*FORKED, "data.py:41 load_image", "library:PIL/Image.py:3300 open")


def _rows(acts: Sequence[Act], repeat: int) -> list[tuple[float, float, Act]]:
    ends = np.cumsum([act[0] for act in acts] * repeat).tolist()
    return [(end - act[0], end, act) for end, act in zip(ends, [*acts] * repeat, strict=True)]


def code_job(
    *ranks: Sequence[Act],
    repeat: int = 1,
    gpus: int | None = None,
    loaders: Sequence[Stack] = (),
    steps: bool = True,
    seed: int = 5,
) -> Job:
    """A job of one node. Of loader processes one has a sample of each of the `loaders` in turn. `steps` end with the acts."""
    random = np.random.default_rng(seed)
    stacks: list[ProcessStacks] = []
    tables, events, use = [], [], []
    for rank, acts in enumerate(ranks):
        rows = _rows(acts, repeat)
        length = rows[-1][1]
        ends = np.array([end for _, end, _ in rows])
        times = np.cumsum(random.uniform(0.05, 0.15, int(length * 10)))
        times = times[times < length]
        at = np.searchsorted(ends, times)
        lines = [act[1] if not isinstance(act[1], str) else (*MAIN, act[1]) for *_, act in rows]
        stacks.append(
            make_stacks(
                [(round(t * 1e6), lines[i]) for t, i in zip(times.tolist(), at.tolist(), strict=True)],
                rank=str(rank),
                pid=100 + rank,
            )
        )
        if loaders:
            some = [(round(t * 1e6), loaders[i % len(loaders)]) for i, t in enumerate(times[::5].tolist())]
            stacks.append(make_stacks(some, rank=str(rank), kind="loader", pid=200 + rank))
        kinds = [(act[3], act[3], start, end) for start, end, act in rows if act[3]]
        if kinds:
            own = [loader(2, process=str(rank))] if loaders else []
            events.append(make_events(kinds, rank=str(rank), pid=100 + rank, loaders=own))
        every = len(acts)
        spans = [(rows[i][0], rows[i + every - 1][1]) for i in range(0, len(rows), every)]
        tables.append(make_steps(spans, rank=str(rank)))
        grid = np.arange(0.01, length, 0.01)
        values = np.array([act[2] for *_, act in rows])[np.searchsorted(ends, grid).clip(0, len(rows) - 1)]
        use.append(values[: len(values) // 50 * 50].reshape(-1, 50).mean(axis=1))
    columns = np.column_stack([use[i % len(use)] for i in range(len(use) if gpus is None else gpus)] or [[]])
    table = replace(joined_steps(*tables), whole=True)
    panels = [make_panel(Metric.GPU_UTILIZATION, np.vstack([columns[:1], columns]))] if columns.size else []
    job = make_job(steps=table if steps else None, events=Events.joined(events), extra=panels)
    return replace(job, stacks=tuple(stacks))
