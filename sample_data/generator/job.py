"""What job to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from generator.curves import Curves, Moment
    from generator.steps import Steps


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A way for a job to behave, and the machine it is typically run on."""

    summary: str
    curves: Callable[[Moment], Curves]
    #: What the training processes record; none where the job is not instrumented.
    steps: Steps | None = None
    #: Names of the rules that it is made to trigger, and of those that trigger for the same cause.
    triggers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int
    cores: int
    duration_s: float
    #: What it is made for shows in a log of nvidia-smi only, so it is written as one unless told otherwise.
    logged: bool = False
    interval_ms: int = 500
    #: From when to when, in seconds since the start, no sample is taken.
    pauses_s: tuple[tuple[float, float], ...] = ()
    #: How far the clock of every node but the first is ahead.
    clock_ahead_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A scenario on a machine, with a time and a seed."""

    scenario: Scenario
    #: The scenario's, or none where only samples are wanted.
    steps: Steps | None
    nodes: int
    gpus: int
    cores: int
    duration_us: int
    interval_us: int
    start_us: int
    seed: int
    #: Samples are taken at whole multiples of this.
    resolution_us: int = 1

    @classmethod
    def of(cls, scenario: Scenario, **changes: Any) -> JobSpec:
        """A scenario on its own machine, for as long as it takes, on 2025-03-04, with ``changes``."""
        known = {
            "steps": scenario.steps,
            "nodes": scenario.nodes,
            "gpus": scenario.gpus,
            "cores": scenario.cores,
            "duration_us": round(scenario.duration_s * 1e6),
            "interval_us": 1000 * scenario.interval_ms,
            "start_us": 1_741_080_077_500_000,
            "seed": 1,
        }
        return cls(scenario=scenario, **(known | changes))

    def clock_us(self, node: int) -> int:
        """What the clock of a node shows at the start of the job."""
        return self.start_us + (round(self.scenario.clock_ahead_s * 1e6) if node > 1 else 0)
