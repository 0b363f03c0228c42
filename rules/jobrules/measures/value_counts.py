"""Millions of times as how often each occurred: small enough to be sent, exact enough for any quantile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model.order import between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import IntArray


class Counted(Struct, frozen=True, kw_only=True, eq=False):
    """Whole numbers, each with how often it occurred."""

    #: (n,) ascending, each once.
    values: IntArray
    #: (n,) at least 1.
    counts: IntArray

    @classmethod
    def of(cls, values: IntArray) -> Counted:
        """Numbers in any order."""
        each, counts = np.unique(values, return_counts=True)
        return cls(values=each, counts=counts)

    @classmethod
    def joined(cls, several: Sequence[Counted]) -> Counted:
        """All together."""
        values = np.concatenate([np.empty(0, np.int64), *(one.values for one in several)])
        each, place = np.unique(values, return_inverse=True)
        counts = np.zeros(len(each), np.int64)
        np.add.at(counts, place, np.concatenate([values[:0], *(one.counts for one in several)]))
        return cls(values=each, counts=counts)

    def __len__(self) -> int:
        """How many numbers, each as often as it occurred."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """Their sum."""
        return int((self.values * self.counts).sum())

    def up_to(self, limit: float) -> Counted:
        """Those that are not larger."""
        last = np.searchsorted(self.values, limit, side="right")
        return Counted(values=self.values[:last], counts=self.counts[:last])

    def above(self, limit: float) -> int:
        """How many are larger."""
        return len(self) - len(self.up_to(limit))

    def quantiles(self, *shares: float) -> list[float]:
        """As ``np.quantile`` has them, of one number at least."""
        ranks = np.cumsum(self.counts)
        place = (ranks[-1] - 1) * np.array(shares)
        below = place.astype(np.int64)
        low, high = (
            self.values[np.searchsorted(ranks, np.minimum(at, ranks[-1] - 1), side="right")]
            for at in (below, below + 1)
        )
        return [float(one) for one in between(low, high, place - below).tolist()]
