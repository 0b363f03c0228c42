"""Lost GPU time by cause, against a plain account of every sample."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobrules.verdict.attribution import Ends, causes_of
from jobrules.verdict.device_time import spent_per_device

from jobrules import (
    BatchSize,
    CPUBottleneck,
    Dataloader,
    IdleGaps,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    MaxInitializationTime,
    StepOutlier,
)
from jobrules.measures.sample_weights import sample_weights
from jobrules.model import (
    SECOND_US,
    Events,
    EventSource,
    Job,
    JobInMemory,
    Lane,
    Loader,
    Metric,
    Panel,
    RuleResult,
    Status,
    Steps,
)
from jobrules.rule import Rule, run_rules
from jobrules.verdict.findings import judge
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import time_use
from tests.copies import replace
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, joined_steps, make_job, make_panel, make_steps

#: Rules that find something in nearly any job.
EAGER: tuple[Rule, ...] = (
    LowGPUUtilization(window=6, patience=6),
    IOBottleneck(patience=2, threshold=5),
    CPUBottleneck(patience=2, threshold=5),
    StepOutlier(n_outliers=1, stddev=1.0),
    LoadBalancing(patience=3, threshold=0.05),
    Dataloader(),
    BatchSize(window=6, patience=8, gpu_threshold_p95=80, cpu_threshold_p95=95, gpu_memory_threshold_p95=90),
    MaxInitializationTime(threshold=2),
    IdleGaps(patience=1),
)
INTERVAL_S = 20
KEYS = {
    "IOBottleneck": "io-bottleneck",
    "CPUBottleneck": "cpu-bottleneck",
    "StepOutlier": "step-outlier",
    "LoadBalancing": "load-balancing",
    "Dataloader": "dataloader",
    "BatchSize": "batch-size",
    "IdleGaps": "idle-gaps",
}

EDGES = ("gpu-never-used", "before-first-step", "idle-before", "idle-after")


def random_job(seed: int) -> Job:
    """Two nodes at most, of any faults, with samples that lack, steps and fetches."""
    rng = np.random.default_rng(seed)
    panels, steps, events = [], [], []
    n = int(rng.integers(20, 80))
    for node in ("a", "b")[: rng.integers(1, 3)]:
        gpus = int(rng.integers(1, 4))
        ticks = (
            np.sort(rng.choice(np.arange(n + 20), n, replace=False)) if rng.random() < 0.3 else np.arange(n)
        )
        time_us = START_US + ticks * INTERVAL_S * SECOND_US + rng.integers(0, 5) * SECOND_US
        gpu = rng.choice(
            [0.0, 2.0, 9.9, 10.0, 40.0, 70.0, 100.0], (n, gpus), p=[0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2]
        )
        gpu[: rng.integers(0, n // 2)] = 0
        gpu[n - rng.integers(0, n // 4) - 1 :] = 0
        if gpus > 1 and rng.random() < 0.3:
            gpu[:, rng.integers(0, gpus)] = 0
        if rng.random() < 0.4:
            gpu[rng.random(gpu.shape) < 0.2] = np.nan
            gpu[n // 2] = 40.0
        keep = ~np.isnan(gpu).all(axis=1)
        panel = make_panel(Metric.GPU_UTILIZATION, gpu, node=node, time_us=time_us)
        panels.append(replace(panel, values=gpu[keep], time_us=time_us[keep], snapshot=panel.snapshot[keep]))
        for metric in (Metric.CPU_UTILIZATION, Metric.IO_WAIT):
            if rng.random() < 0.85:
                cores = make_panel(
                    metric,
                    rng.choice([0.0, 30.0, 60.0, 95.0], (n, 4), p=[0.4, 0.4, 0.1, 0.1]),
                    node=node,
                    time_us=time_us,
                    prefix="cpu",
                )
                some = np.sort(rng.choice(n, n - rng.integers(0, 5), replace=False))
                panels.append(
                    replace(
                        cores,
                        values=cores.values[some],
                        time_us=time_us[some],
                        snapshot=cores.snapshot[some],
                    )
                )
        for worker in ("0", "1")[: rng.integers(0, 3)]:
            lasts = rng.choice([1.0, 1.1, 30.0], 120, p=[0.6, 0.35, 0.05])
            starts = rng.uniform(0, 200) + np.cumsum(lasts + rng.uniform(0, 5)) - lasts
            spans = list(zip(starts.tolist(), (starts + lasts).tolist(), strict=True))
            # Without numbers: nothing is said of the clocks.
            table = make_steps(spans, node=node, worker=worker)
            steps.append(replace(table, number=np.full(len(table), -1)))
            events.append(fetches(node, worker, starts, rng))
    return JobInMemory(
        name="job",
        panels=tuple(sorted(panels, key=lambda p: (p.node, p.metric))),
        steps=joined_steps(*steps) if steps else Steps(),
        events=Events.joined(events),
        finished=True,
    )


def fetches(node: str, worker: str, starts_s: np.ndarray, rng: np.random.Generator) -> Events:
    n = len(starts_s)
    start_us = START_US + np.round(starts_s * SECOND_US).astype(np.int64)
    zeros = np.zeros(n, np.int32)
    return Events(
        lanes=(Lane(node=node, rank=worker, event_type="DataLoaderIter", source=EventSource.PYTHON),),
        names=("_Multi::fetch",),
        lane=zeros,
        name=zeros,
        start_us=start_us,
        end_us=start_us + rng.integers(0, 8 * SECOND_US, n),
        step=np.full(n, -1, np.int64),
        pid=np.full(n, int(worker), np.int64),
        thread=np.full(n, -1, np.int64),
        loaders=(
            Loader(
                node=node,
                rank=worker,
                iterator="_Multi",
                start_us=START_US - 10 * SECOND_US,
                num_workers=int(rng.integers(1, 4)),
                pin_memory=True,
            ),
        ),
    )


def overlap(start: int, end: int, spans: list[tuple[int, int]]) -> int:
    """How much of [start, end) the union of some spans covers, walked edge by edge."""
    cuts = sorted({start, end, *(min(max(x, start), end) for span in spans for x in span)})
    return sum(b - a for a, b in itertools.pairwise(cuts) if any(s <= a and b <= e for s, e in spans))


class Account:
    """Every sample by itself, in plain Python."""

    def __init__(self, job: Job, rules: tuple[Rule, ...], results: tuple[RuleResult, ...]) -> None:
        self.job = job
        self.told = {
            type(rule).__name__: (rule, result)
            for rule, result in zip(rules, results, strict=True)
            if result.status is Status.TRIGGERED
        }
        gpu = job.panels_of(Metric.GPU_UTILIZATION)
        work = [
            int(t) for p in gpu for t, row in zip(p.time_us, p.values, strict=True) if any(v > 0 for v in row)
        ]
        self.first_us, self.last_us = (min(work), max(work)) if work else (0, 0)
        steps = job.steps
        self.step_us = int(min(steps.start_us)) if len(steps) and work else 0
        if self.step_us - self.first_us > 60 * SECOND_US:
            before = self.mean_use(self.first_us, self.step_us - 1)
            if before >= self.mean_use(self.step_us, int(max(steps.end_us))) / 2:
                self.step_us = 0
        self.worked = bool(work)
        self.slow = {p.node: self.slow_steps(p.node) for p in gpu}

    def mean_use(self, first_us: int, last_us: int) -> float:
        """Of all GPUs, over the samples of a time."""
        known = [
            value
            for panel in self.job.panels_of(Metric.GPU_UTILIZATION)
            for column in panel.values.T.tolist()
            for time_us, value in zip(panel.time_us.tolist(), column, strict=True)
            if first_us <= time_us <= last_us and value == value
        ]
        return sum(known) / len(known) if known else 0.0

    def slow_steps(self, node: str) -> list[tuple[int, int]]:
        found = []
        steps = self.job.steps
        if "StepOutlier" not in self.told:
            return []
        for worker in sorted(set(steps.rank.tolist())):
            rows = [i for i in range(len(steps)) if (steps.node[i], steps.rank[i]) == (node, worker)]
            lasts = [int(steps.end_us[i] - steps.start_us[i]) for i in rows]
            series = f"{node}/{worker} TRAIN"
            told = self.told["StepOutlier"][1].devices
            if not any(one.name == series and one.violating for one in told):
                continue
            mean = sum(lasts) / len(lasts)
            std = (sum((x - mean) ** 2 for x in lasts) / len(lasts)) ** 0.5
            found += [
                (int(steps.start_us[i]), int(steps.end_us[i]))
                for i, x in zip(rows, lasts, strict=True)
                if x > mean + std
            ]
        return found

    def of(self, panel: Panel, column: int) -> dict[str, float]:
        """Lost microseconds of one GPU by cause."""
        rows = [i for i in range(len(panel.time_us)) if not np.isnan(panel.values[i, column])]
        span = self.job.span_us
        weights = sample_weights(panel.time_us[rows], *span).weight_us.tolist()
        grid = sample_weights(panel.time_us, *span).weight_us.tolist()
        values = [float(panel.values[i, column]) for i in rows]
        batch, gaps = self.small_batch(panel, column, rows), self.gap_rows(panel)
        lost: dict[str, float] = {}
        for position, (row, weight, value) in enumerate(zip(rows, weights, values, strict=True)):
            left = weight * (1 - value / 100)
            # Of the steps it is the share of all that the sample lost.
            for key, most in (
                ("gpu-never-used", weight if max(values) == 0 else 0),
                ("before-first-step", weight * (value < 10 and panel.time_us[row] < self.step_us)),
                ("idle-before", weight if self.worked and panel.time_us[row] < self.first_us else 0),
                ("idle-after", weight if self.worked and panel.time_us[row] > self.last_us else 0),
                ("io-bottleneck", weight * self.stalled("IOBottleneck", panel, row, value)),
                ("cpu-bottleneck", weight * self.stalled("CPUBottleneck", panel, row, value)),
                ("step-outlier", left * self.in_slow_step(panel, row, grid[row])),
                ("load-balancing", weight * self.below(panel, column, row, value)),
                ("dataloader", self.fetching(panel, row, grid[row])),
                ("batch-size", weight if position in batch else 0),
                ("idle-gaps", weight if row in gaps else 0),
                ("idle" if value < 10 else "partly", weight),
            ):
                taken = min(left, most)
                lost[key] = lost.get(key, 0) + taken
                left -= taken
            assert left == pytest.approx(0)
        return lost

    def stalled(self, name: str, panel: Panel, row: int, value: float) -> bool:
        if name not in self.told or value >= 10:
            return False
        result = self.told[name][1]
        metric, limit = (Metric.IO_WAIT, 50) if name == "IOBottleneck" else (Metric.CPU_UTILIZATION, 90)
        cores = self.job.panel(panel.node, metric)
        if cores is None or f"{panel.node}/{panel.devices[0]}" not in result.findings[0].devices:
            return False
        return any(
            one == panel.snapshot[row] and max(values) > limit
            for one, values in zip(cores.snapshot.tolist(), cores.values.tolist(), strict=True)
        )

    def in_slow_step(self, panel: Panel, row: int, weight: float) -> float:
        spans = self.slow[panel.node]
        start = int(panel.time_us[row])
        return overlap(start, start + int(weight), spans) / max(weight, 1.0) if spans else 0.0

    def below(self, panel: Panel, column: int, row: int, value: float) -> float:
        if "LoadBalancing" not in self.told:
            return 0.0
        if f"{panel.node}/{panel.devices[column]}" not in self.told["LoadBalancing"][1].findings[0].devices:
            return 0.0
        told = self.told["LoadBalancing"][1].findings[0].devices
        first_us, end_us = self.job.loop_us(panel.node) or (0, 2**62)
        inside = [i for i, t in enumerate(panel.time_us.tolist()) if first_us <= t < end_us]
        if row not in inside:
            return 0.0
        means = []
        for device, own in zip(panel.devices, panel.values[inside].T.tolist(), strict=True):
            known = [v for v in own if v == v]
            named = f"{panel.node}/{device}" in told
            means.append(sum(known) / max(1, len(known)) if named else -1.0)
        busiest = float(panel.values[row, means.index(max(means))])
        return max(0.0, busiest - value) / 100 if busiest == busiest else 0.0

    def fetching(self, panel: Panel, row: int, weight: float) -> float:
        if "Dataloader" not in self.told:
            return 0.0
        block = self.told["Dataloader"][1].details["per_node"].get(panel.node)
        if not block or not block["violations"] or block["dataloaders"] >= 0.7 * block["cores"]:
            return 0.0
        events, start = self.job.events, int(panel.time_us[row])
        spans: dict[str, list[tuple[int, int]]] = {}
        for lane, a, b in zip(
            events.lane.tolist(), events.start_us.tolist(), events.end_us.tolist(), strict=True
        ):
            if events.lanes[lane].node == panel.node:
                spans.setdefault(events.lanes[lane].rank, []).append((a, b))
        return sum(overlap(start, start + int(weight), one) for one in spans.values()) / len(spans)

    def gap_rows(self, panel: Panel) -> set[int]:
        """Rows at which no GPU of the node works, two at least in a row, between its first and last work."""
        found = self.told.get("IdleGaps")
        if not found or f"{panel.node}/{panel.devices[0]}" not in found[1].findings[0].devices:
            return set()
        times, columns = panel.time_us.tolist(), panel.values.T.tolist()
        own = [[t for t, v in zip(times, column, strict=True) if v == v] for column in columns]
        apart = max(float(np.median(np.diff(one))) for one in own if len(one) > 1)
        if not np.isnan(panel.values).any():
            apart = int(apart)
        first_us = (self.job.loop_us(panel.node) or (0, 0))[0]
        last: dict[int, tuple[int, float]] = {}
        work = []
        for i, time_us in enumerate(times):
            for k, column in enumerate(columns):
                if column[i] == column[i]:
                    last[k] = (time_us, column[i])
            fresh = [v for t, v in last.values() if time_us - t <= max(60 * SECOND_US, 10 * apart)]
            if max(fresh) >= 10 and time_us >= first_us:
                work.append(i)
        return {
            row
            for a, b in itertools.pairwise(work)
            if b - a > 2 and times[b] - times[a] > 2.5 * apart
            for row in range(a + 1, b)
        }

    def small_batch(self, panel: Panel, column: int, rows: list[int]) -> set[int]:
        """Positions of samples in windows in violation, by the trailing six samples of each."""
        name = f"{panel.node}/{panel.devices[column]}"
        runs = self.told["BatchSize"][1].runs.get(name, ()) if "BatchSize" in self.told else ()
        cpu = self.job.panel(panel.node, Metric.CPU_UTILIZATION)
        if not runs or cpu is None:
            return set()
        minute = 60 * SECOND_US
        start_us = self.job.span_us[0] // minute * minute
        times = [int(panel.time_us[i]) for i in rows]
        known = cpu.time_us.tolist()

        def seen(series: list[int], window: int) -> int:
            return sum(t < start_us + window * minute for t in series)

        first = next(
            k
            for k in range(10_000)
            if seen(known, k + 1) > 8 and seen(times, k + 1) > 6
            if seen(known, k + 1) > seen(known, k) and seen(times, k + 1) > seen(times, k)
        )
        found: set[int] = set()
        for a, b in runs:
            for window in range(a, b + 1):
                begin_us, end = start_us + window * minute, seen(times, window + 1)
                if window == first:
                    # Six samples of each: what the youngest of the two sets begins with.
                    sixth = known[: seen(known, window + 1)][-6]
                    begin_us = min(begin_us, max(sixth, times[:end][-6]))
                found |= {i for i in range(end) if times[i] >= begin_us}
        return {i for i in found if panel.values[rows[i], column] >= 10}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_lost_moment_goes_to_the_cause_that_a_plain_account_finds(seed: int) -> None:
    job = random_job(seed)
    results = run_rules(EAGER, job, strict=True)
    account = Account(job, EAGER, results)

    judged, elsewhere = list(zip(EAGER, results, strict=True)), JobElsewhere(job)
    spent = spent_per_device(job, causes=causes_of(job, judged, Ends.of(job)))

    away = spent_per_device(elsewhere, causes=causes_of(elsewhere, judged, Ends.of(elsewhere)))
    assert away == spent
    found = iter(spent)
    for panel in job.panels_of(Metric.GPU_UTILIZATION):
        for column in range(len(panel.devices)):
            one, expected = next(found), account.of(panel, column)
            for key in {*expected, *one.lost}:
                assert one.lost.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), abs=100), key
            span = job.span_us
            assert one.total == pytest.approx(span[1] - span[0], abs=1)


def test_the_random_jobs_hold_every_cause() -> None:
    seen: dict[str, int] = {}
    for seed in range(60):
        job = random_job(seed)
        judged = list(zip(EAGER, run_rules(EAGER, job, strict=True), strict=True))
        for one in spent_per_device(job, causes=causes_of(job, judged, Ends.of(job))):
            for key, us in one.lost.items():
                seen[key] = seen.get(key, 0) + (us > 0)
    assert min(seen[key] for key in (*KEYS.values(), *EDGES)) >= 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_findings_and_parts_tell_the_same_and_add_up(seed: int) -> None:
    job = random_job(seed)
    verdict = judge(job, EAGER, run_rules(EAGER, job, strict=True), job_phases(job))
    use = verdict.use
    assert use is not None

    assert round(sum(part.hours for part in use.parts), use.digits) == use.hours
    assert round(sum(part.percent for part in use.parts), 1) == 100.0
    assert len({part.key for part in use.parts}) == len(use.parts)
    told = {finding.key: finding for finding in verdict.findings}
    linked: dict[str, float] = {}
    for part in use.parts:
        if part.finding:
            linked[part.finding] = linked.get(part.finding, 0.0) + part.hours
    for key, hours in linked.items():
        parts = sum(part.finding == key for part in use.parts)
        assert (told[key].gpu_s or 0) / 3600 == pytest.approx(hours, abs=1.1 * parts / 10**use.digits)
    lost = sum((f.gpu_s or 0) / 3600 for f in verdict.findings if f.key != "not-measured")
    assert lost <= use.of("lost")[0] + 1.1 * len(use.parts) / 10**use.digits


def test_hours_on_the_edge_of_rounding_add_up() -> None:
    # 2.665 hours: in binary a little less, so that it rounds up as a number and down as hundredths.
    use = time_use(make_job(gpu=[50.0] * 534, interval_s=18))
    assert use is not None

    assert (use.hours, round(sum(part.hours for part in use.parts), 2)) == (2.67, 2.67)


def test_io_comes_before_cpu_where_cores_show_both() -> None:
    gpu, wait = [1.0, 1.0, 95.0] * 20, [80.0, 1.0, 1.0] * 20
    job = make_job(gpu=gpu, cpu=[99.0] * 60, io_wait=wait, interval_s=30)
    rules = (CPUBottleneck(patience=6), IOBottleneck(patience=6, threshold=20))

    judged = list(zip(rules, run_rules(rules, job, strict=True), strict=True))
    (one,) = spent_per_device(job, causes=causes_of(job, judged, Ends.of(job)))

    assert one.lost["io-bottleneck"] == pytest.approx(one.lost["cpu-bottleneck"], rel=0.1)
    assert one.lost["idle"] == 0


def test_a_rule_that_did_not_trigger_claims_nothing() -> None:
    job = make_job(gpu=[1.0, 95.0] * 30, cpu=[99.0] * 60, interval_s=30)
    rules = (CPUBottleneck(patience=6, threshold=60),)

    judged = list(zip(rules, run_rules(rules, job, strict=True), strict=True))

    assert "cpu-bottleneck" not in {cause.key for cause in causes_of(job, judged, Ends.of(job))}


def test_a_day_of_eight_gpus_and_32_cores_takes_less_than_two_seconds() -> None:
    n, gpus = 172_800, tuple(f"algo-1/gpu{i}" for i in range(8))
    use = np.tile([[0.0] * 8, [5.0] * 8, [60.0, *[95.0] * 7]], (n // 3, 1))
    cores = np.tile([20.0, 95.0], (n, 16))
    starts = np.arange(0, 86_000, 0.5)
    lasts = np.where(np.arange(len(starts)) % 50 == 0, 0.49, 0.3)
    steps = make_steps(list(zip(starts.tolist(), (starts + lasts).tolist(), strict=True)))
    job = make_job(gpu=use, cpu=cores, io_wait=np.roll(cores, 1, axis=0), steps=steps)
    rules = (IOBottleneck(), CPUBottleneck(), StepOutlier(), LoadBalancing(), BatchSize())
    (outliers,) = run_rules(rules[2:3], job, strict=True)
    results = [
        outliers
        if isinstance(rule, StepOutlier)
        else rule.triggered(
            rule.finding("found", devices=gpus),
            runs={gpu: tuple((minute, minute) for minute in range(20, 1400, 3)) for gpu in gpus},
        )
        for rule in rules
    ]

    began = time.process_time()
    verdict = judge(job, rules, results, job_phases(job))
    took_s = time.process_time() - began

    assert verdict.use is not None
    assert {part.finding for part in verdict.use.parts} >= {"io-bottleneck", "step-outlier", "load-balancing"}
    assert took_s < 2
