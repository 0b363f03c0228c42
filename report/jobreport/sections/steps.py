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
from jobrules.analyses.step_parts import BETWEEN, FEWEST_OUTLIERS, IN_STEP, LOADING, UNACCOUNTED
from jobrules.analyses.steps import NATURAL_ROWS
from jobrules.step_outlier import StepOutlier

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobreport.figures.steps import Unit
    from jobrules.analyses.step_parts import StepContrast
    from jobrules.analyses.steps import StepBins, StepMode, StepRow, StepTimes

#: Phases that are told in sentences.
MOST_TOLD = 4
#: Shares that differ by less are told as alike, in points, and where all differ by less they are not drawn.
ALIKE_POINTS, LEAST_POINTS = 5.0, 1.0
#: Bars that differ by less than this share of their mean are told without a reason; a class is told as
#: the reason where it goes with more than this share of their variance.
WORTH, MOSTLY = 0.2, 0.6


class Row(Struct, frozen=True, kw_only=True):
    """A worker and phase as printed, or several whose rows print alike."""

    node: str
    rank: str
    #: What several are together; empty for one.
    together: str
    mode: str
    steps: str
    #: Mean, median, σ, p95, p99, max, min, first step.
    values: tuple[str, ...]
    limit: str
    outliers: str
    above: str


class Shown(Struct, frozen=True, kw_only=True):
    """A figure: its drawing, what it shows, how to read it, and the entries of its key."""

    drawing: Drawing
    caption: str
    read: str
    key: tuple[tuple[str, str, str], ...] = ()


@error_boundary
def steps(report: Report) -> Fragment:
    """A table per worker and phase, and what the durations look like together."""
    times = report.steps
    if times is None:
        html = render(
            "steps",
            heading=heading("steps", report),
            times=None,
            vendor=report.origin is Origin.DEBUGGER_RESULTS,
            vendor_card=report.origin is Origin.DEBUGGER_RESULTS
            and any(card.name == StepOutlier.__name__ for card in report.rules),
        )
        return Fragment(name="steps", html=html)
    unit = figures.Unit.of(times)
    contrast, last = _worth_drawing(times), times.last
    live: dict[str, Plot] = {
        "live-steps-histogram": figures.histogram_plot(
            times, unit, [_series(one, times) for one in times.histogram.series]
        ),
        "live-steps-time": figures.timeline_plot(times, report.phases, unit, _phases(times)),
    }
    if contrast:
        live["live-steps-contrast"] = parts.contrast_plot(contrast)
    live["live-steps-last"] = parts.last_plot(last, unit)
    rows = _rows(times, unit)
    first = NATURAL_ROWS if len(rows) > NATURAL_ROWS else len(rows)
    html = render(
        "steps",
        heading=heading("steps", report),
        times=times,
        unit=unit.name,
        nodes=len({row.node for row in times.rows}),
        rows=rows[:first],
        folded=rows[first:],
        lead=_lead(times, unit),
        table_words=_table(times, len(rows)),
        histogram=_histogram(times, unit),
        bins=_bins(times, unit),
        series=[_series(one, times) for one in times.histogram.series],
        time=_time(times, report, unit),
        listed=_listed(times, unit),
        with_day=formats.spans_days(report.job.start_us, report.job.end_us),
        contrast=_contrast(times, contrast) if contrast else None,
        why_no_contrast=_why_no_contrast(times),
        last=_last(times, unit),
        last_rows=_last_rows(times, unit),
        figures=document_json("steps", live),
    )
    return Fragment(name="steps", html=html)


# --- sentences


def _half(phase: StepMode, unit: Unit) -> str:
    """``Half of the 2 680 steps take 3.10 to 3.50 s``."""
    span = unit.range(phase.p25_s * 1e6, phase.p75_s * 1e6)
    name = f" {formats.escape_name(phase.mode, 24)}" if phase.mode else ""
    if phase.steps == 1:
        return f"The only{name} step took {span}"
    alike = unit.short(phase.p25_s * 1e6) == unit.short(phase.p75_s * 1e6)
    steps = f"{formats.number(phase.steps, 0)}{name} steps"
    return f"The {steps} typically take {span}" if alike else f"Half of the {steps} take {span}"


