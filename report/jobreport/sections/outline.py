"""What the page holds, in order: sections keep their numbers, figures and tables are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport.document import Origin

if TYPE_CHECKING:
    from jobreport.document import Report

#: Anchor and title of every numbered section, in the order of the page.
SECTIONS = (
    ("summary", "Training job summary"),
    ("utilisation", "Resource utilisation"),
    ("framework", "Framework time"),
    ("rules", "Rules"),
    ("gpu-use", "GPU use"),
    ("nodes", "Nodes"),
    ("quality", "Method and data quality"),
)
#: Anchors that a link may lead to.
ANCHORS = frozenset({"verdict", "findings", *(anchor for anchor, _ in SECTIONS)})


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A section's place in the page."""

    anchor: str
    number: int
    title: str


def heading(anchor: str) -> Heading:
    """The heading of a section, by its anchor."""
    for number, (name, title) in enumerate(SECTIONS, start=1):
        if name == anchor:
            return Heading(anchor=anchor, number=number, title=title)
    raise KeyError(anchor)


def figure_number(report: Report, name: str) -> int:
    """The number of a figure among those that this report has."""
    return _figures(report).index(name) + 1


def table_number(report: Report, name: str) -> int:
    """The number of a table among those that this report has."""
    return _tables(report).index(name) + 1


def _figures(report: Report) -> list[str]:
    drawn = {
        "phases": covers_time(report),
        "gpu-use": bool(report.boxes),
        "nodes": has_time_lines(report),
    }
    return [name for name, there in drawn.items() if there]


def _tables(report: Report) -> list[str]:
    shown = {
        "utilisation": bool(report.usage),
        **{f"framework-{name}": there for name, there in _framework_tables(report).items()},
        "gpu-use": bool(report.boxes),
        "sources": True,
        "gaps": bool(report.course.gaps),
        "parameters": any(card.parameters for card in report.rules),
        "definitions": True,
    }
    return [name for name, there in shown.items() if there]


def _framework_tables(report: Report) -> dict[str, bool]:
    time = report.framework
    devices = {table.device for table in time.operators} if time else set()
    return {
        "steps": bool(time and time.steps),
        "general": bool(time and time.general),
        "GPU": "GPU" in devices,
        "CPU": "CPU" in devices,
        "horovod": bool(time and time.horovod),
    }


def has_time_lines(report: Report) -> bool:
    """Whether there is anything to draw over time: values, and a time that they cover."""
    return covers_time(report) and any(v is not None for line in report.timelines for v in line.mean)


def covers_time(report: Report) -> bool:
    """Whether the records cover a time; the sensors of a single snapshot lie microseconds apart."""
    job = report.job
    if report.origin is Origin.VENDOR:
        return job.end_us > job.start_us
    return job.end_us > job.start_us and (job.steps > 0 or any(node.interval_s for node in job.nodes))
