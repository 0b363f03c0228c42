"""What is inferred from the batches that a script fetches: their size, and which loops evaluate."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from jobrecord.hooks.passes import MAX_DEPTH, values

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps of evaluation that are kept in memory until they are written.
MAX_KEPT = 100


class Loop:
    """One iteration over a loader."""

    def __init__(self) -> None:
        self.has_fetched = False
        #: Whether an optimizer stepped within it.
        self.trains = False
        #: Begin of each fetch of an evaluation.
        self.begins: list[int] = []
        #: Samples and tokens that were fetched since the last step.
        self.size = 0, 0


class Inferred:
    """The loops of a process; `evaluated` is given begin and end of each step of evaluation.

    A loop evaluates if a fetch of it came while gradients were off, or after a model was set to evaluate, and no
    optimizer stepped within it.
    """

    def __init__(self, evaluated: Callable[[int, int], None]) -> None:
        self._evaluated = evaluated
        self._loops: list[Loop] = []
        #: Of a loop that has ended: what was fetched for the step that has begun.
        self._left = Loop()

    def fetch_begins(self, loop: Loop, at_ns: int, *, evaluates: bool) -> None:
        """Note where a step of evaluation may begin."""
        if not loop.has_fetched:
            loop.has_fetched = True
            self._loops.append(loop)
            if not self._left.trains:
                # It was no training, such as the mean of all data.
                self._left.size = 0, 0
        if loop.trains or not (evaluates or _without_gradients()):
            return
        loop.begins.append(at_ns)
        if len(loop.begins) > MAX_KEPT:
            self._write(loop.begins)
            del loop.begins[:-1]

    def fetched(self, loop: Loop, batch: Any) -> None:
        """Note the size of a batch that may be trained with."""
        if not _without_gradients():
            loop.size = _sum(loop.size, size(batch))

    def ended(self, loop: Loop, at_ns: int, *, exhausted: bool) -> bool:
        """End a loop. Returns whether it was an evaluation."""
        if loop not in self._loops:
            return False
        self._loops.remove(loop)
        if loop.trains or not loop.begins:
            self._left.size = _sum(self._left.size, loop.size)
            self._left.trains = loop.trains
            return False
        self._write(loop.begins if exhausted else [*loop.begins, at_ns])
        return True

    def step_ends(self, args: dict[str, Any]) -> None:
        """Add the size of the batches of a step to the arguments of its row, unless the script told it."""
        found = self._left.size
        self._left.size = 0, 0
        for loop in self._loops:
            if any(loop.size):
                found = _sum(found, loop.size)
                loop.size = 0, 0
                loop.trains = True
                loop.begins.clear()
        if any(found) and not args.keys() & {"samples", "tokens"}:
            sizes = zip(("samples", "tokens"), found, strict=True)
            args |= {name: count for name, count in sizes if count} | {"inferred": True}

    def _write(self, begins: list[int]) -> None:
        for begin_ns, end_ns in pairwise(begins):
            self._evaluated(begin_ns, end_ns)


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _without_gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and not torch.is_grad_enabled()


def size(batch: Any) -> tuple[int, int]:
    """Samples and tokens of a batch, as far as they can be told: 0 otherwise. No value of it is read."""
    if isinstance(batch, Mapping) and (shape := _shape(batch.get("input_ids"))):
        return shape[0] if len(shape) > 1 else 0, prod(shape)
    shape = _first_shape(batch, MAX_DEPTH)
    return (shape[0] if shape else 0), 0


def _first_shape(value: Any, depth: int) -> tuple[int, ...]:
    """Shape of the first tensor in nested containers that has one."""
    if shape := _shape(value):
        return shape
    if depth:
        for one in values(value):
            if shape := _first_shape(one, depth - 1):
                return shape
    return ()


def _shape(value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not all(isinstance(length, int) for length in shape):
        return ()
    return shape
