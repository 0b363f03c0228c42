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


def job_of(way: str, seed: int, slower: float, *, gpus: bool = True) -> tuple[Job, float]:
    """Profiled steps, then others; and the part of the job that the profiler took."""
    random = np.random.default_rng(seed)
    usual_s = random.uniform(0.7, 1.3, 800)
    usual_s[: random.integers(20, 40)] *= slower
    n = int((usual_s > 1.4).sum()) if slower > 2 else int(random.integers(20, 40))
    ends_s = 5 + np.cumsum(usual_s + 0.01)
    begins_s = ends_s - usual_s
    steps = make_steps([*zip(begins_s.tolist(), ends_s.tolist(), strict=True)])
    events = None
    if way == "operators":
        events = make_events(
            [("cpu_functions", "aten::add", at + 0.1, at + 0.2) for at in begins_s[:n].tolist()]
        )
    elif way == "mark":
        steps = replace(
            steps, mark=np.where(np.arange(len(steps)) < n, StepMark.PROFILED, 0).astype(steps.mark.dtype)
        )
    second = np.arange(int(ends_s[-1]) + 5)
    busy = (second >= ends_s[n - 1] if slower > 2 else second >= 5) & (second < ends_s[-1])
    job = make_job(
        gpu=np.where(busy, 92.0, 2.0) if gpus else None,
        cpu=np.full((len(second), 4), 30.0),
        interval_s=1,
        steps=steps,
        events=events,
    )
    if way == "python":
        end_us = START_US + int(1e6 * ends_s[n - 1])
        profile = Profile(
            node="algo-1",
            rank="33",
            profiler="cProfile",
            start_us=START_US,
            end_us=end_us,
            begin="",
            end="",
            functions=(),
            count=0,
            self_s=0.0,
        )
        job = replace(job, profiles=(profile,))
    extra_s = float(np.maximum(0, usual_s[:n] - np.median(usual_s[n:])).sum())
    return job, extra_s / len(second)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("slower", [5.5, 20.0, 45.0])
def test_what_profiled_steps_take_longer_is_the_profilers(way: str, slower: float) -> None:
    job, part = job_of(way, int(slower), slower)
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


def test_without_gpus_it_is_a_part_of_the_loop() -> None:
    job, part = job_of("operators", 8, 30.0, gpus=False)
    profiling = found(verdict_of(job), "profiling")

    assert profiling.share == pytest.approx(part, abs=0.03)
    assert profiling.share_of == "of the training loop"
