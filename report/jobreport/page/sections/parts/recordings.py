"""Notes of record-job on the recording: its cost, gaps, limits of containers, shared GPUs."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit import Sentences, Subsection, Table, code
from jobreport.page.kit.marks import status
from jobreport.sentences import end_of, recordings_of
from jobrules.model import SECOND_US
from jobrules.text import capitalized, clock, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.document import Report
    from jobreport.recordings import Logged, Recording

#: Overhead that is a warning, in percent; and in seconds, because a short recording costs most at its start.
MAX_OVERHEAD, MIN_OVERHEAD_S = 1.0, 1.0
#: Rows of each table, and of a table that is not folded away.
MAX_ROWS, MAX_OPEN_ROWS = 50, 8
#: Labels in a sentence, and changes of what a rank wrote.
MAX_LABELS, MAX_CHANGES = 20, 4
#: Rows of what was run.
MAX_FACTS = 250


def recorded(report: Report) -> Subsection | None:
    """None for a job that record-job did not record."""
    found = recordings_of(report)
    if not found:
        return None
    warnings = [
        Markup("{} {}").format(status("warn", "Warning"), code(warning))
        for warning in _sentences(found, lambda one: _warnings(one, report))
    ]
    notes = map(code, [*_sentences(found, _notes), *_labels(found)])
    return Subsection(
        title="Recording",
        blocks=[
            Sentences([*warnings, *notes]),
            _nodes(found, report),
            _what_ran(found),
            _runs(found),
            _left_out(found),
        ],
    )


def interruptions(report: Report) -> str:
    """The number of restarts, and the longest wait before one, of the node with most; empty if there is none."""
    runs = max((one.runs for one in recordings_of(report)), key=len, default=())
    if len(runs) < 2:
        return ""
    ends = [(run.end_us, following.start_us) for run, following in pairwise(runs)]
    # A clock that was set back in between shows a start before the end.
    waits_us = [start_us - end_us for end_us, start_us in ends if end_us and start_us >= end_us]
    after = f", after at most {formats.duration(max(waits_us))}" if waits_us else ""
    return f"The job was started again {times(len(runs) - 1)}{after}."


def pause_reason(report: Report, node: str, start_us: int, end_us: int) -> str:
    """Why there are no samples for a time, as far as the recorder noted it; empty if it did not."""
    runs = next((one.runs for one in recordings_of(report) if one.node == node), ())
    before = [run for run in runs if run.start_us <= start_us]
    if not before:
        return ""
    run, following = before[-1], runs[len(before) :]
    since_us, until_us = run.dropped_since_us, run.dropped_until_us
    if since_us and since_us < end_us and not (until_us and until_us < start_us):
        return formats.escape_name(run.dropped_reason, 120)
    if run.sampler_ended_by:
        return f"the sampler {_sampler_end(run.sampler_ended_by)}"
    return end_of(run, is_last=False) if following and following[0].start_us <= end_us else ""


def _sampler_end(ended_by: str) -> str:
    kind, _, number = ended_by.partition(":")
    return f"was killed by signal {number}" if kind == "signal" else "ended"


def _sentences(found: Sequence[Recording], of: Callable[[Recording], Iterator[str]]) -> list[str]:
    """The clauses as sentences, one for all nodes of which it is true."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for one in found:
        for clause in of(one):
            nodes[clause].append(formats.escape_name(one.node, 40))
    sentences = [
        f"{capitalized(clause) if len(found) == 1 else f'{formats.join_names(names)}: {clause}'}."
        for clause, names in nodes.items()
    ]
    left = formats.not_shown(len(sentences) - MAX_ROWS, "sentence").strip()
    return [one for one in (*sentences[:MAX_ROWS], left) if one]


def _warnings(one: Recording, report: Report) -> Iterator[str]:
    sampler, hooks = _overhead(one, report)
    if (sampler or 0.0) > MAX_OVERHEAD and one.sampler_s > MIN_OVERHEAD_S:
        yield f"sampling took more than {MAX_OVERHEAD:g}% of a core; a longer ``--interval`` takes less"
    if (hooks or 0.0) > MAX_OVERHEAD and (one.hook_s or 0.0) > MIN_OVERHEAD_S:
        yield f"recording steps took more than {MAX_OVERHEAD:g}% of the time of the training processes"
    yield from _less_written(one)
    if one.shared_gpus:
        gpus = [f"{formats.escape_name(gpu.device, 24)} ({gpu.processes})" for gpu in one.shared_gpus]
        yield (
            f"processes of others computed on {formats.join_names(gpus)}, "
            "so utilization, memory, and power are not of this job alone"
        )
    yield from _dropped(one)
    if one.clock_steps:
        yield f"the clock was set {formats.count(one.clock_steps, 'time')} during the recording"
    if one.runs[-1].ended_by == "parent gone":
        yield "the recorder was killed, so samples may end before the job"
    for end in dict.fromkeys(run.sampler_ended_by for run in one.runs if run.sampler_ended_by):
        first = next(run for run in one.runs if run.sampler_ended_by == end)
        yield f"the sampler {_sampler_end(end)} in the run from {clock(first.start_us)}, so samples end before the job"


