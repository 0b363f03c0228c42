"""The framework's time: steps, forward and backward pass, event types, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.formats import seconds, time_scale
from jobreport.page.figures.framework import MAX_RANKED, Rank, of_slices
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit import Drawing, Empty, Figure, Subsection, Table, code
from jobreport.page.kit.table import as_code, node_cells, node_heads
from jobreport.page.sections.outline import SECTIONS, not_recorded, section, zone
from jobreport.page.sections.parts.operators import MAX_OPEN, operators, ranked_bars
from jobrules.analyses.framework import ENOUGH_EVENTS
from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.model import Status
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.framework import EventTypeTime, FrameworkTime, Slice

#: Percent of the ranks' time outside steps that is worth a look.
MUCH_OUTSIDE = 25.0
#: Percent of the time between steps, from which on the event type that ran is named.
MUCH_BETWEEN = 10.0
_RULE = "OverallFrameworkMetrics"
#: Event types that the section on data loading describes.
_LOADING = frozenset({FETCH, SET_UP, PIPELINE})
_MODE_FILLS = ("u", "u2", "u3", "f3", "n1")


@section
def framework(report: Report) -> Content:
    """Figures of shares, the largest first, and the tables behind them."""
    time = report.framework
    card = report.card(_RULE)
    if time is None and report.has_debugger and card and card.status is Status.PASSED:
        link = Markup('<a href="#r-{0}">{0}</a>').format(_RULE)
        return [code(card.headline) + Markup(" (SageMaker Debugger's {}).").format(link)]
    if time is None and not report.has_debugger and not card:
        return Empty(f"{_RULE} was not selected.")
    if time is None:
        return not_recorded("step or framework event with a duration", in_results=report.has_debugger)
    slices = _slices("time inside and outside steps", "Time inside and outside steps, all ranks.", time.steps)
    return [
        _lead(time) + _ran_between(report, time),
        _ranks(time) if time.ranks else None,
        slices,
        _ranks_table(time) if len(time.ranks) > 1 else None,
        Subsection(
            title="Event types",
            blocks=[
                _passes(time) if time.passes else None,
                _event_types(time),
                _event_types_table(time, zone(report)) if time.event_types else None,
            ],
        ),
        operators(time),
        Subsection(
            title="Horovod",
            blocks=[
                _horovod(time) if time.horovod else None,
                _slices("Horovod", "Time of each activity, all ranks.", time.horovod),
            ],
        ),
    ]


def _lead(time: FrameworkTime) -> str:
    """The share of the ranks' time outside steps, and what to look at."""
    outside = _outside(time)
    if outside is None:
        return "Time outside steps is unknown."
    found = (
        f"{formats.percent(outside)} of the ranks' time between their first and last step was outside steps."
    )
    if time.forward_only:
        return f"{found} No backward pass was recorded, so it and the optimizer count as outside steps."
    if outside <= MUCH_OUTSIDE or _between(time):
        return found
    return f"{found} Check checkpoints, and data loading and evaluation that are no part of steps."


def _outside(time: FrameworkTime) -> float | None:
    """Percent of the ranks' time outside steps."""
    return next((part.percent for part in time.steps if part.key == "outside-steps"), None)


def _between(time: FrameworkTime) -> EventTypeTime | None:
    """The event type that ran for most of the time between steps, if that time is long."""
    if time.forward_only or (_outside(time) or 0.0) <= MUCH_OUTSIDE:
        return None
    known = [one for one in time.event_types if one.outside_percent is not None]
    most = max(known, key=lambda one: one.outside_percent or 0.0, default=None)
    return most if most and (most.outside_percent or 0.0) > MUCH_BETWEEN else None


def _ran_between(report: Report, time: FrameworkTime) -> str:
    """The event type that ran between steps, with a link to the section on it."""
    between = _between(time)
    if between is None:
        return ""
    loads = between.name in _LOADING
    anchor = "data-loading" if loads else "cpu-bottlenecks"
    link = Markup(': see <a href="#{}">{}</a>').format(anchor, dict(SECTIONS)[anchor])
    return Markup(" While {} was recorded, it ran for {} of that time{}.").format(
        as_code(between.name),
        formats.percent(between.outside_percent or 0.0),
        link if (report.data_loading if loads else report.bottlenecks) else "",
    )


