"""The distribution of each metric on each node."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit import Sentences, Table
from jobreport.page.kit.table import PERCENT_SCALE, node_cells, node_heads, range_bar
from jobreport.page.sections.outline import not_recorded, section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import NodeFacts, Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.utilization import UsageRow

QUANTITIES = ("min", "p50", "p90", "p95", "p99", "max", "mean")
#: Nodes with a group of rows each; of more, the spread over nodes, and a group for each that differs.
MAX_NODES = 4
#: Rows of a table of processes or file systems that is not folded away.
MAX_OPEN_ROWS = 16
MIB, GIB = 1 << 20, 1 << 30
#: Nodes in the folded table.
MAX_FOLDED = 64
#: In place of a bar.
NO_SCALE = Markup('<span class="m">no fixed scale</span>')


@section
def utilization(report: Report) -> Content:
    """Medians in a sentence, then the tables: of nodes, processes, and file systems."""
    facts = {node.name: node for node in report.job.nodes}
    by_node: dict[str, list[UsageRow]] = {}
    for row in report.utilization:
        by_node.setdefault(row.node, []).append(row)
    many = len(by_node) > MAX_NODES
    odd = [rank.node for rank in report.nodes.odd if rank.node in by_node] if report.nodes else []
    opened = odd[:MAX_NODES] if many else list(by_node)
    folded = [name for name in by_node if name not in opened]
    measured = {one.node: one.measured_percent for one in report.phases.missing}
    titles = {name: _title(name, facts.get(name), by_node[name], measured.get(name)) for name in by_node}
    tables = [
        _spreads(by_node) if many else None,
        _per_node([(titles[name], by_node[name]) for name in opened], report),
        _others([(titles[name], by_node[name]) for name in folded[:MAX_FOLDED]], len(folded[MAX_FOLDED:])),
        _processes(report),
        _file_systems(report),
    ]
    if not any(tables):
        return not_recorded("metric", in_results=report.of_debugger)
    return [Sentences([*_medians(report.utilization), *_share_of_time(report)]), *tables]


_HEADS = (":Metric", ":Unit", "Min", "p50", "p90", "p95", "p99", "Max", "Mean")
#: Metrics of the sentence, and their words.
_MEDIANS = {"GPU": "GPU", "CPU": "CPU", "CPU, busiest core": "busiest core"}


def _per_node(groups: list[tuple[str, list[UsageRow]]], report: Report) -> Table:
    copied = (
        " –: not in SageMaker Debugger's results." if any(row.n is None for row in report.utilization) else ""
    )
    return Table(
        label="Utilization of each node",
        caption=f"Utilization per node: samples averaged over its GPUs or cores, each counted once. Bar: minimum to p95; mark: median.{copied}",
        heads=(*_HEADS, PERCENT_SCALE),
        rows=[one for title, rows in groups for one in (title, *([*_cells(row), _bar(row)] for row in rows))],
        style="wide",
    )


def _others(groups: list[tuple[str, list[UsageRow]]], left: int) -> Table:
    return Table(
        label="Utilization of the other nodes",
        fold=f"utilization of {formats.count(len(groups), 'more node')}",
        caption=f"Utilization per node.{formats.not_shown(left, 'node')}",
        heads=_HEADS,
        rows=[one for title, rows in groups for one in (title, *map(_cells, rows))],
    )


def _title(name: str, node: NodeFacts | None, rows: list[UsageRow], measured: float | None) -> str:
    parts = [formats.escape_name(name, 60)]
    if node and node.gpus:
        parts.append(formats.count(node.gpus, "GPU"))
    if node and node.cores:
        parts.append(formats.count(node.cores, "core"))
    if snapshots := max(row.n or 0 for row in rows):
        parts.append(formats.count(snapshots, "snapshot"))
    if measured is not None:
        parts.append(f"samples cover {formats.percent(measured)} of the job")
    return ", ".join(parts)


def _share_of_time(report: Report) -> list[str]:
    """The verdict's share of used time, if it differs from the mean of the samples in the table."""
    use = report.verdict.use
    if use is None or not 0 < use.of("unknown")[1] < 100:
        return []
    used, unknown = (formats.percent(use.of(key)[1]) for key in ("used", "unknown"))
    return [f"{use.device} utilization is {used} of all {use.noun} time; {unknown} of it was not measured."]


