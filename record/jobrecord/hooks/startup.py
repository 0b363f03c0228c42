"""What a process does before its first step: imports, and what takes long in libraries."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import wraps
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

from jobrecord.hooks.imports import time_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jobrecord.traces import Trace

LANE = "Start-up"
#: Libraries that may take seconds to import.
LIBRARIES = (
    *("torch", "torch._dynamo", "torchvision", "transformers", "datasets", "accelerate", "lightning"),
    *("pytorch_lightning", "deepspeed", "keras", "tensorflow", "jax", "flax"),
    *("numpy", "pandas", "scipy", "sklearn", "cv2"),
)
#: Far more parts than a script has.
_MAX_PARTS = 1000


class _Parts:
    """What took how long, until the first step ended: then they are written, and nothing is measured any more."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self.is_open = False
        self._is_within = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure a part, unless it is within another one or in another thread."""
        is_own = threading.get_ident() == threading.main_thread().ident
        if not self.is_open or self._is_within or not is_own:
            yield
            return
        self._is_within, began = True, now()
        try:
            yield
        finally:
            self._is_within = False
            if len(self.rows) < _MAX_PARTS:
                self.rows.append((name, began, now()))


parts = _Parts()


def begin() -> None:
    """Begin with this process."""
    parts.is_open = True
    parts.rows.append(("process", now(), now()))
    time_imports(LIBRARIES, lambda name: parts.part(f"import {name}"))


def write(trace: Trace) -> None:
    """Write what was measured, once."""
    parts.is_open = False
    for name, begin_ns, end_ns in parts.rows:
        trace.add(LANE, name, begin_ns, end_ns)
    parts.rows.clear()


def measured(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, whose calls are parts of the start-up."""

    @wraps(call)
    def calling(*args: Any, **options: Any) -> Any:
        if not parts.is_open:
            return call(*args, **options)
        with parts.part(name):
            return call(*args, **options)

    return calling
