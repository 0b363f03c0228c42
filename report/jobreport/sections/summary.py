"""The job in time: its phases as a ring, a table and a strip with gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.figures.over_columns import merged
from jobreport.figures.scales import time_ticks
from jobreport.figures.static_svg import Stretch, still_ring, stretch
from jobreport.figures.summary import COLOURS, pie
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import covers_time, heading
from jobrules.model import SECOND_US, Severity

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.model import Finding

#: Kinds of machines that get a row in the table.
MOST_KINDS = 8
#: Findings on the start; the rule's is no warning where GPUs were training before the first step.
_WAITED = "max-initialization-time"
_STARTS = frozenset({_WAITED, "late-first-work", "late-first-step"})
#: Nodes whose gaps get a row of their own in the table.
MOST_GAP_ROWS = 4


class Kind(Struct, frozen=True, kw_only=True):
    """Machines that are alike."""

    nodes: str
    count: int
    gpus: int
    cores: int
    interval: str


class Lane(Struct, frozen=True, kw_only=True):
    """A node's gaps in the strip; lanes lie above one another."""

    top: float
    height: float
    gaps: tuple[Stretch, ...]


@error_boundary
def summary(report: Report) -> Fragment:
    """When the job ran, and in which phases."""
    job, course = report.job, report.phases
    covers = covers_time(report)
    axis = (job.start_us, job.end_us)
    # One phase is no share of anything, and a strip of one color tells nothing but its gaps.
    several = covers and len(course.phases) > 1
    lanes = _lanes(report) if covers else ()
    figure = pie(course.phases) if several else None
    kinds = _kinds(report)
    html = render(
        "summary",
        heading=heading("summary", report),
        job=job,
        course=course,
        basis=_basis(report),
        caption=_caption(report),
        covers=covers,
        vendor=report.origin is Origin.DEBUGGER_RESULTS,
        wedges=still_ring(course.phases) if several else (),
        fills=_FILLS,
        places=[stretch(p.start_us, p.end_us, axis) for p in course.phases] if covers else (),
        lanes=lanes,
        drawn=several or bool(lanes),
        ticks=time_ticks(*axis) if covers else (),
        first_work=stretch(course.first_work_us, course.first_work_us, axis).at
        if covers and course.first_work_us is not None
        else None,
        gap_rows=course.missing[:MOST_GAP_ROWS],
        more_gaps=len(course.missing) - MOST_GAP_ROWS,
        interrupted=course.interrupted,
        long_start=_long_start(report),
        start_warned=any(f.severity is not Severity.INFO for f in _start_findings(report)),
        machines=_machines(kinds) if len(kinds) == 1 else "",
        kinds=kinds[:MOST_KINDS] if len(kinds) > 1 else (),
        more_kinds=len(kinds[MOST_KINDS:]),
        with_day=formats.spans_days(*axis),
        # What the labels of both ends take of the strip's width.
        room=0.2 if formats.spans_days(*axis) else 0.09,
        figures=document_json("summary", {"live-phases": figure}) if figure else "",
    )
    return Fragment(name="summary", html=html)


#: Token of a phase's color → class of the same color in drawings.
_FILLS = {key: {"line": "n1", "used": "u", "ink2": "n2"}[token] for key, token in COLOURS.items()}


def _basis(report: Report) -> str:
    """What the phases were told from."""
    course = report.phases
    if report.origin is Origin.DEBUGGER_RESULTS:
        return _vendor_basis(report)
    if course.basis == "steps":
        return f"The phases are told from {formats.count(report.job.steps, 'recorded step')}."
    if course.basis == "gpu":
        return (
            "No step was recorded, so the phases are told from the GPUs: "
            "the first and the last sample above 0%."
        )
    if any(row.label == "GPU" for row in report.utilization):
        return "No step was recorded and every sample of GPU use is 0, so start and end cannot be told from training."
    return "Neither steps nor GPUs were recorded, so start and end cannot be told from training."


def _vendor_basis(report: Report) -> str:
    ends = "The last minute may be missing (C-1)."
    if report.phases.basis != "steps":
        return (
            f"{ends} The results name no first and last step, so start and end cannot be told from training."
        )
    return (
        f"{ends} The phases are told from the first and the last step that the vendor recorded; of the last "
        "one only the start, so the training loop ends there (MIT-4)."
    )


