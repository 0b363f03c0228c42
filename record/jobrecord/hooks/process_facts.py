"""What a training process is: versions of its libraries, and what the script says of itself."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jobrecord import __version__
from jobrecord.command_line import HIDDEN, without_secrets
from jobrecord.hooks import flops

#: Libraries whose versions are noted if the script imported them.
LIBRARIES = ("torch", "jax", "tensorflow", "keras", "transformers", "accelerate", "deepspeed", "lightning")
#: Of a configuration: entries, and characters of a key and of a value.
MAX_CONFIG, MAX_KEY, MAX_VALUE = 200, 100, 300


class ProcessFacts:
    """Facts of this process, asked for when they are written."""

    def __init__(self) -> None:
        self._config: dict[str, str] = {}
        #: Operations of a step, and whether they were ``given`` or ``counted``.
        self._flops: dict[str, Any] = {}
        self._parameters: int | None = None
        self._precision = ""

    def add_config(self, values: Mapping[str, Any]) -> None:
        """Note settings of the script, without what looks secret."""
        # Mappings and values may be the script's own, and raise anything.
        with suppress(Exception):
            for key, value in _flat(values):
                if len(self._config) < MAX_CONFIG or key in self._config:
                    self._config[key] = _without_secrets(key, value)

    def set_flops(self, per_step: float, source: str, precision: str = "") -> None:
        """Note the operations of a step of this process."""
        self._flops = {"per_step": per_step, "source": source}
        self._precision = precision or self._precision

    def look_at(self, model: Any, precision: str = "") -> None:
        """Note what a model computes in, as it is called in training, and how many parameters it has."""
        with suppress(Exception):
            self._parameters = flops.parameters(model)
        with suppress(Exception):
            self._precision = self._precision or precision or flops.precision(model)

    def __call__(self) -> dict[str, Any]:
        """The facts as of now; what a library does not tell is left out."""
        return {
            "versions": versions(),
            "world_size": world_size(),
            "config": self._config,
            "flops": self._flops,
            "parameters": self._parameters,
            "precision": self._precision,
        }


def versions() -> dict[str, str]:
    """Of Python, this recorder, and what the script imported; nothing is imported for it."""
    found = {"python": platform.python_version(), "jobrecord": __version__}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)[:MAX_KEY]
    torch = sys.modules.get("torch")
    for name in ("cuda", "hip"):
        with suppress(Exception):
            if version := getattr(torch.version, name):  # type: ignore[union-attr]
                found[name] = str(version)[:MAX_KEY]
    with suppress(Exception):
        # A build without CUDA has no such library.
        found["nccl"] = ".".join(map(str, sys.modules["torch.cuda.nccl"].version()))
    return found


def world_size() -> int | None:
    """Training processes of the job; None if nobody says so."""
    with suppress(Exception):
        distributed = sys.modules["torch.distributed"]
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None


def _flat(values: Mapping[Any, Any], before: str = "", depth: int = 5) -> list[tuple[str, Any]]:
    """Keys and values; those of a mapping within are ``model.width``."""
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{before}{key}"[:MAX_KEY]
        if isinstance(value, Mapping) and depth:
            found += _flat(value, f"{name}.", depth - 1)
        else:
            found.append((name, value))
        if len(found) > MAX_CONFIG:
            break
    return found


def _without_secrets(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    name = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in key)
    (shown,) = without_secrets([f"{name}={text}"])
    kept, equals, shown = shown.partition("=")
    return shown[:MAX_VALUE] if equals and kept == name else HIDDEN
