"""Jobs that are opened without files."""

from __future__ import annotations

from typing import cast

from jobreport.library.job import JobFrames
from jobreport.readers.registry import Reading
from jobreport.remarks import Quality
from jobreport.tables.engine import LocalEngine
from jobreport.tables.parts import JobInParts, Kept
from jobrules.model import Job, JobInMemory, Profile
from jobrules.model.learning import Learning


def opened(*nodes: Job, profiles: tuple[Profile, ...] = (), learning: Learning | None = None) -> JobFrames:
    """A job of these nodes."""
    kept = tuple(Kept(facts=part.facts[0], handles=[cast(JobInMemory, part)]) for part in nodes)

    def again() -> JobFrames:
        return opened(*nodes, profiles=profiles, learning=learning)

    job = JobInParts(name="job", engine=LocalEngine(1), kept=kept, profiles=profiles, learning=learning)
    return JobFrames(reload=again, reading=Reading(job=job, quality=Quality()), shown="job")
