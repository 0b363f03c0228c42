"""SaturatedActivation: outputs of tanh and sigmoid modules are flat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jobrules.rule import percent
from jobrules.rules.learning.activation_rule import ActivationRule


@dataclass(frozen=True, kw_only=True)
class SaturatedActivation(ActivationRule):
    """Outputs of tanh and sigmoid modules are flat.

    What it checks
        The share of outputs of each tanh or sigmoid module whose derivative is below 5% of its maximum. Triggers if it is
        above ``share`` in half of the later records.

    Why it matters
        Almost no gradient passes a flat output.

    What to do
        * Scale the inputs, and use smaller initial weights.
        * Normalize before the activation.

    Details
        Judges the second half of the records. Flat is a tanh above 0.9747 or below -0.9747, and a sigmoid above 0.9873 or below 0.0127. Functions in place of
        modules, and compiled models, cannot be recorded.
    """

    title: ClassVar[str] = "Outputs of tanh and sigmoid modules are flat"
    column: ClassVar[str] = "saturated"
    did: ClassVar[str] = "of the outputs were flat"
    module: ClassVar[str] = "tanh or sigmoid module"

    share: float = percent(50.0, "outputs of a module that are flat")

    @property
    def limit(self) -> float:
        """Of outputs."""
        return self.share
