"""What the verdict says of the training itself: used time that did not improve the model, and the place of its findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace as with_fields

from jobrules import RULES
from jobrules.model import AlsoSeenAs, Job, Note, Severity
from jobrules.model.learning import VAL_LOSS, Scalars
from jobrules.rules.learning import LEARNING_RULES
from jobrules.verdict.findings import Verdict
from jobrules.verdict.learning import LossReason
from jobrules.verdict.not_evaluated import by_reason
from tests.copies import replace
from tests.jobs import make_job
from tests.learning_data import START_US, counted, learning_job, matrix, scalars, tensors
from tests.verdicts import found, keys, verdict_of

ALL = tuple(kind() for kind in dict.fromkeys((*RULES, *LEARNING_RULES)))
#: Seconds of a job.
N = 1200


def judged(*series: Scalars, machine: Job | None = None, **known: Any) -> Verdict:
    job = learning_job(*series, **known)
    verdict = verdict_of(replace(machine, learning=job.learning) if machine else job, *ALL)
    # Each verdict can be written and read again.
    assert decode(encode(verdict), type=Verdict) == verdict
    return verdict


def machine(gpu: list[float], cpu: list[list[float]] | None = None) -> Job:
    """A sample a second."""
    return make_job(gpu=gpu, cpu=cpu, interval_s=1.0, start_us=START_US)


def busy(percent: float = 95.0) -> Job:
    return machine([percent] * (N + 1))


def loss_in(*values: float) -> Scalars:
    """These values, spread over the job."""
    return scalars(values, step_s=N / len(values))


def falling(n: int = 600) -> list[float]:
    return list(2 * np.exp(-np.arange(n) / 150) + 0.1)


def nan_from(part: float, n: int = 600) -> Scalars:
    values = np.array(falling(n))
    values[round(part * n) :] = np.nan
    return loss_in(*values)


def test_the_vector() -> None:
    verdict = judged(loss_in(2, 1, np.nan, np.nan), machine=busy(100.0))

    assert verdict.learning
    assert (verdict.learning.reason, verdict.learning.since_step) == (LossReason.NON_FINITE, 2)
    assert verdict.learning.since_us == START_US + N // 2 * 1_000_000
    assert (verdict.learning.share, verdict.learning.gpu_s) == (0.5, N / 2)
    assert verdict.learning.sentence == (
        "50.0% of the used GPU time came after numbers became NaN or infinite (step 2)"
    )
    assert found(verdict, "exploding-tensor").severity is Severity.CRITICAL


def test_shares_are_of_the_used_time_of_the_bar() -> None:
    """Two GPUs that do less and less; half of what they used is used after step 300."""
    gpu = np.linspace(100, 0, N + 1)
    verdict = judged(nan_from(0.5), machine=machine(np.stack([gpu, gpu / 2], axis=1).tolist()))

    assert verdict.learning
    assert verdict.use
    assert verdict.learning.share == pytest.approx(0.25, abs=0.002)
    assert verdict.learning.gpu_s == pytest.approx(0.25 * 3600 * verdict.use.of("used")[0], rel=0.01)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("has_gpu", [True, False])
def test_without_times_or_gpu_samples_it_is_the_share_of_steps(timed: bool, has_gpu: bool) -> None:
    values = [2.0] * 75 + [np.nan] * 25
    verdict = judged(scalars(values, step_s=12.0, timed=timed), machine=busy() if has_gpu else None)

    assert verdict.learning
    assert verdict.learning.share == pytest.approx(0.25, abs=0.001)
    assert (verdict.learning.gpu_s is None) == (not (timed and has_gpu))
    whole = "used GPU time" if timed and has_gpu else "steps"
    assert verdict.learning.sentence.startswith(f"25.0% of the {whole} came after")


def test_a_share_of_steps_is_at_most_all() -> None:
    """The loss is logged from step 100 on, gradients from step 0."""
    rows = {matrix("w"): [{"rms": 1.0, "nan": 1.0}] * 10}

    learning = judged(scalars([np.nan] * 100, steps=range(100, 200)), tensors=tensors(rows)).learning

    assert learning
    assert (learning.since_step, learning.share) == (0, 1.0)


def test_a_loss_that_the_last_rank_alone_logs_is_that_of_the_training() -> None:
    assert judged(scalars([1.0, np.nan], rank=7)).learning


@pytest.mark.parametrize("late_s", [0, 5])
def test_samples_may_begin_after_the_training(late_s: int) -> None:
    samples = make_job(gpu=[100.0] * N, interval_s=1.0, start_us=START_US + late_s * 1_000_000)

    learning = judged(scalars([2.0] * N), machine=samples).learning

    assert learning
    assert (learning.share, learning.gpu_s) == (1.0, N - 1)


def test_times_of_another_day_are_not_those_of_the_samples() -> None:
    late = with_fields(nan_from(0.5), time_us=nan_from(0.5).time_us + 86_400_000_000)

    learning = judged(late, machine=busy()).learning

    assert learning
    assert (learning.share, learning.gpu_s) == (0.5, None)


CHANCE = [2.303] * 200
OVERFITTED = scalars(
    [1, 0.8, 0.5, 0.4, *np.linspace(0.45, 0.9, 16)],
    VAL_LOSS,
    mode="EVAL",
    steps=[60 * (i + 1) for i in range(20)],
)


@pytest.mark.parametrize(
    ("series", "classes", "reason", "share"),
    [
        ([loss_in(*CHANCE, np.nan)], 10, LossReason.NON_FINITE, 0.005),
        ([loss_in(*CHANCE)], 10, LossReason.CHANCE, 1.0),
        ([loss_in(*CHANCE)], None, LossReason.NOT_DECREASING, 1.0),
        ([scalars(falling(1200)), OVERFITTED], None, LossReason.AFTER_BEST, 0.8),
        ([loss_in(*[1.0] * 50, *[0.5] * 50, *[1.0] * 100)], None, LossReason.NOT_DECREASING, 1.0),
        ([loss_in(*falling(300), 5.0, 5.0, *falling(600)[300:])], None, None, 0),
    ],
)
def test_only_the_first_reason_counts(
    series: list[Scalars], classes: int | None, reason: LossReason | None, share: float
) -> None:
    learning = judged(*series, machine=busy(), class_count=classes).learning

    if reason is None:
        assert not learning
    else:
        assert learning
        assert learning.reason is reason
        assert learning.share == pytest.approx(share, abs=0.006)


def test_a_jump_that_does_not_end() -> None:
    loss = [10 - 0.01 * i for i in range(600)] + [8.0 - 0.001 * i for i in range(600)]
    validation = scalars(np.linspace(2, 1, 20).tolist(), VAL_LOSS, steps=list(range(59, 1200, 60)))
    learning = judged(scalars(loss), validation, machine=busy()).learning

    assert learning
    assert learning.reason is LossReason.SPIKES
    assert learning.sentence == (
        "50.0% of the used GPU time came after a jump of the loss that did not end (step 600)"
    )


# Order


def held_up(idle: float) -> Job:
    """A GPU that idles at all cores for a part of each second minute."""
    waits = (np.arange(N + 1) % 60) < 60 * idle
    gpu = np.where(waits, 0.0, 100.0)
    cpu = np.where(waits[:, None], [99.0] * 8, 20.0)
    return machine(gpu.tolist(), cpu.tolist())


@pytest.mark.parametrize(
    ("since", "idle", "first"),
    [
        # 0.5 of the 0.7 that was used are more than the 0.3 that were lost; 0.35 of it are not.
        (0.5, 0.3, ["exploding-tensor", "cpu-bottleneck"]),
        (0.65, 0.3, ["cpu-bottleneck", "exploding-tensor"]),
        # A warning of the machine comes first, too.
        (0.95, 0.1, ["cpu-bottleneck", "exploding-tensor"]),
        (0.8, 0.1, ["exploding-tensor", "cpu-bottleneck"]),
    ],
)
def test_a_dead_training_comes_first_if_it_took_more_than_the_machine_lost(
    since: float, idle: float, first: list[str]
) -> None:
    verdict = judged(nan_from(since), machine=held_up(idle))

    assert keys(verdict)[:2] == first
    assert verdict.lead
    assert verdict.lead.key == first[0]
    # The bar is that of the machine.
    without = verdict_of(held_up(idle), *ALL)
    assert verdict.use == without.use


def test_a_hang_at_the_end_is_a_dead_training() -> None:
    job = replace(machine([95.0] * 3601), finished=None)
    hung = judged(scalars(falling(600)), machine=job)

    assert keys(hung)[0] == "stalled-training"
    assert hung.findings[0].severity is Severity.CRITICAL
    assert not hung.learning


@pytest.mark.parametrize("idle", [0.1, 0.3])
def test_other_findings_on_the_training_come_after_causes_of_the_machine(idle: float) -> None:
    """Even one that is critical, if it is not about the whole rest of the job."""
    rising = judged(loss_in(*np.linspace(1, 3, 600)), machine=held_up(idle))
    steady = judged(scalars(falling(1200)), OVERFITTED, machine=held_up(idle))

    assert keys(rising)[:2] == ["cpu-bottleneck", "loss-not-decreasing"]
    assert found(rising, "loss-not-decreasing").severity is Severity.CRITICAL
    assert keys(steady)[0] == "cpu-bottleneck"
    assert keys(steady)[1:] == ["overfit"]
    assert found(steady, "overfit").rules == ("Overfit", "Overtraining")


def test_findings_that_share_a_cause_are_told_once() -> None:
    verdict = judged(loss_in(*CHANCE), machine=busy(), class_count=10)

    assert keys(verdict) == ["loss-not-decreasing"]
    (finding,) = verdict.findings
    assert finding.rules == ("LossNotDecreasing", "LossAtChance", "Overtraining")
    assert finding.severity is Severity.CRITICAL
    assert Note("Gradients were not recorded") in finding.evidence
    assert [one.text.replace("\u00a0", " ") for one in finding.evidence if isinstance(one, AlsoSeenAs)] == [
        "the loss is that of guessing among 10 classes (2.303)",
        "95.5% of the training time (0.317 GPU-hours) came after the best training loss (step 9)",
    ]


def test_confused_classes_are_no_finding_of_their_own_where_the_cause_is_known() -> None:
    largest = counted([950, *[50] * 5], [(label, 0, n) for label, n in enumerate([950, *[50] * 5])])
    imbalance = judged(scalars(falling()), classes=(largest,))
    chance = judged(
        scalars([1.79] * 100), classes=(counted([50] * 6, [(label, 0, 50) for label in range(6)]),)
    )

    assert keys(imbalance) == ["class-imbalance"]
    assert found(imbalance, "class-imbalance").rules == ("ClassImbalance", "Confusion")
    assert keys(chance) == ["loss-not-decreasing"]
    assert "Confusion" in found(chance, "loss-not-decreasing").rules


# What is missing


def test_a_job_of_which_nothing_but_a_loss_is_known() -> None:
    healthy, flat = judged(scalars(falling())), judged(scalars([2.0] * 100))

    assert (healthy.use, healthy.findings, healthy.lead) == (None, (), None)
    assert keys(flat) == ["loss-not-decreasing"]
    assert flat.lead
    assert flat.advice_head == "Try first"
    # What would show lost time is recorded next, not gradients.
    assert healthy.advice[0].startswith("GPU utilization, loader events, and steps, ")


@pytest.mark.parametrize("job", [make_job(), busy(), held_up(0.3), make_job(cpu=[50.0] * 100)])
def test_a_job_without_any_record_of_its_training_is_judged_as_if_there_were_no_rules_on_it(job: Job) -> None:
    assert verdict_of(job, *ALL) == verdict_of(job, *(rule for rule in ALL if not rule.of_learning))


def test_rules_that_lack_something_are_named_and_counted() -> None:
    verdict = judged(scalars(falling()), machine=busy())
    machine_only = verdict_of(busy(), *ALL)

    more = {one.rule for one in verdict.not_evaluated} - {one.rule for one in machine_only.not_evaluated}
    assert {"Confusion", "NLPSequenceRatio", "TreeDepth"} <= more
    assert verdict.rules - machine_only.rules == len(LEARNING_RULES) - 2
    (group,) = (one for one in by_reason(verdict.not_evaluated) if one.head == "Not recorded")
    assert "labels and predictions (ClassImbalance, Confusion)" in str(group)
