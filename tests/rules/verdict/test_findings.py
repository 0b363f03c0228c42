from __future__ import annotations

import numpy as np
import pytest

from jobrules import (
    RULES,
    BatchSize,
    CPUBottleneck,
    Dataloader,
    GPUMemoryIncrease,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    MaxInitializationTime,
    OverallSystemUsage,
    PowerCap,
    SlowClock,
    StepOutlier,
    ThermalThrottling,
    UnusedGPU,
)
from jobrules.model import (
    SECOND_US,
    Finding,
    Job,
    Metric,
    Reason,
    ReasonKind,
    RuleResult,
    Severity,
    Status,
    in_words,
)
from jobrules.rule import NO_STEPS, Rule, not_recorded, reason_few_samples, reason_short, run_rules
from jobrules.verdict.findings import Verdict, judge
from jobrules.verdict.not_evaluated import NotEvaluated, by_reason, how_many
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import lost_sentence, time_use, used_sentence
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps

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
    return judge(job, QUICK, run_rules(QUICK, job, strict=True), job_phases(job))


def test_low_use_and_a_small_batch_are_one_finding() -> None:
    verdict = verdict_of(make_job(cpu=[10.0] * 40, gpu=[20.0] * 40, memory=[20.0] * 40, interval_s=30))

    (finding,) = verdict.findings
    assert finding.rules == ("BatchSize", "LowGPUUtilization")
    assert finding.severity is Severity.CRITICAL
    # Judged from the fourth minute on, by the last four samples: 36 of 40, which hold 35 of 39 intervals.
    assert (finding.share, finding.share_of) == (round(0.8 * 35 / 39, 3), "of GPU time")
    assert finding.gpu_s == pytest.approx(0.8 * 35 * 30, abs=0.2)
    assert "batch size" in " ".join(finding.advice)


@pytest.mark.parametrize("kind", ["cpu", "io_wait"])
def test_low_use_and_a_bottleneck_are_one_finding_with_the_bottlenecks_advice(kind: str) -> None:
    gpu, core = [1.0, 1.0, 95.0] * 20, [99.0, 99.0, 20.0] * 20
    given = {"cpu": [80.0] * 60, "io_wait": [1.0] * 60} | {kind: core}

    (finding,) = verdict_of(make_job(gpu=gpu, memory=[90.0] * 60, interval_s=30, **given)).findings  # type: ignore[arg-type]

    rule = CPUBottleneck if kind == "cpu" else IOBottleneck
    assert finding.rules == (rule.__name__, "LowGPUUtilization")
    assert " ".join(finding.advice) == " ".join(rule.documentation().advice)
    assert finding.title.endswith("in 66.7% of snapshots")
    assert "Also seen as: fluctuating utilization in " in in_words(finding.evidence)
    assert in_words(finding.evidence).count("UTC") == 1
    assert in_words(finding.evidence).endswith("Inferred from simultaneous samples.")
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

    key = "disjoint-times"
    assert [key in {one.key for one in verdict.findings} for verdict in (apart, beside)] == [True, False]


def test_every_finding_of_a_rule_is_kept() -> None:
    class Twice(OverallSystemUsage):
        def check(self, job: Job) -> RuleResult:
            said = [self.finding(title, severity=Severity.CRITICAL) for title in ("first", "second")]
            return replace(self.triggered(said[0]), findings=tuple(said))

    job = make_job(gpu=[95.0] * 20, interval_s=30)
    rules = [Twice()]

    twice = [replace(result) for result in run_rules(rules, job, strict=True)]
    verdict = judge(job, [LowGPUUtilization()], twice, job_phases(job))

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
    assert " ".join(finding.advice) == " ".join(LowGPUUtilization.documentation().advice)


def test_a_job_whose_gpus_never_worked_is_told_once() -> None:
    verdict = verdict_of(make_job(cpu=[10.0] * 40, gpu=[[0.0, 0.0]] * 40, interval_s=30))

    (finding,) = verdict.findings
    assert finding.title == "2 of 2\u00a0GPUs were never used (no sample above 0%)"
    assert set(finding.rules) == {"LowGPUUtilization", "BatchSize"}
    assert finding.share == 1.0


