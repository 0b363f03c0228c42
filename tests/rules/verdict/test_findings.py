"""What the verdict finds: severities, order, and what is one finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from jobrules import (
    CPUBottleneck,
    Dataloader,
    LowGPUUtilization,
    OverallSystemUsage,
    PowerCap,
    Rule,
    SlowClock,
    ThermalThrottling,
)
from jobrules.measures.work import Work
from jobrules.model import (
    SECOND_US,
    Finding,
    FloatArray,
    Job,
    Loader,
    Metric,
    Panel,
    Reason,
    ReasonKind,
    RuleResult,
    Severity,
    Status,
    in_words,
)
from jobrules.model.claims import Cause, Claim, Claimed, Precedence, Samples
from jobrules.rule import NO_STEPS, Role, not_recorded, reason_few_samples, reason_short, run_rules
from jobrules.verdict.findings import Verdict
from jobrules.verdict.not_evaluated import NotEvaluated, by_reason, how_many
from jobrules.verdict.time_use import lost_sentence, time_use
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.verdicts import found, keys, parts, verdict_of

N = 1000


def warnings(verdict: Verdict) -> list[tuple[str, Severity]]:
    return [(f.key, f.severity) for f in verdict.findings if f.severity is not Severity.INFO]


def idle_for(percent: float, *, n: int = N) -> list[float]:
    """As many samples at 0%, spread evenly, the others at 100%; work at both ends."""
    return [0.0 if int((i + 1) * percent / 100) > int(i * percent / 100) else 100.0 for i in range(n)]


# Severities


@pytest.mark.parametrize(
    ("percent", "severity"),
    [(4.8, None), (5.2, Severity.WARNING), (19.8, Severity.WARNING), (20.3, Severity.CRITICAL)],
)
@pytest.mark.parametrize("full", [True, False])
def test_lost_time_is_a_warning_from_a_twentieth_and_critical_from_a_fifth(
    percent: float, severity: Severity | None, full: bool
) -> None:
    gpu = idle_for(percent)
    cpu = np.where(np.array(gpu)[:, None] == 0, [99.0 if full else 10.0] * 8, 20.0)
    verdict = verdict_of(make_job(gpu=gpu, cpu=cpu, interval_s=1))

    key = "cpu-bottleneck" if full else "unexplained"
    assert warnings(verdict) == ([(key, severity)] if severity else [])
    assert [f.key for f in verdict.findings] == ([key] if severity else [])
    assert verdict.explains.get("CPUBottleneck", 0.0) == pytest.approx(percent / 100 * full, abs=0.002)
    if severity:
        assert found(verdict, key).share == pytest.approx(percent / 100, abs=0.002)
        assert found(verdict, key).gpu_s == pytest.approx(percent / 100 * N, abs=2)


@pytest.mark.parametrize(
    ("idle_min", "work_min", "severity"),
    [
        (4.9, 30, None),
        (5.1, 30, Severity.WARNING),
        (5.1, 120, None),
        (14.8, 30, Severity.WARNING),
        (15.2, 30, Severity.CRITICAL),
        (15.2, 90, Severity.WARNING),
    ],
)
@pytest.mark.parametrize("at_end", [False, True])
def test_start_up_and_wind_down_also_need_minutes(
    idle_min: float, work_min: float, severity: Severity | None, at_end: bool
) -> None:
    gpu = [0.0] * round(30 * idle_min) + [100.0] * round(30 * work_min)
    verdict = verdict_of(make_job(gpu=gpu[::-1] if at_end else gpu, interval_s=2))

    key = "wind-down" if at_end else "start-up"
    assert warnings(verdict) == ([(key, severity)] if severity else [])
    assert len(verdict.findings) == bool(severity)
    assert parts(verdict)[key] == pytest.approx(100 * idle_min / (idle_min + work_min), abs=0.2)


# Order


def test_worst_first_then_causes_then_what_is_unexplained_then_what_has_no_time() -> None:
    """A quarter without a cause, a fifth of it again beside a full CPU; memory that grows; a pause."""
    kinds = np.tile([0, 0, 0, 1, 2, 2, 2, 2, 2, 2], 150)
    gpu = np.where(kinds < 2, 0.0, 100.0)
    cpu = np.where(kinds[:, None] == 1, [99.0] * 8, 20.0)
    times = START_US + SECOND_US * (np.arange(1500) + 200 * (np.arange(1500) > 700))
    panels = [
        make_panel(metric, values, time_us=times, prefix=prefix)
        for metric, values, prefix in (
            (Metric.GPU_UTILIZATION, gpu, "gpu"),
            (Metric.CPU_UTILIZATION, cpu, "cpu"),
        )
    ]

    class Noticed(OverallSystemUsage):
        can_trigger = True

        def check(self, job: Job) -> RuleResult:
            del job
            return self.triggered(self.finding("noticed", key="noticed", severity=Severity.WARNING))

    verdict = verdict_of(make_job(extra=panels), Noticed(), CPUBottleneck())

    assert [(f.key, f.severity) for f in verdict.findings] == [
        ("unexplained", Severity.CRITICAL),
        ("cpu-bottleneck", Severity.WARNING),
        ("noticed", Severity.WARNING),
        ("not-measured", Severity.INFO),
    ]
    assert verdict.main_finding is verdict.findings[0]
    assert verdict.advice_head == "Record next"
    assert not verdict.is_cause(verdict.findings[0])


def test_of_two_causes_the_larger_is_first_and_the_other_second() -> None:
    kinds = np.tile([0, 0, 1, 2, 2, 2, 2, 2, 2, 2], 100)
    gpu = np.where(kinds < 2, 0.0, 100.0)
    cpu = np.where(kinds[:, None] == 0, [99.0] * 8, 20.0)
    wait = np.where(kinds[:, None] == 1, [99.0] * 8, 1.0)
    verdict = verdict_of(make_job(gpu=gpu, cpu=cpu, io_wait=wait, interval_s=2))

    assert keys(verdict) == ["cpu-bottleneck", "io-bottleneck"]
    assert all(map(verdict.is_cause, verdict.findings))
    assert verdict.advice_head == "Try first"
    assert lost_sentence(verdict.use).endswith("of them while the CPU was saturated")  # type: ignore[arg-type]


def test_every_finding_of_an_observation_is_kept_with_its_severity() -> None:
    class Twice(OverallSystemUsage):
        can_trigger = True

        def check(self, job: Job) -> RuleResult:
            del job
            said = [
                self.finding(title, key=title, severity=severity)
                for title, severity in (("second", Severity.WARNING), ("first", Severity.CRITICAL))
            ]
            return replace(self.triggered(said[0]), findings=tuple(said))

    verdict = verdict_of(make_job(gpu=[95.0] * 100, interval_s=30), Twice())

    assert [(f.title, f.severity) for f in verdict.findings] == [
        ("first", Severity.CRITICAL),
        ("second", Severity.WARNING),
    ]
    assert not verdict.is_cause(verdict.findings[0])


def test_too_few_loaders_are_no_finding_where_no_time_is_lost() -> None:
    lives = [("DataLoaderWorker", "worker", 0.0, 1900.0)]
    loader = Loader(
        node="algo-1", rank="33", iterator="_Multi", start_us=START_US, num_workers=1, pin_memory=True
    )
    fetches = [("DataLoaderIter", "_Multi::fetch", 2.0 * t, 2.0 * t + 0.02) for t in range(N)]
    job = make_job(
        gpu=[97.0] * N,
        cpu=[[20.0] * 8] * N,
        interval_s=2,
        events=make_events(lives + fetches, loaders=[loader]),
    )

    assert Dataloader().check(job).status is Status.TRIGGERED
    assert verdict_of(job).findings == ()


# One finding


def chain(*, waits: bool) -> Job:
    """A GPU that idles in 40% of the time, for half of that beside full cores; with fetches that wait."""
    kinds = np.tile([0, 1, 2, 2, 2], 200)
    gpu = np.where(kinds < 2, 0.0, 100.0)
    cpu = np.where(kinds[:, None] == 0, [99.0] * 8, 20.0)
    fetches = [("DataLoaderIter", "_Multi::fetch", 5.0 * t, 5.0 * t + 2.0) for t in range(200)]
    steps = make_steps([(5.0 * t + 2.0, 5.0 * t + 5.0) for t in range(200)])
    events = make_events(fetches) if waits else None
    return make_job(gpu=gpu, cpu=cpu, interval_s=1, steps=steps, events=events)


def test_a_saturated_cpu_and_waiting_for_data_are_one_finding() -> None:
    one, two = verdict_of(chain(waits=True)), verdict_of(chain(waits=False))

    (finding,) = one.findings
    assert finding.share == pytest.approx(0.4, abs=0.003)
    assert finding.severity is Severity.CRITICAL
    # The rules of both causes passed: their cards say so, and the finding does not point at them.
    assert finding.rules == ("IdleGaps",)
    evidence = in_words(finding.evidence)
    assert "Reported for its share of GPU time; " in evidence
    assert "Also seen as: " in evidence
    assert one.use is not None
    linked = {
        part.key: part.finding for part in one.use.parts if part.key in ("cpu-bottleneck", "data-loading")
    }
    assert linked == {"cpu-bottleneck": finding.key, "data-loading": finding.key}
    assert {f.key: f.share for f in two.findings} == pytest.approx(
        {"cpu-bottleneck": 0.2, "unexplained": 0.2}, abs=0.002
    )


def test_symptoms_are_evidence_of_the_largest_cause_or_of_what_is_unexplained() -> None:
    for full, key in ((99.0, "cpu-bottleneck"), (10.0, "unexplained")):
        gpu = np.tile([2.0, 2.0, 2.0, 40.0], 500)
        cpu = np.where(gpu[:, None] < 10, [full] * 8, 60.0)
        verdict = verdict_of(make_job(gpu=gpu, cpu=cpu, interval_s=2))

        assert LowGPUUtilization().check(make_job(gpu=gpu, interval_s=2)).status is Status.TRIGGERED
        home = verdict.findings[0]
        assert home.key == key
        assert {"low-gpu-utilization", "low-mean-utilization", "idle-gaps"}.isdisjoint(keys(verdict))
        assert {"LowGPUUtilization", "LowMeanUtilization", "IdleGaps"} <= set(home.rules)
        assert "Also seen as: " in in_words(home.evidence)


def test_symptoms_are_no_finding_where_no_time_is_lost() -> None:
    # Low in the last windows, which are 3% of the job.
    job = make_job(gpu=[98.0] * 2000 + [60.0] * 60, interval_s=2)
    rule = LowGPUUtilization(window=20, patience=30)
    verdict = verdict_of(job, rule)

    assert rule.check(job).status is Status.TRIGGERED
    assert verdict.findings == ()


def test_unexplained_loss_says_what_was_recorded_and_what_to_record_next() -> None:
    gpu = idle_for(30)
    bare = verdict_of(make_job(gpu=gpu, interval_s=2))
    full = verdict_of(
        make_job(
            gpu=gpu,
            cpu=[[20.0] * 8] * N,
            io_wait=[[0.0] * 8] * N,
            interval_s=2,
            steps=make_steps([(2.0 * t, 2.0 * t + 1.9) for t in range(N - 1)]),
            events=make_events(
                [("DataLoaderIter", "_Multi::fetch", 2.0 * t, 2.0 * t + 0.01) for t in range(N)]
            ),
        )
    )

    for verdict in (bare, full):
        (finding,) = verdict.findings
        assert finding.key == "unexplained"
        assert finding.share == pytest.approx(0.3, abs=0.002)
        assert not verdict.is_cause(verdict.findings[0])
        assert verdict.use is not None
        assert {p.finding for p in verdict.use.parts if p.key in ("idle", "low")} == {"unexplained"}
    words = in_words(bare.findings[0].evidence)
    assert "Not recorded: CPU utilization, I/O wait, steps, and data loading." in words
    assert (
        bare.findings[0]
        .advice[0]
        .removeprefix("Record ")
        .startswith("CPU utilization, I/O wait, steps, and data loading")
    )
    words = in_words(full.findings[0].evidence)
    assert "Recorded, and not the cause: CPU utilization, I/O wait, steps, and data loading." in words
    assert "rofile" in full.findings[0].advice[0]


@pytest.mark.parametrize(
    ("in_steps", "between", "step_s", "said", "ruled_out"),
    [
        # Four of ten seconds are a step; GPUs idle in the others.
        (
            90.0,
            2.0,
            4,
            "% of the time with recorded steps is between them, and most is lost there",
            False,
        ),
        (
            2.0,
            2.0,
            9,
            "Steps take most of the time while the GPUs idle: they hold what the GPUs wait for",
            False,
        ),
        (30.0, 90.0, 9, "", True),
    ],
)
@pytest.mark.parametrize("stamped_s", [0, 1])
def test_steps_that_show_where_the_time_goes_are_not_ruled_out(
    in_steps: float, between: float, step_s: int, said: str, ruled_out: bool, stamped_s: int
) -> None:
    """Samples are stamped at the begin or the end of their second."""
    gpu = np.tile([in_steps] * step_s + [between] * (10 - step_s), N // 10)
    begins = 10.0 * np.arange(1, N // 10) - stamped_s
    steps = make_steps([(begin, begin + step_s) for begin in begins])
    words = in_words(found(verdict_of(make_job(gpu=gpu, interval_s=1, steps=steps)), "unexplained").evidence)

    assert said in words
    assert ("time with recorded steps" in words or "Steps take" in words) is bool(said)
    assert ("not the cause: steps" in words) is ruled_out
    assert "steps" not in words.partition("Not recorded: ")[2].partition(".")[0]


def test_a_late_first_step_is_evidence_of_the_start_up() -> None:
    gpu = [0.0] * 900 + [95.0] * 1500
    known = verdict_of(make_job(gpu=gpu, interval_s=2, steps=make_steps([(1800, 4700)])))
    unknown = verdict_of(make_job(gpu=gpu, interval_s=2))

    assert keys(known) == keys(unknown) == ["start-up"]
    assert known.findings[0].rules == ("MaxInitializationTime",)
    assert "The first step started after 30\u00a0min" in in_words(known.findings[0].evidence)
    assert unknown.findings[0].rules == ()


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        (14.0, "The GPU was little used in the {} 20\u00a0min (14.0% on average)"),
        (4.0, "No GPU worked in the {} 20\u00a0min"),
    ],
)
def test_a_gpu_that_is_little_used_before_and_after_the_work_is_not_said_to_do_nothing(
    gpu: float, title: str
) -> None:
    before, work = [gpu] * 120, [95.0] * 360

    for values, key, which in ((before + work, "start-up", "first"), (work + before, "wind-down", "last")):
        assert found(verdict_of(make_job(gpu=values, interval_s=10)), key).title == title.format(which)


def test_a_profiler_that_starts_late_makes_no_start_up() -> None:
    # Idle for ten minutes, then at work; the first step is recorded half an hour later.
    gpu = [0.0] * 20 + [95.0, 80.0] * 90
    verdict = verdict_of(make_job(gpu=gpu, interval_s=30, steps=make_steps([(2400, 5900)])))

    assert keys(verdict) == ["start-up"]
    assert verdict.findings[0].title == "No GPU worked in the first 10\u00a0min"
    assert verdict.findings[0].gpu_s == pytest.approx(600)


@pytest.mark.parametrize("reason", [Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_POWER_CAP])
@pytest.mark.parametrize(("held", "one"), [(0.3, False), (0.7, True)])
def test_a_low_clock_is_put_down_to_what_held_it_for_most_of_its_work(
    reason: Metric, held: float, one: bool
) -> None:
    n = 400
    clock = np.column_stack([np.full(n, 1980.0)] * 3 + [np.full(n, 1200.0)])
    active = np.zeros((n, 4))
    active[: int(held * n), 3] = 100.0
    panels = [
        make_panel(metric, values, interval_s=2)
        for metric, values in ((Metric.GPU_CLOCK, clock), (reason, active))
    ]
    job = make_job(gpu=np.full((n, 4), 95.0), interval_s=2, extra=panels)

    verdict = verdict_of(job, SlowClock(), ThermalThrottling(), PowerCap())

    key = "thermal-throttling" if reason is Metric.GPU_THERMAL_SLOWDOWN else "power-cap"
    assert set(keys(verdict)) == ({key} if one else {key, "slow-clock"})
    if one:
        assert "SlowClock" in found(verdict, key).rules
        assert "peers' median clock" in in_words(found(verdict, key).evidence)


def test_a_finding_that_is_put_into_another_brings_its_time() -> None:
    """The last GPU is hot for most of the time and slow for all of it; the others are used for 75% meanwhile."""
    n = 400
    hot = np.arange(n) < 0.6 * n
    gpu = np.full((n, 4), [75.0, 75.0, 75.0, 95.0])
    panels = [
        make_panel(metric, values, interval_s=2)
        for metric, values in (
            (Metric.GPU_CLOCK, np.full((n, 4), [1980.0, 1980.0, 1980.0, 1200.0])),
            (Metric.GPU_THERMAL_SLOWDOWN, np.outer(hot, [0.0, 0.0, 0.0, 100.0])),
        )
    ]
    verdict = verdict_of(make_job(gpu=gpu, interval_s=2, extra=panels), SlowClock(), ThermalThrottling())

    (finding,) = verdict.findings
    assert finding.key == "thermal-throttling"
    assert finding.share == pytest.approx(0.15, abs=0.002)
    assert finding.severity is Severity.WARNING
    assert verdict.use is not None
    assert {part.finding for part in verdict.use.parts if part.when} == {finding.key}
    assert lost_sentence(verdict.use).endswith("0.133 of them while a GPU was slowed by heat")


# GPUs that never worked, and jobs of little data


ON_CPU, NO_GPU = "Move the model", "Check that the framework sees"
NOT_ITS_OWN, HELD = "Start one process per GPU", "Find the process that holds"


@pytest.mark.parametrize(
    ("gpu", "in_use", "steps", "title", "advice", "says"),
    [
        ([95, 0], None, False, "1 of 2\u00a0GPUs was", NO_GPU, ""),
        ([0, 0], None, False, "Both GPUs were", NO_GPU, ""),
        ([0, 0], None, True, "Training ran on the CPU: both GPUs were", ON_CPU, ""),
        ([0], [0], True, "Training ran on the CPU: the GPU was", ON_CPU, ""),
        ([1], [0], True, "Training may have run on the CPU: the GPU was", ON_CPU, ""),
        # A process that has memory on a GPU sees it.
        ([0], [40], True, "The GPU was", HELD, "a process holds it"),
        ([0, 0], [50, 50], False, "Both GPUs were", HELD, "on both GPUs: processes hold it"),
        ([0, 0], [50, 4], False, "Both GPUs were", HELD, "on 1 of 2\u00a0GPUs: a process holds it"),
        ([0, 0], [5, 4], False, "Both GPUs were", NO_GPU, ""),
        ([95, 0], [50, 50], False, "1 of 2\u00a0GPUs was", NOT_ITS_OWN, "a process holds it"),
    ],
)
def test_gpus_that_were_never_used_are_one_finding_with_the_advice_that_fits(
    gpu: list[float], in_use: list[float] | None, steps: bool, title: str, advice: str, says: str
) -> None:
    """In percent of utilization and of memory."""
    known = {Metric.GPU_MEMORY_USED: in_use, Metric.GPU_MEMORY_TOTAL: [100.0] * len(gpu)}
    memories = [
        make_panel(metric, np.full((N, len(gpu)), values), interval_s=2)
        for metric, values in known.items()
        if in_use
    ]
    job = make_job(
        gpu=np.full((N, len(gpu)), gpu, np.float64),
        cpu=[10.0] * N,
        interval_s=2,
        steps=make_steps([(100, 1900)]) if steps else None,
        extra=memories,
    )
    (finding,) = verdict_of(job).findings

    unused = [i for i, percent in enumerate(gpu) if percent < 95]
    assert (finding.key, finding.severity) == ("gpu-never-used", Severity.CRITICAL)
    assert finding.title == f"{title} never used (no sample above 1%)"
    assert finding.devices == tuple(f"algo-1/gpu{i}" for i in unused)
    assert finding.share == pytest.approx(len(unused) / len(gpu), abs=0.011)
    assert finding.advice[0].startswith(advice)
    # Where none was used, fewer are no advice.
    assert ("fewer GPUs" in " ".join(finding.advice)) is (len(unused) < len(gpu))
    words = in_words(finding.evidence)
    assert says in words
    assert ("Memory was in use" in words) is bool(says)


@pytest.mark.parametrize(
    ("minutes", "interval_s", "steps", "short"),
    [
        (0.5, 0.5, False, "no GPU worked in 29.5\u00a0s"),
        (9.9, 1, False, "no GPU worked in 9\u00a0min 53\u00a0s"),
        (40, 1200, False, "no GPU worked in the few samples"),
        (0.6, 1, True, "26\u00a0s of steps"),
        (10.1, 1, False, ""),
        (9.9, 1, True, ""),
    ],
)
def test_a_gpu_is_not_called_never_used_after_a_short_look(
    minutes: float, interval_s: float, steps: bool, short: str
) -> None:
    length_s = 60 * minutes
    verdict = verdict_of(
        make_job(
            gpu=[0.0] * round(length_s / interval_s),
            interval_s=interval_s,
            steps=make_steps([(9, min(100, length_s - 1))]) if steps else None,
        )
    )

    assert verdict.too_little == short
    assert ("gpu-never-used" in keys(verdict)) is (not short)
    assert all(finding.severity is Severity.INFO for finding in verdict.findings) is bool(short)


@pytest.mark.parametrize(
    ("n", "interval_s", "short"), [(61, 1, False), (59, 1, True), (29, 10, True), (31, 10, False)]
)
def test_a_job_of_less_than_a_minute_or_thirty_snapshots_of_work_is_too_short_to_judge(
    n: int, interval_s: int, short: bool
) -> None:
    job = make_job(gpu=([95.0, 0.0] * n)[:n], cpu=[[99.0] * 8] * n, interval_s=interval_s)
    verdict = verdict_of(job)

    assert (verdict.too_short != "") is short
    assert bool(verdict.findings) is not short
    # The shares are there all the same.
    assert parts(verdict)["cpu-bottleneck"] == pytest.approx(50, abs=2)
    if short:
        assert verdict.too_short.startswith("Too short to judge: ")


def test_a_rule_that_wants_more_data_is_said_to_beside_the_fact() -> None:
    verdict = verdict_of(make_job(gpu=[0.0, 95.0] * 200, cpu=[[99.0] * 8, [9.0] * 8] * 200, interval_s=1))

    finding = found(verdict, "cpu-bottleneck")
    assert "in 49.9% of snapshots" in in_words(finding.evidence)
    assert "The rule itself needs 1,001" in in_words(finding.evidence)


def test_too_few_samples_of_the_work_are_not_those_of_the_job() -> None:
    gpu = [0.0] * 600 + idle_for(30, n=600)
    verdict = verdict_of(make_job(gpu=gpu, cpu=[10.0] * 1200, interval_s=1), CPUBottleneck())

    (group,) = by_reason(verdict.not_evaluated)
    assert str(group) == "Too short: CPUBottleneck needs 1,001 samples, the work of this job has 599."


def test_gpus_whose_use_was_not_sampled_are_not_idle_ones() -> None:
    power = make_panel(Metric.GPU_POWER, np.full((700, 4), 400.0), interval_s=2)
    never = verdict_of(make_job(gpu=[0.0] * 700, interval_s=2, extra=[power]))
    start = verdict_of(make_job(gpu=[0.0] * 300 + [95.0] * 400, interval_s=2, extra=[power]))

    finding = found(never, "gpu-never-used")
    assert finding.title == "1 of 4\u00a0GPUs was never used (no sample above 1%)"
    assert "Utilization of 3\u00a0GPUs was not recorded." in in_words(finding.evidence)
    assert never.use
    assert (never.use.time, never.use.of("used")[1]) == ("the time of 1 of 4 GPUs", 0.0)
    assert found(start, "start-up").title == "No GPU with known utilization worked in the first 10\u00a0min"


def test_a_job_that_spans_no_time_has_no_amounts() -> None:
    verdict = verdict_of(make_job(gpu=[50.0], steps=make_steps([(0, 0)])))

    assert verdict.use is None
    assert verdict.findings == ()


def test_amounts_are_exact_where_hours_are_rounded() -> None:
    # In a day of 16 GPUs hours are printed to 0 or 1 digits; the finding has seconds.
    use = np.full((2880, 16), 95.0)
    use[:, 15] = 0.0
    verdict = verdict_of(make_job(gpu=use, interval_s=30))

    assert found(verdict, "gpu-never-used").gpu_s == 2879 * 30
    assert verdict.use is not None
    assert 3600 * next(p.amount for p in verdict.use.parts if p.finding == "gpu-never-used") != 2879 * 30


def test_the_sentences_on_a_bar_without_causes_add_up() -> None:
    plain = time_use(make_job(gpu=[50.0] * 13, interval_s=300))
    assert plain

    assert plain.of("used")[1] == 50.0
    assert lost_sentence(plain) == "0.50 of 1.00\u00a0GPU-hours were lost"


# Without GPUs


def test_a_job_without_gpus_has_its_observations_and_its_late_start() -> None:
    steps = make_steps([(1300.0 + 3 * t, 1302.0 + 3 * t) for t in range(100)])
    job = make_job(cpu=[[99.0] * 4] * 700, interval_s=2, steps=steps)
    verdict = verdict_of(job)

    assert verdict.use is not None
    assert verdict.use.device == "CPU"
    assert {"core-idle", "core-low", "core-busy"} & set(parts(verdict))
    assert len([f for f in verdict.findings if "first step" in f.title.lower()]) == 1
    assert not verdict.is_cause(verdict.findings[0])


# Clocks and times


def test_a_clock_that_is_ahead_costs_no_time() -> None:
    use = [0.0] * 40 + [80.0] * 90 + [0.0] * 10
    spans = [(400.0 + i, 400.6 + i) for i in range(600)]

    def nodes(samples_s: int, steps_s: int) -> Verdict:
        late = START_US + samples_s * SECOND_US
        starts = {"a": START_US, "b": late, "c": START_US}
        panels = [
            make_panel(Metric.GPU_UTILIZATION, use, node=node, interval_s=10, start_us=start_us)
            for node, start_us in starts.items()
        ]
        later = make_steps(spans, node="b", start_us=START_US + steps_s * SECOND_US)
        steps = joined_steps(*(make_steps(spans, node=node) for node in "ac"), later)
        return verdict_of(make_job(extra=panels, steps=steps))

    same, ahead, behind, apart = nodes(0, 0), nodes(90, 90), nodes(-400, -400), nodes(0, 90)

    for verdict in (ahead, behind):
        assert verdict.use == same.use
        assert keys(verdict) == ["start-up", "clocks-differ"]
        assert verdict.findings[0].title == same.findings[0].title
    # Of processes that are apart the samples say that the clocks are not.
    assert "clocks-differ" in keys(apart)
    assert apart.use is not None
    assert apart.use.of("unknown") == (0.0, 0.0)


def test_samples_and_steps_that_share_no_moment_are_told() -> None:
    apart = verdict_of(
        make_job(gpu=[95.0] * 40, interval_s=30, steps=make_steps([(5000, 5001), (5002, 5003)]))
    )
    beside = verdict_of(make_job(gpu=[95.0] * 40, interval_s=30, steps=make_steps([(0, 1), (5002, 5003)])))

    key = "disjoint-times"
    assert [key in {one.key for one in verdict.findings} for verdict in (apart, beside)] == [True, False]


def test_a_rule_that_raises_costs_only_itself() -> None:
    class Broken(OverallSystemUsage):
        def check(self, job: Job) -> object:  # type: ignore[override]
            raise ZeroDivisionError("by hand")

    broken, whole = run_rules([Broken(), OverallSystemUsage()], make_job(cpu=[1.0]))

    assert (broken.status, str(broken.reason)) == ("error", "ZeroDivisionError: by hand")
    assert whole.status == "passed"


def sampled(*at_s: float | range, node: str = "algo-1") -> Panel:
    """A GPU at 80%, sampled at these seconds."""
    seconds = np.concatenate([np.atleast_1d(one) for one in at_s])
    times = START_US + (SECOND_US * seconds).astype(np.int64)
    return make_panel(Metric.GPU_UTILIZATION, np.full(len(times), 80.0), node=node, time_us=times)


#: Panels, the title of the finding on time that was not measured, and whether it suspects a wrong time.
PAUSES: dict[str, tuple[list[Panel], str, bool]] = {
    "only the GPU's": (
        [
            sampled(range(0, 300, 3)),
            make_panel(Metric.CPU_UTILIZATION, [50.0] * 500, interval_s=3, prefix="cpu"),
        ],
        "80.0% of GPU time was not measured",
        False,
    ),
    "a restart": ([sampled(range(600), range(4200, 4260))], "1\u00a0h were not measured", False),
    "a record that is late": (
        [sampled(range(599), 4199)],
        "1\u00a0record lies 1\u00a0h after all others: ",
        True,
    ),
    "a record that is early": (
        [sampled(-3600, range(1, 600))],
        "1\u00a0record lies 1\u00a0h before all others: ",
        True,
    ),
    "a node that is late": (
        [sampled(range(0, 9000, 5), node="a"), sampled(range(600), 9000, node="b")],
        "2\u00a0h 20\u00a0min were not measured",
        False,
    ),
}


@pytest.mark.parametrize(("panels", "title", "suspected"), PAUSES.values(), ids=PAUSES)
def test_time_that_was_not_measured_is_told(panels: list[Panel], title: str, suspected: bool) -> None:
    pause = found(verdict_of(make_job(extra=panels)), "not-measured")

    assert pause.title.startswith(title)
    assert ("lies" in pause.title) is suspected
    assert ("time there" in pause.advice[0]) is suspected


def test_a_job_with_one_clock_ahead_still_has_its_pause() -> None:
    steps = make_steps([(10.0 + i, 10.6 + i) for i in range(20)], node="a")
    later = make_steps([(100.0 + i, 100.6 + i) for i in range(20)], node="b")
    panels = [
        sampled(range(0, 1800, 10), node="a"),
        sampled(range(90, 690, 10), range(1290, 1890, 10), node="b"),
    ]
    pause = found(verdict_of(make_job(extra=panels, steps=joined_steps(steps, later))), "not-measured")

    # Ten minutes and a half without a sample, of which ten seconds belong to the sample before.
    assert pause.title == "10\u00a0min 10\u00a0s were not measured"
    assert pause.gpu_s == pytest.approx(600)


def test_every_rule_that_was_not_evaluated_is_named_by_what_it_lacks() -> None:
    reasons = {
        "A": NO_STEPS,
        "B": reason_few_samples(892, 1000),
        "C": Reason(kind=ReasonKind.ERROR, what="ValueError: odd"),
        "D": reason_few_samples(893, 1000),
        "E": Reason(kind=ReasonKind.NO_DEVICE, what="node has a second GPU"),
        "F": not_recorded(Metric.GPU_POWER),
        "G": reason_short(899_900_000, 15),
        "H": replace(not_recorded(Metric.GPU_UTILIZATION), needed=8, have=5),
    }
    missing = [NotEvaluated(rule=r, status=Status.NOT_EVALUATED, reason=why) for r, why in reasons.items()]

    assert [str(group).replace("\u00a0", " ") for group in by_reason(missing)] == [
        "Failed: C (ValueError: odd).",
        "Not recorded: GPU utilization for 3 of 8 GPUs (H), steps (A), GPU power (F).",
        "Too short: B, D need 1,001 samples, this job has 892 to 893; "
        "G needs 15 min of samples, this job has 14 min 59 s.",
        "Nothing to check: no node has a second GPU (E).",
    ]
    assert [group.brief.replace("\u00a0", " ") for group in by_reason(missing)] == [
        "Failed: C.",
        "Not recorded: GPU utilization for 3 of 8 GPUs (1 rule), steps (1), GPU power (1).",
        "Too short: 3 rules.",
        "Nothing to check: E.",
    ]
    assert reasons["A"].sentence == "Steps were not recorded"
    assert reasons["H"].sentence.replace("\u00a0", " ") == "GPU utilization was not recorded for 3 of 8 GPUs"
    assert [how_many(n, 8).replace("\u00a0", " ") for n in (0, 1, 8)] == [
        "All 8 rules were evaluated",
        "1 of 8 rules was not evaluated",
        "No rule was evaluated",
    ]


# A rule of a user's own


@dataclass(frozen=True)
class Loud(Rule):
    """Lost time in the second half of the work.

    What it checks
        Nothing.

    Why it matters
        It does not.

    What to do
        * Listen.
    """

    title: ClassVar[str] = "It was loud"

    def check(self, job: Job) -> RuleResult:
        return self.passed(f"{len(job.nodes)} nodes")

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        del result
        work = Work.of(job)
        assert work
        middle_us = (work.begin_us + work.end_us) // 2
        return (
            Cause(
                key="loud",
                precedence=Precedence.OTHER,
                label="Lost: loud",
                when="while it was loud",
                claim=partial(second_half, middle_us),
                finding=self.heard,
            ),
        )

    def heard(self, claimed: Claimed) -> Finding:
        return self.finding(f"Loud in {claimed.snapshots} of {claimed.of_snapshots}", devices=claimed.devices)


def second_half(middle_us: int, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    del part, panel, weight_us

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        return [np.where(gpu.time_us >= middle_us, gpu.left_us, 0.0) for gpu in gpus]

    return claim


def test_a_rule_of_ones_own_can_claim_lost_time_after_the_causes_of_the_others() -> None:
    gpu = np.tile([0.0, 100.0, 50.0, 100.0], 150)
    cpu = np.where(gpu[:, None] == 0, [99.0] * 8, 20.0)
    verdict = verdict_of(make_job(gpu=gpu, cpu=cpu, interval_s=1), Loud(), CPUBottleneck())

    # A quarter while the CPU is full, and a half of a quarter in the second half.
    assert {f.key: f.share for f in verdict.findings} == pytest.approx(
        {"cpu-bottleneck": 1 / 4, "loud": 1 / 16, "unexplained": 1 / 16}, abs=0.003
    )
    own = found(verdict, "loud")
    assert (own.title, own.severity) == ("Loud in 75 of 599", Severity.WARNING)
    assert parts(verdict)["loud"] == pytest.approx(100 / 16, abs=0.2)


class Slept(Loud):
    __doc__ = Loud.__doc__

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        del job, result
        cause = Cause(
            key="slept",
            precedence=Precedence.OTHER,
            label="Lost: asleep",
            when="while it slept",
            finding=self.heard,
            of_loop=0.3,
        )
        return (cause,)


def test_any_rule_may_know_its_share_of_the_loop_of_a_job_without_gpus() -> None:
    verdict = verdict_of(make_job(cpu=[[99.0] * 4] * 700, interval_s=2), Slept(), CPUBottleneck())

    (main,) = verdict.findings
    assert (main.severity, main.share, main.share_of) == (Severity.CRITICAL, 0.3, "of the training loop")


class Mute(Slept):
    __doc__ = Loud.__doc__
    role: ClassVar[Role] = Role.SYMPTOM

    def check(self, job: Job) -> RuleResult:
        return self.triggered(self.finding(f"{len(job.nodes)} nodes"))

    def causes(self, job: Job, result: RuleResult) -> Sequence[Cause]:
        del job, result
        return ()


def test_a_rule_of_which_the_evidence_says_nothing_is_not_named() -> None:
    verdict = verdict_of(make_job(gpu=idle_for(30), interval_s=2), Mute(), CPUBottleneck())

    (finding,) = verdict.findings
    assert finding.key == "unexplained"
    assert "Mute" not in finding.rules


def test_one_rule_and_several_that_were_not_evaluated_are_counted_in_words() -> None:
    healthy = make_job(gpu=[95.0] * N, interval_s=2)
    one = verdict_of(healthy, Slept(), CPUBottleneck())
    two = verdict_of(healthy, Slept(), CPUBottleneck(), Dataloader())

    assert one.how_many == "1 of 2\u00a0rules was not evaluated"
    assert two.how_many == "2 of 3\u00a0rules were not evaluated"


@pytest.mark.parametrize(("start_s", "first"), [(340, "cpu-bottleneck"), (420, "start-up")])
def test_the_headline_names_the_cause_of_the_first_finding(start_s: int, first: str) -> None:
    """A short start-up that takes more is a warning below 40% of the GPU time; a saturated CPU is critical from 20%."""
    second = np.arange(900)
    waits = (second >= start_s) & (second % 20 < 10)
    gpu = np.where((second < start_s) | waits, 0.0, 96.0)
    verdict = verdict_of(make_job(gpu=gpu, cpu=np.where(waits[:, None], [99.0] * 8, 20.0), interval_s=1))

    assert keys(verdict)[0] == first
    assert {*keys(verdict)} == {"cpu-bottleneck", "start-up"}
    assert verdict.use
    named = "in start-up" if first == "start-up" else "while the CPU was saturated"
    assert lost_sentence(verdict.use, verdict.main_finding).endswith(named)


@pytest.mark.parametrize(("ranks", "together"), [(("0", "1"), True), (("4711", "4893"), False), ((), False)])
def test_uneven_gpus_have_ranks_only_where_ranks_were_recorded(
    ranks: tuple[str, ...], together: bool
) -> None:
    """Two copies of a script are no ranks."""
    steps = [make_steps([(2.0 * t, 2.0 * t + 1.9) for t in range(N)], rank=rank) for rank in ranks]
    gpu = np.column_stack([np.full(N, 95.0), np.full(N, 60.0)])
    job = make_job(gpu=gpu, cpu=[[30.0] * 8] * N, interval_s=2, steps=joined_steps(*steps) if steps else None)

    advice = " ".join(found(verdict_of(job), "load-balancing").advice)

    assert ("every rank" in advice) is together
    assert ("independent" in advice) is (not together)
