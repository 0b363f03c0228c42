"""Lost GPU time by cause, against a plain account of every sample."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given
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
from jobrules.model import SECOND_US, Finding, FloatArray, Job, Metric, Panel, RuleResult
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.rule import run_rules
from jobrules.verdict.accounting import DeviceTime, claimed, spent_per_node
from jobrules.verdict.edges import edges
from jobrules.verdict.findings import judge
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import in_parts, time_use
from tests.elsewhere import JobElsewhere
from tests.jobs import make_job, make_panel, make_steps
from tests.rules.verdict.random_jobs import overlap, plain_work_us, plain_worked, random_job

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


class OfRules(Account):
    """What the causes of rules may claim of each sample."""

    def __init__(self, job: Job, outliers: RuleResult) -> None:
        super().__init__(job)
        assert self.work
        self.stalls = [s for panel in job.panels_of(Metric.GPU_UTILIZATION) for s in self.stalls_of(panel)]
        self.slow = {node: self.slow_steps(node, outliers) for node in job.nodes}
        gpus = [(p, k) for p in job.panels_of(Metric.GPU_UTILIZATION) for k in range(len(p.devices))]
        measured = {}
        for panel, column in gpus:
            inside = [(w, v) for _, _, w, v, in_work in self.samples(panel, column) if in_work]
            if (whole := sum(w for w, _ in inside)) and plain_worked(
                [s[3] for s in self.samples(panel, column)]
            ):
                measured[panel.node, column] = whole, sum(w * v for w, v in inside) / whole
        self.idle_ends = {(p.node, k): self.idle_at_ends(p, k) for p, k in gpus}
        longest = max((whole for whole, _ in measured.values()), default=0.0)
        means = [
            mean
            for gpu, (whole, mean) in measured.items()
            if whole >= longest / 2 and not any(self.idle_ends[gpu])
        ]
        self.highest = max(means) if len(means) > 1 else None
        self.active = {(p.node, k): self.active_part(p, k) for p, k in gpus}
        # Some GPU is active for a quarter of the work.
        self.much = any(
            self.active[p.node, k] >= 0.25 for p, k in gpus if any(s[4] and s[2] for s in self.samples(p, k))
        )

    def crowded(self, panel: Panel, row: int) -> bool:
        """Whether half of the cores are saturated, or their mean is high."""
        cpu = self.cores(panel, row, Metric.CPU_UTILIZATION)
        full, mean = sum(c > 90 for c in cpu), sum(cpu) / max(1, len(cpu))
        return mean >= 80 or (len(cpu) > 1 and full >= len(cpu) / 2)

    def snapshots(self, panel: Panel) -> list[tuple[int, int, int, bool]]:
        """Row, time, weight, and whether every GPU is idle, of each snapshot in the work."""
        assert self.work
        weights = sample_weights(panel.time_us, *self.job.span_us).weight_us.tolist()
        return [
            (row, t, int(weights[row]), not any(v >= 10 for v in panel.values[row].tolist()))
            for row, t in enumerate(panel.time_us.tolist())
            if self.work.begin_us <= t <= self.work.end_us
        ]

    def stalls_of(self, panel: Panel) -> list[tuple[int, int]]:
        """Around each snapshot in which all GPUs of a node idle beside a saturated CPU."""
        return [
            (t - int(weight / 2), t + int(weight / 2))
            for row, t, weight, idle in self.snapshots(panel)
            if idle and self.crowded(panel, row)
        ]

    def held_up(self, panel: Panel) -> set[int]:
        """Rows in which all GPUs of a node idle in a stall of another, if they do so twice as often as else."""
        if len(self.job.nodes) < 2 or not self.job.panel(panel.node, Metric.CPU_UTILIZATION):
            return set()
        free = [(row, t, idle) for row, t, _, idle in self.snapshots(panel) if not self.crowded(panel, row)]
        then = [(row, idle) for row, t, idle in free if any(a <= t <= b for a, b in self.stalls)]
        rows = {row for row, _ in then}
        others = [idle for row, _, idle in free if row not in rows]
        often, usual = sum(idle for _, idle in then) / max(1, len(then)), sum(others) / max(1, len(others))
        return {row for row, idle in then if idle} if often >= 2 * usual else set()

    def idle_at_ends(self, panel: Panel, column: int) -> tuple[set[int], set[int]]:
        """Rows before and after the work of a GPU, while others work, if it does nothing in them for long enough."""
        assert self.work
        assert self.work.gpu_us
        samples = self.samples(panel, column)
        own = plain_work_us([s[1] for s in samples], [s[3] for s in samples])
        if own is None:
            return set(), set()
        first, last = self.work.gpu_us
        least_us = max(60e6, 0.05 * (self.job.span_us[1] - self.job.span_us[0]))
        ends = [s for s in samples if first <= s[1] < own[0]], [s for s in samples if own[1] < s[1] <= last]
        found = [
            {s[0] for s in end}
            if end and end[-1][1] - end[0][1] >= least_us and np.mean([s[3] for s in end]) < 5
            else set()
            for end in ends
        ]
        return found[0], found[1]

    def active_part(self, panel: Panel, column: int) -> float:
        """Share of the work in which a GPU is active."""
        inside = [(w, v) for _, _, w, v, in_work in self.samples(panel, column) if in_work]
        whole = sum(w for w, _ in inside)
        return sum(w for w, v in inside if v >= 10) / whole if whole else 1.0

    def slow_steps(self, node: str, outliers: RuleResult) -> tuple[list[tuple[int, int]], float]:
        """Outlier steps, and how much longer than the median they took, averaged over ranks."""
        found, longer, steps = [], [], self.job.steps
        violating = {one.name for one in outliers.devices if one.violating}
        for rank in sorted(set(steps.rank.tolist())):
            rows = [i for i in range(len(steps)) if (steps.node[i], steps.rank[i]) == (node, rank)]
            if f"{node} rank {rank} TRAIN" not in violating:
                continue
            lasts = [int(steps.end_us[i] - steps.start_us[i]) for i in rows]
            mean = sum(lasts) / len(lasts)
            limit = mean + (sum((x - mean) ** 2 for x in lasts) / len(lasts)) ** 0.5
            found += [
                (int(steps.start_us[i]), int(steps.end_us[i]))
                for i, x in zip(rows, lasts, strict=True)
                if x > limit
            ]
            longer.append(sum(x - float(np.median(lasts)) for x in lasts if x > limit))
        return found, sum(longer) / len(longer) if longer else 0.0

    def cores(self, panel: Panel, row: int, metric: Metric) -> list[float]:
        found = self.job.panel(panel.node, metric)
        if found is None:
            return []
        distance = np.abs(found.time_us - panel.time_us[row]).tolist()
        nearest = distance.index(min(distance))
        near = distance[nearest] <= max(panel.interval_us, found.interval_us, 20_000)
        return found.values[nearest].tolist() if near else []

    def waiting(self, panel: Panel, inside: Sequence[Any]) -> int:
        """In how many samples some core waits for I/O."""
        return sum(any(w > 50 for w in self.cores(panel, row, Metric.IO_WAIT)) for row, *_ in inside)

    def of_node(self, panel: Panel) -> list[dict[str, float]]:
        """Lost microseconds by part for each GPU."""
        assert self.work
        columns = range(len(panel.devices))
        lost: list[dict[str, float]] = [dict.fromkeys(KEYS, 0.0) for _ in columns]
        left: list[dict[int, float]] = [{} for _ in columns]
        samples = [self.samples(panel, k) for k in columns]
        held_up = self.held_up(panel)
        grid = sample_weights(panel.time_us, *self.job.span_us).weight_us.tolist()
        for k in columns:
            never = not plain_worked([v for _, _, _, v, _ in samples[k]])
            almost = self.much and self.active[panel.node, k] < 0.05
            inside = [s for s in samples[k] if s[4]]
            late, stopped = self.idle_ends[panel.node, k]
            low = 70 if self.waiting(panel, inside) >= 0.9 * len(inside) else 10
            slow_us: dict[int, float] = {}
            stalls: dict[str, set[int]] = {
                "io-bottleneck": set(),
                "cpu-bottleneck": set(),
                "saturated-process": set(),
            }
            alone: dict[int, int] = {}
            idle_cores: list[int] = []
            other_cores = [math.inf]
            for row, t, weight, value, in_work in samples[k]:
                loss = rest = weight * (1 - value / 100)
                cpu, wait = (self.cores(panel, row, m) for m in (Metric.CPU_UTILIZATION, Metric.IO_WAIT))
                full = sum(c > 90 for c in cpu)
                mean = sum(cpu) / len(cpu) if cpu else 0.0
                crowded = self.crowded(panel, row)
                for key, part in (
                    ("gpu-never-used", never),
                    ("unused-gpu", almost and in_work),
                    ("gpu-late", row in late),
                    ("gpu-stopped", row in stopped),
                    ("start-up", t < self.work.begin_us),
                    ("wind-down", t > self.work.end_us),
                    ("io-bottleneck", in_work and any(w > 50 for w in wait) and value < low),
                    (
                        "cpu-bottleneck",
                        in_work
                        and (((crowded or row in held_up) and value < 10) or (mean >= 90 and value < 70)),
                    ),
                ):
                    taken = min(rest, loss * part)
                    lost[k][key] += taken
                    rest -= taken
                    if taken and key in stalls:
                        stalls[key].add(row)
                left[k][row] = rest
                around = t - int(grid[max(0, row - 1)]), t + int(grid[row])
                slow = min(1.0, overlap(*around, self.slow[panel.node][0]) / max(grid[row], 1.0))
                slow_us[row] = in_work * slow * rest
                alone[row] = full * (in_work and len(cpu) > 1 and not crowded and value < 10)
                if in_work and cpu:
                    (idle_cores if value < 10 else other_cores).append(full)
            longer_us = self.slow[panel.node][1]
            scale = min(1.0, longer_us / max(1.0, sum(slow_us.values())))
            for row, us in slow_us.items():
                lost[k]["step-outlier"] += us * scale
                left[k][row] -= us * scale
                if alone[row] >= least_of(idle_cores, other_cores):
                    lost[k]["saturated-process"] += left[k][row]
                    stalls["saturated-process"] |= {row} if left[k][row] else set()
                    left[k][row] = 0.0
            for key, rows in stalls.items():
                self.widen(samples[k], rows, left[k], lost[k], key)
        self.one_process(panel, samples, left, lost)
        self.share_out_uneven(panel, samples, left, lost)
        for k in columns:
            self.steady(panel, samples[k], left[k], lost[k])
        return lost

    def widen(
        self, samples: Any, claimed: set[int], left: dict[int, float], lost: dict[str, float], key: str
    ) -> None:
        """The stalled part of the low samples before and after claimed ones."""
        free = [s for s in samples if s[4] and left[s[0]] == s[2] * (1 - s[3] / 100)]
        joined = [(a, b) for a, b in pairwise(samples) if a[2] >= b[1] - a[1] - 1]
        near = {a[0] for a, b in joined if b[0] in claimed} | {b[0] for a, b in joined if a[0] in claimed}
        usual = float(np.quantile([s[3] for s in free], 0.75)) if free else 0.0
        for row, _, weight, value, _ in free:
            if row in near and 10 <= value < min(usual, 70):
                taken = weight * (1 - value / usual)
                lost[key] += taken
                left[row] -= taken

    def one_process(
        self, panel: Panel, samples: list[Any], left: list[dict[int, float]], lost: list[dict[str, float]]
    ) -> None:
        """All that is left while every GPU is low, if about one core for each process, or one, is in use meanwhile."""
        assert self.work
        rows = {row for row, t in enumerate(panel.time_us) if self.work.begin_us <= t <= self.work.end_us}
        rows -= {row for row in rows if np.mean(self.cores(panel, row, Metric.CPU_UTILIZATION) or [0]) >= 80}
        low = {row for row in rows if not any(panel.values[row] >= 70)}
        idle = {row for row in low if all(panel.values[row] < 10)}
        cpu = {row: c for row in rows if (c := self.cores(panel, row, Metric.CPU_UTILIZATION))}
        steps = self.job.steps
        ranks = {steps.rank[i] for i in range(len(steps)) if steps.node[i] == panel.node} or {""}

        def part(some: set[int], processes: int) -> float:
            known = [sum(cpu[row]) / 100 / processes for row in some & cpu.keys()]
            return sum(0.9 <= one <= 1.3 for one in known) / max(1, len(known))

        for processes in {1, len(ranks)}:
            lows, idles = len(low & cpu.keys()), len(idle & cpu.keys())
            rare = idle if lows >= len(cpu) - lows and 2 * idles <= lows else low
            usual = part(rare, processes) < 2 * part(rows - low, processes)
            left_rows = low - rare if usual else low
            used = [(sum(cpu[row]) / 100, len(cpu[row])) for row in left_rows & cpu.keys()]
            mean = float(np.mean([cores for cores, _ in used])) / processes if used else 0.0
            if used and used[0][1] > processes and 0.9 <= mean <= 1.3 and part(left_rows, processes) > 0.5:
                low = left_rows
                break
        else:
            return
        for k, own in enumerate(samples):
            for row in low & {s[0] for s in own if s[4]}:
                lost[k]["one-process"] += left[k][row]
                left[k][row] = 0.0

    def share_out_uneven(
        self, panel: Panel, samples: list[Any], left: list[dict[int, float]], lost: list[dict[str, float]]
    ) -> None:
        """Behind the most used GPU of the node, and that one behind the most used GPU of the job."""
        inside = [[s for s in own if s[4]] for own in samples]
        time_us = [sum(w for _, _, w, _, _ in own) for own in inside]
        some = [k for k in range(len(samples)) if time_us[k]]
        if self.highest is None or not some:
            return
        mean = {k: sum(w * v for _, _, w, v, _ in inside[k]) / time_us[k] for k in some}
        rest = {k: sum(left[k][row] for row, *_ in inside[k]) / time_us[k] for k in some}
        best = max(some, key=lambda k: mean[k])
        explained = 1 - mean[best] / 100 - rest[best]
        usual = rest[best] - min(max(0.0, (self.highest - mean[best]) / 100 - explained), rest[best])
        for k in some:
            for row, *_ in inside[k]:
                taken = left[k][row] * max(0.0, 1 - usual / rest[k]) if rest[k] else 0.0
                lost[k]["load-balancing"] += taken
                left[k][row] -= taken

    def steady(self, panel: Panel, samples: Any, left: dict[int, float], lost: dict[str, float]) -> None:
        """All that is left of a GPU that is seldom idle beside a CPU with room."""
        inside = [s for s in samples if s[4]]
        cores = [self.cores(panel, s[0], Metric.CPU_UTILIZATION) for s in inside]
        # A single series is the mean of an unknown number of cores.
        means = [np.mean(c) for c in cores if len(c) > 1]
        of_work = [self.cores(panel, row, Metric.CPU_UTILIZATION) for row, *_ in self.snapshots(panel)]
        used = [sum(c) / 100 / len(panel.devices) for c in of_work if len(c) > 1]
        loss = sum(w * (1 - v / 100) for _, _, w, v, _ in inside)
        if (
            not means
            or np.mean(means) >= 70
            or 0.9 <= np.mean(used) <= 1.3
            or sum(v < 10 for _, _, _, v, _ in inside) >= 0.1 * len(inside)
            or self.waiting(panel, inside) >= 0.1 * len(inside)
            or sum(left[row] for row, *_ in inside) < 0.9 * loss
        ):
            return
        lost["batch-size"] += sum(left[row] for row, _, _, v, _ in inside if v >= 10)


def least_of(idle: list[int], others: Sequence[float]) -> float:
    """How many saturated cores are twice as frequent while a GPU idles; infinite if no number is."""
    for k in range(1, max(idle, default=0) + 1):
        often, usual = (sum(n >= k for n in some) / len(some) for some in (idle, others))
        if often >= 2 * usual:
            return k
    return math.inf


def account_of_rules(job: Job) -> tuple[list[Cause], RuleResult]:
    work = Work.of(job)
    assert work is not None
    (outliers,) = run_rules([OUTLIERS], job, strict=True)
    result = RULES_WITH_CAUSES[0].passed("nothing")
    causes = [*edges(job, work, None)]
    for rule in RULES_WITH_CAUSES:
        causes += rule.causes(job, outliers if rule is OUTLIERS else result)
    return sorted(causes, key=lambda one: one.precedence), outliers


@given(st.integers(0, 2**32 - 1))
@example(286)  # three cores with 130% in all
def test_causes_of_rules_claim_what_a_plain_account_finds(seed: int) -> None:
    job = random_job(seed)
    work = Work.of(job)
    if work is None or work.gpu_us is None:
        return
    causes, outliers = account_of_rules(job)
    account = OfRules(job, outliers)

    for node, panel in zip(
        spent_per_node(job, causes, work), job.panels_of(Metric.GPU_UTILIZATION), strict=True
    ):
        for device, expected in zip(node.devices, account.of_node(panel), strict=True):
            found = {key: device.lost.get(key, 0.0) for key in KEYS}
            assert found == pytest.approx(expected, abs=100), device.name


def test_the_random_jobs_hold_every_cause() -> None:
    seen = dict.fromkeys(KEYS, 0)
    for seed in range(80):
        job = random_job(seed)
        work = Work.of(job)
        if work and work.gpu_us:
            nodes = spent_per_node(job, account_of_rules(job)[0], work)
            for device in (device for node in nodes for device in node.devices):
                for key in KEYS:
                    seen[key] += device.lost.get(key, 0.0) > 0
    assert min(seen.values()) >= 3, seen


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

    (node,) = spent_per_node(job, account_of_rules(job)[0], work)

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

    (node,) = spent_per_node(job, account_of_rules(job)[0], work)

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