def test_one_unused_gpu_among_busy_ones_is_named() -> None:
    gpu = np.column_stack([np.full(40, 95.0), np.zeros(40)])

    titles = [f.title for f in verdict_of(make_job(gpu=gpu, interval_s=30)).findings]

    assert any(title.startswith("1 of 2\u00a0GPUs was never used") for title in titles)


def test_a_healthy_job_has_no_finding() -> None:
    verdict = verdict_of(make_job(cpu=[50.0] * 40, gpu=[95.0] * 40, memory=[80.0] * 40, interval_s=30))

    assert verdict.findings == ()
    assert [u.rule for u in verdict.not_evaluated] == ["MaxInitializationTime", "IOBottleneck"]
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
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0] * 60 + [20.0] * 120, time_us=times)

    findings = verdict_of(make_job(extra=[gpu])).findings

    order = list(Severity)
    ranks = [order.index(f.severity) for f in findings]
    assert ranks == sorted(ranks)
    assert len(findings) == 3


def test_the_headline_adds_up_and_names_the_largest_cause() -> None:
    plain = time_use(make_job(gpu=[50.0] * 13, interval_s=300))
    gpu, cpu = [1.0, 1.0, 95.0] * 20, [99.0, 99.0, 20.0] * 20
    caused = verdict_of(make_job(gpu=gpu, cpu=cpu, memory=[90.0] * 60, interval_s=30)).use
    assert plain
    assert caused

    assert (used_sentence(plain), lost_sentence(plain)) == (
        "50.0% of GPU time was used",
        "0.50 of 1.00\u00a0GPU-hours were lost",
    )
    assert lost_sentence(caused).endswith("0.330 of them while the CPU was saturated")


def test_every_rule_survives_an_empty_job_and_one_sample_and_is_documented() -> None:
    for job in (make_job(), make_job(gpu=[1.0]), make_job(cpu=[1.0]), make_job(gpu=[np.nan, 1.0])):
        run_rules([rule() for rule in RULES], job, strict=True)
    for rule in RULES:
        told = rule.documentation()
        explained = " ".join((told.checks, told.why, *told.advice))
        assert all((rule.title, told.checks, told.why, told.advice))
        assert len(explained.split()) <= 60
        assert rule.__module__.rpartition(".")[2].replace("_", "") == rule.__name__.lower()


def test_a_rule_that_raises_costs_only_itself() -> None:
    class Broken(OverallSystemUsage):
        def check(self, job: Job) -> object:  # type: ignore[override]
            raise ZeroDivisionError("by hand")

    broken, whole = run_rules([Broken(), OverallSystemUsage()], make_job(cpu=[1.0]))

    assert (broken.status, str(broken.reason)) == ("error", "ZeroDivisionError: by hand")
    assert whole.status == "passed"


def test_a_small_batch_seen_in_few_of_the_low_windows_is_a_finding_of_its_own() -> None:
    cpu = [90.0] * 32 + [10.0] * 8

    findings = verdict_of(make_job(cpu=cpu, gpu=[20.0] * 40, memory=[20.0] * 40, interval_s=30)).findings

    assert [f.key for f in findings] == ["low-gpu-utilization", "batch-size"]
    assert " ".join(findings[0].advice) == " ".join(LowGPUUtilization.documentation().advice)


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
    gpu = make_panel(Metric.GPU_UTILIZATION, [95.0] * 100, interval_s=3)

    findings = verdict_of(make_job(cpu=[50.0] * 500, interval_s=3, extra=[gpu])).findings

    (finding,) = [f for f in findings if f.key == "not-measured"]
    assert finding.title == "80.0% of GPU time was not measured"


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

    # The last three minutes are in violation; their six samples hold five intervals.
    assert small.gpu_s == pytest.approx(0.8 * 5 * 30, abs=0.2)
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
    assert "Also seen as: " in in_words(start.evidence)


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

    (finding,) = judge(job, rules, worse, job_phases(job)).findings

    assert finding.key == "load-balancing"
    assert (finding.share or 0) < 0.01
    assert finding.severity is Severity.INFO


