"""What is recorded of a script that was not changed: each part waits for a library, and is off by itself.

`PARTS` lists them. Their modules here are imported when the library is.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from jobrecord.hooks.imports import when_imported

if TYPE_CHECKING:
    from types import ModuleType


class Part(NamedTuple):
    """Something that is recorded, as the facts call it."""

    name: str
    #: The library's module that is waited for.
    library: str
    #: The module here whose ``attach`` gets that of the library, and returns why the part is off, or nothing.
    code: str


STEPS, FETCHES, EVALUATION, CHECKPOINTS = "optimizer steps", "batch fetches", "evaluation", "checkpoints"
PARTS = (
    Part(STEPS, "torch.optim.optimizer", "optimizer_steps"),
    Part(FETCHES, "torch.utils.data.dataloader", "batch_fetches"),
    Part(EVALUATION, "torch.nn.modules.module", "evaluation"),
    Part(CHECKPOINTS, "torch.serialization", "checkpoints"),
    Part(CHECKPOINTS, "torch.distributed.checkpoint.state_dict_saver", "checkpoints"),
    Part(CHECKPOINTS, "safetensors.torch", "checkpoints"),
    Part("passes of ranks", "torch.nn.parallel.distributed", "ranks"),
    Part("compilation", "torch._dynamo.callback", "compiling"),
    *(
        Part("start-up", library, "startup")
        for library in (
            "torch.distributed.distributed_c10d",
            "torch.cuda",
            "torch.nn.modules.module",
            "transformers.modeling_utils",
            "datasets.load",
        )
    ),
    Part("Hugging Face Trainer", "transformers.trainer", "huggingface"),
    Part("Lightning Trainer", "lightning.pytorch.trainer.trainer", "lightning"),
    Part("Lightning Trainer", "pytorch_lightning.trainer.trainer", "lightning"),
    Part("Keras", "keras", "keras"),
)
#: By the name of each part whose library this process imported: why it is off, or nothing.
states: dict[str, str] = {}


def await_all() -> None:
    """Attach each part when its library is imported."""
    for part in PARTS:
        when_imported(part.library, partial(_attach, part))


def _attach(part: Part, library: ModuleType) -> None:
    try:
        off = import_module(f"jobrecord.hooks.parts.{part.code}").attach(library)
    except Exception as error:  # noqa: BLE001 - the training must go on, whatever it is
        off = f"{type(error).__name__}: {error}"
    # One that several libraries have is off if it is in one of them.
    states[part.name] = states.get(part.name) or off or ""
