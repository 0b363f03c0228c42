"""Every metric over time, node beside node on the same scales; many nodes are ranked first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures import over_columns
from jobreport.figures.chart import upward
from jobreport.figures.embed import document_json
from jobreport.figures.time_line import axis_of, stroke_shape
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import has_time_lines, heading
from jobreport.sections.time_lines import POWER, TimeLines
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.analyses.nodes import NodeComparison, NodeDifference, NodeUtilization
    from jobrules.analyses.time_lines import Columns

#: Odd nodes in the open table; more are in the folded one.
MOST_ODD = 12


class RankRow(Struct, frozen=True, kw_only=True):
    """A node of the ranked table, or all that are alike."""

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
    """The ranked table: odd nodes, then one row for the others; folded, those without a row of their own."""

    label: str
    caption: str
    band: str
    rows: tuple[RankRow, ...]
    folded: tuple[RankRow, ...]
    summary: str


@error_boundary
def nodes(report: Report) -> Fragment:
    """Time lines of at most four nodes; of more, a ranked table and the time lines of the oddest."""
    place = heading("nodes", report)
    if not has_time_lines(report):
        html = render("nodes", heading=place, blocks=(), figures="", reason=_reason(report))
        return Fragment(name="nodes", html=html)
    lines = TimeLines.of(report, {line.key for line in report.time_lines} - set(POWER))
    names = list(lines.names)
    blocks, figures = lines.draw("live-node")
    html = render(
        "nodes",
        heading=place,
        ranking=_ranking(report.nodes) if report.nodes and report.nodes.ranks else None,
        blocks=blocks,
        caption=_caption(report, names),
        note=_note(report, names),
        marks=lines.marks,
        column=lines.column,
        key=lines.key,
        rows=lines.rows(),
        figures=document_json("nodes", figures),
        several=len(names) > 1,
        reason=_reason(report),
    )
    return Fragment(name="nodes", html=html)


def _reason(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "Rule results hold no samples, so there is nothing to draw over time."
    if not report.time_lines:
        return "No metric was sampled."
    return "The samples cover no time, so there is nothing to draw over it."


def _caption(report: Report, names: list[str]) -> str:
    """How far GPUs or CPUs are used: what differs between nodes, or over the time of one."""
    use = report.nodes.use if report.nodes else None
    keys = [line.key for line in report.time_lines]
    key = next((one for one in ("gpu_utilization", "cpu_utilization") if one in keys), "")
    lines = [line for line in report.time_lines if line.key == key and line.node in names]
    drawn = {line.node: line.average for line in lines if line.average is not None}
    if not drawn:
        return "The sampled metrics over time."
    label = lines[0].label
    if max(line.highest or 0.0 for line in lines) <= 0:
        return f"The {label} lines stay at 0 over the whole job."
    if len(drawn) > 1:
        return _between_nodes(label, use.means if use else drawn)
    phases = _by_phase(use, report.phases.basis) if use else ""
    told = f"Mean {label} use of the samples is {formats.percent(use.mean if use else drawn[lines[0].node])}{phases}."
    if use and use.falls:
        times = {1: "once", 2: "twice"}.get(use.falls, f"{use.falls} times")
        for_ = f"for {formats.duration(use.fall_us)}" + (" (median)" if use.falls > 1 else "")
        where = "In the training loop" if report.phases.basis == "steps" else "In that time"
        told += f" {where} it falls {times} under 10%, {for_}."
    return told


def _between_nodes(label: str, means: dict[str, float]) -> str:
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if formats.percent(means[low]) == formats.percent(means[high]):
        return (
            f"The nodes are alike: mean {label} use of the samples is {formats.percent(means[low])} on all."
        )
    if means[high] - means[low] < ALIKE_POINTS:
        return f"The nodes are alike: mean {label} use of the samples is {formats.spread(means.values())}."
    lowest, highest = formats.escape_name(low, 40), formats.escape_name(high, 40)
    return (
        f"Mean {label} use of the samples differs between the nodes: {formats.percent(means[low])} on {lowest}, "
        f"{formats.percent(means[high])} on {highest}."
    )


def _by_phase(use: NodeUtilization, basis: str) -> str:
    """The means of the phases, where they are no longer alike."""
    kind = "step" if basis == "steps" else "GPU work"
    before = any(one.phase == "before" for one in use.phases)
    between = "from there to the last" if before else f"from the first to the last {kind}"
    words = {
        "before": f"before the first {kind}",
        "loop": "in the training loop" if basis == "steps" else between,
        "after": f"after the last {kind}",
    }
    told = [(one.mean, words[one.phase]) for one in use.phases if one.phase in words]
    means = [mean for mean, _ in told]
    if len(told) < 2 or max(means) - min(means) < ALIKE_POINTS:
        return ""
    parts = [f"{formats.percent(mean)} {where}" for mean, where in told]
    return f": {', '.join(parts[:-1])} and {parts[-1]}"


def _note(report: Report, names: list[str]) -> str:
    """Which nodes are drawn, and why these."""
    found = report.nodes
    if not found or not found.ranks:
        return ""
    if not found.odd:
        if len(names) < 2:
            return f"Drawn below is {_listed(names)}, the node in the middle and the lowest in one."
        return f"Drawn below are {formats.escape_name(names[0], 40)}, the node in the middle, and {formats.escape_name(names[1], 40)}, the lowest."
    which = "the one that differs" if len(found.odd) == 1 else f"the {len(found.odd)} that differ"
    if len(found.odd) > len(names):
        which = f"the {len(names)} at the top of the table"
    return f"Drawn below {'is' if len(names) == 1 else 'are'} {_listed(names)}, {which}."


def _listed(names: Sequence[str]) -> str:
    return formats.join_names([formats.escape_name(name, 40) for name in names])


def _ranking(found: NodeComparison) -> Ranking:
    odd, alike = found.odd, found.alike
    rows = [_rank_row(rank, found) for rank in odd[:MOST_ODD]]
    if len(odd) > MOST_ODD:
        rows.append(_together(odd[MOST_ODD:], found, "others that differ", "info", "Differ"))
    if alike:
        rows.append(_together(alike, found, "others alike" if odd else "nodes alike", "pass", "Alike"))
    folded = (*odd[MOST_ODD:], *alike)
    return Ranking(
        label=found.label,
        caption=_finding(found),
        band=_band(found),
        rows=tuple(rows),
        folded=tuple(_rank_row(rank, found) for rank in folded),
        summary=f"Data: the {formats.count(len(folded), 'node')} without a row of {'its' if len(folded) == 1 else 'their'} own",
    )


def _finding(found: NodeComparison) -> str:
    """What the table shows, and how a node becomes odd."""
    total, odd = len(found.ranks), len(found.odd)
    if not odd:
        fact = f"The {formats.count(total, 'node')} are alike."
    else:
        fact = (
            f"{odd} of {formats.count(total, 'node')} {'differs' if odd == 1 else 'differ'} from the others."
        )
    if found.median is None or found.limit is None:
        return fact
    return (
        f"{fact} The median node has a mean {found.label} use of {formats.percent(found.median)}; "
        f"farther than {formats.number(found.limit)}{formats.NBSP}points from it counts as odd, as do GPUs at "
        f"0%, other means of CPU, I/O wait or memory, missing samples and another clock."
    )


_SIGNS = {
    Severity.CRITICAL: ("crit", "Critical"),
    Severity.WARNING: ("warn", "Warning"),
    Severity.INFO: ("info", "Info"),
    None: ("pass", "Alike"),
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
        against=_signed(rank.against),
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
        differs=f"means {formats.spread(means)}" if means else f"{found.label} not measured",
        mean=formats.known(float(np.median(means)) if means else None),
        against=f"{_signed(min(off))} to {_signed(max(off))}" if off else "–",
        path="",
    )


def _signed(value: float | None) -> str:
    """``−9.0`` or ``+9.0`` with a true minus; no sign where 0.0 is printed."""
    if value is None:
        return "–"
    text = formats.number(abs(value))
    return text if text == "0.0" else f"{'−' if value < 0 else '+'}{text}"


def _small_line(rank: NodeDifference, columns: Columns | None) -> tuple[str, tuple[tuple[float, float], ...]]:
    if columns is None or not rank.line:
        return "", ()
    x = axis_of(columns)
    values = _floats(rank.line)
    missing = np.concatenate(([False], np.isnan(values), [False]))
    edges = 100 * np.flatnonzero(np.diff(missing.astype(np.int8))) / len(values)
    holes = tuple((float(a), float(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True))
    return stroke_shape("line", x, upward(100), columns, 1, values).path, holes


def _band(found: NodeComparison) -> str:
    if found.columns is None or not found.low:
        return ""
    low, high = _floats(found.low), _floats(found.high)
    return over_columns.band("band2", axis_of(found.columns), upward(100), found.columns, low, high).path


def _floats(values: Sequence[int | None]) -> np.ndarray:
    return np.array(values, np.float64)
