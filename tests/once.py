"""What several workers of a test session need and the first of them makes for all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Path:
    """The folder of that name, which the function fills if no worker of this session has done so."""
    top = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent
    folder, made = top / name, top / f"{name}.made"
    with (top / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def slow_but(fast: Any, values: Iterable[Any]) -> list[Any]:
    """Values to parametrize with: one, or a set of several, in ``make test``, and the others in ``make test-slow``.

    A tuple is the values of several parameters.
    """
    chosen = fast if isinstance(fast, set) else {fast}
    values = list(values)
    assert chosen <= set(values)
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in chosen else pytest.mark.slow,
        )
        for value in values
    ]
