"""Node and rank in the names of files and folders."""

from __future__ import annotations

import re

_RANK_AND_NODE = re.compile(r"(?P<rank>[0-9]{1,18})-(?P<node>.+)", re.DOTALL)


def node_and_worker(text: str) -> tuple[str, str]:
    """Node and rank of ``33-algo-1``: the rank is the leading number, empty if there is none."""
    match = _RANK_AND_NODE.fullmatch(text)
    return (match["node"], match["rank"]) if match else (text, "")
