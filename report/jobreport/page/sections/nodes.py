"""Every metric over time, nodes side by side on the same scales; more than four nodes are ranked first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from msgspec.structs import replace

from jobreport import formats
from jobreport.page.figures import over_columns
from jobreport.page.figures.chart import upward
from jobreport.page.figures.over_time import axis_of, curve
from jobreport.page.kit import Figure, Fold, Html, Table
from jobreport.page.kit.fragment import place
from jobreport.page.kit.marks import status
from jobreport.page.sections.outline import has_time_lines, not_recorded, section
from jobreport.page.sections.parts.time_lines import AID, POWER, TimeLines
from jobrules.model import Severity
from jobrules.text import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.analyses.nodes import NodeComparison, NodeDifference, NodeUtilization

#: Nodes that differ, in the open table; more are in the folded one.
MAX_ODD = 12
#: The area of similar nodes, which all small lines show.
_BAND = Markup(
    '<svg class="vh" aria-hidden="true"><symbol id="nodes-similar" viewBox="0 0 1000 100" '
    'preserveAspectRatio="none"><path vector-effect="non-scaling-stroke" d="{}"/></symbol></svg>'
)
_SIMILAR = Markup('<use class="band2" href="#nodes-similar" width="100%" height="100%"/>')
_LINE = Markup(
    '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" width="100%" height="100%">'
    '<path class="line" d="{}"/></svg>'
)


@section
def nodes(report: Report) -> Content:
    """Time lines of at most four nodes; of more, a ranked table and the time lines of the oddest."""
    if not has_time_lines(report):
        return not_recorded("sample over time", in_results=report.of_debugger)
    lines = TimeLines.of(report, {line.key for line in report.time_lines} - set(POWER))
    names = list(lines.names)
    return [
        *(_ranking(report.nodes) if report.nodes and report.nodes.ranks else []),
        Figure(
            name="nodes",
            title="Nodes over time",
            finding=_caption(report, names),
            aid=AID + _drawn(report, names),
            key=lines.key,
            drawings=[lines.side("node", named=True)],
            zoom="the nodes",
            together="all lines together",
            reading=lines.reading,
            tables=[lines.table()],
        ),
    ]


def _caption(report: Report, names: list[str]) -> str:
    """Mean utilization of GPUs, else of CPUs: over nodes, or over the time of one."""
    use = report.nodes.use if report.nodes else None
    keys = [line.key for line in report.time_lines]
    key = next((one for one in ("gpu_utilization", "cpu_utilization") if one in keys), "")
    lines = [line for line in report.time_lines if line.key == key and line.node in names]
    drawn = {line.node: line.average for line in lines if line.average is not None}
    if not drawn:
        return "Sampled metrics over time."
    means = {formats.escape_name(name, 40): mean for name, mean in (use.means if use else drawn).items()}
    found = f"Mean {lines[0].label} utilization: {formats.extremes(means)}"
    if use is None or len(means) > 1:
        return f"{found}."
    waits = _highest_io_wait(report) if key == "cpu_utilization" else ""
    return f"{found}{_by_phase(use, report.phases.middle)}{waits}.{_falls(use)}"


def _highest_io_wait(report: Report) -> str:
    """The highest column of the I/O wait of a job without GPUs."""
    line = next((line for line in report.time_lines if line.key == "io_wait"), None)
    highest = max((mean or 0.0 for mean in line.mean), default=0.0) if line else 0.0
    return f"; highest mean I/O wait: {formats.percent(highest)}" if highest else ""


def _by_phase(use: NodeUtilization, middle: str) -> str:
    """The means of the phases, if there are several."""
    words = {"before": "start-up", "loop": middle, "after": "wind-down"}
    means = [f"{words[one.phase]} {formats.percent(one.mean)}" for one in use.phases if one.phase in words]
    return f" ({', '.join(means)})" if len(means) > 1 else ""


def _falls(use: NodeUtilization) -> str:
    """Stretches of low utilization; empty without any."""
    if not use.falls:
        return ""
    return f" It fell below 10% {times(use.falls)}, for {formats.duration(use.fall_us)} (median)."


def _drawn(report: Report, names: list[str]) -> str:
    """The nodes that are drawn; empty if all are."""
    if not (report.nodes and report.nodes.ranks):
        return ""
    return f" Drawn: {formats.join_names([formats.escape_name(name, 40) for name in names])}."


def _ranking(found: NodeComparison) -> list[Block]:
    """The ranked table: nodes that differ, then one row for the others; folded, the nodes of that row."""
    odd, similar, band = found.odd, found.similar, _band(found)
    rows = [_rank_row(rank, found) for rank in odd[:MAX_ODD]]
    if odd[MAX_ODD:]:
        rows.append(_together(odd[MAX_ODD:], found, "others that differ", status("info", "Differ")))
    if similar:
        rows.append(_together(similar, found, "similar nodes", status("pass", "Similar")))
    folded = [_rank_row(rank, found) for rank in (*odd[MAX_ODD:], *similar)]
    table = Table(
        label="Nodes, those that differ first",
        caption=_finding(found),
        aid="Line: mean; gray: similar nodes; hatched: not measured.",
        style="wide ranks",
        heads=(
            *(":Node", ":Status", "::What differs", f"Mean {found.label} utilization (%)"),
            *("Difference from median (points)", ":Over time, 0 to 100%"),
        ),
        rows=rows,
    )
    reading = _what_differs(found)
    return [
        Html(_BAND.format(band)) if band else None,
        table,
        Fold(summary="When a node differs", blocks=[reading]) if reading else None,
        replace(
            table,
            label="More nodes",
            caption="",
            fold=formats.count(len(folded), "more node"),
            rows=folded,
        ),
    ]


def _finding(found: NodeComparison) -> str:
    fact = f"Nodes that differ from the others: {len(found.odd)} of {len(found.ranks)}."
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


def _rank_row(rank: NodeDifference, found: NodeComparison) -> list[str]:
    return [
        formats.escape_name(rank.node, 40),
        status(*_SIGNS[rank.severity]),
        "; ".join(rank.reasons) or "nothing",
        formats.known(rank.mean),
        formats.signed(rank.against),
        _small_line(rank, found),
    ]


def _together(ranks: Sequence[NodeDifference], found: NodeComparison, what: str, sign: Markup) -> list[str]:
    """Several nodes in one row: the span of their means."""
    means = [rank.mean for rank in ranks if rank.mean is not None]
    off = [rank.against for rank in ranks if rank.against is not None]
    return [
        f"{formats.number(len(ranks), 0)}{formats.NBSP}{what}",
        sign,
        f"means {formats.spread(means)}" if means else f"{found.label} not recorded",
        formats.known(float(np.median(means)) if means else None),
        f"{formats.signed(min(off))} to {formats.signed(max(off))}" if off else "–",
        _spark(found),
    ]


def _small_line(rank: NodeDifference, found: NodeComparison) -> Markup:
    """The node over time, hatched where it has no samples."""
    columns = found.columns
    if columns is None or not rank.line:
        return _spark(found)
    values = _floats(rank.line)
    missing = np.concatenate(([False], np.isnan(values), [False]))
    edges = (100 * np.flatnonzero(np.diff(missing.astype(np.int8))) / len(values)).tolist()
    holes = Markup("").join(
        Markup('<rect class="x" x="{}%" width="{}%" y="0" height="100%"/>').format(place(a), place(b - a))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )
    path = curve("line", axis_of(columns), upward(100), columns, values).path
    return _spark(found, holes, _LINE.format(path) if path else "")


def _spark(found: NodeComparison, holes: str = "", line: str = "") -> Markup:
    band = _SIMILAR if found.columns and found.low else ""
    return Markup('<svg class="glyph spark" aria-hidden="true">{}{}{}</svg>').format(holes, band, line)


def _band(found: NodeComparison) -> str:
    if found.columns is None or not found.low:
        return ""
    low, high = _floats(found.low), _floats(found.high)
    return over_columns.band("band2", axis_of(found.columns), upward(100), found.columns, low, high).path


def _floats(values: Sequence[int | None]) -> np.ndarray:
    return np.array(values, np.float64)
