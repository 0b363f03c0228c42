"""How alike the GPUs of a node are loaded: histograms of their use, and the distances between these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrules.job import Job
    from jobrules.load_balancing import LoadBalancing


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The load of every GPU of the job."""

    #: Distance from which LoadBalancing triggers.
    limit: float


def balance(job: Job, rule: LoadBalancing) -> Balance | None:
    """The loads of all GPUs; none where no GPU was sampled."""
    return None
