"""Event files as TensorFlow, TensorBoard, and the libraries around them write them, by hand."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

#: 2025-03-09 10:00:00 UTC.
START_S = 1_741_514_400.0
#: Types of elements in messages.
DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def crc32c(data: bytes) -> int:
    """The checksum, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum as it stands in a file."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    """An integer; a negative one has ten bytes."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: float | bytes, form: str = "<f") -> bytes:
    """A field of a message: an integer, a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | (5 if form == "<f" else 1)) + struct.pack(form, value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def record(message: bytes, checksum: bytes | None = None) -> bytes:
    """A message in a file."""
    size = struct.pack("<Q", len(message))
    return size + masked(size) + message + (masked(message) if checksum is None else checksum)


def event(step: int, *values: bytes, second: float | None = None, begins: bool = False) -> bytes:
    """A message with values; step ``i`` is ``i`` seconds after ``START_S``."""
    message = field(1, START_S + (step if second is None else second), "<d") + field(2, step)
    message += field(7, field(1, 1)) if begins else b""
    return message + (field(5, b"".join(field(1, one) for one in values)) if values else b"")


def scalar(tag: str, value: float) -> bytes:
    """A value as PyTorch writes it."""
    return field(1, tag.encode()) + field(2, float(value))


def tensor(array: Any, dtype: str = "", **typed: bytes) -> bytes:
    """A tensor, its elements as they lie or in typed fields (``as_5=…``)."""
    array = np.asarray(array)
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    name = dtype or array.dtype.name
    content = b"".join(field(int(key[3:]), value) for key, value in typed.items()) or field(
        4, array.astype(name).tobytes()
    )
    return field(1, DTYPES[name]) + field(2, shape) + content


def tensor_value(tag: str, message: bytes, notes: Mapping[str, str] | None = None) -> bytes:
    """A value with a tensor, and what plugins note of it."""
    noted = [
        field(9, field(1, field(1, plugin.encode()) + field(2, content.encode())))
        for plugin, content in (notes or {}).items()
    ]
    return field(1, tag.encode()) + field(8, message) + b"".join(noted)


def event_file(*messages: bytes, second: float = 0.0) -> bytes:
    """A file that begins as all of TensorBoard do, a second after ``START_S``."""
    first = field(1, START_S + second, "<d") + field(3, b"brain.Event:2")
    return b"".join(map(record, [first, *messages]))


def scalar_file(tag: str, values: Mapping[int, float], second: float = 0.0) -> bytes:
    """A file of one number at some steps, the first of which was logged at a second after ``START_S``."""
    begin = min(values)
    messages = [
        event(step, scalar(tag, value), second=second + step - begin) for step, value in values.items()
    ]
    return event_file(*messages, second=second)


#: What stands in place of the checksums of messages that SageMaker Debugger writes.
CONSTANT = b"\x78\x56\x34\x12"


def saved_file(step: int, arrays: Mapping[str, Any], mode: str = "", dtype: str = "") -> bytes:
    """A file of tensors of a step; a number becomes a scalar, and bytes are a tensor's message."""
    notes = {"mode": mode, "mode_step": str(step)} if mode else {}
    values = [
        scalar(tag, one)
        if isinstance(one, float)
        else tensor_value(tag, one if isinstance(one, bytes) else tensor(one, dtype), notes)
        for tag, one in arrays.items()
    ]
    return b"".join(record(event(step, one), CONSTANT) for one in values)


def saved(
    steps: Mapping[int, Mapping[str, Any]],
    *,
    modes: Mapping[int, str] | None = None,
    worker: str = "worker_0",
    collections: Mapping[str, list[str]] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtype: str = "",
) -> dict[str, bytes]:
    """Files of saved tensors. Modes stand in the index; in events they are noted where ``steps`` holds tensors."""
    files = {}
    if collections is not None:
        about = {name: {"name": name, "tensor_names": names} for name, names in collections.items()}
        files[f"collections/000000000/{worker}_collections.json"] = json.dumps(
            {"collections": about}
        ).encode()
    for step, arrays in steps.items():
        mode = (modes or {}).get(step, "ModeKeys.GLOBAL")
        index = {
            "meta": {"mode": mode, "mode_step": step, "event_file_name": "x"},
            "tensor_payload": [{"tensorname": name, "start_idx": 0, "length": 1} for name in arrays],
        }
        of_shapes = [
            {"tensorname": f"x{name}", "originalname": name, "shape": list(shape)}
            for name, shape in (shapes or {}).items()
        ]
        files[f"index/{step // 1000:09}/{step:012}_{worker}.json"] = (
            json.dumps(index) + json.dumps({"meta": {}, "shape_payload": of_shapes})
        ).encode()
        files[f"events/{step:012}/{step:012}_{worker}.tfevents"] = saved_file(step, arrays, dtype=dtype)
    return files
