"""The operations of a training step: counted once, and what an estimate and the peak of a GPU need."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobrecord.traces import warn

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps before the one that is counted: the first ones compile and allocate.
WARM_UP = 3
#: Below this part of parameters that train, a step has far fewer operations than 6 for each parameter and token.
TRAINED_PART = 0.9
#: Settings of models in which a token goes through a part of the parameters.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


class FlopCount:
    """Counts the operations of one step by PyTorch's own counter, as a profiler that marks the step."""

    def __init__(self, counted: Callable[[float], None]) -> None:
        #: Given the number.
        self._counted = counted
        self._left = WARM_UP
        self._mode: Any = None

    def begin(self, step: int) -> str:
        """Start or stop as `step` begins. Returns how its row is marked."""
        del step
        self._left -= 1
        if self._left == 0:
            return self._start()
        if self._mode is not None:
            self._stop()
        return ""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to count."""
        return self._left <= 0 and self._mode is None

    def close(self) -> None:
        """Stop in the middle of the step."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)

    def _stop(self) -> None:
        mode, self._mode = self._mode, None
        mode.__exit__(None, None, None)
        if _has_compiled():
            warn("flops: compiled code cannot be counted; give the number: jobrecord.flops(1.2e12)")
        elif count := mode.get_total_flops():
            self._counted(float(count))

    def _start(self) -> str:
        try:
            from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - asked for
        except ImportError:
            warn("flops: this PyTorch cannot count them")
            return ""
        if _has_compiled():
            warn("flops: compiled code cannot be counted; give the number: jobrecord.flops(1.2e12)")
            return ""
        self._mode = FlopCounterMode(display=False)
        self._mode.__enter__()
        return "flops"


def _has_compiled() -> bool:
    """Whether PyTorch's compiler made code in this process, which its counter of operations does not see."""
    with suppress(Exception):
        return bool(sys.modules["torch._dynamo.utils"].counters["frames"]["ok"])
    return False


def parameters(model: Any) -> int | None:
    """Parameters that each token goes through; None if that is not all of them, or nobody here holds all."""
    if any(getattr(getattr(model, "config", None), name, None) for name in _EXPERTS):
        return None
    is_whole = any(one.__name__ == "FSDPModule" for one in type(model).__mro__)
    every = trained = 0
    for one in model.parameters():
        kind = type(one).__name__
        # A part of what other ranks hold, or data that several ranks share.
        if kind == "FlatParameter" or (hasattr(one, "placements") and not is_whole):
            return None
        size = int(getattr(one, "ds_numel", 0) or one.numel())
        every, trained = every + size, trained + size * bool(one.requires_grad)
    return every if trained >= TRAINED_PART * every > 0 else None


def precision(model: Any) -> str:
    """What its products of matrices are computed in, such as ``bfloat16``, as it is called now; empty if unknown."""
    torch = sys.modules["torch"]
    sizes: Counter[Any] = Counter()
    device = "cuda"
    for one in model.parameters():
        if one.is_floating_point():
            sizes[one.dtype] += one.numel()
            device = one.device.type
    if not sizes:
        return ""
    if torch.is_autocast_enabled(device):
        return _name(torch.get_autocast_dtype(device))
    found = _name(sizes.most_common(1)[0][0])
    if found != "float32" or device != "cuda":
        return found
    products = torch.get_float32_matmul_precision() != "highest"
    has_both = any(type(one).__name__.startswith("Conv") for one in model.modules())
    if has_both and torch.backends.cudnn.allow_tf32 != products:
        return ""
    return "tf32" if products else found


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