def test_low_use_is_explained_only_by_what_was_seen_on_its_own_gpus() -> None:
    node_b = make_panel(Metric.GPU_UTILIZATION, [[20.0] * 7] * 40, node="b", interval_s=30)

    findings = verdict_of(make_job(cpu=[10.0] * 40, gpu=[20.0] * 40, interval_s=30, extra=[node_b])).findings

    assert [f.rules for f in findings] == [("LowGPUUtilization",), ("BatchSize",)]


def test_an_idle_start_is_told_as_far_as_it_was_measured() -> None:
    times = [START_US + s * SECOND_US for s in [*range(3000, 3600, 30), *range(3600, 6001, 30)]]
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0] * 20 + [95.0] * 81, time_us=times)

    findings = verdict_of(make_job(cpu=[50.0] * 201, interval_s=30, extra=[gpu])).findings

    (start,) = [f for f in findings if f.key == "late-first-work"]
    assert (
        start.title == "No GPU was used in the first 1\u00a0h, of which 10\u00a0min 30\u00a0s were measured"
    )
    assert start.severity is Severity.INFO


# Amounts that the words of a finding allow to work out by hand.


def judged_by(job: Job, *rules: Rule) -> Verdict:
    return judge(job, rules, run_rules(rules, job, strict=True), job_phases(job))


def told(verdict: Verdict, key: str) -> Finding:
    (finding,) = [finding for finding in verdict.findings if finding.key == key]
    return finding


def lost_s(verdict: Verdict, key: str) -> float:
    """Device-seconds of a part; 0 without it."""
    assert verdict.use is not None
    return sum(part.hours for part in verdict.use.parts if part.key == key) * 3600


def test_imbalance_counts_the_training_loop_and_the_gpus_told() -> None:
    # Ten minutes before the loop gpu2 is busiest; in the ten minutes of the loop gpu1 is, 30 points above
    # gpu2. gpu0 is busier all the time, and the finding is not about it.
    use = np.array([[99.0, 50.0, 95.0]] * 60 + [[99.0, 90.0, 60.0]] * 60)
    steps = make_steps([(600 + i, 601 + i) for i in range(595)])
    job, rule = make_job(gpu=use, interval_s=10, steps=steps), LoadBalancing(patience=10)
    (result,) = run_rules([rule], job, strict=True)
    devices = ("algo-1/gpu1", "algo-1/gpu2")
    result = replace(result, findings=tuple(replace(f, devices=devices) for f in result.findings))

    finding = told(judge(job, [rule], [result], job_phases(job)), "load-balancing")

    # 60 samples of ten seconds in the loop; the job ends 5 s after the last one, at the end of the last step.
    assert finding.gpu_s == pytest.approx(0.3 * 595, abs=0.2)
    assert "the difference to the busiest GPU of the node" in in_words(finding.evidence)


def test_idle_time_before_the_first_step_is_one_finding_about_the_start() -> None:
    # Idle for 25 minutes but for two of warming up at 40 %, first step at 25 min, at work 30 s later.
    use = [0.0] * 20 + [40.0] * 4 + [0.0] * 27 + [95.0] * 49
    verdict = judged_by(make_job(gpu=use, interval_s=30, steps=make_steps([(1500, 2970)])))

    finding = told(verdict, "late-first-work")
    assert finding.title == (
        "GPUs were idle for 23\u00a0min before the first step, which started after 25\u00a0min"
    )
    assert in_words(finding.evidence).endswith("First GPU work after: 10\u00a0min.")
    # The 46 idle samples before the step; the one after it comes after some work.
    assert finding.gpu_s == pytest.approx(46 * 30, abs=0.1)
    assert finding.severity is Severity.WARNING
    assert lost_s(verdict, "idle") == pytest.approx(30, rel=0.05)


def test_what_comes_between_first_step_and_first_work_is_named_by_itself() -> None:
    use = [0.0] * 60 + [95.0] * 40
    job = make_job(gpu=use, interval_s=30, steps=make_steps([(1500, 2970)]))
    verdict = judged_by(job, MaxInitializationTime(threshold=2))

    parts = {part.key: (part.finding, part.percent) for part in verdict.use.parts} if verdict.use else {}
    # 1 500 s until the first step, 300 s until the first work, of 2 970 s.
    assert parts["before-first-step"] == ("max-initialization-time", 50.5)
    assert parts["idle-before"] == ("max-initialization-time", 10.1)
    assert told(verdict, "max-initialization-time").gpu_s == 1800.0


