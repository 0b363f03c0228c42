"""Counting what is left out or changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from jobreport.remarks import REMARKS, TEXT, TEXT_LENGTH, Remark
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORDER = ("failed", "skipped", "dropped", "corrected", "used")

#: Code and fields.
_Key: TypeAlias = tuple[str, tuple[tuple[str, str | int | float], ...]]


class UnusableError(Exception):
    """A file, line or member that cannot be used: code and fields of the remark on it."""

    def __init__(self, code: str, **fields: Any) -> None:
        super().__init__(code)
        self.code, self.fields = code, fields


class Tally:
    """Remarks in the making: counts by code and fields, each with the first place it was met at."""

    def __init__(self) -> None:
        self._counts: Counter[_Key] = Counter()
        self._files: set[str] = set()
        self._first: dict[_Key, tuple[str, int, str]] = {}

    def note(
        self,
        code: str,
        *,
        count: int = 1,
        file: str | None = None,
        line: int = 0,
        text: str = "",
        **fields: str | int | float,
    ) -> None:
        """Count, unless ``count`` is 0; of all files that are named, the first by name and line becomes the place.

        ``text`` is what stands at that place.
        """
        if not count:
            return
        key = code, tuple(fields.items())
        self._counts[key] += count
        if file is not None:
            if fields.get("unit", REMARKS[code].unit) == "files":
                self._files.add(file)
            self._set_first(key, escape_name(file, 200), line, escape_name(text, TEXT_LENGTH))

    def place(self, code: str, file: str) -> None:
        """Name a file of what is counted without one."""
        self._set_first((code, ()), escape_name(file, 200), 0)

    def take(self, remarks: Iterable[Remark]) -> None:
        """Add what was counted elsewhere; of several places the first by name."""
        for one in remarks:
            key = one.code, tuple((name, value) for name, value in one.fields.items() if name != TEXT)
            self._counts[key] += one.count
            if one.place is not None:
                self._set_first(key, one.place, 0, str(one.fields.get(TEXT, "")))

    def add(self, other: Tally) -> None:
        """Add what another one counted."""
        self._counts += other._counts
        self._files |= other._files
        for key, first in other._first.items():
            self._set_first(key, *first)

    def mentions(self, file: str) -> bool:
        """Whether there is a remark on the file as a whole."""
        return file in self._files

    def remarks(self) -> tuple[Remark, ...]:
        """All that were met, by action, then the most frequent first."""
        found = [
            Remark(code=key[0], count=count, place=self._place(key), fields=self._fields(key))
            for key, count in self._counts.items()
        ]
        return tuple(
            sorted(found, key=lambda one: (_ORDER.index(one.action), -one.count, one.unit, one.reason))
        )

    def _set_first(self, key: _Key, place: str, line: int, text: str = "") -> None:
        self._first[key] = min(self._first.get(key, (place, line, text)), (place, line, text))

    def _place(self, key: _Key) -> str | None:
        place, line, _ = self._first.get(key, (None, 0, ""))
        return f"{place}:{line}" if line else place

    def _fields(self, key: _Key) -> dict[str, str | int | float]:
        _, _, text = self._first.get(key, ("", 0, ""))
        return {**dict(key[1]), **({TEXT: text} if text else {})}


def most_frequent(remarks: Iterable[Remark], most: int) -> tuple[Remark, ...]:
    """The remarks, in their order: of a code with a ``rest`` the first ``most``, and all others as that."""
    tally = Tally()
    seen: Counter[str] = Counter()
    for one in remarks:
        seen[one.code] += 1
        rest = REMARKS[one.code].rest
        tally.take([replace(one, code=rest, fields={}) if rest and seen[one.code] > most else one])
    return tally.remarks()
