"""Jobs without GPU samples: other processes on their cores, time between steps, ranks that wait for one."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import SECOND_US, Events, Job, Metric, Severity, Steps, in_words
from jobrules.verdict.time_use import TimeUse, lost_sentence
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.verdicts import found, keys, verdict_of

N = 120


def shared(
    by_job: float, by_all: float = 2.0, pressure: float | None = 98.0, *, gpu: np.ndarray | None = None
) -> Job:
    """Two minutes on 2 cores, of which all processes use so many, and those of the job so many."""
    extra = [
        make_panel(Metric.JOB_CPU, np.full(N // 5, by_job), interval_s=5, prefix="cpu"),
    ]
    if pressure is not None:
        extra.append(make_panel(Metric.CPU_PRESSURE, np.full(N, pressure), interval_s=1, prefix="cpu"))
    return make_job(cpu=np.full((N, 2), 50 * by_all), gpu=gpu, interval_s=1, extra=extra)


@pytest.mark.parametrize(
    ("by_job", "by_all", "pressure", "severity"),
    [
        (0.5, 2.0, 98.0, Severity.CRITICAL),
        (0.5, 2.0, None, Severity.CRITICAL),
        (1.2, 2.0, 98.0, Severity.WARNING),
        # The job has nearly all of what is used; or no process waits; or cores are free; or the job hardly computes.
        (1.7, 2.0, 98.0, None),
        (0.5, 2.0, 2.0, None),
        (0.5, 1.5, 98.0, None),
        (0.05, 2.0, 98.0, None),
    ],
)
def test_other_processes_that_take_cpu_time_come_first(
    by_job: float, by_all: float, pressure: float | None, severity: Severity | None
) -> None:
    verdict = verdict_of(shared(by_job, by_all, pressure))

    assert keys(verdict) == (["other-processes"] if severity else [])
    if severity:
        main = verdict.findings[0]
        assert main.severity is severity
        assert main.title.replace("\u00a0", " ") == (
            f"Other processes use the CPU: the job's processes used {by_job} of 2 cores, all together 2.0"
        )
        assert main.share == pytest.approx((by_all - by_job) / 2)


def test_a_short_job_that_began_slowly_shares_its_cores_with_nobody() -> None:
    """Each reading of its processes is of the 5 s before: its two cores were idle, then the job used both."""
    cpu = np.repeat([[0.0, 0.0], [100.0, 100.0]], [5, 11], axis=0)
    processes = make_panel(
        Metric.JOB_CPU,
        [0.0, 2.0, 2.0],
        time_us=START_US + np.array([5, 10, 15]) * SECOND_US,
        prefix="cpu",
    )

    assert keys(verdict_of(make_job(cpu=cpu, interval_s=1, extra=[processes]))) == []


@pytest.mark.parametrize(
    ("mount", "free_mib", "is_full"),
    [
        # Those of a container and of a machine: unused, and in use.
        ("/dev/shm", [64, 64, 63], False),
        ("/dev/shm", [64, 20, 64], True),
        ("/dev/shm", [64_000, 20_000], False),
        ("/dev/shm", [64_000, 1000], True),
        ("/", [900, 900], True),
        ("/", [4000, 1200], False),
    ],
)
def test_an_empty_shared_memory_is_not_nearly_full(mount: str, free_mib: list[int], is_full: bool) -> None:
    free = make_panel(Metric.FREE_SPACE, np.array(free_mib) * float(1 << 20), interval_s=60)
    job = make_job(cpu=np.full((N, 2), 80.0), interval_s=1, extra=[replace(free, devices=(mount,))])

    assert keys(verdict_of(job)) == (["nearly-full"] if is_full else [])


def test_the_headline_says_what_the_job_used_of_shared_cores() -> None:
    def of_job(by_job: float) -> str:
        use = verdict_of(shared(by_job)).use
        assert use
        return use.of_job

    assert of_job(0.5) == ", 25.0% by the job's processes"
    assert of_job(1.9) == ""


def test_a_saturated_cpu_that_others_use_is_no_reason_for_cheaper_preparation() -> None:
    gpu = np.tile([2.0, 95.0], N // 2)
    crowded = found(verdict_of(shared(0.5, gpu=gpu)), "cpu-bottleneck")
    alone = found(verdict_of(shared(2.0, gpu=gpu)), "cpu-bottleneck")

    assert "Other processes use the CPU" in in_words(crowded.evidence)
    assert crowded.advice[0].startswith("Run the job without other processes")
    assert "Other processes" not in in_words(alone.evidence)
    assert alone.advice[0].startswith("Make data preparation cheaper")


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (2, "2.00 of 4.00 core-seconds were free"),
        (45, "0.75 of 1.50 core-minutes were free"),
        (1800, "0.500 of 1.000 core-hours were free"),
    ],
)
def test_small_amounts_have_small_units(seconds: int, sentence: str) -> None:
    use = verdict_of(make_job(cpu=np.full((seconds + 1, 2), 50.0), interval_s=1)).use

    assert isinstance(use, TimeUse)
    assert lost_sentence(use).replace("\u00a0", " ") == sentence.replace("1.000", "1.00").replace(
        "0.500", "0.50"
    )


def loop(rank: str, step_s: float, every_s: float = 1.0, start_s: float = 0.0, **in_step: float) -> Job:
    """Whole steps of a rank; in each of them event types for so many seconds."""
    starts = np.arange(start_s, N - every_s, every_s)
    steps = replace(make_steps([(t, t + step_s) for t in starts], rank=rank), whole=True)
    rows = [(kind, kind, t, t + us) for t in starts for kind, us in in_step.items()]
    return make_job(
        cpu=np.full((N, 2), 80.0),
        interval_s=1,
        steps=steps,
        events=make_events(rows, rank=rank) if rows else Events(),
    )


def together(*ranks: Job) -> Job:
    return replace(
        ranks[0],
        steps=joined_steps(*(one.steps for one in ranks)),
        events=Events.joined([one.events for one in ranks]),
    )


def test_what_takes_the_time_between_steps_is_named() -> None:
    job = loop("0", 0.6)
    starts = np.arange(0, N - 1.0)
    saved = make_events([("Checkpoint", "save", t + 0.65, t + 0.95) for t in starts], rank="0")
    evaluated = make_steps([(t + 0.6, t + 1.0) for t in starts], rank="0", phase="EVAL")

    unnamed = found(verdict_of(job), "between-steps")
    named = found(verdict_of(replace(job, events=saved)), "between-steps")
    evaluation = found(verdict_of(replace(job, steps=joined_steps(job.steps, evaluated))), "between-steps")

    assert unnamed.share == pytest.approx(0.4, abs=0.005)
    assert named.share == pytest.approx(0.3, abs=0.005)
    assert unnamed.title == "39.8% of the training loop is between steps, mostly without a record"
    assert "jobrecord.phase" in unnamed.advice[0]
    assert named.title == "Checkpoint takes 30.0% of the training loop"
    assert evaluation.title == "Evaluation takes 40.0% of the training loop"
    # The last evaluation follows the last step, and its own waits come first.
    fetches = make_events([("DataLoaderIter", "_Single::fetch", t + 0.6, t + 0.9) for t in starts], rank="0")
    waits = found(
        verdict_of(replace(job, steps=joined_steps(job.steps, evaluated), events=fetches)), "between-steps"
    )
    assert (
        waits.title == "Evaluation takes 40.0% of the training loop and waits for data for 75.0% of its time"
    )
    assert waits.advice[0].startswith("Make loading of evaluation batches cheaper")
    # Of other sources, steps do not hold their fetches: the time between them is none of the script's doing.
    apart = replace(job, steps=replace(job.steps, whole=False))
    assert "between-steps" not in keys(verdict_of(apart))
    assert "between-steps" not in keys(verdict_of(loop("0", 0.97)))


def test_ranks_that_wait_for_one_name_it() -> None:
    waiting, slow = loop("0", 1.0, AllReduce=0.8), loop("1", 1.0, AllReduce=0.1)
    main = found(verdict_of(together(waiting, slow)), "slow-rank")
    loading = loop("1", 1.0, AllReduce=0.1, DataLoaderIter=0.7)

    assert main.title.replace("\u00a0", " ") == (
        "Rank 1 is late by 0.7 s a step: its time outside of recorded phases takes 0.9 s, that of the other 0.2 s"
    )
    assert main.share == pytest.approx(0.7)
    # The rank that is late waits for its data: that is the finding.
    assert keys(verdict_of(together(waiting, loading))) == ["data-loading"]
    # Alike, or alone.
    assert keys(verdict_of(together(waiting, loop("1", 1.0, AllReduce=0.79)))) == []
    assert keys(verdict_of(waiting)) == []


def test_a_rank_that_starts_late_is_named() -> None:
    on_time = loop("0", 1.0, AllReduce=0.01)
    late = loop("1", 1.0, AllReduce=0.01)
    steps = replace(
        late.steps, start_us=np.concatenate([[START_US + 40 * SECOND_US], late.steps.start_us[1:]])
    )
    after = np.arange(len(steps)) >= 40
    late, on_time = (
        replace(
            job,
            steps=replace(
                job.steps.where(after),
                number=np.arange(after.sum()),
                start_us=np.append(START_US + first_s * SECOND_US, job.steps.start_us[after][1:]),
            ),
        )
        for job, first_s in ((late, 40), (on_time, 0))
    )
    main = found(verdict_of(together(on_time, late)), "late-start")

    assert main.title.replace("\u00a0", " ") == (
        "Rank 1 began its first step 40 s after the others, which waited for it"
    )
    assert main.share == pytest.approx(40 / 119)
    assert "before its first step" in main.advice[0]


def test_a_rank_without_time_in_steps_has_no_loop() -> None:
    steps = replace(make_steps([(5.0, 5.0)]), whole=True)

    assert keys(verdict_of(make_job(cpu=np.full((N, 2), 80.0), interval_s=1, steps=steps))) == []
    assert keys(verdict_of(make_job(cpu=np.full((N, 2), 80.0), interval_s=1, steps=Steps()))) == []


def test_the_time_of_a_restart_is_no_part_of_the_loop() -> None:
    first = make_steps([(t, t + 1.0) for t in np.arange(0, 20.0)], rank="0")
    second = make_steps([(t, t + 1.0) for t in np.arange(60, 80.0)], rank="0")
    steps = replace(joined_steps(first, second), whole=True)

    assert keys(verdict_of(make_job(cpu=np.full((N, 2), 80.0), interval_s=1, steps=steps))) == []


def test_under_a_cpu_limit_no_other_process_has_a_part_of_it() -> None:
    job = shared(0.5)
    limited = make_panel(Metric.MACHINE_CPU, np.full((N, 4), 50.0), interval_s=1, prefix="cpu")

    assert keys(verdict_of(job)) == ["other-processes"]
    extra = make_job(
        cpu=np.full((N, 2), 100.0),
        interval_s=1,
        extra=[make_panel(Metric.JOB_CPU, np.full(N // 5, 0.5), interval_s=5, prefix="cpu"), limited],
    )
    assert keys(verdict_of(extra)) == []
