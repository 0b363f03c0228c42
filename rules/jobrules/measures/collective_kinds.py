"""What a collective does, by its name."""

from __future__ import annotations

#: By the first of these that its name holds, in lower case and without ``_``.
_KINDS = {
    "reducescatter": "reducescatter",
    "allreduce": "allreduce",
    "allgather": "allgather",
    "alltoallv": "alltoallv",
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "send": "p2p",
    "recv": "p2p",
}
#: Those that no rank can end before all have begun.
SYNCHRONIZING = frozenset({"allreduce", "reducescatter", "allgather", "alltoall", "alltoallv", "barrier"})


def kind_of(name: str) -> str:
    """What a collective does, by its name or that of its kernel; empty if the name does not tell."""
    text = name.lower().replace("_", "")
    return next((kind for part, kind in _KINDS.items() if part in text), "")
