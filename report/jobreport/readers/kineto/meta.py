"""What stands in front of the events of a trace and behind them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from jobreport.readers.columns import whole_number as whole
from jobreport.readers.names import as_name
from jobrules.captures.trace import DeviceProperties, Head

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Devices of a machine, versions, and characters of one that are kept.
_MAX_DEVICES, _MAX_TEXT = 256, 60
_VERSIONS = {
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
}
_VERSION = re.compile(r"[0-9][0-9.]*")
_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops")
_DROPPED = re.compile(r"Out-of-range\s*=\s*(\d{1,12})")
#: Where the text is no JSON.
_PATTERNS = {
    name: re.compile(rb'"' + key + rb'"\s*+:\s*+(\d{1,19})(?!\d)')
    for name, key in {
        "rank": b"rank",
        "world_size": b"world_size",
        "base_ns": b"baseTimeNanoseconds",
    }.items()
}
#: ``<host>_<pid>.<number>.pt.trace.json``
_NAMED_HOST = re.compile(r"(?P<host>.+)_\d+\.\d+\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_NAMED_RANK = re.compile(r"(?:^|[^a-z])rank[\[\]_.=-]*(\d{1,9})(?!\d)", re.IGNORECASE)


class Top(msgspec.Struct, frozen=True):
    """The keys of a trace that are read."""

    info: Mapping[str, Any]
    #: Lines that the profiler logged as errors, and device events that it dropped.
    errors: int = 0
    dropped: int = 0


class _Keys(msgspec.Struct):
    """Names of users, paths, and settings of the machine are no part of it, so that no report can show them."""

    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    base_ns: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    host_name: Any = None
    hostname: Any = None
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
    cupti_version: Any = None
    hip_runtime_version: Any = None
    hip_driver_version: Any = None
    roctracer_version: Any = None
    record_shapes: Any = None
    profile_memory: Any = None
    with_stack: Any = None
    with_modules: Any = None
    with_flops: Any = None
    errors: Any = msgspec.field(default=None, name="ERROR")
    warnings: Any = msgspec.field(default=None, name="WARNING")


def top_of(head: bytes, tail: bytes) -> Top:
    """The keys on both sides of the events; a side that is no JSON gives rank, world size, and time base by pattern."""
    info: dict[str, Any] = {}
    front, back = head.lstrip(), tail.lstrip().removeprefix(b"]").strip().removeprefix(b",")
    if front.startswith(b"{"):
        info |= _keys(front + b"]}" if front.endswith(b"[") else front, front)
    if back.removesuffix(b"}").strip():
        info |= _keys(b"{" + back, back)
    lines = [str(line) for key in ("errors", "warnings") for line in _listed(info.get(key))]
    return Top(
        info=info,
        errors=len(_listed(info.get("errors"))),
        dropped=sum(int(found[1]) for line in lines for found in _DROPPED.finditer(line)),
    )


def _keys(whole_text: bytes, text: bytes) -> dict[str, Any]:
    try:
        known = msgspec.json.decode(whole_text, type=_Keys)
    except (ValueError, RecursionError):
        found = {key: int(match[1]) for key, pattern in _PATTERNS.items() if (match := pattern.search(text))}
        return ({"distributed": found} if found else {}) | (
            {"base_ns": found["base_ns"]} if "base_ns" in found else {}
        )
    return {key: value for key, value in msgspec.structs.asdict(known).items() if value is not None}


def head_of(top: Top, name: str) -> Head:
    """What a trace says of itself; what it does not, its name may."""
    info = top.info
    distributed = info.get("distributed")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank, named = whole(distributed.get("rank")), _NAMED_RANK.search(name)
    host = info.get("host_name") or info.get("hostname")
    named_host = None if _NAMED_RANK.match(name) else _NAMED_HOST.fullmatch(name)
    return Head(
        rank=rank if rank is not None and rank >= 0 else None,
        named_rank=int(named[1]) if named else None,
        world_size=_positive(distributed.get("world_size")),
        host=as_name(host if isinstance(host, str) and host else named_host["host"] if named_host else ""),
        base_ns=_positive(info.get("base_ns")),
        devices=tuple(
            _device(one, position)
            for position, one in enumerate(_listed(info.get("devices"))[:_MAX_DEVICES])
            if isinstance(one, dict)
        ),
        versions={
            key: text
            for key in sorted(_VERSIONS & info.keys())
            if _VERSION.fullmatch(text := _short(info[key]))
        },
        recorded=tuple(key for key in _FLAGS if info.get(key) in (1, True, "1", "true")),
    )


def _device(known: Mapping[str, Any], position: int) -> DeviceProperties:
    number = whole(known.get("id"))
    return DeviceProperties(
        device=position if number is None else number,
        name=_short(known.get("name")),
        memory_bytes=_positive(known.get("totalGlobalMem")),
        compute_major=whole(known.get("computeMajor")),
    )


def _positive(value: object) -> int | None:
    found = whole(value)
    return found if found is not None and found > 0 else None


def _short(value: object) -> str:
    return str(value)[:_MAX_TEXT] if isinstance(value, str | int | float) else ""


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
