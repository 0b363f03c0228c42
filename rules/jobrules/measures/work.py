"""The work of a job: from the first to the last moment in which its GPUs worked or its steps ran.

What comes before is start-up, what comes after is wind-down. A single sample above 0% is no work: the framework looks at
the GPUs long before it uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import WAITING_PERCENT, CoreUse
from jobrules.measures.rows import TRAIN, series_of
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work_span import IDLE_PERCENT, worked
from jobrules.model import SECOND_US, BoolArray, FloatArray, IntArray, Job, Metric, OfGPU, Panel, span_of
from jobrules.text import count, duration

#: Work begins with the first active sample after which a GPU is, for this long and over so many samples,
AHEAD_US, AHEAD_SAMPLES = 60 * SECOND_US, 5

#: used at least this part as much as from its first to its last active sample.
USED_PART = 0.25
#: Without steps, waiting for I/O is start-up if so much of it lies in this part of the job, and within this time, and no
#: minute of it uses the GPUs this part as much as the time after it: a container's image, or data, is loaded.
MOSTLY_EARLY, EARLY_PART, EARLY_US, LASTING_PART = 0.95, 0.1, 15 * 60 * SECOND_US, 1 / 3
#: A job is judged by so much work, or so many steps of a process.
MIN_WORK_US, MIN_STEPS = 60 * SECOND_US, 50
#: Active samples of which the first that work begins with is sought at a time.
_BLOCK = 1 << 12


class Work(Struct, frozen=True, kw_only=True):
    """When the job worked, corrected for clock offsets between nodes."""

    clocks: Clocks
    begin_us: int
    end_us: int
    #: Of the GPUs alone, and of the recorded steps alone; None without.
    gpu_us: tuple[int, int] | None
    steps_us: tuple[int, int] | None
    #: Training steps of the process with most of them.
    steps: int = 0

    @classmethod
    def of(cls, job: Job) -> Work | None:
        """None if no GPU was ever used and no step was recorded."""
        return job.once(_work)

    def of_node(self, node: str) -> Work:
        """What the part of one node needs."""
        return replace(self, clocks=self.clocks.of_node(node))

    def span_us(self, node: str) -> tuple[int, int]:
        """Begin and end on the clock of a node."""
        late_us = self.clocks.late_us(node)
        return self.begin_us + late_us, self.end_us + late_us

    def holds(self, time_us: IntArray, node: str) -> BoolArray:
        """(n,) which samples of a node lie in the work."""
        begin_us, end_us = self.span_us(node)
        return np.asarray((time_us >= begin_us) & (time_us <= end_us))

    @property
    def basis(self) -> str:
        """What the ends come from: ``steps``, ``gpu``, or ``both``."""
        spans = {"steps": self.steps_us, "gpu": self.gpu_us}
        own = (self.begin_us, self.end_us)
        return next((name for name, span in spans.items() if span == own), "both")

    @property
    def whole(self) -> bool:
        """True if the whole job is work."""
        return self.begin_us <= self.clocks.start_us and self.end_us >= self.clocks.end_us

    @property
    def length_us(self) -> int:
        """From begin to end."""
        return self.end_us - self.begin_us

    @property
    def enough(self) -> bool:
        """True if there is enough to judge a job by."""
        return self.length_us >= MIN_WORK_US or self.steps >= MIN_STEPS

    @property
    def little(self) -> str:
        """From how little a job is judged: ``36 s of work and 300 steps``; empty if it is not little."""
        if not self.enough or self.length_us >= MIN_WORK_US:
            return ""
        return f"{duration(self.length_us)} of work and {count(self.steps, 'step')}"


def _work(job: Job) -> Work | None:
    clocks = Clocks.of(job)
    late_us = clocks.clock_offset_us

    def common(node: str, span: tuple[int, int]) -> tuple[int, int]:
        late = late_us.get(node, 0)
        return span[0] - late, span[1] - late

    has_steps = bool(job.steps_us or (job.loop_facts and job.loop_facts.steps_us))
    of_gpus = job.gathered(_worked_us, has_steps)
    # A GPU that does little more than draw the screen says nothing about the work of the job.
    least = USED_PART * max((mean for _, _, mean in of_gpus), default=0.0)
    gpu_us = span_of(common(node, span) for node, span, mean in of_gpus if mean >= least)
    steps_us = span_of(common(part.node, part.steps_us) for part in job.facts if part.steps_us)
    samples_us = job.samples_us
    if (
        gpu_us
        and steps_us
        and samples_us
        and not (steps_us[0] <= samples_us[1] and samples_us[0] <= steps_us[1])
    ):
        # Of another job, or of a clock that differs.
        steps_us = None
    if steps_us is None and job.loop_facts and job.loop_facts.steps_us:
        first_us, last_us = job.loop_facts.steps_us
        within = (max(first_us, clocks.start_us), min(last_us, clocks.end_us))
        steps_us = within if within[0] < within[1] else None
    span = span_of((gpu_us, steps_us))
    if span is None:
        return None
    return Work(
        clocks=clocks,
        begin_us=span[0],
        end_us=span[1],
        gpu_us=gpu_us,
        steps_us=steps_us,
        steps=max(job.gathered(numbered), default=0) if job.step_count else 0,
    )


def numbered(part: Job) -> Iterator[int]:
    """How many training steps each process of a node has."""
    for (_, _, mode), rows in series_of(part.steps).items():
        if mode == TRAIN:
            yield len(rows)


def _loaded_us(part: Job, panel: Panel) -> int:
    """When waiting for I/O ended that is start-up; 0 without any."""
    use = CoreUse.of(part, panel, Metric.IO_WAIT, WAITING_PERCENT)
    if use is None:
        return 0
    idle = (panel.values < IDLE_PERCENT).any(axis=1)
    waited_us = panel.time_us[idle & (use.above > 0)]
    start_us, end_us = part.span_us
    early_us = waited_us[waited_us <= start_us + min(EARLY_US, EARLY_PART * (end_us - start_us))]
    if not len(early_us) or len(early_us) < MOSTLY_EARLY * len(waited_us):
        return 0
    loaded_us = int(early_us[-1])
    before = panel.time_us <= loaded_us
    if before.all():
        return 0
    minute = (panel.time_us[before] - start_us) // AHEAD_US
    used = [panel.mean[before][minute == one].mean() for one in np.unique(minute)]
    return loaded_us if max(used) < LASTING_PART * panel.mean[~before].mean() else 0


def _worked_us(part: Job, has_steps: bool) -> Iterator[tuple[str, tuple[int, int], float]]:
    """Node, span of the work, and mean utilization in it, of each GPU that was ever used."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        loaded_us = 0 if has_steps else _loaded_us(part, panel)
        for column in range(len(panel.devices)):
            time_us, values = panel.series(column)
            since = time_us > loaded_us
            time_us, values = time_us[since], values[since]
            if len(values) and (span := work_of(time_us, values)):
                inside = values[(time_us >= span[0]) & (time_us <= span[1])]
                yield panel.node, span, float(inside.mean())


