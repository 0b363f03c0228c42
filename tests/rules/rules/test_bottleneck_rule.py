"""CPUBottleneck and IOBottleneck, which differ in what they look at on a core."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobrules.measures.sample_weights import pauses
from jobrules.measures.snapshots import Series, node_panels
from jobrules.model import SECOND_US, Job, Metric, Panel, Status
from jobrules.rule import run_rules
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.io_bottleneck import IOBottleneck
from tests.copies import replace
from tests.jobs import START_US, make_events, make_job, make_panel, make_steps

MINUTE_US = 60 * SECOND_US
Bottleneck = CPUBottleneck | IOBottleneck
KINDS: list[tuple[type[CPUBottleneck | IOBottleneck], Metric]] = [
    (CPUBottleneck, Metric.CPU_UTILIZATION),
    (IOBottleneck, Metric.IO_WAIT),
]

#: A GPU that idles beside a full core, and one that does not.
STUCK, FINE = (0.0, 95.0), (80.0, 95.0)


def job_of(*snapshots: tuple[float, float], node: str = "algo-1", **more: Any) -> Job:
    """One GPU and one core, a snapshot every 30 s."""
    gpu, cpu = zip(*snapshots, strict=True)
    return make_job(gpu=gpu, cpu=cpu, node=node, interval_s=30, **more)


def joined(*jobs: Job) -> Job:
    panels = sorted((p for job in jobs for p in job.panels), key=lambda p: (p.node, p.metric))
    return replace(jobs[0], panels=tuple(panels))


# The definition, sample by sample.


@dataclass
class Sample:
    time_us: int
    metric: Metric
    device: str
    value: float


@dataclass
class Snapshot:
    anchor_us: int
    first: dict[tuple[Metric, str], Sample] = field(default_factory=dict)

    def of(self, metric: Metric) -> list[Sample]:
        return [sample for (kind, _), sample in self.first.items() if kind is metric]

    @property
    def gpu_us(self) -> int:
        return min(sample.time_us for sample in self.of(Metric.GPU_UTILIZATION))


def snapshots(samples: list[Sample]) -> list[Snapshot]:
    found: list[Snapshot] = []
    for sample in sorted(samples, key=lambda one: one.time_us):
        if not found or sample.time_us - found[-1].anchor_us > 20_000:
            found.append(Snapshot(sample.time_us))
        found[-1].first.setdefault((sample.metric, sample.device), sample)
    return found


def reference(nodes: dict[str, list[Sample]], rule: Bottleneck, metric: Metric) -> dict[str, Any]:
    assert isinstance(rule.patience, int)
    limit = rule.cpu_threshold if isinstance(rule, CPUBottleneck) else rule.io_threshold
    every = [sample.time_us for samples in nodes.values() for sample in samples]
    seen: dict[str, list[int]] = {}
    lacking: dict[str, int] = {}
    hits: dict[str, list[int]] = {}
    told: dict[str, Any] = {"low": 0, "unsampled": 0, "bottlenecks": {}, "cores": {}}
    for node in sorted(nodes):
        kinds = {sample.metric for sample in nodes[node]}
        if not kinds >= {Metric.GPU_UTILIZATION, metric}:
            continue
        seen[node], hits[node], often = [], [], Counter[str]()
        lacking[node] = 0
        for one in snapshots(nodes[node]):
            if not one.of(Metric.GPU_UTILIZATION):
                continue
            seen[node].append(one.gpu_us)
            gpus = sum(sample.value < rule.gpu_threshold for sample in one.of(Metric.GPU_UTILIZATION))
            busy = [sample.device for sample in one.of(metric) if sample.value > limit]
            told["low"] += gpus > 0
            told["unsampled"] += not one.of(metric)
            lacking[node] += not one.of(metric)
            if gpus and busy:
                hits[node].append(one.gpu_us)
                often.update(busy)
                key = str(one.anchor_us / 1_000_000)
                row = told["bottlenecks"].setdefault(key, {"GPUs": 0, "CPUs": 0, "nodes": {}})
                row["nodes"][node] = {"GPUs": gpus, "CPUs": len(busy)}
                row["GPUs"] += gpus
                row["CPUs"] += len(busy)
        told["cores"][node] = {core: n / len(hits[node]) for core, n in often.items()}
    halved = {node for node in seen if lacking[node] > len(seen[node]) / 2}
    triggered = looks = 0
    over: set[str] = set()
    minute = min(every) // MINUTE_US * MINUTE_US
    while minute <= max(every):
        after = minute + MINUTE_US
        counts = {node: sum(t < after for t in times) for node, times in seen.items()}
        past = {node: n for node, n in counts.items() if n > rule.patience and node not in halved}
        if any(minute <= t < after for node in past for t in seen[node]):
            looks += 1
            bad = {node: sum(t < after for t in hits[node]) for node in past}
            if Fraction(100 * sum(bad.values()), sum(past.values())) > rule.threshold:
                triggered += 1
                over |= {node for node in past if Fraction(100 * bad[node], past[node]) > rule.threshold}
        minute = after
    judged = [node for node in seen if len(seen[node]) > rule.patience and node not in halved]
    return told | {
        "triggered": triggered,
        "violations": sum(len(times) for times in hits.values()),
        "datapoints": sum(len(times) for times in seen.values()),
        "evaluated": looks,
        "violating": triggered,
        "per_node": {node: (len(seen[node]), len(hits[node])) for node in seen},
        "judged": judged,
        "over": over,
    }


def as_job(nodes: dict[str, list[Sample]]) -> Job:
    panels: list[Panel] = []
    for node in sorted(nodes):
        of_device: defaultdict[tuple[Metric, str], list[Sample]] = defaultdict(list)
        for sample in sorted(nodes[node], key=lambda one: one.time_us):
            of_device[sample.metric, sample.device].append(sample)
        series = [
            Series(
                metric=metric,
                device=device,
                time_us=np.array([one.time_us for one in samples]),
                values=np.array([one.value for one in samples]),
            )
            for (metric, device), samples in of_device.items()
        ]
        panels += node_panels(node, series).panels
    return make_job(extra=panels)


@st.composite
def machines(draw: st.DrawFn, metric: Metric) -> dict[str, list[Sample]]:
    """Nodes that are read in turn: gaps, sensors late or twice or missing, the same moments."""
    devices = [
        (Metric.GPU_UTILIZATION, "gpu0"),
        (Metric.GPU_UTILIZATION, "gpu1"),
        (metric, "cpu0"),
        (metric, "cpu1"),
    ]
    devices.append((Metric.HOST_MEMORY, "memory"))
    value = st.sampled_from([None, 0.0, 5.0, 50.0, 55.0, 100.0])
    late_ms = st.sampled_from([0, 0, 0, 3, 19, 20, 21, 300])
    tick = st.tuples(
        st.sampled_from([500, 500, 20_000, 60_000, 700_000]),
        st.lists(st.tuples(value, late_ms), min_size=len(devices), max_size=len(devices)),
    )
    nodes: dict[str, list[Sample]] = {}
    for i in range(draw(st.integers(1, 3))):
        time_us = START_US
        for gap_ms, row in draw(st.lists(tick, min_size=1, max_size=16)):
            time_us += gap_ms * 1000
            for (kind, device), (sampled, late) in zip(devices, row, strict=True):
                if sampled is not None:
                    one = Sample(time_us + late * 1000, kind, device, sampled)
                    nodes.setdefault(f"algo-{i + 1}", []).append(one)
    return nodes


@pytest.mark.parametrize(("kind", "metric"), KINDS)
@given(data=st.data())
def test_counts_agree_with_the_definition(
    kind: type[Bottleneck], metric: Metric, data: st.DataObject
) -> None:
    nodes = data.draw(machines(metric).filter(bool))
    rule = kind(
        threshold=data.draw(st.sampled_from([0.0, 25.0, 50.0, 99.0])),
        gpu_threshold=data.draw(st.sampled_from([5.0, 10.0, 60.0])),
        patience=data.draw(st.integers(1, 12)),
    )
    core_threshold = data.draw(st.sampled_from([50.0, 90.0]))
    if isinstance(rule, CPUBottleneck):
        rule = replace(rule, cpu_threshold=core_threshold)
    else:
        rule = replace(rule, io_threshold=core_threshold)

    result = rule.check(as_job(nodes))

    wanted = reference(nodes, rule, metric)
    for figure in ("triggered", "violations", "datapoints", "evaluated", "violating"):
        assert getattr(result, figure) == (wanted[figure] if wanted["per_node"] else 0), figure
    status = Status.TRIGGERED if wanted["triggered"] else Status.PASSED
    assert result.status is (status if wanted["judged"] else Status.NOT_EVALUATED)
    answers = {one.name: one for one in result.devices}
    assert {name for name, one in answers.items() if one.status is Status.TRIGGERED} == wanted["over"]
    unjudged = {name for name, one in answers.items() if one.status is Status.NOT_EVALUATED}
    assert answers.keys() - unjudged == set(wanted["judged"])
    assert all(bool(str(one.reason or "")) == (name in unjudged) for name, one in answers.items())
    details = result.details
    if not wanted["per_node"]:
        assert details == {"low_gpu_utilization": 0, "bottlenecks": {}}
        return
    assert details["low_gpu_utilization"] == wanted["low"]
    more, bottlenecks = result.more, wanted["bottlenecks"]
    assert more["without_core_samples"] == wanted["unsampled"]
    assert more["bottlenecks"] == {time: one["nodes"] for time, one in bottlenecks.items()}
    counts = {time: {"GPUs": one["GPUs"], "CPUs": one["CPUs"]} for time, one in bottlenecks.items()}
    # Readers count the keys.
    if not wanted["triggered"]:
        assert details == {"low_gpu_utilization": wanted["low"], "bottlenecks": counts}
    assert details["bottlenecks"] == counts
    assert more["cores"] == wanted["cores"]
    per_node = {node: (one["datapoints"], one["bottlenecks"]) for node, one in more["per_node"].items()}
    assert per_node == wanted["per_node"]
    for table in (details, more):
        assert json.loads(json.dumps(table, allow_nan=False)) == table


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([30, 30, 700])), min_size=1, max_size=40),
    st.integers(1, 3),
)
def test_the_longest_runs_are_those_of_the_definition(rows: list[tuple[bool, int]], cores: int) -> None:
    """700 s between snapshots of 30 s are a pause, where they are rare."""
    rows = [(True, 30), *rows, (True, 30)]
    times = (START_US + np.cumsum([gap for _, gap in rows]) * SECOND_US).tolist()
    interval = 30 * SECOND_US
    assume(np.median(np.diff(times)) == interval)
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0 if stuck else 50.0 for stuck, _ in rows], time_us=times)
    cpu = make_panel(Metric.CPU_UTILIZATION, [[95.0] * cores] * len(rows), time_us=times, prefix="cpu")

    more = CPUBottleneck().check(make_job(extra=[gpu, cpu])).more

    paused = pauses(np.array(times)).tolist()
    runs: list[list[int]] = []
    for i, (stuck, _) in enumerate(rows):
        if stuck and i and rows[i - 1][0] and not paused[i - 1]:
            runs[-1].append(times[i])
        elif stuck:
            runs.append([times[i]])
    runs.sort(key=lambda run: (run[0] - run[-1], run[0]))
    assert more["longest"] == [
        {
            "node": "algo-1",
            "start_us": run[0],
            "end_us": run[-1] + interval,
            "snapshots": len(run),
            "most_cores": cores,
        }
        for run in runs[:10]
    ]


# The answer in words.


def test_a_result_says_how_much_and_when() -> None:
    job = job_of(*[FINE] * 5, *[(0.0, 20.0)] * 5, *[STUCK] * 20)

    result = CPUBottleneck(patience=4).check(job)

    assert result.headline == "A GPU was idle while a CPU core was saturated in 66.7% of snapshots"
    assert result.findings == ()
    assert (result.first_us, result.last_us) == (START_US + 300 * SECOND_US, START_US + 870 * SECOND_US)
    assert result.measure
    assert (result.measure.value, result.measure.limits, result.measure.scale) == (66.7, (50.0,), 100)


def test_a_share_that_fell_below_the_limit_is_given_with_its_highest() -> None:
    result = IOBottleneck(patience=4).check(
        make_job(gpu=[0.0] * 40, io_wait=[60.0] * 8 + [0.0] * 32, interval_s=30)
    )

    assert (result.status, result.triggered) == (Status.TRIGGERED, 5)
    assert "in 20.0%" in result.headline
    assert result.headline.endswith("above 50% in 5 of 18\u00a0checks, at most 100.0%")


# Several nodes.


def test_a_node_within_its_patience_is_counted_but_not_judged() -> None:
    long, short = job_of(*[FINE] * 8), job_of(*[STUCK] * 4, node="algo-2")

    result = CPUBottleneck(patience=6).check(joined(long, short))

    assert (result.status, result.violations, result.datapoints) == (Status.PASSED, 4, 12)
    assert (result.evaluated, result.violating) == (1, 0)
    assert [(one.name, one.status, str(one.reason or "")) for one in result.devices] == [
        ("algo-1", Status.PASSED, ""),
        ("algo-2", Status.NOT_EVALUATED, "7 samples needed, 4 recorded"),
    ]
    assert result.headline.endswith("; 1\u00a0node not evaluated: algo-2")


# What was not measured.


SHORT = "1,001 samples needed, 9 recorded"


@pytest.mark.parametrize(
    ("sampled", "cpu", "io"),
    [
        (
            {"cpu": [95.0] * 9, "io_wait": [95.0] * 9},
            "no GPU was sampled",
            "no GPU was sampled",
        ),
        ({"gpu": [0.0] * 9, "io_wait": [95.0] * 9}, "CPU utilization not recorded", SHORT),
        ({"gpu": [0.0] * 9, "cpu": [95.0] * 9}, SHORT, "I/O wait not recorded"),
        ({"gpu": [0.0] * 9, "cpu": [95.0] * 9, "io_wait": [0.0] * 9}, SHORT, SHORT),
    ],
)
def test_a_job_that_lacks_something_is_not_evaluated(sampled: dict[str, Any], cpu: str, io: str) -> None:
    results = run_rules([CPUBottleneck(), IOBottleneck()], make_job(**sampled), strict=True)

    assert [result.status for result in results] == [Status.NOT_EVALUATED] * 2
    assert [str(result.reason) for result in results] == [cpu, io]


def test_samples_on_different_nodes_say_nothing_of_each_other() -> None:
    cpu = make_panel(Metric.CPU_UTILIZATION, [95.0] * 9, node="algo-2", prefix="cpu")

    result = CPUBottleneck(patience=1).check(make_job(gpu=[0.0] * 9, extra=[cpu]))

    assert (result.status, str(result.reason)) == (
        Status.NOT_EVALUATED,
        "no node recorded both GPU and CPU",
    )
    assert [(one.name, str(one.reason or "")) for one in result.devices] == [
        ("algo-1", "CPU utilization not recorded"),
        ("algo-2", "GPU utilization not recorded"),
    ]
    assert result.datapoints == 0


def test_snapshots_without_a_core_sample_are_counted_and_told() -> None:
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0] * 10, interval_s=30)
    cpu = make_panel(Metric.CPU_UTILIZATION, [95.0] * 5, interval_s=60, prefix="cpu")
    cpu = replace(cpu, snapshot=cpu.snapshot * 2)

    result = CPUBottleneck(patience=4).check(make_job(extra=[gpu, cpu]))

    assert (result.status, result.violating, result.evaluated) == (Status.PASSED, 0, 3)
    assert result.more["without_core_samples"] == 5
    assert result.headline.endswith("; 5\u00a0snapshots without CPU utilization")


def test_a_node_whose_sensors_are_read_apart_is_not_judged() -> None:
    """GPU and core 30 ms apart share no snapshot, so nothing can be said of both at once."""
    panels = node_panels(
        "algo-1",
        [
            Series(
                metric=metric,
                device=device,
                time_us=START_US + late + 30_000_000 * np.arange(20),
                values=values,
            )
            for metric, device, late, values in (
                (Metric.GPU_UTILIZATION, "gpu0", 0, np.zeros(20)),
                (Metric.CPU_UTILIZATION, "cpu0", 30_000, np.full(20, 99.0)),
            )
        ],
    ).panels

    result = CPUBottleneck(patience=4).check(make_job(extra=panels))

    reason = "10 snapshots with both GPU and CPU needed, 0 recorded"
    assert (result.status, str(result.reason), result.datapoints) == (Status.NOT_EVALUATED, reason, 20)
    assert [str(one.reason or "") for one in result.devices] == [reason]


def test_a_time_of_patience_is_in_snapshots_of_each_node() -> None:
    """Two minutes are 4 snapshots of one node and 12 of the other."""
    slow = job_of(*[STUCK] * 5)
    fast = make_job(gpu=[0.0] * 12, node="algo-2", interval_s=10)
    seldom = make_panel(Metric.CPU_UTILIZATION, [95.0] * 2, node="algo-2", interval_s=60, prefix="cpu")
    fast = joined(fast, make_job(extra=[replace(seldom, snapshot=seldom.snapshot * 6)]))

    result = CPUBottleneck(patience=timedelta(minutes=2)).check(joined(slow, fast))

    assert [(one.name, str(one.reason or ""), one.evaluated) for one in result.devices] == [
        ("algo-1", "", 1),
        ("algo-2", "13 samples needed, 12 recorded", 0),
    ]
    # The fifth snapshot of the slow node lies in the third minute.
    assert result.triggered == 1


# What else the details tell.


def test_bottlenecks_in_the_training_loop_are_those_between_its_steps() -> None:
    job = job_of(*[STUCK] * 10)

    whole = CPUBottleneck().check(job)
    loop = CPUBottleneck().check(replace(job, steps=make_steps([(60, 65), (70, 150)])))

    assert "bottlenecks_in_training_loop" not in whole.more
    # At 60, 90 and 120 s; the loop ends before the snapshot at 150 s.
    assert loop.more["bottlenecks_in_training_loop"] == 3


EVENTS = make_events([("cpu_functions", "load", 20, 75), ("cpu_functions", "wait", 1000, 1001)])


def test_what_ran_during_the_bottlenecks_is_told_once_triggered() -> None:
    """``load`` lasts 55 s; two snapshots of 30 s, from 30 s and from 60 s on, are bottlenecks."""
    rows = [FINE, STUCK, STUCK, FINE]

    triggered = CPUBottleneck(patience=2, threshold=40).check(job_of(*rows, events=EVENTS))
    passed = CPUBottleneck(patience=2).check(job_of(*rows, events=EVENTS))
    no_events = CPUBottleneck(patience=2, threshold=40).check(job_of(*rows))

    assert triggered.details["CPU_total"] == {"load": 45 * SECOND_US}
    assert triggered.status is no_events.status is Status.TRIGGERED
    assert passed.status is Status.PASSED
    assert not {"ratio", "phase", "phase_time"} & passed.details.keys()
    assert [no_events.details[key] for key in ("ratio", "phase", "phase_time")] == [{}, {}, {}]
    assert "CPU_total" not in no_events.details
    own = {"low_gpu_utilization", "bottlenecks", "ratio", "phase", "phase_time"}
    assert triggered.details.keys() == own | {"CPU", "CPU_total"}
    assert triggered.more["CPU_self_total"] == {"load": 45 * SECOND_US}


def test_lives_of_loader_processes_are_among_what_ran() -> None:
    events = make_events([("DataLoaderWorker", "w", 0, 75), ("DataLoaderIter", "next", 40, 55)])

    result = CPUBottleneck(patience=2, threshold=40).check(job_of(FINE, STUCK, STUCK, FINE, events=events))

    assert result.details["general"] == {"DataLoaderWorker": 75.0, "DataLoaderIter": 25.0}
    assert "DataLoaderIter" in result.more["general_time"]
