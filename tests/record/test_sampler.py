"""The sampler's clockwork, on sensors that a test makes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from jobrecord import facts, sampler
from jobrecord.files import Row
from jobrecord.sampler import Owner, Sampler
from jobrecord.sensors import Machine
from jobrecord.settings import Settings
from tests.record.recordings import rows
from tests.record.simulated import Time

#: Without an error of rounding, as a time that is added up.
INTERVAL_S = 0.125


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The sampler's clock, which moves by pauses only."""
    found = Time(0.0)
    monkeypatch.setattr(sampler, "time", found)
    return found


class Fixed:
    """A sensor with one row that pauses or raises."""

    def __init__(
        self,
        name: str,
        every_s: float = 0.0,
        *,
        pause: Callable[[], object] = lambda: None,
        error: Exception | None = None,
    ) -> None:
        self.every_s = every_s
        self.name = name
        self.pause = pause
        self.error = error
        self.readings = 0

    def rows(self) -> Iterable[Row]:
        self.readings += 1
        self.pause()
        if self.error:
            raise self.error
        yield Row("cpu", self.name, "CPUUtilization", self.readings)


class EndsAfter(Owner):
    """An owner that ends the recording at the given call."""

    def __init__(self, clock: Time, waits: int, *, gone: bool = False) -> None:
        super().__init__()
        self._clock = clock
        self._waits = waits
        self._will_be_gone = gone

    def wait(self, seconds: float) -> bool:
        self._waits -= 1
        if not self._waits:
            self.gone = self._will_be_gone
            self.ended.set()
        else:
            self._clock.sleep(max(0.0, seconds))
        return self.ended.is_set()


def run(out: Path, clock: Time, *sensors: Fixed, waits: int, gone: bool = False) -> Sampler:
    options = Settings(out=out, node="n", run="r", interval_s=INTERVAL_S)
    facts.claim(options, {})
    made = Sampler(options, Machine(pid=os.getpid()), sensors)
    made.run(EndsAfter(clock, waits, gone=gone))
    return made


def facts_of(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(facts.path(out, "n").read_text())
    return found


def test_rows_of_a_tick_have_one_time_and_each_sensor_its_cadence_but_for_the_last(
    tmp_path: Path, clock: Time
) -> None:
    run(tmp_path, clock, Fixed("fast"), Fixed("slow", 3 * INTERVAL_S), Fixed("rare", 60), waits=7)

    found = rows(tmp_path)

    names = [row["Name"] for row in found]
    assert [names.count(name) for name in ("fast", "slow", "rare")] == [8, 4, 2]
    assert len({row["Timestamp"] for row in found}) == 8
    assert len({row["Timestamp"] for row in found[:3]}) == 1


def test_the_end_of_the_job_does_not_wait_for_a_slow_sensor(tmp_path: Path, clock: Time) -> None:
    run(tmp_path, clock, Fixed("fast"), Fixed("slow", 60, pause=lambda: clock.sleep(1)), waits=3)

    names = [row["Name"] for row in rows(tmp_path)]
    assert [names.count(name) for name in ("fast", "slow")] == [4, 1]


def test_a_sensor_that_fails_costs_its_own_rows(tmp_path: Path, clock: Time) -> None:
    run(
        tmp_path,
        clock,
        Fixed("a", error=PermissionError(13, "Permission denied")),
        Fixed("b", error=KeyError("MemTotal")),
        Fixed("c"),
        waits=2,
    )

    assert {row["Name"] for row in rows(tmp_path)} == {"c"}
    assert facts_of(tmp_path)["left_out"] == [
        {"sensor": "Fixed", "reason": "Permission denied", "count": 3},
        {"sensor": "Fixed", "reason": "KeyError: 'MemTotal'", "count": 3},
    ]


def test_ticks_that_are_missed_are_not_made_up_for(tmp_path: Path, clock: Time) -> None:
    slow = Fixed("slow", pause=lambda: clock.sleep(2.5 * INTERVAL_S))
    run(tmp_path, clock, slow, waits=3)

    times = sorted(row["Timestamp"] for row in rows(tmp_path))

    # Each third one, and the last at once.
    assert [(b - a) / INTERVAL_S for a, b in itertools.pairwise(times)] == [3, 3, 2.5]
    assert facts_of(tmp_path)["late_ticks"] == 2 * 3


def test_a_step_of_the_wall_clock_is_in_the_facts(
    tmp_path: Path, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "time", lambda: clock.now_s + 3600 * (clock.now_s > 2 * INTERVAL_S))

    run(tmp_path, clock, Fixed("a"), waits=6)

    times = [row["Timestamp"] for row in rows(tmp_path)]
    assert facts_of(tmp_path)["clock_steps"] == 1
    assert max(times) - min(times) > 3600
    assert len(times) == 7


@pytest.mark.parametrize(("gone", "ended_by"), [(False, None), (True, "parent gone")])
def test_the_owner_writes_the_end_unless_it_is_gone(
    gone: bool, ended_by: str | None, tmp_path: Path, clock: Time
) -> None:
    run(tmp_path, clock, Fixed("a"), waits=2, gone=gone)

    found = facts_of(tmp_path)
    assert (found["ended_by"], found["ended_us"] is None) == (ended_by, not gone)
    assert not (tmp_path / "system/training_job_end.ts").exists()


def test_the_recorder_measures_itself(tmp_path: Path, clock: Time) -> None:
    run(tmp_path, clock, Fixed("a", pause=lambda: clock.sleep(0.02)), waits=5)

    found = facts_of(tmp_path)
    assert isinstance(found["tick_ms"], dict)
    assert 20 <= found["tick_ms"]["p50"] <= found["tick_ms"]["p99"]
    assert isinstance(found["overhead"], dict)
    assert found["overhead"]["sampler_cpu_s"] > 0


def test_facts_wait_for_room_on_the_disk(
    tmp_path: Path, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    fills = Fixed("a", pause=lambda: monkeypatch.setattr(facts, "write", full))
    made = run(tmp_path, clock, fills, waits=2)

    assert made.files.reason == "No space left on device"
    assert len(rows(tmp_path)) == 3
