"""How far two recordings of the same GPUs are apart in time."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.measures import curve_offset as curve_offset_module
from jobrules.measures.curve_offset import Curve, CurveOffset, curve_offset
from jobrules.model import SECOND_US

START_US = 1_700_000_000 * SECOND_US


def recorded(
    seed: int,
    *,
    later_s: float = 0.0,
    every_s: float = 1.0,
    use: str = "steps",
    noise: float = 3.0,
    gpus: int = 2,
) -> dict[str, Curve]:
    """An hour of some GPUs, as a sampler sees them whose clock is late by so much and who asks every so often."""
    at_random = np.random.default_rng(seed)
    seconds = np.arange(at_random.uniform(0, every_s), 3600, every_s)
    found = {}
    for gpu in range(gpus):
        if use == "steps":
            # Work in stretches of uneven length, the same for each sampler.
            ends = np.cumsum(np.random.default_rng(100 + gpu).uniform(5, 90, 200))
            values = np.where(np.searchsorted(ends, seconds) % 2, 95.0, 8.0)
        elif use == "periodic":
            values = np.where(seconds % 700 < 350, 95.0, 8.0)
        else:
            values = np.full(len(seconds), 100.0)
        values = np.clip(values + at_random.normal(0, noise, len(seconds)), 0, 100)
        time_us = START_US + np.rint((seconds + later_s) * SECOND_US).astype(np.int64)
        found[f"gpu{gpu}"] = time_us, values
    return found


@pytest.mark.parametrize("later_s", [0.0, 3.37, -61.2, 7200.5, -1_699_999_000.0])
@pytest.mark.parametrize("every_s", [0.5, 1.0, 5.0])
def test_the_offset_is_found_within_what_is_told_of_it(later_s: float, every_s: float) -> None:
    found = curve_offset(recorded(1, every_s=0.5), recorded(2, later_s=later_s, every_s=every_s))
    assert isinstance(found, CurveOffset)
    assert abs(found.us - later_s * SECOND_US) <= found.spread_us
    assert found.spread_us <= every_s * SECOND_US
    assert found.correlation > 0.8


def test_a_part_of_the_time_is_enough() -> None:
    log = {name: (t[1000:2200], v[1000:2200]) for name, (t, v) in recorded(2, later_s=100).items()}
    found = curve_offset(recorded(1), log)
    assert isinstance(found, CurveOffset)
    assert abs(found.us - 100 * SECOND_US) <= found.spread_us


def test_a_pause_is_no_use_of_none() -> None:
    holed = {
        name: (np.delete(t, np.s_[500:2000]), np.delete(v, np.s_[500:2000]))
        for name, (t, v) in recorded(1).items()
    }
    found = curve_offset(holed, recorded(2, later_s=-30))
    assert isinstance(found, CurveOffset)
    assert abs(found.us + 30 * SECOND_US) <= found.spread_us


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (recorded(1, use="full", noise=0), recorded(2), "varies too little"),
        (recorded(1), {"gpu7": recorded(2)["gpu0"]}, "no GPU alike"),
        (recorded(1, use="periodic"), recorded(2, use="periodic", later_s=50_000), "several offsets fit"),
    ],
)
def test_what_cannot_be_told_is_not_told(one: dict[str, Curve], other: dict[str, Curve], told: str) -> None:
    found = curve_offset(one, other)
    assert isinstance(found, str)
    assert told in found


@pytest.mark.parametrize("seed", range(5))
def test_other_gpus_do_not_fit(seed: int) -> None:
    at_random = np.random.default_rng(seed)
    other = {name: (t, np.repeat(at_random.uniform(0, 100, 60), 60)) for name, (t, _) in recorded(1).items()}
    assert "not alike" in str(curve_offset(recorded(1), other))


def test_of_offsets_that_fit_alike_the_usual_one_is_taken() -> None:
    found = curve_offset(recorded(1, use="periodic"), recorded(2, use="periodic", later_s=4))
    assert isinstance(found, CurveOffset)
    assert abs(found.us - 4 * SECOND_US) <= found.spread_us


def test_few_samples_far_apart_are_compared_in_few_cells() -> None:
    times = np.array([0, 300_000, 600_000, 70_000_000_000])

    assert curve_offset_module._width([((times, times / 1e9),) * 2]) > 1_000_000


def test_a_pause_of_a_week_does_not_hide_the_offset() -> None:
    one, other = (
        {gpu: (time_us[:600], values[:600]) for gpu, (time_us, values) in recorded(1, later_s=later).items()}
        for later in (0, 2)
    )
    week_us = 7 * 86400 * SECOND_US
    twice = {
        gpu: (np.append(time_us, time_us + week_us), np.append(values, values[::-1]))
        for gpu, (time_us, values) in one.items()
    }

    found = curve_offset(twice, other)

    assert isinstance(found, CurveOffset)
    assert abs(found.us - 2 * SECOND_US) <= found.spread_us
