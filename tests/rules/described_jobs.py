"""Jobs made from descriptions of real ones, each with the finding that must come first, or none.

They are independent of ``diagnosis_jobs``: written from what was seen in logs, before a look at how the verdict
decides. Intervals, starts, lengths, names, numbers of cores and GPUs, levels and noise differ from job to job.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobrules.model import SECOND_US, Events, Job, JobInMemory, Loader, LoopFacts, Metric, Steps
from tests.copies import replace
from tests.jobs import make_events, make_panel, make_steps

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]

NAMES = ("algo-1", "node_3", "10.0.12.7", "gpu-a01.cluster.example", "DESKTOP-9QF", "worker")


@dataclass(frozen=True)
class Described:
    """A job and what the verdict must say about it."""

    kind: str
    seed: int
    job: Job
    #: What the first finding must be, and what may be above info beside it; no cause is no finding above info.
    cause: str
    also: frozenset[str]
    #: Share of the job that the cause took; None where it is not known to the point.
    share: float | None
    #: What no text of a finding may say.
    never: tuple[str, ...]


@dataclass
class Recording:
    """A job of one node while it is made; arrays of samples are (n, devices)."""

    rng: np.random.Generator
    minutes: tuple[float, float] = (8, 45)
    gpus: int = 1
    cores: int = 0
    #: One series of CPU utilization for all cores.
    mean_cpu: bool = False
    steps: list[tuple[str, str, Floats, Floats, int]] = field(default_factory=list)
    events: list[tuple[str, str, Floats, Floats]] = field(default_factory=list)
    workers: int | None = None
    #: What results of SageMaker Debugger beside the samples say.
    facts: LoopFacts | None = None
    cause: str = ""
    also: frozenset[str] = frozenset()
    share: float | None = None
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rng = self.rng
        self.length_s = 60 * rng.uniform(*self.minutes)
        self.interval_s = float(rng.choice([0.1, 0.5, 1, 2] if self.length_s < 900 else [0.5, 1, 2, 5]))
        self.interval_s = min(self.interval_s, self.length_s / 30 if self.length_s < 90 else 5.0)
        self.n = int(self.length_s / self.interval_s)
        self.at_s = np.arange(self.n) * self.interval_s
        self.cores = self.cores or int(rng.choice([4, 6, 8, 12, 16]))
        self.node = str(rng.choice(NAMES))
        self.start_us = int(rng.integers(1_500_000_000, 1_800_000_000)) * SECOND_US
        self.whole_seconds = self.interval_s >= 1 and rng.random() < 0.5
        self.start_us += 0 if self.whole_seconds else int(rng.integers(SECOND_US))
        self.gpu = np.zeros((self.n, self.gpus))
        #: Cores' worth of work, besides what the machine does on its own.
        self.cpu = self.level(0.02 * self.cores, 0.2)[:, None] * np.full(self.cores, 1 / self.cores)
        self.io_wait: Floats | None = None

    def level(self, mean: float, noise: float) -> Floats:
        """(n,) a level with relative noise, not below 0."""
        return np.asarray(np.maximum(0, self.rng.normal(mean, mean * noise, self.n)))

    def work(self, rows: Rows, low: float, high: float, noise: float = 0.05) -> None:
        """Let all GPUs work at a level between two, in percent."""
        for device in range(self.gpus):
            busy = self.level(self.rng.uniform(low, high), noise)
            self.gpu[rows, device] = np.clip(busy, 0, 100)[rows]

    def compute(self, rows: Rows, cores: float, spread: float = 0.05) -> None:
        """Let work of so many cores wander over all cores: none of them is saturated for long."""
        parts = self.rng.dirichlet(np.full(self.cores, 8.0), self.n)
        used = self.level(cores, spread)[:, None] * parts
        self.cpu[rows] += np.minimum(used, 0.97)[rows]

    def begin(self, share: tuple[float, float] = (0.003, 0.02)) -> Rows:
        """(n,) the training, after a start and before an end of this share of the job."""
        first = self.length_s * self.rng.uniform(*share)
        return np.asarray((self.at_s >= first) & (self.at_s < self.length_s * self.rng.uniform(0.99, 1)))

    def count_steps(self, rank: str, rows: Rows, step_s: float, first: int = 0, mode: str = "TRAIN") -> None:
        """Record steps back to back from the first to the last of some rows, at most 6,000."""
        begin, end = self.at_s[rows][[0, -1]]
        step_s = max(step_s, (end - begin) / 6000)
        edges = begin + np.cumsum(self.rng.normal(step_s, step_s / 50, int((end - begin) / step_s)))
        self.steps.append((rank, mode, edges[:-1], edges[1:] - step_s / 500, first))

    def job(self) -> Job:
        """The recording as a job."""
        jitter_s = 0 if self.whole_seconds else self.rng.uniform(0, self.interval_s / 50, self.n)
        time_us = self.start_us + ((self.at_s + jitter_s) * SECOND_US).astype(np.int64)
        cpu = np.clip(100 * self.cpu, 0, 100)
        tables = {Metric.CPU_UTILIZATION: cpu.mean(axis=1, keepdims=True) if self.mean_cpu else cpu}
        if self.gpus:
            tables[Metric.GPU_UTILIZATION] = np.round(self.gpu)
        if self.io_wait is not None:
            tables[Metric.IO_WAIT] = np.clip(self.io_wait, 0, 100)
        panels = [
            make_panel(
                metric,
                np.asfortranarray(tables[metric]),
                node=self.node,
                time_us=time_us,
                prefix="gpu" if metric.of_gpus else "cpu",
            )
            for metric in Metric
            if metric in tables
        ]
        return JobInMemory(
            name="job",
            panels=tuple(panels),
            steps=Steps.joined([self._steps(*one) for one in self.steps if len(one[2])]),
            events=Events.joined([self._events(*one) for one in self.events]),
            loop_facts=self.facts,
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"node": self.node, "start_us": self.start_us}

    def _steps(self, rank: str, mode: str, start_s: Floats, end_s: Floats, first: int) -> Steps:
        steps = make_steps(spans(start_s, end_s), phase=mode, rank=rank, **self._place)
        return replace(steps, number=first + steps.number)

    def _events(self, rank: str, kind: str, start_s: Floats, end_s: Floats) -> Events:
        single = "Single" if self.workers == 0 else "Multi"
        iterator = f"_{single}ProcessDataLoaderIter"
        name = f"{iterator}::GetNext" if kind == "DataLoaderIter" else kind
        loader = Loader(
            node=self.node,
            rank=rank,
            iterator=iterator,
            start_us=self.start_us + int(np.rint(start_s[0] * SECOND_US)) - SECOND_US,
            num_workers=self.workers,
            pin_memory=False,
        )
        return make_events(
            [(kind, name, *span) for span in spans(start_s, end_s)],
            rank=rank,
            pid=100 + int(rank),
            loaders=(loader,) if kind == "DataLoaderIter" else (),
            **self._place,
        )

    def loading_loop(self, rows: Rows, step_s: float, fetch_s: float, *, inside: bool = False) -> Rows:
        """Fetch a batch before each step of rank 0, in the training process; returns the samples of fetches.

        With ``inside`` the recorded step holds its fetch.
        """
        begin, end = self.at_s[rows][[0, -1]]
        count = int((end - begin) / (step_s + fetch_s))
        lengths = np.empty(2 * count)
        lengths[::2] = fetch_s * self.rng.lognormal(0, 0.1, count)
        lengths[1::2] = step_s * self.rng.lognormal(0, 0.03, count)
        edges = begin + np.append(0, np.cumsum(lengths))
        fetches, steps, ends = edges[:-1:2], edges[1::2], edges[2::2]
        self.workers = 0
        self.events.append(("0", "DataLoaderIter", fetches + 1e-4, steps - 1e-4))
        self.steps.append(("0", "TRAIN", fetches if inside else steps, ends - 2e-4, 0))
        waits = np.interp(self.at_s + self.interval_s, edges[: 2 * count + 1], self._waited(lengths))
        waits -= np.interp(self.at_s, edges[: 2 * count + 1], self._waited(lengths))
        return np.asarray(waits / self.interval_s)

    @staticmethod
    def _waited(lengths: Floats) -> Floats:
        waited = np.where(np.arange(len(lengths)) % 2 == 0, lengths, 0)
        return np.asarray(np.append(0, np.cumsum(waited)))


def spans(start_s: Floats, end_s: Floats) -> list[tuple[float, float]]:
    """Pairs of a start and an end."""
    return list(zip(start_s.tolist(), end_s.tolist(), strict=True))


def one_process(rng: np.random.Generator) -> Recording:
    """The GPU is little and steadily used; one process uses one core's time, which wanders over the cores."""
    job = Recording(rng, cores=int(rng.choice([4, 6, 8, 12, 16])))
    rows = job.begin()
    job.work(rows, 22, 55, rng.uniform(0.05, 0.12))
    job.compute(rows, rng.uniform(0.98, 1.12) - 0.02 * job.cores, 0.03)
    if rng.random() < 0.5:
        job.count_steps("0", rows, rng.uniform(0.1, 0.8))
    job.cause = "one-process"
    job.never = ("batch size", "neither CPU")
    return job


