"""How the GPU time of a job was spent, according to the rule results of SageMaker Debugger alone.

How much was used comes from the histograms of LoadBalancing. The lost rest goes to causes as far as the other results
name them: the time before the first and after the last step, the snapshots that IOBottleneck and CPUBottleneck list,
and the time outside of steps if Dataloader shows that training waits for data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jobreport.debugger_report.causes import (
    MAYBE_START,
    never_used,
    of_bottlenecks,
    uneven_load,
)
from jobreport.debugger_report.findings import gpus_of
from jobreport.debugger_report.histograms import histograms_of
from jobreport.debugger_report.ledger import Ledger
from jobreport.readers.debugger_results.loop import loop_facts
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.io_bottleneck import IOBottleneck
from jobrules.load_balancing import LoadBalancing
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import CROWDED_PART
from jobrules.measures.work import Work
from jobrules.model import JobInMemory
from jobrules.rule import Rule
from jobrules.text import share
from jobrules.verdict.edges import edges
from jobrules.verdict.findings import loop_notes
from jobrules.verdict.story import Account

_R = TypeVar("_R", bound=Rule)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import LoopFacts, RuleResult
    from jobrules.verdict.story import Checks

#: What rules on samples are asked about here needs none.
_NO_JOB = JobInMemory(name="")
#: Steps that take this much of the time with GPUs below this percentage hold the fetches inside.
STEPS_PART, STEPS_IDLE = 0.8, 0.1


def account_of(results: RuleResults, checks: Checks) -> Account | None:
    """None if the results hold no histogram, or no time."""
    histograms = histograms_of(results)
    start_us, end_us = results.start_us, results.end_us
    if not histograms or start_us is None or end_us is None or start_us == end_us:
        return None
    facts = loop_facts(results)
    clocks = Clocks(start_us=start_us, end_us=end_us)
    work = _work(results, facts, clocks, histograms)
    ledger = Ledger(clocks, work, histograms)
    first_step = _chosen(checks, MaxInitializationTime)
    never, *started_and_ended = edges(_NO_JOB, work, first_step[1] if first_step else None)
    ledger.take(never_used(never, histograms, clocks, work), ledger.of_unused)
    for cause in started_and_ended:
        ledger.take(cause, ledger.outside_of_work(cause.key))
    if work:
        _take_io(ledger, results, checks, work)
        _take_cpu_and_loading(ledger, results, facts, checks, work)
        _take_differences(ledger, checks)
    return Account(
        checks=checks,
        work=work,
        length_us=clocks.length_us,
        causes=tuple(ledger.causes),
        nodes=ledger.nodes(),
        owners=ledger.owners,
        recorded={
            "CPU utilization": any(results.usage.get("CPU", {}).values()),
            "I/O wait": any(results.usage.get("I/O", {}).values()),
            "steps": facts is not None and facts.outside is not None,
            "data loading": facts is not None and facts.fetch_s is not None,
        },
        unknown_gpus=len(gpus_of(results) - histograms.keys()),
        notes=_notes(results, facts, work, ledger),
    )


def _chosen(checks: Checks, kind: type[_R]) -> tuple[_R, RuleResult] | None:
    """A rule with its result; None if it was not chosen."""
    return next(((rule, result) for rule, result in checks if isinstance(rule, kind)), None)


def _take_io(ledger: Ledger, results: RuleResults, checks: Checks, work: Work) -> None:
    if chosen := _chosen(checks, IOBottleneck):
        rule, result = chosen
        (waiting,) = rule.causes(_NO_JOB, result)
        ledger.take_snapshots(of_bottlenecks(waiting, work), results.bottlenecks[rule.name], 1, rule)


def _take_cpu_and_loading(
    ledger: Ledger, results: RuleResults, facts: LoopFacts | None, checks: Checks, work: Work
) -> None:
    """A saturated CPU; then fewer saturated cores, which belong to data loading where there is evidence of it."""
    cores = (facts.cores if facts else None) or 0
    cpu, loader = _chosen(checks, CPUBottleneck), _chosen(checks, Dataloader)
    found = results.bottlenecks["CPUBottleneck"]
    crowded, single = cpu[0].causes(_NO_JOB, cpu[1]) if cpu else (None, None)
    if cpu and crowded and cores:
        ledger.take_snapshots(of_bottlenecks(crowded, work), found, CROWDED_PART * cores, cpu[0])
    if loader and facts and facts.waited:
        nodes = [node for node, _ in ledger.gpus]
        cause = loader[0].waiting_in_loop(facts, cores, max(map(nodes.count, nodes)))
        ledger.take(cause, ledger.not_yet(facts.waited * work.length_us), loader[0])
    elif cpu and single:
        ledger.take_snapshots(of_bottlenecks(single, work, cores_known=bool(cores)), found, 1, cpu[0])


def _take_differences(ledger: Ledger, checks: Checks) -> None:
    chosen = _chosen(checks, LoadBalancing)
    if chosen and len(ledger.used) > 1:
        ledger.take(uneven_load(chosen[0], ledger.used), ledger.differences, chosen[0])


def _notes(
    results: RuleResults, facts: LoopFacts | None, work: Work | None, ledger: Ledger
) -> tuple[str, ...]:
    notes = list(loop_notes(facts))
    saturated = ledger.snapshots_left(results.bottlenecks["CPUBottleneck"])
    if facts and 0 < facts.waited < saturated:
        notes.append(
            f"A core was saturated in {share(saturated)} of snapshots, more than the time outside of steps: "
            "steps may hold fetches"
        )
    if work and work.whole:
        notes.append(MAYBE_START)
    used = max((one.used for one in ledger.used.values()), default=1.0)
    if facts and facts.outside is not None and 1 - facts.outside > STEPS_PART and used < STEPS_IDLE:
        notes.append("Steps take most of the time while the GPUs idle: they hold what the GPUs wait for")
    if facts and facts.note and not facts.waited:
        notes.append(facts.note)
    return tuple(notes)


def _work(
    results: RuleResults, facts: LoopFacts | None, clocks: Clocks, histograms: Mapping[GPU, Histogram]
) -> Work | None:
    """From the first to the last step; without steps, the longest stretch without a bottleneck, if it is most of the job.

    Steps that lasted for less than a GPU worked were recorded for a part of the work only.
    """
    worked = [one.above_zero / max(1, one.count) for one in histograms.values() if one.worked]
    steps_us = None
    if facts and facts.steps_us:
        first_us, last_us = max(clocks.start_us, facts.steps_us[0]), min(clocks.end_us, facts.steps_us[1])
        steps_us = (first_us, last_us) if first_us < last_us else None
    if not worked and steps_us is None:
        return None
    if steps_us and steps_us[1] - steps_us[0] < max(worked, default=0.0) * clocks.length_us:
        steps_us = None
    begin_us, end_us = steps_us or _undisturbed(results, clocks)
    return Work(
        clocks=clocks,
        begin_us=begin_us,
        end_us=end_us,
        gpu_us=(begin_us, end_us) if worked else None,
        steps_us=steps_us,
    )


def _undisturbed(results: RuleResults, clocks: Clocks) -> tuple[int, int]:
    """The longest stretch without a bottleneck if it is more than half of the job, else the whole job."""
    times = np.concatenate([found.time_us for found in results.bottlenecks.values()])
    times = np.clip(np.sort(times), clocks.start_us, clocks.end_us)
    ends_us = np.array([clocks.start_us, *times.tolist(), clocks.end_us])
    longest = int(np.argmax(np.diff(ends_us)))
    first_us, last_us = int(ends_us[longest]), int(ends_us[longest + 1])
    whole = (clocks.start_us, clocks.end_us)
    return (first_us, last_us) if 2 * (last_us - first_us) > clocks.length_us else whole
