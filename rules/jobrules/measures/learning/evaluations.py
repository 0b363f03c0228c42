"""The best evaluation of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobrules.measures.learning.robust import around, finite
from jobrules.model.learning import VAL_LOSS

if TYPE_CHECKING:
    from jobrules.model import FloatArray, IntArray
    from jobrules.model.learning import Learning

#: Evaluations before they are judged.
MIN_EVALUATIONS = 8


class Evaluations(Struct, frozen=True, kw_only=True, eq=False):
    """The validation loss at each evaluation."""

    #: (n,) and (n,).
    steps: IntArray
    loss: FloatArray
    #: (n - 2,) the median of each with its neighbors, from the second on.
    smooth: FloatArray

    @classmethod
    def of(cls, learning: Learning) -> Evaluations:
        """Those with a finite loss."""
        steps, loss = finite(learning.series(VAL_LOSS))
        return cls(steps=steps, loss=loss, smooth=around(loss))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def best(self) -> int:
        """The number, from 0, of the one with the lowest smooth loss."""
        return int(self.smooth.argmin()) + 1

    @property
    def best_step(self) -> int:
        """Its step."""
        return int(self.steps[self.best])
