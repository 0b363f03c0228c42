"""How every metric of every node is distributed."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.box_plot import WHOLE
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.model import Metric, Status

if TYPE_CHECKING:
    from jobreport.document import NodeFacts, Report
    from jobrules.analyses.utilization import UsageRow

#: From here on a device counts as well used, as in the rules' own default.
BUSY_PERCENT = 70.0
#: With fewer nothing is judged, only stated.
ENOUGH_SNAPSHOTS = 30
QUANTITIES = ("min", "p50", "p90", "p95", "p99", "max", "mean")
#: More nodes are told by their spread, with a group of rows for the odd ones only.
MOST_NODES = 4
#: Nodes in the folded table.
MOST_FOLDED = 64


class Row(Struct, frozen=True, kw_only=True):
    """A row as printed; the bar only where the scale is percent."""

    label: str
    unit: str
    values: tuple[str, ...]
    #: Minimum, median and p95 of percent metrics.
    bar: tuple[float, float, float] | None


class Group(Struct, frozen=True, kw_only=True):
    """The rows of a node under its name."""

    title: str
    rows: tuple[Row, ...]


class Spread(Struct, frozen=True, kw_only=True):
    """A metric over all nodes: lowest, median and highest node."""

    label: str
    unit: str
    p50: tuple[str, ...]
    p95: tuple[str, ...]
    #: Lowest, median and highest p50 of percent metrics.
    bar: tuple[float, float, float] | None


@error_boundary
def utilization(report: Report) -> Fragment:
    """A sentence for every kind of node, then the table."""
    facts = {node.name: node for node in report.job.nodes}
    by_node: dict[str, list[UsageRow]] = {}
    for row in report.utilization:
        by_node.setdefault(row.node, []).append(row)
    many = len(by_node) > MOST_NODES
    odd = [rank.node for rank in report.nodes.odd if rank.node in by_node] if report.nodes else []
    opened = odd[:MOST_NODES] if many else list(by_node)
    folded = [name for name in by_node if name not in opened]
    measured = _measured(report)
    told = _sentences(by_node, _unused(report), report) + _of_measured(report, by_node)
    html = render(
        "utilization",
        heading=heading("utilization", report),
        sentences=told + _covered(measured, by_node) if many else told,
        spreads=_spreads(by_node) if many else (),
        groups=_groups(opened, by_node, facts, measured),
        folded=_groups(folded[:MOST_FOLDED], by_node, facts, measured),
        left_out=len(folded[MOST_FOLDED:]),
        nodes=len(by_node),
        snapshots=_snapshots(report),
        vendor=report.origin is Origin.DEBUGGER_RESULTS,
    )
    return Fragment(name="utilization", html=html)


def _groups(
    names: list[str],
    by_node: dict[str, list[UsageRow]],
    facts: dict[str, NodeFacts],
    measured: dict[str, float],
) -> list[Group]:
    return [
        Group(
            title=_title(name, facts.get(name), measured.get(name)),
            rows=tuple(_row(row) for row in by_node[name]),
        )
        for name in names
    ]


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
    """Node → percent of the job's time that its samples cover, for nodes with gaps."""
    return {one.node: one.measured_percent for one in report.phases.missing}


def _covered(measured: dict[str, float], by_node: dict[str, list[UsageRow]]) -> list[str]:
    """The nodes whose samples leave a part of the job out, the worst first."""
    if not measured:
        return []
    worst = sorted(measured.items(), key=lambda one: one[1])
    names = ", ".join(
        f"{formats.escape_name(name, 40)} {formats.percent(part)}" for name, part in worst[:MOST_NODES]
    )
    if len(worst) > MOST_NODES:
        names += f" and {len(worst) - MOST_NODES} more"
    which = "all" if len(measured) == len(by_node) else f"{len(measured)} of {len(by_node)}"
    return [f"On {which}{formats.NBSP}nodes the samples cover less than the whole job: {names}."]


