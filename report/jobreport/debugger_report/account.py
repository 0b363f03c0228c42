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
    inferred,
    never_used,
    uneven_load,
)
from jobreport.debugger_report.findings import gpus_of
from jobreport.debugger_report.histograms import histograms_of
from jobreport.debugger_report.ledger import Ledger
from jobreport.document import DEBUGGER
from jobreport.readers.debugger_results.loop import loop_facts, training_steps
from jobrules.causes.cpu import ONLY_IDLE, busy_process, few_cores, saturated_cores
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import CROWDED_PART, ProcessUse
from jobrules.measures.data_waits import SAME_PART
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, JobInMemory, Note
from jobrules.model.loop_facts import RELEVANT_PART
from jobrules.rule import Rule
from jobrules.rules.batch_size import MAX_CLAIMED, MAX_IDLE, BatchSize
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.max_initialization_time import MaxInitializationTime
from jobrules.text import duration, share, took
from jobrules.verdict.edges import edges
from jobrules.verdict.findings import IDLE_STEPS, LONG_STEPS, STEPS_HOLD, loop_notes
from jobrules.verdict.story import Account

_R = TypeVar("_R", bound=Rule)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU, Usage
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import Fact, LoopFacts, RuleResult
    from jobrules.model.claims import Cause
    from jobrules.verdict.story import Checks

#: What rules on samples are asked about here needs none.
_NO_JOB = JobInMemory(name="")
#: If the mean of the steps is this many times their median, the longer half takes at least three quarters of the time.
LONG_MEAN = 2.0


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
    unknown = gpus_of(results) - histograms.keys()
    ledger.take(never_used(never, histograms, len(unknown), work), ledger.of_unused)
    if work:
        ends = "first and last step" if work.steps_us else "the longest time without a bottleneck"
        for cause in started_and_ended:
            ledger.take(inferred(cause, ends), ledger.outside_of_work(cause.key))
        _take_io(ledger, results, checks, work)
        _take_cpu(ledger, results, facts, checks, work)
        _take_loading(ledger, facts, checks, work)
        _take_few_cores(ledger, results, facts, checks, work)
        _take_differences(ledger, checks)
        _take_steady(ledger, results, facts, checks)
    saturated = ledger.snapshots_left(results.bottlenecks["CPUBottleneck"])
    return Account(
        checks=checks,
        work=work,
        length_us=clocks.length_us,
        causes=tuple(ledger.causes),
        nodes=ledger.nodes(),
        owners=ledger.owners,
        recorded=_recorded(results, facts, saturated),
        unknown_gpus=len(unknown),
        source=DEBUGGER,
        notes=_notes(results, facts, ledger, saturated),
    )


def _chosen(checks: Checks, kind: type[_R]) -> tuple[_R, RuleResult] | None:
    """A rule with its result; None if it was not chosen."""
    return next(((rule, result) for rule, result in checks if isinstance(rule, kind)), None)


def _start_unknown(work: Work | None) -> tuple[str, ...]:
    return (MAYBE_START,) if work and work.whole and not work.steps_us else ()


def _of_bottlenecks(cause: Cause, rule: Rule, work: Work, *facts: Fact) -> Cause:
    """A cause that is seen in the entries of a rule."""
    return inferred(cause, f"entries of {rule.name}", *facts, *map(Note, _start_unknown(work)))


def _take_io(ledger: Ledger, results: RuleResults, checks: Checks, work: Work) -> None:
    if chosen := _chosen(checks, IOBottleneck):
        rule, result = chosen
        (waiting,) = rule.causes(_NO_JOB, result)
        cause = _of_bottlenecks(waiting, rule, work)
        ledger.take_snapshots(cause, results.bottlenecks[rule.name], 1, rule)


def _take_cpu(ledger: Ledger, results: RuleResults, facts: LoopFacts, checks: Checks, work: Work) -> None:
    """A saturated CPU: half of a known number of cores."""
    cores = facts.cores or 0
    if cores and (chosen := _chosen(checks, CPUBottleneck)):
        rule, result = chosen
        found = results.bottlenecks[rule.name]
        crowded, _ = rule.causes(_NO_JOB, result)
        in_work = (found.time_us >= work.begin_us) & (found.time_us <= work.end_us)
        cause = _of_bottlenecks(crowded, rule, work, *saturated_cores(found.cores[in_work].tolist(), cores))
        ledger.take_snapshots(cause, found, CROWDED_PART * cores, rule)


def _take_loading(ledger: Ledger, facts: LoopFacts, checks: Checks, work: Work) -> None:
    """The time in which training waited for data: of the work, or of the part that has steps unless the rest looks the
    same.
    """
    loader = _chosen(checks, Dataloader)
    if not (loader and facts.waited):
        return
    nodes = [node for node, _ in ledger.gpus]
    cause = loader[0].waiting_in_loop(facts, facts.cores or 0, max(map(nodes.count, nodes)))
    length_us = work.length_us
    if facts.steps_us and not work.steps_us:
        recorded_us = facts.steps_us[1] - facts.steps_us[0]
        lost = max((1 - ledger.in_work(gpu).used for gpu in ledger.used), default=0.0)
        if abs(lost - facts.waited) > SAME_PART * facts.waited:
            length_us = recorded_us
        cause = inferred(
            cause,
            "Dataloader",
            Note(f"Steps were recorded for {duration(recorded_us)} of {duration(work.length_us)}"),
        )
    ledger.take(cause, ledger.not_yet(facts.waited * length_us), loader[0])