def _less_written(one: Recording) -> Iterator[str]:
    changes: defaultdict[str, list[str]] = defaultdict(list)
    for change in one.less_written:
        changes[change.rank].append(f"{formats.escape_name(change.written, 60)} from {clock(change.at_us)}")
    for rank, written in changes.items():
        left = len(written) - MAX_CHANGES
        more = [formats.count(left, "more change")] if left > 0 else []
        yield (
            f"writing took too much time, so rank {formats.escape_name(rank, 24)} wrote "
            f"{'; '.join([*written[:MAX_CHANGES], *more])}"
        )


def _dropped(one: Recording) -> Iterator[str]:
    """Samples and events that were dropped, and the reasons; the table of runs has the numbers of each."""
    samples, events = (
        sum(getattr(run, f"dropped_{what}") for run in one.runs) for what in ("samples", "events")
    )
    if not samples + events:
        return
    since = [run.dropped_since_us for run in one.runs if run.dropped_since_us]
    begin = f", the first at {clock(min(since))}" if since else ""
    reasons = dict.fromkeys(
        formats.escape_name(run.dropped_reason, 120) for run in one.runs if run.dropped_reason
    )
    yield (
        f"dropped: {formats.count(samples, 'sample')} and {formats.count(events, 'event')}{begin} "
        f"({'; '.join(reasons) or 'reason not recorded'})"
    )


def _notes(one: Recording) -> Iterator[str]:
    usable = one.affinity or one.cores or 0
    if one.core_limit is not None and one.core_limit < usable:
        yield (
            f"the container's CPU limit allows {one.core_limit:g} of {formats.count(usable, 'core')}. "
            "CPU utilization is the share of this limit in use, or that of the machine's busiest cores if it is higher"
        )
    if one.memory_limit is not None:
        yield "host memory is that of the container"
    if (one.core_limit is not None or one.memory_limit is not None) and not one.container_pressure:
        yield "pressure is that of the whole machine, not of the container"
    if one.gpu_reason:
        yield f"no GPU was sampled: {formats.escape_name(one.gpu_reason, 200)}"
    if one.gpu_interval_s:
        gpus = "The GPU was" if sum(gpu.count for gpu in one.gpus) == 1 else "GPUs were"
        yield f"{gpus} sampled every {formats.seconds(one.gpu_interval_s)}, because the driver is slow"
    elif one.gpus and one.interval_s < 1:
        yield (
            "the driver measures GPU utilization over up to a second, so neighboring samples at "
            f"{formats.seconds(one.interval_s)} are not independent"
        )
    if one.no_steps:
        yield f"``--steps auto`` recorded no steps: {formats.escape_name(one.no_steps, 200)}"
    for part in one.parts:
        if part.off:
            name, reason = formats.escape_name(part.name, 80), formats.escape_name(part.off, 200)
            yield f"{name} could not be recorded: {reason}"
    if one.exceptions:
        raised = [
            f"{formats.escape_name(error.type, 60)}{f' on rank {formats.escape_name(error.rank, 24)}' * bool(error.rank)}"
            f" at {clock(error.at_us)}"
            for error in one.exceptions[:MAX_CHANGES]
        ]
        yield f"exceptions that nobody caught, the first ones: {'; '.join(raised)}"
    if one.other_threads:
        yield f"steps of optimizers in other threads are not counted: {formats.number(one.other_threads, 0)}"
    if one.other_lane_events:
        yield f"events of more phases than the recorder names: {formats.number(one.other_lane_events, 0)}"


def _labels(found: Sequence[Recording]) -> list[str]:
    labels = dict.fromkeys(label for one in found for label in one.labels)
    words = [
        f"{formats.escape_name(label.key, 64)}={formats.escape_name(label.value, 80)}"
        for label in [*labels][:MAX_LABELS]
    ]
    return [f"Labels: {', '.join(words)}."] if words else []


def _overhead(one: Recording, report: Report) -> tuple[float | None, float | None]:
    """Percent of a core that the sampler took, and of the training processes' time that hooks took.

    None for both if the run ended before it started: a clock was set.
    """
    run = one.runs[-1]
    seconds = ((run.end_us or report.job.end_us) - run.start_us) / SECOND_US
    if seconds <= 0:
        return None, None
    hooks = None if one.hook_s is None else 100 * one.hook_s / seconds / max(1, one.hooked_processes)
    return 100 * one.sampler_s / seconds, hooks


def _allowed_cores(one: Recording) -> float | None:
    known = [cores for cores in (one.cores, one.affinity, one.core_limit) if cores is not None]
    return min(known, default=None)


def _of_all(allowed: float | None, every: float | None, words: Callable[[float], str]) -> str:
    """``4 of 96``."""
    if allowed is None:
        return "–"
    return words(allowed) if every is None or allowed >= every else f"{words(allowed)} of {words(every)}"


