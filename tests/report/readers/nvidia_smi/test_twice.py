"""The same job as SageMaker samples and as an nvidia-smi log: equal numbers in every rule that both can feed."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import LogSpec, write_job
from msgspec import to_builtins

from jobreport.readers.registry import read_job
from jobrules import RULES
from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.analyses.utilization import utilization
from jobrules.model import SECOND_US, Job, Metric, Status
from jobrules.rule import Rule, run_rules
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import time_use

BOTH = (Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY)
#: Among them those that trigger LowGPUUtilization, LoadBalancing and GPUMemoryIncrease.
NAMES = ("fluctuating", "imbalance", "memory-jump")
FED = tuple(rule for rule in RULES if rule.requires and set(rule.requires) <= set(BOTH))


@cache
def jobs(name: str) -> tuple[Job, Job]:
    """A scenario's job as samples, with what a log has too, and as a log."""
    scenario = SCENARIOS[name]
    spec = JobSpec(
        scenario=scenario,
        steps=None,
        nodes=1,
        gpus=scenario.gpus,
        cores=1,
        duration_us=15 * 60 * SECOND_US,
        interval_us=SECOND_US // 2,
        start_us=1_741_080_077_500_000,
        seed=1,
        resolution_us=1000,
    )
    with TemporaryDirectory() as folder:
        write_job(spec, Path(folder, "samples"), gzipped=False, samples=True)
        write_job(spec, Path(folder, "log"), gzipped=False, log=LogSpec())
        samples, _ = read_job(Path(folder, "samples"), strict=True)
        log, _ = read_job(Path(folder, "log"), strict=True)
    assert samples.has(Metric.CPU_UTILIZATION)
    panels = tuple(samples.panel("algo-1", metric) for metric in BOTH)
    # The samples of a moment end a few milliseconds later, with those of CPU and network.
    only = dataclasses.replace(samples, panels=tuple(panel for panel in panels if panel))
    return only, log


def plain(found: Any) -> Any:
    """Lists and numbers, the node under one name."""
    if isinstance(found, dict):
        return {plain(key): plain(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    return found.replace("algo-1", "node") if isinstance(found, str) else found


def test_there_are_rules_that_both_can_feed() -> None:
    assert {"LowGPUUtilization", "LoadBalancing", "GPUMemoryIncrease"} <= {rule.__name__ for rule in FED}


@pytest.mark.parametrize("rule", FED, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_rule_finds_the_same_in_both(name: str, rule: type[Rule]) -> None:
    (samples,), (log,) = (run_rules([rule()], job, strict=True) for job in jobs(name))

    assert plain(to_builtins(log)) == plain(to_builtins(samples))


def test_the_rules_have_something_to_find() -> None:
    triggered = {
        result.rule
        for name in NAMES
        for result in run_rules([rule() for rule in FED], jobs(name)[1], strict=True)
        if result.status is Status.TRIGGERED
    }

    assert {"LowGPUUtilization", "LoadBalancing", "GPUMemoryIncrease"} <= triggered


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_use_are_the_same_in_both(name: str) -> None:
    shared = {metric.value for metric in BOTH} | {metric.label for metric in BOTH}

    def tables(job: Job) -> list[Any]:
        usage = [row for row in utilization(job) if row.label in shared]
        boxes = [box for box in gpu_utilization(job) if box.metric in shared]
        assert len(usage) == 2
        assert len(boxes) == 2 * SCENARIOS[name].gpus
        return [plain(to_builtins(one)) for one in (usage, boxes, time_use(job), job_phases(job))]

    samples, log = jobs(name)
    assert tables(log) == tables(samples)
