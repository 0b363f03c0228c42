"""Trees that stand for ``/``, and readings of sensors on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobrecord.sensors.base import Machine, Sensor

#: The job's process in the trees.
PID = 100


@dataclass
class Clock:
    """A clock that moves when a test says so."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def fill(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def machine(root: Path, files: dict[str, str] | None = None) -> Machine:
    fill(root, files or {})
    return Machine(pid=PID, root=root, clock=Clock())


def read(sensor: Sensor) -> dict[tuple[str, ...], float]:
    """One reading: values by type, name, and dimension, rounded as they are written."""
    return {row[:3]: round(row.value, 2) for row in sensor.rows()}


def read_later(
    sensor: Sensor, of: Machine, files: dict[str, str], seconds: float = 2.0
) -> dict[tuple[str, ...], float]:
    """A reading, then `files` change, then the next reading after `seconds`."""
    read(sensor)
    fill(of.root, files)
    assert isinstance(of.clock, Clock)
    of.clock.now_s += seconds
    return read(sensor)