def test_a_profiler_that_starts_late_makes_no_slow_start() -> None:
    # Idle for ten minutes, then at half use; the first step is recorded half an hour later.
    use = [0.0] * 20 + [50.0, 45.0, 3.0] * 60
    job = make_job(gpu=use, interval_s=30, steps=make_steps([(2400, 5900)]))
    verdict = judged_by(job, LowGPUUtilization(window=6, patience=8), MaxInitializationTime(threshold=20))

    late = told(verdict, "max-initialization-time")
    assert (late.gpu_s, late.share_of, late.severity) == (None, "of the job", Severity.INFO)
    assert "steps may have been recorded late" in in_words(late.evidence)
    assert told(verdict, "late-first-work").gpu_s == pytest.approx(600)
    assert verdict.main == LOW_USE
    assert not verdict.has_cause


def test_low_use_joins_the_second_cause_beside_a_longer_start() -> None:
    use = [0.0] * 46 + [20.0] * 54
    job = make_job(cpu=[10.0] * 100, gpu=use, memory=[20.0] * 100, interval_s=30)

    verdict = verdict_of(job)

    start, small = told(verdict, "late-first-work"), told(verdict, "batch-size")
    assert (start.gpu_s or 0) > (small.gpu_s or 0) > 0.4 * 99 * 30
    assert start.rules == ()
    assert small.rules == ("BatchSize", "LowGPUUtilization")


def test_a_clock_that_is_ahead_costs_no_time() -> None:
    use = [0.0] * 30 + [80.0] * 90 + [0.0] * 10
    spans = [(200.0 + i, 200.6 + i) for i in range(600)]

    def nodes(samples_s: int, steps_s: int) -> Verdict:
        late = START_US + samples_s * SECOND_US
        starts = {"a": START_US, "b": late, "c": START_US}
        panels = [
            make_panel(Metric.GPU_UTILIZATION, use, node=node, interval_s=10, start_us=start_us)
            for node, start_us in starts.items()
        ]
        later = make_steps(spans, node="b", start_us=START_US + steps_s * SECOND_US)
        steps = joined_steps(*(make_steps(spans, node=node) for node in "ac"), later)
        return judged_by(make_job(extra=panels, steps=steps))

    same, ahead, behind, apart = nodes(0, 0), nodes(90, 90), nodes(-400, -400), nodes(0, 90)

    for verdict in (ahead, behind):
        assert verdict.use == same.use
        assert [f.key for f in verdict.findings] == ["late-first-work", "clocks-differ"]
        assert verdict.findings[0].title == same.findings[0].title
    # Of processes that are apart the samples say that the clocks are not.
    assert [f.key for f in apart.findings] == ["late-first-work", "clocks-differ"]
    assert apart.use is not None
    assert apart.use.of("unknown") == (0.0, 0.0)


def test_a_job_with_one_clock_ahead_still_has_its_pause() -> None:
    times = START_US + 10 * SECOND_US * np.array([*range(60), *range(120, 180)])
    steps = make_steps([(10.0 + i, 10.6 + i) for i in range(20)], node="a")
    later = make_steps([(100.0 + i, 100.6 + i) for i in range(20)], node="b")
    panels = [
        make_panel(Metric.GPU_UTILIZATION, [80.0] * 180, node="a", interval_s=10),
        make_panel(Metric.GPU_UTILIZATION, [80.0] * 120, node="b", time_us=times + 90 * SECOND_US),
    ]
    pause = told(judged_by(make_job(extra=panels, steps=joined_steps(steps, later))), "not-measured")

    # Ten minutes and a half without a sample, of which ten seconds belong to the sample before.
    assert pause.title == "10\u00a0min 10\u00a0s were not measured"
    assert pause.gpu_s == pytest.approx(600)


