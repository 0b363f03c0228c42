"""Whether the script evaluates: the last call of ``train`` or ``eval`` of a model says so."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current

if TYPE_CHECKING:
    from types import ModuleType


def attach(modules: ModuleType) -> str:
    """Note the mode of each module that changes it; the outermost one is the last to do so."""
    kind = modules.Module
    train = kind.train

    @wraps(train)
    def noted(self: Any, mode: bool = True) -> Any:
        found = train(self, mode)
        if recording := current.current():
            recording.evaluates = not mode
        return found

    kind.train = noted
    return ""
