"""Jobs with a known cause of lost GPU time, made without a file, and the share that each cause took.

A job is made in this order: what busy GPUs and their cores do, the pauses that every job has, the cause, the start and
the end of the job. What a busy GPU would have done is kept, so what the cause took is known to the sample. The
numbers are a model of machines, independent of the sample data: nothing here is read from the product's rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobrules.model import SECOND_US, Events, Job, JobInMemory, Loader, Metric, Panel, Steps
from tests.copies import replace
from tests.jobs import make_events, make_panel, make_steps

Floats = NDArray[np.float32]
Seconds = NDArray[np.float64]
Rows = NDArray[np.bool_]

START_US = 1_731_580_000 * SECOND_US
#: Steps, and batches, that a job records at most, over all processes.
MAX_RECORDED = 40_000
#: The order in which causes claim a moment; any other comes after these.
FIRST = ("never-used", "start-up", "wind-down")


@dataclass(frozen=True)
class Shape:
    """The machines of a job."""

    nodes: int
    #: Of each node.
    gpus: int
    cores: int

    def __str__(self) -> str:
        return f"{self.nodes}×{self.gpus}×{self.cores}"

    @property
    def processes(self) -> int:
        """Training processes of a node: one per GPU where it has four cores for each, otherwise one for all."""
        return self.gpus if self.cores >= 4 * self.gpus else 1


SHAPES = (Shape(1, 1, 4), Shape(1, 4, 8), Shape(1, 8, 32), Shape(2, 8, 32), Shape(1, 8, 96))


@dataclass(frozen=True)
class Loss:
    """What a cause took, as shares of all GPU time of the job."""

    cause: str
    #: Against a busy GPU, which is not at 100% either, and all that was lost in the moments of the cause.
    taken: float
    lost: float
    #: Time from its first to its last moment.
    seconds: float


@dataclass(frozen=True)
class MadeJob:
    """A job and the truth about it."""

    job: Job
    cause: str
    shape: Shape
    seed: int
    losses: tuple[Loss, ...]
    #: Share of GPU time that was lost to nothing in particular: dips, pauses, busy GPUs below 100%.
    noise: float
    #: Share of GPU time before a sensor of a GPU began.
    unmeasured: float


@dataclass(frozen=True)
class Times:
    """The shortest job in minutes, and ranges of the shares of it that start-up and wind-down take."""

    shortest: float = 20
    start_up: tuple[float, float] = (0.01, 0.15)
    wind_down: tuple[float, float] = (0.002, 0.015)


@dataclass
class Run:
    """A job while it is made. Arrays of samples are (nodes, devices, n); all nodes have the same n snapshots."""

    shape: Shape
    rng: np.random.Generator
    times: Times
    losses: list[tuple[str, Floats, Floats]] = field(default_factory=list)
    steps: list[tuple[str, Seconds, Seconds]] = field(default_factory=list)
    fetches: tuple[Seconds, Seconds] | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        self.length_s = 60 * float(np.exp(rng.uniform(np.log(self.times.shortest), np.log(90))))
        self.interval_s = float(rng.choice((0.1, 0.5, 1.0) if self.length_s < 1800 else (0.5, 1.0)))
        self.n = int(self.length_s / self.interval_s)
        #: Part of the interval by which samples begin before the snapshots in which the job is made.
        self.early = np.float32(rng.uniform(0, 1))
        begin = int(self.n * rng.uniform(*self.times.start_up))
        end = int(self.n * (1 - rng.uniform(*self.times.wind_down)))
        self.work = np.zeros(self.n, np.bool_)
        self.work[begin:end] = True
        self.begin, self.end = begin, end
        self.busy = self._busy_gpus()
        self.gpu = self.busy.copy()
        self.cpu = self._busy_cores()
        self.io_wait = self.noisy(0.3, 0.6, self.shape.cores)
        self.memory_part = float(rng.uniform(0.4, 0.7))
        self.panels: dict[Metric, Floats] = {}
        self.pauses = np.zeros(self.n, np.bool_)
        self._pause()
        self._start_and_end()

    @property
    def distributed(self) -> bool:
        """Whether several training processes wait for one another."""
        return self.shape.nodes * self.shape.processes > 1

    @property
    def all_gpus(self) -> int:
        return self.shape.nodes * self.shape.gpus

    @property
    def loop(self) -> Rows:
        """(n,) the work without the pauses."""
        return self.work & ~self.pauses

    def noisy(self, level: float | Floats, spread: float, devices: int) -> Floats:
        """(nodes, devices, n) a level with noise, in percent."""
        shape = (self.shape.nodes, devices, self.n)
        noise = self.rng.standard_normal(shape, np.float32)
        noise *= np.float32(spread)
        noise += level
        return np.clip(noise, 0, 100, out=noise)

    def _busy_gpus(self) -> Floats:
        """88 to 99%, with a dip in one sample of a hundred."""
        level = self.rng.uniform(92, 97) + self.rng.uniform(-0.7, 0.7, (self.shape.nodes, self.shape.gpus, 1))
        gpu = self.noisy(level.astype(np.float32), self.rng.uniform(0.8, 2.0), self.shape.gpus)
        dips = self.rng.random(gpu.shape, np.float32) < 0.01
        gpu[dips] = self.rng.uniform(45, 85, int(dips.sum()))
        return gpu

    def _busy_cores(self) -> Floats:
        """Most cores are free, some prepare data, and the main thread of a process spins more or less."""
        shape, rng = self.shape, self.rng
        level = rng.uniform(2, 15, (shape.nodes, shape.cores, 1))
        preparing = int(shape.cores * rng.uniform(0.1, 0.3))
        level[:, shape.processes : shape.processes + preparing] = rng.uniform(20, 60)
        level[:, : shape.processes] = self.spin = float(rng.uniform(30, 102))
        return self.noisy(level.astype(np.float32), 3.0, shape.cores)

    def _pause(self) -> None:
        """Let the job pause every few minutes for 1 to 2% of its time, to save or to evaluate."""
        every_s = self.rng.uniform(180, 700)
        for at_s in np.arange(self.begin * self.interval_s + every_s, self.end * self.interval_s, every_s):
            length_s = every_s * self.rng.uniform(0.01, 0.018)
            self.pauses[int(at_s / self.interval_s) : int((at_s + length_s) / self.interval_s) + 1] = True
        self.pauses &= self.work
        kind = self.rng.choice(("save", "evaluate"))
        if kind == "evaluate":
            self.gpu[..., self.pauses] *= np.float32(self.rng.uniform(0.4, 0.9))
            self.record(self.pauses, step_s=0.4, mode="EVAL")
            return
        # The first rank writes, the others spin in a collective operation.
        writers = slice(0, 1) if self.distributed else slice(None)
        self.gpu[..., self.pauses] = 100
        self.gpu[0, writers, self.pauses] = 0
        self.cpu[0, 0, self.pauses] = 98

    def _start_and_end(self) -> None:
        """Leave the GPUs idle before and after the work, and let cores prepare the data first."""
        before, after = np.arange(self.n) < self.begin, np.arange(self.n) >= self.end
        for cause, rows in (("start-up", before), ("wind-down", after)):
            self.gpu[..., rows] = self._waiting(rows)
            self.cpu[:, : self.shape.processes, rows] /= 5
            self.lose(cause, rows)
        preparing = self.rng.choice((1, self.shape.cores // 3 + 1, self.shape.cores))
        self.fill(slice(0, preparing), before, self.rng.choice((50, 98)))
        self.fill(slice(0, 1), after, self.rng.choice((10, 97)))

    def sampled(self, values: Floats) -> Floats:
        """Samples that begin within a snapshot, so that what begins and ends with one is seen in parts of two."""
        before = np.concatenate([values[..., :1], values[..., :-1]], axis=-1)
        return ((1 - self.early) * values + self.early * before).astype(np.float32)

    def _waiting(self, rows: Rows) -> Floats:
        """(nodes, gpus, rows) use of idle GPUs: rarely a sample of 1 to 3%."""
        return np.minimum(self.noisy(-6.0, 3.0, self.shape.gpus)[..., rows], 3)

    # What happens to devices

    def episodes(self, share: tuple[float, float], seconds: tuple[float, float]) -> Rows:
        """(n,) moments in the loop that come and go, together a share of it."""
        length = max(2, self.rng.uniform(*seconds) / self.interval_s)
        part = self.rng.uniform(*share)
        count = int(self.n * part / length * 1.2) + 4
        lengths = np.empty(2 * count)
        lengths[::2], lengths[1::2] = length * (1 - part) / part, length
        lengths *= self.rng.lognormal(0, 0.2, 2 * count)
        rows = np.repeat(np.arange(2 * count) % 2 == 1, np.maximum(2, np.rint(lengths)).astype(int))
        found = np.zeros(self.n, np.bool_)
        found[self.begin :] = rows[: self.n - self.begin]
        return found & self.loop

    def idle(self, rows: Rows) -> None:
        """Let all GPUs wait: rarely a sample of 1 to 3%, some between busy and idle at the edges."""
        self.gpu[..., rows] = self._waiting(rows)
        first = np.flatnonzero(rows & ~np.roll(rows, 1))
        first = first[self.rng.random(len(first)) < 0.3]
        self.gpu[..., first] = self.rng.uniform(5, 80, len(first))
        if self.distributed and self.rng.random() < 0.5:
            # Whoever is ready first spins until the last one comes.
            last = np.flatnonzero(rows & ~np.roll(rows, -1))
            ready = self.rng.random((*self.gpu.shape[:2], len(last))) < 0.4
            self.gpu[..., last] = np.where(ready, 100, self.gpu[..., last])

    def fill(self, cores: slice, rows: Rows, level: float | Floats, spread: float = 3.0) -> None:
        """Put some cores of every node at a level."""
        size = self.cpu[:, cores, rows].shape
        noise = self.rng.standard_normal(size, np.float32) * np.float32(spread)
        self.cpu[:, cores, rows] = np.clip(level + noise, 0, 100)

    def lose(self, cause: str, part: Rows | Floats, *, against_busy: bool = False) -> None:
        """Keep what a cause took: ``part`` of each moment of each GPU, or (n,) of all GPUs."""
        part = np.broadcast_to(np.asarray(part, np.float32), self.gpu.shape)
        busy = np.round(self.busy)
        gpu = np.clip(np.round(self.gpu), 0, 100)
        taken = np.where(part > 0, np.maximum(0, busy - gpu), 0) / 100
        lost = taken if against_busy else np.maximum(taken, np.minimum(100 - gpu, 100 * part) / 100)
        self.losses.append((cause, taken.astype(np.float32), lost.astype(np.float32)))

    # What is recorded

    def record(self, rows: Rows, step_s: float, mode: str = "TRAIN") -> None:
        """Record steps back to back in each stretch of rows."""
        edge = np.flatnonzero(np.diff(rows, prepend=False, append=False)) * self.interval_s
        start_s, end_s = edge[::2], edge[1::2]
        many = MAX_RECORDED / (self.shape.nodes * self.shape.processes)
        step_s = max(step_s, float((end_s - start_s).sum()) / many)
        count = np.maximum(1, np.rint((end_s - start_s) / step_s)).astype(int)
        length = np.repeat((end_s - start_s) / count, count)
        number = np.arange(len(length)) - np.repeat(np.cumsum(count) - count, count)
        begin = np.repeat(start_s, count) + number * length
        # Edges differ by some percent of a step; what one step lacks the next one has.
        shift = self.rng.normal(0, 0.02, len(length)) * length * (number > 0)
        end = begin + length
        same = number[1:] > 0
        begin += shift
        end[:-1][same] += shift[1:][same]
        self.steps.append((mode, begin, end - 0.002 * length))

    def record_loop(self, rows: Rows | None = None) -> None:
        """Record the steps of most jobs, all of them or those of a part of the work."""
        if self.rng.random() < 0.7:
            rows = (self.loop if rows is None else rows).copy()
            if self.rng.random() < 0.25:
                first = int(self.rng.uniform(self.begin, self.begin + 0.6 * (self.end - self.begin)))
                rows[:first] = rows[first + (self.end - self.begin) // 5 :] = False
            self.record(rows, self.rng.uniform(0.3, 1.5))
            if self.rng.random() < 0.5:
                self.record_quick_loaders()

    def record_quick_loaders(self) -> None:
        """Record loaders that keep up: the training waits some milliseconds for each batch."""
        _, start_s, _ = self.steps[-1]
        self.workers = int(self.rng.integers(1, 4))
        self.fetches = start_s - 0.004, start_s - 0.004 + self.rng.uniform(0.0005, 0.003, len(start_s))


def cpu_bottleneck(run: Run, share: tuple[float, float] = (0.3, 0.55)) -> None:
    """GPUs wait while most cores prepare the next batches."""
    rows = run.episodes(share, (1.5, 15))
    cores = slice(0, int(np.ceil(run.shape.cores * run.rng.uniform(0.6, 1))))
    run.fill(cores, run.work, run.rng.uniform(30, 75), 6)
    run.fill(cores, rows, 97.5, 1.5)
    run.idle(rows)
    run.record_loop(run.loop & ~rows)
    run.lose("cpu-bottleneck", rows)


def one_core(run: Run) -> None:
    """GPUs wait for one process of each node that does something alone, now on one core, now on another."""
    rows = run.episodes((0.25, 0.55), (1.5, 20))
    stay = int(run.rng.uniform(60, 300) / run.interval_s)
    run.fill(slice(0, run.shape.processes), run.work, run.rng.uniform(20, 60))
    for first in range(0, run.n, stay):
        part = np.zeros(run.n, np.bool_)
        part[first : first + stay] = True
        core = int(run.rng.integers(run.shape.cores))
        run.fill(slice(core, core + 1), part & rows, 98, 1.5)
    run.idle(rows)
    if run.rng.random() < 0.5:
        # What the process does is a part of its steps.
        starts = np.asarray(np.flatnonzero(rows & ~np.roll(rows, 1)) * run.interval_s, np.float64)
        run.steps.append(("TRAIN", starts[:-1], starts[1:] - 0.005))
    run.lose("one-core", rows)


def io_bottleneck(run: Run) -> None:
    """GPUs wait while cores wait for a disk; some samplers count that as use of the core."""
    rows = run.episodes((0.3, 0.55), (1.5, 15))
    waiting = max(1, int(run.shape.cores * run.rng.uniform(0.2, 0.9)))
    counted = run.rng.random() < 0.5
    there = np.flatnonzero(rows)
    level = run.rng.uniform(65, 92)
    noise = run.rng.standard_normal((run.shape.nodes, waiting, len(there)), np.float32)
    waits = np.clip(level + 5 * noise, 0, 100)
    run.io_wait[:, :waiting, rows] = waits
    run.cpu[:, :waiting, rows] = np.clip(waits + 5, 0, 100) if counted else np.clip(104 - waits, 0, 30)
    run.idle(rows)
    run.record_loop(run.loop & ~rows)
    run.lose("io-bottleneck", rows)


def _loading_loop(run: Run) -> tuple[Seconds, Seconds, Seconds, Floats]:
    """Start of each wait, of the step after it and its end, and (n,) the part of each sample that is waiting."""
    rng = run.rng
    step_s = rng.uniform(1.5, 4) if rng.random() < 0.5 else rng.uniform(0.1, 0.4)
    part = rng.uniform(0.25, 0.55)
    worked = np.append(0, np.cumsum(run.loop)) * run.interval_s
    count = int(worked[-1] / (step_s / (1 - part)) * 1.1) + 10
    lengths = np.empty(2 * count)
    lengths[::2] = step_s * part / (1 - part) * rng.lognormal(0, 0.12, count)
    lengths[1::2] = step_s * rng.lognormal(0, 0.04, count)
    edges = np.append(0, np.cumsum(lengths))
    edges = edges[: 2 * (int(np.searchsorted(edges, worked[-1])) // 2) + 1]
    waited = np.append(0, np.cumsum(np.where(np.arange(len(edges) - 1) % 2 == 0, np.diff(edges), 0)))
    waiting = np.diff(np.interp(worked, edges, waited)) / run.interval_s
    # Pauses come between, on the time of the clock.
    clock_s = np.interp(edges, worked, np.arange(run.n + 1) * run.interval_s)
    whole = np.abs((clock_s[2::2] - clock_s[:-1:2]) - (edges[2::2] - edges[:-1:2])) < 1e-3
    starts, steps, ends = clock_s[:-1:2][whole], clock_s[1::2][whole], clock_s[2::2][whole]
    return starts, steps, ends, np.clip(waiting, 0, 1).astype(np.float32)


def _load(run: Run) -> tuple[Seconds, Seconds, Seconds, Floats]:
    """Let the GPUs wait for each batch, and record steps in all of the loop or in a part."""
    starts, steps, ends, waiting = _loading_loop(run)
    run.gpu[..., run.loop] *= (1 - waiting[run.loop]) * run.rng.uniform(0.99, 1)
    many = MAX_RECORDED // (run.shape.nodes * run.shape.processes)
    if run.rng.random() < 0.3:
        many = min(many, int(len(starts) * run.rng.uniform(0.2, 0.5)))
    first = int(run.rng.integers(0, max(1, len(starts) - many)))
    kept = slice(first, first + many)
    starts, steps, ends = starts[kept], steps[kept], ends[kept]
    run.steps = [("TRAIN", steps, ends - 0.0002)]
    return starts, steps, ends, waiting


def loading_in_training(run: Run) -> None:
    """Each training process loads every batch itself, with its core full meanwhile."""
    starts, steps, _, waiting = _load(run)
    own = slice(0, run.shape.processes)
    level = (98 * waiting + np.minimum(run.spin, 85) * (1 - waiting))[run.loop]
    run.fill(own, run.loop, level, 1.5)
    run.fetches = starts + 0.0003, steps - 0.0003
    run.lose("data-loading", waiting * run.loop)


def few_workers(run: Run) -> None:
    """Some loader processes cannot keep up: a batch takes each of them longer than as many steps."""
    starts, steps, ends, waiting = _load(run)
    spare = run.shape.cores // 2 - 1 - run.shape.processes
    run.workers = int(run.rng.integers(1, max(2, min(4, spare // run.shape.processes + 1))))
    first = run.shape.processes
    run.fill(slice(first, first + run.shape.processes * run.workers), run.work, 98, 1.5)
    run.fill(slice(0, first), run.work, run.rng.uniform(15, 50))
    took = run.workers * (ends - starts) * run.rng.lognormal(0, 0.03, len(starts))
    run.fetches = steps - 0.0003 - took, steps - 0.0003
    run.lose("data-loading", waiting * run.loop)


def imbalance(run: Run) -> None:
    """Some GPUs of each node have less to do."""
    count = max(1, int(run.shape.gpus * run.rng.uniform(0.25, 0.5)))
    less = run.rng.choice(run.shape.gpus, count, replace=False)
    part = run.rng.uniform(0.35, 0.65)
    there = np.flatnonzero(run.loop)
    noise = run.rng.normal(part, 0.04, (run.shape.nodes, count, len(there)))
    at = np.ix_(np.arange(run.shape.nodes), less, there)
    run.gpu[at] = np.clip(run.gpu[at] * noise, 0, 100)
    run.record_loop()
    rows = np.zeros(run.gpu.shape, np.bool_)
    rows[at] = True
    run.lose("imbalance", rows, against_busy=True)


def small_batch(run: Run) -> None:
    """Steps too small for the GPUs: steady use of a half, no core but the main threads busy, and these not always."""
    run.gpu[..., run.loop] = run.noisy(run.rng.uniform(35, 58), 3.0, run.shape.gpus)[..., run.loop]
    run.memory_part = float(run.rng.uniform(0.2, 0.45))
    # About one core in use for each process is a process at its limit, which no batch size helps.
    each = float(run.cpu[..., run.loop].mean(axis=2).sum(axis=1).mean()) / 100 / run.shape.processes
    if 0.8 < each < 1.4:
        run.cpu *= 0.7 / each
    run.record_loop()
    run.lose("small-batch", run.loop)


def never_used(run: Run) -> None:
    """No process uses some of the GPUs."""
    run.record_loop()
    leave_unused(run, (0.1, 0.4))


def leave_unused(run: Run, share: tuple[float, float]) -> None:
    """Keep some of the GPUs at 0%, but for the glances of a framework."""
    count = max(1, int(run.all_gpus * run.rng.uniform(*share)))
    unused = np.zeros(run.all_gpus, np.bool_)
    unused[run.rng.choice(run.all_gpus, count, replace=False)] = True
    rows = np.broadcast_to(unused.reshape(run.gpu.shape[:2])[..., None], run.gpu.shape)
    run.gpu[rows] = run.rng.random(int(rows.sum())) < run.rng.uniform(0, 0.05)
    run.lose("never-used", rows)


def nothing(run: Run) -> None:
    """A job without a cause, or with one that is not in its work."""
    run.record_loop()


def outlier_steps(run: Run) -> None:
    """A few steps take many times as long as the others; all GPUs idle in the rest of them."""
    rng = run.rng
    step_s = max(rng.uniform(0.8, 1.6), 2 * run.interval_s)
    times, rare = rng.uniform(6, 9), rng.uniform(0.02, 0.03)
    worked = np.append(0, np.cumsum(run.loop)) * run.interval_s
    lengths = step_s * rng.normal(1, 0.04, int(worked[-1] / step_s))
    slow = np.zeros(len(lengths), np.bool_)
    slow[1 + rng.choice(len(lengths) - 2, max(18, int(rare * len(lengths))), replace=False)] = True
    lengths[slow] *= times
    edges = np.append(0, np.cumsum(lengths))
    edges = edges[: int(np.searchsorted(edges, worked[-1]))]
    slow = slow[: len(edges) - 1]
    clock_s = np.interp(edges, worked, np.arange(run.n + 1) * run.interval_s)
    whole = np.abs(np.diff(clock_s) - np.diff(edges)) < 1e-3
    slow &= whole
    run.steps.append(("TRAIN", clock_s[:-1][whole], clock_s[1:][whole] - 0.0005))
    rows = np.zeros(run.n, np.bool_)
    for at_s, end_s in zip(clock_s[:-1][slow], clock_s[1:][slow], strict=True):
        # The work of the step comes last.
        first, stop = np.ceil(np.array([at_s, end_s - step_s]) / run.interval_s).astype(int)
        rows[first:stop] = True
    rows &= run.loop
    waits = run.rng.uniform(0, 4, (*run.gpu.shape[:2], int(rows.sum())))
    run.gpu[..., rows] = waits
    run.lose("outlier-steps", rows)


def unexplained(run: Run) -> None:
    """All GPUs stand still for a while every few minutes, and nothing that was recorded says why."""
    rows = run.episodes((0.28, 0.45), (20, 90))
    run.idle(rows)
    run.fill(slice(None), rows, 6)
    run.steps = []
    run.lose("unexplained", rows | run.pauses)


def throttled(run: Run) -> None:
    """One GPU grows hot and slow, at 100% as before; the others wait for it, without spinning."""
    rows = run.episodes((0.5, 0.8), (60, 300))
    hot = int(run.rng.integers(run.all_gpus))
    slow = run.rng.uniform(0.6, 0.72)
    node, device = divmod(hot, run.shape.gpus)
    run.gpu[..., rows] *= slow
    run.gpu[node, device, rows] = run.noisy(98.5, 0.8, run.shape.gpus)[node, device, rows]
    run.record_loop()
    run.lose("throttled", rows)
    record_health(run)
    clock, heat = run.panels[Metric.GPU_CLOCK], run.panels[Metric.GPU_THERMAL_SLOWDOWN]
    clock[node, device, rows] = np.round(clock[node, device, rows] * slow / 15) * 15
    heat[node, device, rows] = 100
    run.panels[Metric.GPU_TEMPERATURE][node, device] += 14
    run.panels[Metric.GPU_TEMPERATURE][node, device, rows] += 7


def record_health(run: Run) -> None:
    """Record power, temperature, clock and reasons of throttling, as nvidia-smi gives them."""
    active = run.gpu > 10
    gpus = run.shape.gpus
    limit = run.rng.choice((250.0, 300.0, 400.0, 700.0))
    highest = run.rng.choice((1380.0, 1410.0, 1980.0))
    zeros = np.zeros_like(run.gpu)
    ripple = run.noisy(50, 8, gpus) - 50
    run.panels |= {
        Metric.GPU_POWER: np.where(active, limit * (0.3 + 0.0055 * run.gpu), 0.14 * limit) + ripple * 0.2,
        Metric.GPU_POWER_LIMIT: zeros + np.float32(limit),
        Metric.GPU_TEMPERATURE: np.round(np.where(active, 64, 48) + ripple * 0.1),
        Metric.GPU_CLOCK: np.where(active, highest - 15 * (ripple > 8), 210).astype(np.float32),
        Metric.GPU_THERMAL_SLOWDOWN: zeros.copy(),
        Metric.GPU_POWER_CAP: zeros.copy(),
        Metric.GPU_HARDWARE_SLOWDOWN: zeros.copy(),
        Metric.GPU_MEMORY_USED: zeros + np.float32(run.rng.uniform(0.3, 0.7) * 80e9),
        Metric.GPU_MEMORY_TOTAL: zeros + np.float32(80e9),
    }


def cpu_and_never_used(run: Run) -> None:
    """GPUs that nobody uses beside some that wait for the cores."""
    cpu_bottleneck(run, (0.25, 0.5))
    leave_unused(run, (0.15, 0.5))


#: For each cause what it does to the work.
CAUSES: dict[str, Callable[[Run], None]] = {
    "healthy": nothing,
    "cpu-bottleneck": cpu_bottleneck,
    "one-core": one_core,
    "io-bottleneck": io_bottleneck,
    "loading-in-training": loading_in_training,
    "few-workers": few_workers,
    "imbalance": imbalance,
    "small-batch": small_batch,
    "never-used": never_used,
    "start-up": nothing,
    "wind-down": nothing,
    "outlier-steps": outlier_steps,
    "unexplained": unexplained,
    "throttled": throttled,
    "two": cpu_and_never_used,
}
#: Of these there is none in a job with one GPU.
OF_SEVERAL_GPUS = ("imbalance", "never-used")


def made(cause: str, shape: Shape, seed: int) -> MadeJob:
    """The job of a cause, always the same one."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{cause} {shape}".encode())])
    work, times = CAUSES[cause], Times()
    if cause == "start-up":
        times = Times(shortest=30, start_up=(0.25, 0.5))
    elif cause == "wind-down":
        times = Times(shortest=30, wind_down=(0.2, 0.4))
    elif cause == "two" and (shape.gpus == 1 or rng.random() < 0.5):
        # Long enough for the start or the end to be as grave as the other cause.
        if rng.random() < 0.5:
            work, times = cpu_bottleneck, Times(shortest=65, start_up=(0.25, 0.4))
        else:
            work, times = io_bottleneck, Times(shortest=80, wind_down=(0.2, 0.35))
    elif cause == "throttled" and shape.nodes * shape.gpus == 1:
        # The only GPU is at 100% all the time: nothing is lost that would outweigh a long start.
        times = Times(start_up=(0.01, 0.035))
    run = Run(shape, rng, times)
    work(run)
    if cause != "throttled" and rng.random() < 0.3:
        record_health(run)
    return finished(run, cause, seed)