def test_outliers_of_a_series_in_the_finding_alone_are_counted() -> None:
    def spans(outliers: int) -> list[tuple[float, float]]:
        return [(10.0 * i, 10.0 * i + (9 if i % 10 == 5 and i < 10 * outliers else 1)) for i in range(150)]

    steps = joined_steps(make_steps(spans(12), node="a"), make_steps(spans(4), node="b"))
    panels = [make_panel(Metric.GPU_UTILIZATION, [50.0] * 1501, node=node, interval_s=1) for node in "ab"]

    finding = told(judged_by(make_job(extra=panels, steps=steps), StepOutlier(n_outliers=5)), "step-outlier")

    assert "b rank" not in in_words(finding.evidence)
    # Twelve steps of nine seconds at half use, and none of the four on the other node.
    assert finding.gpu_s == pytest.approx(12 * 9 / 2)


def test_the_first_window_reaches_no_further_back_than_what_it_was_judged_by() -> None:
    # Memory sampled twice as often: its last four samples are of the last minute alone.
    memory = make_panel(Metric.GPU_MEMORY_ACTIVITY, [20.0] * 80, interval_s=15)
    memory = replace(memory, snapshot=np.arange(80) + 1000)
    job = make_job(cpu=[10.0] * 40, gpu=[20.0] * 40, interval_s=30, extra=[memory])

    finding = told(judged_by(job, BatchSize(window=4, patience=6)), "batch-size")

    # Judged from the fourth minute on: 34 samples, the last one for the 15 s until the last memory sample.
    assert finding.gpu_s == pytest.approx(0.8 * (33 * 30 + 15))


def test_a_small_batch_is_not_why_a_gpu_stands_still() -> None:
    # Three samples at 0 and one at 30 in two minutes.
    job = make_job(cpu=[10.0] * 80, gpu=[0.0, 0.0, 0.0, 30.0] * 20, memory=[20.0] * 80, interval_s=30)
    verdict = verdict_of(job)

    # Of samples 4 to 79, 19 are at work; the last one ends the job.
    assert told(verdict, "batch-size").gpu_s == pytest.approx(0.7 * 18 * 30, abs=0.2)
    low = told(verdict, LOW_USE)
    assert verdict.main == LOW_USE
    assert " ".join(low.advice).startswith("Find what the GPU waits for")


def test_fetches_recorded_at_both_ends_of_a_job_are_a_part_of_it() -> None:
    fetched = [("DataLoaderIter", "_Multi::fetch", t, t + 0.5) for t in (*range(100), *range(3000, 3100))]
    loading = [("DataLoaderWorker", "worker", t, t + 100.0) for t in (0.0, 3000.0)]
    cores = make_panel(Metric.CPU_UTILIZATION, [[50.0] * 8] * 361, interval_s=10, prefix="cpu")
    job = make_job(gpu=[80.0] * 361, interval_s=10, events=make_events(fetched + loading), extra=[cores])

    finding = told(judged_by(job, Dataloader()), "dataloader")

    # Twice from 0 to 99.5 s.
    assert "recorded for 3\u00a0min 19\u00a0s" in in_words(finding.evidence)
    # Each fetch lasts half a second; a snapshot of ten seconds loses two, less than five of fetching.
    assert finding.gpu_s == pytest.approx(20 * 2, abs=0.1)
    # Less than a hundredth, but of what was recorded it is not.
    assert (finding.share or 0) < 0.012
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(("full", "said"), [(8, True), (3, False)])
def test_low_use_tells_what_stayed_just_below_a_limit(full: int, said: bool) -> None:
    # Of every 24 snapshots in 8 (33.3 %) or 3 (12.5 %) the GPU idles beside a full core.
    use, core = [50.0] * (24 - full) + [2.0] * full, [20.0] * (24 - full) + [99.0] * full
    low = told(verdict_of(make_job(gpu=use * 4, cpu=core * 4, memory=[90.0] * 96, interval_s=30)), LOW_USE)

    near = "A GPU was idle while a CPU core was saturated in 33.3% of snapshots (threshold 50%)."
    assert (near in in_words(low.evidence)) == said
    assert ("saturated" in in_words(low.evidence)) == said


