"""Causes of lost GPU time as rule results of SageMaker Debugger show them: those of samples, with their own evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport.readers.debugger_results.loop import SOURCE
from jobrules.model import Fact, Finding, Inferred, Severity, Where
from jobrules.verdict.edges import NEVER, never_used_advice, never_used_title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU
    from jobrules.measures.work import Work
    from jobrules.model.claims import Cause, Claimed


def never_used(cause: Cause, gpus: Mapping[GPU, Histogram], unknown: int, work: Work | None) -> Cause:
    """GPUs with nearly all samples below 2%, next to so many of ``unknown`` utilization."""
    most = max((one.above_zero for one in gpus.values() if not one.worked), default=0)

    def found(claimed: Claimed) -> Finding:
        unused, every = len(claimed.devices), len(gpus) + unknown
        on_cpu = work is not None and work.steps_us is not None and unused == every
        return Finding(
            key=NEVER,
            severity=Severity.CRITICAL,
            title=never_used_title(unused, every, most, on_cpu=on_cpu, touched=most > 0),
            evidence=(
                Where(claimed.names),
                Inferred("the histograms of LoadBalancing"),
            ),
            advice=never_used_advice(unused, every, 0, on_cpu=on_cpu),
            rules=("LoadBalancing",),
            section="gpu-utilization",
            devices=claimed.devices,
        )

    return replace(cause, finding=found)


def inferred(cause: Cause, source: str, *facts: Fact, advice: tuple[str, ...] = ()) -> Cause:
    """A cause of samples, with what it is inferred from here, further facts, and any other advice."""

    def found(claimed: Claimed) -> Finding:
        finding = cause.finding(claimed)
        evidence = [fact for fact in finding.evidence if not isinstance(fact, Inferred)]
        seen = (*evidence, *facts, Inferred(f"{SOURCE}: {source}"))
        return replace(finding, evidence=seen, advice=advice or finding.advice)

    return replace(cause, finding=found)
