"""BatchSize: CPU, GPU and GPU memory are all little used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.gpu_checks import CheckedGPU, GPUChecks
from jobrules.measures.minutes import Seen, Windows, trailing_below
from jobrules.measures.quartiles import ordered, quartiles
from jobrules.model import Metric
from jobrules.rule import Amount, Rule, in_samples, percent, reason_few_samples, samples
from jobrules.text import count

if TYPE_CHECKING:
    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Panel, RuleResult


@dataclass(frozen=True, kw_only=True)
class BatchSize(Rule):
    """The work is small for the machine: CPU, GPU and GPU memory are all little used.

    What it checks
        Looks at the last ``window`` samples once a minute, after ``patience`` CPU samples of a node:
        the 95th percentiles of the node's mean CPU use, of a GPU's use and of its GPU memory utilization
        (the share of time in which its memory was read or written) all lie below their thresholds. A minute
        without samples of the last is judged by the other two; one without CPU or GPU samples is not judged.

    Why it matters
        Nothing limits the speed but the size of the work handed over at a time. How full the memory of the GPU is,
        it does not tell.

    What to do
        Raise the batch size as far as the memory of the GPU has room for it, and watch that the model still
        converges; or take a smaller machine.
    """

    title: ClassVar[str] = "CPU, GPU and GPU memory are all little used"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "batch-size"

    cpu_threshold_p95: float = percent(70.0, "95th percentile of the node's mean CPU use")
    gpu_threshold_p95: float = percent(70.0, "95th percentile of a GPU's use")
    gpu_memory_threshold_p95: float = percent(70.0, "95th percentile of GPU memory utilization")
    patience: Amount = samples(1000, "CPU samples of a node that are seen before it is judged")
    window: Amount = samples(500, "samples that are judged together")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU."""
        grid = Windows.of(job)
        nodes = [node for node in job.each(self._judged, grid) if node]
        gpus = [gpu for node in nodes for gpu in node.gpus]
        judgement = GPUChecks.of(job, grid, gpus)
        cpu_seen = {node.name: node.cpu_samples for node in nodes if node.cpu_samples}
        if not cpu_seen:
            return self.not_evaluated("no node has both GPU and CPU samples", devices=judgement.answers)
        facts: dict[str, Any] = {
            "datapoints": max(cpu_seen.values()),
            "datapoints_per_series": cpu_seen,
            "counted": "one-minute windows of a GPU",
        }
        if not judgement.evaluated:
            longest = max(gpus, key=lambda gpu: cpu_seen.get(gpu.node, -1))
            return self.not_evaluated(longest.reason, devices=judgement.answers, **facts)
        if not judgement.violating:
            return judgement.passed(self, "CPU, GPU or GPU memory was well used in every window", **facts)
        details: dict[str, Any] = {node.name: node.details for node in nodes if node.details}
        details["last_timestamp"] = judgement.last_start_us
        with_memory = sum(node.with_memory for node in nodes)
        without = judgement.violating - with_memory
        title = self.title if with_memory else "CPU and GPU are little used"
        clause = (
            f"{count(without, 'window')} judged without GPU memory utilization, which was not sampled"
            if without
            else ""
        )
        finding = judgement.finding(self, title, [clause])
        return judgement.triggered(self, finding, details=details, **facts)

    def _judged(self, part: Job, grid: Windows) -> _Node | None:
        (name,) = part.nodes
        panel, cpu = part.panel(name, Metric.GPU_UTILIZATION), part.panel(name, Metric.CPU_UTILIZATION)
        if panel is None:
            return None
        seen, at, cpu_low, cpu_short = self._cpu(cpu, grid)
        memory = part.panel(name, Metric.GPU_MEMORY_ACTIVITY)
        gpus: list[CheckedGPU] = []
        boxes: dict[str, Any] = {}
        with_memory = 0
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            window = in_samples(self.window, time_us)
            gpu_seen = grid.seen(time_us)
            at_gpu = gpu_seen.judged(window)
            both = np.intersect1d(at, at_gpu)
            low = cpu_low[np.searchsorted(at, both)] & trailing_below(
                values, gpu_seen.by(both), window, 0.95, self.gpu_threshold_p95
            )
            held = _device(memory, device)
            if held:
                # A minute without a new memory sample is judged without memory.
                memory_seen = grid.seen(held[0])
                known = memory_seen.new(both)
                ends = memory_seen.by(both[known])
                memory_window = in_samples(self.window, held[0])
                low[known] &= trailing_below(
                    held[1], ends, memory_window, 0.95, self.gpu_memory_threshold_p95
                )
                with_memory += int(np.count_nonzero(low & known))
            unused = bool(values.max() <= 0)
            gpu_short = "" if len(at_gpu) else reason_few_samples(len(values), window)
            gpu = CheckedGPU(
                node=name,
                device=device,
                checks=len(both),
                violations=both[low],
                unused=unused,
                reason=cpu_short or gpu_short or "GPU and CPU were not sampled in the same minutes",
            )
            gpus.append(gpu)
            if len(gpu.violations):
                last = int(gpu.violations[-1]) + 1
                boxes[device] = quartiles(ordered(values[: gpu_seen.before(last)])) | {"unused": unused}
                if held and memory_seen.before(last):
                    boxes[f"{device}_memory"] = quartiles(ordered(held[1][: memory_seen.before(last)]))
        # That of the CPU ends with the last GPU's.
        details = (
            {"cpu": quartiles(ordered(cpu.mean[: seen.before(last)])), **boxes}
            if cpu and seen and boxes
            else {}
        )
        return _Node(
            name=name,
            cpu_samples=len(cpu.time_us) if cpu else 0,
            gpus=tuple(gpus),
            with_memory=with_memory,
            details=details,
        )

    def _cpu(self, cpu: Panel | None, grid: Windows) -> tuple[Seen | None, IntArray, BoolArray, str]:
        """Samples seen, windows judged, which of them are of little CPU use, and why none is judged."""
        if cpu is None:
            return None, np.empty(0, np.int64), np.empty(0, np.bool_), "CPU of its node was not sampled"
        window = in_samples(self.window, cpu.time_us)
        wanted = max(window, in_samples(self.patience, cpu.time_us))
        seen = grid.seen(cpu.time_us)
        at = seen.judged(wanted)
        low = trailing_below(cpu.mean, seen.by(at), window, 0.95, self.cpu_threshold_p95)
        return seen, at, low, "" if len(at) else reason_few_samples(len(cpu.mean), wanted)


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    name: str
    #: Snapshots of its CPU; 0 without any.
    cpu_samples: int
    gpus: tuple[CheckedGPU, ...]
    #: Windows in violation that were judged with memory, over all GPUs.
    with_memory: int
    #: As told in the JSON; empty without a window in violation.
    details: dict[str, Any]


def _device(panel: Panel | None, name: str) -> tuple[IntArray, FloatArray] | None:
    if panel is None or name not in panel.devices:
        return None
    return panel.series(panel.devices.index(name))
