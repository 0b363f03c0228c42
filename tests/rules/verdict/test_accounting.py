"""Lost GPU time by cause, against a plain account of every sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules import (
    BatchSize,
    CPUBottleneck,
    IOBottleneck,
    LoadBalancing,
    Rule,
    StepOutlier,
    UnusedGPU,
)
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Finding, FloatArray, Job, Metric, Panel
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.rule import run_rules
from jobrules.verdict.accounting import DeviceTime, claimed, spent_per_node
from jobrules.verdict.edges import edges
from jobrules.verdict.findings import judge
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import in_parts, time_use
from tests.elsewhere import JobElsewhere
from tests.jobs import make_job, make_panel, make_steps
from tests.rules.verdict.random_jobs import random_job

OUTLIERS = StepOutlier(n_outliers=1, stddev=1.0)
RULES_WITH_CAUSES: tuple[Rule, ...] = (
    UnusedGPU(),
    IOBottleneck(),
    CPUBottleneck(),
    OUTLIERS,
    LoadBalancing(),
    BatchSize(gpu_threshold_p95=101.0),
)
#: Parts of lost time in the order of their causes.
KEYS = (
    *("gpu-never-used", "unused-gpu", "gpu-late", "gpu-stopped", "start-up", "wind-down"),
    *(
        "io-bottleneck",
        "cpu-bottleneck",
        "step-outlier",
        "saturated-process",
        "one-process",
        "load-balancing",
        "batch-size",
    ),
)

# Made-up causes


def share_of(key: str, node: str, device: str, time_us: int) -> float:
    """How much of a sample a made-up cause claims; below 0 and above 1 too."""
    return crc32(f"{key} {node} {device} {time_us}".encode()) % 7 / 4 - 0.25


def claims_nothing(key: str, node: str) -> bool:
    """Whether a made-up cause has no claim on a node."""
    return crc32(f"{key} {node}".encode()) % 5 == 0


def made_up(key: str, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    assert part.nodes == (panel.node,)
    assert len(weight_us) == len(panel.time_us)
    if claims_nothing(key, panel.node):
        return None

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [
            gpu.weight_us
            * [share_of(key, panel.node, panel.devices[gpu.column], int(t)) for t in gpu.time_us]
            for gpu in gpus
        ]

    return claim


def no_finding(claimed: Claimed) -> Finding:
    raise AssertionError(claimed)


def cause(key: str, precedence: Precedence, *, of_work: bool) -> Cause:
    return Cause(
        key=key,
        precedence=precedence,
        label=key,
        when="",
        claim=partial(made_up, key),
        finding=no_finding,
        of_work=of_work,
    )


class Account:
    """Each sample by itself, in plain Python."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.work = Work.of(job)

    def samples(self, panel: Panel, column: int) -> list[tuple[int, int, float, float, bool]]:
        """Row, time, weight, percent, and whether it is work."""
        rows = [i for i in range(len(panel.time_us)) if not np.isnan(panel.values[i, column])]
        weights = sample_weights(panel.time_us[rows], *self.job.span_us).weight_us
        work = (self.work.begin_us, self.work.end_us) if self.work else (0, -1)
        times = [int(panel.time_us[i]) for i in rows]
        return [
            (row, t, float(weight), float(panel.values[row, column]), work[0] <= t <= work[1])
            for row, t, weight in zip(rows, times, weights, strict=True)
        ]


def parts_of(left_us: float, weight_us: float, value: float) -> str:
    """The part of the bar that is left without a cause: what is left of an idle sample is idle."""
    without = value if value < 10 else 100 * (1 - left_us / max(weight_us, 1))
    return "idle" if without < 10 - 1e-7 else "low" if without < 70 - 1e-7 else "busy"