def process_of_each_gpu(rng: np.random.Generator) -> Recording:
    """As one process, for each of several GPUs."""
    gpus = int(rng.choice([2, 4]))
    job = Recording(rng, gpus=gpus, cores=8 * gpus)
    rows = job.begin()
    job.work(rows, 25, 50, 0.08)
    for rank in range(gpus):
        job.compute(rows, rng.uniform(0.98, 1.06), 0.02)
        job.count_steps(str(rank), rows, 0.4)
    job.cpu -= 0.02
    job.cause = "one-process"
    job.never = ("batch size", "neither CPU")
    return job


def one_process_keeps_up(rng: np.random.Generator) -> Recording:
    """A busy GPU, and a process that spins on one core's time."""
    job = Recording(rng)
    rows = job.begin()
    job.work(rows, 90, 97, 0.02)
    job.compute(rows, rng.uniform(0.95, 1.1), 0.03)
    return job


def a_rank_at_its_limit(rng: np.random.Generator) -> Recording:
    """Two ranks take turns with about one core in all."""
    job = Recording(rng, gpus=2, cores=16)
    rows = job.begin()
    job.work(rows, 25, 50, 0.08)
    job.compute(rows, rng.uniform(0.95, 1.1) - 0.32, 0.03)
    for rank in range(2):
        job.count_steps(str(rank), rows, rng.uniform(0.2, 0.6))
    job.cause = "one-process"
    job.never = ("batch size", "neither CPU")
    return job


