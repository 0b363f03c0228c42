"""The training processes of a job, as file and folder names tell them."""

from __future__ import annotations

import re

_WORKER_AND_NODE = re.compile(r"(?P<worker>[0-9]{1,18})-(?P<node>.+)", re.DOTALL)


def node_and_worker(text: str) -> tuple[str, str]:
    """Node and worker of ``33-algo-1``: the worker is the leading number, empty where there is none."""
    match = _WORKER_AND_NODE.fullmatch(text)
    return (match["node"], match["worker"]) if match else (text, "")
