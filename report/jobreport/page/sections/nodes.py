"""Every metric over time, nodes side by side on the same scales; more than four nodes are ranked first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures import over_columns
from jobreport.page.figures.chart import upward
from jobreport.page.figures.over_time import axis_of, curve
from jobreport.page.sections.outline import has_time_lines, heading, section
from jobreport.page.sections.parts.time_lines import AID, POWER, TimeLines
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment
    from jobrules.analyses.nodes import NodeComparison, NodeDifference, NodeUtilization
    from jobrules.analyses.time_lines import Columns

#: Nodes that differ, in the open table; more are in the folded one.
MAX_ODD = 12


class RankRow(Struct, frozen=True, kw_only=True):
    """A node of the ranked table, or all similar ones."""

    name: str
    #: Class and word of the sign.
    style: str
    word: str
    differs: str
    mean: str
    against: str
    #: Path of the small line, empty where it has none; stretches without samples, (place, width) in percent.
    path: str
    holes: tuple[tuple[float, float], ...] = ()


class Ranking(Struct, frozen=True, kw_only=True):
    """The ranked table: nodes that differ, then one row for the others; folded, the nodes of that row."""

    label: str
    caption: str
    reading: str
    band: str
    rows: tuple[RankRow, ...]
    folded: tuple[RankRow, ...]
    summary: str


@section
def nodes(report: Report) -> Fragment:
    """Time lines of at most four nodes; of more, a ranked table and the time lines of the oddest."""
    place = heading("nodes", report)
    if not has_time_lines(report):
        return place.nothing(_why_none(report))
    lines = TimeLines.of(report, {line.key for line in report.time_lines} - set(POWER))
    names = list(lines.names)
    blocks, figures = lines.draw("live-node")
    return place.section(
        ranking=_ranking(report.nodes) if report.nodes and report.nodes.ranks else None,
        blocks=blocks,
        caption=_caption(report, names),
        note=_note(report, names),
        aid=AID,
        reading=lines.reading,
        key=lines.key,
        table=lines.table(),
        figures=figures,
    )


def _why_none(report: Report) -> str:
    if report.of_debugger:
        return "SageMaker Debugger's rule results hold no samples."
    if not report.time_lines:
        return "No system metric was recorded."
    return "All samples were taken at one moment."


def _caption(report: Report, names: list[str]) -> str:
    """Mean utilization of GPUs, else of CPUs: what differs between nodes, or over the time of one."""
    use = report.nodes.use if report.nodes else None
    keys = [line.key for line in report.time_lines]
    key = next((one for one in ("gpu_utilization", "cpu_utilization") if one in keys), "")
    lines = [line for line in report.time_lines if line.key == key and line.node in names]
    drawn = {line.node: line.average for line in lines if line.average is not None}
    if not drawn:
        return "Sampled metrics over time."
    label = lines[0].label
    if max(line.highest or 0.0 for line in lines) <= 0:
        return f"{label} utilization was 0% in every sample."
    if len(drawn) > 1:
        return f"Mean {label} utilization: {_between_nodes(use.means if use else drawn)}."
    mean = formats.percent(use.mean if use else drawn[lines[0].node])
    caption = f"Mean {label} utilization: {mean}{_by_phase(use, report.phases.middle) if use else ''}."
    return f"{caption} {_falls(use, report.phases.basis)}" if use and use.falls else caption


def _between_nodes(means: dict[str, float]) -> str:
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if means[high] - means[low] < ALIKE_POINTS:
        on = f"both{formats.NBSP}nodes" if len(means) == 2 else f"all {formats.count(len(means), 'node')}"
        return f"{formats.spread(means.values())} on {on}"
    lowest, highest = formats.escape_name(low, 40), formats.escape_name(high, 40)
    if len(means) == 2:
        return f"{formats.percent(means[low])} on {lowest}, {formats.percent(means[high])} on {highest}"
    return f"from {formats.percent(means[low])} on {lowest} to {formats.percent(means[high])} on {highest}"


def _by_phase(use: NodeUtilization, middle: str) -> str:
    """The means of the phases, unless they are similar."""
    words = {"before": "start-up", "loop": middle, "after": "wind-down"}
    means = [(words[one.phase], one.mean) for one in use.phases if one.phase in words]
    values = [mean for _, mean in means]
    if len(means) < 2 or max(values) - min(values) < ALIKE_POINTS:
        return ""
    return f" ({', '.join(f'{phase} {formats.percent(mean)}' for phase, mean in means)})"


def _falls(use: NodeUtilization, basis: str) -> str:
    times = {1: "once", 2: "twice"}.get(use.falls, f"{use.falls} times")
    length = formats.duration(use.fall_us) + (" (median)" if use.falls > 1 else "")
    where = " in the training loop" if basis == "steps" else ""
    return f"It fell below 10% {times}{where}, for {length}."


def _note(report: Report, names: list[str]) -> str:
    """Which nodes are drawn, and why."""
    found = report.nodes
    if not found or not found.ranks:
        return ""
    drawn = formats.join_names([formats.escape_name(name, 40) for name in names])
    if not found.odd:
        which = "the median node" if len(names) < 2 else "the median and the lowest node"
    elif len(found.odd) == 1:
        which = "the node that differs"
    elif len(found.odd) > len(names):
        which = f"the first {len(names)} of the table"
    else:
        which = f"the {len(found.odd)} nodes that differ"
    return f"The figure shows {drawn}, {which}."


def _ranking(found: NodeComparison) -> Ranking:
    odd, similar = found.odd, found.similar
    rows = [_rank_row(rank, found) for rank in odd[:MAX_ODD]]
    if len(odd) > MAX_ODD:
        rows.append(_together(odd[MAX_ODD:], found, "others that differ", "info", "Differ"))
    if similar:
        rows.append(
            _together(similar, found, "similar others" if odd else "similar nodes", "pass", "Similar")
        )
    folded = (*odd[MAX_ODD:], *similar)
    return Ranking(
        label=found.label,
        caption=_finding(found),
        reading=_what_differs(found),
        band=_band(found),
        rows=tuple(rows),
        folded=tuple(_rank_row(rank, found) for rank in folded),
        summary=f"Data: {formats.count(len(folded), 'more node')}",
    )


def _finding(found: NodeComparison) -> str:
    total, odd = len(found.ranks), len(found.odd)
    differ = "differs" if odd == 1 else "differ"
    fact = (
        f"{odd} of {formats.count(total, 'node')} {differ} from the others."
        if odd
        else f"All {formats.count(total, 'node')} are similar."
    )
    if found.median is None:
        return fact
    return f"{fact} Median node: {formats.percent(found.median)} mean {found.label} utilization."


def _what_differs(found: NodeComparison) -> str:
    if found.limit is None:
        return ""
    return (
        f"A node differs if its mean {found.label} utilization is more than {formats.number(found.limit)}"
        f"{formats.NBSP}points from the median node, if a GPU stays at 0%, or if its number of GPUs, another mean "
        "(CPU, I/O wait, memory), its samples, or its clock differ."
    )


_SIGNS = {
    Severity.CRITICAL: ("crit", "Critical"),
    Severity.WARNING: ("warn", "Warning"),
    Severity.INFO: ("info", "Info"),
    None: ("pass", "Similar"),
}


def _rank_row(rank: NodeDifference, found: NodeComparison) -> RankRow:
    style, word = _SIGNS[rank.severity]
    path, holes = _small_line(rank, found.columns)
    return RankRow(
        name=formats.escape_name(rank.node, 40),
        style=style,
        word=word,
        differs="; ".join(rank.reasons) or "nothing",
        mean=formats.known(rank.mean),
        against=formats.signed(rank.against),
        path=path,
        holes=holes,
    )


def _together(
    ranks: Sequence[NodeDifference], found: NodeComparison, what: str, style: str, word: str
) -> RankRow:
    """Several nodes in one row: the span of their means."""
    means = [rank.mean for rank in ranks if rank.mean is not None]
    off = [rank.against for rank in ranks if rank.against is not None]
    return RankRow(
        name=f"{formats.number(len(ranks), 0)}{formats.NBSP}{what}",
        style=style,
        word=word,
        differs=f"means {formats.spread(means)}" if means else f"{found.label} not recorded",
        mean=formats.known(float(np.median(means)) if means else None),
        against=f"{formats.signed(min(off))} to {formats.signed(max(off))}" if off else "–",
        path="",
    )


def _small_line(rank: NodeDifference, columns: Columns | None) -> tuple[str, tuple[tuple[float, float], ...]]:
    if columns is None or not rank.line:
        return "", ()
    x = axis_of(columns)
    values = _floats(rank.line)
    missing = np.concatenate(([False], np.isnan(values), [False]))
    edges = 100 * np.flatnonzero(np.diff(missing.astype(np.int8))) / len(values)
    holes = tuple((float(a), float(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True))
    return curve("line", x, upward(100), columns, values).path, holes


def _band(found: NodeComparison) -> str:
    if found.columns is None or not found.low:
        return ""
    low, high = _floats(found.low), _floats(found.high)
    return over_columns.band("band2", axis_of(found.columns), upward(100), found.columns, low, high).path


def _floats(values: Sequence[int | None]) -> np.ndarray:
    return np.array(values, np.float64)
