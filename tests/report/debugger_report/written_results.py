"""Rule results of SageMaker Debugger that are written by hand, and the report of nothing else.

The job begins at ``START``, and by default lasts ``LENGTH`` seconds with two samples per second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from jobreport import settings
from jobreport.build import report_of
from jobreport.document import Report, RuleCard
from jobreport.readers.registry import read_directory
from tests.report.readers.debugger_results.test_rule_results import result
from tests.report.readers.samples import write

START = 1_700_000_000
LENGTH, SAMPLES = 1000, 2000


def built(directory: Path, name: Any = "job", own: Any = (), **rules: Any) -> Report:
    """The report of rule results that are given by the name of their rule; ``own`` are more rules."""
    directory.mkdir(parents=True, exist_ok=True)
    write(directory, {f"{rule}.json": json.dumps(content) for rule, content in rules.items()})
    chosen = settings.load()
    chosen = settings.Settings(rules=(*chosen.rules, *own), options=chosen.options)
    return report_of(read_directory(directory, name=name), chosen, name, strict=not own)[0]


def card(report: Report, rule: str) -> RuleCard:
    found = report.card(rule)
    assert found is not None
    return found


def micros(second: float) -> int:
    return int((START + second) * 1e6)


def times(first: float | None = None, last: float | None = None, end: float = LENGTH) -> dict[str, Any]:
    """MaxInitializationTime, with the starts of the first and the last step."""
    steps = {} if first is None or last is None else {"first": micros(first), "last": micros(last)}
    return result(
        {"job_start": START, "job_end": START + end, "step_num": steps},
        Datapoints=120,
        RuleParameters="threshold:20",
    )


def balance(**gpus: dict[int, int]) -> dict[str, Any]:
    """LoadBalancing: samples by percent, of GPUs of one node."""
    bins = {gpu: np.bincount([p // 2 for p in at], list(at.values()), 50) for gpu, at in gpus.items()}
    workloads = {gpu: [int(n) for n in one[:49]] for gpu, one in bins.items()}
    parameters = "threshold:0.2\npatience:1000"
    return result({"algo-1": {"workloads": workloads}}, Datapoints=SAMPLES, RuleParameters=parameters)


def bottlenecks(
    seconds: np.ndarray[Any, Any] | range, cores: int | list[int] = 1, gpus: int = 1, **keys: Any
) -> dict[str, Any]:
    """CPUBottleneck or IOBottleneck: entries at these seconds, and how many cores counted in each."""
    counts = np.broadcast_to(cores, len(seconds)).tolist()
    entries = {
        f"{START + second:.6f}": {"GPUs": gpus, "CPUs": n} for second, n in zip(seconds, counts, strict=True)
    }
    details = {"low_gpu_utilization": len(entries), "bottlenecks": entries}
    parameters = "threshold:50\ngpu_threshold:10\npatience:1000"
    return result(details, **{"Datapoints": SAMPLES, "RuleParameters": parameters} | keys)


def loader(fetch_s: float, num_workers: int = 0, cores: int = 8, fetches: int = 10) -> dict[str, Any]:
    """Dataloader."""
    details = {
        "cores": cores,
        "dataloaders": max(1, num_workers),
        "num_workers": num_workers,
        "dataloading_time": {"p50": fetch_s},
    }
    return result(details, Datapoints=fetches)


#: Dataloader that names cores and nothing else.
CORES = result({"cores": 8}, Datapoints=10)


#: Median, p95, and maximum.
Quantiles = tuple[float, float, float]


def usage(
    gpu: Quantiles | None = (0, 100, 100), cpu: Quantiles | None = (0, 60, 60), **nodes: Quantiles
) -> dict[str, Any]:
    """OverallSystemUsage of algo-1, and of more ``nodes`` by their GPUs."""

    def of(quantiles: Quantiles) -> dict[str, float]:
        p50, p95, most = quantiles
        return {"min": 0, "p50": p50, "p95": p95, "p99": p95, "max": most}

    gpus = {} if gpu is None else {"algo-1": of(gpu)} | {node: of(one) for node, one in nodes.items()}
    of_node = {"CPU": cpu, "I/O": (0, 5, 5), "Network": (5e6, 6e6, 7e6)}
    metrics = {
        metric: {node: of(one) for node in ("algo-1", *nodes) if one} for metric, one in of_node.items()
    }
    return result({"GPU": gpus} | metrics, Datapoints=SAMPLES)


def outside(others: float) -> dict[str, Any]:
    """OverallFrameworkMetrics: percent outside of steps, as the result has it."""
    return result({"phase": {"others": others, "Step:ModeKeys.TRAIN": 100 - others}})


def steps(p50: float, mean: float, n: int) -> dict[str, Any]:
    """StepOutlier without outliers."""
    stats = {"p50": p50, "mean": mean, "max": 10 * p50}
    series = {"phase": "Step:ModeKeys.TRAIN", "number_of_outliers": 0, "step_stats": stats}
    return result({"step_details": {"algo-1-27": series}}, Datapoints=n)
