"""Small pieces that a log repeats or varies, each of which once cost many times what its bytes should.

A report's CPU time per MB of any of them is at most twice that of ``honest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
_BY_UUID = _NAMES.replace("index", "uuid")


def _at(i: int) -> str:
    return f"2026/01/{1 + i // 86_400 % 28:02} {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.417"


def honest(i: int) -> str:
    """A row of one of eight GPUs."""
    return f"{_at(i // 8)}, {i % 8}, {i * 37 % 101} %, {i * 7919 % 80_000} MiB, {50 + i * 31 % 35_000 / 100:.2f} W\n"


_START = _NAMES + "".join(map(honest, range(200)))

#: By the name of a shape: how its log begins, and the i-th of the pieces that follow.
SHAPES: dict[str, tuple[str, Callable[[int], str]]] = {
    "honest": (_NAMES, honest),
    "one character": (_START, lambda _: "a\n"),
    "commas": (_START, lambda _: ",\n"),
    "hashes": (_START, lambda _: "#\n"),
    "quotes": (_START, lambda _: '"\n'),
    "blank lines": (_START, lambda _: "\n"),
    "few short fields": (_START, lambda _: "1, 2\n"),
    "messages": (_START, lambda i: f"loss {i / 7:.4f} step {i}\n"),
    "messages with commas": (_START, lambda i: f"Epoch {i // 99}, loss: {i / 7:.4f}, lr: {i % 13}\n"),
    "headers in turn": (
        _START,
        lambda i: _NAMES.replace("power.draw [W]", "temperature.gpu") if i % 2 else _NAMES,
    ),
    "varied headers": (_START, lambda i: f"timestamp, index, utilization.gpu [%], x{i}\n"),
    "varied headers with rows": (
        "",
        lambda i: f"timestamp, index, utilization.gpu [%], x{i}\n{_at(i)}, 0, 3 %, 4\n",
    ),
    "many indexes": (_NAMES, lambda i: f"{_at(i)}, {i % 1000}, 3 %, 5 MiB, 7.00 W\n"),
    "many names": (_NAMES, lambda i: f"{_at(i)}, gpu-name-{i}, 3 %, 5 MiB, 7.00 W\n"),
    "many UUIDs": (_BY_UUID, lambda i: f"{_at(i)}, GPU-{i}, 3 %, 5 MiB, 7.00 W\n"),
    "many hosts": (f"hostname, {_NAMES}", lambda i: f"h{i % 4000}, {_at(i)}, 0, 3 %, 5 MiB, 7.00 W\n"),
    "hosts and UUIDs": (
        f"hostname, {_BY_UUID}",
        lambda i: f"h{i % 4}, {_at(i)}, GPU-{i % 8}, {i % 99} %, 5 MiB, 7.00 W\n",
    ),
    "bad values": (_NAMES, lambda i: f"{_at(i)}, {i % 8}, x{i} %, y{i} MiB, z{i} W\n"),
    "bad times": (_NAMES, lambda i: f"20{i}, {i % 8}, 3 %, 5 MiB, 7.00 W\n"),
    "short rows": ("elapsed_s,index,utilization.gpu\n", lambda i: f"{i % 9999},{i % 8},3\n"),
}


def log(shape: str, size: int) -> str:
    """A log of a shape, of about so many characters."""
    begin, piece = SHAPES[shape]
    parts, length, i = [begin], len(begin), 0
    while length < size:
        parts.append(piece(i))
        length += len(parts[-1])
        i += 1
    return "".join(parts)