def _of_measured(report: Report, by_node: dict[str, list[UsageRow]]) -> list[str]:
    """The use that the verdict tells beside that of the samples, where it is another."""
    use = report.verdict.use
    if use is None or not use.of("unknown")[1] < 100:
        return []
    of_all, unknown = use.of("used")[1], use.of("unknown")[1]
    means = [row.mean for rows in by_node.values() for row in rows if row.label == use.device]
    alone = means[0] if len(means) == 1 else None
    measured = 100 * of_all / (100 - unknown)
    uneven = ""
    # The parts of the time are rounded to tenths: what comes near is the same.
    if alone is not None and abs(alone - measured) <= max(0.5, 10 / (100 - unknown)):
        measured = alone
    elif alone is not None:
        uneven = (
            f" The mean of its samples is {formats.percent(alone)}: they lie closer together at some times than at "
            "others, and here each counts the same."
        )
    told, other = formats.percent(of_all), formats.percent(measured)
    of_measured = f", {other} of what was measured" if unknown and told != other else ""
    if not of_measured and not uneven:
        return []
    return [f"{use.device} use is {told} of all {use.noun} time{of_measured}.{uneven}"]


#: Labels as printed: what a sum is of.
_LABELS = {"Network": "Network, received and sent"}


def _spreads(by_node: dict[str, list[UsageRow]]) -> list[Spread]:
    """Every metric in the order of the first node that has it."""
    labels = dict.fromkeys(row.label for rows in by_node.values() for row in rows)
    return [_spread([r for rows in by_node.values() for r in rows if r.label == label]) for label in labels]


def _spread(rows: list[UsageRow]) -> Spread:
    p50, p95 = (_ends([getattr(row, q) for row in rows]) for q in ("p50", "p95"))
    scale = formats.rate_scale((p95[2],), rows[0].unit)
    first, second = (tuple(formats.number(v / scale.factor) for v in ends) for ends in (p50, p95))
    low, middle, high = (round(v, 1) for v in p50)
    return Spread(
        label=_LABELS.get(rows[0].label, rows[0].label),
        unit=scale.unit,
        p50=first,
        p95=second,
        bar=(low, middle, high) if rows[0].unit == "%" else None,
    )


def _ends(values: list[float]) -> tuple[float, float, float]:
    return min(values), median(values), max(values)


def _row(row: UsageRow) -> Row:
    scale = formats.rate_scale((row.max,), row.unit)
    found = [getattr(row, q) for q in QUANTITIES]
    return Row(
        label=_LABELS.get(row.label, row.label),
        unit=scale.unit,
        values=tuple(formats.known(None if v is None else v / scale.factor) for v in found),
        bar=(round(row.min, 1), round(row.p50, 1), round(row.p95, 1)) if row.unit == "%" else None,
    )


def _snapshots(report: Report) -> str:
    counts = sorted({row.n for row in report.utilization if row.n is not None})
    if not counts:
        return ""
    if len(counts) == 1:
        return formats.count(counts[0], "snapshot")
    return f"{formats.number(counts[0], 0)} to {formats.count(counts[-1], 'snapshot')}"


def _unused(report: Report) -> dict[str, str]:
    """Node → "2 of 8 GPUs never worked", where some but not all GPUs of a node did."""
    by_node: dict[str, list[float]] = {}
    for box in report.boxes:
        if box.metric == Metric.GPU_UTILIZATION and box.basis == WHOLE:
            by_node.setdefault(box.node, []).append(box.max)
    told = {}
    for node, highest in by_node.items():
        idle = sum(value <= 0 for value in highest)
        if 0 < idle < len(highest):
            told[node] = f"{idle} of {formats.count(len(highest), 'GPU')} never worked"
    return told


def _bottleneck(report: Report) -> bool:
    """Whether a rule found that GPUs waited for a core or for storage: no machine to make smaller."""
    found = {card.name for card in report.rules if card.status is Status.TRIGGERED}
    return bool(found & {"CPUBottleneck", "IOBottleneck"})


