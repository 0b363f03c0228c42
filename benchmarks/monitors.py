"""Programs by which recording is measured: ``monitors.py NAME …``. Each prints one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, BLOCKS = 100, 100
STACK_BLOCKS = 10
#: File that says that a monitor runs.
STARTED = Path("started")


def wandb(interval_s: float, seconds: float) -> str:
    """W&B's system metrics, offline. Returns its version."""
    import wandb as library  # type: ignore[import-not-found]

    settings = library.Settings(x_stats_sampling_interval=interval_s, silent=True)
    run = library.init(mode="offline", dir=".", settings=settings)
    STARTED.touch()
    time.sleep(seconds)
    run.finish()
    return str(library.__version__)


def mlflow(interval_s: float, seconds: float) -> str:
    """MLflow's system metrics, in the database that is its default. Returns its version."""
    import mlflow as library  # type: ignore[import-not-found]

    library.set_system_metrics_sampling_interval(interval_s)
    library.set_system_metrics_samples_before_logging(1)
    with library.start_run(log_system_metrics=True):
        STARTED.touch()
        time.sleep(seconds)
    return str(library.__version__)


def steps() -> float:
    """CPU time that is added to a step by a fetch, two phases, and a batch, in seconds."""
    import jobrecord

    def step() -> None:
        with jobrecord.phase("Forward"):
            pass
        with jobrecord.phase("Backward"):
            pass
        jobrecord.batch(samples=32)
        jobrecord.step()

    return _added(lambda: None, step, lambda: None)


def watched_steps() -> float:
    """CPU time that is added to a step of PyTorch, in seconds."""
    import torch

    import jobrecord

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    batch = torch.ones(4, 4)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return _added(step, step, lambda: jobrecord.watch(model))


def stacks(seconds: float) -> float:
    """CPU time that samples of a stack of 20 frames take, as a share of a core, while the script waits."""
    import jobrecord

    os.environ |= {"JOBRECORD_RUN": "r", "JOBRECORD_DIR": "job", "JOBRECORD_NODE": "n"}

    def down(depth: int) -> None:
        if depth:
            down(depth - 1)
        else:
            time.sleep(seconds / STACK_BLOCKS)

    taken: dict[str, list[float]] = {"0": [], "10": []}
    for rate in ("0", "10") * STACK_BLOCKS:
        os.environ["JOBRECORD_STACKS"] = rate
        jobrecord.start()
        jobrecord.step()
        begin_s, begin_wall_s = time.process_time(), time.monotonic()
        down(20)
        taken[rate].append((time.process_time() - begin_s) / (time.monotonic() - begin_wall_s))
        jobrecord.stop()
    return median(taken["10"]) - median(taken["0"])


def _added(bare: Callable[[], None], recorded: Callable[[], None], prepare: Callable[[], None]) -> float:
    """Difference of the fastest of many short blocks, in turn, so that other work on the machine disturbs both alike."""
    import jobrecord
    from jobrecord.hooks import current

    def flush() -> None:
        if recording := current.current():
            recording.trace.flush()

    # As under record-job: no sampler is started.
    os.environ |= {
        "JOBRECORD_RUN": "r",
        "JOBRECORD_DIR": "job",
        "JOBRECORD_NODE": "n",
        "JOBRECORD_STACKS": "0",
    }
    taken: dict[bool, list[float]] = {False: [], True: []}
    for is_recorded in (False, True) * BLOCKS:
        step = recorded if is_recorded else bare
        if is_recorded:
            jobrecord.start()
            prepare()
            # Files are opened once in a job.
            with jobrecord.phase("first"):
                pass
            flush()
        begin_s = time.process_time()
        for _batch in jobrecord.data(range(STEPS)):
            step()
        flush()
        taken[is_recorded].append((time.process_time() - begin_s) / STEPS)
        jobrecord.stop()
    return min(taken[True]) - min(taken[False])


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*map(float, sys.argv[2:]))))
