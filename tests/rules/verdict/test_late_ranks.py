"""Ranks that wait for a slow one, with and without samples of their GPUs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jobrules.model import Job, Metric, Panel, Severity, in_words
from tests.jobs import make_panel
from tests.rules.rank_jobs import FETCH, FORWARD, OPTIMIZER, in_step, slow
from tests.verdicts import keys, verdict_of


def sampled(n: int, gpu_percent: float | None) -> Callable[[float], tuple[Panel, ...]] | None:
    """GPUs, and 16 cores with little to do; None without GPUs."""
    if gpu_percent is None:
        return None

    def panels(seconds: float) -> tuple[Panel, ...]:
        ticks = int(2 * seconds) + 6
        spread = np.random.default_rng(1).uniform(-4, 4, (ticks, n))
        return (
            make_panel(Metric.GPU_UTILIZATION, gpu_percent + spread, node="node-0"),
            make_panel(Metric.CPU_UTILIZATION, np.full((ticks, 16), 20.0), node="node-0", prefix="cpu"),
        )

    return panels


def slow_job(n: int, kind: str, gpu_percent: float | None) -> Job:
    return in_step(n, {kind: slow(60, 1)}, steps=800, extra=sampled(n, gpu_percent))


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("gpu_percent", [None, 15.0, 92.0])
@pytest.mark.parametrize("kind", [FORWARD, OPTIMIZER])
def test_a_slow_rank_is_the_first_finding(n: int, kind: str, gpu_percent: float | None) -> None:
    verdict = verdict_of(slow_job(n, kind, gpu_percent))
    main = verdict.findings[0]

    assert (main.key, main.severity) == ("slow-rank", Severity.CRITICAL)
    assert main.title.startswith("Rank 1 is late by 60.")
    assert keys(verdict).count("slow-rank") == 1
    # GPUs that spin while they wait are used: what they lost says little.
    assert main.share_of == ("of GPU time" if gpu_percent == 15.0 else "of the training loop")
    assert main.share == pytest.approx(0.77 if gpu_percent != 15.0 else 0.7, abs=0.03)


@pytest.mark.parametrize("gpu_percent", [None, 15.0])
def test_a_rank_that_waits_for_data_is_late_for_that(gpu_percent: float | None) -> None:
    verdict = verdict_of(slow_job(8, FETCH, gpu_percent))

    assert keys(verdict) == ["data-loading"]
    assert "on rank 1" in verdict.findings[0].title


def test_a_slow_fetch_is_the_first_finding_though_all_gpus_count_as_used() -> None:
    main = verdict_of(slow_job(8, FETCH, 92.0)).findings[0]

    assert (main.key, main.share_of) == ("slow-rank", "of the training loop")
    assert "its batch fetch takes 68" in main.title
    assert "7\u00a0ranks wait for 76" in in_words(main.evidence)


@pytest.mark.parametrize("gpu_percent", [None, 92.0])
def test_healthy_ranks_and_independent_copies_give_none(gpu_percent: float | None) -> None:
    extra = sampled(2, gpu_percent)
    healthy = in_step(2, steps=4000, extra=extra)
    copies = in_step(2, {FETCH: slow(60, 1), FORWARD: slow(60, 0)}, steps=800, together=False, extra=extra)

    assert "slow-rank" not in keys(verdict_of(healthy))
    assert "slow-rank" not in keys(verdict_of(copies))
