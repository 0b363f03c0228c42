"""The distribution of each metric on each node."""

from __future__ import annotations

import itertools
from statistics import median
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.box_plot import WHOLE
from jobreport.page.kit import Empty, Sentences, Table
from jobreport.page.kit.table import PERCENT_SCALE, node_cells, node_heads, range_bar
from jobreport.page.sections.outline import has_edges, section
from jobrules.measures.work_span import GLANCE_PERCENT
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import NodeFacts, Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.gpu_utilization import Box
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
    """A sentence per kind of node, then the tables: of nodes, processes, and file systems."""
    facts = {node.name: node for node in report.job.nodes}
    by_node: dict[str, list[UsageRow]] = {}
    for row in report.utilization:
        by_node.setdefault(row.node, []).append(row)
    many = len(by_node) > MAX_NODES
    odd = [rank.node for rank in report.nodes.odd if rank.node in by_node] if report.nodes else []
    opened = odd[:MAX_NODES] if many else list(by_node)
    folded = [name for name in by_node if name not in opened]
    measured = _measured(report)
    sentences = _sentences(by_node, report) + _share_of_time(report)
    titles = {name: _title(name, facts.get(name), measured.get(name)) for name in by_node}
    left = len(folded[MAX_FOLDED:])
    tables = [
        _spreads(by_node, _snapshots(report)) if many else None,
        _per_node([(titles[name], by_node[name]) for name in opened], _caption(report, many=many)),
        _others(
            [(titles[name], by_node[name]) for name in folded[:MAX_FOLDED]], left, the_other=bool(opened)
        ),
        _processes(report),
        _file_systems(report),
    ]
    if any(tables):
        return [Sentences(sentences + _covered(measured, by_node) if many else sentences), *tables]
    if report.of_debugger:
        return Empty("SageMaker Debugger's results hold no OverallSystemUsage.")
    return Empty("No metric was recorded.")


def _caption(report: Report, *, many: bool) -> str:
    caption = "Utilization per node that differs from the others" if many else "Utilization per node"
    if report.of_debugger:
        caption += ", from SageMaker Debugger, without p90 and mean (–)"
    elif not many:
        of_job = " of the whole job" if has_edges(report) else ""
        caption += f" over {_snapshots(report)}{of_job}, averaged over its GPUs or cores"
        if any(row.n is None for row in report.utilization):
            caption += "; rows without p90 and mean (–) are from SageMaker Debugger"
    return f"{caption}. Bar: minimum to p95; mark: median."


_HEADS = (":Metric", ":Unit", "Min", "p50", "p90", "p95", "p99", "Max", "Mean")


def _per_node(groups: list[tuple[str, list[UsageRow]]], caption: str) -> Table:
    return Table(
        label="Utilization of each node",
        caption=caption,
        heads=(*_HEADS, PERCENT_SCALE),
        rows=[one for title, rows in groups for one in (title, *([*_cells(row), _bar(row)] for row in rows))],
        style="wide",
    )


def _others(groups: list[tuple[str, list[UsageRow]]], left: int, *, the_other: bool) -> Table:
    nodes = f"{'the other ' if the_other else ''}{formats.count(len(groups), 'node')}"
    more = f"; {formats.count(left, 'more node')} in report.json" if left else ""
    return Table(
        label="Utilization of the other nodes",
        fold=f"utilization of {nodes}{more}",
        heads=_HEADS,
        rows=[one for title, rows in groups for one in (title, *map(_cells, rows))],
    )


def _title(name: str, node: NodeFacts | None, measured: float | None) -> str:
    parts = [formats.escape_name(name, 60)]
    if node and node.gpus:
        parts.append(formats.count(node.gpus, "GPU"))
    if node and node.cores:
        parts.append(formats.count(node.cores, "core"))
    if measured is not None:
        parts.append(f"samples cover {formats.percent(measured)} of the job")
    return ", ".join(parts)


def _measured(report: Report) -> dict[str, float]:
    """Node → percent of the job's time that its samples cover, for nodes with sampling pauses."""
    return {one.node: one.measured_percent for one in report.phases.missing}


def _covered(measured: dict[str, float], by_node: dict[str, list[UsageRow]]) -> list[str]:
    """The nodes whose samples do not cover the whole job, the worst first."""
    if not measured:
        return []
    worst = sorted(measured.items(), key=lambda one: one[1])
    names = [f"{formats.escape_name(name, 40)} {formats.percent(part)}" for name, part in worst]
    nodes = f"{len(measured)} of {formats.count(len(by_node), 'node')}"
    return [f"Samples cover less than the whole job on {nodes}: {formats.join_names(names, MAX_NODES + 1)}."]


