"""Findings on rule results of SageMaker Debugger, joined and ordered for the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jobrules.model import Finding, Note, Severity, natural_key
from jobrules.text import count, duration, escape_name, join_names
from jobrules.verdict.edges import START_ADVICE, never_used_advice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.readers.debugger_results.details import GPU
    from jobreport.readers.debugger_results.rule_results import RuleResults

#: Sections that hold more of a rule's numbers than its card.
SECTIONS = {
    "LowGPUUtilization": "gpu-utilization",
    "MaxInitializationTime": "summary",
    "OverallSystemUsage": "utilization",
}
IDLE_ADVICE = (
    "Start one process per GPU, each on its own device: some GPUs are almost unused.",
    "Otherwise use a machine with fewer GPUs.",
)
#: Low batch use explains low utilization if it was counted at least this often in proportion.
_JOINT_SHARE = 0.5


def finding(*, evidence: Iterable[str], **fields: Any) -> Finding:
    """Make a finding; ``evidence`` are sentences."""
    return Finding(evidence=tuple(Note(sentence.removesuffix(".")) for sentence in evidence), **fields)


def findings(
    found: dict[str, Finding], results: RuleResults, on_loop: Sequence[Finding] = ()
) -> tuple[Finding, ...]:
    """All findings: never-used GPUs, then worst first; ``found`` has the finding of each rule, ``on_loop`` are others."""
    found = dict(found)
    unused = _never_used(found, results)
    low, small = found.get("LowGPUUtilization"), found.get("BatchSize")
    if low and small and _times(results, "BatchSize") >= _JOINT_SHARE * _times(results, "LowGPUUtilization"):
        found["LowGPUUtilization"] = replace(
            low,
            title=f"{low.title}; CPU and GPU memory activity were low, too",
            evidence=low.evidence + small.evidence,
            advice=low.advice if some_idle(results) else small.advice,
            rules=low.rules + small.rules,
        )
        del found["BatchSize"]
    order = list(Severity)
    others = [*on_loop, *found.values(), *_long_start(results)]
    return (*unused, *sorted(others, key=lambda one: (order.index(one.severity), -(one.share or 0))))


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


def in_words(n: int, total: int) -> str:
    """``The GPU``, ``3 of 4 GPUs``, ``Both GPUs``, ``All 4 GPUs``."""
    if total == 1:
        return "The GPU"
    if n < total:
        return f"{n} of {count(total, 'GPU')}"
    return "Both GPUs" if n == 2 else f"All {n} GPUs"


def was_never_used(n: int, total: int) -> str:
    """``The GPU was never used``, ``2 of 4 GPUs were never used``."""
    return f"{in_words(n, total)} {'was' if n == 1 else 'were'} never used"


def _never_used(found: dict[str, Finding], results: RuleResults) -> list[Finding]:
    """The finding on never-used GPUs; takes findings on these alone out of ``found``."""
    unused, whole = never_used(results), gpus_of(results)
    if not unused:
        return []
    devices = tuple(f"{node}/{device}" for node, device in results.low_gpu if (node, device) in unused)
    about_gpus = [found[rule] for rule in ("LowGPUUtilization", "BatchSize") if rule in found]
    same = [
        one for one in about_gpus if (set(one.devices) <= set(devices) if one.devices else unused == whole)
    ]
    for one in same:
        del found[one.rules[0]]
    never = finding(
        key="gpu-never-used",
        severity=Severity.CRITICAL,
        title=was_never_used(len(unused), len(whole)),
        evidence=[f"{named(unused)}: no sample above 0% until LowGPUUtilization last triggered."],
        advice=never_used_advice(len(unused), len(whole), 0, on_cpu=False),
        rules=tuple(rule for one in same for rule in one.rules),
        section="gpu-utilization",
        devices=devices,
        share=len(unused) / len(whole),
        share_of="of GPUs",
    )
    return [replace(never, evidence=never.evidence + tuple(fact for one in same for fact in one.evidence))]


def _times(results: RuleResults, rule: str) -> int:
    found = results[rule]
    return (found.triggered if found else None) or 0


def _long_start(results: RuleResults) -> list[Finding]:
    loop, start_us = loop_of(results), span_of(results)[0]
    if not loop or loop[0] - start_us <= loop[1] - loop[0]:
        return []
    return [
        finding(
            key="long-start",
            severity=Severity.WARNING,
            title=f"Start-up took {duration(loop[0] - start_us)}, longer than the training",
            evidence=[f"The training loop took {duration(loop[1] - loop[0])}."],
            advice=START_ADVICE,
            rules=(),
            section="summary",
            start_us=start_us,
            end_us=loop[0],
        )
    ]
