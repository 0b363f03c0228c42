"""What rule results of SageMaker Debugger say of GPUs and times, and findings where they do not tell how GPU time was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.readers.debugger_results.loop import loop_facts, nodes_of
from jobrules.model import Finding, Note, Severity, natural_key, natural_sorted
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.unused_gpu import never_used as were_never_used
from jobrules.text import escape_name, join_names
from jobrules.verdict.edges import NEVER, never_used_advice
from jobrules.verdict.findings import in_loop
from jobrules.verdict.observations import late_start
from jobrules.verdict.on_cores import Training, free_cores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.readers.debugger_results.details import GPU
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.verdict.story import Checks

IDLE_ADVICE = (
    "Start one process per GPU, each on its own device: some GPUs are almost unused.",
    "Otherwise use a machine with fewer GPUs.",
)


def findings(checks: Checks, results: RuleResults, *, alone: bool) -> tuple[Finding, ...]:
    """All findings where the results do not tell how GPU time was spent; ``alone`` if the job has no records of its own."""
    of_rules = [finding for _, result in checks for finding in result.findings]
    return (*_never_used(results), *of_rules, *(_of_loop(checks, results) if alone else []))


def _of_loop(checks: Checks, results: RuleResults) -> list[Finding]:
    """Findings on start-up and the training loop, as records of the job have them."""
    (start_us, end_us), loop = span_of(results), loop_of(results)
    late = late_start(start_us, loop[0], end_us) if loop else []
    return [*(_waits(checks, results) or _free_cores(results)), *late]


def span_of(results: RuleResults) -> tuple[int, int]:
    """First and last time of a sample or step that a result names; (0, 0) if there is none."""
    named_us = (results.start_us, results.end_us, results.first_step_us, results.last_step_us)
    times = [us for us in named_us if us is not None]
    return (min(times), max(times)) if times else (0, 0)


def loop_of(results: RuleResults) -> tuple[int, int] | None:
    """Start of the first and of the last step; None if they are not known."""
    first, last = results.first_step_us, results.last_step_us
    return (first, last) if first is not None and last is not None and first < last else None


def gpus_of(results: RuleResults) -> set[GPU]:
    """All GPUs that a result names."""
    return {*results.low_gpu, *results.memory, *results.small_batch, *results.workloads}


def has_gpus(results: RuleResults) -> bool:
    """True if any result shows that a GPU was sampled."""
    low = any(one.low for one in results.bottlenecks.values())
    return bool(gpus_of(results) or results.usage.get("GPU") or low)


def has_only_cpus(results: RuleResults) -> bool:
    """True if CPUs were sampled and no GPU was."""
    return any(results.usage.get("CPU", {}).values()) and not has_gpus(results)


def never_used(results: RuleResults) -> set[GPU]:
    """GPUs whose samples until the last trigger are all 0%, unless their node was used and no other GPU was."""
    zero = {gpu for gpu, use in results.low_gpu.items() if use.gpu_max == 0}
    used = {node for node, use in results.usage.get("GPU", {}).items() if use.max > 0}
    used_by_others = {node for node, _ in gpus_of(results) - zero}
    return {(node, device) for node, device in zero if node in used_by_others or node not in used}


def some_idle(results: RuleResults) -> bool:
    """Whether some GPUs were almost unused, and others were not."""
    idle = {gpu for gpu, use in results.low_gpu.items() if use.p95 == 0} - never_used(results)
    return 0 < len(idle) < len(gpus_of(results))


def named(gpus: Iterable[GPU]) -> str:
    """``algo-1 gpu0 and algo-1 gpu1``, in natural order."""
    ordered = sorted(gpus, key=lambda gpu: tuple(map(natural_key, gpu)))
    return join_names([f"{escape_name(node, 40)} {escape_name(device, 24)}" for node, device in ordered])


def _never_used(results: RuleResults) -> list[Finding]:
    """The finding on never-used GPUs, in which those on these alone are told."""
    unused, whole = never_used(results), gpus_of(results)
    if not unused:
        return []
    return [
        Finding(
            key=NEVER,
            severity=Severity.CRITICAL,
            title=were_never_used(len(unused), len(whole)),
            evidence=(Note(f"{named(unused)}: no sample above 0% until LowGPUUtilization last triggered"),),
            advice=never_used_advice(len(unused), len(whole), 0, on_cpu=False),
            rules=(),
            section="gpu-utilization",
            devices=tuple(f"{node}/{device}" for node, device in results.low_gpu if (node, device) in unused),
            share=len(unused) / len(whole),
            share_of="of GPUs",
        )
    ]


def _waits(checks: Checks, results: RuleResults) -> list[Finding]:
    """Waiting for data."""
    facts, loader = (
        loop_facts(results),
        next((rule for rule, _ in checks if isinstance(rule, Dataloader)), None),
    )
    if not (loader and facts.waited):
        return []
    cause = loader.waiting_in_loop(facts, facts.cores or 0, 1)
    return [in_loop(cause, loop_of(results) or span_of(results), natural_sorted(nodes_of(results)))]


def _free_cores(results: RuleResults) -> list[Finding]:
    """A training loop without GPUs that leaves cores free."""
    facts = loop_facts(results)
    if facts.step_s is None or not has_only_cpus(results):
        return []
    cores, step_s, fetch_s = facts.cores or 0, facts.step_s, facts.fetch_s
    return free_cores(
        [
            Training(node=node, used=one.p50, cores=cores, step_s=step_s, fetch_s=fetch_s)
            for node, one in results.usage["CPU"].items()
            if one
        ]
    )
