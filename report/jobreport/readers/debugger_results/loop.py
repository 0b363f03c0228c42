"""What rule results of SageMaker Debugger say about the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrules.model import LoopFacts
from jobrules.text import percent

if TYPE_CHECKING:
    from jobreport.readers.debugger_results.rule_results import RuleResults

#: The rules whose results are read here.
LOOP_RULES = ("StepOutlier", "MaxInitializationTime", "Dataloader", "OverallFrameworkMetrics")
#: As a fact's source.
SOURCE = "SageMaker Debugger's results"
#: Shares off by this much are rounding.
ROUNDING_PERCENT = 1.0


def loop_facts(results: RuleResults) -> LoopFacts | None:
    """None if the results hold neither steps nor fetches."""
    first_us, last_us = results.first_step_us, results.last_step_us
    loader, phases, known = results.loader, results.phases, results["Dataloader"]
    fetch_s = loader.dataloading_time.p50
    if not phases and fetch_s is None and (first_us is None or last_us is None):
        return None
    # Of each rank, the results keep one mode.
    training = [one.step_stats.p50 for one in results.steps.values() if not one.phase.endswith("EVAL")]
    steps_s = [p50 for p50 in training if p50 is not None]
    shares = sorted(phases.values())
    wrong = bool(shares) and (shares[0] < -ROUNDING_PERCENT or shares[-1] > 100 + ROUNDING_PERCENT)
    outside = phases.get("others")
    return LoopFacts(
        source=SOURCE,
        steps_us=(first_us, last_us) if first_us and last_us and first_us < last_us else None,
        outside=None if wrong or outside is None else min(1.0, max(0.0, outside / 100)),
        impossible=f"{percent(shares[0])} to {percent(shares[-1])}" if wrong else "",
        step_s=max(steps_s, default=None),
        fetch_s=fetch_s,
        fetches=(known.datapoints if known else None) or 0,
        num_workers=loader.num_workers,
        cores=loader.cores if len({node for used in results.usage.values() for node in used}) == 1 else None,
    )
