"""Method and data quality: definitions, parameters, what was read and what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec.structs import replace

from jobreport import formats
from jobreport.page.kit import Note, Sentences, Subsection, Table, code
from jobreport.page.kit.marks import unbroken
from jobreport.page.kit.table import as_code
from jobreport.page.sections.outline import covers_time, section, zone
from jobreport.page.sections.parts.recordings import pause_reason, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobreport.remarks import Remark

#: Rows of the table of sampling pauses; a job that pauses all day does not make the page longer.
MAX_PAUSES = 50
#: Rows of the table of logs.
MAX_LOGS = 50
#: Lines of remarks in a row of the table.
MAX_REMARKS = 50
NO_PAUSE = f"No sampling pause (over 60{formats.NBSP}s and over 10 sampling intervals)."
PROFILED_STEPS = (
    "Operators, data loading, and Python code that were recorded for some steps describe only these steps."
)


@section
def quality(report: Report) -> Content:
    """Input files and remarks, logs, recordings, sampling pauses, rule parameters, terms, and the command."""
    time_zone, is_sampled = zone(report), covers_time(report) and not report.of_debugger
    changed, default = (_parameters(report, changed=changed) for changed in (True, False))
    return [
        _input_files(report),
        _logs(report, time_zone),
        _pauses(report, time_zone) or (Note(NO_PAUSE) if is_sampled else None),
        changed or ("All rule parameters have their default values." if default else None),
        replace(default, fold=f"{'other' if changed else 'all'} rule parameters", caption=""),
        recorded(report),
        Subsection(title="Profiler settings", blocks=[Sentences(report.job.recorded), Note(PROFILED_STEPS)])
        if report.job.recorded
        else None,
        Table(label="Terms", fold="terms", style="words", heads=(":Term", ":Meaning"), rows=_terms(report)),
        Subsection(
            title="Reproduce this report",
            blocks=[
                Markup("<code>{}</code>").format(unbroken(formats.escape_name(report.command, 1000))),
                Note(f"jobreport {report.version}, report.json schema {report.schema_version}."),
            ],
        ),
    ]


def _input_files(report: Report) -> Table:
    """Files and rows read of each source, and remarks on the others."""
    quality = report.quality
    rows = [
        (one.source, formats.number(one.files, 0), formats.number(one.rows, 0), _lines(one.remarks))
        for one in quality.sources
    ]
    if quality.remarks:
        rows.append(("Other files", "–", "–", _lines(quality.remarks)))
    return Table(
        label="Input files",
        caption="Input files.",
        heads=(":Source", "Files", "Rows used", "::Skipped, dropped, or corrected"),
        rows=rows or [("None", "0", "0", "no file was read")],
    )


def _lines(remarks: Sequence[Remark]) -> Markup:
    """A line for each remark."""
    lines = [_worded(remark) for remark in remarks[:MAX_REMARKS]] or ["none"]
    left = formats.not_shown(len(remarks) - MAX_REMARKS, "remark").strip()
    return Markup("<br>").join(filter(None, [*lines, left]))


def _logs(report: Report, time_zone: str) -> Table:
    """Logs and their machines; empty for a single log."""
    logs = [log for source in report.quality.sources for log in source.logs]
    shown = logs[:MAX_LOGS] if len(logs) > 1 else []
    return Table(
        label="Logs",
        caption=f"Logs and their nodes.{formats.not_shown(len(logs) - MAX_LOGS, 'log')}",
        heads=(":File", ":Node", "GPUs", f"First row ({time_zone})", f"Last row ({time_zone})", "Rows"),
        rows=[
            (
                formats.escape_name(log.file, 80),
                formats.escape_name(log.node, 40),
                formats.number(log.gpus, 0),
                formats.column_time(log.first_us, with_day=True),
                formats.column_time(log.last_us, with_day=True),
                formats.number(log.rows, 0),
            )
            for log in shown
        ],
    )


def _pauses(report: Report, time_zone: str) -> Table:
    """The longest sampling pauses, in order of time."""
    with_day = report.job.spans_days
    longest = sorted(report.phases.gaps, key=lambda gap: gap.start_us - gap.end_us)[:MAX_PAUSES]
    reasons = {gap: pause_reason(report, gap.node, gap.start_us, gap.end_us) for gap in longest}
    is_known = any(reasons.values())
    return Table(
        label="Sampling pauses",
        caption="Sampling pauses." + formats.not_shown(len(report.phases.gaps) - MAX_PAUSES, "shorter pause"),
        heads=(":Node", f"From ({time_zone})", f"To ({time_zone})", "Length", *[":Reason"] * is_known),
        rows=[
            (
                formats.escape_name(gap.node, 40),
                formats.column_time(gap.start_us, with_day=with_day),
                formats.column_time(gap.end_us, with_day=with_day),
                formats.duration(gap.end_us - gap.start_us),
                *[reasons[gap] or "not recorded"] * is_known,
            )
            for gap in sorted(longest, key=lambda gap: (gap.start_us, gap.node))
        ],
    )


def _parameters(report: Report, *, changed: bool) -> Table:
    """The parameters of each rule that are, or are not, at their defaults."""
    rows: list[str | tuple[str, ...]] = []
    for card in report.rules:
        held = [one for one in card.parameters if (one.value != one.default) is changed]
        rows += [as_code(card.name)] if held else []
        rows += [
            (
                as_code(one.name),
                formats.plain_number(one.value),
                one.unit or "–",
                *([formats.plain_number(one.default)] if changed else []),
                code(one.help),
            )
            for one in held
        ]
    return Table(
        label="Changed rule parameters" if changed else "Rule parameters with their default values",
        caption="Changed rule parameters.",
        heads=(":Parameter", "Value", ":Unit", *(["Default"] if changed else []), "::Meaning"),
        rows=rows,
    )


def _worded(remark: Remark) -> str:
    """``12 lines skipped: not complete JSON. First: a/b.json:7``."""
    unit = remark.unit[:-1] if remark.count == 1 and remark.unit.endswith("s") else remark.unit
    where = f". First: {formats.escape_name(remark.place, 120)}" if remark.place else ""
    return f"{formats.number(remark.count, 0)}{formats.NBSP}{unit} {remark.action}: {remark.reason}{where}"


def _terms(report: Report) -> list[tuple[str, str]]:
    if report.of_debugger:
        return [
            (
                "SageMaker Debugger's numbers",
                "Copied from SageMaker Debugger's rule results, not computed from samples.",
            ),
            *_used_by_histograms(report),
            _P95,
            _WHISKERS,
        ]
    return [
        *_terms_of_time(report),
        *(TERMS_OF_CAPTURES if report.captures else ()),
        (
            "Not measured",
            f"Time without samples for over 60{formats.NBSP}s and over 10 sampling intervals. "
            "Shares of GPU and core time include it.",
        ),
        ("Snapshot", "All samples that a node took at one moment."),
        _P95,
        _WHISKERS,
    ]


def _used_by_histograms(report: Report) -> list[tuple[str, str]]:
    """Definition of used time that comes from histograms."""
    if report.verdict.use is None:
        return []
    return [
        (
            "Used",
            "The mean of LoadBalancing's histograms: a bin of 2% stands for its middle, the first for 0%; samples that "
            "a histogram lacks are above 98% and count as 99.5%.",
        )
    ]


def _terms_of_time(report: Report) -> list[tuple[str, str]]:
    use, job = report.verdict.use, report.job
    if not use:
        return []
    devices = formats.count(use.count, "GPU" if use.device == "GPU" else "core")
    hours = f"{use.amount(use.hours)}{formats.NBSP}{use.units}"
    time = (f"{use.device} time", f"{devices} × {formats.duration(job.end_us - job.start_us)} = {hours}")
    used = "Utilization × time. A sample counts until the next one."
    if use.device != "GPU":
        return [time, ("Used", f"{used} The rest is free.")]
    return [
        time,
        ("Used", f"{used} Utilization says that a kernel ran, not how well it filled the GPU."),
        (
            "Lost",
            "Measured GPU time that was not used. Each moment counts once: for the first cause that applies, "
            "otherwise as unexplained.",
        ),
    ]


#: What the sections on traces of PyTorch's profiler count, and what they assume.
TERMS_OF_CAPTURES = (
    (
        "Profiled time",
        "From the first recorded kernel or copy of the steps to the end of the last one. Without steps: of the whole "
        "trace. What was launched before recording began is not in the trace, so the time before is not judged.",
    ),
    (
        "Computing, exposed",
        "Each moment of a device counts once: computing, otherwise communication, otherwise copies, otherwise idle. "
        "Communication and copies are exposed while nothing is computed.",
    ),
    (
        "Causes of idle time",
        "A gap ends with a kernel. If its launch began before the gap: between queued kernels (up to 10\u00a0µs), launch "
        "latency (to 25\u00a0µs after the call), otherwise device wait. If it began within the gap, the host was late: data "
        "loading, profiler, and memory allocation as recorded; synchronization up to the length of the blocking call "
        "before the gap; otherwise host. The first 50\u00a0µs of the call are launch latency.",
    ),
    (
        "Not explained",
        "Device wait, and kernels without a recorded launch. Above 5% of the profiled time, events are missing and causes "
        "of idle time are not evaluated.",
    ),
    (
        "Own time",
        "Of an operator: its time without the operators it calls; on the device, of kernels that it launched itself. "
        "Of a step: its time without waiting for other ranks.",
    ),
    (
        "Transfer, waiting",
        "The shortest duration of a collective over its ranks is its transfer, the rest of each is waiting, and the rank "
        "with the shortest arrived last. Assumed: all ranks end together, a kernel starts when its rank arrives, and the "
        "last rank does not wait. Clocks of ranks are not compared.",
    ),
    (
        "algbw, busbw",
        "Bandwidth as nccl-tests counts it, from the size and the median transfer: of the collective, and of the links. With "
        "one rank lower bounds, because its transfer includes waiting.",
    ),
    (
        "SM efficiency, occupancy",
        "The profiler's estimates: thread blocks per multiprocessor, at most 1 at a time, over the profiled time; and "
        "achieved occupancy weighted by time.",
    ),
)
_P95 = ("p95", "95% of the values are at or below it; p50 is the median.")
_WHISKERS = ("Whiskers", "Farthest sample within 1.5 box heights.")