def one_core_per_gpu(rng: np.random.Generator) -> Recording:
    """Four GPUs and about as many cores in use; no step says how many processes there are."""
    job = Recording(rng, gpus=4, cores=32)
    rows = job.begin()
    level = rng.uniform(25, 50)
    job.work(rows, level, level, 0.08)
    job.compute(rows, rng.uniform(3.9, 4.4) - 0.64, 0.03)
    job.cause = "unexplained"
    job.never = ("batch size", "neither CPU", "not the cause: CPU")
    return job


def one_core_per_gpu_with_steps(rng: np.random.Generator) -> Recording:
    """The same, with the steps of the first of the processes."""
    job = one_core_per_gpu(rng)
    job.count_steps("0", job.gpu[:, 0] > 0, rng.uniform(0.2, 0.6))
    return job


def one_process_from_the_start(rng: np.random.Generator) -> Recording:
    """About one of many cores is in use; nothing was recorded before the work to tell what the machine does on its own."""
    job = Recording(rng, cores=int(rng.choice([48, 64, 96])))
    rows = np.ones(job.n, np.bool_)
    job.work(rows, 25, 50, 0.06)
    job.compute(rows, 1.0, 0.03)
    job.cpu *= rng.uniform(0.96, 1.15) / job.cpu.sum(axis=1).mean()
    job.count_steps("0", rows, rng.uniform(0.2, 0.8))
    job.cause = "unexplained"
    job.never = ("batch size", "neither CPU", "not the cause: CPU")
    return job


