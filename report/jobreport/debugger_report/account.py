"""How the GPU time of a job was spent, according to the rule results of SageMaker Debugger alone.

How much was used comes from the histograms of LoadBalancing. The lost rest goes to causes as far as the other results
name them: the time before the first and after the last step, the snapshots that IOBottleneck and CPUBottleneck list,
and the time outside of steps if Dataloader shows that training waits for data.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.debugger_report.findings import IDLE_ADVICE, gpus_of
from jobreport.debugger_report.histograms import histograms_of
from jobreport.debugger_report.ledger import Ledger
from jobreport.document import DEBUGGER
from jobreport.readers.debugger_results.loop import SOURCE, loop_facts, training_steps
from jobrules.causes.cpu import ONLY_IDLE, busy_process, few_cores, saturated_cores
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import CROWDED_PART, ProcessUse, near_one
from jobrules.measures.data_waits import SAME_PART
from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Finding, Inferred, JobInMemory, Note, Where
from jobrules.model.loop_facts import RELEVANT_PART
from jobrules.rule import Role, Rule
from jobrules.rules.batch_size import MAX_CLAIMED, MAX_IDLE, BatchSize
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.text import duration, share, took
from jobrules.verdict.account import IDLE_STEPS, LONG_STEPS, STEPS_HOLD, loop_notes
from jobrules.verdict.edges import edges, never_used_finding
from jobrules.verdict.story import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU, Usage
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model import Fact, LoopFacts, RuleResult
    from jobrules.model.claims import Cause, Claimed
    from jobrules.verdict.story import Checks

#: What is said where the results do not show when work began.
MAYBE_START = "Start-up may be part of it"
#: A GPU that is used less than this, in percent, has no process of its own.
ALMOST_UNUSED = 1.0
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
    first_step = next((result for rule, result in checks if rule.role is Role.START_UP), None)
    never, *started_and_ended = edges(_NO_JOB, work, first_step)
    unknown = gpus_of(results) - histograms.keys()
    ledger.take(_never_used(never, ledger, len(unknown)), ledger.of_unused)
    if work:
        ends = "first and last step" if work.steps_us else "the longest time without a bottleneck"
        for cause in started_and_ended:
            ledger.take(_inferred(cause, ends), ledger.outside_of_work(cause.key))
        rules = {type(rule): (rule, result) for rule, result in checks}
        evidence = _Evidence(results=results, facts=facts, work=work, ledger=ledger, rules=rules)
        for kind, claim in _CLAIMS:
            if kind in rules:
                claim(evidence, *rules[kind])
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


def _never_used(cause: Cause, ledger: Ledger, unknown: int) -> Cause:
    """GPUs with nearly all samples below 2%, next to so many of ``unknown`` utilization."""
    gpus, steps_us = len(ledger.gpus) + unknown, ledger.work.steps_us if ledger.work else None
    seen = max((one.above_zero for gpu, one in ledger.gpus.items() if gpu not in ledger.used), default=0)

    def found(claimed: Claimed) -> Finding:
        return never_used_finding(
            claimed,
            gpus,
            seen,
            Where(claimed.names),
            Inferred("the histograms of LoadBalancing"),
            rule="LoadBalancing",
            on_cpu=steps_us is not None and len(claimed.devices) == gpus,
            touched=seen > 0,
        )

    return replace(cause, finding=found)


def _inferred(cause: Cause, source: str, *facts: Fact, advice: tuple[str, ...] = ()) -> Cause:
    """A cause of samples, with what it is inferred from here, further facts, and any other advice."""

    def found(claimed: Claimed) -> Finding:
        finding = cause.finding(claimed)
        evidence = [fact for fact in finding.evidence if not isinstance(fact, Inferred)]
        seen = (*evidence, *facts, Inferred(f"{SOURCE}: {source}"))
        return replace(finding, evidence=seen, advice=advice or finding.advice)

    return replace(cause, finding=found)


class _Evidence(Struct, frozen=True, kw_only=True, eq=False):
    """What claims are made from, and the ledger that they are made in."""

    results: RuleResults
    facts: LoopFacts
    work: Work
    ledger: Ledger
    rules: dict[type[Rule], tuple[Any, RuleResult]]

    @property
    def cores(self) -> int:
        """Of a node; 0 if they are not known."""
        return self.facts.cores or 0

    def take_entries(self, cause: Cause, rule: Rule, least: float, *facts: Fact) -> None:
        """Give the entries of a rule in which at least so many cores counted to a cause."""
        seen = _inferred(cause, f"entries of {rule.name}", *facts, *map(Note, _start_unknown(self.work)))
        self.ledger.take_snapshots(seen, self.results.bottlenecks[rule.name], least, rule)


def _start_unknown(work: Work | None) -> tuple[str, ...]:
    return (MAYBE_START,) if work and work.whole and not work.steps_us else ()


def _waiting_for_io(of: _Evidence, rule: IOBottleneck, result: RuleResult) -> None:
    (waiting,) = rule.causes(_NO_JOB, result)
    of.take_entries(waiting, rule, 1)


def _saturated_cpu(of: _Evidence, rule: CPUBottleneck, result: RuleResult) -> None:
    """Half of a known number of cores."""
    if of.cores:
        crowded, _ = rule.causes(_NO_JOB, result)
        found = of.results.bottlenecks[rule.name]
        in_work = (found.time_us >= of.work.begin_us) & (found.time_us <= of.work.end_us)
        cores = saturated_cores(found.cores[in_work].tolist(), of.cores)
        of.take_entries(crowded, rule, CROWDED_PART * of.cores, *cores)


def _waiting_for_data(of: _Evidence, rule: Dataloader, _: RuleResult) -> None:
    """Of the work, or of the part that has steps unless the rest looks the same."""
    facts, ledger = of.facts, of.ledger
    if not facts.waited:
        return
    nodes = [node for node, _ in ledger.gpus]
    cause = rule.waiting_in_loop(facts, of.cores, max(map(nodes.count, nodes)))
    length_us = of.work.length_us
    if facts.steps_us and not of.work.steps_us:
        recorded_us = facts.steps_us[1] - facts.steps_us[0]
        lost = max((1 - ledger.in_work(gpu).used for gpu in ledger.used), default=0.0)
        if abs(lost - facts.waited) > SAME_PART * facts.waited:
            length_us = recorded_us
        part = f"{duration(recorded_us)} of {duration(of.work.length_us)}"
        cause = _inferred(cause, "Dataloader", Note(f"Steps were recorded for {part}"))
    ledger.take(cause, ledger.not_yet(facts.waited * length_us), rule)


def _few_cores(of: _Evidence, rule: CPUBottleneck, result: RuleResult) -> None:
    """Fewer saturated cores, or some of an unknown number, where training does not wait for data by other evidence."""
    if not of.facts.waited:
        cause = few_cores(rule, result, cores_known=bool(of.cores))
        of.take_entries(cause, rule, 1, Note(ONLY_IDLE))


def _uneven(of: _Evidence, rule: LoadBalancing, result: RuleResult) -> None:
    ledger = of.ledger
    means = sorted((100 * ledger.in_work(gpu).used, " ".join(gpu)) for gpu in ledger.used)
    if len(means) > 1:
        advice = IDLE_ADVICE if means[0][0] < ALMOST_UNUSED else ()
        cause = rule.uneven(result, means[0], means[-1], ranks=False)
        ledger.take(
            _inferred(cause, "the histograms of LoadBalancing", advice=advice), ledger.differences, rule
        )


def _steady(of: _Evidence, rule: BatchSize, result: RuleResult) -> None:
    """GPUs steadily below their capacity: one process may be the limit; or small batches, where the CPU has room, on the
    grounds that rules on samples have.

    The mean of an unknown number of cores clears nobody. Nor does about one core for each GPU.
    """
    ledger = of.ledger
    cpu = [of.results.usage.get("CPU", {}).get(node) for node in {node for node, _ in ledger.used}]
    if not cpu or not of.cores:
        return
    in_work = {gpu: ledger.in_work(gpu) for gpu in ledger.used}
    highest = max(one.p95 for one in in_work.values())
    if (
        highest < rule.gpu_threshold_p95
        and all(used and _highest_mean(used) < rule.cpu_threshold_p95 for used in cpu)
        and all(
            one.idle < MAX_IDLE and ledger.left_part(gpu) >= 1 - MAX_CLAIMED for gpu, one in in_work.items()
        )
    ):
        cores = max(used.p50 for used in cpu if used) / 100 * of.cores
        use = ProcessUse(used=cores, cores=of.cores, processes=1)
        owner: Rule = rule
        cause = rule.cause(_NO_JOB, result, highest)
        if use.at_limit and CPUBottleneck in of.rules:
            owner, found = of.rules[CPUBottleneck]
            cause = busy_process(of.rules[CPUBottleneck][0], found, use)
        elif _one_core_per_gpu(of.results, of.facts):
            return
        ledger.take_active(_inferred(cause, "LoadBalancing and OverallSystemUsage"), owner)


#: What shows a cause, in the order of the claims: each takes what those before it left.
_CLAIMS: tuple[tuple[type[Rule], Callable[[_Evidence, Any, RuleResult], None]], ...] = (
    (IOBottleneck, _waiting_for_io),
    (CPUBottleneck, _saturated_cpu),
    (Dataloader, _waiting_for_data),
    (CPUBottleneck, _few_cores),
    (LoadBalancing, _uneven),
    (BatchSize, _steady),
)


def _one_core_per_gpu(results: RuleResults, facts: LoopFacts) -> bool:
    """Whether about one core was in use for each GPU of a node: as in samples, each may have a process at its limit."""
    gpus, cores = Counter(node for node, _ in gpus_of(results)), facts.cores or 0
    return any(
        used and gpus[node] and near_one(used.p50 / 100 * cores / gpus[node])
        for node, used in results.usage.get("CPU", {}).items()
    )


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
    is_cpu_undecided = saturated >= max(facts.waited, RELEVANT_PART) or _one_core_per_gpu(results, facts)
    undecided = {"steps", *(["CPU utilization"] if is_cpu_undecided else [])}
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
