"""Random numbers that can be asked for in any order."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generator.arrays import FloatArray, IntArray


class Noise:
    """Random numbers that depend on seed, node, name, index and column only.

    Nothing depends on what was drawn before, so a minute of a node is the same in a job of any length.
    Integer hashing and plain arithmetic, no numpy distribution: their streams change between versions.
    """

    def __init__(self, seed: int, node: int) -> None:
        self._scope = f"{seed}/{node}"

    def _words(self, name: str, index: IntArray, columns: int) -> NDArray[np.uint64]:
        digest = hashlib.sha256(f"{self._scope}/{name}".encode()).digest()
        key = np.uint64(int.from_bytes(digest[:8], "little"))
        rows = index.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
        lanes = np.arange(columns, dtype=np.uint64)[None, :] * np.uint64(0xD1342543DE82EF95)
        word = rows + lanes + key
        # The finalizer of splitmix64 (Steele, Lea, Flood 2014).
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))

    def uniform(self, name: str, index: IntArray, columns: int = 1) -> FloatArray:
        """Return numbers in [0, 1), one row per index."""
        word = self._words(name, index, columns) >> np.uint64(11)
        return word.astype(np.float64) * 2.0**-53

    def bell(self, name: str, index: IntArray, columns: int = 1) -> FloatArray:
        """Return numbers with mean 0 and standard deviation 1 that never leave -3.5 ... 3.5."""
        word = self._words(name, index, columns)
        total = np.zeros(word.shape)
        # The sum of four uniform numbers, 16 bits each, is close to a normal distribution.
        for shift in (0, 16, 32, 48):
            total += (word >> np.uint64(shift)) & np.uint64(0xFFFF)
        return (total / 65536.0 - 2.0) * math.sqrt(3.0)

    def constant(self, name: str, columns: int) -> FloatArray:
        """Return one number in [0, 1) per column that holds for the whole job."""
        return self.uniform(name, np.zeros(1, dtype=np.int64), columns)

    def drift(self, name: str, time_s: FloatArray, period_s: float, columns: int = 1) -> FloatArray:
        """Return slow wandering in -1 ... 1 with a turning point every ``period_s`` seconds."""
        position = time_s / period_s
        step = np.floor(position).astype(np.int64)
        before = self.uniform(name, step, columns)
        after = self.uniform(name, step + 1, columns)
        return (before + (after - before) * (position - step)[:, None]) * 2.0 - 1.0
