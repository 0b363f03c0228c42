"""A profiler that makes steps longer is a cause of lost time."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import Job, Profile, Severity, StepMark, in_words
from tests.copies import replace
from tests.jobs import START_US, make_events, make_job, make_steps
from tests.verdicts import found, keys, parts, verdict_of

#: How a record shows which steps were profiled.
WAYS = ("operators", "python", "mark")


def job_of(
    way: str,
    seed: int,
    slower: float,
    *,
    gpus: bool = True,
    first: int = 0,
    n: int | None = None,
    warm_up: tuple[float, ...] = (),
) -> tuple[Job, float]:
    """Steps of which ``n`` are profiled from the ``first`` on, which makes them ``slower``, after times of warm-up; and
    the part of the job that the profiler took.
    """
    random = np.random.default_rng(seed)
    n = n or int(random.integers(20, 40))
    profiled = slice(first, first + n)
    usual_s = random.uniform(0.7, 1.3, 800)
    usual_s[profiled] *= slower
    usual_s[: len(warm_up)] = warm_up
    extra_s = float(np.maximum(0, usual_s[profiled] - 1.0).sum())
    ends_s = 5 + np.cumsum(usual_s + 0.01)
    begins_s = ends_s - usual_s
    steps = make_steps([*zip(begins_s.tolist(), ends_s.tolist(), strict=True)])
    events = None
    if way == "operators":
        events = make_events(
            [("cpu_functions", "aten::add", at + 0.1, at + 0.2) for at in begins_s[profiled].tolist()]
        )
    elif way == "mark":
        mark = np.zeros_like(steps.mark)
        mark[profiled] = StepMark.PROFILED
        steps = replace(steps, mark=mark)
    second = np.arange(int(ends_s[-1]) + 5)
    inside = (second >= begins_s[first]) & (second < ends_s[first + n - 1])
    busy = (second >= 5) & (second < ends_s[-1]) & ~(inside & (slower > 2 or bool(warm_up)))
    job = make_job(
        gpu=np.where(busy, 92.0, 2.0) if gpus else None,
        cpu=np.full((len(second), 4), 30.0),
        interval_s=1,
        steps=steps,
        events=events,
    )
    if way == "python":
        profile = Profile(
            node="algo-1",
            rank="33",
            profiler="cProfile",
            start_us=START_US + int(1e6 * begins_s[first]),
            end_us=START_US + int(1e6 * ends_s[first + n - 1]),
            begin="",
            end="",
            functions=(),
            count=0,
            self_s=0.0,
        )
        job = replace(job, profiles=(profile,))
    return job, extra_s / len(second)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("slower", "first"), [(5.5, 0), (20.0, 5), (45.0, 200)])
def test_what_profiled_steps_take_longer_is_the_profilers(way: str, slower: float, first: int) -> None:
    job, part = job_of(way, int(slower), slower, first=first)
    verdict = verdict_of(job)
    profiling = found(verdict, "profiling")

    assert profiling is verdict.main_finding
    assert profiling.severity is (Severity.CRITICAL if part > 0.21 else Severity.WARNING)
    assert parts(verdict)["profiling"] == pytest.approx(100 * part, abs=3)
    assert profiling.title.startswith("The profiler makes steps longer: ")
    assert "Profiled steps: " in in_words(profiling.evidence)


@pytest.mark.parametrize("way", WAYS)
def test_steps_that_are_little_longer_are_none(way: str) -> None:
    job, _ = job_of(way, 7, 1.3)

    assert "profiling" not in keys(verdict_of(job))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [3, 6, 30])
def test_warm_up_is_not_the_profilers(way: str, n: int) -> None:
    """Was: the profiler makes steps longer, 20 s while it records."""
    job, _ = job_of(way, n, 1.0, n=n, warm_up=(90.0, 42.5, 31.0, 17.0, 8.0))

    assert "profiling" not in keys(verdict_of(job))


def test_of_warm_up_the_profiler_takes_as_much_as_of_other_steps() -> None:
    job, _ = job_of("operators", 9, 6.0, n=25, warm_up=(300.0, 60.0))
    _, part = job_of("operators", 9, 6.0, n=25)

    assert parts(verdict_of(job))["profiling"] == pytest.approx(100 * part, abs=5)


@pytest.mark.parametrize("first", [100, 311])
def test_a_few_profiled_steps_of_many_are_no_finding(first: int) -> None:
    """Was: the main finding, of 0.3% of the training loop; no word of free cores."""
    job, _ = job_of("mark", first, 2.0, gpus=False, first=first, n=3)
    verdict = verdict_of(job)

    assert "profiling" not in keys(verdict)
    assert found(verdict, "free-cores")


def test_without_gpus_it_is_a_part_of_the_loop() -> None:
    job, part = job_of("operators", 8, 30.0, gpus=False)
    profiling = found(verdict_of(job), "profiling")

    assert profiling.share == pytest.approx(part, abs=0.03)
    assert profiling.share in np.arange(1001) / 1000
    assert profiling.share_of == "of the training loop"