def _finding(times: StepTimes, unit: Unit) -> str:
    """How many steps of the main phase are outliers."""
    phase = times.modes[0]
    if phase.steps == 1:
        return f"{_half(phase, unit)}."
    n = phase.outliers if phase.evaluated else phase.above_two_medians
    name = f" {formats.escape_name(phase.mode, 24)}" if phase.mode else ""
    found = f"{formats.number(n, 0) if n else 'None'} of the {formats.number(phase.steps, 0)}{name} steps took longer than"
    if not phase.evaluated:
        return f"{found} twice the median."
    own = "" if phase.ranks == 1 else " of its worker" if n == 1 else " of their worker"
    return f"{found} mean + {times.stddev:g}σ{own} ({figures.limit_words(phase, unit)})."


def _lead(times: StepTimes, unit: Unit) -> str:
    """How long steps take, the phase with most time first, and the first step where it took much longer."""
    told = [_half(phase, unit) + "." for phase in times.modes[:MOST_TOLD] if times.count > 1]
    left = len(times.modes[MOST_TOLD:]) + times.modes_left
    if left:
        told.append(
            f"{formats.count(left, 'more phase')} that took less time {'is' if left == 1 else 'are'} in the table."
        )
    first = max(times.rows, key=lambda row: row.first_s)
    if first.steps > 1 and first.first_s > 2 * first.median_s > 0:
        took, factor = unit.short(first.first_s * 1e6), _times(first.first_s / first.median_s)
        why = "start-up and compilation often fall into it."
        alike = [
            row for row in times.rows if row.mode == first.mode and unit.short(row.first_s * 1e6) == took
        ]
        if len(times.rows) == 1:
            who = "The first step"
        elif len(alike) == 1:
            who = f"The longest first step, of {_who(first.node, first.rank, first.mode, times)},"
        else:
            phase = f"{formats.escape_name(first.mode, 24)} " if first.mode else ""
            who = f"The longest first {phase}step, equally of {formats.count(len(alike), 'worker')},"
        told.append(f"{who} took {took}, {factor} times the median: {why}")
    return " ".join(told)


def _times(factor: float) -> str:
    return formats.number(factor, 1 if factor < 100 else 0)


def _table(times: StepTimes, printed: int) -> str:
    """What the rows are, and which are missing."""
    every = len(times.rows) + times.rows_left
    told = f"Durations of the {formats.count(times.count, 'recorded step')}; limit: mean + {times.stddev:g}σ, outliers are above it"
    if every > NATURAL_ROWS:
        told += f"; of {formats.number(every, 0)} workers and phases those with most outliers first, then the slowest"
    if printed > NATURAL_ROWS:
        told += f", the first {NATURAL_ROWS} here and the others in the list below"
    if times.rows_left:
        told += f"; {formats.number(times.rows_left, 0)} are left out"
    unjudged = sum(row.outliers is None for row in times.rows)
    aside = " Outliers are not judged (–) in 100 steps or fewer, or in a phase that StepOutlier was not asked for."
    return f"{told}.{aside if unjudged else ''}"


def _who(node: str, worker: str, phase: str, times: StepTimes) -> str:
    """A series by what tells it from the others."""
    if not (node or worker or phase):
        return "other phases"
    several_nodes = len({row.node for row in times.rows}) > 1
    several = several_nodes or len({row.rank for row in times.rows}) > 1
    parts = [formats.escape_name(node, 24)] if several_nodes and node else []
    parts += [f"worker {formats.escape_name(worker, 16)}"] if several and worker else []
    parts += [formats.escape_name(phase, 24)] if phase else []
    return " ".join(parts)


def _series(one: StepBins, times: StepTimes) -> str:
    return _who(one.node, one.rank, one.mode, times)


def _phases(times: StepTimes) -> list[str]:
    return [formats.escape_name(one.mode, 24) or "other phases" for one in times.timeline.series]


# --- figures