def finished(run: Run, cause: str, seed: int) -> MadeJob:
    """The job as its sensors and profilers saw it, some from later on than others."""
    seen_from = late_sensors(run)
    run.gpu, run.cpu, run.io_wait = map(run.sampled, (run.gpu, run.cpu, run.io_wait))
    seen = np.ones(run.gpu.shape, np.bool_)
    for (metric, device), row in seen_from.items():
        if metric is Metric.GPU_UTILIZATION:
            seen[:, slice(None) if device is None else device, :row] = False
    losses, left = [], seen.copy()
    for name, taken, lost in sorted(run.losses, key=lambda one: (*FIRST, one[0]).index(one[0])):
        taken, lost = run.sampled(taken), run.sampled(lost)  # noqa: PLW2901
        mine = left & (lost > 0)
        left &= ~mine
        moments = np.flatnonzero(mine.any(axis=(0, 1)))
        if len(moments):
            seconds = float(moments[-1] + 1 - moments[0]) * run.interval_s
            losses.append(
                Loss(name, float(taken[mine].sum() / mine.size), float(lost[mine].sum() / mine.size), seconds)
            )
    gpu = np.clip(np.round(run.gpu), 0, 100)
    job = JobInMemory(
        name=f"{cause}-{run.shape.nodes}x{run.shape.gpus}x{run.shape.cores}-{seed}",
        panels=tuple(_panels(run, gpu, seen_from)),
        steps=_steps(run),
        events=_events(run),
        finished=True,
    )
    return MadeJob(
        job=job,
        cause=cause,
        shape=run.shape,
        seed=seed,
        losses=tuple(losses),
        noise=float((100 - gpu)[left].sum() / gpu.size / 100),
        unmeasured=float(1 - seen.mean()),
    )


