"""The sampler's clockwork, on sensors that a test makes."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from jobrecord import facts
from jobrecord.files import Row
from jobrecord.sampler import Owner, Sampler
from jobrecord.sensors import Machine
from jobrecord.settings import Settings
from tests.record.recordings import rows


class Fixed:
    """A sensor with one row; raises or sleeps at chosen readings."""

    def __init__(
        self, name: str, every_s: float = 0.0, *, sleep_s: float = 0.0, error: Exception | None = None
    ) -> None:
        self.every_s = every_s
        self.name = name
        self.sleep_s = sleep_s
        self.error = error
        self.readings = 0

    def rows(self) -> Iterable[Row]:
        self.readings += 1
        time.sleep(self.sleep_s)
        if self.error:
            raise self.error
        yield Row("cpu", self.name, "CPUUtilization", self.readings)


class EndsAfter(Owner):
    """An owner that ends the recording at the given call."""

    def __init__(self, waits: int, *, gone: bool = False) -> None:
        super().__init__()
        self._waits = waits
        self._will_be_gone = gone

    def wait(self, seconds: float) -> bool:
        self._waits -= 1
        if not self._waits:
            self.gone = self._will_be_gone
            self.ended.set()
        else:
            time.sleep(max(0.0, seconds))
        return self.ended.is_set()


def run(out: Path, *sensors: Fixed, waits: int, gone: bool = False) -> Machine:
    options = Settings(out=out, node="n", run="r", interval_s=0.1)
    facts.claim(options, {})
    machine = Machine(pid=os.getpid())
    Sampler(options, machine, sensors).run(EndsAfter(waits, gone=gone))
    return machine


def facts_of(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(facts.path(out, "n").read_text())
    return found


def test_rows_of_a_tick_have_one_time_and_each_sensor_its_cadence(tmp_path: Path) -> None:
    run(tmp_path, Fixed("fast"), Fixed("slow", 0.3), Fixed("rare", 60), waits=7)

    found = rows(tmp_path)

    names = [row["Name"] for row in found]
    assert [names.count(name) for name in ("fast", "slow", "rare")] == [8, 3, 1]
    assert len({row["Timestamp"] for row in found}) == 8
    assert len({row["Timestamp"] for row in found[:3]}) == 1


def test_a_sensor_that_fails_costs_its_own_rows(tmp_path: Path) -> None:
    run(
        tmp_path,
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


def test_ticks_that_are_missed_are_not_made_up_for(tmp_path: Path) -> None:
    run(tmp_path, Fixed("slow", sleep_s=0.25), waits=3)

    times = sorted(row["Timestamp"] for row in rows(tmp_path))

    # At 0.0, 0.3, 0.6 s, and the last one at once.
    assert [round(b - a, 1) for a, b in itertools.pairwise(times)][:2] == [0.3, 0.3]
    assert int(str(facts_of(tmp_path)["late_ticks"])) >= 4


def test_a_step_of_the_wall_clock_is_in_the_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * (time.monotonic() > started + 0.25))

    run(tmp_path, Fixed("a"), waits=6)

    times = [row["Timestamp"] for row in rows(tmp_path)]
    assert facts_of(tmp_path)["clock_steps"] == 1
    assert max(times) - min(times) > 3600
    assert len(times) == 7


@pytest.mark.parametrize(("gone", "ended_by"), [(False, None), (True, "parent gone")])
def test_the_owner_writes_the_end_unless_it_is_gone(gone: bool, ended_by: str | None, tmp_path: Path) -> None:
    run(tmp_path, Fixed("a"), waits=2, gone=gone)

    found = facts_of(tmp_path)
    assert (found["ended_by"], found["ended_us"] is None) == (ended_by, not gone)
    assert not (tmp_path / "system/training_job_end.ts").exists()


def test_the_recorder_measures_itself(tmp_path: Path) -> None:
    run(tmp_path, Fixed("a", sleep_s=0.02), waits=5)

    found = facts_of(tmp_path)
    assert isinstance(found["tick_ms"], dict)
    assert 20 <= found["tick_ms"]["p50"] <= found["tick_ms"]["p99"]
    assert isinstance(found["overhead"], dict)
    assert found["overhead"]["sampler_cpu_s"] > 0


def test_facts_wait_for_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    options = Settings(out=tmp_path, node="n", run="r", interval_s=0.1)
    facts.claim(options, {})
    monkeypatch.setattr(facts, "write", full)
    sampler = Sampler(options, Machine(pid=1), [Fixed("a")])

    sampler.run(EndsAfter(2))

    assert sampler.files.reason == "No space left on device"
    assert len(rows(tmp_path)) == 3