def _histogram(times: StepTimes, unit: Unit) -> Shown:
    histogram = times.histogram
    one = len(histogram.series) == 1
    series = sum(found.beyond > 0 for found in histogram.series)
    last = unit.short(histogram.end_us)
    text = [
        f"Count of steps, {_exact(histogram.width_us)} a bar"
        + (
            "."
            if one
            else f"; a line for each {'worker and phase' if histogram.series[0].rank else 'phase'}."
        ),
    ]
    inside = [phase for phase in times.modes[:2] if figures.limit_inside(histogram, phase)]
    if inside:
        text.append("Dashed: the limit of StepOutlier.")
    elif any(phase.evaluated for phase in times.modes):
        text.append("The limit of StepOutlier lies beyond the bars.")
    if histogram.beyond:
        text.append(
            f"Right of the break: {formats.count(histogram.beyond, 'step')} of {last} or more, up to "
            f"{unit.short(histogram.longest_us)}, counted as {'one bar' if series == 1 else 'one bar each'}."
        )
    key = (
        ()
        if one
        else tuple(
            (f"s{i}", _series(found, times), f"s{i}") for i, found in enumerate(histogram.series, start=1)
        )
    )
    return Shown(
        drawing=figures.histogram_drawing(times, unit),
        caption=_finding(times, unit),
        read=" ".join(text),
        key=key,
    )


def _exact(us: int) -> str:
    """The width of a bin: ``20 ms``, ``1.5 s``."""
    size, name = next((s, n) for s, n in ((1_000_000, "s"), (1000, "ms"), (1, "µs")) if us >= s)
    return f"{formats.plain_number(us / size)}{NBSP}{name}"


def _bins(times: StepTimes, unit: Unit) -> list[tuple[str, list[str]]]:
    """Rows of the data: the range of a bin, and the steps of each series; empty bins are left out."""
    histogram = times.histogram
    rows = []
    for i in range(histogram.bins):
        counts = [one.counts[i] for one in histogram.series]
        if any(counts):
            low = histogram.start_us + i * histogram.width_us
            words = f"{unit.text(low)} to {unit.text(low + histogram.width_us)}"
            rows.append((words, [formats.number(n, 0) for n in counts]))
    if histogram.beyond:
        rows.append(
            (
                f"{unit.text(histogram.end_us)} or more",
                [formats.number(s.beyond, 0) for s in histogram.series],
            )
        )
    return rows


def _marks(times: StepTimes) -> str:
    """What is marked as an outlier, in words; empty where there is none."""
    return {
        "rule": f"longer than mean + {times.stddev:g}σ of its worker and phase",
        "median": "longer than twice the median of its worker and phase, as no step is above the limit of "
        "StepOutlier",
    }.get(times.marked, "")


def _time(times: StepTimes, report: Report, unit: Unit) -> Shown:
    timeline = times.timeline
    longest = timeline.peaks[0]
    took, at = unit.short(longest.lasted_us), formats.clock(longest.start_us)
    name = f" {formats.escape_name(longest.mode, 24)}" if longest.mode and len(timeline.series) > 1 else ""
    finding = f"The longest{name} step took {took} and began about {at}."
    if times.count == 1:
        finding = f"The only step took {took} and began at {at}."
    scale = ", by powers of ten because a few steps take so much longer" if figures.is_log(times) else ""
    text = [
        f"Duration of steps in {_unit_words(unit)}{scale}, over the time of their start, UTC. A bar reaches from the shortest "
        f"to the longest step that began within {_exact_time(timeline.width_us)}, so every peak is there."
    ]
    if times.marked:
        text.append(
            f"Orange marks: the longest outlier of a bar; {formats.count(times.marks, 'step')} "
            f"{'is' if times.marks == 1 else 'are'} {_marks(times)}."
        )
    if figures.has_phase_lines(times, report.phases):
        text.append("Dotted: where the phases of the job change.")
    key = tuple((figures.phase_fill(i), one, f"s{i + 1}") for i, one in enumerate(_phases(times)))
    marks = (("l", "outlier", ""),) if times.marked else ()
    return Shown(
        drawing=figures.timeline_drawing(times, report.phases, unit),
        caption=finding,
        read=" ".join(text),
        key=(*(key if len(key) > 1 or marks else ()), *marks),
    )


