"""How long steps took."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.formats import NBSP
from jobreport.page.figures import steps as figures
from jobreport.page.kit import Drawing, Empty, Figure, Note, Side, Table
from jobreport.page.kit.table import node_cells, node_heads
from jobreport.page.sections.outline import section, zone
from jobreport.page.sections.parts.step_parts import (
    contrast,
    last_steps,
    marked,
    mode_name,
    rank_name,
    why_no_contrast,
)
from jobrules.analyses.steps import NATURAL_ROWS
from jobrules.rules.step_outlier import PATIENCE, StepOutlier

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
        return Empty(_why_none(report))
    unit = figures.Unit.of(times)
    with_day = report.job.spans_days
    sentences = [_lead(times, unit), _on_device(times, unit), _left_out(times), _unmarked(times, report)]
    return [
        " ".join(filter(None, sentences)),
        Side(blocks=[_histogram(times, unit), last_steps(times, unit, with_day=with_day)]),
        _time(times, report, unit, with_day=with_day),
        contrast(times) or Note(why_no_contrast(times)),
        *_durations(times, unit),
    ]


def _why_none(report: Report) -> str:
    if not report.has_debugger:
        return "No steps were recorded."
    if not report.card(StepOutlier.__name__):
        return "SageMaker Debugger's results hold no single steps."
    return Markup(
        "SageMaker Debugger's results hold no single steps. "
        'For its figures of all steps, see <a href="#r-StepOutlier">StepOutlier</a>.'
    )


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
    """How long steps took, the mode with most time first, and how long a slow first step took."""
    if times.count == 1:
        return ""
    sentences = [
        f"The only {mode_name(mode.mode)}step took {unit.short(mode.median_s * 1e6)}."
        for mode in times.modes[:MAX_MODES]
        if mode.steps == 1
    ]
    halves = [
        f"of the {formats.number(mode.steps, 0)} {mode_name(mode.mode)}steps {_span(mode, unit)}"
        for mode in times.modes[:MAX_MODES]
        if mode.steps > 1
    ]
    if halves:
        halves[0] = halves[0].replace("steps ", "steps took ", 1)
        sentences.insert(0, f"The middle half {', '.join(halves)}.")
    if left := len(times.modes[MAX_MODES:]) + times.modes_left:
        sentences.append(f"The table lists {formats.count(left, 'more mode')}.")
    return " ".join([*sentences, _slow_first_step(times, unit)]).strip()


def _on_device(times: StepTimes, unit: Unit) -> str:
    if not (device := times.device):
        return ""
    took = unit.range(device.p25_s * 1e6, device.p75_s * 1e6)
    steps = formats.count(device.steps, "step")
    return f"Measured on the GPU, the middle half of {steps} took {took}."


def _left_out(times: StepTimes) -> str:
    """How many steps are in no number of this section, and why."""
    why = [
        f"{formats.count(times.profiled, 'step')} under a profiler" if times.profiled else "",
        f"{formats.count(times.cut, 'step')} recorded in part" if times.cut else "",
    ]
    left_out = " and ".join(filter(None, why))
    is_ = "is" if times.profiled + times.cut == 1 else "are"
    return f"{left_out} {is_} left out here and in rules." if left_out else ""


def _unmarked(times: StepTimes, report: Report) -> str:
    """What outliers may be, where the script says neither when it evaluates nor when it saves checkpoints."""
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
    took = unit.short(first.first_s * 1e6)
    of_mode = [row for row in times.rows if row.mode == first.mode]
    equal = sum(unit.short(row.first_s * 1e6) == took for row in of_mode)
    if len(of_mode) == 1:
        where = ""
    elif equal == len(of_mode):
        where = f" on {formats.every(equal, 'rank').lower()}"
    elif equal == 1:
        where = f" on {rank_name(first.node, first.rank, times)}"
    else:
        where = f" on {equal} of {formats.count(len(of_mode), 'rank')}"
    factor = first.first_s / first.median_s
    times_median = formats.number(factor, 1 if factor < 100 else 0)
    step = f"The first {mode_name(first.mode)}step took {took}{where}"
    return f"{step}, {times_median} times the median; first steps often compile."


def _table_caption(times: StepTimes, unit: Unit) -> str:
    """The unit, what an outlier is, the order of many rows, and what is missing."""
    caption = f"Step durations in {_unit_name(unit)}. Outlier: above mean + {times.stddev:g}σ."
    unevaluated = [row for row in times.rows if row.outliers is None]
    if any(row.steps > PATIENCE for row in unevaluated):
        caption += f" –: not evaluated ({PATIENCE} steps or fewer, or mode not selected)."
    elif unevaluated:
        caption += f" –: not evaluated ({PATIENCE} steps or fewer)."
    if len(times.rows) + times.rows_left > NATURAL_ROWS:
        caption += " Rows with most outliers come first, then the slowest."
    if times.rows_left:
        caption += f" {formats.count(times.rows_left, 'more row')} omitted."
    return caption


# --- figures


def _histogram(times: StepTimes, unit: Unit) -> Figure:
    histogram = times.histogram
    one = len(histogram.series) == 1
    width = _width(histogram.width_us)
    lines = "rank and mode" if histogram.series[0].rank else "mode"
    aid = f"{width} bins" if one else f"One line per {lines}, {width} bins"
    reading = []
    if histogram.beyond:
        aid += f"; beyond the break: up to {unit.short(histogram.longest_us)}"
    evaluated = [mode for mode in times.modes if mode.evaluated]
    if any(mode.ranks > 1 for mode in evaluated):
        reading.append("Mean and σ are those of each rank and mode.")
    if evaluated and not any(figures.limit_inside(histogram, mode) for mode in times.modes[:2]):
        reading.append("The threshold is beyond the bars.")
    names = _series_names(times)
    key = [(f"s{i}", name, f"s{i}") for i, name in enumerate(names, 1)]
    return Figure(
        name="steps-histogram",
        title="Step durations",
        finding=_outliers(times, unit),
        aid=f"{aid}.",
        key=() if one else key,
        drawings=[Drawing(figure=figures.histogram(times, unit, names))],
        reading=" ".join(reading),
        tables=[_bins(times, unit)],
    )


def _outliers(times: StepTimes, unit: Unit) -> str:
    """How many steps of the main mode are outliers."""
    mode = times.modes[0]
    name = mode_name(mode.mode)
    if mode.steps == 1:
        return f"The only {name}step took {unit.short(mode.median_s * 1e6)}."
    of = f"of {formats.number(mode.steps, 0)} {name}steps"
    if not mode.evaluated:
        long = formats.number(mode.above_two_medians, 0) if mode.above_two_medians else "None"
        return f"{long} {of} took longer than twice the median."
    dashed = ", dashed" if figures.limit_inside(times.histogram, mode) else ""
    longer = f"longer than mean + {times.stddev:g}σ ({figures.limit_words(mode, unit)}{dashed})"
    if mode.outliers == 0:
        return f"None {of} is an outlier, {longer}."
    if mode.outliers == 1:
        return f"1 {of} is an outlier, {longer}."
    return f"{formats.number(mode.outliers, 0)} {of} are outliers, {longer}."


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
    took = unit.short(longest.lasted_us)
    at = formats.column_time(longest.start_us, with_day=with_day)
    name = mode_name(longest.mode) if len(timeline.series) > 1 else ""
    finding = (
        f"The only step took {took} and started at {at}."
        if times.count == 1
        else f"The longest {name}step took {took} and started at about {at}."
    )
    aid = f"A bar spans the shortest to the longest step started within {_width(timeline.width_us)}"
    reading = []
    if times.marked:
        aid += "; orange: outliers"
        outliers = f"{formats.count(times.marks, 'step')} {'is' if times.marks == 1 else 'are'}"
        reading.append(f"Orange marks a bar's longest outlier: {outliers} {marked(times)}.")
    if figures.is_log(times):
        aid += "; logarithmic scale"
    if figures.phase_lines(times, report.phases):
        reading.append("Dotted: start or end of the training loop.")
    names = [formats.escape_name(one.mode, 24) or "other modes" for one in timeline.series]
    modes = tuple((figures.MODES[i], name, f"s{i + 1}") for i, name in enumerate(names))
    outlier = (("l", "outlier", ""),) if times.marked else ()
    return Figure(
        name="steps-time",
        title="Step durations over time",
        finding=finding,
        aid=f"{aid}.",
        key=(*(modes if len(modes) > 1 or outlier else ()), *outlier),
        drawings=[Drawing(figure=figures.over_time(times, report.phases, unit, names))],
        zoom="the steps",
        reading=" ".join(reading),
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
    equal: dict[tuple[str, ...], list[StepRow]] = {}
    for row in times.rows:
        equal.setdefault(_cells(row, unit), []).append(row)
    printed = [[*_names(rows, times, several=several), *cells] for cells, rows in equal.items()]
    heads = (
        *node_heads(":Rank", ":Mode", several=several),
        *("Steps", "Outliers", "Threshold", "> 2 medians", "Mean", "Median", "σ"),
        *("p95", "p99", "Max", "Min", "First step"),
    )
    found = Table(
        label="Step durations by rank and mode",
        caption=_table_caption(times, unit),
        heads=heads,
        rows=printed[:NATURAL_ROWS],
    )
    folded = printed[NATURAL_ROWS:]
    if not folded:
        return [found]
    label, fold = "Step durations, more ranks and modes", f"{len(folded)} more ranks and modes"
    return [found, Table(label=label, fold=fold, heads=heads, rows=folded)]


def _names(rows: list[StepRow], times: StepTimes, *, several: bool) -> list[str]:
    """Node and rank; of several equal rows ``all 12 ranks, equal``, or their names if other ranks differ."""
    if len(rows) == 1:
        return node_cells(rows[0].node, rows[0].rank, several=several)
    names = [formats.escape_name(f"{row.node}/{row.rank}" if several else row.rank, 24) for row in rows]
    every = len(rows) == sum(row.mode == rows[0].mode for row in times.rows)
    who = formats.every(len(rows), "rank").lower() if every else formats.join_names(names)
    return [f"{who}, equal", *([""] if several else [])]


def _cells(row: StepRow, unit: Unit) -> tuple[str, ...]:
    """What is printed of a rank and mode after its name."""
    values = (row.mean_s, row.median_s, row.std_s, row.p95_s, row.p99_s, row.max_s, row.min_s, row.first_s)
    return (
        formats.escape_name(row.mode, 24),
        formats.number(row.steps, 0),
        formats.known(row.outliers, 0),
        "–" if row.limit_s is None else unit.text(row.limit_s * 1e6),
        formats.number(row.above_two_medians, 0),
        *(unit.text(value * 1e6) for value in values),
    )
