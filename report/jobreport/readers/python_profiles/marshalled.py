"""A safe reader of the dumps of Python's profilers.

A dump is in the interpreter's own format, ``marshal``, whose loader may crash on damaged bytes. This one reads the few
types that a profile consists of and refuses all others. Every value costs a byte of input, and nothing is hashed.
"""

from __future__ import annotations

import struct
from typing import TypeAlias, Union

__all__ = ["NotReadableError", "Value", "loads"]

#: A dictionary is the list of its keys and values, in the order of the file.
Value: TypeAlias = Union[  # noqa: UP007 - a type that contains itself
    bool, int, float, str, tuple["Value", ...], list[tuple["Value", "Value"]], None
]

#: A profile needs four levels.
_MAX_DEPTH = 32
#: A hundred thousand functions take as many; each may take a hundred bytes of memory.
_MAX_VALUES = 2_000_000
#: Of 15 bits each; no count needs more than 64 bits.
_MAX_DIGITS = 9
#: Bit of a type: later values may refer to this one.
_SHARED = 0x80
_CONSTANTS: dict[str, Value] = {"N": None, "T": True, "F": False}
_END = ord("0")


class NotReadableError(ValueError):
    """The bytes are damaged, or hold something that no profile holds."""


def loads(data: bytes) -> Value:
    """The value in a dump of version 2 or later, as all profilers write. Raises ``NotReadableError``."""
    dump = _Dump(data)
    try:
        value = dump.value(_MAX_DEPTH)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise NotReadableError from None
    if dump.at != len(data):
        raise NotReadableError
    return value


class _Dump:
    """A place in the bytes, and the values before it that may be referred to."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._values_left = _MAX_VALUES
        self._shared: list[Value] = []

    def value(self, depth: int) -> Value:
        """The value that begins here, with up to ``depth`` levels."""
        self._values_left -= 1
        if depth == 0 or self._values_left < 0:
            raise NotReadableError
        code = self._byte()
        kind = chr(code & ~_SHARED)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == "r":
            return self._shared[self._size()]
        place = len(self._shared)
        if code & _SHARED:
            # A container that contains itself, which no profile does, contains this.
            self._shared.append(None)
        value = self._value_of(kind, depth - 1)
        if code & _SHARED:
            self._shared[place] = value
        return value

    def _value_of(self, kind: str, depth: int) -> Value:  # noqa: PLR0911 - a list of types
        match kind:
            case "i":
                return self._int()
            case "l":
                return self._long()
            case "g":
                (number,) = struct.unpack("<d", self._bytes(8))
                return float(number)
            case "z" | "Z":
                return self._bytes(self._byte()).decode("ascii")
            case "a" | "A":
                return self._bytes(self._size()).decode("ascii")
            case "u" | "t":
                return self._bytes(self._size()).decode("utf-8", "surrogatepass")
            case ")" | "(":
                size = self._byte() if kind == ")" else self._size()
                return tuple([self.value(depth) for _ in range(size)])
            case "{":
                pairs: list[tuple[Value, Value]] = []
                while self.data[self.at] != _END:
                    pairs.append((self.value(depth), self.value(depth)))
                self.at += 1
                return pairs
        raise NotReadableError

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _int(self) -> int:
        return int.from_bytes(self._bytes(4), "little", signed=True)

    def _long(self) -> int:
        size = self._int()
        if abs(size) > _MAX_DIGITS:
            raise NotReadableError
        digits = struct.iter_unpack("<H", self._bytes(2 * abs(size)))
        number = sum(int(digit & 0x7FFF) << 15 * i for i, (digit,) in enumerate(digits))
        return number if size >= 0 else -number

    def _bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise NotReadableError
        self.at += size
        return self.data[self.at - size : self.at]

    def _size(self) -> int:
        """A number that is not negative."""
        size = self._int()
        if size < 0:
            raise NotReadableError
        return size
