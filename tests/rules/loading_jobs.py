"""Jobs whose batches are loaded, from events of fetches and of loader processes."""

from __future__ import annotations

import numpy as np

from jobrules.model import SECOND_US, Events, Job, Loader, Metric, Panel
from tests.copies import replace
from tests.jobs import START_US, make_events, make_job, make_panel

MULTI, SINGLE = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
#: (phase, name, start, end, process), seconds after the start.
Row = tuple[str, str, float, float, int]


def fetch(start_s: float, end_s: float, kind: str = MULTI, pid: int = 33) -> Row:
    return "DataLoaderIter", f"{kind}::GetNext", start_s, end_s, pid


def worker(start_s: float, end_s: float, pid: int) -> Row:
    return "DataLoaderWorker", "DataLoaderWorker", start_s, end_s, pid


def loader(
    num_workers: int | None,
    *,
    kind: str = MULTI,
    start_s: float = 0,
    pin_memory: bool | None = None,
    node: str = "algo-1",
    process: str = "33",
) -> Loader:
    return Loader(
        node=node,
        rank=process,
        iterator=kind,
        start_us=START_US + round(start_s * SECOND_US),
        num_workers=num_workers,
        pin_memory=pin_memory,
    )


def events_of(
    rows: list[Row], loaders: list[Loader] | None = None, *, node: str = "algo-1", process: str = "33"
) -> Events:
    ordered = sorted(rows, key=lambda row: (row[2], row[3]))
    table = make_events([row[:4] for row in ordered], node=node, rank=process, loaders=loaders or [])
    return replace(table, pid=np.array([row[4] for row in ordered], np.int64))


def cores(n: int, *, seconds: int = 300, node: str = "algo-1") -> Panel:
    return make_panel(
        Metric.CPU_UTILIZATION, np.full((seconds, n), 20.0), interval_s=1, prefix="cpu", node=node
    )


def job_of(events: Events, n: int = 4) -> Job:
    return make_job(events=events, extra=[cores(n)])
