"""Waits for the batches of each ``DataLoader``, as ``jobrecord.data`` records them."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current, loading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


def attach(dataloader: ModuleType) -> str:
    """Let each iterator over a ``DataLoader`` be a recorded one."""
    loader = dataloader.DataLoader
    begin = loader.__iter__

    @wraps(begin)
    def iterate(self: Any) -> Iterator[Any]:
        recording = current.current()
        if recording is None or not recording.is_open or recording.is_elsewhere():
            return begin(self)  # type: ignore[no-any-return]
        return loading.recorded(recording, self, begin, loading.note_workers(recording.trace, self))

    loader.__iter__ = iterate
    return ""
