"""When ``torch.compile`` compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current
from jobrecord.traces import now

if TYPE_CHECKING:
    from types import ModuleType


def attach(callback: ModuleType) -> str:
    """Record each compilation, by the callbacks for that."""
    begins: list[int] = []

    def begin(*_: Any) -> None:
        begins[:] = [now()]

    def end(*_: Any) -> None:
        if begins and (recording := current.current()):
            recording.add("torch.compile", "compile", begins.pop(), now())

    callback.callback_handler.register_start_callback(begin)
    callback.callback_handler.register_end_callback(end)
    return ""
