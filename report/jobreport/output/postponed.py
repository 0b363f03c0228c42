"""Modules that others import at their start and that this package does not use."""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def postponed(name: str) -> Iterator[None]:
    """Within a ``with`` block, an import of the module gives a stand-in that imports it when it is first used."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = _StandIn(name)
    try:
        yield
    finally:
        # Others find the module itself.
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
