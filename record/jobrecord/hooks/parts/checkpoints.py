"""Checkpoints: the functions that save them."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

#: Of each library, those that return when the file is written; the last one before, when the copy is made.
_SAVE = {
    "torch.serialization": ("save",),
    "safetensors.torch": ("save_file", "save_model"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
}


def attach(library: ModuleType) -> str:
    """Record the calls of what saves."""
    names = [name for name in _SAVE[library.__name__] if callable(getattr(library, name, None))]
    for name in names:
        setattr(library, name, _recorded(getattr(library, name), library.__name__ == "torch.serialization"))
    return "" if names else f"{library.__name__} has no {_SAVE[library.__name__][0]}"


def _recorded(save: Callable[..., Any], may_be_no_file: bool) -> Callable[..., Any]:
    @wraps(save)
    def saving(*args: Any, **options: Any) -> Any:
        recording = current.current()
        if recording is None or (may_be_no_file and not _is_file(*args, **options)):
            return save(*args, **options)
        with recording.saving():
            return save(*args, **options)

    return saving


def _is_file(_obj: object = None, f: object = None, *_: object, **__: object) -> bool:
    """Whether ``torch.save`` writes to a disk, not to memory."""
    return isinstance(f, (str, os.PathLike)) or isinstance(getattr(f, "name", None), (str, int))
