"""What the machine does: a module per scenario, listed here under the name the command knows it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from generator.scenarios import cpu, fluctuating, healthy

if TYPE_CHECKING:
    from generator.job import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {
    "healthy": healthy.SCENARIO,
    "fluctuating": fluctuating.SCENARIO,
    "cpu": cpu.SCENARIO,
}