def _key(fills: Sequence[str], names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Class, words, and series of each kind in a figure of stacked bars."""
    return [
        (fill, formats.escape_name(name, 40), f"kind-{i}")
        for i, (fill, name) in enumerate(zip(fills, names, strict=False))
    ]


def _rank_name(time: FrameworkTime, index: int) -> str:
    one = time.ranks[index]
    several = len({other.node for other in time.ranks}) > 1
    rank = f"rank {one.rank}" if one.rank else ""
    return f"{one.node} {rank}".strip() if several else rank or one.node


def _fills(time: FrameworkTime) -> list[str]:
    """Class of each kind of time: outside steps, then of each mode."""
    return [named("outside-steps").fill, *_MODE_FILLS][: len(time.kinds)]


def _ranks(time: FrameworkTime) -> Figure:
    """A bar per rank; ranks that are left out are one bar."""
    names = [_rank_name(time, i) for i in range(len(time.ranks))]
    percents = [one.percents for one in time.ranks]
    whole = [seconds(one.seconds) for one in time.ranks]
    left = time.other_ranks
    if left:
        names.append(formats.count(left, "other"))
        percents.append(time.other_percents)
        whole.append("their time")
    fills = _fills(time)
    kinds = zip(fills, time.kinds, zip(*percents, strict=True), strict=True)
    bars = [Part(style=style, label=kind, percents=of, amounts=tuple(whole)) for style, kind, of in kinds]
    return Figure(
        name="framework-ranks",
        title="Time inside and outside steps",
        finding=_ranks_caption(time),
        aid="One bar per rank, from its first to its last step.",
        key=_key(fills, time.kinds),
        drawings=[
            Drawing(
                figure=stacked(names, bars, bar="Rank", amount="Of"),
                style=rows_class(len(names)) + (" names" if len(names) > 1 else ""),
            )
        ],
        reading="Of many ranks, those that differ most from the median come first; the last bar is the mean of the others.",
    )


def _ranks_caption(time: FrameworkTime) -> str:
    """The rank whose time outside steps differs most from the median."""
    outside = [one.percents[0] for one in time.ranks]
    usual = outside[0] if time.outside_median is None else time.outside_median
    odd = max(range(len(outside)), key=lambda i: abs(outside[i] - usual))
    name = formats.escape_name(_rank_name(time, odd), 40)
    return (
        f"Outside steps: {formats.percent(outside[odd])} of the time of {name}; median of "
        f"{formats.count(len(outside) + time.other_ranks, 'rank')}: {formats.percent(usual)}."
    )


def _passes(time: FrameworkTime) -> Figure:
    first = time.passes[0]
    times = ", ".join(f"{seconds(one.seconds)} {_direction(one)}" for one in time.passes)
    caption = (
        f"The {first.name.lower()} took {formats.percent(first.percent)} of both passes: {times}, all ranks."
    )
    both = f"{seconds(sum(one.seconds for one in time.passes))} in both"
    bars = [
        Part(style=named(one.key).fill, label=one.name, percents=(one.percent,), amounts=(both,))
        for one in time.passes
    ]
    return Figure(
        name="framework-passes",
        title="Forward and backward pass",
        finding=caption,
        aid="The backward pass usually takes about twice as long as the forward pass.",
        key=_key([part.style for part in bars], [part.label for part in bars]),
        drawings=[Drawing(figure=stacked([""], bars, bar="Rank", amount="Of"), style=rows_class(1))],
    )


def _direction(part: Slice) -> str:
    """``forward`` or ``backward``."""
    return part.name.partition(" ")[0].lower()


def _event_types(time: FrameworkTime) -> Figure | None:
    """The ten event types that ran for most of the time in which they were recorded."""
    drawn = [one for one in time.event_types if one.percent is not None][:MAX_RANKED]
    if not drawn:
        return None
    first, longest = drawn[0], max(time.event_types, key=lambda one: one.seconds if one.name else 0.0)
    share = formats.percent(first.percent or 0.0)
    ranks = [Rank(name=one.name, percent=one.percent or 0.0, detail=seconds(one.seconds)) for one in drawn]
    ran = seconds(time.general_s) if time.general_s is not None else ""
    return Figure(
        name="framework-general",
        title="Event types",
        finding=f"{formats.escape_name(first.name, 60)} ran for {share} of the time it was recorded; "
        f"{formats.escape_name(longest.name, 60)} ran longest, {seconds(longest.seconds)}.",
        aid="Each bar is a percentage of that type's own recorded time.",
        drawings=[ranked_bars(ranks)],
        reading="Recorded time runs from a rank's first to its last event of the type, summed over ranks. "
        "Event types can overlap and lie inside steps."
        + (f" Any of them ran in {ran} of the job." if ran else ""),
    )


def _slices(name: str, caption: str, parts: Sequence[Slice]) -> Table:
    scale = time_scale(part.seconds for part in parts)
    return Table(
        label=name,
        caption=caption,
        fold=name if len(parts) > MAX_OPEN else "",
        heads=(":Part", f"Time ({scale.unit})", "Share (%)"),
        rows=[
            (
                formats.count(part.count, "other") if part.count > 1 else formats.escape_name(part.name, 60),
                scale(part.seconds),
                formats.number(part.percent),
            )
            for part in parts
        ],
    )


def _ranks_table(time: FrameworkTime) -> Table:
    several = len({one.node for one in time.ranks}) > 1
    rows = [
        [
            *node_cells(one.node, one.rank if several else one.rank or one.node, several=several),
            *map(formats.number, (one.seconds, *one.percents)),
        ]
        for one in time.ranks
    ]
    if time.other_ranks:
        mean = f"Mean of {formats.count(time.other_ranks, 'other')}"
        rows.append([mean, *(["–"] if several else []), "–", *map(formats.number, time.other_percents)])
    return Table(
        label="Share of each rank's time",
        caption="Time of each rank from its first to its last step, and its shares in percent.",
        fold="share of each rank",
        heads=[
            *node_heads(":Rank", several=several),
            "Time (s)",
            *(formats.escape_name(kind, 40) for kind in time.kinds),
        ],
        rows=rows,
    )


def _event_types_table(time: FrameworkTime, zone: str) -> Table:
    first, last = min(one.first_us for one in time.event_types), max(one.last_us for one in time.event_types)
    with_day = formats.spans_days(first, last)
    scale = time_scale(one.seconds for one in time.event_types)
    return Table(
        label="Event types",
        caption="Event types: when each was recorded, and for how much of that time it ran, all ranks. "
        f"–: fewer than {ENOUGH_EVENTS}{formats.NBSP}events per rank.",
        fold="event types" if len(time.event_types) > MAX_OPEN else "",
        heads=(
            *(":Event type", "Events", f"First ({zone})", f"Last ({zone})", "Steps"),
            *(f"Time ({scale.unit})", "Share of recorded time (%)"),
        ),
        rows=[
            (
                formats.escape_name(one.name, 60) if one.name else formats.count(one.count, "other"),
                formats.number(one.events, 0),
                formats.column_time(one.first_us, with_day=with_day),
                formats.column_time(one.last_us, with_day=with_day),
                formats.number(one.steps, 0),
                scale(one.seconds),
                formats.known(one.percent),
            )
            for one in time.event_types
        ],
    )


def _horovod(time: FrameworkTime) -> Figure:
    first = time.horovod[0]
    name, share = formats.escape_name(first.name, 60), formats.percent(first.percent)
    caption = f"{name} took {share} of Horovod's time, {seconds(first.seconds)}."
    ranks = of_slices(time.horovod, [seconds(one.seconds) for one in time.horovod])
    return Figure(
        name="framework-horovod",
        title="Horovod",
        finding=caption,
        aid="Percent of the sum over activities, tensors, and ranks; activities can overlap.",
        drawings=[ranked_bars(ranks)],
    )
