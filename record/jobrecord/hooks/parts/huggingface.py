"""The Trainer of Hugging Face's transformers: its default callbacks have ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def attach(trainer: ModuleType) -> str:
    """Add the callback to those that each Trainer has."""
    callbacks = getattr(trainer, "DEFAULT_CALLBACKS", None)
    if not isinstance(callbacks, list):
        return "transformers.trainer has no list of default callbacks"
    from jobrecord.huggingface import AddedCallback  # noqa: PLC0415 - needs transformers

    callbacks.append(AddedCallback)
    return ""
