"""The phases of the job: a table, and a strip with the sampling pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats
from jobreport.page.figures.goodput import FILLS, OTHER_FILL, start_up_bar
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.over_columns import merged
from jobreport.page.figures.scales import time_ticks
from jobreport.page.figures.summary import Stretch, stretch
from jobreport.page.kit import Drawing, Empty, Figure, Html, Table
from jobreport.page.kit.table import swatch
from jobreport.page.sections.outline import covers_time, section, zone
from jobreport.page.sections.parts.recordings import interruptions
from jobrules.model import SECOND_US, Severity
from jobrules.model.time_parts import named
from jobrules.text import times
from jobrules.verdict.edges import START_UP
from jobrules.verdict.starting import OTHER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.model import Finding
    from jobrules.verdict.phases import Missing

#: Rows of the table of kinds of nodes.
MAX_KINDS = 8
#: Nodes whose sampling pauses have a row of their own in the table.
MAX_PAUSE_ROWS = 4
#: In a shorter job, times have tenths of a second.
SHORT_US = 10 * SECOND_US
_HINT = Markup(
    '<p class="hint" data-live hidden>Hover over a figure for its values; press its key to hide them.</p>'
)
NO_PHASES = "No record covers the whole job, so there are no phases."
#: Which records the phases come from.
BASES = {
    "steps": "Phases come from the first and the last step.",
    "gpu": "Phases come from GPU samples: the work starts and ends with lasting GPU use; a short peak before it is start-up.",
    "both": "Phases come from GPU samples and steps: the work starts and ends with lasting GPU use or a step; a short peak "
    "before it is start-up.",
}
BASES_OF_RESULTS = {
    "steps": "Phases come from the first and last step in SageMaker Debugger's results; the training loop ends at the start "
    "of the last step.",
    "gpu": "GPU work is the longest time without an entry of SageMaker Debugger's bottleneck rules.",
}
NO_BASIS = "Start-up and wind-down are unknown: neither steps nor lasting GPU use were recorded."
#: Findings on start-up.
_STARTS = frozenset({"max-initialization-time", START_UP, "late-first-step"})


class Lane(Struct, frozen=True, kw_only=True):
    """A node's sampling pauses in the strip of phases."""

    top: float
    height: float
    gaps: tuple[Stretch, ...]


@section
def summary(report: Report) -> Content:
    """When the job ran, and in which phases."""
    kinds = _kinds(report)
    if not covers_time(report) and not kinds:
        return Empty(NO_PHASES)
    return [*(_phases(report) if covers_time(report) else [NO_PHASES]), *kinds]


def _phases(report: Report) -> list[Block]:
    """Sentences, and the phases as a table and a strip."""
    lanes = _lanes(report)
    long_start = _long_start(report)
    if any(one.severity is not Severity.INFO for one in _start_findings(report)):
        long_start = Markup("<b>{}</b>").format(long_start) if long_start else ""
    sentences = [" ".join(filter(None, [_basis(report), interruptions(report)])), long_start]
    # The strip of a single phase shows nothing but pauses.
    if len(report.phases.phases) < 2 and not lanes:
        return [*sentences, replace(_table(report), caption="Phases of the job"), *_start_up(report)]
    caption = _caption(report)
    figure = Figure(
        name="phases",
        title="Phases of the job",
        finding=caption,
        aid="Hatched: not measured, one lane per node." if lanes else "",
        drawings=[_table(report), Html.of("strip", caption=caption, **_strip(report, lanes))],
    )
    return [*sentences, figure, Html(_HINT), *_start_up(report)]


def _start_up(report: Report) -> list[Block]:
    """What the rank whose first step began last did until then."""
    found = report.startup_parts or None
    if found is None:
        return []
    length_us = found.end_us - found.begin_us
    largest = found.largest
    fills = [
        OTHER_FILL if part.name == OTHER else FILLS[i % len(FILLS)] for i, part in enumerate(found.parts)
    ]
    return [
        Figure(
            name="startup",
            title="Parts of the start-up",
            finding=f"Start-up of rank {formats.escape_name(found.rank, 24)} took {formats.duration(length_us)}: largest "
            f"part {largest.name}, {formats.percent(100 * largest.us / length_us)}.",
            aid="From the start of the job to the end of the first step.",
            key=[(fill, part.name, "") for fill, part in zip(fills, found.parts, strict=True)],
            drawings=[Drawing(figure=start_up_bar(found, fills), style=rows_class(1))],
            tables=[
                Table(
                    label="Parts of the start-up",
                    heads=(":Part", "Time (s)", "Share (%)"),
                    rows=[
                        (
                            swatch(fill, part.name),
                            formats.number(part.us / SECOND_US),
                            formats.number(100 * part.us / length_us),
                        )
                        for fill, part in zip(fills, found.parts, strict=True)
                    ],
                )
            ],
        )
    ]


