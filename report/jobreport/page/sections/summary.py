"""The phases of the job: a ring, a table, and a strip with the sampling pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.over_columns import merged
from jobreport.page.figures.scales import time_ticks
from jobreport.page.figures.summary import FILLS, Stretch, ring, stretch
from jobreport.page.sections.outline import covers_time, heading, section
from jobreport.page.sections.parts.recordings import interruptions
from jobrules.model import SECOND_US, Severity
from jobrules.text import capitalized
from jobrules.verdict.edges import START_UP

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment
    from jobrules.model import Finding

#: Rows of the table of kinds of nodes.
MAX_KINDS = 8
#: Nodes whose sampling pauses have a row of their own in the table.
MAX_PAUSE_ROWS = 4
#: In a shorter job, times have tenths of a second.
SHORT_US = 10 * SECOND_US
#: Findings on start-up.
_STARTS = frozenset({"max-initialization-time", START_UP, "late-first-step"})


class Kind(Struct, frozen=True, kw_only=True):
    """Nodes with equal devices and sampling interval."""

    nodes: str
    count: int
    gpus: int
    cores: int
    interval: str


class Lane(Struct, frozen=True, kw_only=True):
    """A node's sampling pauses in the strip of phases."""

    top: float
    height: float
    gaps: tuple[Stretch, ...]


@section
def summary(report: Report) -> Fragment:
    """When the job ran, and in which phases."""
    job, phases = report.job, report.phases
    covers = covers_time(report)
    axis = (job.start_us, job.end_us)
    # A single phase is no share of anything, and its strip shows nothing but pauses.
    several = covers and len(phases.phases) > 1
    lanes = _lanes(report) if covers else ()
    kinds = _kinds(report)
    with_day = formats.spans_days(*axis)
    return heading("summary", report).section(
        job=job,
        phases=phases,
        basis=" ".join(filter(None, [_basis(report), interruptions(report)])),
        caption=_caption(report),
        covers=covers,
        traced=bool(report.captures),
        debugger=report.of_debugger,
        wedges=ring(phases.phases) if several else (),
        fills=FILLS,
        places=[stretch(p.start_us, p.end_us, axis) for p in phases.phases] if covers else (),
        lanes=lanes,
        drawn=several or bool(lanes),
        ticks=time_ticks(*axis) if covers else (),
        first_work=stretch(phases.first_work_us, phases.first_work_us, axis).at
        if covers and phases.first_work_us is not None
        else None,
        pauses=phases.missing[:MAX_PAUSE_ROWS],
        more_pauses=len(phases.missing[MAX_PAUSE_ROWS:]),
        long_start=_long_start(report),
        start_warned=any(f.severity is not Severity.INFO for f in _start_findings(report)),
        kinds=kinds[:MAX_KINDS] if len(kinds) > 1 else (),
        more_kinds=len(kinds[MAX_KINDS:]),
        with_day=with_day,
        tenths=axis[1] - axis[0] < SHORT_US,
        # What the labels of both ends take of the strip's width.
        room=0.2 if with_day else 0.09,
    )


def _basis(report: Report) -> str:
    """Which records the phases come from."""
    phases = report.phases
    by_results = "the first and last step in SageMaker Debugger's results; the training loop ends at the start of the last step."
    if report.of_debugger:
        return {
            "steps": f"Phases come from {by_results}",
            "gpu": "No steps were recorded. GPU work is the longest time without an entry of the bottleneck rules.",
        }.get(phases.basis, "Start-up and wind-down are unknown: the results name no first and last step.")
    # Steps that only the results hold have no times of their own.
    of_results = report.has_debugger and report.steps is None
    steps = by_results if of_results else f"{formats.count(report.job.steps, 'recorded step')}."
    if phases.basis == "steps":
        return f"Phases come from {steps}"
    if phases.basis in ("gpu", "both"):
        came = "Phases come from GPU samples" + (
            f" and {steps}" if phases.basis == "both" or report.job.steps else "; no steps were recorded."
        )
        use = "lasting GPU use" if phases.basis == "gpu" else "lasting GPU use or a step"
        work = capitalized(phases.middle)
        loop = (
            "" if phases.basis == "gpu" else " The training loop is the time from the first to the last step."
        )
        return f"{came} {work} starts and ends with {use}: a short peak before it is start-up.{loop}"
    if any(row.label == "GPU" for row in report.utilization):
        return "Start-up and wind-down are unknown: no steps were recorded, and no GPU was used."
    return "Start-up and wind-down are unknown: neither steps nor GPUs were recorded."


def _caption(report: Report) -> str:
    """How much of the job the training loop took, how long start-up was, and how often sampling paused."""
    phases = {phase.key: phase for phase in report.phases.phases}
    loop, before = phases.get("loop"), phases.get("before")
    if loop is None:
        found = "The job is one phase."
    else:
        work = "The training loop" if report.phases.basis == "steps" else capitalized(report.phases.middle)
        start_up = f", start-up {formats.duration(before.end_us - before.start_us)}" if before else ""
        found = f"{work} took {formats.percent(loop.percent)} of the job{start_up}."
    pauses = report.phases.gaps
    if not pauses:
        return found
    longest = formats.duration(max(pause.end_us - pause.start_us for pause in pauses))
    nodes = len(report.phases.missing)
    where = f" on {formats.count(nodes, 'node')}" if len(report.job.nodes) > 1 else ""
    if len(pauses) == 1:
        return f"{found} Sampling paused once{where}, for {longest}."
    return f"{found} Sampling paused {formats.count(len(pauses), 'time')}{where}, for at most {longest}."


def _lanes(report: Report) -> list[Lane]:
    """One lane per node, in the order of the nodes, so that a pause of one node does not hide the others."""
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
    """The verdict's findings on start-up."""
    return [finding for finding in report.verdict.findings if finding.key in _STARTS]


def _long_start(report: Report) -> str:
    """What the nodes did during a start-up that took longer than the work after it."""
    lengths = {phase.key: phase.end_us - phase.start_us for phase in report.phases.phases}
    before, loop = lengths.get("before", 0), lengths.get("loop", 0)
    if not loop or before <= loop:
        return ""
    found = f"Start-up took longer than the {report.phases.middle}: {formats.duration(before)} against {formats.duration(loop)}."
    means = _start_up_means(report)
    if not means:
        return found
    per_node = " per node" if len(report.job.nodes) > 1 else ""
    return f"{found} Means during start-up{per_node}: {', '.join(means)}."


def _start_up_means(report: Report) -> list[str]:
    """``CPU utilization 5.0%``, and the same of I/O wait and network, as far as they were recorded."""
    found = report.nodes.start_up if report.nodes else None
    if found is None:
        return []
    means = []
    if found.cpu is not None:
        means.append(f"CPU utilization {formats.percent(found.cpu)}")
    if found.io_wait is not None:
        means.append(f"I/O wait {formats.percent(found.io_wait)}")
    if found.received is not None:
        scale = formats.rate_scale((found.received,))
        rate = f"{formats.number(found.received / scale.factor)}{formats.NBSP}{scale.unit}"
        means.append(f"{rate} received")
    return means


def _kinds(report: Report) -> list[Kind]:
    """Nodes with equal GPUs, cores, and sampling interval in one row, the most frequent kind first."""
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