def test_a_gpu_that_never_worked_keeps_the_finding_on_its_memory() -> None:
    grown = make_job(gpu=[0.0] * 40, memory=np.repeat([4.0, 40.0], 20), interval_s=30)
    held = judged_by(grown, LowGPUUtilization(window=4, patience=6), GPUMemoryIncrease(patience=4, window=4))

    assert {f.key for f in held.findings} == {"gpu-never-used", "gpu-memory-increase"}
    # How long memory was read or written does not tell what it holds.
    assert " ".join(told(held, "gpu-never-used").advice).startswith("Check that the framework sees the GPU")


@pytest.mark.parametrize(
    ("held_gib", "placed", "evidence"),
    [
        ((40, 40), True, " Memory was in use on both GPUs."),
        ((40, 3), False, " Memory was in use on 1 of 2\u00a0GPUs."),
        ((4, 3), False, ""),
    ],
)
def test_memory_in_use_shows_that_the_framework_sees_a_gpu_that_never_worked(
    held_gib: tuple[int, int], placed: bool, evidence: str
) -> None:
    used = make_panel(Metric.GPU_MEMORY_USED, [[gib * 2.0**30 for gib in held_gib]] * 40, interval_s=30)
    total = make_panel(Metric.GPU_MEMORY_TOTAL, [[80 * 2.0**30] * 2] * 40, interval_s=30)
    job = make_job(gpu=[[0.0, 0.0]] * 40, memory=[[0.0, 0.0]] * 40, interval_s=30, extra=[used, total])

    finding = told(judged_by(job), "gpu-never-used")

    assert " ".join(finding.advice).startswith(
        "Start one process per GPU" if placed else "Check that the framework sees"
    )
    assert in_words(finding.evidence) == f"algo-1 gpu0 and algo-1 gpu1.{evidence}"


def test_a_job_that_spans_no_time_has_no_amounts() -> None:
    verdict = verdict_of(make_job(gpu=[50.0], steps=make_steps([(0, 0)])))

    assert verdict.use is None
    assert verdict.findings == ()


def test_amounts_are_exact_and_rank_causes_that_print_alike() -> None:
    # In a day of 16 GPUs hours are printed to 0 or 1 digits; the finding tells seconds.
    use = np.full((2880, 16), 95.0)
    use[:, 15] = 0.0
    verdict = judged_by(make_job(gpu=use, interval_s=30))

    assert told(verdict, "gpu-never-used").gpu_s == 2879 * 30
    assert verdict.use is not None
    assert lost_s(verdict, "gpu-never-used") != 2879 * 30


def test_a_cause_that_claims_nothing_has_no_share_of_gpu_time() -> None:
    # All that the GPUs differ in happens where they are both told to be unused.
    rule = LoadBalancing()
    job = make_job(gpu=[[95.0, 95.0]] * 40, interval_s=30)
    finding = rule.finding("found", devices=("algo-1/gpu0",), share=0.3, share_of="of GPU time")

    (left,) = judge(job, [rule], [rule.triggered(finding)], job_phases(job)).findings

    assert (left.share, left.share_of, left.gpu_s, left.severity) == (None, "", None, Severity.INFO)


def test_every_rule_that_was_not_evaluated_is_named_by_what_it_lacks() -> None:
    reasons = {
        "A": NO_STEPS,
        "B": reason_few_samples(892, 1000),
        "C": Reason(kind=ReasonKind.ERROR, what="ValueError: odd"),
        "D": reason_few_samples(892, 1000),
        "E": Reason(kind=ReasonKind.NO_DEVICE, what="node has a second GPU"),
        "F": not_recorded(Metric.GPU_POWER),
        "G": reason_short(899_900_000, 15),
        "H": replace(not_recorded(Metric.GPU_UTILIZATION), needed=8, have=5),
    }
    missing = [NotEvaluated(rule=r, status=Status.NOT_EVALUATED, reason=why) for r, why in reasons.items()]

    assert [str(group).replace("\u00a0", " ") for group in by_reason(missing)] == [
        "Failed: C (ValueError: odd).",
        "Not recorded: steps (A), GPU power (F), GPU utilization for 3 of 8 GPUs (H).",
        "Too short: B, D need 1,001 samples, this job has 892; "
        "G needs 15 min of samples, this job has 14 min 59 s.",
        "Nothing to check: no node has a second GPU (E).",
    ]
    assert by_reason(missing)[2].brief == "Too short: B, D, G."
    assert reasons["A"].sentence("A") == "Steps were not recorded"
    assert (
        reasons["H"].sentence("H").replace("\u00a0", " ")
        == "GPU utilization was not recorded for 3 of 8 GPUs"
    )
    assert [how_many(n, 8).replace("\u00a0", " ") for n in (0, 1, 8)] == [
        "All 8 rules were evaluated",
        "1 of 8 rules was not evaluated",
        "No rule was evaluated",
    ]


