"""Every metric over time, node beside node on the same scales."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.figures.still import StillLine, bundled, still_line
from jobreport.figures.time_line import shared_time, time_line, top_of
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import has_time_lines, heading

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobrules.result import Columns, TimeLine

#: More nodes are not drawn: blocks beside one another end at four.
MOST_NODES = 4
#: Fewer columns are told by their extremes.
ENOUGH_COLUMNS = 20


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A metric of a node over time."""

    id: str
    title: str
    label: str
    drawing: StillLine
    top: str
    half: str
    #: Whether the times are written below.
    last: bool


@dataclass(frozen=True, kw_only=True)
class Block:
    """A node with its panels."""

    name: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table of what is drawn."""

    node: str
    label: str
    unit: str
    mean: str
    low: str
    high: str
    missing: str


def nodes(report: Report) -> Fragment:
    """Time lines of at most four nodes; of more, those that differ most from the median GPU use."""
    place = heading("nodes")
    if not has_time_lines(report):
        html = render("nodes", heading=place, blocks=(), figures="", reason=_reason(report))
        return Fragment(name="nodes", html=html)
    names = chosen(report)
    blocks, figures = _draw(report, names)
    html = render(
        "nodes",
        heading=place,
        blocks=blocks,
        caption=_caption(report, names),
        note=_note(report, names),
        marks=_marks(report, names),
        column=_column(report.columns),
        rows=[_row(line, report) for name in names for line in _lines(report, name)],
        figures=document_json("nodes", figures),
        several=len(names) > 1,
        reason="",
    )
    return Fragment(name="nodes", html=html)


def _column(columns: Columns) -> str:
    """The width of a column, in both drawings where they differ."""
    bundle = bundled(columns)
    width = formats.duration(columns.width_us)
    if bundle == 1:
        return width
    return f"{width}, {formats.duration(bundle * columns.width_us)} in print and without scripts"


def chosen(report: Report) -> list[str]:
    """The nodes that are drawn, in the order of the job, or by how far they lie from the others."""
    names = [n.name for n in report.job.nodes if _lines(report, n.name)]
    if len(names) <= MOST_NODES:
        return names
    label = "GPU" if any(row.label == "GPU" for row in report.usage) else "CPU"
    means = {row.node: row.mean for row in report.usage if row.label == label and row.mean is not None}
    middle = median(means.values()) if means else 0.0
    ranked = sorted(names, key=lambda name: -abs(means.get(name, middle) - middle))
    return ranked[:MOST_NODES]


def _lines(report: Report, node: str) -> list[TimeLine]:
    return [line for line in report.timelines if line.node == node and any(v is not None for v in line.mean)]


def _draw(report: Report, names: list[str]) -> tuple[list[Block], dict[str, Plot]]:
    time = shared_time(report.columns, report.course)
    blocks, figures = [], {}
    for i, name in enumerate(names):
        lines = _lines(report, name)
        panels = []
        for line in lines:
            alike = [other for n in names for other in _lines(report, n) if other.key == line.key]
            scale = formats.rate_scale((v for o in alike for v in o.high if v is not None), line.unit)
            top = top_of(alike, scale)
            last = line is lines[-1]
            element = f"live-node{i}-{line.key.replace('_', '-')}"
            figures[element] = time_line(line, time, scale, top, labels=last)
            panels.append(
                Panel(
                    id=element,
                    title=_title(line, scale.unit),
                    label=_label(line, scale),
                    drawing=still_line(line, report.columns, report.course, scale, top),
                    top=f"{top:g}",
                    half=f"{top / 2:g}",
                    last=last,
                )
            )
        blocks.append(Block(name=formats.shown(name, 60), panels=tuple(panels)))
    return blocks, figures


def _title(line: TimeLine, unit: str) -> str:
    if line.key == "network":
        return f"Network, received and sent, {unit}"
    if line.devices < 2:
        return f"{line.label}, {unit}"
    what = "GPU" if line.key.startswith("gpu") else "core"
    return f"{line.label}, {unit} (line: mean of {formats.count(line.devices, what)})"


def _label(line: TimeLine, scale: formats.Scale) -> str:
    row = _summary(line, scale)
    return f"{line.label} over time: mean {row[0]}, from {row[1]} to {row[2]} {scale.unit}"


def _summary(line: TimeLine, scale: formats.Scale) -> tuple[str, str, str]:
    means = [v for v in line.mean if v is not None]
    low = min(v for v in line.low if v is not None)
    high = max(v for v in line.high if v is not None)
    values = (sum(means) / len(means), low, high)
    mean, low_text, high_text = (formats.number(v / scale.factor) for v in values)
    return mean, low_text, high_text


def _row(line: TimeLine, report: Report) -> Row:
    scale = formats.rate_scale((v for v in line.high if v is not None), line.unit)
    mean, low, high = _summary(line, scale)
    missing = sum(v is None for v in line.mean)
    return Row(
        node=formats.shown(line.node, 40),
        label=line.label,
        unit=scale.unit,
        mean=mean,
        low=low,
        high=high,
        missing=formats.percent(100 * missing / report.columns.count),
    )


def _reason(report: Report) -> str:
    if report.origin is Origin.VENDOR:
        return "Rule results hold no samples, so there is nothing to draw over time."
    if not report.timelines:
        return "No metric was sampled."
    return "The samples cover no time, so there is nothing to draw over it."


def _caption(report: Report, names: list[str]) -> str:
    """When the metric that matters was highest and lowest, of the first of its kind."""
    key, word = ("gpu_utilization", "GPU") if _has(report, "gpu_utilization") else ("cpu_utilization", "CPU")
    lines = [line for line in report.timelines if line.key == key and line.node in names]
    if not lines:
        return "The sampled metrics over time."
    values = [v for line in lines for v in line.mean if v is not None]
    if max(values, default=0.0) <= 0:
        return f"The {word} lines stay at 0 over the whole job."
    if len(values) < ENOUGH_COLUMNS:
        return f"The mean {word} use {formats.span(min(values), max(values))}."
    low, high = _quantile(values, 0.1), _quantile(values, 0.9)
    return f"In four of five columns the mean {word} use {formats.span(low, high)}."


def _has(report: Report, key: str) -> bool:
    return any(line.key == key for line in report.timelines)


def _quantile(values: list[float], q: float) -> float:
    ranked = sorted(values)
    return ranked[round(q * (len(ranked) - 1))]


def _marks(report: Report, names: list[str]) -> list[str]:
    """What the marks mean that this figure has."""
    told = ["line: mean", "band: lowest to highest sample of any device"]
    if len(report.course.phases) > 1:
        ends = " and ".join(_BOUNDARIES[p.key] for p in report.course.phases[1:])
        kind = "step" if report.course.basis == "steps" else "GPU work"
        told.append(f"dotted: {ends.format(kind=kind)}")
    if any(gap.node in names for gap in report.course.gaps):
        told.append("hatched: not measured")
    return told


_BOUNDARIES = {"loop": "first {kind}", "after": "last {kind}"}


def _note(report: Report, names: list[str]) -> str:
    total = len([n for n in report.job.nodes if _lines(report, n.name)])
    if total <= len(names):
        return ""
    what = "GPU" if any(row.label == "GPU" for row in report.usage) else "CPU"
    return (
        f"Drawn are the {len(names)} of {total}{formats.NBSP}nodes whose mean {what} use differs most "
        "from the median node; the others are in the utilisation table."
    )
