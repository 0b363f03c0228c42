"""DeadRelu: units of ReLU modules never fire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jobrules.model import Severity
from jobrules.rule import percent
from jobrules.rules.learning.activation_rule import ActivationRule


@dataclass(frozen=True, kw_only=True)
class DeadRelu(ActivationRule):
    """Units of ReLU modules never fire.

    What it checks
        The share of units of a ReLU module without a positive output in 10 recorded batches. Triggers if it is above
        ``units`` in half of the later records.

    Why it matters
        A unit that never fires gets no gradient and stays dead.

    What to do
        * Lower the learning rate.
        * Check the scale of the inputs, and how biases are initialized.
        * Use LeakyReLU or GELU.

    Details
        Judges the second half of the records. Critical if all modules are counted. Functions in place of modules, and compiled models, cannot be recorded.
    """

    title: ClassVar[str] = "Units of ReLU modules never fire"
    aliases: ClassVar[dict[str, str]] = {"threshold_layer": "units"}
    column: ClassVar[str] = "dead"
    did: ClassVar[str] = "of the units never fired"
    module: ClassVar[str] = "ReLU module"
    of_all: ClassVar[Severity] = Severity.CRITICAL

    units: float = percent(50.0, "units of a module that never fire")

    @property
    def limit(self) -> float:
        """Of units."""
        return self.units
