from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jobrules import (
    RULES,
    BatchSize,
    CPUBottleneck,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    MaxInitializationTime,
    OverallSystemUsage,
)
from jobrules.job import SECOND_US, Job, Metric
from jobrules.phases import course
from jobrules.result import RuleResult, Severity, Verdict
from jobrules.rule import Rule, run_rules
from jobrules.usage import time_use
from jobrules.verdict import judge, use_sentence
from tests.jobs import START_US, make_job, make_panel, make_steps

LOW_USE = "low-gpu-utilization"
QUICK: tuple[Rule, ...] = (
    LowGPUUtilization(window=4, patience=6),
    BatchSize(window=4, patience=6),
    MaxInitializationTime(threshold=2),
    OverallSystemUsage(),
    CPUBottleneck(patience=6),
    IOBottleneck(patience=6),
)


def verdict_of(job: Job) -> Verdict:
    return judge(job, QUICK, run_rules(QUICK, job, strict=True), course(job))


def test_low_use_and_a_small_batch_are_one_finding() -> None:
    verdict = verdict_of(make_job(cpu=[10.0] * 40, gpu=[20.0] * 40, memory=[20.0] * 40, interval_s=30))

    (finding,) = verdict.findings
    assert finding.rules == ("BatchSize", "LowGPUUtilization")
    assert finding.severity is Severity.CRITICAL
    assert (finding.share, finding.share_of) == (0.8, "of GPU time")
    assert "batch size" in finding.advice


@pytest.mark.parametrize("kind", ["cpu", "io_wait"])
def test_low_use_and_a_bottleneck_are_one_finding_with_the_bottlenecks_advice(kind: str) -> None:
    gpu, core = [1.0, 1.0, 95.0] * 20, [99.0, 99.0, 20.0] * 20
    given = {"cpu": [80.0] * 60, "io_wait": [1.0] * 60} | {kind: core}

    (finding,) = verdict_of(make_job(gpu=gpu, memory=[90.0] * 60, interval_s=30, **given)).findings  # type: ignore[arg-type]

    rule = CPUBottleneck if kind == "cpu" else IOBottleneck
    assert finding.rules == (rule.__name__, "LowGPUUtilization")
    assert finding.advice == rule.documentation().advice
    assert finding.title.startswith("In 66.7\u00a0% of the snapshots a GPU idled")
    assert "GPU use was fluctuating in 100.0\u00a0% of the windows judged" in finding.evidence
    assert "inferred from simultaneous samples" in finding.evidence
    assert finding.share_of == "of GPU time"


def test_a_bottleneck_of_one_node_does_not_explain_low_use_of_another() -> None:
    idle = make_job(gpu=[40.0] * 60, cpu=[10.0] * 60, memory=[90.0] * 60, interval_s=30)
    stuck = make_job(gpu=[0.0] * 80, cpu=[99.0] * 80, node="algo-2", interval_s=30)

    findings = verdict_of(make_job(extra=[*idle.panels, *stuck.panels])).findings

    (low,) = (finding for finding in findings if finding.devices == ("algo-1/gpu0",))
    assert low.rules == ("LowGPUUtilization",)


def test_samples_and_steps_that_share_no_moment_are_told() -> None:
    apart = verdict_of(
        make_job(gpu=[95.0] * 40, interval_s=30, steps=make_steps([(5000, 5001), (5002, 5003)]))
    )
    beside = verdict_of(make_job(gpu=[95.0] * 40, interval_s=30, steps=make_steps([(0, 1), (5002, 5003)])))

    key = "samples-and-events-apart"
    assert [key in {one.key for one in verdict.findings} for verdict in (apart, beside)] == [True, False]