def _take_few_cores(
    ledger: Ledger, results: RuleResults, facts: LoopFacts, checks: Checks, work: Work
) -> None:
    """Fewer saturated cores, or some of an unknown number, where training does not wait for data by other evidence."""
    chosen = _chosen(checks, CPUBottleneck)
    if chosen and not facts.waited:
        rule, result = chosen
        cause = few_cores(rule, result, cores_known=bool(facts.cores))
        ledger.take_snapshots(
            _of_bottlenecks(cause, rule, work, Note(ONLY_IDLE)), results.bottlenecks[rule.name], 1, rule
        )


def _take_differences(ledger: Ledger, checks: Checks) -> None:
    chosen = _chosen(checks, LoadBalancing)
    if chosen and len(ledger.used) > 1:
        ledger.take(
            uneven_load(chosen[0], {gpu: ledger.in_work(gpu) for gpu in ledger.used}),
            ledger.differences,
            chosen[0],
        )


def _take_steady(ledger: Ledger, results: RuleResults, facts: LoopFacts | None, checks: Checks) -> None:
    """GPUs steadily below their capacity: one process may be the limit; or small batches, where the CPU has room, on the
    grounds that rules on samples have.

    The mean of an unknown number of cores clears nobody.
    """
    chosen = _chosen(checks, BatchSize)
    cpu = [results.usage.get("CPU", {}).get(node) for node in {node for node, _ in ledger.used}]
    if not chosen or not cpu or not facts or not facts.cores:
        return
    rule, result = chosen
    in_work = {gpu: ledger.in_work(gpu) for gpu in ledger.used}
    highest = max(one.p95 for one in in_work.values())
    if (
        highest < rule.gpu_threshold_p95
        and all(used and _highest_mean(used) < rule.cpu_threshold_p95 for used in cpu)
        and all(
            one.idle < MAX_IDLE and ledger.left_part(gpu) >= 1 - MAX_CLAIMED for gpu, one in in_work.items()
        )
    ):
        cores = max(used.p50 for used in cpu if used) / 100 * facts.cores
        use = ProcessUse(used=cores, cores=facts.cores, processes=1)
        owner: Rule = rule
        cause = rule.cause(_NO_JOB, result, highest)
        if use.at_limit and (of_process := _chosen(checks, CPUBottleneck)):
            owner, found = of_process
            cause = busy_process(of_process[0], found, use)
        ledger.take_active(inferred(cause, "LoadBalancing and OverallSystemUsage"), owner)


def _highest_mean(usage: Usage) -> float:
    """Upper bound of a mean by its quantiles."""
    return 0.5 * usage.p50 + 0.45 * usage.p95 + 0.04 * usage.p99 + 0.01 * usage.max


def _recorded(results: RuleResults, facts: LoopFacts, saturated: float) -> dict[str, bool]:
    """What could show a cause, and whether it was recorded; without what was and is undecided, as steps always are."""
    known = {
        "CPU utilization": bool(results["CPUBottleneck"] and results.usage.get("CPU")),
        "I/O wait": bool(results["IOBottleneck"] and results.usage.get("I/O")),
        "steps": facts.steps > 0,
        "data loading": facts.fetch_s is not None,
    }
    undecided = {"steps", *(["CPU utilization"] if saturated >= max(facts.waited, RELEVANT_PART) else [])}
    return {what: there for what, there in known.items() if not (there and what in undecided)}


def _notes(results: RuleResults, facts: LoopFacts, ledger: Ledger, saturated: float) -> tuple[str, ...]:
    """What limits the account; a core was saturated in a part of the snapshots that no cause has taken."""
    notes = list(loop_notes(facts))
    waited = facts.waited
    if facts.note and not waited:
        notes.append(facts.note)
    if 0 < waited < saturated:
        notes.append(
            f"A core was saturated in {share(saturated)} of snapshots, more than the time outside of steps: "
            "steps may hold fetches"
        )
    notes += _start_unknown(ledger.work)
    stepped = 1 - facts.outside if facts.outside is not None else 0.0
    used = max((ledger.in_work(gpu).used for gpu in ledger.used), default=1.0)
    if stepped > LONG_STEPS and used < IDLE_STEPS:
        notes.append(STEPS_HOLD)
    elif stepped >= RELEVANT_PART and (long := _long_steps(results)):
        notes.append(long)
    return tuple(notes)


def _long_steps(results: RuleResults) -> str:
    """Sentence on steps that take twice their median on average; empty if they do not."""
    times = [(one.mean, one.p50) for one in training_steps(results) if one.mean and one.p50]
    mean_s, median_s = max(times, default=(0.0, 0.0))
    if mean_s < LONG_MEAN * median_s or not median_s:
        return ""
    took_s = f"{took(SECOND_US * mean_s)} on average, {took(SECOND_US * median_s)} in the median"
    return f"A step takes {took_s}: the long ones take most of the time, and may hold what GPUs wait for"


def _work(
    results: RuleResults, facts: LoopFacts, clocks: Clocks, histograms: Mapping[GPU, Histogram]
) -> Work | None:
    """From the first to the last step; without steps, the longest stretch without a bottleneck, if it is most of the job.

    Steps that lasted for less than a GPU worked were recorded for a part of the work only.
    """
    worked = [one.above_zero / max(1, one.count) for one in histograms.values() if one.worked]
    steps_us = None
    if facts.steps_us:
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