def _strip(report: Report, lanes: Sequence[Lane]) -> dict[str, Any]:
    """Variables of ``strip.html.j2``: phases, pauses, the first work, and times."""
    axis = (report.job.start_us, report.job.end_us)
    with_day = formats.spans_days(*axis)
    first_us = report.phases.first_work_us
    # What the labels of both ends take of the strip's width.
    room = 0.2 if with_day else 0.09
    return {
        "phases": [
            (named(phase.key).fill, stretch(phase.start_us, phase.end_us, axis))
            for phase in report.phases.phases
        ],
        "lanes": lanes,
        "first_work": None if first_us is None else stretch(first_us, first_us, axis).at,
        "first_time": "" if first_us is None else _time(report, first_us),
        "ticks": [tick for tick in time_ticks(*axis) if room < tick.at < 1 - room - 0.03],
        "ends": (
            _time(report, axis[0]),
            formats.moment(axis[1], with_day=with_day, tenths=_has_tenths(report)),
        ),
        "with_day": with_day,
    }


def _has_tenths(report: Report) -> bool:
    return report.job.end_us - report.job.start_us < SHORT_US


def _time(report: Report, us: int) -> str:
    return formats.column_time(us, with_day=report.job.spans_days, tenths=_has_tenths(report))


def _table(report: Report) -> Table:
    """The phases, the whole job, and the pauses within."""
    job, phases = report.job, report.phases

    def row(name: str, start_us: int, end_us: int, length: str, percent: float) -> tuple[str, ...]:
        return name, _time(report, start_us), _time(report, end_us), length, formats.percent(percent)

    def pause(name: str, found: Missing) -> tuple[str, ...]:
        pauses = f" in {found.count} pauses" if found.count > 1 else ""
        length = f"{formats.duration(found.length_us)}{pauses}"
        return row(swatch("x", name), found.start_us, found.end_us, length, found.percent)

    rows = [
        row(
            swatch(named(one.key).fill, one.label),
            one.start_us,
            one.end_us,
            formats.duration(one.end_us - one.start_us),
            one.percent,
        )
        for one in phases.phases
    ]
    if len(rows) > 1:
        length = formats.duration(job.end_us - job.start_us)
        rows.append(row("Total", job.start_us, job.end_us, length, 100.0))
    if phases.interrupted:
        rows.append(pause("of which no node was measured", phases.interrupted))
    for one in phases.missing[:MAX_PAUSE_ROWS]:
        node = f", {formats.escape_name(one.node, 32)}" if len(job.nodes) > 1 else ""
        rows.append(pause(f"of which not measured{node}", one))
    if more := len(phases.missing[MAX_PAUSE_ROWS:]):
        rows.append((swatch("x", f"and on {formats.count(more, 'more node')}"), "", "", "", ""))
    time_zone = zone(report)
    return Table(
        label="Phases of the job",
        heads=(":Phase", f"Start ({time_zone})", f"End ({time_zone})", "Duration", "Share"),
        rows=rows,
    )


def _basis(report: Report) -> str:
    """The records that the phases come from."""
    basis = report.phases.basis
    # Steps that only the results hold have no times of their own.
    of_results = report.has_debugger and report.steps is None if basis == "steps" else report.gpus_of_debugger
    bases = BASES | BASES_OF_RESULTS if of_results else BASES
    return bases.get(basis, NO_BASIS)


def _caption(report: Report) -> str:
    """The share of the work, and sampling pauses."""
    loop = next((phase for phase in report.phases.phases if phase.key == "loop"), None)
    found = (
        f"The {report.phases.middle} took {formats.percent(loop.percent)} of the job."
        if loop
        else "The job is one phase."
    )
    pauses = report.phases.gaps
    if not pauses:
        return found
    longest = formats.duration(max(pause.end_us - pause.start_us for pause in pauses))
    return f"{found} Sampling paused {times(len(pauses))}, for at most {longest}."


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
    """Means during a start-up that took longer than the work after it; empty otherwise."""
    lengths = {phase.key: phase.end_us - phase.start_us for phase in report.phases.phases}
    before, loop = lengths.get("before", 0), lengths.get("loop", 0)
    if not loop or before <= loop:
        return ""
    found = f"Start-up took longer than the {report.phases.middle}: {formats.duration(before)} against {formats.duration(loop)}."
    means = _start_up_means(report)
    if not means:
        return found
    return f"{found} Means per node during start-up: {', '.join(means)}."


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


def _kinds(report: Report) -> list[Block]:
    """Nodes with equal GPUs, cores, and sampling interval in one row, the most frequent kind first; if they differ."""
    found: dict[tuple[int, int, float | None], list[str]] = {}
    for node in report.job.nodes:
        found.setdefault((node.gpus, node.cores, node.interval_s), []).append(node.name)
    if len(found) < 2:
        return []
    kinds = sorted(found.items(), key=lambda one: -len(one[1]))
    table = Table(
        label="Nodes of the job",
        caption="The nodes differ in devices or sampling interval."
        + formats.not_shown(len(kinds) - MAX_KINDS, "kind of node", "kinds of nodes"),
        style="words",
        heads=(":Nodes", "Count", "GPUs", "Cores", "Sampling interval"),
        rows=[
            (
                formats.join_names([formats.escape_name(name, 40) for name in names]),
                str(len(names)),
                str(gpus),
                str(cores),
                "–" if interval is None else formats.duration(interval * SECOND_US),
            )
            for (gpus, cores, interval), names in kinds[:MAX_KINDS]
        ],
    )
    return [table]