def test_every_finding_of_a_rule_is_kept() -> None:
    class Twice(OverallSystemUsage):
        def check(self, job: Job) -> RuleResult:
            said = [self.finding(title, "", severity=Severity.CRITICAL) for title in ("first", "second")]
            return replace(self.triggered(said[0]), findings=tuple(said))

    job = make_job(gpu=[95.0] * 20, interval_s=30)
    rules = [Twice()]

    twice = [replace(result) for result in run_rules(rules, job, strict=True)]
    verdict = judge(job, [LowGPUUtilization()], twice, course(job))

    assert [finding.title for finding in verdict.findings] == ["first", "second"]


@pytest.mark.parametrize(
    ("idle_samples", "interval_s", "told"),
    [(4, 60, False), (5, 60, True), (5, 20, False), (6, 20, True), (19, 5, False), (21, 5, True)],
)
def test_an_idle_start_is_worth_a_line_from_a_twentieth_and_two_minutes_or_a_fifth_on(
    idle_samples: int, interval_s: int, told: bool
) -> None:
    gpu = [0.0] * idle_samples + [95.0] * (100 - idle_samples)

    keys = {finding.key for finding in verdict_of(make_job(gpu=gpu, interval_s=interval_s)).findings}

    assert ("late-first-work" in keys) == told


def test_a_bottleneck_of_a_part_of_the_time_does_not_explain_all_low_use() -> None:
    gpu = [1.0] * 16 + [50.0] * 15 + [30.0] * 29
    cpu = [99.0] * 31 + [20.0] * 29

    keys = {f.key for f in verdict_of(make_job(gpu=gpu, cpu=cpu, memory=[90.0] * 60, interval_s=30)).findings}

    assert keys == {"low-gpu-utilization", "cpu-bottleneck"}


def test_low_use_alone_keeps_its_own_advice() -> None:
    (finding,) = verdict_of(make_job(cpu=[90.0] * 40, gpu=[20.0] * 40, interval_s=30)).findings

    assert finding.rules == ("LowGPUUtilization",)
    assert finding.advice == LowGPUUtilization.documentation().advice


def test_a_job_whose_gpus_never_worked_is_told_once() -> None:
    verdict = verdict_of(make_job(cpu=[10.0] * 40, gpu=[[0.0, 0.0]] * 40, interval_s=30))

    (finding,) = verdict.findings
    assert finding.title == "2 of 2 GPUs never worked"
    assert set(finding.rules) == {"LowGPUUtilization", "BatchSize"}
    assert finding.share == 1.0


def test_one_unused_gpu_among_busy_ones_is_named() -> None:
    gpu = np.column_stack([np.full(40, 95.0), np.zeros(40)])

    titles = [f.title for f in verdict_of(make_job(gpu=gpu, interval_s=30)).findings]

    assert "1 of 2 GPUs never worked" in titles


def test_a_healthy_job_has_no_finding() -> None:
    verdict = verdict_of(make_job(cpu=[50.0] * 40, gpu=[95.0] * 40, memory=[80.0] * 40, interval_s=30))

    assert verdict.findings == ()
    assert [u.rule for u in verdict.unanswered] == ["MaxInitializationTime", "IOBottleneck"]
    assert verdict.rules == 5


def test_a_late_start_is_told_once_whether_steps_are_known_or_not() -> None:
    gpu = [0.0] * 12 + [95.0] * 28
    unknown = verdict_of(make_job(gpu=gpu, interval_s=30))
    known = verdict_of(make_job(gpu=gpu, interval_s=30, steps=make_steps([(360, 1170)])))

    assert [f.key for f in unknown.findings if f.section == "summary"] == ["late-first-work"]
    assert [f.key for f in known.findings if f.section == "summary"] == ["max-initialization-time"]


def test_findings_come_worst_first_and_largest_first() -> None:
    # A gap makes an info, low use a critical, the start a warning.
    times = [START_US + t * SECOND_US for t in [*range(0, 300, 5), *range(900, 1500, 5)]]
    gpu = make_panel(Metric.GPU_USE, [0.0] * 60 + [20.0] * 120, time_us=times)

    findings = verdict_of(make_job(extra=[gpu])).findings

    order = list(Severity)
    ranks = [order.index(f.severity) for f in findings]
    assert ranks == sorted(ranks)
    assert len(findings) == 3


