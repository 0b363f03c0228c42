"""Numbers of real jobs against those of SageMaker Debugger.

The samples are cut where it stopped: it never analyzed the last, partial minute. The GPU rows of these jobs are
exact, ``cpu0`` is the mean over the cores; nothing else was kept.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from jobreport.readers.registry import read_job
from jobrules import BatchSize, LowGPUUtilization, MaxInitializationTime, OverallSystemUsage
from jobrules.model import SECOND_US, Job, Metric, Status
from jobrules.rule import run_rules
from tests.copies import replace
from tests.paths import CORPUS, needs_corpus

pytestmark = needs_corpus

JOBS = sorted(
    p.parent.name for p in CORPUS.glob("sagemaker/*/vendor-rules") if (p.parent / "profiler-output").is_dir()
)


def written(job: str, rule: str) -> Any:
    return json.loads((CORPUS / "sagemaker" / job / "vendor-rules" / f"{rule}.json").read_bytes())


@cache
def cut_job(name: str) -> Job:
    """The job up to the last sample that SageMaker Debugger analyzed."""
    job, _ = read_job(CORPUS / "sagemaker" / name / "profiler-output")
    end_us = round(written(name, "MaxInitializationTime")["Details"]["job_end"] * SECOND_US)
    panels = []
    for panel in job.panels:
        n = int(np.searchsorted(panel.time_us, end_us, side="right"))
        cut = replace(
            panel,
            time_us=panel.time_us[:n],
            snapshot=panel.snapshot[:n],
            values=panel.values[:n],
            last_us=int(panel.time_us[n - 1]),
        )
        panels.append(cut)
    return replace(job, panels=tuple(panels))


def test_there_are_jobs_to_compare() -> None:
    assert len(JOBS) >= 9


@pytest.mark.parametrize("name", JOBS)
def test_overall_system_usage_equals_that_of_sagemaker_debugger(name: str) -> None:
    ours = OverallSystemUsage().check(cut_job(name)).details

    for metric in ("CPU", "GPU", "GPU memory"):
        for node, figures in written(name, "OverallSystemUsage")["Details"][metric].items():
            for figure, value in figures.items():
                assert ours[metric][node][figure] == pytest.approx(value, abs=0.01), (metric, figure)


@pytest.mark.parametrize("name", JOBS)
def test_low_gpu_utilization_equals_that_of_sagemaker_debugger(name: str) -> None:
    theirs = written(name, "LowGPUUtilization")
    job = cut_job(name)
    (ours,) = run_rules([LowGPUUtilization()], job)
    if not job.gpu_count:
        assert (ours.status, theirs["Datapoints"]) == (Status.NOT_EVALUATED, 0)
        return

    # A window whose p95 equals the threshold passes in SageMaker Debugger and fluctuates in jobreport: one of job-23.
    ours_only = windows_at_the_threshold(job)
    assert (ours.triggered - ours_only, ours.datapoints) == (theirs["RuleTriggered"], theirs["Datapoints"])
    for node, gpus in theirs["Details"].items():
        if node == "last_timestamp":
            assert ours.details[node] == gpus
            continue
        for gpu, block in gpus.items():
            for figure in ("gpu_95", "gpu_5", "gpu_max", "p25", "p50", "p75", "p95", "upper", "lower"):
                assert ours.details[node][gpu][figure] == pytest.approx(block[figure], abs=1e-9), figure


def windows_at_the_threshold(job: Job) -> int:
    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    start = panel.time_us[0] // 60_000_000 * 60_000_000
    found = 0
    for end in range(int(start) + 60_000_000, int(panel.time_us[-1]) + 60_000_000, 60_000_000):
        so_far = panel.values[panel.time_us < end, 0]
        if len(so_far) > 1000:
            p5, p95 = np.quantile(so_far[-500:], (0.05, 0.95))
            found += bool(p95 == 70 and p5 < 10)
    return found


@pytest.mark.parametrize("name", JOBS)
def test_batch_size_triggers_as_often_as_in_sagemaker_debugger(name: str) -> None:
    (ours,) = run_rules([BatchSize()], cut_job(name))

    theirs = written(name, "BatchSize")
    assert ours.triggered == theirs["RuleTriggered"]
    assert abs(ours.datapoints - theirs["Datapoints"]) <= 1


@pytest.mark.parametrize("name", JOBS)
def test_job_start_and_end_equal_that_of_sagemaker_debugger(name: str) -> None:
    """As far as the kept rows go.

    The end is that of the sensor read last, the network, half a millisecond after the GPUs; of the
    CPU-only job the first tick, half a second before the cores', held memory alone. Neither was kept.
    """
    job = cut_job(name)
    details = MaxInitializationTime().check(job).details
    theirs = written(name, "MaxInitializationTime")["Details"]

    first_tick = 1e-6 if job.gpu_count else 0.501
    assert 0 <= details["job_start"] - theirs["job_start"] + 1e-6 < first_tick + 1e-6
    assert 0 <= theirs["job_end"] - details["job_end"] + 1e-6 < 0.001
