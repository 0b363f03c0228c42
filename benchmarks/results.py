"""What was measured, as it is stored in ``results.json``."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

#: One run of ``make bench``.
STORED = Path(__file__).with_name("results.json")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a job holds, counted in its files."""

    job: str
    #: Of the generator.
    options: str
    files: int
    samples: int
    sample_bytes: int
    events: int
    trace_bytes: int
    log_bytes: int = 0
    #: Digest of the generator's program.
    generator: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a process cost, with all processes that it started."""

    job: str
    stage: str
    cpu_s: float
    wall_s: float
    #: Largest sum of resident memory over the processes, where shared pages count in each of them.
    peak_bytes: float
    #: By read and write calls, from the disk or from the cache.
    read_bytes: float
    written_bytes: float
    #: Files of the report and their sizes.
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Results:
    """All runs of one go."""

    #: Makes them again.
    command: str
    #: ISO 8601, UTC.
    date: str
    machine: dict[str, str]
    jobs: list[Facts]
    runs: list[Run]
    #: Stages that were not run or failed, a line each with the reason.
    left_out: list[str]

    def of(self, job: str, stage: str) -> list[Run]:
        """Every run of a stage."""
        return [run for run in self.runs if (run.job, run.stage) == (job, stage)]

    def median(self, job: str, stage: str, column: str) -> float | None:
        """Middle of a column of a stage's runs, none where there is none."""
        values = [getattr(run, column) for run in self.of(job, stage)]
        return statistics.median(values) if values else None

    def ratio(self, column: str, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        """Median of a column of a job's stage, over that of another."""
        above, below = self.median(*one, column), self.median(*other, column)
        return above / below if above is not None and below else None

    def to_json(self) -> bytes:
        """Indented, so that a diff can be read."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @staticmethod
    def load() -> Results:
        """The stored run."""
        return msgspec.json.decode(STORED.read_bytes(), type=Results)
