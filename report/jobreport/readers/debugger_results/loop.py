"""What rule results of SageMaker Debugger say about the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrules.model import SECOND_US, LoopFacts, Stalls
from jobrules.text import percent

if TYPE_CHECKING:
    from jobreport.readers.debugger_results.details import StepStats
    from jobreport.readers.debugger_results.rule_results import RuleResults

#: As a fact's source.
SOURCE = "SageMaker Debugger's results"
#: Shares off by this much are rounding.
ROUNDING_PERCENT = 1.0


def loop_facts(results: RuleResults) -> LoopFacts:
    """What the results say of steps, fetches, cores, and stalls."""
    first_us, last_us = results.first_step_us, results.last_step_us
    loader, phases, known = results.loader, results.phases, results["Dataloader"]
    fetches = (known.datapoints if known else None) or 0
    steps_s = [stats.p50 for stats in training_steps(results) if stats.p50 is not None]
    shares = sorted(phases.values())
    wrong = bool(shares) and (shares[0] < -ROUNDING_PERCENT or shares[-1] > 100 + ROUNDING_PERCENT)
    outside = None if wrong else _outside(results)
    note = ""
    if wrong:
        note = f"The shares of the phases are impossible: {percent(shares[0])} to {percent(shares[-1])}"
    elif outside is not None and 100 * outside > phases["others"] + ROUNDING_PERCENT:
        note = f"The result itself says {percent(phases['others'])}, which is known to be too little"
    return LoopFacts(
        source=SOURCE,
        steps_us=(first_us, last_us) if first_us and last_us and first_us < last_us else None,
        outside=outside,
        note=note,
        steps=step_events(results) // max(1, len(results.steps)),
        step_s=max(steps_s, default=None),
        fetch_s=loader.dataloading_time.p50,
        fetches=fetches,
        of_first_fetches=fetches <= max(1, len(results.steps)),
        num_workers=loader.num_workers,
        # Cores with equal names on several nodes count once.
        cores=loader.cores if len(nodes_of(results)) <= 1 else None,
        stalls=_stalls(results),
    )


def nodes_of(results: RuleResults) -> set[str]:
    """All nodes that a result names."""
    named = (results.low_gpu, results.memory, results.workloads, results.small_batch)
    nodes = {node for gpus in named for node, _ in gpus}
    return nodes | {node for used in results.usage.values() for node in used}


def step_events(results: RuleResults) -> int:
    """How many steps of all ranks the results count; some may be counted twice."""
    counted = (results["MaxInitializationTime"], results["StepOutlier"])
    return max(one.datapoints or 0 if one else 0 for one in counted)


def _stalls(results: RuleResults) -> dict[str, Stalls]:
    """The entries of the bottleneck rules, as far as what they look for was sampled."""
    start_us, end_us, stalls = results.start_us, results.end_us, {}
    nodes = len(nodes_of(results))
    for key, rule, metric in (("cpu", "CPUBottleneck", "CPU"), ("io", "IOBottleneck", "I/O")):
        document, found = results[rule], results.bottlenecks[rule]
        snapshots = (document.datapoints if document else None) or 0
        if snapshots and results.usage.get(metric) and start_us is not None and end_us is not None:
            stalls[key] = Stalls(
                time_us=found.time_us,
                cores=found.cores,
                interval_us=nodes * (end_us - start_us) / snapshots,
                snapshots=snapshots,
                of_one_node=nodes == 1,
            )
    return stalls


def training_steps(results: RuleResults) -> list[StepStats]:
    """Of the ranks whose training steps the results keep: they keep one mode of each."""
    return [one.step_stats for one in results.steps.values() if not one.phase.endswith("EVAL")]


def _outside(results: RuleResults) -> float | None:
    """Share of the time outside of steps; None if it is not known.

    Of a single rank, ``others`` is half of the true time; the steps of several ranks are summed over them (OFM-1 and
    OFM-2 of docs/differences.md). Never more than what the mean and the number of steps leave.
    """
    others, counted = results.phases.get("others"), results["StepOutlier"]
    if others is None:
        return None
    others, ranks = max(0.0, others), max(1, len(results.steps))
    stepped = sum(share for phase, share in results.phases.items() if phase != "others")
    outside = 1 - stepped / max(1.0, ranks * (2 * others + stepped))
    means_s = [stats.mean for stats in training_steps(results) if stats.mean is not None]
    first_us, last_us = results.first_step_us, results.last_step_us
    if means_s and counted and counted.datapoints and first_us and last_us and first_us < last_us:
        steps_us = SECOND_US * max(means_s) * counted.datapoints / ranks
        outside = min(outside, 1 - steps_us / (last_us - first_us))
    return min(1.0, max(0.0, outside))
