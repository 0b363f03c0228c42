"""What a model and its optimizer are: names, how parameters are split over ranks, and the facts of the head."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.nn.parameter import is_lazy

#: Parts of names that wrappers add.
_WRAPPERS = frozenset({"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
#: Groups of an optimizer in the head.
_MAX_GROUPS = 1000


def parameters(model: Any) -> list[tuple[str, Any, str]]:
    """Name without what wrappers add, parameter, and class of its module; each parameter once."""
    wrappers = {name for name, _ in model.named_modules() if _is_wrapper(model, name)}
    found: dict[int, tuple[str, Any, str]] = {}
    for path, module in model.named_modules():
        for name, one in module.named_parameters(recurse=False):
            if is_lazy(one):
                # Its size is not known before the first batch.
                continue
            found.setdefault(id(one), (_plain(path, name, wrappers), one, type(module).__name__))
    return list(found.values())


def module_names(model: Any) -> list[tuple[str, Any]]:
    """Name without what wrappers add, and module; each module once."""
    wrappers = {name for name, _ in model.named_modules() if _is_wrapper(model, name)}
    return [(_plain(name, "", wrappers), one) for name, one in model.named_modules()]


def _is_wrapper(model: Any, name: str) -> bool:
    """Whether the last part of a name is one that a wrapper, such as ``DistributedDataParallel``, gives what it holds."""
    path, _, last = name.rpartition(".")
    return last in _WRAPPERS and (
        last != "module"
        or type(model.get_submodule(path)).__name__ in {"DistributedDataParallel", "DataParallel"}
    )


def _plain(path: str, name: str, wrappers: set[str]) -> str:
    parts = [*filter(None, path.split("."))]
    kept = [one for place, one in enumerate(parts) if ".".join(parts[: place + 1]) not in wrappers]
    return ".".join([*kept, *filter(None, [name])])


def layers(optimizer: Any) -> list[Any]:
    """An optimizer, and those that it wraps, as wrappers of Accelerate and Lightning do."""
    found = [optimizer]
    while hasattr(inner := getattr(found[-1], "optimizer", None), "param_groups"):
        found.append(inner)
    return found


def sharding(model: Any) -> str:
    """How ranks share the parameters."""
    kinds = {kind.__name__ for one in model.modules() for kind in type(one).__mro__}
    if "FSDPModule" in kinds:
        return "fsdp2"
    if "FullyShardedDataParallel" in kinds:
        return "fsdp1"
    if any(hasattr(one, "placements") for one in model.parameters()):
        return "other"
    return "ddp" if "DistributedDataParallel" in kinds else "none"


def is_copy(parameter: Any) -> bool:
    """Whether another rank has the same part of a parameter, and records it."""
    kinds = getattr(parameter, "placements", ())
    if not any(one.is_shard() for one in kinds):
        return False
    place = parameter.device_mesh.get_coordinate() or ()
    return any(kind.is_replicate() and at for kind, at in zip(kinds, place, strict=False))


def is_compiled(model: Any) -> bool:
    """Whether it is, or holds, something that PyTorch compiles."""
    return any(
        type(one).__name__ == "OptimizedModule" or getattr(one, "_compiled_call_impl", None) is not None
        for one in model.modules()
    )


def held_elsewhere(model: Any, optimizers: list[Any]) -> str:
    """Why nothing can be seen at the step of the optimizer that others wrap; empty if it can."""
    kinds = [kind for one in (model, *optimizers) for kind in type(one).__mro__]
    parameters = list(model.parameters())
    if any("deepspeed" in one.__module__ for one in kinds) or any(
        hasattr(one, "ds_id") for one in parameters
    ):
        return "gradients are held by DeepSpeed"
    if not hasattr(optimizers[-1], "register_step_post_hook"):
        return "the optimizer has no hooks"
    return "the device has no 64-bit numbers" if any(one.device.type == "mps" for one in parameters) else ""


def groups(optimizer: Any) -> list[dict[str, Any]]:
    """Learning rate and weight decay of each group of parameters, and how many tensors it has."""
    return [
        {
            "lr": number(one.get("lr")),
            "weight_decay": number(one.get("weight_decay")),
            "count": len(one["params"]),
        }
        for one in optimizer.param_groups[:_MAX_GROUPS]
    ]


def number(value: Any) -> float | None:
    """A number that an optimizer has; a tensor may have it."""
    return None if value is None else float(value)


def amp(device: str) -> str | None:
    """What is computed in lower precision by autocast, as it is now."""
    # PyTorch before 2.4 has another call for each device.
    with suppress(TypeError, AttributeError):
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None
