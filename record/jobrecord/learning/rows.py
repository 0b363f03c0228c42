"""Rows of a record: statistics of one tensor each, first on its device, then as the columns of a line."""

from __future__ import annotations

from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch

from jobrecord.learning import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNTS = ("nan", "inf", "zero")


class Row:
    """Statistics of one tensor of a collection; `tensor` is what this rank holds of it."""

    def __init__(self, name: str, collection: str, tensor: Any, *, dtype: str = "", **facts: Any) -> None:
        self.name, self.collection = name, collection
        #: What is written once of the tensor.
        self.facts = {
            "shape": list(tensor.shape),
            "dtype": dtype or kind(tensor),
            "trainable": True,
            "optimized": True,
            "m": "",
            "order": None,
        } | facts
        self._elements = statistics.flat(tensor)
        self.count = self._elements.numel()
        self._sampled: int | None = None
        self._divisor: Any = None
        self._is_exact = True
        #: Vectors on the device, by what they are; then on the host.
        self._parts: dict[str, Any] = {}
        self._values: dict[str, list[float]] = {}

    @property
    def key(self) -> tuple[Any, ...]:
        """What is named once: the tensor, and whether it trains."""
        return self.name, self.collection, self.facts.get("trainable"), self.facts.get("optimized")

    def summarize(self, divisor: Any = None, *, later: bool = False) -> Row:
        """Add statistics of all elements. With `later`, the tensor is there until `fetch`, which looks again if needed."""
        self._divisor, self._is_exact = divisor, not later
        if self.count:
            call = statistics.summary if later else statistics.exact
            self._parts["summary"] = call(self._elements, divisor)
        return self

    def sample(self, taken: Any = None, *, histogram: bool = True) -> Row:
        """Add the histogram of a sample."""
        taken = statistics.sample(self._elements) if taken is None else taken
        self._sampled = taken.numel()
        if histogram and self.count:
            taken = taken if self._divisor is None else taken / self._divisor
            self._parts["bins"] = statistics.histogram(taken)
        return self

    def add(self, name: str, *numbers: Any) -> None:
        """Add numbers, on the device."""
        self._parts[name] = torch.stack([one.double() for one in numbers])

    @staticmethod
    def fetch(rows: Iterable[Row]) -> None:
        """Bring the numbers of rows to the host; what they are of is not needed after this."""
        waiting = [row for row in rows if row._parts]
        vectors = [torch.cat([*row._parts.values()]) for row in waiting]
        for row, numbers in zip(waiting, statistics.fetched(vectors), strict=True):
            begin = 0
            for name, part in row._parts.items():
                row._values[name] = numbers[begin : (begin := begin + part.numel())]
        doubtful = [
            row
            for row in waiting
            if not row._is_exact and statistics.is_doubtful(row._values["summary"], row.count)
        ]
        again = [statistics.exact(row._elements, row._divisor) for row in doubtful]
        for row, numbers in zip(doubtful, statistics.fetched(again), strict=True):
            row._values["summary"] = numbers
        for row in rows:
            row._parts, row._elements, row._divisor = {}, None, None

    def columns(self) -> dict[str, Any]:
        """The numbers as they are written; None where there is none."""
        found: dict[str, Any] = {"count": self.count}
        summary = self._values.get("summary", [] if self.count else [0.0] * 6 + [float("nan")] * 2)
        for name, value in zip(statistics.SUMMARY, summary, strict=False):
            found[name] = int(value) if name in _COUNTS else rounded(value)
        if bins := self._values.get("bins"):
            positive, *counts = map(int, bins)
            filled = [place for place, one in enumerate(counts) if one]
            first, last = (filled[0], filled[-1]) if filled else (0, -1)
            found["hist_first"] = first + statistics.LOWEST if filled else None
            found["hist"] = counts[first : last + 1]
            found["positive"] = rounded(positive / sum(counts)) if filled else None
            found["sampled"] = self._sampled
        if moved := self._values.get("ratio"):
            found["sampled"] = self._sampled
            found["ratio"] = rounded(moved[0] / moved[1]) if moved[1] else None
        for name in ("dead", "saturated"):
            if share := self._values.get(name):
                found[name] = rounded(share[0])
        return found


COLUMNS = (
    *("count", *statistics.SUMMARY, "hist_first", "hist", "positive", "sampled"),
    *("ratio", "dead", "saturated"),
)


def lines(rows: list[Row], ids: list[int], **record: Any) -> list[dict[str, Any]]:
    """A line for each collection. The first one has what the whole record took."""
    found = []
    by_collection = sorted(zip(rows, ids, strict=True), key=lambda one: one[0].collection)
    for collection, group in groupby(by_collection, key=lambda one: one[0].collection):
        members = list(group)
        every = [row.columns() for row, _ in members]
        line = {"kind": "record", **record, "c": collection, "id": [number for _, number in members]}
        line |= {
            name: [one.get(name) for one in every] for name in COLUMNS if any(name in one for one in every)
        }
        found.append(line)
        record = record | {"cost_us": 0}
    return found


def rounded(value: float) -> float | None:
    """Four digits of a number; None for what JSON has no number for."""
    return float(f"{value:.4g}") if isfinite(value) else None


def kind(tensor: Any) -> str:
    """The type of the elements: ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")
