"""The part of PyTorch's interface that steps need, so that they are tested where it is not installed.

Used only for what does not depend on PyTorch's own behavior; that is tested in ``test_torch.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SOURCE = """
class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)
    def remove(self):
        self.hooks.remove(self.hook)

before, after = [], []

def register_optimizer_step_pre_hook(hook):
    return Handle(before, hook)

def register_optimizer_step_post_hook(hook):
    return Handle(after, hook)

class Optimizer:
    def step(self):
        for hook in before:
            hook(self, (), {})
        for hook in after:
            hook(self, (), {})
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``torch.optim.optimizer`` importable, not imported yet."""
    for name in ("torch", "torch.optim"):
        package = folder / Path(*name.split("."))
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    (folder / "torch" / "optim" / "optimizer.py").write_text(_SOURCE)
    monkeypatch.syspath_prepend(folder)
    for name in list(sys.modules):
        if name.partition(".")[0] == "torch":
            monkeypatch.delitem(sys.modules, name)


class Loader:
    """The settings of a ``DataLoader`` that loads in the training process."""

    def __init__(self, batches: int, prepare: Callable[[int], Any] = lambda batch: batch) -> None:
        self.num_workers, self.pin_memory, self.batches, self.prepare = 0, False, batches, prepare

    def __iter__(self) -> _SingleProcessDataLoaderIter:
        return _SingleProcessDataLoaderIter(self)

    def __len__(self) -> int:
        return self.batches


class _SingleProcessDataLoaderIter:
    def __init__(self, loader: Loader) -> None:
        self.batches, self.prepare = iter(range(loader.batches)), loader.prepare

    def __iter__(self) -> _SingleProcessDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return self.prepare(next(self.batches))