def _unit_words(unit: Unit) -> str:
    return {"s": "seconds", "ms": "milliseconds", "µs": "microseconds"}[unit.name]


def _exact_time(us: int) -> str:
    return formats.duration(us) if us >= 1_000_000 else _exact(us)


def _listed(times: StepTimes, unit: Unit) -> list[tuple[int, str, str]]:
    """The columns with the longest steps: time, phase, duration."""
    return [
        (peak.start_us, formats.escape_name(peak.mode, 24) or "other phases", unit.text(peak.lasted_us))
        for peak in times.timeline.peaks
    ]


def _worth_drawing(times: StepTimes) -> StepContrast | None:
    """The comparison, if outliers differ from the other steps at all."""
    found = times.contrast
    return found if found and abs(found.classes[0].points) >= LEAST_POINTS else None


def _contrast(times: StepTimes, contrast: StepContrast) -> Shown:
    first = contrast.classes[0]
    name = formats.escape_name(first.name, 40)
    a, b = first.outlier_percent, first.normal_percent
    if abs(first.points) < ALIKE_POINTS:
        most = formats.number(abs(first.points))
        finding = (
            f"Outliers spend their time as the other steps do: no class differs by more than {most} points."
        )
    else:
        finding = (
            f"{name} is going on in {formats.percent(a)} of the time of outliers and in {formats.percent(b)} "
            "of that of normal steps."
        )
    text = (
        f"Percent of step time in which a class of events was going on, the largest difference first; "
        f"classes may lie inside one another. An outlier is {_marks(times)}."
    )
    key = (
        (parts.NORMAL[0], "normal steps", "normal"),
        (parts.OUTLIER[0], "outliers", "outlier"),
    )
    return Shown(drawing=parts.contrast_drawing(contrast), caption=finding, read=text, key=key)


def _why_no_contrast(times: StepTimes) -> str:
    if not times.marked:
        return "No step is an outlier, so there is nothing to compare the others with."
    if times.marks < FEWEST_OUTLIERS:
        one = times.marks == 1
        few = f"Only {formats.count(times.marks, 'step')} {'is an outlier' if one else 'are outliers'}"
        return f"{few}: too few to tell what outliers spend their time on."
    if times.contrast:
        return (
            "Outliers spend their time as the other steps do: no class of events differs by "
            f"{formats.count(int(LEAST_POINTS), 'point')} or more."
        )
    if not times.has_events:
        return (
            "What the outliers spent their time on is not known: no events were recorded besides the steps."
        )
    return (
        f"What the outliers spent their time on is not known: no class of events was recorded in {FEWEST_OUTLIERS} "
        "outliers and in normal steps of the same workers."
    )


def _last(times: StepTimes, unit: Unit) -> Shown:
    last = times.last
    n = len(last.numbers)
    whose = f"worker {formats.escape_name(last.rank, 16)} of {formats.escape_name(last.node, 24)}"
    phase = f" {formats.escape_name(last.mode, 24)}" if last.mode else ""
    every = f"The last {formats.number(n, 0)}{phase} steps" if n > 1 else f"The only{phase} step"
    text = (
        f"{every} of {whose}, by step number; {_unit_words(unit)} from the start of a step to the start of the "
        f"next{', the last bar to its own end' if n > 1 else ''}."
    )
    if last.by_event:
        text += " Each moment counts once; hatched: no event tells."
    else:
        until = f" ({_until(times)})" if last.ended else ""
        text += f" No events were recorded for them{until}, so only the step and the time to the next are told apart."
    key = tuple((parts.fill(part, last.parts)[0], _part_name(part.name), "") for part in reversed(last.parts))
    return Shown(drawing=parts.last_drawing(last, unit), caption=_spread(times, unit), read=text, key=key)


def _until(times: StepTimes) -> str:
    """``data loading was recorded until 07:56:56 UTC``; empty where nothing ended before."""
    last = times.last
    if last.ended_us is None:
        return ""
    name, was = ("data loading", "was") if last.ended == LOADING else (last.ended, "were")
    if last.ended in {"Forward", "Backward"}:
        name, was = f"the {name.lower()} pass", "was"
    return f"{name} {was} recorded until {formats.clock(last.ended_us)}"


