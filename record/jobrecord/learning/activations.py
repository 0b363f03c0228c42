"""Statistics of what activation modules give, and of what goes into them and into the model, in training only."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from jobrecord.learning import statistics
from jobrecord.learning.model import module_names
from jobrecord.learning.rows import Row, kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Modules that are watched, evenly over the depth of a model, and channels of an input.
MAX_MODULES, _MAX_CHANNELS = 256, 16
#: Steps in which what goes into them is recorded, and batches in which a unit of none has fired is dead.
FIRST_STEPS, _BATCHES = 10, 10
_KINDS = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
#: Outputs between which the derivative is at least 5 % of its maximum.
_STEEP: dict[type, tuple[float, float]] = {nn.Tanh: (-0.9747, 0.9747), nn.Sigmoid: (0.0127, 0.9873)}


class Activations:
    """Hooks of activation modules, made by `hook`. The first call in a step counts."""

    def __init__(
        self, model: Any, prefix: str, hook: Callable[[Callable[..., None], str], Hook], *, histograms: bool
    ) -> None:
        self._histograms = histograms
        self._rows: dict[tuple[str, str], Row] = {}
        self._fired: dict[str, list[Any]] = {}
        self._order: dict[str, int] = {}
        every = [(prefix + name, one) for name, one in module_names(model) if isinstance(one, _KINDS)]
        kept = every[:: max(1, -(-len(every) // MAX_MODULES))]
        self.count, self.left_out = len(kept), len(every) - len(kept)
        self._entering = [one.register_forward_pre_hook(hook(self._enters, name)) for name, one in kept]
        self._leaving = [one.register_forward_hook(hook(self._leaves, name)) for name, one in kept]

    @property
    def has_seen(self) -> bool:
        """Whether any module was called while a step was recorded."""
        return bool(self._order)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._entering + self._leaving:
            handle.remove()
        self._rows = {}

    def taken(self, step: int) -> list[Row]:
        """What was seen since the last call, in `step`."""
        # A model that was compiled meanwhile would be compiled again for it.
        if step + 1 >= FIRST_STEPS and self.has_seen:
            for handle in self._entering:
                handle.remove()
        rows, self._rows = self._rows, {}
        return list(rows.values())

    def _enters(self, name: str, module: Any, inputs: Any) -> None:
        # Some modules write their output over their input.
        if inputs:
            self._add(name, "preactivation", module, inputs[0])

    def _leaves(self, name: str, module: Any, _inputs: Any, output: Any) -> None:
        if (row := self._add(name, "output", module, output)) is None:
            return
        held = statistics.local(output)
        if isinstance(module, nn.ReLU) and held.dim():
            row.add("dead", self._dead(name, held))
        for one, (low, high) in _STEEP.items():
            if isinstance(module, one):
                row.add("saturated", torch.count_nonzero((held < low) | (held > high)) / held.numel())

    def _add(self, name: str, collection: str, module: Any, tensor: Any) -> Row | None:
        is_known = isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel()
        if not (is_known and statistics.is_dense(tensor)) or (name, collection) in self._rows:
            return None
        held = statistics.local(tensor)
        # This fails for those of a transform such as vmap, whose numbers are gone after it.
        held.data_ptr()
        facts: dict[str, Any] = {
            "m": type(module).__name__,
            "order": self._order.setdefault(name, len(self._order)),
        }
        row = Row(name, collection, held, **facts)
        self._rows[name, collection] = row.summarize().sample(histogram=self._histograms)
        return row

    def _dead(self, name: str, output: Any) -> Any:
        """Share of units without a positive output in some batches: places of the last axis, or channels of images."""
        axis = 1 if output.dim() in (4, 5) else -1
        fired = (output > 0).movedim(axis, -1).reshape(-1, output.shape[axis]).any(0)
        batches = self._fired.setdefault(name, [])
        if batches and batches[0].shape != fired.shape:
            batches.clear()
        batches.append(fired)
        del batches[:-_BATCHES]
        return 1 - torch.stack(batches).any(0).float().mean()


class Hook:
    """A hook of a module in training. In copies of the module, and in its files, it does nothing and needs no recorder."""

    def __init__(self, call: Callable[..., None], is_due: Callable[[], bool]) -> None:
        self._call, self._is_due = call, is_due
        self._is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)

    def __call__(self, module: Any, *args: Any) -> None:
        """See what goes in or out, in training."""
        # Hooks of a module that is compiled later become part of it, and would break its graph.
        is_seen = not self._is_compiling() and module.training and self._is_due()
        if is_seen and torch.is_grad_enabled() and not torch.jit.is_tracing():
            self._call(module, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def inputs_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], pad_id: int | None, *, histograms: bool
) -> Iterator[Row]:
    """Statistics of the first tensor that goes into a model; of images, of each channel."""
    given = [*(("input", one) for one in args), *kwargs.items()]
    tensors = ((name, statistics.local(one)) for name, one in given if isinstance(one, torch.Tensor))
    name, tensor = next(tensors, ("", None))
    if tensor is None or not (statistics.is_dense(tensor) and tensor.numel()):
        return
    if not tensor.is_floating_point():
        # Statistics of numbers of tokens mean nothing, but for the share of one of them.
        if pad_id is not None:
            facts: dict[str, Any] = {"dtype": kind(tensor), "pad_id": pad_id}
            yield Row(name, "input", (tensor != pad_id).float(), **facts).summarize()
    elif tensor.dim() == 4:
        for channel in range(min(tensor.shape[1], _MAX_CHANNELS)):
            row = Row(f"{name}[{channel}]", "input", tensor[:, channel])
            row.facts["shape"] = list(tensor.shape[1:])
            yield row.summarize().sample(histogram=histograms)
    else:
        yield Row(name, "input", tensor).summarize().sample(histogram=histograms)
