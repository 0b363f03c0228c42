"""Samples and tokens in a second, of jobs whose speed is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from jobrules.analyses.throughput import Throughput, throughput
from jobrules.model import JobInMemory, StepMark, Steps
from tests.jobs import joined_steps, make_events, make_steps

N = 210
#: An epoch of 21 batches, the last one with 10 of 50 samples.
EPOCHS = [50] * 20 + [10]


def rank(
    name: str,
    samples: Sequence[int] = EPOCHS,
    *,
    step_s: float = 0.1,
    inferred: bool = False,
    tokens: int = -1,
) -> Steps:
    """Steps that follow one another, of sizes that repeat."""
    ends = step_s * np.arange(1, N + 1)
    steps = make_steps(list(zip((ends - step_s).tolist(), ends.tolist(), strict=True)), rank=name)
    sizes = np.resize(np.array(samples, np.int64), N)
    return replace(
        steps,
        samples=sizes,
        tokens=np.where(sizes > 0, tokens, -1),
        inferred=np.full(N, inferred),
    )


def found(*steps: Steps, **facts: object) -> Throughput | None:
    return throughput(JobInMemory(name="job", steps=joined_steps(*steps), **facts))  # type: ignore[arg-type]


MEAN = sum(EPOCHS) / len(EPOCHS)
#: A loader that fetches a batch ahead, at the end of an epoch of 21: two before its first step, none before its last one.
AHEAD = [100, *[50] * 18, 10, -1]


@pytest.mark.parametrize(
    ("steps", "samples_per_s", "batch", "ranks"),
    [
        pytest.param([rank("0")], 10 * MEAN, 50, (1, 1), id="the last batch of an epoch is smaller"),
        pytest.param([rank("0"), rank("1")], 20 * MEAN, 100, (2, 2), id="ranks are added up"),
        pytest.param([rank("0"), rank("1", [30])], 10 * MEAN + 300, 80, (2, 2), id="each rank has its batch"),
        pytest.param([rank("0"), rank("1", [-1])], 10 * MEAN, None, (2, 1), id="one of two ranks says it"),
        pytest.param(
            [rank("0", [64, 64, -1])], 640, 64, (1, 1), id="what a script leaves out is as the rest"
        ),
        pytest.param([rank("0", [60, 0])], 300, 60, (1, 1), id="a script that says 0"),
        pytest.param([rank("0", AHEAD, inferred=True)], 10 * MEAN, 50, (1, 1), id="a batch is fetched ahead"),
        pytest.param([rank("0", step_s=0.4)], 2.5 * MEAN, 50, (1, 1), id="slower"),
    ],
)
def test_samples_of_all_steps_in_the_time_of_steps(
    steps: list[Steps], samples_per_s: float, batch: int | None, ranks: tuple[int, int]
) -> None:
    one = found(*steps)

    assert one
    assert one.samples_per_second == pytest.approx(samples_per_s, rel=1e-3)
    assert (one.batch_size, (one.ranks, one.ranks_known)) == (batch, ranks)
    assert one.tokens_per_second is None
    # Columns hold no whole epochs.
    assert np.mean([rate for rate in one.course if rate]) == pytest.approx(samples_per_s, rel=0.02)


def slow_start(steps: Steps) -> Steps:
    """The first 10 steps take a second each."""
    late = 900_000 * np.minimum(np.arange(N) + 1, 10)
    return replace(
        steps, start_us=steps.start_us + late - 900_000 * (np.arange(N) < 10), end_us=steps.end_us + late
    )


def evaluated(steps: Steps) -> Steps:
    """Ten seconds of evaluation after step 99."""
    late = 10_000_000 * (np.arange(N) >= 100)
    moved = replace(steps, start_us=steps.start_us + late, end_us=steps.end_us + late)
    return joined_steps(moved, make_steps([(10.0, 20.0)], phase="EVAL", rank="0"))


def profiled(steps: Steps) -> Steps:
    """Step 50 takes 9.9 s longer, under a profiler."""
    late = 9_900_000 * (np.arange(N) >= 50)
    mark = np.where(np.arange(N) == 50, StepMark.PROFILED, StepMark.NONE).astype(np.int8)
    return replace(steps, start_us=steps.start_us + np.roll(late, 1), end_us=steps.end_us + late, mark=mark)


def restarted(steps: Steps) -> Steps:
    """Step 100 is where a checkpoint is loaded 500 s later: steps 80 to 99 run again."""
    late = 500_000_000 * (np.arange(N) >= 100)
    number = np.arange(N) - 20 * (np.arange(N) >= 100)
    return replace(steps, start_us=steps.start_us + late, end_us=steps.end_us + late, number=number)


@pytest.mark.parametrize("changed", [slow_start, evaluated, profiled, restarted])
def test_what_is_no_step_is_no_part_of_the_time(changed: Callable[[Steps], Steps]) -> None:
    one = found(changed(rank("0", [32], tokens=4096)))

    assert one
    assert one.samples_per_second == pytest.approx(320, rel=1e-3)
    assert one.tokens_per_second == pytest.approx(40_960, rel=1e-3)
    rates = [rate for rate in one.course if rate]
    assert rates == pytest.approx([320] * len(rates), rel=0.01)


def test_steps_that_took_no_time_have_no_rate() -> None:
    """Of those that end together the first one holds a checkpoint."""
    steps = rank("0", [32])
    number = np.arange(N)
    end_us = steps.end_us + 5_000_000 * (number >= 100)
    end_us[100:150] = end_us[100]
    start_us = np.where((number > 100) & (number < 150), end_us, steps.start_us + 5_000_000 * (number >= 100))
    checkpoint = make_events([("Checkpoint", "Checkpoint", 10.0, 15.0)], rank="0")

    one = found(replace(steps, start_us=np.minimum(start_us, end_us), end_us=end_us), events=checkpoint)

    assert one
    assert all(rate is None or np.isfinite(rate) for rate in one.course)


def test_a_checkpoint_is_no_part_of_the_time() -> None:
    steps = rank("0", [32])
    late = 5_000_000 * (np.arange(N) >= 100)
    steps = replace(steps, start_us=steps.start_us + late, end_us=steps.end_us + late)

    one = found(steps, events=make_events([("Checkpoint", "Checkpoint", 10.0, 15.0)], rank="0"))

    assert one
    assert one.samples_per_second == pytest.approx(320, rel=1e-3)


@pytest.mark.parametrize(
    "steps",
    [rank("0", [-1]), rank("0", [0]), rank("0", [32, -1, -1]), rank("0", [32]).where(slice(10))],
    ids=str,
)
def test_no_size_of_most_steps_or_no_time_is_no_throughput(steps: Steps) -> None:
    assert found(steps) is None
