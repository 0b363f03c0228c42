"""What was run, and where: the machine, and the commit of the working directory."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Seconds that git may take for each question; the job waits for it.
GIT_S = 1.0
MAX_TEXT = 200


def host() -> dict[str, str]:
    """Operating system and processor, as far as they are known."""
    name = platform.system()
    with suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", name)
    cpu = platform.machine()
    with suppress(OSError):
        # Other architectures than x86 have no such line.
        found = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8", "replace"), re.M
        )
        cpu = found[1] if found else cpu
    return {"os": f"{name}, {platform.release()}"[:MAX_TEXT], "cpu": cpu.strip()[:MAX_TEXT]}


def commit() -> dict[str, Any] | None:
    """The commit of the working directory, and whether files of it were changed; None without git or a repository.

    A state that takes too long to find is None.
    """
    name = _git("rev-parse", "--verify", "HEAD")
    if name is None or not re.fullmatch(r"[0-9a-f]{40,64}", name):
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return {"commit": name, "dirty": None if changes is None else changes != ""}


def _git(*arguments: str) -> str | None:
    """What git says. It starts no hook and no file watcher of the repository, and writes nothing."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        run = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.decode("utf-8", "replace").strip()
