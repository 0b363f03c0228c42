"""What steps spent their time on: outliers and normal steps, and the last steps one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import step_parts as parts
from jobreport.page.kit import Drawing, Figure, Table
from jobrules.analyses.step_parts import MIN_OUTLIERS
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from jobreport.page.figures.steps import Unit
    from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
    from jobrules.analyses.steps import StepTimes


#: Shares that differ by fewer points are described as equal; below the second, no figure is drawn.
ALIKE_POINTS, MIN_POINTS = 5.0, 1.0


#: Bars need a reason if they differ by more than this share of their mean. A part of the time is the reason
#: if more than this share of their variance goes with it.
WORTH_A_REASON, MOST_OF_VARIANCE = 0.2, 0.6


def mode_name(mode: str) -> str:
    """``TRAIN`` with the blank that follows it in a sentence; empty for steps without a mode."""
    return f"{formats.escape_name(mode, 24)} " if mode else ""


def rank_name(node: str, rank: str, times: StepTimes) -> str:
    """``algo-1 rank 0``, as far as nodes and ranks differ; empty for the only one."""
    several_nodes = len({row.node for row in times.rows}) > 1
    several_ranks = several_nodes or len({row.rank for row in times.rows}) > 1
    names = [formats.escape_name(node, 24)] if several_nodes and node else []
    names += [f"rank {formats.escape_name(rank, 16)}"] if several_ranks and rank else []
    return " ".join(names)


def marked(times: StepTimes) -> str:
    """What is marked as an outlier; empty if nothing is."""
    return {
        "rule": f"longer than mean + {times.stddev:g}σ of its rank and mode",
        "median": "longer than twice the median of its rank and mode, "
        "as no step is above StepOutlier's threshold",
    }.get(times.marked, "")


def contrast(times: StepTimes) -> Figure | None:
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
    low = len(contrast.classes) <= 3
    return Figure(
        name="steps-contrast",
        title="Normal steps and outliers by event type",
        finding=finding,
        aid="Percent of step time; event types can overlap.",
        key=((parts.NORMAL, "normal steps", "normal"), (parts.OUTLIER, "outliers", "outlier")),
        drawings=[Drawing(figure=parts.contrast(contrast), style="names low" if low else "names")],
        reading=f"The largest difference comes first. An outlier is {marked(times)}.",
        tables=[_contrast_table(contrast)],
    )


def _contrast_table(contrast: StepContrast) -> Table:
    """All numbers of the comparison."""
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


def why_no_contrast(times: StepTimes) -> str:
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


def last_steps(times: StepTimes, unit: Unit, *, with_day: bool) -> Figure:
    """The last steps in parts, and what covers most of their time."""
    last = times.last
    n = len(last.numbers)
    rank = rank_name(last.node, last.rank, times)
    of = f" of {rank}" if rank else ""
    which = (
        f"Last {n} {mode_name(last.mode)}steps{of}" if n > 1 else f"The only {mode_name(last.mode)}step{of}"
    )
    found = _largest_part(last, with_day=with_day)
    reading = [*_bars(last, unit)]
    if n > 1:
        reading.append("The last bar ends with its step.")
    reading.append(
        "Each moment counts once; hatched: no event."
        if last.by_event
        else "No events were recorded for these steps: only the step and the time to the next are known."
    )
    key = [(parts.fill(part, last.parts), _part_name(part), "") for part in reversed(last.parts)]
    return Figure(
        name="steps-last",
        title="Last steps in parts",
        finding=f"{which}{f': {found}' if found else ''}.",
        aid="A bar runs from one step's start to the next.",
        key=key,
        drawings=[Drawing(figure=parts.last_steps(last, unit))],
        reading=" ".join(reading),
        tables=[_parts_of_last(last, unit)],
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
        return f"{share} of the time is {'inside' if largest.key == 'in-steps' else 'outside'} steps{ended}"
    if largest.role == "unknown":
        return f"no event covers {share} of the time{ended}"
    return f"{_part_name(largest)} takes {share} of the time"


def _ended(last: LastSteps, *, with_day: bool) -> str:
    """``; data loading was recorded only until 07:56:56``; empty if recording did not end before."""
    if last.ended_us is None:
        return ""
    name = named(last.ended).name
    the, was = "the " * name.endswith("pass"), "were" if name.endswith("operators") else "was"
    return f"; {the}{name} {was} recorded only until {formats.column_time(last.ended_us, with_day=with_day)}"


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
    """The part that most of the variance of the bars goes with; empty if they differ little or in several."""
    mean = sum(bars) / len(bars)
    if max(bars) - min(bars) < WORTH_A_REASON * mean:
        return ""
    # The covariances of the parts with the bars add up to the variance of the bars.
    covariance = [
        sum(us * (bar - mean) for us, bar in zip(part.time_us[:-1], bars, strict=True)) for part in last.parts
    ]
    most = max(covariance)
    if most < MOST_OF_VARIANCE * sum((bar - mean) ** 2 for bar in bars):
        return ""
    in_words = {
        "no-event": "time without events",
        "outside-steps": "the time to the next step",
        "in-steps": "the step itself",
    }
    part = last.parts[covariance.index(most)]
    return in_words.get(part.key, _part_name(part))


def _part_name(part: StepPart) -> str:
    return formats.escape_name(part.label, 40)


def _parts_of_last(last: LastSteps, unit: Unit) -> Table:
    """The parts of each of the last steps."""
    columns = (*(part.time_us for part in last.parts), last.total_us)
    return Table(
        label="The last steps in parts",
        fold=f"the last steps in parts ({unit.name})",
        heads=(":Step", *map(_part_name, last.parts), "Total"),
        rows=[
            (name, *map(unit.text, times_us))
            for name, *times_us in zip(parts.step_names(last), *columns, strict=True)
        ],
    )
