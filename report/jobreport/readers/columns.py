"""Columns of events that are read block by block: positions of their names, and tables that grow."""

from __future__ import annotations

from mmap import mmap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Columns by name, as many values in each.
Table: TypeAlias = dict[str, npt.NDArray[Any]]

#: Bytes of a column that lie together.
_PART = 1 << 20
_INT64 = 2**63
#: Types of a value; ``int | float`` where they are asked for would be made anew for each event.
_NUMBERS = (int, float)


class Positions(dict[Any, int]):
    """The position of each key in ``listed``; one that is asked for and not there is added.

    ``listed`` holds what ``made`` makes of the keys; equal ones have one position. Of what it made it makes the same.
    """

    def __init__(self, made: Callable[[Any], Any] = lambda key: key, longest: int = 1000) -> None:
        """Texts of more than ``longest`` characters are cut, so that they are not kept as keys."""
        super().__init__()
        self.listed: list[Any] = []
        self._made, self._longest = made, longest

    def __missing__(self, key: Any) -> int:
        made = self._made(key)
        position = self.get(made)
        if position is None:
            position = self[made] = len(self.listed)
            self.listed.append(made)
        if made is not key and not (isinstance(key, str) and len(key) > self._longest):
            self[key] = position
        return position


class GrowingColumn:
    """Values that come block by block, in memory of their own size, which the system has back once they are taken."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[mmap] = []

    def __len__(self) -> int:
        return sum(part.tell() for part in self._parts) // self._dtype.itemsize

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add some. All have the width of the widest."""
        if values.dtype.itemsize > self._dtype.itemsize:
            before, self._dtype = self.take(), values.dtype
            self.add(before)
        data = values.astype(self._dtype, copy=False).tobytes()
        while data:
            if not self._parts or self._parts[-1].tell() == _PART:
                self._parts.append(mmap(-1, _PART))
            written = self._parts[-1].write(data[: _PART - self._parts[-1].tell()])
            data = data[written:]

    def fill(self, count: int) -> None:
        """Add NaN up to so many values."""
        self.add(np.full(count - len(self), np.nan, self._dtype))

    def take(self) -> npt.NDArray[Any]:
        """(n,) all values, of which none are left here."""
        whole = np.empty(len(self), self._dtype)
        rest = whole.view(np.uint8)
        for part in self._parts:
            with part:
                size = part.tell()
                rest[:size] = np.frombuffer(part, np.uint8, size)
                rest = rest[size:]
        self._parts.clear()
        return whole


class GrowingTable:
    """A table that grows block by block."""

    def __init__(self) -> None:
        self._columns: dict[str, GrowingColumn] = {}

    def add(self, table: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add rows."""
        for key, column in table.items():
            self._columns.setdefault(key, GrowingColumn(column.dtype)).add(column)

    def take(self) -> Table:
        """All rows, of which none are left here."""
        return {key: self._columns.pop(key).take() for key in list(self._columns)}


def short_name(name: str, longest: int) -> str:
    """A name of at most so many characters; a lone surrogate, which JSON can hold and UTF-8 cannot, becomes an escape."""
    if len(name) <= longest and name.isascii():
        return name
    text = name[: longest + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= longest else text[: longest - 1] + "…"


def whole_number(value: object) -> int | None:
    """A whole number that 64 bits hold, which may stand in a text; None for anything else."""
    if value.__class__ is str:
        text = str(value).strip('"')
        if not (len(text) < 20 and text.lstrip("-").isascii() and text.lstrip("-").isdigit()):
            return None
        value = int(text)
    if isinstance(value, _NUMBERS) and -_INT64 < value < _INT64 and value == int(value):
        return int(value)
    return None
