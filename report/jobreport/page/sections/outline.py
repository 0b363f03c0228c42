"""The sections of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.kit.section import Empty, sections_of

if TYPE_CHECKING:
    from jobreport.document import Report

#: Anchor and title of every numbered section, in the order of the page of a job without findings.
SECTIONS = (
    ("summary", "Training job summary"),
    ("utilization", "Resource utilization"),
    ("framework", "Framework time"),
    ("steps", "Steps"),
    ("learning", "Learning"),
    ("trees", "Boosted trees"),
    ("goodput", "Goodput"),
    ("gpu-utilization", "GPU utilization"),
    ("balance", "Workload balance"),
    ("data-loading", "Data loading"),
    ("batch-size", "Batch size"),
    ("code-waits", "Where the code waited"),
    ("cpu-bottlenecks", "CPU bottlenecks"),
    ("io-bottlenecks", "I/O bottlenecks"),
    ("gpu-memory", "GPU memory"),
    ("nodes", "Nodes"),
    ("devices", "Devices over time"),
    ("close-ups", "Close-ups"),
    ("profiled-time", "Profiled time"),
    ("idle-time", "Idle time by cause"),
    ("communication", "Communication"),
    ("profiled-steps", "Profiled steps"),
    ("kernels", "Kernels and operators"),
    ("allocated-memory", "Allocated GPU memory"),
    ("profiles", "Python profiles"),
    ("power", "Power, temperature, and clocks"),
    ("cost", "Cost and size"),
    ("rules", "Rules"),
    ("quality", "Method and data quality"),
    ("identifiers", "Identifying information"),
)
#: The analysis of a section that does not have the name of the anchor (see ``pipeline``).
ANALYSES = {
    "code-waits": "code_lines",
    "trees": "learning",
    "cpu-bottlenecks": "bottlenecks",
    "io-bottlenecks": "bottlenecks",
}
#: Sections that end the page whatever was found.
LAST = ("rules", "quality", "identifiers")
#: Sections on traces of PyTorch's profiler; a page without such traces does not have them.
OF_CAPTURES = frozenset(
    {"profiled-time", "idle-time", "communication", "profiled-steps", "kernels", "allocated-memory"}
)
#: Anchors of the page.
ANCHORS = frozenset({"verdict", "findings", *(anchor for anchor, _ in SECTIONS)})


def _stopped(report: Report, anchor: str) -> str:
    """The error of the analysis of a section; empty if it did not fail."""
    analysis = ANALYSES.get(anchor, anchor.replace("-", "_"))
    failed = (
        r for r in report.quality.remarks if r.code == "analysis.failed" and r.fields["analysis"] == analysis
    )
    return next((f"{r.reason[:1].upper()}{r.reason[1:]}." for r in failed), "")


#: Decorates the sections of a report.
section = sections_of(SECTIONS, _stopped)


def not_recorded(what: str, *, in_results: bool) -> Empty:
    """A section without content; ``what`` is missing in SageMaker Debugger's results, or in all of the job's records."""
    return Empty(
        f"SageMaker Debugger's results hold no {what}." if in_results else f"No {what} was recorded."
    )


def why_not_evaluated(report: Report, rule: str) -> str:
    """``rule`` was not selected, or lacks data; empty if it was evaluated."""
    card = report.card(rule)
    if card is None:
        return f"`{rule}` was not selected."
    return "" if card.was_evaluated else f"`{rule}` was not evaluated: {card.reason}."


def zone(report: Report) -> str:
    """Time zone, for the head of a column of times."""
    return "UTC" if formats.dated(report.job.end_us) else "from the start"


def has_edges(report: Report) -> bool:
    """True if start-up or wind-down differ from the work, which the verdict and the cards are about."""
    return len(report.phases.phases) > 1


def has_time_lines(report: Report) -> bool:
    """True if there are values to draw over time."""
    return covers_time(report) and any(v is not None for line in report.time_lines for v in line.mean)


def covers_time(report: Report) -> bool:
    """True if the records cover a time; sensors of one snapshot differ by microseconds."""
    job = report.job
    if report.of_debugger:
        return job.end_us > job.start_us
    return job.end_us > job.start_us and (job.steps > 0 or any(node.interval_s for node in job.nodes))