def late_sensors(run: Run) -> dict[tuple[Metric, int | None], int]:
    """First row of the sensors that begin seconds to a minute late, in half of the jobs; None is all devices."""
    if run.rng.random() < 0.5:
        return {}
    late_s = run.rng.uniform(3, min(60, 0.015 * run.length_s), 2)
    kinds = (
        (Metric.GPU_UTILIZATION, int(run.rng.integers(run.shape.gpus)) if run.shape.gpus > 1 else None),
        (Metric.GPU_UTILIZATION, None),
        (Metric.GPU_MEMORY_ACTIVITY, None),
        (Metric.CPU_UTILIZATION, None),
        (Metric.IO_WAIT, None),
    )
    chosen = run.rng.choice(len(kinds), 2, replace=False).tolist()
    return {kinds[i]: int(s / run.interval_s) for i, s in zip(chosen, late_s.tolist(), strict=True)}


def _panels(run: Run, gpu: Floats, seen_from: dict[tuple[Metric, int | None], int]) -> list[Panel]:
    memory = gpu * np.float32(run.memory_part) * run.noisy(97, 2, run.shape.gpus) / np.float32(100)
    memory = np.round(memory).astype(np.float32)
    metrics: dict[Metric, Floats] = {
        Metric.GPU_UTILIZATION: gpu,
        Metric.GPU_MEMORY_ACTIVITY: memory,
        Metric.CPU_UTILIZATION: run.cpu,
        Metric.IO_WAIT: run.io_wait,
        **run.panels,
    }
    found = []
    for node in range(run.shape.nodes):
        jitter_s = np.clip(run.rng.normal(0, 0.001, run.n), -0.005, 0.005)
        # Most samplers say when a sample ended, some when it began.
        stamped = run.rng.random() < 0.7
        at_s = (np.arange(run.n) - float(run.early) + stamped) * run.interval_s + jitter_s
        time_us = START_US + (at_s * SECOND_US).astype(np.int64)
        for metric, values in metrics.items():
            table, first = values[node].astype(np.float64), 0
            for (late, device), row in seen_from.items():
                if late is metric and device is None:
                    first = row
                elif late is metric:
                    table[device, :row] = np.nan
            panel = make_panel(
                metric,
                table[:, first:].T,
                node=f"node-{node + 1}",
                time_us=time_us[first:],
                prefix="gpu" if metric.of_gpus else "cpu",
            )
            found.append(replace(panel, snapshot=np.arange(first, run.n), last_us=int(time_us[-1])))
    return found


