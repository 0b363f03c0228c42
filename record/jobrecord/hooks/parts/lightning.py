"""The Trainer of Lightning: each has our callback.

Its entry point for callbacks would print a line for each that it adds.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current

if TYPE_CHECKING:
    from types import ModuleType


def attach(trainer: ModuleType) -> str:
    """Add the callback to each Trainer that has none of ours, and record what saves."""
    kind = trainer.Trainer
    initialize, save = kind.__init__, getattr(kind, "save_checkpoint", None)

    @wraps(initialize)
    def initialized(self: Any, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options)
        from jobrecord.lightning import JobRecorder  # noqa: PLC0415 - needs Lightning

        callbacks = getattr(self, "callbacks", None)
        if isinstance(callbacks, list) and not any(isinstance(one, JobRecorder) for one in callbacks):
            # Those that save come last, by the rule of Lightning.
            callbacks.insert(0, JobRecorder())

    kind.__init__ = initialized
    if save is None:
        return ""

    @wraps(save)
    def saving(self: Any, *args: Any, **options: Any) -> Any:
        if (recording := current.current()) is None:
            return save(self, *args, **options)
        with recording.saving():
            return save(self, *args, **options)

    kind.save_checkpoint = saving
    return ""
