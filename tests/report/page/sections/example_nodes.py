"""Nodes beside one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from jobrules.analyses.nodes import NodeComparison, NodeDifference, StartUp
from jobrules.analyses.time_lines import Columns
from jobrules.model import Severity

MINUTE_US = 60_000_000
COLUMNS = 60


def nodes(names: Sequence[str]) -> NodeComparison:
    """At most four nodes, all drawn."""
    return NodeComparison(drawn=tuple(names), start_up=StartUp(cpu=12.3, io_wait=4.5, received=6.7e6))


def ranked(means: Mapping[str, float], odd: Mapping[str, str], start_us: int) -> NodeComparison:
    """Nodes with their mean GPU use, of which some are odd for a reason in words; a hole in the first line."""
    middle = median(means.values())
    names = [*odd, *(name for name in means if name not in odd)]
    alike = [round(means[name]) for name in means if name not in odd]
    ranks = [
        NodeDifference(
            node=name,
            severity=Severity.WARNING if name in odd else None,
            reasons=(odd[name],) if name in odd else (),
            mean=means[name],
            against=means[name] - middle,
            line=tuple(None if i == 0 and 10 <= c < 20 else round(means[name]) for c in range(COLUMNS)),
        )
        for i, name in enumerate(names)
    ]
    return NodeComparison(
        drawn=tuple(names[: min(4, len(odd))] if odd else names[:2]),
        start_up=None,
        label="GPU",
        median=middle,
        limit=5.0,
        ranks=tuple(ranks),
        columns=Columns(start_us=start_us, width_us=MINUTE_US, count=COLUMNS),
        low=(min(alike),) * COLUMNS if alike else (),
        high=(max(alike),) * COLUMNS if alike else (),
    )
