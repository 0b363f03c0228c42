"""Names of nodes, devices, and ranks."""

from __future__ import annotations

import re

from jobrules.text import escape_name

_RANK_AND_NODE = re.compile(r"(?P<rank>[0-9]{1,18})-(?P<node>.+)", re.DOTALL)
#: Characters of a name in DNS.
_MAX_NAME = 253


def as_name(text: str) -> str:
    """Name of a node or a device: the text, if it is a short, printable line.

    Otherwise the text is escaped and cut, with a mark that differs from that of other texts that look the same then.
    """
    if len(text) <= _MAX_NAME and text.isprintable():
        return text
    import hashlib  # noqa: PLC0415 - few names need it

    mark = hashlib.blake2s(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{escape_name(text)} ({mark})"


def node_and_rank(text: str) -> tuple[str, str]:
    """Node and rank of ``33-algo-1``: the rank is the leading number, empty if there is none."""
    match = _RANK_AND_NODE.fullmatch(text)
    return (match["node"], match["rank"]) if match else (text, "")
