"""How every metric of every node is distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.result import Status

if TYPE_CHECKING:
    from jobreport.document import NodeFacts, Report
    from jobrules.result import UsageRow

#: From here on a device counts as well used, as in the rules' own default.
BUSY_PERCENT = 70.0
#: With fewer nothing is judged, only stated.
ENOUGH_SNAPSHOTS = 30
QUANTITIES = ("min", "p50", "p90", "p95", "p99", "max", "mean")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row as printed; the bar only where the scale is percent."""

    label: str
    unit: str
    values: tuple[str, ...]
    #: Minimum, median and p95 of percent metrics.
    bar: tuple[float, float, float] | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of a node under its name."""

    title: str
    rows: tuple[Row, ...]


def utilisation(report: Report) -> Fragment:
    """A sentence for every kind of node, then the table."""
    nodes = {node.name: node for node in report.job.nodes}
    by_node: dict[str, list[UsageRow]] = {}
    for row in report.usage:
        by_node.setdefault(row.node, []).append(row)
    groups = [
        Group(title=_title(name, nodes.get(name)), rows=tuple(_row(row) for row in rows))
        for name, rows in by_node.items()
    ]
    html = render(
        "utilisation",
        heading=heading("utilisation"),
        sentences=_sentences(by_node, _unused(report), bottleneck=_bottleneck(report)),
        groups=groups,
        snapshots=_snapshots(report),
        vendor=report.origin is Origin.VENDOR,
    )
    return Fragment(name="utilisation", html=html)


def _title(name: str, node: NodeFacts | None) -> str:
    parts = [formats.shown(name, 60)]
    if node and node.gpus:
        parts.append(formats.count(node.gpus, "GPU"))
    if node and node.cores:
        parts.append(formats.count(node.cores, "core"))
    return ", ".join(parts)


def _row(row: UsageRow) -> Row:
    scale = formats.rate_scale((row.max,), row.unit)
    found = [getattr(row, q) for q in QUANTITIES]
    return Row(
        label=row.label,
        unit=scale.unit,
        values=tuple(formats.known(None if v is None else v / scale.factor) for v in found),
        bar=(round(row.min, 1), round(row.p50, 1), round(row.p95, 1)) if row.unit == "%" else None,
    )


def _snapshots(report: Report) -> str:
    counts = sorted({row.n for row in report.usage if row.n is not None})
    if not counts:
        return ""
    if len(counts) == 1:
        return formats.count(counts[0], "snapshot")
    return f"{formats.number(counts[0], 0)} to {formats.count(counts[-1], 'snapshot')}"


def _unused(report: Report) -> dict[str, str]:
    """Node → "2 of 8 GPUs never worked", where some but not all GPUs of a node did."""
    told = {}
    for node in report.job.nodes:
        highest = [box.max for box in report.boxes if box.node == node.name and box.basis == "whole job"]
        idle = sum(value <= 0 for value in highest)
        if 0 < idle < len(highest):
            told[node.name] = f"{idle} of {formats.count(len(highest), 'GPU')} never worked"
    return told


def _bottleneck(report: Report) -> bool:
    """Whether a rule found that GPUs waited for a core or for storage: no machine to make smaller."""
    found = {card.name for card in report.rules if card.status is Status.TRIGGERED}
    return bool(found & {"CPUBottleneck", "IOBottleneck"})


def _sentences(by_node: dict[str, list[UsageRow]], unused: dict[str, str], *, bottleneck: bool) -> list[str]:
    """One sentence for all nodes that are told alike."""
    kinds: dict[str, list[str]] = {}
    for name, rows in by_node.items():
        found = {row.label: row for row in rows}
        kind = unused.get(name) or _kind(found.get("GPU"), found.get("CPU"))
        core = found.get("CPU, busiest core")
        if kind == "both-free" and (bottleneck or (core and core.p50 >= BUSY_PERCENT)):
            kind = "plain"
        kinds.setdefault(kind, []).append(name)
    return [_sentence(kind, names, by_node) for kind, names in kinds.items() if kind]


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


def _sentence(kind: str, names: list[str], by_node: dict[str, list[UsageRow]]) -> str:
    def span(label: str, quantity: str) -> str:
        rows = [row for name in names for row in by_node[name] if row.label == label]
        return formats.spread(getattr(row, quantity) for row in rows) or "not measured"

    where = _where(names, len(by_node))
    busiest = span("CPU, busiest core", "p50")
    below = f"{BUSY_PERCENT:g}{formats.NBSP}%"
    core = "" if busiest == "not measured" else f", the busiest core at a median of {busiest}"
    told = {
        "never": f"no GPU did any work; the CPU reached a p95 of {span('CPU', 'p95')}.",
        "both-free": (
            f"GPU and CPU were below {below} nearly all the time: their p95 lies at {span('GPU', 'p95')} and "
            f"{span('CPU', 'p95')}. A smaller machine may do."
        ),
        "gpu-waits": (
            f"GPU use was low (p95 {span('GPU', 'p95')}) while the cores were busy "
            f"(p95 {span('CPU', 'p95')}): the CPU side is the likely limit."
        ),
        "gpu-busy": f"GPU use was high: the median snapshot stands at {span('GPU', 'p50')}.",
        "plain": f"the median snapshot stands at {span('GPU', 'p50')} for the GPU"
        + (
            f" and {span('CPU', 'p50')} for the CPU{core}."
            if span("CPU", "p50") != "not measured"
            else "; the CPU was not sampled."
        ),
        "cpu-busy": f"the CPU was well used: its p95 lies at {span('CPU', 'p95')}. No GPU was sampled.",
        "cpu-free": f"the CPU was below {below} nearly all the time: its p95 lies at {span('CPU', 'p95')}. No GPU was sampled.",
    }
    return f"{where}, {told.get(kind, f'{kind}; the mean over the GPUs hides that.')}"


def _where(names: list[str], nodes: int) -> str:
    if nodes == 1:
        return "On this node"
    if len(names) == nodes:
        return "On both nodes" if nodes == 2 else f"On all {nodes}{formats.NBSP}nodes"
    return f"On {formats.listed([formats.shown(name, 40) for name in names])}"
