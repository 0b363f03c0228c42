"""What was measured, as it is stored in ``results.json``."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of each job the last measurement.
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
class LeftOut:
    """A stage that was not run, or failed."""

    job: str
    stage: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Session:
    """When and where some jobs were measured, in turn."""

    #: Measures them again.
    command: str
    #: ISO 8601, UTC.
    date: str
    machine: dict[str, str]
    jobs: list[str]


@dataclass(frozen=True, kw_only=True)
class Results:
    """All runs of some jobs, each of one session."""

    sessions: list[Session]
    jobs: list[Facts]
    runs: list[Run]
    left_out: list[LeftOut]

    def with_older(self, older: Results, jobs: Sequence[str]) -> Results:
        """These results, and those of the jobs that only an older measurement has; in the order of ``jobs``."""
        kept = {one.job for one in older.jobs if one.job in jobs} - {one.job for one in self.jobs}
        sessions = [
            replace(one, jobs=own)
            for one in older.sessions
            if (own := [job for job in one.jobs if job in kept])
        ]
        found = [one for one in older.jobs if one.job in kept] + self.jobs
        return Results(
            sessions=sessions + self.sessions,
            jobs=sorted(found, key=lambda one: jobs.index(one.job)),
            runs=[one for one in older.runs if one.job in kept] + self.runs,
            left_out=[one for one in older.left_out if one.job in kept] + self.left_out,
        )

    def session(self, job: str) -> Session:
        """The session that measured a job."""
        return next(one for one in self.sessions if job in one.jobs)

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
        """The stored results."""
        return msgspec.json.decode(STORED.read_bytes(), type=Results)