def one_process_between_full_cores(rng: np.random.Generator) -> Recording:
    """Steady low use by one process, and pauses in which all cores prepare the next batches."""
    job = Recording(rng, cores=int(rng.choice([6, 8, 12])))
    rows = job.begin()
    job.work(rows, 25, 45, 0.06)
    waits = rows & (job.at_s % rng.uniform(20, 40) < 6)
    job.gpu[waits] = 0
    job.compute(rows & ~waits, rng.uniform(0.98, 1.08) - 0.02 * job.cores, 0.03)
    job.cpu[waits] = rng.uniform(0.94, 0.99)
    job.cause, job.also = "one-process", frozenset({"cpu-bottleneck"})
    job.never = ("batch size", "no recorded cause")
    return job


def pause_like_work(rng: np.random.Generator) -> Recording:
    """A busy GPU that now and then has nothing to do; about one core is in use all the time."""
    job = Recording(rng, gpus=int(rng.choice([1, 4])))
    rows = job.begin()
    job.work(rows, 90, 97, 0.02)
    every_s = rng.uniform(90, 200)
    job.gpu[job.at_s % every_s < every_s * rng.uniform(0.1, 0.35)] = 0
    job.compute(np.ones(job.n, np.bool_), rng.uniform(1.0, 1.1) - 0.02 * job.cores, 0.03)
    job.cause = "unexplained"
    job.never = ("ne process",)
    return job


def many_cores(rng: np.random.Generator) -> Recording:
    """GPUs steadily below what they could, of a machine that has so many cores that its own work is as much as one."""
    job = Recording(rng, cores=int(rng.choice([64, 96])))
    job.cpu *= rng.uniform(0.96, 1.1) / (0.02 * job.cores)
    job.work(job.begin((0.02, 0.04)), 22, 55, 0.06)
    job.cause = "unexplained"
    job.never = ("ne process",)
    return job


def now_none_now_some(rng: np.random.Generator) -> Recording:
    """The GPU is steadily low; hardly a core is in use, then three: one on average."""
    job = Recording(rng, cores=int(rng.choice([4, 6])))
    rows = job.begin()
    job.work(rows, 22, 55, 0.06)
    some = rows & (rng.random(job.n) < rng.uniform(0.33, 0.37))
    job.cpu *= 0.1
    job.compute(some, rng.uniform(2.9, 3.1))
    job.cause = "unexplained"
    job.never = ("ne process",)
    return job


def half_start(rng: np.random.Generator) -> Recording:
    """Four minutes, of which about half pass before the first work."""
    job = Recording(rng, minutes=(3.5, 4.6), gpus=int(rng.choice([1, 2])))
    share = rng.uniform(0.4, 0.6)
    rows = job.begin((share, share))
    job.work(rows, 90, 98, 0.03)
    job.compute(~rows, rng.uniform(0.3, 0.9) * job.cores)
    job.compute(rows, 0.4)
    if rng.random() < 0.5:
        job.count_steps("0", rows, rng.uniform(0.1, 0.6))
    job.cause, job.share = "start-up", share
    return job


def quick_start(rng: np.random.Generator) -> Recording:
    """The same with a start of some seconds."""
    job = Recording(rng, minutes=(3.5, 4.6), gpus=int(rng.choice([1, 2])))
    rows = job.begin((0.01, 0.03))
    job.work(rows, 90, 98, 0.03)
    job.compute(rows, 0.5)
    return job


def image_loading(rng: np.random.Generator) -> Recording:
    """The container's image is loaded first, cores wait for the disk; a look at the GPU comes before its work."""
    job = Recording(rng, minutes=(25, 50))
    loading_s = rng.uniform(80, 140)
    loading = job.at_s < loading_s
    job.io_wait = np.abs(rng.normal(0.4, 0.5, (job.n, job.cores)))
    waiting = int(rng.integers(1, job.cores + 1))
    job.io_wait[loading, :waiting] = rng.normal(rng.uniform(65, 95), 8, (int(loading.sum()), waiting))
    looks = (job.at_s > loading_s * rng.uniform(0.05, 0.3)) & (rng.random(job.n) < rng.uniform(0.1, 0.5))
    looks &= loading
    job.gpu[looks, 0] = rng.integers(1, 25, int(looks.sum()))
    rows = np.asarray(job.at_s > loading_s + rng.uniform(2, 20))
    job.work(rows, 88, 97, 0.04)
    job.compute(rows, rng.uniform(0.1, 0.6) * job.cores)
    job.never = ("waited for I/O", "small files")
    return job