@given(st.integers(0, 2**32 - 1))
def test_each_moment_goes_to_the_causes_in_their_order_and_counts_once(seed: int) -> None:
    job = random_job(seed)
    rng = np.random.default_rng(seed)
    causes = [
        cause(f"cause{i}", Precedence(int(p)), of_work=bool(rng.random() < 0.6))
        for i, p in enumerate(np.sort(rng.integers(1, 15, rng.integers(0, 5))))
    ]
    account = Account(job)

    nodes = spent_per_node(job, causes, account.work)

    assert spent_per_node(JobElsewhere(job), causes, account.work) == nodes
    start_us, end_us = job.span_us
    for node, panel in zip(nodes, job.panels_of(Metric.GPU_UTILIZATION), strict=True):
        hits: dict[str, set[int]] = {one.key: set() for one in causes}
        for column, device in enumerate(node.devices):
            lost = dict.fromkeys([*(one.key for one in causes), "idle", "low", "busy"], 0.0)
            used = 0.0
            for row, t, weight, value, in_work in account.samples(panel, column):
                left = weight * (1 - value / 100)
                used += weight - left
                for one in causes:
                    claims = not claims_nothing(one.key, panel.node) and (in_work or not one.of_work)
                    most = weight * share_of(one.key, panel.node, device.device, t) if claims else 0.0
                    taken = min(max(most, 0.0), left)
                    lost[one.key] += taken
                    left -= taken
                    if taken > 0:
                        hits[one.key].add(row)
                lost[parts_of(left, weight, value)] += left
            assert device.lost == pytest.approx(lost, abs=10)
            assert device.used == pytest.approx(used, abs=1)
            assert device.total == pytest.approx(end_us - start_us, abs=1)
        for key, rows in hits.items():
            loss = node.losses[key]
            times = panel.time_us[sorted(rows)] if rows else [0]
            assert (loss.snapshots, loss.start_us, loss.end_us) == (len(rows), times[0], times[-1])
    whole = sum(device.total for node in nodes for device in node.devices)
    for one in causes:
        amount = claimed(one, nodes)
        lost_us = [d.lost[one.key] for node in nodes for d in node.devices]
        assert amount.gpu_s == pytest.approx(sum(lost_us) / SECOND_US)
        assert amount.share == pytest.approx(sum(lost_us) / whole)
        assert len(amount.devices) == sum(us > 0 for us in lost_us)


# The causes of rules


def causes_of_rules(job: Job) -> list[Cause]:
    work = Work.of(job)
    assert work is not None
    (outliers,) = run_rules([OUTLIERS], job, strict=True)
    result = RULES_WITH_CAUSES[0].passed("nothing")
    causes = [*edges(job, work, None)]
    for rule in RULES_WITH_CAUSES:
        causes += rule.causes(job, outliers if rule is OUTLIERS else result)
    return sorted(causes, key=lambda one: one.precedence)


def test_the_random_jobs_hold_every_cause() -> None:
    seen = dict.fromkeys(KEYS, 0)
    for seed in range(40):
        job = random_job(seed)
        work = Work.of(job)
        if work and work.gpu_us:
            nodes = spent_per_node(job, causes_of_rules(job), work)
            for device in (device for node in nodes for device in node.devices):
                for key in KEYS:
                    seen[key] += device.lost.get(key, 0.0) > 0
    assert min(seen.values()) > 0, seen


@given(st.integers(0, 2**32 - 1))
def test_findings_and_parts_say_the_same_and_add_up(seed: int) -> None:
    job = random_job(seed)
    verdict = judge(job, RULES_WITH_CAUSES, run_rules(RULES_WITH_CAUSES, job, strict=True), job_phases(job))
    use = verdict.use
    assert use is not None

    assert round(sum(part.amount for part in use.parts), use.digits) == use.hours
    assert round(sum(part.percent for part in use.parts), 1) == 100.0
    assert len({part.key for part in use.parts}) == len(use.parts)
    found = {finding.key: finding for finding in verdict.findings}
    linked: dict[str, float] = {}
    for part in use.parts:
        if part.finding:
            linked[part.finding] = linked.get(part.finding, 0.0) + part.amount
    for key, hours in linked.items():
        parts = sum(part.finding == key for part in use.parts)
        assert (found[key].gpu_s or 0) / 3600 == pytest.approx(hours, abs=1.1 * parts / 10**use.digits)
    lost = sum((f.gpu_s or 0) / 3600 for f in verdict.findings if f.key != "not-measured")
    assert lost <= use.of("lost")[0] + 1.1 * len(use.parts) / 10**use.digits
    away = JobElsewhere(job)
    results = run_rules(RULES_WITH_CAUSES, away, strict=True)
    assert judge(away, RULES_WITH_CAUSES, results, job_phases(away)) == verdict


