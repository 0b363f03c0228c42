"""Runs for comparisons: reports of jobs that are made in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec import UNSET

from jobreport.build import build_report
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings
from jobreport.comparison.document import Comparison
from jobreport.comparison.runs import RunOf, run_of
from jobreport.cost.prices import Machine, Prices
from jobreport.document import Report
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.model import SECOND_US, Finding, JobInMemory, Metric, Severity
from jobrules.rule import run_rules
from jobrules.verdict.observations import CROWDED
from tests import kineto
from tests.captured_jobs import job_of
from tests.copies import replace
from tests.jobs import START_US, make_panel, make_steps


def listed(*machines: Machine, source: str = "list", as_of: str = "2026-01-01") -> Prices:
    return Prices(currency="USD", source=source, as_of=as_of, machines=machines)


def v100(kind: str, per_hour: float, gpus: int) -> Machine:
    """A machine of a family whose cores and memory grow with its GPUs."""
    return Machine(
        type=kind,
        per_hour=per_hour,
        gpus=gpus,
        gpu_model="V100",
        gpu_memory_gib=16,
        cores=8 * gpus,
        memory_gib=61 * gpus,
    )


#: Prices of the published pair.
PUBLISHED = listed(
    v100("ml.p3.8xlarge", 14.688, 4), v100("ml.p3.2xlarge", 3.825, 1), source="published", as_of="2021-02-01"
)
#: Seconds of a step.
STEP_S = 0.5


def report_of(
    lasts_s: Sequence[float], *, gpu: Sequence[float] = (), cores: int = 4, start_s: float = 0.0
) -> Report:
    """A job of one rank whose steps follow one another, 10 s after its start and before its end."""
    return _report_of(tuple(lasts_s), tuple(gpu), cores, start_s)


@cache
def _report_of(lasts_s: tuple[float, ...], gpu: tuple[float, ...], cores: int, start_s: float) -> Report:
    ends = 10 + np.cumsum(lasts_s)
    spans = list(zip([10.0, *ends.tolist()], ends.tolist(), strict=False))
    n = int(2 * (ends[-1] + 10))
    start_us = START_US + round(start_s * SECOND_US)
    use = np.resize(gpu or [50.0], n)[:, None]
    panels = (
        make_panel(Metric.GPU_UTILIZATION, use, start_us=start_us),
        make_panel(Metric.CPU_UTILIZATION, np.full((n, cores), 25.0), start_us=start_us, prefix="cpu"),
    )
    job = JobInMemory(name="job", panels=panels, steps=make_steps(spans, start_us=start_us), finished=True)
    rules = [rule() for rule in RULES]
    return build_report(job, Quality(), rules, run_rules(rules, job), "make-report", strict=True)


def steady(scale: float = 1.0, seed: int = 1, n: int = 400, start_s: float = 0.0) -> Report:
    """Steps of half a second times a scale, with noise of 5%."""
    noise = np.random.default_rng(seed).normal(1.0, 0.05, n)
    return report_of((scale * STEP_S * noise).tolist(), start_s=start_s)


def run(label: str, report: Report, **given: Any) -> RunOf:
    return run_of(label, f"job of {label}", report, given)


def compared(*runs: RunOf, **settings: Any) -> Comparison:
    return compare(runs, Settings(**settings), "compare-reports")


def priced(count: int, price: float, batch_size: int | None = None) -> dict[str, Any]:
    """Facts of a run on one node of so many GPUs."""
    return {"nodes": 1, "gpus_per_node": count, "price_per_node_hour": price, "batch_size": batch_size}


def older(report: Report) -> Report:
    """As a version wrote it that kept no blocks."""
    return replace(report, blocks=UNSET, time_blocks=UNSET, goodput=UNSET, demand=UNSET)


def stopped(report: Report) -> Report:
    """As of a job that did not end by itself."""
    return replace(report, job=replace(report.job, finished=False))


def shared(report: Report) -> Report:
    """As of a job that had to share its cores."""
    crowded = Finding(
        key=CROWDED,
        severity=Severity.WARNING,
        title="",
        evidence=(),
        advice=(),
        rules=(),
        section="utilization",
    )
    return replace(report, verdict=replace(report.verdict, findings=(crowded,)))


def published(label: str) -> RunOf:
    """A run of the published pair, by what was published of it."""
    seconds, nodes, gpus, cores, gpu_p95, cpu_p95, kind = {
        "A": (503, 3, 4, 32, 13.5, 24.4, "ml.p3.8xlarge"),
        "B": (502, 2, 1, 8, 46.0, 61.0, "ml.p3.2xlarge"),
    }[label]
    report = steady(n=40)
    job = report.job
    one = job.nodes[0]
    rows = {row.label: row for row in report.utilization}
    names = [f"algo-{i + 1}" for i in range(nodes)]
    return run(
        label,
        replace(
            report,
            job=replace(
                job,
                end_us=job.start_us + seconds * SECOND_US,
                nodes=tuple(replace(one, name=name, gpus=gpus, cores=cores) for name in names),
            ),
            utilization=tuple(
                replace(rows[metric], node=name, p95=p95)
                for name in names
                for metric, p95 in (("GPU", gpu_p95), ("CPU", cpu_p95))
            ),
            demand=None,
            blocks=None,
        ),
        instance_type=kind,
        nodes=nodes,
        gpus_per_node=gpus,
    )


def of_traces(*traces: kineto.Recording) -> Report:
    """The report of a job of which only these traces exist, one a rank."""
    with TemporaryDirectory() as folder:
        job = job_of(Path(folder), *traces)
    rules = [rule() for rule in RULES]
    return build_report(job, Quality(), rules, run_rules(rules, job), "make-report", strict=True)
