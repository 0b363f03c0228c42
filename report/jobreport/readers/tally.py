"""Counting what is left out or changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jobreport.remarks import Remark
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORDER = ("failed", "skipped", "dropped", "corrected")


class Tally:
    """Remarks in the making: counts by reason, each with the first place it was met at."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._files: set[str] = set()
        self._first: dict[tuple[str, str, str], tuple[str, int]] = {}

    def add(
        self, action: str, unit: str, reason: str, *, count: int = 1, file: str | None = None, line: int = 0
    ) -> None:
        """Count; of all files that are named, the first by name and line becomes the example."""
        key = (action, unit, reason)
        self._counts[key] += count
        if file is not None:
            if unit == "files":
                self._files.add(file)
            self._first[key] = min(self._first.get(key, (file, line)), (file, line))

    def take(self, remarks: Iterable[Remark]) -> None:
        """Add what was counted elsewhere; of several examples the first by name."""
        for one in remarks:
            self.add(one.action, one.unit, one.reason, count=one.count, file=one.example)

    def mentions(self, file: str) -> bool:
        """Whether there is a remark on the file as a whole."""
        return file in self._files

    def remarks(self) -> tuple[Remark, ...]:
        """All reasons that were met, by action, then the most frequent first."""
        order = sorted(self._counts.items(), key=lambda item: (_ORDER.index(item[0][0]), -item[1], item[0]))
        return tuple(
            Remark(action=key[0], count=count, unit=key[1], reason=key[2], example=self._example(key))
            for key, count in order
            if count
        )

    def _example(self, key: tuple[str, str, str]) -> str | None:
        if key not in self._first:
            return None
        file, line = self._first[key]
        return f"{escape_name(file, 200)}:{line}" if line else escape_name(file, 200)
