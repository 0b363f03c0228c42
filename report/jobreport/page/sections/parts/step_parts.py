"""Steps in parts: outliers against normal steps, and the last steps one by one."""

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


#: Shares that differ by fewer points are not drawn.
MIN_POINTS = 1.0


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


def outlier_defined(times: StepTimes) -> str:
    """Definition of the steps that are marked."""
    return f"An outlier is longer than mean + {times.stddev:g}σ of its rank and mode or, if no step is, than twice the median."


def contrast(times: StepTimes) -> Figure | None:
    """Event types of outliers against other steps; None if they do not differ."""
    contrast = times.contrast
    if not contrast or abs(contrast.classes[0].points) < MIN_POINTS:
        return None
    first = contrast.classes[0]
    outliers, normal = formats.percent(first.outlier_percent), formats.percent(first.normal_percent)
    low = len(contrast.classes) <= 3
    return Figure(
        name="steps-contrast",
        title="Normal steps and outliers by event type",
        finding=f"{formats.escape_name(first.name, 40)} ran for {outliers} of the time of outliers and {normal} of the time "
        "of normal steps.",
        aid="Percent of step time; event types can overlap.",
        key=((parts.NORMAL, "normal steps", "normal"), (parts.OUTLIER, "outliers", "outlier")),
        drawings=[Drawing(figure=parts.contrast(contrast), style="names low" if low else "names")],
        reading=f"The largest difference comes first. {outlier_defined(times)}",
        tables=[_contrast_table(contrast)],
    )


def _contrast_table(contrast: StepContrast) -> Table:
    """All numbers of the comparison."""
    return Table(
        label="Normal steps and outliers by event type",
        caption="Normal steps and outliers by event type, in percent of their time; difference in points."
        + formats.not_shown(contrast.left, "event type"),
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
    if times.contrast:
        return f"No event type differs between outliers and normal steps by {MIN_POINTS:g} point or more."
    return (
        f"Outliers are not compared with other steps: that needs {MIN_OUTLIERS} outliers and events of both."
    )


def last_steps(times: StepTimes, unit: Unit, *, with_day: bool) -> Figure:
    """The last steps in parts, and the largest part."""
    last = times.last
    rank = rank_name(last.node, last.rank, times)
    of = f" of {rank}" if rank else ""
    which = f"Last {formats.count(len(last.numbers), f'{mode_name(last.mode)}step')}{of}"
    key = [(parts.fill(part, last.parts), _part_name(part), "") for part in reversed(last.parts)]
    return Figure(
        name="steps-last",
        title="Last steps in parts",
        finding=f"{which}{_largest_part(last, with_day=with_day)}.",
        aid="A bar runs from one step's start to the next.",
        key=key,
        drawings=[Drawing(figure=parts.last_steps(last, unit))],
        reading=f"{_reason(last)}The last bar ends with its step. Each moment counts once; hatched: no event. Without events, "
        "only the step and the time to the next are known.",
        tables=[_parts_of_last(last, unit)],
    )


def _complete_bars(last: LastSteps) -> tuple[int, ...]:
    """Bars without the last one, which no step follows; none if they are too few or take no time."""
    bars = last.total_us[:-1]
    return bars if len(bars) > 2 and any(bars) else ()


def _largest_part(last: LastSteps, *, with_day: bool) -> str:
    """The part with most of the time of the last steps, and what was no longer recorded."""
    if not _complete_bars(last):
        return ""
    largest = max(last.parts, key=lambda part: part.percent)
    ended = ""
    if last.ended_us is not None and largest.role == "unknown":
        until = formats.column_time(last.ended_us, with_day=with_day)
        ended = f"; last record of {named(last.ended).name}: {until}"
    return f", largest part: {_part_name(largest)}, {formats.percent(largest.percent)} of the time{ended}"


def _reason(last: LastSteps) -> str:
    """The part that most of the variance of the bars goes with; empty if they differ little or in several."""
    bars = _complete_bars(last)
    if not bars:
        return ""
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
    return f"Bars differ mostly in {_part_name(last.parts[covariance.index(most)])}. "


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
