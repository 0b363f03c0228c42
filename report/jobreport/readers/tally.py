"""Counting what is left out or changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from jobreport.remarks import Remark
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORDER = ("failed", "skipped", "dropped", "corrected")

_Key: TypeAlias = tuple[str, tuple[tuple[str, str | int | float], ...]]


class Tally:
    """Remarks in the making: counts by code and fields, each with the first place it was met at."""

    def __init__(self) -> None:
        self._counts: Counter[_Key] = Counter()
        self._files: set[str] = set()
        self._first: dict[_Key, tuple[str, int]] = {}

    def note(
        self,
        code: str,
        *,
        count: int = 1,
        file: str | None = None,
        line: int = 0,
        **fields: str | int | float,
    ) -> None:
        """Count; of all files that are named, the first by name and line becomes the place."""
        self._count(Remark(code=code, count=count, fields=fields), file, line)

    def add(
        self, action: str, unit: str, reason: str, *, count: int = 1, file: str | None = None, line: int = 0
    ) -> None:
        """As ``note``, for a caller without a code."""
        self.note("text", count=count, file=file, line=line, action=action, unit=unit, reason=reason)

    def take(self, remarks: Iterable[Remark]) -> None:
        """Add what was counted elsewhere; of several places the first by name."""
        for one in remarks:
            self._count(one, one.place, 0)

    def _count(self, remark: Remark, file: str | None, line: int) -> None:
        if not remark.count:
            return
        key = (remark.code, tuple(remark.fields.items()))
        self._counts[key] += remark.count
        if file is not None:
            if remark.unit == "files":
                self._files.add(file)
            self._first[key] = min(self._first.get(key, (file, line)), (file, line))

    def mentions(self, file: str) -> bool:
        """Whether there is a remark on the file as a whole."""
        return file in self._files

    def remarks(self) -> tuple[Remark, ...]:
        """All that were met, by action, then the most frequent first."""
        found = [
            Remark(code=key[0], count=count, place=self._place(key), fields=dict(key[1]))
            for key, count in self._counts.items()
        ]
        return tuple(
            sorted(found, key=lambda one: (_ORDER.index(one.action), -one.count, one.unit, one.reason))
        )

    def _place(self, key: _Key) -> str | None:
        if key not in self._first:
            return None
        file, line = self._first[key]
        return f"{escape_name(file, 200)}:{line}" if line else escape_name(file, 200)
