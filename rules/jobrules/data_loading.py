"""How data was loaded: by how many processes, how long a fetch took, how many loaded at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.dataloader import Dataloader
    from jobrules.job import Job


@dataclass(frozen=True, kw_only=True)
class DataLoading:
    """What was recorded of data loading."""

    #: Recorded fetches.
    fetches: int


def data_loading(job: Job, rule: Dataloader) -> DataLoading | None:
    """The job's data loading; none where nothing of it was recorded."""
    return None