def _caption(report: Report) -> str:
    """The finding in the phases, with its number."""
    course = report.phases
    parts = []
    by_key = {phase.key: phase for phase in course.phases}
    loop, before = by_key.get("loop"), by_key.get("before")
    if loop:
        name = "The training loop" if course.basis == "steps" else "The time from first to last GPU work"
        parts.append(f"{name} is {formats.percent(loop.percent)} of the job")
        if before:
            parts[0] += f"; {formats.duration(before.end_us - before.start_us)} passed before it"
    else:
        parts.append("The job is shown as one stretch")
    gaps = course.gaps
    if gaps:
        longest = formats.duration(max(g.end_us - g.start_us for g in gaps))
        nodes = len(course.missing)
        where = f" on {formats.count(nodes, 'node')}" if len(report.job.nodes) > 1 else ""
        parts.append(
            f"sampling stopped once{where}, for {longest}"
            if len(gaps) == 1
            else f"sampling stopped {formats.count(len(gaps), 'time')}{where}, for {longest} at most"
        )
    return "; ".join(parts) + "."


def _lanes(report: Report) -> list[Lane]:
    """One lane a node, in the order of the nodes, so that a gap of one node does not hide the others."""
    axis = (report.job.start_us, report.job.end_us)
    names = [node.name for node in report.job.nodes]
    height = 100 / max(len(names), 1)
    gaps: dict[str, list[tuple[int, int]]] = {}
    for gap in report.phases.gaps:
        gaps.setdefault(gap.node, []).append((gap.start_us, gap.end_us))
    return [
        Lane(
            top=round(i * height, 2),
            height=round(height, 2),
            gaps=tuple(stretch(start, end, axis) for start, end in merged(gaps[name])),
        )
        for i, name in enumerate(names)
        if name in gaps
    ]


def _start_findings(report: Report) -> list[Finding]:
    """What the verdict says of the start."""
    return [finding for finding in report.verdict.findings if finding.key in _STARTS]


def _long_start(report: Report) -> str:
    """What the machines did before the first step, where that took longer than training.

    Empty where the verdict takes the steps to be recorded late.
    """
    if any(f.key == _WAITED and f.severity is Severity.INFO for f in _start_findings(report)):
        return ""
    by_key = {phase.key: phase.end_us - phase.start_us for phase in report.phases.phases}
    before, loop = by_key.get("before", 0), by_key.get("loop", 0)
    if not loop or before <= loop:
        return ""
    first, work = (
        ("step", "the training loop") if report.phases.basis == "steps" else ("GPU work", "the work")
    )
    told = (
        f"The start took longer than {work}: {formats.duration(before)} before the first {first}, "
        f"{formats.duration(loop)} from there to the last."
    )
    found = report.nodes.start_up if report.nodes else None
    if found is None:
        return told
    means = []
    if found.cpu is not None:
        means.append(f"a mean CPU use of {formats.percent(found.cpu)}")
    if found.io_wait is not None:
        means.append(f"an I/O wait of {formats.percent(found.io_wait)}")
    if found.received is not None:
        scale = formats.rate_scale((found.received,))
        rate = f"{formats.number(found.received / scale.factor)}{formats.NBSP}{scale.unit}"
        means.append(f"{rate} received over the network")
    each = " and node" if len(report.job.nodes) > 1 else ""
    of = f" (means of the samples{each})" if means else ""
    return f"{told} The samples of the start show {_and(means)}{of}." if means else told


def _and(parts: list[str]) -> str:
    """``a, b and c``, for words of ours."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _kinds(report: Report) -> list[Kind]:
    """Machines with as many GPUs, cores and samples a second in one row, the most frequent kind first."""
    found: dict[tuple[int, int, float | None], list[str]] = {}
    for node in report.job.nodes:
        found.setdefault((node.gpus, node.cores, node.interval_s), []).append(node.name)
    return [
        Kind(
            nodes=formats.join_names([formats.escape_name(name, 40) for name in names]),
            count=len(names),
            gpus=gpus,
            cores=cores,
            interval="–" if interval is None else formats.duration(interval * SECOND_US),
        )
        for (gpus, cores, interval), names in sorted(found.items(), key=lambda one: -len(one[1]))
    ]


def _machines(kinds: list[Kind]) -> str:
    """The machines in one sentence, where all are alike."""
    (kind,) = kinds
    devices = [formats.count(n, what) for n, what in ((kind.gpus, "GPU"), (kind.cores, "core")) if n]
    if not devices:
        return ""
    each = " each" if kind.count > 1 else ""
    sampled = f", sampled every {kind.interval}" if kind.interval != "–" else ""
    return f"It ran on {formats.count(kind.count, 'node')} with {_and(devices)}{each}{sampled}."
