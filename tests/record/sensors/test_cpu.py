from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobrecord.sensors.cpu import Cores, shares
from tests.record.sensors.trees import machine, read, read_later

BEFORE = "cpu0 100 0 50 800 50 0 0 0 0 0"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("160 0 60 830 150 0 0 0", (35.0, 50.0)),
        # Steal, interrupts, and nice count as use.
        ("100 25 50 825 50 15 10 25", (75.0, 0.0)),
        # Guest time is inside user time.
        ("150 0 50 850 50 0 0 0 50 0", (50.0, 0.0)),
        # I/O wait fell, which kernels show.
        ("150 0 50 850 20 0 0 0", (50.0, 0.0)),
        ("100 0 50 800 50 0 0 0", None),
    ],
)
def test_shares_of_a_core(now: str, expected: tuple[float, float] | None) -> None:
    before, later = ([int(text) for text in line.split()] for line in (BEFORE[5:], now))

    found = shares(before, later)

    assert found == (pytest.approx(expected) if expected else None)


def stat(*cores: str) -> str:
    return "cpu  9 9 9 9 9 9 9 9\n" + "\n".join(cores) + "\nintr 5 5\nctxt 7\n"


def test_rows_need_two_readings(tmp_path: Path) -> None:
    of = machine(tmp_path, {"proc/stat": stat(BEFORE)})
    sensor = Cores(of, all_cores=True)

    first = read(sensor)
    later = read_later(sensor, of, {"proc/stat": stat("cpu0 160 0 60 830 150 0 0 0 0 0")})

    assert first == {}
    assert later == {("cpu", "cpu0", "CPUUtilization"): 35.0, ("cpu", "cpu0", "I/OWaitPercentage"): 50.0}


def test_cores_are_those_of_the_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 2})
    before = {"proc/stat": stat(*(f"cpu{n} 1 0 0 1 0 0 0 0" for n in range(4)))}
    later = {"proc/stat": stat(*(f"cpu{n} 2 0 0 2 0 0 0 0" for n in range(4)))}

    of = machine(tmp_path, before)
    names = {name for _, name, _ in read_later(Cores(of), of, later)}
    of = machine(tmp_path, before)
    all_names = {name for _, name, _ in read_later(Cores(of, all_cores=True), of, later)}

    assert names == {"cpu1", "cpu2"}
    assert len(all_names) == 4
    assert of.facts["cores"] == {"host": 4, "affinity": 2}


def test_4096_cores_and_one_that_goes_offline(tmp_path: Path) -> None:
    lines = [f"cpu{n} 1 0 0 1 0 0 0 0" for n in range(4096)]
    of = machine(tmp_path, {"proc/stat": stat(*lines)})

    later = read_later(
        Cores(of, all_cores=True), of, {"proc/stat": stat(*(line.replace(" 1", " 3") for line in lines[:-1]))}
    )

    assert len(later) == 2 * 4095
    assert set(later.values()) == {50.0, 0.0}


def test_the_job_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_pid: int) -> set[int]:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "sched_getaffinity", gone)
    of = machine(tmp_path, {"proc/stat": stat("cpu0 1 0 0 1 0 0 0 0")})

    later = read_later(Cores(of), of, {"proc/stat": stat("cpu0 2 0 0 2 0 0 0 0")})

    assert len(later) == 2
    assert of.left_out.facts() == [{"sensor": "affinity", "reason": "No such process", "count": 1}]