def _processes(shape: Shape) -> list[tuple[str, str]]:
    """Node and rank of each training process."""
    return [
        (f"node-{n + 1}", str(n * shape.processes + p))
        for n in range(shape.nodes)
        for p in range(shape.processes)
    ]


def _steps(run: Run) -> Steps:
    tables = []
    for node, rank in _processes(run.shape):
        for mode, start_s, end_s in run.steps:
            late_s = run.rng.uniform(0, 0.002)
            if len(start_s):
                spans = zip((start_s + late_s).tolist(), (end_s + late_s).tolist(), strict=True)
                tables.append(make_steps(list(spans), phase=mode, node=node, rank=rank, start_us=START_US))
    return Steps.joined(tables)


def _events(run: Run) -> Events:
    """Fetches of batches and lives of loader processes."""
    if run.fetches is None:
        return Events()
    start_s, end_s = run.fetches
    iterator = "_MultiProcessingDataLoaderIter" if run.workers else "_SingleProcessDataLoaderIter"
    fetches = [
        ("DataLoaderIter", f"{iterator}::GetNext", *span)
        for span in zip(start_s.tolist(), end_s.tolist(), strict=True)
    ]
    life = ("DataLoaderWorker", "DataLoaderWorker", float(start_s[0]) - 1, float(end_s[-1]))
    tables = []
    for i, (node, rank) in enumerate(_processes(run.shape)):
        loader = Loader(
            node=node,
            rank=rank,
            iterator=iterator,
            start_us=START_US + round(float(start_s[0]) * SECOND_US) - 2 * SECOND_US,
            num_workers=run.workers,
            pin_memory=True,
        )
        own = 100 + 20 * i
        place: dict[str, Any] = {"node": node, "rank": rank, "start_us": START_US}
        tables.append(make_events(fetches, pid=own, loaders=(loader,), **place))
        tables += [make_events([life], pid=own + 1 + k, **place) for k in range(run.workers)]
    return Events.joined(tables)
