"""Causes of lost GPU time as rule results of SageMaker Debugger show them: those of samples, with their own evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport.debugger_report.findings import IDLE_ADVICE
from jobreport.readers.debugger_results.loop import SOURCE
from jobrules.model import Fact, Finding, HowMuch, Inferred, Severity, Where
from jobrules.model.claims import Cause, Precedence
from jobrules.rules.load_balancing import APART_ADVICE
from jobrules.text import percent
from jobrules.verdict.edges import NEVER, never_used_advice, never_used_title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.debugger_report.histograms import Histogram
    from jobreport.readers.debugger_results.details import GPU
    from jobrules.measures.work import Work
    from jobrules.model.claims import Claimed
    from jobrules.rules.load_balancing import LoadBalancing

#: What is said where the results do not show when work began.
MAYBE_START = "Start-up may be part of it"
#: A GPU that is used less than this, in percent, has no process of its own.
ALMOST_UNUSED = 1.0


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


def inferred(cause: Cause, source: str, *facts: Fact) -> Cause:
    """A cause of samples, with what it is inferred from here, and further facts."""

    def found(claimed: Claimed) -> Finding:
        finding = cause.finding(claimed)
        evidence = [fact for fact in finding.evidence if not isinstance(fact, Inferred)]
        return replace(finding, evidence=(*evidence, *facts, Inferred(f"{SOURCE}: {source}")))

    return replace(cause, finding=found)


def uneven_load(rule: LoadBalancing, gpus: Mapping[GPU, Histogram]) -> Cause:
    """The difference to the GPU that lost least."""
    means = sorted((100 * one.used, gpu) for gpu, one in gpus.items())

    def found(claimed: Claimed) -> Finding:
        (least, of_least), (most, of_most) = means[0], means[-1]
        return rule.finding(
            f"GPU utilization differs: {percent(least)} to {percent(most)} on average",
            HowMuch("Mean utilization", most, "%", of=" ".join(of_most)),
            HowMuch("Mean utilization", least, "%", of=" ".join(of_least)),
            Inferred("the histograms of LoadBalancing"),
            advice=IDLE_ADVICE if least < ALMOST_UNUSED else APART_ADVICE,
            devices=claimed.devices,
        )

    return Cause(
        key="load-balancing",
        precedence=Precedence.UNEVEN_LOAD,
        when="to differences between GPUs",
        finding=found,
    )