def _processes(report: Report) -> Table | None:
    """CPU, memory, and threads of each process of the job."""
    if not (report.host and report.host.processes):
        return None
    found, several = report.host.processes, len({one.node for one in report.host.processes}) > 1
    left = formats.not_shown(report.host.more_processes, "process", "processes")
    return Table(
        label="Processes of the job",
        fold="processes of the job" if len(found) > MAX_OPEN_ROWS else "",
        caption=f"Processes of the job: rank or process number; loader processes of a rank together.{left}",
        heads=[
            *node_heads(":Process", several=several),
            *("Mean CPU (% of a core)", "Highest CPU (% of a core)", "Highest memory (MiB)", "Most threads"),
        ],
        rows=[
            [
                *node_cells(one.node, _process(one.name), several=several),
                formats.known(one.cpu_mean),
                formats.known(one.cpu_max),
                formats.known(None if one.memory_max is None else one.memory_max / MIB, 0),
                formats.known(one.threads_max, 0),
            ]
            for one in found
        ],
    )


def _process(name: str) -> str:
    """``loaders of 0`` for ``loaders-0``."""
    loaders, _, rank = name.partition("-")
    return f"loaders of {rank}" if loaders == "loaders" and rank else name


def _file_systems(report: Report) -> Table | None:
    """Free space of each file system that the job may fill."""
    if not (report.host and report.host.file_systems):
        return None
    found = report.host.file_systems
    several = len({one.node for one in found}) > 1
    return Table(
        label="Free space",
        fold="free space" if len(found) > MAX_OPEN_ROWS else "",
        caption="Free space of the file systems of the recording, the working directory, and shared memory.",
        heads=[
            *node_heads(":File system", several=several),
            *("At the start (GiB)", "Lowest (GiB)", "At the end (GiB)"),
        ],
        rows=[
            [
                *([formats.escape_name(one.node, 32)] if several else []),
                formats.escape_name(one.name, 60),
                *(formats.number(value / GIB) for value in (one.first, one.lowest, one.last)),
            ]
            for one in found
        ],
    )


#: Labels as printed: what a sum is of.
_LABELS = {"Network": "Network, received and sent", "RDMA": "RDMA, received and sent"}


def _spreads(by_node: dict[str, list[UsageRow]]) -> Table:
    """Lowest, median, and highest node of every metric, in the order of the first node that has it."""
    labels = dict.fromkeys(row.label for rows in by_node.values() for row in rows)
    return Table(
        label="Utilization over all nodes",
        caption=f"Lowest, median, and highest node of all {formats.count(len(by_node), 'node')}. "
        "Bar: lowest to highest p50; mark: median node.",
        heads=(
            *(":Metric", ":Unit", "p50 lowest", "p50 median", "p50 highest"),
            *("p95 lowest", "p95 median", "p95 highest", PERCENT_SCALE),
        ),
        rows=[
            _spread([row for rows in by_node.values() for row in rows if row.label == label])
            for label in labels
        ],
        style="wide",
    )


def _spread(rows: list[UsageRow]) -> list[str]:
    p50, p95 = (_ends([getattr(row, q) for row in rows]) for q in ("p50", "p95"))
    scale = formats.rate_scale((p95[2],), rows[0].unit)
    values = [formats.number(value / scale.factor) for value in (*p50, *p95)]
    drawn = range_bar(*p50) if rows[0].unit == "%" else NO_SCALE
    return [_LABELS.get(rows[0].label, rows[0].label), scale.unit, *values, drawn]


def _ends(values: list[float]) -> tuple[float, float, float]:
    return min(values), median(values), max(values)


def _cells(row: UsageRow) -> list[str]:
    scale = formats.rate_scale((row.max,), row.unit)
    found = [getattr(row, q) for q in QUANTITIES]
    values = [formats.known(None if v is None else v / scale.factor) for v in found]
    return [_LABELS.get(row.label, row.label), scale.unit, *values]


def _bar(row: UsageRow) -> Markup:
    return range_bar(row.min, row.p50, row.p95) if row.unit == "%" else NO_SCALE


def _medians(rows: Sequence[UsageRow]) -> list[str]:
    """Medians of GPUs and cores over all nodes."""
    known = ((words, [row.p50 for row in rows if row.label == label]) for label, words in _MEDIANS.items())
    medians = [f"{words} {formats.spread(values)}" for words, values in known if values]
    return [f"Median utilization: {', '.join(medians)}."] if medians else []
