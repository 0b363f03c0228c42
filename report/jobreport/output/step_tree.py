"""A typical step as lines of a terminal: its phases in milliseconds and percent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.sentences import phase_name
from jobrules.analyses.typical_step import EXPECTED
from jobrules.text import count, took

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.document import Report

#: What measures a phase that was not recorded.
_MEASURED_BY = {
    "data-loading": "batch fetch (`jobrecord.data(loader)`)",
    "forward": "forward and backward pass (`jobrecord.watch(model)`)",
}
_MARK = "  <"
#: A phase that takes less of a step is not listed: it would be 0%.
_LEAST_PART = 0.005


def step_tree(report: Report) -> Iterator[str]:
    """Lines; none without recorded phases of steps."""
    step = report.typical_step or None
    if step is None or not step.us:
        return
    whose = f", rank {formats.escape_name(step.rank, 24)}" if step.ranks > 1 else ""
    yield f"A step takes {took(step.us)} (mean of {count(step.steps, 'step')}{whose}):"
    guilty = _guilty(report)
    for phase in step.phases:
        if phase.us < _LEAST_PART * step.us:
            continue
        name = formats.escape_name(phase_name(phase.key, phase.event_type), 24)
        mark = _MARK if phase.event_type in guilty and phase.event_type else ""
        yield f"  {name:<24} {took(phase.us):>9} {100 * phase.us / step.us:>4.0f}%{mark}"
    missing = [
        _MEASURED_BY[key]
        for key in EXPECTED
        if key in _MEASURED_BY and all(p.key != key for p in step.phases)
    ]
    if missing:
        yield f"  Not measured: {'; '.join(missing)}."


def _guilty(report: Report) -> set[str]:
    """Event types of the phases that the main finding is about."""
    lead, step, waits = report.verdict.lead, report.typical_step or None, report.rank_waits or None
    if lead is None or step is None:
        return set()
    if lead.key == "data-loading":
        return {phase.event_type for phase in step.phases if phase.key == "data-loading"}
    if lead.key != "slow-rank" or waits is None or not waits.late:
        return set()
    late, other = waits.ranks[0].median_us, waits.ranks[waits.late].median_us
    return {waits.phases[max(range(len(late)), key=lambda i: late[i] - other[i])].event_type}
