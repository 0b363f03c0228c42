"""What all sensors share: the contract, rates of counters, and reading of small files."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jobrecord.files import Row


class Sensor(Protocol):
    """A family of rows."""

    #: Shortest time between two readings, in seconds; 0 means at every tick.
    every_s: float

    def rows(self) -> Iterable[Row]:
        """Read once. A value that cannot be read gives no row, never 0. Raises OSError for a missing source."""
        ...


class LeftOut:
    """Sensors that gave no rows, with the reason and how often; for the facts."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, sensor: str, reason: str) -> None:
        """Count one reading that failed."""
        self._counts[sensor, reason] += 1

    def facts(self) -> list[dict[str, Any]]:
        """Rows of ``left_out``."""
        return [{"sensor": s, "reason": r, "count": n} for (s, r), n in self._counts.items()]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where sensors read, for which process, and where they note what they found; tests give it trees of their own."""

    pid: int
    #: Name of the recording's run, by which processes elsewhere belong to the job.
    run: str = ""
    #: Folder that stands for ``/``.
    root: Path = Path("/")
    clock: Callable[[], float] = time.monotonic
    left_out: LeftOut = field(default_factory=LeftOut)
    #: What sensors add to the facts of the recording.
    facts: dict[str, Any] = field(default_factory=dict)
    #: Processes that were seen, and whether each has the run in its environment.
    seen: dict[int, bool] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """Content of a file such as ``proc/stat``. Raises OSError."""
        with (self.root / path).open("rb", buffering=0) as file:
            # Files of the kernel are read in one go, so that all values are of one moment.
            data = file.read(1 << 20)
            while more := file.read(1 << 20):
                data += more
        return data.decode("utf-8", "replace")

    def number(self, path: str) -> int | None:
        """Number that a file holds; None if it holds none. Raises OSError."""
        text = self.text(path).strip()
        return int(text) if text.lstrip("-").isdecimal() else None


class Rates:
    """Growth of counters per second, by the measured time between two readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, count: float) -> float | None:
        """Rate since the last reading of `name`; None for the first one, and for a counter that fell."""
        now = self._clock()
        then, before = self._last.get(name, (now, count))
        self._last[name] = now, count
        return (count - before) / (now - then) if now > then and count >= before else None

    def keep(self, names: set[str]) -> None:
        """Forget all other counters."""
        self._last = {name: last for name, last in self._last.items() if name in names}

    def sum_per_second(self, counts: Mapping[str, float]) -> float | None:
        """Sum of the rates of several counters; None if there is none."""
        rates = [self.per_second(name, count) for name, count in counts.items()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None