def _share_of_time(report: Report) -> list[str]:
    """The verdict's share of used time, where it differs from the mean of the samples in the table."""
    use = report.verdict.use
    if use is None or not use.of("unknown")[1] < 100:
        return []
    of_all, unknown = use.of("used")[1], use.of("unknown")[1]
    means = [row.mean for row in report.utilization if row.label == use.device]
    mean = means[0] if len(means) == 1 else None
    measured = 100 * of_all / (100 - unknown)
    uneven = ""
    # The parts of the time are rounded to tenths: what comes near is the same.
    if mean is not None and abs(mean - measured) <= max(0.5, 10 / (100 - unknown)):
        measured = mean
    elif mean is not None:
        uneven = f" The mean of its samples is {formats.percent(mean)}, because sampling intervals differ."
    all_time, measured_time = formats.percent(of_all), formats.percent(measured)
    of_measured = f" and {measured_time} of measured time" if unknown and all_time != measured_time else ""
    if not of_measured and not uneven:
        return []
    return [f"{use.device} utilization is {all_time} of all {use.noun} time{of_measured}.{uneven}"]


def _processes(report: Report) -> Table | None:
    """CPU, memory, and threads of each process of the job."""
    if not (report.host and report.host.processes):
        return None
    found, several = report.host.processes, len({one.node for one in report.host.processes}) > 1
    left = report.host.more_processes
    more = f" Not shown: {formats.count(left, 'process', 'processes')} with less CPU time." if left else ""
    return Table(
        label="Processes of the job",
        fold="processes of the job" if len(found) > MAX_OPEN_ROWS else "",
        caption=f"Processes of the job: rank or process number; loader processes of a rank together.{more}",
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


def _spreads(by_node: dict[str, list[UsageRow]], snapshots: str) -> Table:
    """Lowest, median, and highest node of every metric, in the order of the first node that has it."""
    labels = dict.fromkeys(row.label for rows in by_node.values() for row in rows)
    over = f", over {snapshots} each" if snapshots else ""
    return Table(
        label="Utilization over all nodes",
        caption=f"Lowest, median, and highest node of all {formats.count(len(by_node), 'node')}{over}. "
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


def _snapshots(report: Report) -> str:
    counts = sorted({row.n for row in report.utilization if row.n is not None})
    if not counts:
        return ""
    if len(counts) == 1:
        return formats.count(counts[0], "snapshot")
    return f"{formats.number(counts[0], 0)} to {formats.count(counts[-1], 'snapshot')}"


def _sentences(by_node: dict[str, list[UsageRow]], report: Report) -> list[str]:
    """One sentence per kind of node: what was measured. What it means is said by the verdict."""
    gpus = _whole_job_boxes(report)
    alike: dict[str, list[str]] = {}
    for name, rows in by_node.items():
        alike.setdefault(_kind(rows, gpus.get(name, [])), []).append(name)
    return [
        _sentence(kind, [by_node[name] for name in names], _where(names, len(by_node)))
        for kind, names in alike.items()
        if kind
    ]


def _whole_job_boxes(report: Report) -> dict[str, list[Box]]:
    """Node → the boxes of its GPUs over the whole job."""
    found: dict[str, list[Box]] = {}
    for box in report.boxes:
        if box.metric == Metric.GPU_UTILIZATION and box.basis == WHOLE:
            found.setdefault(box.node, []).append(box)
    return found


def _kind(rows: Sequence[UsageRow], gpus: Sequence[Box]) -> str:
    """The key of a node's sentence in ``_SENTENCES``, ``2 of 8 GPUs`` that were never used, or empty."""
    found = {row.label: row for row in rows}
    never_used = sum(box.max <= GLANCE_PERCENT for box in gpus)
    if 0 < never_used < len(gpus):
        return f"{never_used} of {formats.count(len(gpus), 'GPU')}"
    if "GPU" not in found:
        return "no gpu" if "CPU" in found else ""
    return "never used" if never_used or found["GPU"].max <= 0 else "medians"


_SENTENCES = {
    "never used": "Every GPU sample{where} is at most 1%; CPU p95: {cpu_p95}.",
    "medians": "Median utilization{where}: GPU {gpu}, CPU {cpu}{core}.",
    "no gpu": "Median utilization{where}: CPU {cpu}{core}. GPU utilization was not recorded.",
}


def _sentence(kind: str, nodes: Sequence[list[UsageRow]], where: str) -> str:
    """The sentence of all nodes of a kind."""
    if kind not in _SENTENCES:
        return f"{kind}{where} were never used; the mean over GPUs hides that."

    def over_nodes(label: str, quantity: str = "p50") -> str:
        rows = [row for row in itertools.chain.from_iterable(nodes) if row.label == label]
        return formats.spread(getattr(row, quantity) for row in rows)

    core = over_nodes("CPU, busiest core")
    return _SENTENCES[kind].format(
        where=where,
        gpu=over_nodes("GPU"),
        cpu=over_nodes("CPU") or "not recorded",
        cpu_p95=over_nodes("CPU", "p95") or "not recorded",
        core=f", busiest core {core}" if core else "",
    )


def _where(names: list[str], nodes: int) -> str:
    """`` on a, b, and c``; empty for the only node."""
    if nodes == 1:
        return ""
    if len(names) == nodes:
        return " on both nodes" if nodes == 2 else f" on all {nodes}{formats.NBSP}nodes"
    return f" on {formats.join_names([formats.escape_name(name, 40) for name in names])}"
