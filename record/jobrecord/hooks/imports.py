"""A call when a module is imported, for libraries that only the training script imports."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call `call` with the module: now, or right after it is imported for the first time."""
    if module := sys.modules.get(name):
        call(module)
    else:
        _finder().calls.setdefault(name, []).append(call)


def time_imports(names: Iterable[str], timed: Callable[[str], AbstractContextManager[None]]) -> None:
    """Import each of these in the context that `timed` makes of its name."""
    finder = _finder()
    for name in names:
        if name not in sys.modules:
            finder.calls.setdefault(name, [])
            finder.timed[name] = timed(name)


def _finder() -> _Awaited:
    finder = next((one for one in sys.meta_path if isinstance(one, _Awaited)), None)
    if finder is None:
        finder = _Awaited()
        sys.meta_path.insert(0, finder)
    return finder


class _Awaited:
    """Finds modules as the finders behind it do, and calls what waits for them."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Callable[[ModuleType], None]]] = {}
        self.timed: dict[str, AbstractContextManager[None]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What another finder finds; a module that is awaited makes the calls when it is executed."""
        if name not in self.calls:
            return None
        # A finder may be of the old protocol.
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        spec = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if spec is None or execute is None:
            return spec

        def execute_and_call(module: ModuleType) -> None:
            if module.__name__ != name:  # a loader may be that of several modules
                execute(module)
                return
            with self.timed.pop(name, nullcontext()):
                execute(module)
            # Until here it may only have been asked whether the module is there.
            for call in self.calls.pop(name, ()):
                # The import is the script's.
                with suppress(Exception):
                    call(module)
            if not self.calls and self in sys.meta_path:
                sys.meta_path.remove(self)

        with suppress(AttributeError):
            spec.loader.exec_module = execute_and_call  # type: ignore[union-attr, method-assign]
        return spec
