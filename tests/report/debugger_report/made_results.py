"""Jobs with rule results of SageMaker Debugger beside samples, logs, and steps, with values that differ by a seed.

The results are those of jobreport's rules, written as SageMaker Debugger writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobreport.document import EXTRA_KEYS, rule_json
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules import RULES
from jobrules.model import SECOND_US, JobInMemory, Metric, Panel
from jobrules.rule import run_rules
from tests.jobs import make_events, make_job, make_panel, make_steps
from tests.report.readers.samples import sample, write

CAUSES = ("data-loading", "cpu-bottleneck", "saturated-process", "io-bottleneck", "gpu-never-used")
#: What a part of the sources is called: the sensor of its rows.
SENSORS = {"gpu": Metric.GPU_UTILIZATION, "cpu": Metric.CPU_UTILIZATION, "io": Metric.IO_WAIT}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A job by its cause of lost time."""

    cause: str
    job: JobInMemory
    node: str
    cores: int
    #: Seconds of a batch fetch, and from one step to the next.
    fetch_s: float
    each_s: float

    @classmethod
    def of(cls, cause: str, seed: int) -> Made:
        """Stalls of a few seconds, in which the GPUs idle for the reason, and steps at full use."""
        random = np.random.default_rng([seed, CAUSES.index(cause)])
        interval_s = float(random.choice([0.4, 0.5, 0.7]))
        start_us = 1_600_000_000 * SECOND_US + int(random.integers(0, 10**14))
        node, gpus, cores = (
            f"host-{random.integers(90)}",
            int(random.choice([1, 2])),
            int(random.choice([4, 6, 12])),
        )
        length_s = float(random.uniform(750, 1000))
        step_s, stall_s = float(random.uniform(2, 4)), float(random.uniform(3, 6))
        each_s, first_s = step_s + stall_s, float(random.uniform(30, 60))
        second = np.arange(0, length_s, interval_s)
        begun = second >= first_s
        stalled = begun & ((second - first_s) % each_s < stall_s)
        low = ~begun | stalled
        gpu = np.where(low[:, None], 0.0, random.uniform(85, 96, (len(second), gpus)))
        cpu = random.uniform(8, 22, (len(second), cores))
        io_wait = random.uniform(0, 2, (len(second), cores))
        match cause:
            case "data-loading" | "saturated-process":
                cpu[stalled, random.integers(cores)] = 99.0
            case "cpu-bottleneck":
                cpu[stalled] = random.uniform(94, 99, (int(stalled.sum()), cores))
            case "io-bottleneck":
                io_wait[stalled, : cores // 2] = 88.0
            case "gpu-never-used":
                gpu[:] = 0.0
        steps = int((length_s - first_s) / each_s)
        begins = first_s + each_s * np.arange(steps)
        fetches = [
            ("DataLoaderIter", "_SingleProcessDataLoaderIter::fetch", float(at), float(at + stall_s))
            for at in begins
        ]
        of: dict[str, Any] = {"node": node, "start_us": start_us}
        of_samples = of | {"interval_s": interval_s}
        known = make_job(
            steps=make_steps([(at + stall_s, at + each_s) for at in begins.tolist()], **of),
            events=make_events(fetches, **of) if cause == "data-loading" else None,
        )
        panels = (
            make_panel(Metric.GPU_UTILIZATION, gpu, **of_samples),
            make_panel(Metric.CPU_UTILIZATION, cpu, prefix="cpu", **of_samples),
            make_panel(Metric.IO_WAIT, io_wait, prefix="cpu", **of_samples),
        )
        job = JobInMemory(name="job", panels=panels, steps=known.steps, events=known.events)
        return cls(cause=cause, job=job, node=node, cores=cores, fetch_s=stall_s, each_s=each_s)

    def write(self, folder: Path, *sources: str) -> Path:
        """``results``, rows of ``gpu``, ``cpu``, and ``io``, the ``mean`` of the cores, and a ``log`` of the GPUs."""
        files: dict[str, Any] = {}
        panels = {one.metric: one for one in self.job.panels}
        if "results" in sources:
            files |= {
                f"profiler-reports/{rule}.json": json.dumps(one) for rule, one in self.results().items()
            }
        rows = [row for name in sources if name in SENSORS for row in _rows(panels[SENSORS[name]])]
        if "mean" in sources:
            cpu = panels[Metric.CPU_UTILIZATION]
            rows += _rows(make_panel(cpu.metric, cpu.mean, node=self.node, time_us=cpu.time_us, prefix="cpu"))
        if rows:
            second = int(panels[Metric.CPU_UTILIZATION].time_us[0]) // SECOND_US
            files[f"system/incremental/2020091312/{second}.{self.node}.json"] = sorted(rows, key=_time)
        if "log" in sources:
            files["gpu_log.csv"] = _log(panels[Metric.GPU_UTILIZATION])
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, files)
        return folder

    def results(self) -> dict[str, dict[str, Any]]:
        """By rule."""
        rules = [rule() for rule in RULES if rule.__name__ in NAMES]
        intervals_us = {panel.metric: panel.interval_us for panel in self.job.panels}
        found = {}
        for rule, result in zip(rules, run_rules(rules, self.job, strict=True), strict=True):
            content = json.loads(rule_json(rule, result, intervals_us))
            found[rule.name] = {key: value for key, value in content.items() if key not in EXTRA_KEYS}
        for one in found["LoadBalancing"]["Details"].values():
            one["workloads"] = {gpu: bins[:49] for gpu, bins in one["workloads"].items()}
        if self.cause == "data-loading":
            found["Dataloader"]["Details"] |= {"num_workers": 0, "cores": self.cores, "dataloaders": 1}
        # Of a single rank, what is outside of steps is half of the true time (OFM-1 of docs/differences.md).
        outside = self.fetch_s / self.each_s
        found["OverallFrameworkMetrics"]["Details"]["phase"] = {
            "others": 100 * outside / (1 + outside),
            "Step:ModeKeys.TRAIN": 100 * (1 - outside / (1 + outside)),
        }
        return found


def _rows(panel: Panel) -> list[str]:
    kind = "gpu" if panel.metric is Metric.GPU_UTILIZATION else "cpu"
    dimension = {
        Metric.GPU_UTILIZATION: "GPUUtilization",
        Metric.CPU_UTILIZATION: "CPUUtilization",
        Metric.IO_WAIT: "I/OWaitPercentage",
    }[panel.metric]
    return [
        sample(
            round(value, 2), at=us / SECOND_US, name=device, kind=kind, dimension=dimension, node=panel.node
        )
        for us, values in zip(panel.time_us.tolist(), panel.values.tolist(), strict=True)
        for device, value in zip(panel.devices, values, strict=True)
    ]


def _time(row: str) -> float:
    """The last value of the row."""
    return float(row[row.rindex(" ") : -1])


def _log(panel: Panel) -> str:
    """As nvidia-smi writes it, of a machine without a name, every second reading of the samples."""
    times = np.datetime_as_string(panel.time_us[1::2].astype("datetime64[us]"), unit="ms")
    lines = ["timestamp, index, utilization.gpu [%]"]
    lines += [
        f"{time.replace('-', '/').replace('T', ' ')}, {i}, {value:.0f} %"
        for time, values in zip(times.tolist(), panel.values[1::2].tolist(), strict=True)
        for i, value in enumerate(values)
    ]
    return "\n".join(lines) + "\n"
