"""Parts of the start-up that libraries do: what takes long before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrecord.hooks.startup import measured

if TYPE_CHECKING:
    from types import ModuleType

#: Of each library: class, if it is a method, function, and what it is called.
CALLS = {
    "torch.distributed.distributed_c10d": [("", "init_process_group", "process group")],
    "torch.cuda": [("", "_lazy_init", "CUDA start")],
    "torch.nn.modules.module": [("Module", "to", "model to device"), ("Module", "cuda", "model to device")],
    "transformers.modeling_utils": [("PreTrainedModel", "from_pretrained", "model weights")],
    "datasets.load": [("", "load_dataset", "data set"), ("", "load_from_disk", "data set")],
}


def attach(library: ModuleType) -> str:
    """Measure the calls until the first step has ended."""
    for kind, function, name in CALLS[library.__name__]:
        owner = getattr(library, kind) if kind else library
        call = vars(owner)[function]
        if isinstance(call, classmethod):
            setattr(owner, function, classmethod(measured(call.__func__, name)))
        else:
            setattr(owner, function, measured(call, name))
    return ""