def test_the_sentence_adds_up() -> None:
    use = time_use(make_job(gpu=[50.0] * 13, interval_s=300))

    assert use_sentence(use) == "50.0\u00a0% of GPU time was used; 0.50 of 1.00\u00a0GPU-hours were lost."


def test_nothing_sampled_gives_no_share() -> None:
    assert use_sentence(time_use(make_job())).startswith("Neither GPU nor CPU")


def test_every_rule_survives_an_empty_job_and_one_sample_and_is_documented() -> None:
    for job in (make_job(), make_job(gpu=[1.0]), make_job(cpu=[1.0]), make_job(gpu=[np.nan, 1.0])):
        run_rules([rule() for rule in RULES], job, strict=True)
    for rule in RULES:
        told = rule.documentation()
        assert all((rule.title, told.checks, told.why, told.advice))
        assert rule.__module__.rpartition(".")[2].replace("_", "") == rule.__name__.lower()


def test_a_rule_that_raises_costs_only_itself() -> None:
    class Broken(OverallSystemUsage):
        def check(self, job: Job) -> object:  # type: ignore[override]
            raise ZeroDivisionError("by hand")

    broken, whole = run_rules([Broken(), OverallSystemUsage()], make_job(cpu=[1.0]))

    assert (broken.status, broken.reason) == ("error", "ZeroDivisionError: by hand")
    assert whole.status == "passed"


def test_a_small_batch_seen_in_few_of_the_low_windows_is_a_finding_of_its_own() -> None:
    cpu = [90.0] * 32 + [10.0] * 8

    findings = verdict_of(make_job(cpu=cpu, gpu=[20.0] * 40, memory=[20.0] * 40, interval_s=30)).findings

    assert [f.key for f in findings] == ["low-gpu-utilization", "batch-size"]
    assert findings[0].advice == LowGPUUtilization.documentation().advice


def test_a_finding_counts_the_loss_of_its_own_gpus_only() -> None:
    gpu = np.column_stack([*[np.full(40, 80.0)] * 7, np.full(40, 20.0)])

    (finding,) = verdict_of(make_job(gpu=gpu, interval_s=30)).findings

    assert finding.devices == ("algo-1/gpu7",)
    assert finding.share == pytest.approx(0.8 / 8)
    assert finding.gpu_s == pytest.approx(0.8 * 39 * 30)


def test_an_unused_gpu_past_patience_is_told_once() -> None:
    gpu = np.column_stack([np.full(40, 95.0), np.zeros(40)])

    (finding,) = verdict_of(make_job(cpu=[10.0] * 40, gpu=gpu, interval_s=30)).findings

    assert finding.key == "gpu-never-used"
    assert finding.rules == ("LowGPUUtilization", "BatchSize")
    assert finding.gpu_s == pytest.approx(39 * 30, rel=0.01)


def test_gpu_time_that_only_the_gpu_sampler_missed_is_told() -> None:
    gpu = make_panel(Metric.GPU_USE, [95.0] * 100, interval_s=3)

    findings = verdict_of(make_job(cpu=[50.0] * 500, interval_s=3, extra=[gpu])).findings

    (finding,) = [f for f in findings if f.key == "not-measured"]
    assert finding.title == "80.0\u00a0% of GPU time was not measured"


def test_amounts_of_different_findings_do_not_overlap() -> None:
    # gpu0 never works; gpu1 begins after half of the job and then stands at 50 %.
    late = [0.0] * 60 + [50.0] * 61
    job = make_job(gpu=np.column_stack([np.zeros(121), late]), interval_s=30)

    verdict = verdict_of(job)

    assert verdict.use is not None
    lost = verdict.use.of("lost")[0]
    assert sum(f.gpu_s or 0 for f in verdict.findings) / 3600 == pytest.approx(lost, abs=0.02)


