"""Durations of steps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport import formats
from jobreport.formats import NBSP
from jobreport.page.figures import steps as figures
from jobreport.page.kit import Drawing, Figure, Note, Side, Table
from jobreport.page.kit.table import MANY, node_cells, node_heads
from jobreport.page.sections.outline import not_recorded, section, zone
from jobreport.page.sections.parts import throughput
from jobreport.page.sections.parts.rank_phases import phases_of_ranks
from jobreport.page.sections.parts.step_parts import (
    contrast,
    last_steps,
    mode_name,
    outlier_defined,
    rank_name,
    why_no_contrast,
)
from jobreport.page.sections.parts.steps_of_ranks import steps_of_ranks
from jobrules.analyses.steps import NATURAL_ROWS
from jobrules.rules.step_outlier import PATIENCE

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.figures.steps import Unit
    from jobreport.page.kit.section import Content
    from jobrules.analyses.steps import StepMode, StepRow, StepTimes

#: Modes with a sentence of their own.
MAX_MODES = 4


@section
def steps(report: Report) -> Content:
    """A table per rank and mode, and the durations as figures."""
    times = report.steps
    if times is None:
        return not_recorded("single step", in_results=report.has_debugger)
    unit = figures.Unit.of(times)
    with_day = report.job.spans_days
    sentences = [
        _lead(times, unit),
        throughput.in_words(report),
        throughput.of_peak(report),
        _on_device(times, unit),
        _left_out(times),
        _unmarked(times, report),
    ]
    return [
        " ".join(filter(None, sentences)),
        Side(blocks=[_histogram(times, unit), last_steps(times, unit, with_day=with_day)]),
        _time(times, report, unit, with_day=with_day),
        throughput.over_time(report),
        *([phases_of_ranks(report.rank_waits, unit)] if report.rank_waits else []),
        steps_of_ranks(times, unit),
        contrast(times) or Note(why_no_contrast(times)),
        *_durations(times, unit),
    ]


# --- names


def _series_names(times: StepTimes) -> list[str]:
    """``algo-1 rank 0 TRAIN``, as far as series differ."""
    return [
        f"{rank_name(one.node, one.rank, times)} {mode_name(one.mode)}".strip() or "other modes"
        for one in times.histogram.series
    ]


def _unit_name(unit: Unit) -> str:
    return {"s": "seconds", "ms": "milliseconds", "µs": "microseconds"}[unit.name]


def _width(us: int) -> str:
    """A round duration: ``20 ms``, ``1.5 s``, ``2 min``."""
    if us >= 60_000_000:
        return formats.duration(us)
    size, name = next((s, n) for s, n in ((1_000_000, "s"), (1000, "ms"), (1, "µs")) if us >= s)
    return f"{formats.plain_number(us / size)}{NBSP}{name}"


# --- sentences


def _lead(times: StepTimes, unit: Unit) -> str:
    """Quartiles of each mode, the one with most time first, and a slow first step."""
    if times.count == 1:
        return ""
    halves = [
        f"{_span(mode, unit)} ({formats.count(mode.steps, f'{mode_name(mode.mode)}step')})"
        for mode in times.modes[:MAX_MODES]
    ]
    return f"The middle half of steps took {', '.join(halves)}. {_slow_first_step(times, unit)}".strip()


def _on_device(times: StepTimes, unit: Unit) -> str:
    if not (device := times.device):
        return ""
    took = unit.range(device.p25_s * 1e6, device.p75_s * 1e6)
    steps = formats.count(device.steps, "step")
    return f"Measured on the GPU, the middle half of {steps} took {took}."


def _left_out(times: StepTimes) -> str:
    """The steps that are in no number of this section, and why."""
    counts = (times.profiled, "under a profiler"), (times.cut, "recorded in part")
    left_out = [f"{formats.count(n, 'step')} {why}" for n, why in counts if n]
    return f"Not counted, here and in rules: {', '.join(left_out)}." if left_out else ""


def _unmarked(times: StepTimes, report: Report) -> str:
    """A note on steps that may hold evaluation and checkpoints, which the script does not mark."""
    time = report.framework
    if time is None or not time.whole_steps or not times.marked:
        return ""
    if len(times.modes) > 1 or any(one.name == "Checkpoint" for one in time.event_types):
        return ""
    return "The script marks neither evaluation nor checkpoints, so these are parts of steps."


def _span(mode: StepMode, unit: Unit) -> str:
    return unit.range(mode.p25_s * 1e6, mode.p75_s * 1e6)


def _slow_first_step(times: StepTimes, unit: Unit) -> str:
    """The longest first step, if it took more than twice the median."""
    first = max(times.rows, key=lambda row: row.first_s)
    if first.steps == 1 or not first.first_s > 2 * first.median_s > 0:
        return ""
    factor = first.first_s / first.median_s
    return (
        f"The longest first step took {unit.short(first.first_s * 1e6)}, "
        f"{formats.number(factor, 1 if factor < 100 else 0)} times the median of its rank and mode; first steps often compile."
    )


def _table_caption(times: StepTimes, unit: Unit) -> str:
    """The unit, and what an outlier is."""
    return (
        f"Step durations in {_unit_name(unit)}. Outlier: above mean + {times.stddev:g}σ. –: not evaluated "
        f"({PATIENCE} steps or fewer, or mode not selected).{formats.not_shown(times.rows_left, 'row')}"
    )


# --- figures


def _histogram(times: StepTimes, unit: Unit) -> Figure:
    histogram = times.histogram
    names = _series_names(times)
    key = [(f"s{i}", name, f"s{i}") for i, name in enumerate(names, 1)]
    return Figure(
        name="steps-histogram",
        title="Step durations",
        finding=_outliers(times, unit),
        aid=f"Steps per bin of {_width(histogram.width_us)}.",
        key=key if len(names) > 1 else (),
        drawings=[Drawing(figure=figures.histogram(times, unit, names))],
        reading=f"Dashed: mean + {times.stddev:g}σ, of each rank and mode. A bar beyond a break of the axis counts all longer "
        "steps.",
        tables=[_bins(times, unit)],
    )


def _outliers(times: StepTimes, unit: Unit) -> str:
    """The outliers of the main mode."""
    mode = times.modes[0]
    steps = f"of {formats.count(mode.steps, f'{mode_name(mode.mode)}step')}"
    if not mode.evaluated:
        return f"Longer than twice the median: {formats.number(mode.above_two_medians, 0)} {steps}."
    return (
        f"Outliers, longer than mean + {times.stddev:g}σ ({figures.limit_words(mode, unit)}): "
        f"{formats.number(mode.outliers, 0)} {steps}."
    )


def _bins(times: StepTimes, unit: Unit) -> Table:
    """The range of each bin that is not empty, and the steps of each series."""
    histogram = times.histogram
    edges = [unit.text(histogram.start_us + i * histogram.width_us) for i in range(histogram.bins + 1)]
    names = [f"{low} to {high}" for low, high in pairwise(edges)]
    counts = list(zip(*(one.counts for one in histogram.series), strict=True))
    if histogram.beyond:
        names.append(f"{edges[-1]} or more")
        counts.append(tuple(one.beyond for one in histogram.series))
    return Table(
        label="Steps by duration",
        caption="Steps per bin. Empty bins are omitted.",
        fold="steps by duration",
        heads=(f":Duration ({unit.name})", *_series_names(times)),
        rows=[
            (name, *(formats.number(n, 0) for n in row))
            for name, row in zip(names, counts, strict=True)
            if any(row)
        ],
    )


def _time(times: StepTimes, report: Report, unit: Unit, *, with_day: bool) -> Figure:
    timeline = times.timeline
    longest = timeline.peaks[0]
    names = [formats.escape_name(one.mode, 24) or "other modes" for one in timeline.series]
    modes = tuple((figures.MODES[i], name, f"s{i + 1}") for i, name in enumerate(names))
    outlier = (("l", "outlier", ""),) if times.marked else ()
    return Figure(
        name="steps-time",
        title="Step durations over time",
        finding=f"The longest step took {unit.short(longest.lasted_us)} and started at about "
        f"{formats.column_time(longest.start_us, with_day=with_day)}.",
        aid=f"A bar spans the shortest to the longest step started within {_width(timeline.width_us)}.",
        key=(*(modes if len(modes) > 1 or outlier else ()), *outlier),
        drawings=[Drawing(figure=figures.over_time(times, report.phases, unit, names))],
        zoom="the steps",
        reading=f"Orange: the longest outlier of a bar. {outlier_defined(times)} Dotted: start or end of the training loop. The "
        "scale is logarithmic if the longest step is far longer than the median.",
        tables=[_peaks(times, unit, zone(report), with_day=with_day)],
    )


def _peaks(times: StepTimes, unit: Unit, time_zone: str, *, with_day: bool) -> Table:
    peaks = times.timeline.peaks
    bars = formats.number(times.timeline.count, 0)
    return Table(
        label="The bars with the longest steps",
        caption=f"Top {len(peaks)} of {bars} bars; all are in report.json.",
        fold="the bars with the longest steps",
        heads=(f":From ({time_zone})", ":Mode", f"Longest step ({unit.name})"),
        rows=[
            (
                formats.column_time(peak.start_us, with_day=with_day),
                formats.escape_name(peak.mode, 24) or "other modes",
                unit.text(peak.lasted_us),
            )
            for peak in peaks
        ],
    )


# --- the table


def _durations(times: StepTimes, unit: Unit) -> list[Table]:
    """Ranks and modes; those whose rows print equally are one. Of many, the others are folded."""
    several = len({row.node for row in times.rows}) > 1
    # Of many rows, those that are alike are joined by the table.
    is_long = len(times.rows) >= MANY
    equal: dict[tuple[object, ...], list[StepRow]] = {}
    for i, row in enumerate(times.rows):
        equal.setdefault((i * is_long, *_cells(row, unit)), []).append(row)
    rows = [[*_names(rows, times, several=several), *_cells(rows[0], unit)] for rows in equal.values()]
    every = Table(
        label="Step durations by rank and mode",
        caption=_table_caption(times, unit),
        heads=(
            *node_heads(":Rank", ":Mode", several=several),
            *("Steps", "Outliers", "Threshold", "> 2 medians", "Mean", "Median", "σ"),
            *("p95", "p99", "Max", "Min", "First step"),
        ),
        rows=rows,
    )
    if len(rows) <= NATURAL_ROWS or every.shown.every:
        return [every]
    label, fold = "Step durations, more ranks and modes", f"{len(rows) - NATURAL_ROWS} more ranks and modes"
    return [
        replace(every, rows=rows[:NATURAL_ROWS]),
        replace(every, label=label, fold=fold, caption="", rows=rows[NATURAL_ROWS:]),
    ]


def _names(rows: list[StepRow], times: StepTimes, *, several: bool) -> list[str]:
    """Node and rank; of several equal rows ``all 12 ranks, equal``, or their names if other ranks differ."""
    if len(rows) == 1:
        return node_cells(rows[0].node, rows[0].rank, several=several)
    names = [formats.escape_name(f"{row.node}/{row.rank}" if several else row.rank, 24) for row in rows]
    every = len(rows) == sum(row.mode == rows[0].mode for row in times.rows)
    who = formats.every(len(rows), "rank").lower() if every else formats.join_names(names)
    return [f"{who}, equal", *([""] if several else [])]


def _cells(row: StepRow, unit: Unit) -> tuple[str, ...]:
    """Printed cells of a rank and mode after its name."""
    values = (row.mean_s, row.median_s, row.std_s, row.p95_s, row.p99_s, row.max_s, row.min_s, row.first_s)
    return (
        formats.escape_name(row.mode, 24),
        formats.number(row.steps, 0),
        formats.known(row.outliers, 0),
        "–" if row.limit_s is None else unit.text(row.limit_s * 1e6),
        formats.number(row.above_two_medians, 0),
        *(unit.text(value * 1e6) for value in values),
    )