def _gpus(one: Recording) -> str:
    models = [f"{gpu.count} × {formats.escape_name(gpu.name, 40) or 'GPU'}" for gpu in one.gpus]
    return formats.join_names(models, 2) or "none"


def _nodes(found: Sequence[Recording], report: Report) -> Table:
    rows = []
    for one in found[:MAX_ROWS]:
        sampler, hooks = _overhead(one, report)
        memory = one.memory if one.memory_limit is None else one.memory_limit
        rows.append(
            (
                formats.escape_name(one.node, 40),
                end_of(one.runs[-1]),
                f"{one.interval_s:g}",
                _of_all(_allowed_cores(one), one.cores, "{:g}".format),
                _of_all(memory, one.memory, formats.size),
                _gpus(one),
                formats.known(sampler, 2),
                formats.known(hooks, 2),
                formats.number(one.tick_p99_ms),
                formats.number(one.late_ticks, 0),
            )
        )
    return Table(
        label="Recording of each node",
        caption=f"Recording by {formats.escape_name(found[0].recorder, 40)}."
        + formats.not_shown(len(found) - MAX_ROWS, "node"),
        aid="Sampler: of one core. Hooks: of the time of the training processes. "
        "Tick: reading of all sensors, 99th percentile.",
        heads=(
            *(":Node", ":End of the job", "Interval (s)", "Cores", "Memory", ":GPUs", "Sampler (%)"),
            *("Hooks (%)", "Tick (ms)", "Late ticks"),
        ),
        rows=rows,
        style="heads",
    )


def _what_ran(found: Sequence[Recording]) -> Table:
    """System, versions, commit, and settings; values of nodes that do not agree one after the other."""
    values: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in found:
        state = {True: ", files changed", False: "", None: ", changes not known"}[one.is_changed]
        known = [
            ("Git commit", one.commit and f"{one.commit}{state}"),
            ("Training ranks", str(one.world_size or "")),
            *((version.what, version.number) for version in one.versions),
            ("Operating system", one.system),
            ("CPU", one.cpu_model),
            *((f"config {label.key}", label.value) for label in one.config),
        ]
        for what, text in known:
            if text:
                values[formats.escape_name(what, 100)][formats.escape_name(text, 200)] = None
        for value in one.logged:
            values[formats.escape_name(f"logged {value.name} ({value.mode})", 100)][_logged(value)] = None
    rows = [(what, "; ".join([*every][:MAX_LABELS])) for what, every in values.items()]
    return Table(
        label="What was run",
        fold="what was run",
        caption=f"As record-job and the script noted it.{formats.not_shown(len(rows) - MAX_FACTS, 'fact')}",
        heads=(":Fact", ":Value"),
        rows=rows[:MAX_FACTS],
    )


def _logged(one: Logged) -> str:
    last = "–" if one.value is None else f"{one.value:.6g}"
    lost = f", {formats.number(one.not_finite, 0)} not finite" if one.not_finite else ""
    return f"{formats.count(one.values, 'value')}{lost}; last: {last} at step {one.step:,}"


def _runs(found: Sequence[Recording]) -> Table:
    """Each start of a job that was started again into the same folder."""
    every = [(one.node, run, run is one.runs[-1]) for one in found if len(one.runs) > 1 for run in one.runs]
    ends = [time for _, run, _ in every for time in (run.start_us, run.end_us) if time]
    with_day = bool(ends) and formats.spans_days(min(ends), max(ends))
    return Table(
        label="Runs",
        caption="Runs of the job into the same folder."
        + formats.not_shown(len(every) - MAX_ROWS, "earlier run"),
        heads=(":Node", "Start (UTC)", "End (UTC)", ":End of the job", "Dropped samples", "Dropped events"),
        rows=[
            (
                formats.escape_name(node, 40),
                formats.column_time(run.start_us, with_day=with_day),
                formats.column_time(run.end_us, with_day=with_day) if run.end_us else "–",
                end_of(run, is_last=is_last),
                formats.number(run.dropped_samples, 0),
                formats.number(run.dropped_events, 0),
            )
            for node, run, is_last in every[-MAX_ROWS:]
        ],
    )


def _left_out(found: Sequence[Recording]) -> Table:
    every = [(one.node, left) for one in found for left in one.left_out]
    return Table(
        label="Failed readings",
        fold="failed readings" if len(every) > MAX_OPEN_ROWS else "",
        caption=f"Sensors that could not be read.{formats.not_shown(len(every) - MAX_ROWS, 'sensor')}",
        heads=(":Node", ":Sensor", ":Reason", "Readings"),
        rows=[
            (
                formats.escape_name(node, 40),
                formats.escape_name(one.sensor, 60),
                formats.escape_name(one.reason, 120),
                formats.number(one.count, 0),
            )
            for node, one in every[:MAX_ROWS]
        ],
    )