def image_loading_then_idle(rng: np.random.Generator) -> Recording:
    """The same, then work in bursts that nothing recorded explains, so that looks at the GPU seem to be work."""
    job = image_loading(rng)
    rows = job.gpu[:, 0] > 40
    idle = rows & (np.sin(job.at_s / rng.uniform(8, 20)) > rng.uniform(-0.8, 0.4))
    job.gpu[rows] *= rng.uniform(0.25, 0.9)
    job.gpu[idle] = 0
    job.cause = "unexplained"
    job.cpu = np.clip(job.cpu, 0.36, 0.5)
    return job


def cold_cache(rng: np.random.Generator) -> Recording:
    """The first pass over the data waits for the disk, the others find it in memory; no step is recorded."""
    job = Recording(rng, minutes=(120, 200))
    rows = job.begin((0.001, 0.003))
    job.work(rows, 88, 96, 0.03)
    job.compute(rows, rng.uniform(0.2, 0.5) * job.cores)
    every_s, part = rng.uniform(18, 40), rng.uniform(0.6, 0.7)
    waits = (
        rows & (job.at_s < job.length_s * rng.uniform(0.092, 0.098)) & (job.at_s % every_s < part * every_s)
    )
    job.gpu[waits] = 0
    job.io_wait = np.abs(rng.normal(0.4, 0.5, (job.n, job.cores)))
    job.io_wait[waits] = rng.normal(rng.uniform(70, 95), 8, (int(waits.sum()), job.cores))
    job.cause, job.share = "io-bottleneck", float(waits.mean())
    job.never = ("in the first",)
    return job


def copies(rng: np.random.Generator) -> Recording:
    """Two copies of a script at one time, each on its own GPU and counting its steps from 0."""
    job = Recording(rng, gpus=2)
    rows = job.begin()
    job.work(rows, 88, 97, 0.03)
    job.compute(rows, rng.uniform(0.2, 0.7) * job.cores)
    step_s = rng.uniform(0.2, 1)
    job.count_steps("4711", rows, step_s)
    late = rows & (job.at_s > job.length_s * rng.uniform(0.03, 0.05))
    job.gpu[~late, 1] = 0
    job.count_steps("4893", late, step_s * rng.uniform(0.8, 1.3))
    job.never = ("equal data", "rank")
    return job


def copies_in_turn(rng: np.random.Generator) -> Recording:
    """The same, the second one long after the first."""
    job = Recording(rng, minutes=(20, 45), gpus=2)
    rows = job.begin()
    late = rows & (job.at_s > job.length_s * rng.uniform(0.3, 0.4))
    job.work(rows, 88, 97, 0.03)
    job.gpu[~late, 1] = 0
    job.compute(rows, rng.uniform(2, 3))
    job.count_steps("4711", rows, rng.uniform(0.2, 1))
    job.count_steps("4893", late, rng.uniform(0.2, 1))
    job.cause = "gpu-late"
    job.never = ("Otherwise give the processes equal data",)
    return job


