"""What a watch needs of the report that a round wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from jobreport.files import FILES
from jobrules.model import Finding  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from pathlib import Path


class _Node(Struct):
    interval_s: float | None


class _Job(Struct):
    name: str
    start_us: int
    end_us: int
    nodes: tuple[_Node, ...]
    finished: bool | None


class _Verdict(Struct):
    findings: tuple[Finding, ...]


class _Run(Struct):
    end_us: int | None


class _Recording(Struct):
    runs: tuple[_Run, ...]


class _Source(Struct):
    recordings: tuple[_Recording, ...] = ()


class _Quality(Struct):
    sources: tuple[_Source, ...]


class Seen(Struct):
    """A part of ``report.json``."""

    job: _Job
    verdict: _Verdict
    quality: _Quality

    @property
    def has_ended(self) -> bool:
        """Whether the recording of every node has ended, or an end marker was found."""
        recordings = [one for source in self.quality.sources for one in source.recordings]
        ended = [one.runs[-1].end_us is not None for one in recordings]
        return all(ended) if ended else bool(self.job.finished)

    @property
    def quiet_s(self) -> float:
        """How long no sample must have come, so that this is worth a line."""
        return max(600.0, *(100 * (node.interval_s or 0.0) for node in self.job.nodes), 0.0)


def seen_in(folder: Path) -> Seen | None:
    """The report in a folder; None if it is none that this version wrote."""
    try:
        return msgspec.json.decode((folder / FILES["json"]).read_bytes(), type=Seen)
    except (OSError, ValueError, RecursionError):
        return None
