"""Names of nodes and runs, and what the environment says about them."""

from __future__ import annotations

import os
import re
import shlex
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Number of nodes and number of this node, by launcher; torchrun sets the first pair in its workers only.
_NODE_COUNT = ("GROUP_WORLD_SIZE", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "NNODES")
_NODE_RANK = ("GROUP_RANK", "SLURM_NODEID", "NODE_RANK")


def node_name(name: str = "") -> str:
    """A node's name in names of files: up to the first dot, with ``-`` for all but letters, digits, and ``-``.

    An underscore would break the names of trace files. Default: the name of this host.
    """
    if not name:
        import socket  # noqa: PLC0415 - the sampler, which starts with the job, knows the name

        name = socket.gethostname()
    short = name.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9-]", "-", short)[:64] or "node"


def shown(text: str) -> str:
    """Text on one line of a terminal: what is not printable, such as a control character, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def word(text: str) -> str:
    """Text as one word for a shell; what is not printable is octal, which bash, ksh, and zsh read."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = (
        c if c.isprintable() and c not in "\\'" else "".join(f"\\{byte:03o}" for byte in os.fsencode(c))
        for c in text
    )
    return f"$'{''.join(escaped)}'"


def folder_name() -> str:
    """Name of a new recording's folder: ``job-<UTC time>``."""
    return time.strftime("job-%Y%m%d-%H%M%S", time.gmtime())


def run_id() -> str:
    """A random name of one run."""
    return os.urandom(8).hex()


def node_count(environment: Mapping[str, str]) -> int | None:
    """Number of nodes of the job, as far as its launcher says; else None."""
    return _first_number(environment, _NODE_COUNT)


def node_rank(environment: Mapping[str, str]) -> int | None:
    """Number of this node among the nodes of the job; else None."""
    return _first_number(environment, _NODE_RANK)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environment.get(name, "") for name in names)
    return next((int(text) for text in texts if re.fullmatch("[0-9]{1,9}", text)), None)