class GPUUse(OfGPU, frozen=True, kw_only=True):
    """How one GPU was used, weighted by the time that samples stand for."""

    measured_us: float
    #: The sum of utilization in percent times time, and the time in which the GPU was active.
    percent_us: float
    active_us: float
    #: Highest sample in percent.
    highest: float
    #: False if it was never used.
    worked: bool

    @property
    def mean(self) -> float:
        """Mean utilization in percent."""
        return self.percent_us / max(1.0, self.measured_us)

    @property
    def active(self) -> float:
        """Share of the time in which the GPU was active."""
        return self.active_us / max(1.0, self.measured_us)


def gpu_use(part: Job, clocks: Clocks, work: Work | None = None) -> Iterator[GPUUse]:
    """Of each GPU, over the job or the work."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        span_us = clocks.span_us(panel.node)
        of_all_us = sample_weights(panel.time_us, *span_us).weight_us
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            has_all = time_us is panel.time_us
            weight_us = of_all_us if has_all else sample_weights(time_us, *span_us).weight_us
            if work:
                weight_us = np.where(work.holds(time_us, panel.node), weight_us, 0.0)
            yield GPUUse(
                node=panel.node,
                device=device,
                measured_us=float(weight_us.sum()),
                percent_us=float((weight_us * values).sum()),
                active_us=float(weight_us[values >= IDLE_PERCENT].sum()),
                highest=float(values.max()),
                worked=bool(worked(values)),
            )


def use_in_work(part: Job, work: Work) -> Iterator[GPUUse]:
    """Of each GPU with a sample in the work."""
    return (gpu for gpu in gpu_use(part, work.clocks, work) if gpu.measured_us)


def work_of(time_us: IntArray, values: FloatArray) -> tuple[int, int] | None:
    """First and last moment of one GPU's work; None if it was never used."""
    if not worked(values):
        return None
    active = np.flatnonzero(values > 0)
    first, last = int(active[0]), int(active[-1])
    least = USED_PART * float(values[first : last + 1].mean())
    begin = _begin(time_us, values, active, least)
    # The end is the begin of the series read backwards.
    n = len(values)
    end = n - 1 - _begin(-time_us[::-1], values[::-1], n - 1 - active[::-1], least)
    return int(time_us[begin]), int(time_us[max(begin, end)])


def _begin(time_us: IntArray, values: FloatArray, active: IntArray, least: float) -> int:
    """The first sample that is used enough, from where the next minute is; the first active one if there is none."""
    sums = np.append(0.0, np.cumsum(values))
    # It is nearly always one of the first.
    for start in range(0, len(active), _BLOCK):
        some = active[start : start + _BLOCK]
        stop = np.searchsorted(time_us, time_us[some] + AHEAD_US, side="right")
        stop = np.minimum(np.maximum(stop, some + AHEAD_SAMPLES), len(values))
        enough = np.flatnonzero((sums[stop] - sums[some]) / (stop - some) >= least)
        if len(enough):
            return int(some[enough[0]] + np.argmax(values[some[enough[0]] :] >= least))
    return int(active[0])
