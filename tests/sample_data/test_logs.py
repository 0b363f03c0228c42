"""Generated nvidia-smi logs: what they hold is plausible, and the same options give the same bytes."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import generate
import numpy as np
import pytest
from generator.hardware import POWER_CAP, THERMAL, TOP_MHZ, TOTAL_MIB, Gauges, gauges
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.smi_log import DIALECTS

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"
#: The first in every run of the tests, the others in ``make test-slow``.
SEEDS = (1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow))


@cache
def seen(name: str, seed: int = 1) -> Gauges:
    scenario = SCENARIOS[name]
    spec = JobSpec(
        scenario=scenario,
        steps=None,
        nodes=1,
        gpus=scenario.gpus,
        cores=1,
        duration_us=round(scenario.duration_s * 1e6),
        interval_us=10_000_000,
        start_us=1_741_080_077_500_000,
        seed=seed,
    )
    return gauges(spec, 1)


# --- Options and bytes -----------------------------------------------------------------------------


def test_both_forms_carry_the_same_values_at_the_same_milliseconds(tmp_path: Path) -> None:
    options = ["--scenario=throttled", "--duration=5m", "--form=both", "--dialect=epoch", f"--out={tmp_path}"]
    assert generate.main(options) == 0

    samples = {
        (m[3], m[1]): float(m[2])
        for path in tmp_path.rglob("*.json")
        for m in re.finditer(
            r'"Name":"gpu(\d)","Dimension":"GPUUtilization","Value":([\d.]+),.*"Timestamp":(\d+\.\d{3})000\}',
            path.read_text(),
        )
    }
    rows = list(csv.DictReader((tmp_path / "nvidia-smi.csv").read_text().splitlines()))
    log = {(row["timestamp"], row["gpu_index"]): float(row["utilization_gpu_percent"]) for row in rows}

    assert len(log) == 4 * 150
    assert log == samples


def test_the_readme_lists_the_dialects() -> None:
    text = (SAMPLE_DATA / "README.md").read_text(encoding="utf-8")

    table = "".join(f"| `{name}` | {one.summary} |\n" for name, one in DIALECTS.items())
    assert f"|---|---|\n{table}\n" in text


# --- What the machine does -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if one.logged])
def test_power_temperature_and_clock_stay_in_their_ranges(name: str) -> None:
    one = seen(name)

    assert one.power_w.min() > 50
    assert (one.power_w <= one.limit_w + 0.02 * one.limit_w).all()
    assert 28 < one.temperature_c.min() < one.temperature_c.max() < 95
    assert one.clock_mhz.min() == 210
    assert one.clock_mhz.max() == TOP_MHZ
    assert not (one.clock_mhz % 15).any()
    assert one.memory_mib.min() < 10
    assert one.memory_mib.max() < TOTAL_MIB
    assert (np.diff(one.timestamp_us) > 9_900_000).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_gpu_draws_power_and_grows_warm_and_keeps_its_memory(seed: int) -> None:
    one = seen("slow-clock", seed)
    idle, busy = one.use[:, 0] == 0, one.use[:, 0] > 90

    assert 0.02 < idle.mean() < 0.1
    assert busy.mean() > 0.9
    assert one.power_w[busy, 0].min() > 4 * one.power_w[idle, 0].max()
    assert 50 < np.median(one.temperature_c[busy, 0]) < 75
    # It takes minutes to grow warm and begins at once.
    first = int(np.argmax(busy))
    assert 0 < one.temperature_c[first + 2, 0] - one.temperature_c[first - 1, 0] < 20
    settled = one.memory_mib[first + 3 :]
    assert (settled == settled[0]).all()
    assert settled.min() > 0.6 * TOTAL_MIB


@pytest.mark.parametrize("seed", SEEDS)
def test_the_clock_of_a_hot_gpu_falls_and_its_use_does_not(seed: int) -> None:
    one = seen("throttled", seed)
    hot = one.reasons & THERMAL > 0

    assert not hot[:, [0, 1, 3]].any()
    assert 0.5 < hot[:, 2].mean() < 0.7
    late = one.use[:, 2] > 90
    late[: len(late) // 2] = False
    assert one.clock_mhz[late, 2].max() < 0.85 * TOP_MHZ
    assert (one.clock_mhz[late][:, [0, 1, 3]] == TOP_MHZ).all()
    assert one.power_w[late, 2].max() < one.power_w[late][:, [0, 1, 3]].min()
    assert one.temperature_c[:, 2].max() >= 85 > one.temperature_c[:, [0, 1, 3]].max() + 10
    assert abs(one.use[late, 2].mean() - one.use[late, 0].mean()) < 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_other_scenarios_differ_in_what_they_are_made_for(seed: int) -> None:
    idle, leaking, lopsided = (seen(name, seed) for name in ("idle-gpu", "leaking", "lopsided"))
    slow, capped, errors = (seen(name, seed) for name in ("slow-clock", "power-capped", "memory-errors"))
    full, gaps = seen("memory-full", seed), seen("idle-gaps", seed)

    assert idle.use[:, -1].max() == 0
    assert idle.memory_mib[:, -1].max() < 10
    assert idle.use[:, :-1].mean() > 85
    half = len(leaking.use) // 2
    grown = leaking.memory_mib[-1] - leaking.memory_mib[half]
    assert (grown > 0.1 * TOTAL_MIB).all()
    assert (np.diff(leaking.memory_mib, axis=0) >= 0).all()
    assert leaking.memory_mib.max() < 0.85 * TOTAL_MIB
    assert 0.7 < lopsided.use[:, -1].mean() / lopsided.use[:, 0].mean() < 0.8
    busy = slow.use[:, 0] > 50
    assert slow.clock_mhz[busy, 1].max() < 0.75 * np.median(slow.clock_mhz[busy, 0])
    assert ((capped.reasons & POWER_CAP) > 0).mean() > 0.9
    assert 0.6 * TOP_MHZ < np.median(capped.clock_mhz) < 0.9 * TOP_MHZ
    assert errors.corrected[0, 0] == 2
    assert errors.corrected[-1, 0] > 20
    assert errors.uncorrected[-1].tolist() == [1, 0, 0, 0]
    assert full.memory_mib[-1].min() > 0.95 * TOTAL_MIB
    assert 0.1 < (gaps.use == 0).mean() < 0.25


def test_the_committed_log_shows_what_it_is_for() -> None:
    path = SAMPLE_DATA / "throttled-4gpu" / "nvidia-smi.csv"
    rows = list(csv.DictReader(path.read_text().splitlines(), skipinitialspace=True))

    assert len(rows) == 4 * 1200
    assert {row["index"] for row in rows} == {"0", "1", "2", "3"}
    assert len({row["uuid"] for row in rows}) == 4
    hot = [row for row in rows if int(row["clocks_event_reasons.active"], 16) & THERMAL]
    assert {row["index"] for row in hot} == {"2"}
    assert min(int(row["clocks.current.sm [MHz]"].removesuffix(" MHz")) for row in hot) < 1000
    assert path.stat().st_size < 1_000_000