def _part_name(name: str) -> str:
    return formats.escape_name(name, 40)


def _spread(times: StepTimes, unit: Unit) -> str:
    """Which part makes the bars differ."""
    last = times.last
    # Without the last bar, which no step follows.
    bars = last.total_us[:-1]
    total = sum(bars)
    if len(bars) < 3 or not total:
        return ""
    largest = max(last.parts, key=lambda part: part.percent)
    share = formats.percent(largest.percent)
    text = f"{_part_name(largest.name)} takes most of these steps, {share}"
    if not last.by_event:
        text = f"{share} of the time of these steps lies {'within them' if largest.name == IN_STEP else 'between them'}"
    elif largest.role == "unknown":
        until = f"; {_until(times)}" if last.ended else ""
        text = f"Nothing was recorded in {share} of the time of these steps{until}"
    text += f". A bar lasts {unit.range(min(bars), max(bars))}"
    if not min(bars) <= last.total_us[-1] <= max(bars):
        text += f", the last one {unit.short(last.total_us[-1])}"
    # Of the variance of the bars the part that goes with each class; the parts of all classes sum to 1.
    middle = total / len(bars)
    variance = sum((bar - middle) ** 2 for bar in bars)
    if max(bars) - min(bars) < WORTH * middle:
        return f"{text}."
    part, weight = max(
        (
            (part, sum(us * (bar - middle) for us, bar in zip(part.time_us[:-1], bars, strict=True)))
            for part in last.parts
        ),
        key=lambda found: found[1],
    )
    if weight < MOSTLY * variance:
        return f"{text}."
    return f"{text}; what makes them differ is mostly {_in_words(part.name)}."


def _in_words(name: str) -> str:
    """A class of time within a sentence."""
    return {
        UNACCOUNTED: "time that no event tells of",
        BETWEEN: "the time to the next step",
        IN_STEP: "the step itself",
    }.get(name, _part_name(name))


def _last_rows(times: StepTimes, unit: Unit) -> list[tuple[str, list[str]]]:
    last = times.last
    columns = zip(*(part.time_us for part in last.parts), last.total_us, strict=True)
    return [
        (name, [unit.text(us) for us in one])
        for name, one in zip(parts.step_names(last), columns, strict=True)
    ]


def _rows(times: StepTimes, unit: Unit) -> list[Row]:
    """Workers and phases; those whose rows print alike are one."""
    found: dict[Row, list[StepRow]] = {}
    for row in times.rows:
        found.setdefault(_row(row, unit), []).append(row)
    return [
        replace(printed, node=rows[0].node, rank=rows[0].rank, together=_together(rows, times))
        for printed, rows in found.items()
    ]


def _together(rows: list[StepRow], times: StepTimes) -> str:
    """``12 workers, alike``, or by name where others of the phase are not alike; empty for one."""
    if len(rows) == 1:
        return ""
    if len(rows) == sum(row.mode == rows[0].mode for row in times.rows):
        return f"{formats.count(len(rows), 'worker')}, alike"
    several = len({row.node for row in times.rows}) > 1
    names = [f"{row.node}/{row.rank}" if several else row.rank for row in rows]
    return f"{formats.join_names([formats.escape_name(name, 24) for name in names])}, alike"


def _row(row: StepRow, unit: Unit) -> Row:
    """What is printed of a worker and phase besides its name."""
    values = (row.mean_s, row.median_s, row.std_s, row.p95_s, row.p99_s, row.max_s, row.min_s, row.first_s)
    return Row(
        node="",
        rank="",
        together="",
        mode=row.mode,
        steps=formats.number(row.steps, 0),
        values=tuple(unit.text(value * 1e6) for value in values),
        limit="–" if row.limit_s is None else unit.text(row.limit_s * 1e6),
        outliers=formats.known(row.outliers, 0),
        above=formats.number(row.above_two_medians, 0),
    )
