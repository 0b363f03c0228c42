"""Forward and backward pass, and optimizer, of one module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jobrecord.traces import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Containers in one another in which the output of a module is searched for a tensor.
MAX_DEPTH = 4


class Passes:
    """Marks of the passes of one module, given to `add` with lane, name, start, and end. Times are of the host."""

    def __init__(
        self,
        add: Callable[[str, str, int, int], None],
        module: Any,
        look: Callable[[Any], None] | None = None,
    ) -> None:
        self._add = add
        #: Called with the module at its first call in training.
        self._look = look
        self._name = type(getattr(module, "_orig_mod", module)).__name__
        self._forward_ns = self._backward_ns = self._exchange_ns = 0
        torch = sys.modules.get("torch")
        self._is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
        #: Autograd's task in this thread, -1 outside of it.
        self._backward_task = getattr(
            getattr(torch, "_C", None), "_current_graph_task_id", self._guessed_task
        )
        self._handles = [
            module.register_forward_pre_hook(self._forward_begins),
            module.register_forward_hook(self._forward_ended),
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # A module has its hooks in copies and in files. There they do nothing, and need no recorder.
        nothing = nullcontext().__exit__
        hooks = partial(
            SimpleNamespace, _forward_begins=nothing, _forward_ended=nothing, _is_compiling=partial(bool, 1)
        )
        return hooks, ()

    def stop(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def end_backward(self, at_ns: int) -> None:
        """End the backward pass, if there is one."""
        if self._backward_ns:
            self._add("Backward(post-forward)", self._name, self._backward_ns, at_ns)
            self._backward_ns = 0

    def _guessed_task(self) -> int:
        """Stands in for autograd's task where PyTorch does not tell."""
        return 0 if self._backward_ns else -1

    def _forward_begins(self, module: Any, _inputs: Any) -> None:
        # Hooks of a module that is compiled later become part of it, and would break its graph.
        if self._is_compiling():
            return
        if self._look is not None and sys.modules["torch"].is_grad_enabled():
            look, self._look = self._look, None
            look(module)
        at_ns = now()
        if self._backward_task() != -1:
            # Activation checkpointing runs the forward pass again, without its end.
            self._backward_ns = self._backward_ns or at_ns
            return
        if self._backward_ns:
            self.end_backward(at_ns)
        self._forward_ns = at_ns

    def _forward_ended(self, _module: Any, _inputs: Any, output: Any) -> None:
        if self._is_compiling() or not self._forward_ns:
            return
        self._add("Forward", self._name, self._forward_ns, now())
        self._forward_ns = 0
        # An output may be the script's own, and raise anything.
        with suppress(Exception):
            if (tensor := differentiable(output)) is not None:
                # One of the tensor itself takes several times as long.
                node = getattr(tensor, "grad_fn", None)
                getattr(node, "register_prehook", tensor.register_hook)(self._backward_begins)

    def _backward_begins(self, _gradients: Any) -> None:
        if self._backward_ns or self._is_compiling():
            return
        self._backward_ns = now()
        if self._has_ranks():
            # Before those that wait for the other ranks: callbacks run in the order in which they came.
            self._after_backward(self._computed)

    def _computed(self) -> None:
        """End the backward pass where autograd has computed everything, before it waits for the other ranks."""
        self._exchange_ns = now()
        self.end_backward(self._exchange_ns)
        self._after_backward(self._exchanged)

    def _exchanged(self) -> None:
        self._add("Gradient exchange", self._name, self._exchange_ns, now())

    def _has_ranks(self) -> bool:
        """Whether this process trains with others."""
        distributed = sys.modules.get("torch.distributed")
        return (
            distributed is not None
            and distributed.is_available()
            and distributed.is_initialized()
            and distributed.get_world_size() > 1
        )

    def _after_backward(self, call: Callable[[], None]) -> None:
        """Let autograd call when all is computed. A PyTorch without this has backward passes to their end."""
        with suppress(AttributeError, RuntimeError):
            sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(call)


def differentiable(output: Any, depth: int = MAX_DEPTH) -> Any:
    """The first tensor in nested containers that requires a gradient; None without one."""
    if callable(getattr(output, "register_hook", None)):
        return output if output.requires_grad else None
    found = (differentiable(value, depth - 1) for value in values(output)) if depth else ()
    return next((tensor for tensor in found if tensor is not None), None)


def is_compiled_inside(module: Any) -> bool:
    """Whether hooks of the module would become a part of what is compiled."""
    return getattr(module, "_compiled_call_impl", None) is not None


def values(output: Any) -> Iterable[Any]:
    """What a container holds; nothing for anything else."""
    if isinstance(output, Mapping):
        return output.values()
    if isinstance(output, (list, tuple)):
        return output
    if is_dataclass(output):
        return (getattr(output, field.name, None) for field in fields(output))
    return ()
