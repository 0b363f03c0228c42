"""BatchSize: CPU, GPU, and GPU memory activity are all low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.gpu_checks import CheckedGPU, GPUChecks
from jobrules.measures.minutes import Seen, Windows, trailing_below
from jobrules.measures.quartiles import quartiles
from jobrules.model import Metric, Reason, ReasonKind
from jobrules.rule import Amount, Rule, in_samples, not_recorded, percent, reason_few_samples, samples
from jobrules.text import count, number, some_of

if TYPE_CHECKING:
    from jobrules.model import BoolArray, FloatArray, IntArray, Job, Panel, RuleResult

NO_CPU = Reason(kind=ReasonKind.NO_DEVICE, what="node recorded both GPU and CPU")
NO_COMMON_MINUTE = Reason(kind=ReasonKind.NO_DEVICE, what="minute has samples of both GPU and CPU")


@dataclass(frozen=True, kw_only=True)
class BatchSize(Rule):
    """CPU, GPU, and GPU memory activity are all low.

    What it checks
        Per GPU, once per minute: p95 of the last ``window`` samples below its threshold for CPU, GPU, and, if recorded,
        GPU memory activity.

    Why it matters
        Neither CPU nor GPU is the limit: the batches are probably too small.

    What to do
        * Raise the batch size if memory in use allows it and training still converges.
        * Otherwise use a smaller machine.

    Details
        The first check comes after ``patience`` CPU samples of the node. CPU is the mean of the node's cores. A minute
        without a sample of CPU or GPU has no check; one without a sample of GPU memory activity is checked without it.
    """

    title: ClassVar[str] = "CPU, GPU, and GPU memory activity are all low"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "batch-size"

    cpu_threshold_p95: float = percent(70.0, "p95 of CPU utilization below which it is low")
    gpu_threshold_p95: float = percent(70.0, "p95 of GPU utilization below which it is low")
    gpu_memory_threshold_p95: float = percent(70.0, "p95 of GPU memory activity below which it is low")
    patience: Amount = samples(1000, "samples before the first check")
    window: Amount = samples(500, "samples per check")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU."""
        grid = Windows.of(job)
        nodes = [node for node in job.each(self._checked, grid) if node]
        gpus = [gpu for node in nodes for gpu in node.gpus]
        checks = GPUChecks.of(job, grid, gpus)
        cpu_seen = {node.name: node.cpu_samples for node in nodes if node.cpu_samples}
        if not cpu_seen:
            return self.not_evaluated(NO_CPU, devices=checks.answers)
        facts: dict[str, Any] = {
            "datapoints": max(cpu_seen.values()),
            "datapoints_per_series": cpu_seen,
            "counted": "windows",
        }
        if not checks.evaluated:
            longest = max(gpus, key=lambda gpu: cpu_seen.get(gpu.node, -1))
            return self.not_evaluated(longest.reason, devices=checks.answers, **facts)
        if not checks.violating:
            windows = some_of(checks.evaluated, checks.evaluated, "window")
            headline = f"CPU, GPU, or GPU memory activity reached its threshold in {windows}"
            return checks.passed(self, headline, **facts)
        details: dict[str, Any] = {node.name: node.details for node in nodes if node.details}
        details["last_timestamp"] = checks.last_start_us
        with_memory = sum(node.with_memory for node in nodes)
        without = checks.violating - with_memory
        title = (
            "CPU, GPU, and GPU memory activity were all low" if with_memory else "CPU and GPU were both low"
        )
        notes = [f"{count(without, 'window')} checked without GPU memory activity"] if without else []
        finding = checks.finding(self, f"{title} in {number(checks.windows[0])}", notes)
        return checks.triggered(self, finding, details=details, **facts)

    def _checked(self, part: Job, grid: Windows) -> _Node | None:
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
                # A minute without a new memory sample is checked without memory.
                memory_seen = grid.seen(held[0])
                known = memory_seen.new(both)
                ends = memory_seen.by(both[known])
                memory_window = in_samples(self.window, held[0])
                low[known] &= trailing_below(
                    held[1], ends, memory_window, 0.95, self.gpu_memory_threshold_p95
                )
                with_memory += int(np.count_nonzero(low & known))
            unused = bool(values.max() <= 0)
            gpu_short = None if len(at_gpu) else reason_few_samples(len(values), window)
            gpu = CheckedGPU(
                node=name,
                device=device,
                checks=len(both),
                violations=both[low],
                unused=unused,
                reason=cpu_short or gpu_short or NO_COMMON_MINUTE,
            )
            gpus.append(gpu)
            if len(gpu.violations):
                last = int(gpu.violations[-1]) + 1
                boxes[device] = quartiles(values[: gpu_seen.before(last)]) | {"unused": unused}
                if held and memory_seen.before(last):
                    boxes[f"{device}_memory"] = quartiles(held[1][: memory_seen.before(last)])
        # That of the CPU ends with the last GPU's.
        details = {"cpu": quartiles(cpu.mean[: seen.before(last)]), **boxes} if cpu and seen and boxes else {}
        return _Node(
            name=name,
            cpu_samples=len(cpu.time_us) if cpu else 0,
            gpus=tuple(gpus),
            with_memory=with_memory,
            details=details,
        )

    def _cpu(
        self, cpu: Panel | None, grid: Windows
    ) -> tuple[Seen | None, IntArray, BoolArray, Reason | None]:
        """Samples seen, windows checked, which of them have low CPU utilization, and why none is checked."""
        if cpu is None:
            no_cpu = not_recorded(Metric.CPU_UTILIZATION)
            return None, np.empty(0, np.int64), np.empty(0, np.bool_), no_cpu
        window = in_samples(self.window, cpu.time_us)
        wanted = max(window, in_samples(self.patience, cpu.time_us))
        seen = grid.seen(cpu.time_us)
        at = seen.judged(wanted)
        low = trailing_below(cpu.mean, seen.by(at), window, 0.95, self.cpu_threshold_p95)
        return seen, at, low, None if len(at) else reason_few_samples(len(cpu.mean), wanted)


class _Node(Struct, frozen=True, kw_only=True, eq=False):
    name: str
    #: Snapshots of its CPU; 0 without any.
    cpu_samples: int
    gpus: tuple[CheckedGPU, ...]
    #: Windows that violate and were checked with GPU memory activity, over all GPUs.
    with_memory: int
    #: For the JSON; empty without a window that violates.
    details: dict[str, Any]


def _device(panel: Panel | None, name: str) -> tuple[IntArray, FloatArray] | None:
    if panel is None or name not in panel.devices:
        return None
    return panel.series(panel.devices.index(name))