@pytest.mark.parametrize("reason", [Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_POWER_CAP])
@pytest.mark.parametrize(("held", "one"), [(0.3, False), (0.7, True)])
def test_a_low_clock_is_put_down_to_what_held_it_for_most_of_its_work(
    reason: Metric, held: float, one: bool
) -> None:
    n = 400
    rules = (SlowClock(), ThermalThrottling(), PowerCap())
    clock = np.column_stack([np.full(n, 1980.0)] * 3 + [np.full(n, 1200.0)])
    active = np.zeros((n, 4))
    active[: int(held * n), 3] = 100.0
    panels = [
        make_panel(metric, values, interval_s=2)
        for metric, values in ((Metric.GPU_CLOCK, clock), (reason, active))
    ]
    job = make_job(gpu=np.full((n, 4), 95.0), interval_s=2, extra=panels)

    found = judge(job, rules, run_rules(rules, job, strict=True), job_phases(job)).findings

    keys = {"thermal-throttling" if reason is Metric.GPU_THERMAL_SLOWDOWN else "power-cap"}
    assert {f.key for f in found} == (keys if one else keys | {"slow-clock"})


def test_low_use_that_joins_its_cause_keeps_what_every_rule_said() -> None:
    """One GPU never worked, one hardly, two with pauses in which they all idle."""
    n = 1000
    pausing = [95.0 if i % 20 < 8 else 0.0 for i in range(n)]
    gpu = np.column_stack([np.zeros(n), np.where(np.arange(n) % 400 == 0, 50.0, 0.0), pausing, pausing])
    cpu = [20.0 if i % 20 < 8 else 99.0 for i in range(n)]
    rules = (UnusedGPU(), LowGPUUtilization(window=50, patience=60), CPUBottleneck(patience=60))
    job = make_job(gpu=gpu, cpu=cpu, interval_s=2)

    findings = judge(job, rules, run_rules(rules, job, strict=True), job_phases(job)).findings

    joined = next(f for f in findings if f.key == "cpu-bottleneck")
    assert set(joined.rules) == {"CPUBottleneck", "LowGPUUtilization", "UnusedGPU"}
    assert "1 of 4\u00a0GPUs was almost unused" in in_words(joined.evidence)


def test_gpus_whose_use_was_not_sampled_are_no_idle_ones() -> None:
    power = make_panel(Metric.GPU_POWER, np.full((700, 4), 400.0), interval_s=2)
    rules = (UnusedGPU(),)
    idle = make_job(gpu=[0.0] * 700, interval_s=2, extra=[power])
    late = make_job(gpu=[0.0] * 300 + [95.0] * 400, interval_s=2, extra=[power])
    never, start = (
        judge(job, rules, run_rules(rules, job, strict=True), job_phases(job)) for job in (idle, late)
    )

    (finding,) = never.findings
    assert finding.title == "1 of 4\u00a0GPUs was never used (no sample above 0%)"
    assert "Utilization of 3\u00a0GPUs was not recorded." in in_words(finding.evidence)
    assert finding.share_of == "of the time of 1 of 4 GPUs"
    assert UnusedGPU().check(idle).headline == "1 of 4\u00a0GPUs was never used"
    assert never.use
    assert used_sentence(never.use) == "0.0% of the time of 1 of 4 GPUs was used"
    assert start.findings[0].title == "No GPU with known utilization was used in the first 10\u00a0min"
