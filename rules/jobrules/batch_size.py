"""BatchSize: CPU, GPU and GPU memory are all little used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.boxplot import quartiles
from jobrules.gpu_windows import JudgedGPU, Judgement
from jobrules.job import Metric
from jobrules.rule import Amount, Rule, in_samples, percent, samples, too_few
from jobrules.windows import Windows, judged, trailing_quantiles
from jobrules.words import count

if TYPE_CHECKING:
    from jobrules.job import BoolArray, FloatArray, IntArray, Job, Panel
    from jobrules.result import RuleResult


@dataclass(frozen=True, kw_only=True)
class BatchSize(Rule):
    """The work is small for the machine: CPU, GPU and GPU memory are all little used.

    What it checks
        Looks at the last ``window`` samples once a minute, after ``patience`` CPU samples of a node:
        the 95th percentiles of the node's mean CPU use, of a GPU's use and of its memory all lie
        below their thresholds. A minute without memory samples is judged by the other two; one
        without CPU or GPU samples is not judged.

    Why it matters
        Nothing limits the speed but the size of the work handed over at a time. Says little about
        frameworks that reserve all GPU memory from the start.

    What to do
        Raise the batch size until GPU memory is well filled, and watch that the model still
        converges; or take a smaller machine.
    """

    title: ClassVar[str] = "CPU, GPU and GPU memory are all little used"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_USE, Metric.CPU_USE)
    section: ClassVar[str] = "batch-size"

    cpu_threshold_p95: float = percent(70.0, "95th percentile of the node's mean CPU use")
    gpu_threshold_p95: float = percent(70.0, "95th percentile of a GPU's use")
    gpu_memory_threshold_p95: float = percent(70.0, "95th percentile of a GPU's memory use")
    patience: Amount = samples(1000, "CPU samples of a node that are seen before it is judged")
    window: Amount = samples(500, "samples that are judged together")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU."""
        grid = Windows.of(job)
        details: dict[str, Any] = {}
        cpu_seen: dict[str, int] = {}
        gpus: list[JudgedGPU] = []
        with_memory = 0
        for panel in job.panels_of(Metric.GPU_USE):
            cpu = job.panel(panel.node, Metric.CPU_USE)
            seen, at, cpu_low, cpu_short = self._cpu(cpu, grid)
            if cpu:
                cpu_seen[cpu.node] = len(cpu.mean)
            memory = job.panel(panel.node, Metric.GPU_MEMORY)
            for column, device in enumerate(panel.devices):
                time_us, values = panel.series(column)
                window = in_samples(self.window, time_us)
                gpu_seen = grid.seen(time_us)
                at_gpu = judged(gpu_seen, window)
                both = np.intersect1d(at, at_gpu)
                low = cpu_low[both] & _below(values, gpu_seen[1:][both], window, self.gpu_threshold_p95)
                held = _device(memory, device)
                if held:
                    # A minute without a new memory sample is judged without memory.
                    memory_seen = grid.seen(held[0])
                    known = np.diff(memory_seen)[both] > 0
                    ends = memory_seen[1:][both][known]
                    memory_window = in_samples(self.window, held[0])
                    low[known] &= _below(held[1], ends, memory_window, self.gpu_memory_threshold_p95)
                    with_memory += int(np.count_nonzero(low & known))
                unused = bool(values.max() <= 0)
                gpu_short = "" if len(at_gpu) else too_few(len(values), window)
                gpu = JudgedGPU(
                    node=panel.node,
                    device=device,
                    judged=len(both),
                    hits=both[low],
                    unused=unused,
                    reason=cpu_short or gpu_short or "GPU and CPU were not sampled in the same minutes",
                )
                gpus.append(gpu)
                if not cpu or not len(gpu.hits):
                    continue
                last = gpu.hits[-1]
                found = details.setdefault(cpu.node, {})
                found["cpu"] = quartiles(cpu.mean[: seen[last + 1]])
                found[device] = quartiles(values[: gpu_seen[last + 1]]) | {"unused": unused}
                if held and memory_seen[last + 1]:
                    found[f"{device}_memory"] = quartiles(held[1][: memory_seen[last + 1]])
        judgement = Judgement.of(job, grid, gpus)
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
        details["last_timestamp"] = judgement.last_start_us
        without = judgement.violating - with_memory
        title = self.title if with_memory else "CPU and GPU are little used"
        clause = (
            f"{count(without, 'window')} judged without GPU memory, which was not sampled" if without else ""
        )
        finding = judgement.finding(self, title, [clause])
        return judgement.triggered(self, finding, details=details, **facts)

    def _cpu(self, cpu: Panel | None, grid: Windows) -> tuple[IntArray, IntArray, BoolArray, str]:
        """Samples seen by each window, windows judged, those of little CPU use, and why none is judged."""
        low = np.zeros(grid.count, dtype=np.bool_)
        if cpu is None:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, low, "no CPU samples of its node"
        window = in_samples(self.window, cpu.time_us)
        wanted = max(window, in_samples(self.patience, cpu.time_us))
        seen = grid.seen(cpu.time_us)
        at = judged(seen, wanted)
        low[at] = _below(cpu.mean, seen[1:][at], window, self.cpu_threshold_p95)
        return seen, at, low, "" if len(at) else too_few(len(cpu.mean), wanted)


def _below(values: FloatArray, ends: IntArray, window: int, limit: float) -> BoolArray:
    return trailing_quantiles(values, ends, window, (0.95,))[:, 0] < limit


def _device(panel: Panel | None, name: str) -> tuple[IntArray, FloatArray] | None:
    if panel is None or name not in panel.devices:
        return None
    return panel.series(panel.devices.index(name))