def saved(rng: np.random.Generator, share: tuple[float, float] = (0.07, 0.14)) -> Recording:
    """Every few minutes the GPUs wait while the first process saves, which is recorded."""
    job = Recording(rng, minutes=(20, 50), gpus=int(rng.choice([1, 2, 4])), cores=16)
    rows = job.begin()
    job.work(rows, 90, 97, 0.03)
    job.compute(rows, rng.uniform(1.5, 6))
    every_s, part = rng.uniform(200, 320), rng.uniform(*share)
    starts = np.arange(job.length_s * 0.05, job.length_s * 0.97, every_s)
    ends = starts + part * every_s * rng.uniform(0.9, 1.1, len(starts))
    pause = ((job.at_s[:, None] >= starts) & (job.at_s[:, None] < ends)).any(axis=1)
    job.gpu[pause] = 0
    job.cpu[pause] = rng.uniform(0.02, 0.1)
    job.events.append(("0", "Checkpoint", starts + 0.2, ends - 0.1))
    edges = np.concatenate([[job.at_s[rows][0]], np.stack([starts, ends]).T.ravel(), [job.at_s[rows][-1]]])
    step_s = rng.uniform(0.3, 1.2)
    for first, last in edges.reshape(-1, 2):
        begins = np.arange(first, last - step_s, step_s)
        job.steps.append(("0", "TRAIN", begins, begins + step_s * 0.998, sum(len(s[2]) for s in job.steps)))
    if share[0] >= 0.05:
        job.cause, job.share = "checkpoint", float((pause & rows).mean())
    return job


def saved_quickly(rng: np.random.Generator) -> Recording:
    """The same within a hundredth of the time."""
    return saved(rng, (0.005, 0.015))


def evaluated(rng: np.random.Generator) -> Recording:
    """Every few minutes an evaluation is recorded, in which the GPU waits."""
    job = saved(rng, (0.08, 0.15))
    job.events = [(rank, "Evaluation", start_s, end_s) for rank, _, start_s, end_s in job.events]
    job.cause = "evaluation"
    return job


def evaluated_in_steps(rng: np.random.Generator) -> Recording:
    """The same with a step for each batch of an evaluation instead of a phase."""
    job = saved(rng, (0.15, 0.25))
    (_, _, starts, ends), job.events = job.events[0], []
    step_s = rng.uniform(0.5, 2)
    for start, end in zip(starts, ends, strict=True):
        begins = np.arange(start, end - step_s, step_s)
        job.steps.append(("0", "EVAL", begins, begins + step_s * rng.uniform(0.5, 0.95), 0))
    job.cause = "evaluation"
    few = range(len(starts) + 1, 5000)
    job.never = tuple(f"{n}\u00a0evaluations" for n in few)
    return job


def works_in_phases(rng: np.random.Generator, kind: str = "Evaluation", part: float = 0.25) -> Recording:
    """A steady GPU, with phases in which it works as before."""
    job = saved(rng, (part, part))
    level = rng.uniform(58, 66)
    job.work(job.begin(), level, level, 0.01)
    job.cpu = job.level(0.3 * job.cores, 0.05)[:, None] * np.full(job.cores, 1 / job.cores)
    job.events = [(rank, kind, start_s, end_s) for rank, _, start_s, end_s in job.events]
    job.cause, job.share, job.also = "", None, frozenset({"unexplained", "batch-size"})
    job.never = ("evaluation", "checkpoint")
    return job


def saved_meanwhile(rng: np.random.Generator) -> Recording:
    """The same with checkpoints that are written while training goes on, for most of the time."""
    return works_in_phases(rng, "Checkpoint", 0.65)


def evaluated_by_another(rng: np.random.Generator) -> Recording:
    """Training pauses for a reason that nothing records, while another process evaluates all the time."""
    job = saved(rng, (0.1, 0.2))
    job.events, job.cpu = [], 0.3 * job.cpu
    job.count_steps("9", job.begin(), rng.uniform(0.5, 2), mode="EVAL")
    job.cause = "unexplained"
    job.never = ("evaluation",)
    return job


def cpu_waits(rng: np.random.Generator) -> Recording:
    """No GPU: the process loads each batch itself, for longer than the step takes."""
    job = Recording(rng, gpus=0)
    rows = job.begin()
    step_s = rng.uniform(0.2, 3)
    part = rng.uniform(0.35, 0.7)
    waits = job.loading_loop(rows, step_s, step_s * part / (1 - part))
    job.cpu += (rng.uniform(0.75, 0.95) * (1 - waits) * rows)[:, None] * np.full(job.cores, 1.0)
    job.compute(rows & (waits > 0.5), rng.uniform(0.1, 0.6))
    job.cause, job.share, job.also = "data-loading", part, frozenset({"free-cores"})
    job.mean_cpu = bool(rng.random() < 0.3)
    return job


