"""How long steps took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures import step_parts as parts
from jobreport.figures import steps as figures
from jobreport.figures.embed import document_json
from jobreport.formats import NBSP
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.analyses.step_parts import BETWEEN, IN_STEP, LOADING, MIN_OUTLIERS, UNACCOUNTED
from jobrules.analyses.steps import NATURAL_ROWS
from jobrules.step_outlier import PATIENCE, StepOutlier

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobreport.figures.steps import Unit
    from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
    from jobrules.analyses.steps import StepBins, StepMode, StepRow, StepTimes

#: Modes with a sentence of their own.
MAX_MODES = 4
#: Shares that differ by fewer points are described as equal; if all differ by fewer than the second, no figure is drawn.
ALIKE_POINTS, MIN_POINTS = 5.0, 1.0
#: Bars need a reason if they differ by more than this share of their mean. A part of the time is the reason
#: if more than this share of their variance goes with it.
WORTH_A_REASON, MOST_OF_VARIANCE = 0.2, 0.6


class Row(Struct, frozen=True, kw_only=True):
    """A rank and mode as printed, or several whose rows print equally."""

    node: str
    rank: str
    #: Names of several, such as ``both ranks, equal``; empty for one.
    together: str
    mode: str
    steps: str
    #: Mean, median, σ, p95, p99, max, min, first step.
    values: tuple[str, ...]
    threshold: str
    outliers: str
    above: str


class Shown(Struct, frozen=True, kw_only=True):
    """A figure: its drawing, the finding and the reading aid of its caption, what is folded, and its key."""

    drawing: Drawing
    finding: str
    aid: str
    fold: str = ""
    key: tuple[tuple[str, str, str], ...] = ()


@error_boundary
def steps(report: Report) -> Fragment:
    """A table per rank and mode, and the durations as figures."""
    times = report.steps
    if times is None:
        vendor = report.origin is Origin.DEBUGGER_RESULTS
        html = render(
            "steps",
            heading=heading("steps", report),
            times=None,
            vendor=vendor,
            vendor_card=vendor and any(card.name == StepOutlier.__name__ for card in report.rules),
        )
        return Fragment(name="steps", html=html)
    unit = figures.Unit.of(times)
    contrast = _worth_drawing(times)
    series = [_series_name(one, times) for one in times.histogram.series]
    live: dict[str, Plot] = {
        "live-steps-histogram": figures.histogram_plot(times, unit, series),
        "live-steps-time": figures.timeline_plot(times, report.phases, unit, _modes(times)),
        "live-steps-last": parts.last_plot(times.last, unit),
    }
    if contrast:
        live["live-steps-contrast"] = parts.contrast_plot(contrast)
    rows = _rows(times, unit)
    with_day = formats.spans_days(report.job.start_us, report.job.end_us)
    html = render(
        "steps",
        heading=heading("steps", report),
        times=times,
        unit=unit.name,
        nodes=len({row.node for row in times.rows}),
        rows=rows[:NATURAL_ROWS],
        folded=rows[NATURAL_ROWS:],
        lead=_lead(times, unit),
        table_caption=_table_caption(times, unit),
        histogram=_histogram(times, unit),
        bins=_bins(times, unit),
        series=series,
        time=_time(times, report, unit, with_day=with_day),
        peaks=[
            (peak.start_us, formats.escape_name(peak.mode, 24) or "other modes", unit.text(peak.lasted_us))
            for peak in times.timeline.peaks
        ],
        with_day=with_day,
        contrast=_contrast(times, contrast) if contrast else None,
        why_no_contrast=_why_no_contrast(times),
        last=_last(times, unit, with_day=with_day),
        last_rows=_last_rows(times.last, unit),
        figures=document_json("steps", live),
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


def _series_name(one: StepBins, times: StepTimes) -> str:
    """``algo-1 rank 0 TRAIN``, as far as series differ."""
    return f"{_rank_name(one.node, one.rank, times)} {_name(one.mode)}".strip() or "other modes"


def _modes(times: StepTimes) -> list[str]:
    return [formats.escape_name(one.mode, 24) or "other modes" for one in times.timeline.series]


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
        longest, last = unit.short(histogram.longest_us), unit.short(histogram.end_us)
        aid += f"; beyond the break: up to {longest}"
        bars = "one bar" if sum(found.beyond > 0 for found in histogram.series) == 1 else "one bar per line"
        fold.append(
            f"Right of the break: {formats.count(histogram.beyond, 'step')} of {last} or more, {bars}."
        )
    evaluated = [mode for mode in times.modes if mode.evaluated]
    if any(mode.ranks > 1 for mode in evaluated):
        fold.append("Mean and σ are those of each rank and mode.")
    if evaluated and not any(figures.limit_inside(histogram, mode) for mode in times.modes[:2]):
        fold.append("The threshold is beyond the bars.")
    key = [(f"s{i}", _series_name(found, times), f"s{i}") for i, found in enumerate(histogram.series, 1)]
    return Shown(
        drawing=figures.histogram_drawing(times, unit),
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


def _bins(times: StepTimes, unit: Unit) -> list[tuple[str, list[str]]]:
    """Rows of the data: the range of a bin that is not empty, and the steps of each series."""
    histogram = times.histogram
    rows = []
    for i in range(histogram.bins):
        counts = [one.counts[i] for one in histogram.series]
        if any(counts):
            low = histogram.start_us + i * histogram.width_us
            span = f"{unit.text(low)} to {unit.text(low + histogram.width_us)}"
            rows.append((span, [formats.number(n, 0) for n in counts]))
    if histogram.beyond:
        beyond = [formats.number(one.beyond, 0) for one in histogram.series]
        rows.append((f"{unit.text(histogram.end_us)} or more", beyond))
    return rows


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
    aid = f"A bar spans the shortest to the longest step (in {_unit_name(unit)}) started within {_width(timeline.width_us)}"
    fold = []
    if times.marked:
        aid += "; orange: outliers"
        outliers = f"{formats.count(times.marks, 'step')} {'is' if times.marks == 1 else 'are'}"
        fold.append(f"Orange marks the longest outlier of a bar: {outliers} {_marked(times)}.")
    if figures.is_log(times):
        aid += "; logarithmic scale"
    if figures.has_phase_lines(times, report.phases):
        fold.append("Dotted: start or end of the training loop.")
    modes = tuple((figures.mode_fill(i), one, f"s{i + 1}") for i, one in enumerate(_modes(times)))
    outlier = (("l", "outlier", ""),) if times.marked else ()
    return Shown(
        drawing=figures.timeline_drawing(times, report.phases, unit),
        finding=finding,
        aid=f"{aid}.",
        fold=" ".join(fold),
        key=(*(modes if len(modes) > 1 or outlier else ()), *outlier),
    )


# --- outliers and other steps


def _worth_drawing(times: StepTimes) -> StepContrast | None:
    """The comparison, if outliers differ from the other steps at all."""
    found = times.contrast
    return found if found and abs(found.classes[0].points) >= MIN_POINTS else None


def _contrast(times: StepTimes, contrast: StepContrast) -> Shown:
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
        drawing=parts.contrast_drawing(contrast),
        finding=finding,
        aid="Percent of step time; event types can overlap.",
        fold=f"The largest difference comes first. An outlier is {_marked(times)}.",
        key=((parts.NORMAL[0], "normal steps", "normal"), (parts.OUTLIER[0], "outliers", "outlier")),
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
    key = [(parts.fill(part, last.parts)[0], _part_name(part), "") for part in reversed(last.parts)]
    return Shown(
        drawing=parts.last_drawing(last, unit),
        finding=f"{which}{f': {found}' if found else ''}.",
        aid=f"A bar runs from one step's start to the next, in {_unit_name(unit)}.",
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


def _last_rows(last: LastSteps, unit: Unit) -> list[tuple[str, list[str]]]:
    columns = zip(*(part.time_us for part in last.parts), last.total_us, strict=True)
    return [
        (name, [unit.text(us) for us in one])
        for name, one in zip(parts.step_names(last), columns, strict=True)
    ]


# --- the table


def _rows(times: StepTimes, unit: Unit) -> list[Row]:
    """Ranks and modes; those whose rows print equally are one."""
    found: dict[Row, list[StepRow]] = {}
    for row in times.rows:
        found.setdefault(_row(row, unit), []).append(row)
    return [
        replace(printed, node=rows[0].node, rank=rows[0].rank, together=_together(rows, times))
        for printed, rows in found.items()
    ]


def _together(rows: list[StepRow], times: StepTimes) -> str:
    """``all 12 ranks, equal``, or their names if other ranks of the mode differ; empty for one."""
    if len(rows) == 1:
        return ""
    if len(rows) == sum(row.mode == rows[0].mode for row in times.rows):
        return f"{formats.every(len(rows), 'rank').lower()}, equal"
    several = len({row.node for row in times.rows}) > 1
    names = [f"{row.node}/{row.rank}" if several else row.rank for row in rows]
    return f"{formats.join_names([formats.escape_name(name, 24) for name in names])}, equal"


def _row(row: StepRow, unit: Unit) -> Row:
    """What is printed of a rank and mode besides its name."""
    values = (row.mean_s, row.median_s, row.std_s, row.p95_s, row.p99_s, row.max_s, row.min_s, row.first_s)
    return Row(
        node="",
        rank="",
        together="",
        mode=row.mode,
        steps=formats.number(row.steps, 0),
        values=tuple(unit.text(value * 1e6) for value in values),
        threshold="–" if row.limit_s is None else unit.text(row.limit_s * 1e6),
        outliers=formats.known(row.outliers, 0),
        above=formats.number(row.above_two_medians, 0),
    )