def test_a_gpu_that_is_not_sampled_in_the_work_is_not_the_most_used_one() -> None:
    gpu = np.full((200, 3), 90.0)
    gpu[:, 1] = 60.0
    gpu[:100, :2] = 0.0
    gpu[50:, 2] = np.nan
    gpu[:50, 2] = 0.0
    job = make_job(gpu=gpu, interval_s=6)
    work = Work.of(job)

    (node,) = spent_per_node(job, causes_of_rules(job), work)

    lost = [device.lost["load-balancing"] for device in node.devices]
    assert lost == pytest.approx([0, 0.3 * 99 * 6 * SECOND_US, 0], abs=1)


def test_the_used_share_is_the_number_rounded() -> None:
    # 56.14% used, and two lost parts whose remainders are smaller than its own.
    spent = [
        DeviceTime(
            node="node",
            device="gpu0",
            worked=True,
            used=56.14,
            lost={"idle": 20.93, "low": 22.93},
            unmeasured=0.0,
        )
    ]

    use = in_parts("GPU", spent, {}, 3600 * SECOND_US)

    assert use is not None
    assert [part.percent for part in use.parts] == [56.1, 20.9, 23.0]


def test_hours_on_the_edge_of_rounding_add_up() -> None:
    # 2.665 hours: in binary a little less, so that it rounds up as a number and down as hundredths.
    use = time_use(make_job(gpu=[50.0] * 534, interval_s=18))
    assert use is not None

    assert (use.hours, round(sum(part.amount for part in use.parts), 2)) == (2.67, 2.67)


def test_time_that_only_another_sensor_covers_is_not_measured_and_not_lost() -> None:
    job = make_job(
        cpu=[99.0] * 300,
        interval_s=1,
        extra=[make_panel(Metric.GPU_UTILIZATION, [5.0] * 200, interval_s=1)],
    )
    work = Work.of(job)

    (node,) = spent_per_node(job, causes_of_rules(job), work)

    (device,) = node.devices
    assert device.unmeasured == pytest.approx(99 * SECOND_US, abs=SECOND_US)
    assert device.lost["cpu-bottleneck"] == pytest.approx(0.95 * 200 * SECOND_US, rel=0.001)
    assert node.devices[0].total == 299 * SECOND_US


@pytest.mark.slow
def test_a_day_of_eight_gpus_and_32_cores_takes_seconds() -> None:
    n = 172_800
    use = np.tile([[0.0] * 8, [5.0] * 8, [60.0, *[95.0] * 7]], (n // 3, 1))
    cores = np.tile([20.0, 95.0], (n, 16))
    starts = np.arange(0, 86_000, 0.5)
    lasts = np.where(np.arange(len(starts)) % 50 == 0, 0.49, 0.3)
    steps = make_steps(list(zip(starts.tolist(), (starts + lasts).tolist(), strict=True)))
    job = make_job(gpu=use, cpu=cores, io_wait=np.roll(cores, 1, axis=0), steps=steps)
    results = run_rules(RULES_WITH_CAUSES, job, strict=True)

    began = time.process_time()
    verdict = judge(job, RULES_WITH_CAUSES, results, job_phases(job))
    took_s = time.process_time() - began

    assert verdict.use is not None
    assert "io-bottleneck" in {part.finding for part in verdict.use.parts}
    assert took_s < 10
