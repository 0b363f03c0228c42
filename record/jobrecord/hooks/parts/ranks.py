"""Forward and backward passes, and the exchange of gradients, of a module that several ranks train."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current

if TYPE_CHECKING:
    from types import ModuleType


def attach(distributed: ModuleType) -> str:
    """Watch each ``DistributedDataParallel``, unless the script watches a module itself."""
    kind = distributed.DistributedDataParallel
    initialize = kind.__init__

    @wraps(initialize)
    def initialized(self: Any, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options)
        if recording := current.current():
            recording.watch_by_itself(self)

    kind.__init__ = initialized
    return ""
