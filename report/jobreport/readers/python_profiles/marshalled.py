"""Reading the dumps of Python's profilers without trusting them.

A dump is written in the interpreter's own format, whose loader may crash on damaged bytes. This one
knows the few types that a profile is made of and refuses all others; every element it makes is
paid for with a byte of input, and nothing is ever hashed.
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
_DEEPEST = 32
#: A hundred thousand functions take as many; each may take a hundred bytes of memory.
_MOST_VALUES = 2_000_000
#: Of 15 bits each; no count needs more than 64 bits.
_LONGEST_INTEGER = 9
#: Said by the top bit of a type: later values may refer to this one.
_SHARED = 0x80
_INT, _FLOAT = struct.Struct("<i"), struct.Struct("<d")
_SHORT_TEXT, _ASCII, _UNICODE = frozenset(b"zZ"), frozenset(b"aA"), frozenset(b"ut")


class NotReadableError(ValueError):
    """The bytes are damaged, or hold something that no profile holds; the text says what."""


class _Unfinished:
    """Stands for a container that is still being read."""


_UNFINISHED = _Unfinished()


def loads(data: bytes) -> Value:
    """The value in a dump of any version of the format. Raises ``NotReadableError``."""
    reading = _Reading(data)
    try:
        value = reading.value(_DEEPEST)
    except (IndexError, struct.error):
        raise NotReadableError("ends early") from None
    except UnicodeDecodeError:
        raise NotReadableError("holds text that is not text") from None
    if reading.at != len(data):
        raise NotReadableError("goes on behind its end")
    return value


class _Reading:
    """A place in the bytes, and the values before it that may be referred to."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._left = _MOST_VALUES
        self._known: list[Value | _Unfinished] = []

    def value(self, depth: int) -> Value:
        """The value that begins here."""
        value = self._value_or_end(depth)
        if isinstance(value, _Unfinished):
            raise NotReadableError("misses a value")
        return value

    def _value_or_end(self, depth: int) -> Value | _Unfinished:  # noqa: PLR0912 - a list of types
        """The value that begins here; unfinished stands for the end of a dictionary."""
        code = self.data[self.at]
        self.at += 1
        self._left -= 1
        if self._left < 0:
            raise NotReadableError(f"holds more than {_MOST_VALUES} values")
        kind = code & ~_SHARED
        value: Value
        if kind in b"(){":
            return self._container(kind, depth, shared=code != kind)
        if kind in _SHORT_TEXT:
            value = self._bytes(self._byte()).decode("ascii")
        elif kind == ord("i"):
            value = self._int()
        elif kind == ord("r"):
            return self._reference()
        elif kind == ord("g"):
            (value,) = _FLOAT.unpack_from(self.data, self.at)
            self.at += _FLOAT.size
        elif kind in _ASCII:
            value = self._bytes(self._int()).decode("ascii")
        elif kind in _UNICODE:
            value = self._bytes(self._int()).decode("utf-8", "surrogatepass")
        elif kind == ord("l"):
            value = self._long()
        elif kind == ord("f"):
            value = _float(self._bytes(self._byte()))
        elif kind in _CONSTANTS:
            return _CONSTANTS[kind]
        else:
            raise NotReadableError(f"holds a value of type {chr(kind)!r}, which no profile holds")
        if code != kind:
            self._known.append(value)
        return value

    def _container(self, kind: int, depth: int, *, shared: bool) -> Value:
        if depth == 0:
            raise NotReadableError("is nested too deeply")
        place = len(self._known)
        if shared:
            self._known.append(_UNFINISHED)
        value: Value
        if kind == ord("{"):
            value = self._pairs(depth - 1)
        else:
            size = self._byte() if kind == ord(")") else self._size(self._int())
            value = tuple([self.value(depth - 1) for _ in range(size)])
        if shared:
            self._known[place] = value
        return value

    def _pairs(self, depth: int) -> list[tuple[Value, Value]]:
        pairs = []
        while not isinstance(key := self._value_or_end(depth), _Unfinished):
            pairs.append((key, self.value(depth)))
        return pairs

    def _reference(self) -> Value:
        number = self._int()
        if not 0 <= number < len(self._known):
            raise NotReadableError("refers to a value that is not there")
        value = self._known[number]
        if isinstance(value, _Unfinished):
            raise NotReadableError("holds a value that contains itself")
        return value

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _int(self) -> int:
        number: int
        (number,) = _INT.unpack_from(self.data, self.at)
        self.at += _INT.size
        return number

    def _long(self) -> int:
        size = self._int()
        if abs(size) > _LONGEST_INTEGER:
            raise NotReadableError("holds an integer of more than 135 bits")
        digits = self._bytes(2 * abs(size))
        number = 0
        for i, (digit,) in enumerate(struct.iter_unpack("<H", digits)):
            number |= (digit & 0x7FFF) << 15 * i
        return number if size >= 0 else -number

    def _bytes(self, size: int) -> bytes:
        start = self.at
        self.at += self._size(size)
        return self.data[start : self.at]

    def _size(self, size: int) -> int:
        """A size that the rest of the bytes can hold."""
        if size < 0:
            raise NotReadableError("holds a negative size")
        if size > len(self.data) - self.at:
            raise NotReadableError("ends early")
        return size


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotReadableError("holds a number that is not a number") from None


#: ``0`` ends a dictionary.
_CONSTANTS: dict[int, Value | _Unfinished] = {
    ord("N"): None,
    ord("T"): True,
    ord("F"): False,
    ord("0"): _UNFINISHED,
}