def test_a_small_batch_that_explains_little_has_the_amount_of_its_own_windows() -> None:
    cpu = [90.0] * 32 + [10.0] * 8

    low, small = verdict_of(make_job(cpu=cpu, gpu=[20.0] * 40, memory=[20.0] * 40, interval_s=30)).findings

    # Eight samples hold seven intervals: the job ends with the last one.
    assert small.gpu_s == pytest.approx(0.8 * 7 * 30, abs=4)
    assert (low.gpu_s or 0) + (small.gpu_s or 0) == pytest.approx(0.8 * 39 * 30, abs=4)


def test_low_use_that_a_late_start_does_not_explain_stands_alone() -> None:
    gpu = [0.0] * 60 + [50.0] * 60
    start, low = sorted(
        verdict_of(make_job(gpu=gpu, interval_s=30)).findings, key=lambda finding: finding.key == LOW_USE
    )

    assert (start.key, low.key) == ("late-first-work", LOW_USE)
    assert start.share == pytest.approx(0.504)
    assert low.share == pytest.approx(0.248)


def test_a_late_start_that_explains_low_use_keeps_its_severity() -> None:
    gpu = [0.0] * 12 + [99.0] * 88
    (start,) = verdict_of(make_job(gpu=gpu, interval_s=30)).findings

    assert start.rules == ("LowGPUUtilization",)
    assert start.severity is Severity.INFO
    assert "GPU use was" in start.evidence


def test_what_other_gpus_lost_is_no_part_of_low_use() -> None:
    gpu = np.column_stack([*[np.full(40, 80.0)] * 7, np.full(40, 20.0)])
    use = verdict_of(make_job(gpu=gpu, interval_s=30)).use
    assert use is not None

    told = {part.key: part.finding for part in use.parts if part.role == "lost"}
    assert told == {"partly": LOW_USE, "other-gpus": ""}


def test_a_cause_of_next_to_nothing_is_an_info() -> None:
    # In every third snapshot one GPU is 1.5 points below the other: other bins, no time.
    gpu = np.column_stack([np.full(200, 99.0), np.where(np.arange(200) % 3, 99.0, 97.5)])
    rules = (LoadBalancing(patience=10, threshold=0.1),)
    job = make_job(gpu=gpu, interval_s=30)
    results = run_rules(rules, job, strict=True)
    worse = [
        replace(r, findings=tuple(replace(f, severity=Severity.CRITICAL) for f in r.findings))
        for r in results
    ]

    (finding,) = judge(job, rules, worse, course(job)).findings

    assert finding.key == "load-balancing"
    assert (finding.share or 0) < 0.01
    assert finding.severity is Severity.INFO


def test_low_use_is_explained_only_by_what_was_seen_on_its_own_gpus() -> None:
    node_b = make_panel(Metric.GPU_USE, [[20.0] * 7] * 40, node="b", interval_s=30)

    findings = verdict_of(make_job(cpu=[10.0] * 40, gpu=[20.0] * 40, interval_s=30, extra=[node_b])).findings

    assert [f.rules for f in findings] == [("LowGPUUtilization",), ("BatchSize",)]


def test_an_idle_start_is_told_as_far_as_it_was_measured() -> None:
    times = [START_US + s * SECOND_US for s in [*range(3000, 3600, 30), *range(3600, 6001, 30)]]
    gpu = make_panel(Metric.GPU_USE, [0.0] * 20 + [95.0] * 81, time_us=times)

    findings = verdict_of(make_job(cpu=[50.0] * 201, interval_s=30, extra=[gpu])).findings

    (start,) = [f for f in findings if f.key == "late-first-work"]
    assert start.title == "No GPU worked in the first 1\u00a0h, of which 10\u00a0min 30\u00a0s were measured"
    assert start.severity is Severity.INFO