def cpu_free(rng: np.random.Generator) -> Recording:
    """No GPU: long steps on a third of the cores."""
    job = Recording(rng, gpus=0)
    rows = job.begin()
    job.loading_loop(rows, rng.uniform(1, 8), 0.02)
    used = rng.uniform(0.2, 0.42)
    job.compute(rows, used * job.cores)
    job.cause = "free-cores"
    job.mean_cpu = bool(rng.random() < 0.3)
    return job


def cpu_half(rng: np.random.Generator) -> Recording:
    """No GPU: half of the cores are full, as if two of them were hyper-threads of one."""
    job = Recording(rng, gpus=0)
    rows = job.begin()
    job.loading_loop(rows, rng.uniform(1, 8), 0.004)
    job.cpu[rows, : job.cores // 2] = rng.normal(0.985, 0.005, (int(rows.sum()), job.cores // 2))
    return job


def cpu_fine(rng: np.random.Generator) -> Recording:
    """No GPU: the cores are used and batches come in time."""
    job = Recording(rng, gpus=0)
    rows = job.begin()
    job.loading_loop(rows, rng.uniform(0.5, 5), 0.004)
    job.cpu[rows] = np.clip(rng.normal(rng.uniform(0.88, 0.96), 0.03, (int(rows.sum()), job.cores)), 0, 1)
    return job


def trained_on_cpu(rng: np.random.Generator) -> Recording:
    """Steps ran, and the GPU was never used: the model was left on the CPU."""
    job = Recording(rng, minutes=(3, 30), gpus=int(rng.choice([1, 1, 2])))
    rows = job.begin()
    job.compute(rows, rng.uniform(0.5, 0.95) * job.cores)
    job.count_steps("0", rows, rng.uniform(0.5, 4))
    job.cause, job.share = "never-used", 1.0
    job.never = ("fewer GPUs", "as many processes", "rank")
    return job


def hardly_used(rng: np.random.Generator) -> Recording:
    """Steps of a model so small that the GPU shows 1% at most."""
    job = Recording(rng, minutes=(12, 30))
    rows = job.begin()
    job.gpu[rows, 0] = rng.random(int(rows.sum())) < 0.8
    job.compute(rows, rng.uniform(1.5, 0.9 * job.cores))
    job.count_steps("0", rows, rng.uniform(0.05, 0.5))
    job.cause, job.share = "never-used", 1.0
    job.never = ("Training ran",)
    return job


def start_between(rng: np.random.Generator) -> Recording:
    """Up to four minutes of start-up, too much for no loss and too little for a finding."""
    job = Recording(rng, minutes=(17, 21))
    share = rng.uniform(0.13, 0.19)
    job.work(job.begin((share, share)), 92, 98, 0.02)
    job.compute(np.ones(job.n, np.bool_), rng.uniform(0.1, 0.4) * job.cores)
    job.never = ("in start-up",)
    return job


def one_of_two(rng: np.random.Generator) -> Recording:
    """One process that works on the first of several GPUs only."""
    job = Recording(rng, gpus=int(rng.choice([2, 4])))
    rows = job.begin()
    job.work(rows, 88, 97, 0.03)
    job.gpu[:, 1:] = 0
    job.compute(rows, rng.uniform(0.2, 0.7) * job.cores)
    job.count_steps("0", rows, rng.uniform(0.2, 1))
    job.cause, job.share = "never-used", 1 - 1 / job.gpus
    job.never = ("training ran on the CPU", "Training ran on the CPU")
    return job


def one_process_now_and_then(rng: np.random.Generator) -> Recording:
    """Steady low use by one process, and pauses in which the process keeps one core full: one cause."""
    job = Recording(rng, cores=int(rng.choice([6, 8, 12, 16])))
    rows = job.begin()
    job.work(rows, 25, 50, 0.06)
    waits = rows & (job.at_s % rng.uniform(15, 40) < rng.uniform(3, 8))
    job.gpu[waits] = 0
    job.compute(rows & ~waits, rng.uniform(0.98, 1.08) - 0.02 * job.cores, 0.03)
    job.cpu[waits, int(rng.integers(job.cores))] = rng.normal(0.98, 0.01, int(waits.sum()))
    job.cause = "one-process"
    job.never = ("batch size",)
    return job


def results_know_the_fetches(rng: np.random.Generator) -> Recording:
    """Samples of the GPU and the mean of the cores; results beside them know steps and fetches."""
    job = Recording(rng, mean_cpu=True)
    rows = job.begin()
    part, step_s = rng.uniform(0.4, 0.75), rng.uniform(0.02, 0.3)
    job.work(rows, 85, 95)
    job.gpu[rows] *= (rng.random((job.n, 1)) >= part)[rows]
    job.compute(rows, 0.4 * job.cores)
    begin, end = (job.start_us + int(s * SECOND_US) for s in job.at_s[rows][[0, -1]])
    job.facts = LoopFacts(
        source="SageMaker Debugger's results",
        steps_us=(begin, end),
        outside=part,
        step_s=step_s,
        fetch_s=step_s * part / (1 - part),
        fetches=int(rng.integers(5, 500)),
        num_workers=0,
        cores=job.cores,
    )
    job.cause = "data-loading"
    job.also = frozenset({"unexplained"}) if part > 0.7 else frozenset()
    job.never = ("Not recorded: steps", "no recorded cause")
    return job


def results_know_the_cores(rng: np.random.Generator) -> Recording:
    """As one process, with the mean of the cores; results beside it know how many there are."""
    job = one_process(rng)
    job.mean_cpu = True
    job.facts = LoopFacts(source="SageMaker Debugger's results", cores=job.cores)
    return job


def cores_are_not_known(rng: np.random.Generator) -> Recording:
    """The same without results: nothing says whether one process is the limit, or that the CPU is not."""
    job = one_process(rng)
    job.mean_cpu = True
    job.cause = "unexplained"
    job.never = ("batch size", "neither CPU", "not the cause: mean")
    return job


def too_short(rng: np.random.Generator) -> Recording:
    """Less than a minute of a machine whose GPUs are idle."""
    job = Recording(rng, minutes=(20 / 60, 40 / 60), gpus=int(rng.choice([1, 4, 8])))
    job.compute(np.ones(job.n, np.bool_), rng.uniform(0.1, 1.5))
    return job


def short_without_work(rng: np.random.Generator) -> Recording:
    """Some minutes in which no GPU worked, and no step was recorded."""
    job = Recording(rng, minutes=(1.5, 9), gpus=int(rng.choice([1, 4])))
    job.compute(np.ones(job.n, np.bool_), rng.uniform(0.1, 1.5))
    job.never = ("never used",)
    return job


KINDS: dict[str, Callable[[np.random.Generator], Recording]] = {
    make.__name__: make
    for make in (
        one_process,
        process_of_each_gpu,
        one_process_keeps_up,
        a_rank_at_its_limit,
        one_core_per_gpu,
        one_core_per_gpu_with_steps,
        one_process_from_the_start,
        one_process_between_full_cores,
        pause_like_work,
        many_cores,
        now_none_now_some,
        one_process_now_and_then,
        results_know_the_fetches,
        results_know_the_cores,
        cores_are_not_known,
        half_start,
        quick_start,
        start_between,
        image_loading,
        image_loading_then_idle,
        cold_cache,
        copies,
        copies_in_turn,
        saved,
        saved_quickly,
        evaluated,
        evaluated_in_steps,
        works_in_phases,
        saved_meanwhile,
        evaluated_by_another,
        cpu_waits,
        cpu_free,
        cpu_half,
        cpu_fine,
        trained_on_cpu,
        hardly_used,
        one_of_two,
        too_short,
        short_without_work,
    )
}


def described(kind: str, seed: int) -> Described:
    """The job of a kind and a seed."""
    made = KINDS[kind](np.random.default_rng([zlib.crc32(kind.encode()), seed]))
    return Described(
        kind=kind,
        seed=seed,
        job=made.job(),
        cause=made.cause,
        also=made.also,
        share=made.share,
        never=made.never,
    )
