"""What measured times depend on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable


def machine(libraries: Iterable[str]) -> dict[str, str]:
    """Size, load, and versions."""
    found = {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f} at the start",
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "system": platform.system(),
        "Python": platform.python_version(),
    }
    for library in libraries:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def in_words(found: dict[str, str]) -> str:
    """For a document."""
    forms = {"cores": "{} cores", "memory": "{} of memory", "system": "{}"}
    return ", ".join(forms.get(name, f"{name} {{}}").format(value) for name, value in found.items())
