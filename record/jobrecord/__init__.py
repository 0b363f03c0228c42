"""Records a training job: samples of the machine, and steps of the training script.

Nothing is imported before it is used: a training script may import this first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobrecord.hooks.current import (
        batch,
        classes,
        config,
        data,
        eval,
        flops,
        learn,
        log,
        phase,
        predict,
        record,
        resume,
        start,
        step,
        stop,
        watch,
    )

__version__ = "0.1.0"

__all__ = [
    "batch",
    "classes",
    "config",
    "data",
    "eval",
    "flops",
    "learn",
    "log",
    "phase",
    "predict",
    "record",
    "resume",
    "start",
    "step",
    "stop",
    "watch",
]

_FRAMEWORKS = frozenset({"huggingface", "keras", "lightning", "xgboost"})


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("jobrecord.hooks.current"), name)
    if name in _FRAMEWORKS:
        return import_module(f"jobrecord.{name}")
    raise AttributeError(f"module 'jobrecord' has no attribute {name!r}")