def _sentences(by_node: dict[str, list[UsageRow]], unused: dict[str, str], report: Report) -> list[str]:
    """One sentence for all nodes that are told alike."""
    bottleneck = _bottleneck(report)
    kinds: dict[str, list[str]] = {}
    for name, rows in by_node.items():
        found = {row.label: row for row in rows}
        kind = unused.get(name) or _kind(found.get("GPU"), found.get("CPU"))
        core = found.get("CPU, busiest core")
        if kind == "both-free" and (bottleneck or (core and core.p50 >= BUSY_PERCENT)):
            kind = "plain"
        kinds.setdefault(kind, []).append(name)
    busiest = _busiest(report)
    return [_sentence(kind, names, by_node, busiest) for kind, names in kinds.items() if kind]


def _busiest(report: Report) -> dict[str, float]:
    """Node → mean use of its busiest GPU, where it has several."""
    means: dict[str, list[float]] = {}
    for box in report.boxes:
        if box.metric == Metric.GPU_UTILIZATION and box.basis == WHOLE and box.mean is not None:
            means.setdefault(box.node, []).append(box.mean)
    return {node: max(values) for node, values in means.items() if len(values) > 1}


def _kind(gpu: UsageRow | None, cpu: UsageRow | None) -> str:
    if gpu is None:
        return "" if cpu is None or _few(cpu) else "cpu-busy" if cpu.p95 >= BUSY_PERCENT else "cpu-free"
    if gpu.max <= 0:
        return "never"
    if _few(gpu):
        return "plain"
    if gpu.p95 < BUSY_PERCENT and cpu is not None:
        return "gpu-waits" if cpu.p95 >= BUSY_PERCENT else "both-free"
    return "gpu-busy" if gpu.p50 >= BUSY_PERCENT else "plain"


def _few(row: UsageRow) -> bool:
    return row.n is not None and row.n < ENOUGH_SNAPSHOTS


def _sentence(
    kind: str, names: list[str], by_node: dict[str, list[UsageRow]], busiest_gpu: dict[str, float]
) -> str:
    def span(label: str, quantity: str) -> str:
        rows = [row for name in names for row in by_node[name] if row.label == label]
        return formats.spread(getattr(row, quantity) for row in rows) or "not measured"

    where = _where(names, len(by_node))
    busiest = span("CPU, busiest core", "p50")
    below = f"{BUSY_PERCENT:g}%"
    core = "" if busiest == "not measured" else f", the busiest core at a median of {busiest}"
    means = [busiest_gpu[name] for name in names if name in busiest_gpu]
    gpu = f", of the busiest GPU {formats.spread(means)} on average" if means else ""
    told = {
        "never": "every sample of GPU use is 0; "
        + (
            f"the CPU reached a p95 of {span('CPU', 'p95')}."
            if span("CPU", "p95") != "not measured"
            else "the CPU was not sampled."
        ),
        "both-free": (
            f"GPU and CPU were below {below} nearly all the time: their p95 lies at {span('GPU', 'p95')} and "
            f"{span('CPU', 'p95')}{core}. A smaller machine may do."
        ),
        "gpu-waits": (
            f"GPU use was low (p95 {span('GPU', 'p95')}{gpu}) while the cores were busy "
            f"(p95 {span('CPU', 'p95')}): the CPU side is the likely limit."
        ),
        "gpu-busy": f"GPU use was high in most snapshots: their median is {span('GPU', 'p50')}.",
        "plain": f"the median snapshot stands at {span('GPU', 'p50')} for the GPU"
        + (
            f" and {span('CPU', 'p50')} for the CPU{core}."
            if span("CPU", "p50") != "not measured"
            else "; the CPU was not sampled."
        ),
        "cpu-busy": f"the CPU was well used: its p95 lies at {span('CPU', 'p95')}{core}. No GPU was sampled.",
        "cpu-free": f"the CPU was below {below} nearly all the time: its p95 lies at {span('CPU', 'p95')}{core}. No GPU was sampled.",
    }
    return f"{where}, {told.get(kind, f'{kind}; the mean over the GPUs hides that.')}"


def _where(names: list[str], nodes: int) -> str:
    if nodes == 1:
        return "On this node"
    if len(names) == nodes:
        return "On both nodes" if nodes == 2 else f"On all {nodes}{formats.NBSP}nodes"
    return f"On {formats.join_names([formats.escape_name(name, 40) for name in names])}"
