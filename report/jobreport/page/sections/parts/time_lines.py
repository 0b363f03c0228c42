"""Time lines as the sections show them: one plot per metric, nodes side by side on one scale, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.over_time import SharedTime
from jobreport.page.figures.time_line import APART, MAX_COLUMNS, size_of, time_line, top_of
from jobreport.page.kit import Column, Drawing, Side, Table
from jobreport.page.kit.table import device_name
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jobreport.document import Report
    from jobrules.analyses.time_lines import TimeLine

#: Why a clock is low: percent of the time.
REASONS = (Metric.GPU_THERMAL_SLOWDOWN, Metric.GPU_POWER_CAP, Metric.GPU_HARDWARE_SLOWDOWN)
#: What the section on power, temperature, and clocks draws.
POWER = (
    Metric.GPU_POWER,
    Metric.GPU_POWER_LIMIT,
    Metric.GPU_TEMPERATURE,
    Metric.GPU_CLOCK,
    *REASONS,
)
#: Metrics that share a plot: its title, and what the solid and the dashed line are.
PAIRS: dict[tuple[str, str], tuple[str, str, str]] = {
    (Metric.NETWORK_RECEIVE, Metric.NETWORK_TRANSMIT): (
        "Network",
        "network received",
        "network sent",
    ),
    (Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL): (
        "GPU memory",
        "GPU memory in use",
        "GPU memory size",
    ),
    (Metric.GPU_POWER, Metric.GPU_POWER_LIMIT): ("GPU power", "power", "power limit"),
}
_PAIR_OF: dict[str, tuple[str, str]] = {key: pair for pair in PAIRS for key in pair}
#: What the marks of every plot are.
AID = "Line: mean; band: lowest to highest sample."


class TimeLines(Struct, frozen=True, kw_only=True):
    """Some metrics of a report over time."""

    report: Report
    keys: Collection[str]
    #: The nodes that are drawn.
    names: Sequence[str]

    @classmethod
    def of(cls, report: Report, keys: Collection[str]) -> TimeLines:
        """On the nodes that the report draws."""
        drawn = report.nodes.drawn if report.nodes else [node.name for node in report.job.nodes]
        found = cls(report=report, keys=keys, names=drawn)
        return cls(report=report, keys=keys, names=[name for name in drawn if found.of_node(name)])

    def of_node(self, node: str) -> list[TimeLine]:
        """The lines of a node that were measured at any time."""
        return [
            line
            for line in self.report.time_lines
            if line.node == node and line.key in self.keys and any(v is not None for v in line.mean)
        ]

    def plots(self, node: str) -> list[list[TimeLine]]:
        """The lines of a node by plot: two that belong together share one."""
        by_plot: dict[object, list[TimeLine]] = {}
        for line in self.of_node(node):
            by_plot.setdefault(_PAIR_OF.get(line.key, line.key), []).append(line)
        return list(by_plot.values())

    @property
    def most(self) -> int:
        """Columns of the plots and of their drawings."""
        return MAX_COLUMNS[len(self.names) > 1]

    @property
    def column(self) -> str:
        """The width of a column."""
        columns = self.report.columns
        return formats.duration(size_of(columns, self.most) * columns.width_us)

    @property
    def key(self) -> list[tuple[str, str, str]]:
        """The devices that differ, which stand in any of the plots."""
        entries: list[tuple[str, str, str]] = []
        several = len(self.names) > 1
        for i, style in enumerate(APART):
            odd = [(name, self.odd(name)[i]) for name in self.names if len(self.odd(name)) > i]
            named = [device_name(node, device, several=several) for node, device in odd]
            entries += [(style, formats.join_names(named), "")] if named else []
        return entries

    def odd(self, node: str) -> list[str]:
        """The devices of a node that differ, in the order of their styles."""
        lines = [line.apart for line in self.of_node(node) if line.apart]
        return list(dict.fromkeys(one.device for apart in lines for one in apart.devices))

    @property
    def reading(self) -> str:
        """Explanation of the marks, in addition to caption and key."""
        phases = self.report.phases
        sentences = [f"Columns of {self.column}."]
        if len(phases.phases) > 1:
            day = self.report.job.spans_days
            ends = [
                f"{words} ({formats.column_time(phase.start_us, with_day=day)})"
                for words, phase in zip(phases.bounds, phases.phases[1:], strict=True)
            ]
            sentences.append(f"Dotted: {' and '.join(ends)}.")
        sentences += profiled_mark(self.report)
        return " ".join([*sentences, "Hatched: not measured. All nodes share one scale per metric."])

    def table(self, what: str = "the time lines") -> Table:
        """Mean, lowest, and highest value of each line, and how much of it was not measured."""
        several = len(self.names) > 1
        rows = []
        for line in (line for name in self.names for line in self.of_node(name)):
            scale = formats.rate_scale((v for v in line.high if v is not None), line.unit)
            node = [formats.escape_name(line.node, 40)] if several else []
            missing = formats.percent(line.missing_percent)
            rows.append([*node, line.label, scale.unit, *_summary(line, scale), missing])
        return Table(
            label=f"Values of {what}",
            fold="mean, lowest, and highest value per line",
            heads=[
                *([":Node"] if several else []),
                ":Metric",
                ":Unit",
                "Mean",
                "Lowest",
                "Highest",
                "Not measured",
            ],
            rows=rows,
        )

    def side(self, prefix: str, *, named: bool) -> Side:
        """The drawings of each node below one another, nodes side by side; ids of live plots begin with the prefix."""
        time = SharedTime(self.report.columns, size_of(self.report.columns, self.most))
        return Side(
            style="blocks",
            blocks=[
                Column(
                    title=formats.escape_name(name, 60) if named else "",
                    blocks=self._drawings(name, time, f"{prefix}{i}"),
                )
                for i, name in enumerate(self.names)
            ],
        )

    def _drawings(self, node: str, time: SharedTime, prefix: str) -> list[Drawing]:
        report, plots, drawings = self.report, self.plots(node), []
        for lines in plots:
            keys = {line.key for line in lines}
            same = [other for name in self.names for other in self.of_node(name) if other.key in keys]
            scale = formats.rate_scale((v for o in same for v in o.high if v is not None), lines[0].unit)
            figure = time_line(
                lines,
                time,
                report.phases,
                scale,
                top_of(same, scale),
                labels=lines is plots[-1],
                odd=self.odd(node),
            )
            drawings.append(
                Drawing(
                    name=f"{prefix}-{lines[0].key.replace('_', '-')}",
                    figure=figure,
                    title=_title(lines, scale.unit),
                    label="; ".join(_label(line, scale) for line in lines),
                    key=_key(lines),
                    style="time",
                )
            )
        return drawings


def _key(lines: Sequence[TimeLine]) -> list[tuple[str, str, str]]:
    """Names of the two lines of a plot; empty if it has one."""
    if len(lines) < 2:
        return []
    pair = _PAIR_OF[lines[0].key]
    _, solid, dashed = PAIRS[pair]
    return [("s1", f"{solid} (solid)", pair[0]), ("s2", f"{dashed} (dashed)", pair[1])]


def _title(lines: Sequence[TimeLine], unit: str) -> str:
    line = lines[0]
    title = line.label if len(lines) < 2 else PAIRS[_PAIR_OF[line.key]][0]
    if line.key in (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION):
        title += " utilization"
    if line.key in REASONS:
        title += ", share of the time"
    if line.devices < 2:
        return f"{title}, {unit}"
    what = "GPU" if line.key.startswith("gpu") else "core"
    if line.apart:
        return f"{title}, {unit} (mean of {formats.count(line.devices - len(line.apart.devices), f'other {what}')})"
    return f"{title}, {unit} (mean of {formats.count(line.devices, what)})"


def _label(line: TimeLine, scale: formats.Scale) -> str:
    mean, low, high = _summary(line, scale)
    unit = scale.unit if scale.unit == "%" else f" {scale.unit}"
    return f"{line.label} over time: mean {mean}, from {low} to {high}{unit}"


def _summary(line: TimeLine, scale: formats.Scale) -> tuple[str, str, str]:
    values = (line.average, line.lowest, line.highest)
    mean, low, high = (formats.known(None if v is None else v / scale.factor) for v in values)
    return mean, low, high


def profiled_mark(report: Report) -> list[str]:
    """Explanation of solid upright lines over time; empty without any."""
    spans = report.phases.profiled
    if not spans:
        return []
    first = formats.column_time(spans[0][0], with_day=report.job.spans_days)
    return [f"Solid upright line: PyTorch traces were recorded (first {first})."]
