"""A call when a module is imported, for libraries that only the training script imports."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call `call` with the module: now, or right after it is imported for the first time."""
    if module := sys.modules.get(name):
        call(module)
    else:
        sys.meta_path.insert(0, _Awaited(name, call))


class _Awaited(MetaPathFinder):
    """Finds one module as usual, then removes itself."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name, self._call = name, call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            self._call(module)

        spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec
