"""Steps end with those of PyTorch's optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrecord.hooks import current

if TYPE_CHECKING:
    from types import ModuleType


def attach(optimizers: ModuleType) -> str:
    """Record this process; the recording asks the optimizers."""
    current.record_untouched()
    if not hasattr(optimizers, "register_optimizer_step_post_hook"):
        return "this PyTorch has no hooks for the steps of all optimizers"
    return ""
