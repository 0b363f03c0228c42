"""How long steps took."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures import step_parts as parts
from jobreport.figures import steps as figures
from jobreport.figures.embed import document_json
from jobreport.formats import NBSP
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobreport.sections.table import Table, columns_of, node_cells, node_heads
from jobrules.analyses.step_parts import BETWEEN, IN_STEP, LOADING, MIN_OUTLIERS, UNACCOUNTED
from jobrules.analyses.steps import NATURAL_ROWS
from jobrules.step_outlier import PATIENCE, StepOutlier

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.figures.canvas import Figure
    from jobreport.figures.steps import Unit
    from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
    from jobrules.analyses.steps import StepMode, StepRow, StepTimes

#: Modes with a sentence of their own.
MAX_MODES = 4
#: Shares that differ by fewer points are described as equal; if all differ by fewer than the second, no figure is drawn.
ALIKE_POINTS, MIN_POINTS = 5.0, 1.0
#: Bars need a reason if they differ by more than this share of their mean. A part of the time is the reason
#: if more than this share of their variance goes with it.
WORTH_A_REASON, MOST_OF_VARIANCE = 0.2, 0.6


class Shown(Struct, frozen=True, kw_only=True):
    """A figure, the finding and the reading aid of its caption, what is folded, and its key."""

    figure: Figure
    finding: str
    aid: str
    fold: str = ""
    key: tuple[tuple[str, str, str], ...] = ()


@error_boundary
def steps(report: Report) -> Fragment:
    """A table per rank and mode, and the durations as figures."""
    times = report.steps
    if times is None:
        debugger = report.origin is Origin.DEBUGGER_RESULTS
        html = render(
            "steps",
            heading=heading("steps", report),
            times=None,
            debugger=debugger,
            has_card=debugger and any(card.name == StepOutlier.__name__ for card in report.rules),
        )
        return Fragment(name="steps", html=html)
    unit = figures.Unit.of(times)
    place = heading("steps", report)
    with_day = formats.spans_days(report.job.start_us, report.job.end_us)
    found = {
        "histogram": _histogram(times, unit),
        "last": _last(times, unit, with_day=with_day),
        "time": _time(times, report, unit, with_day=with_day),
        "contrast": _contrast(times),
    }
    html = render(
        "steps",
        heading=place,
        times=times,
        lead=_lead(times, unit),
        **found,
        bins=_bins(times, unit),
        parts_of_last=_parts_of_last(times.last, unit),
        peaks=_peaks(times, unit, place.zone, with_day=with_day),
        contrast_table=_contrast_table(times.contrast) if found["contrast"] and times.contrast else None,
        why_no_contrast=_why_no_contrast(times),
        tables=_durations(times, unit),
        figures=document_json(
            "steps", {f"live-steps-{name}": one.figure.live for name, one in found.items() if one}
        ),
    )
    return Fragment(name="steps", html=html)


# --- names


def _name(mode: str) -> str:
    """``TRAIN`` with the blank that follows it in a sentence; empty for steps without a mode."""
    return f"{formats.escape_name(mode, 24)} " if mode else ""


def _rank_name(node: str, rank: str, times: StepTimes) -> str:
    """``algo-1 rank 0``, as far as nodes and ranks differ; empty for the only one."""
    several_nodes = len({row.node for row in times.rows}) > 1
    several_ranks = several_nodes or len({row.rank for row in times.rows}) > 1
    names = [formats.escape_name(node, 24)] if several_nodes and node else []
    names += [f"rank {formats.escape_name(rank, 16)}"] if several_ranks and rank else []
    return " ".join(names)


def _series_names(times: StepTimes) -> list[str]:
    """``algo-1 rank 0 TRAIN``, as far as series differ."""
    return [
        f"{_rank_name(one.node, one.rank, times)} {_name(one.mode)}".strip() or "other modes"
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
        f"The only {_name(mode.mode)}step took {unit.short(mode.median_s * 1e6)}."
        for mode in times.modes[:MAX_MODES]
        if mode.steps == 1
    ]
    halves = [
        f"of the {formats.number(mode.steps, 0)} {_name(mode.mode)}steps {_span(mode, unit)}"
        for mode in times.modes[:MAX_MODES]
        if mode.steps > 1
    ]
    if halves:
        halves[0] = halves[0].replace("steps ", "steps took ", 1)
        sentences.insert(0, f"The middle half {', '.join(halves)}.")
    if left := len(times.modes[MAX_MODES:]) + times.modes_left:
        sentences.append(f"The table lists {formats.count(left, 'more mode')}.")
    return " ".join([*sentences, _slow_first_step(times, unit)]).strip()


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
        where = f" on {_rank_name(first.node, first.rank, times)}"
    else:
        where = f" on {equal} of {formats.count(len(of_mode), 'rank')}"
    factor = first.first_s / first.median_s
    times_median = formats.number(factor, 1 if factor < 100 else 0)
    return f"The first {_name(first.mode)}step took {took}{where}, {times_median} times the median; first steps often compile."


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


def _histogram(times: StepTimes, unit: Unit) -> Shown:
    histogram = times.histogram
    one = len(histogram.series) == 1
    width = _width(histogram.width_us)
    lines = "rank and mode" if histogram.series[0].rank else "mode"
    aid = f"{width} bins" if one else f"One line per {lines}, {width} bins"
    fold = []
    if histogram.beyond:
        aid += f"; beyond the break: up to {unit.short(histogram.longest_us)}"
    evaluated = [mode for mode in times.modes if mode.evaluated]
    if any(mode.ranks > 1 for mode in evaluated):
        fold.append("Mean and σ are those of each rank and mode.")
    if evaluated and not any(figures.limit_inside(histogram, mode) for mode in times.modes[:2]):
        fold.append("The threshold is beyond the bars.")
    names = _series_names(times)
    key = [(f"s{i}", name, f"s{i}") for i, name in enumerate(names, 1)]
    return Shown(
        figure=figures.histogram(times, unit, names),
        finding=_outliers(times, unit),
        aid=f"{aid}.",
        fold=" ".join(fold),
        key=() if one else tuple(key),
    )


def _outliers(times: StepTimes, unit: Unit) -> str:
    """How many steps of the main mode are outliers."""
    mode = times.modes[0]
    name = _name(mode.mode)
    if mode.steps == 1:
        return f"The only {name}step took {unit.short(mode.median_s * 1e6)}."
    of = f"of {formats.number(mode.steps, 0)} {name}steps"
    if not mode.evaluated:
        return f"{formats.number(mode.above_two_medians, 0) if mode.above_two_medians else 'None'} {of} took longer than twice the median."
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


def _marked(times: StepTimes) -> str:
    """What is marked as an outlier; empty if nothing is."""
    return {
        "rule": f"longer than mean + {times.stddev:g}σ of its rank and mode",
        "median": "longer than twice the median of its rank and mode, as no step is above StepOutlier's threshold",
    }.get(times.marked, "")


def _time(times: StepTimes, report: Report, unit: Unit, *, with_day: bool) -> Shown:
    timeline = times.timeline
    longest = timeline.peaks[0]
    took = unit.short(longest.lasted_us)
    at = formats.column_time(longest.start_us, with_day=with_day)
    name = _name(longest.mode) if len(timeline.series) > 1 else ""
    finding = (
        f"The only step took {took} and started at {at}."
        if times.count == 1
        else f"The longest {name}step took {took} and started at about {at}."
    )
    aid = f"A bar spans the shortest to the longest step started within {_width(timeline.width_us)}"
    fold = []
    if times.marked:
        aid += "; orange: outliers"
        outliers = f"{formats.count(times.marks, 'step')} {'is' if times.marks == 1 else 'are'}"
        fold.append(f"Orange marks a bar's longest outlier: {outliers} {_marked(times)}.")
    if figures.is_log(times):
        aid += "; logarithmic scale"
    if figures.phase_lines(times, report.phases):
        fold.append("Dotted: start or end of the training loop.")
    names = [formats.escape_name(one.mode, 24) or "other modes" for one in timeline.series]
    modes = tuple((figures.MODES[i], name, f"s{i + 1}") for i, name in enumerate(names))
    outlier = (("l", "outlier", ""),) if times.marked else ()
    return Shown(
        figure=figures.over_time(times, report.phases, unit, names),
        finding=finding,
        aid=f"{aid}.",
        fold=" ".join(fold),
        key=(*(modes if len(modes) > 1 or outlier else ()), *outlier),
    )


def _peaks(times: StepTimes, unit: Unit, zone: str, *, with_day: bool) -> Table:
    peaks = times.timeline.peaks
    bars = formats.number(times.timeline.count, 0)
    return Table(
        label="The bars with the longest steps",
        caption=f"Top {len(peaks)} of {bars} bars; all are in report.json.",
        fold="the bars with the longest steps",
        heads=(f":From ({zone})", ":Mode", f"Longest step ({unit.name})"),
        rows=[
            (
                formats.column_time(peak.start_us, with_day=with_day),
                formats.escape_name(peak.mode, 24) or "other modes",
                unit.text(peak.lasted_us),
            )
            for peak in peaks
        ],
    )


# --- outliers and other steps


def _contrast(times: StepTimes) -> Shown | None:
    """What outliers spent their time on; None if they do not differ from the other steps at all."""
    contrast = times.contrast
    if not contrast or abs(contrast.classes[0].points) < MIN_POINTS:
        return None
    first = contrast.classes[0]
    if abs(first.points) < ALIKE_POINTS:
        most = formats.number(abs(first.points))
        finding = (
            f"Outliers spend their time like normal steps: no event type differs by more than {most} points."
        )
    else:
        outliers, normal = formats.percent(first.outlier_percent), formats.percent(first.normal_percent)
        name = formats.escape_name(first.name, 40)
        finding = (
            f"{name} ran for {outliers} of the time of outliers and {normal} of the time of normal steps."
        )
    return Shown(
        figure=parts.contrast(contrast),
        finding=finding,
        aid="Percent of step time; event types can overlap.",
        fold=f"The largest difference comes first. An outlier is {_marked(times)}.",
        key=((parts.NORMAL, "normal steps", "normal"), (parts.OUTLIER, "outliers", "outlier")),
    )


def _contrast_table(contrast: StepContrast) -> Table:
    left = f" {formats.count(contrast.left, 'event type')} with smaller differences omitted."
    return Table(
        label="Normal steps and outliers by event type",
        caption="Normal steps and outliers by event type, in percent of their time; difference in points."
        + (left if contrast.left else ""),
        heads=(
            *(":Event type", "Normal steps (%)", "Outliers (%)", "Difference"),
            *("Normal steps compared", "Outliers compared"),
        ),
        rows=[
            (
                formats.escape_name(row.name, 60) + (f", {row.device}" if row.device else ""),
                *map(formats.number, (row.normal_percent, row.outlier_percent, row.points)),
                formats.number(row.normal_steps, 0),
                formats.number(row.outlier_steps, 0),
            )
            for row in contrast.classes
        ],
    )


def _why_no_contrast(times: StepTimes) -> str:
    """Why outliers are not compared with other steps; empty if there are none."""
    if not times.marked:
        return ""
    if times.marks < MIN_OUTLIERS:
        verb = "is" if times.marks == 1 else "are"
        return f"{formats.count(times.marks, 'outlier')} {verb} too few to compare with other steps."
    if times.contrast:
        points = formats.count(int(MIN_POINTS), "point")
        return f"Outliers spend their time like normal steps: no event type differs by {points} or more."
    if not times.has_events:
        return "Only steps were recorded, so what outliers spent their time on is unknown."
    return f"No event type was recorded in {MIN_OUTLIERS} outliers and in normal steps of the same ranks."


# --- the last steps


def _last(times: StepTimes, unit: Unit, *, with_day: bool) -> Shown:
    last = times.last
    n = len(last.numbers)
    rank = _rank_name(last.node, last.rank, times)
    of = f" of {rank}" if rank else ""
    which = f"Last {n} {_name(last.mode)}steps{of}" if n > 1 else f"The only {_name(last.mode)}step{of}"
    found = _largest_part(last, with_day=with_day)
    fold = [*_bars(last, unit)]
    if n > 1:
        fold.append("The last bar ends with its step.")
    fold.append(
        "Each moment counts once; hatched: no event."
        if last.by_event
        else "No events were recorded for these steps, so only the step and the time to the next are distinguished."
    )
    key = [(parts.fill(part, last.parts), _part_name(part), "") for part in reversed(last.parts)]
    return Shown(
        figure=parts.last_steps(last, unit),
        finding=f"{which}{f': {found}' if found else ''}.",
        aid="A bar runs from one step's start to the next.",
        fold=" ".join(fold),
        key=tuple(key),
    )


def _complete_bars(last: LastSteps) -> tuple[int, ...]:
    """Bars without the last one, which no step follows; none if they are too few or take no time."""
    bars = last.total_us[:-1]
    return bars if len(bars) > 2 and any(bars) else ()


def _largest_part(last: LastSteps, *, with_day: bool) -> str:
    """What took most of the time of the last steps, and what was no longer recorded."""
    if not _complete_bars(last):
        return ""
    largest = max(last.parts, key=lambda part: part.percent)
    share = formats.percent(largest.percent)
    ended = _ended(last, with_day=with_day)
    if not last.by_event:
        return f"{share} of the time is {'inside' if largest.name == IN_STEP else 'outside'} steps{ended}"
    if largest.role == "unknown":
        return f"no event covers {share} of the time{ended}"
    return f"{_part_name(largest)} takes {share} of the time"


def _ended(last: LastSteps, *, with_day: bool) -> str:
    """``; data loading was recorded only until 07:56:56``; empty if recording did not end before."""
    if last.ended_us is None:
        return ""
    name, was = ("data loading", "was") if last.ended == LOADING else (last.ended, "were")
    if last.ended in {"Forward", "Backward"}:
        name, was = f"the {name.lower()} pass", "was"
    return f"; {name} {was} recorded only until {formats.column_time(last.ended_us, with_day=with_day)}"


def _bars(last: LastSteps, unit: Unit) -> list[str]:
    """How long the bars are, and which part makes them differ."""
    bars = _complete_bars(last)
    if not bars:
        return []
    lengths = f"Bars last {unit.range(min(bars), max(bars))}"
    if not min(bars) <= last.total_us[-1] <= max(bars):
        lengths += f", the last one {unit.short(last.total_us[-1])}"
    reason = _reason(last, bars)
    return [f"{lengths}.", f"They differ mostly in {reason}."] if reason else [f"{lengths}."]


def _reason(last: LastSteps, bars: tuple[int, ...]) -> str:
    """The part that most of the variance of the bars goes with; empty if bars differ little or in several parts."""
    mean = sum(bars) / len(bars)
    if max(bars) - min(bars) < WORTH_A_REASON * mean:
        return ""
    # The covariances of the parts with the bars add up to the variance of the bars.
    covariance = {
        part.name: sum(us * (bar - mean) for us, bar in zip(part.time_us[:-1], bars, strict=True))
        for part in last.parts
    }
    name = max(covariance, key=covariance.__getitem__)
    if covariance[name] < MOST_OF_VARIANCE * sum((bar - mean) ** 2 for bar in bars):
        return ""
    in_words = {
        UNACCOUNTED: "time without events",
        BETWEEN: "the time to the next step",
        IN_STEP: "the step itself",
    }
    return in_words.get(name, formats.escape_name(name, 40))


def _part_name(part: StepPart) -> str:
    return formats.escape_name(part.name, 40)


def _parts_of_last(last: LastSteps, unit: Unit) -> Table:
    columns = (*(part.time_us for part in last.parts), last.total_us)
    return Table(
        label="The last steps in parts",
        fold=f"the last steps in parts ({unit.name})",
        heads=(":Step", *map(_part_name, last.parts), "Total"),
        rows=columns_of(parts.step_names(last), *([unit.text(us) for us in column] for column in columns)),
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
