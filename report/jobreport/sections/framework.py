"""Where the framework's time went: steps, forward and backward, data loading, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.figures.framework import MOST_RANKED, Pair, Rank, Stack, of_slices, other, ranked, stacked
from jobreport.figures.names import rows_class
from jobreport.formats import seconds, time_scale
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.analyses.framework import BACKWARD, ENOUGH_EVENTS, OUTSIDE
from jobrules.measures.data_loading import FETCH, PIPELINE, SET_UP
from jobrules.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models import Plot

    from jobreport.document import Report
    from jobrules.analyses.framework import EventTypeTime, FrameworkTime, Operators, Slice

#: Time outside of steps that is worth a look, in percent.
MUCH_OUTSIDE = 25.0
#: Of both passes together; more is told as uneven.
UNEVEN = 70.0
#: Workers whose time outside of steps differs from the median by less are alike, in points.
ALIKE_POINTS = 5.0
#: What ran for more of the time between steps is named, in percent.
MUCH_BETWEEN = 10.0
_RULE = "OverallFrameworkMetrics"
#: Phases that the section on data loading tells of.
_LOADING = frozenset({FETCH, SET_UP, PIPELINE})
#: Rows of a table that stand open.
MOST_OPEN = 10
_PHASE_FILLS = ("u", "u2", "u3", "f3", "n1")
_PASS_FILLS = ("u", "u2")


class Figure(Struct, frozen=True, kw_only=True):
    """A drawing with its live twin, as the template wants it."""

    name: str
    pair: Pair
    style: str
    label: str
    caption: str

    @property
    def live_id(self) -> str:
        """The element that the live plot is drawn in."""
        return f"live-framework-{self.name}"


@error_boundary
def framework(report: Report) -> Fragment:
    """Figures of shares, the largest first; operators by the time that is their own; the tables behind them."""
    time = report.framework
    if time is None:
        html = render(
            "framework",
            heading=heading("framework", report),
            time=None,
            told=_told_in_rules(report),
            rules=heading("rules"),
            why_none=_why_none(report),
        )
        return Fragment(name="framework", html=html)
    between = _between(time)
    figures = {
        "ranks": _ranks_figure(time),
        "passes": _passes_figure(time),
        "general": _general_figure(time),
        "horovod": _horovod_figure(time),
    }
    operators = [(table, _operators_figure(table)) for table in time.operators if table.rows]
    plots: dict[str, Plot] = {
        one.live_id: one.pair.live
        for one in (*figures.values(), *(figure for _, figure in operators))
        if one is not None
    }
    html = render(
        "framework",
        heading=heading("framework", report),
        time=time,
        lead=_lead(time),
        between=between,
        between_link=_link(report, between) if between else None,
        figures=figures,
        operators=operators,
        operators_caption=_operators_caption(time),
        key=_key(_fills(time), time.kinds),
        passes_key=_key(_PASS_FILLS, [one.name for one in time.passes]),
        operators_basis=_operators_basis(time),
        general=seconds(time.general_s) if time.general_s is not None else "",
        enough=ENOUGH_EVENTS,
        phases_scale=time_scale(one.seconds for one in time.event_types),
        phases_days=_phases_days(time),
        nodes=len({one.node for one in time.ranks}),
        time_scale=time_scale,
        seconds=seconds,
        most_open=MOST_OPEN,
        json=document_json("framework", plots) if plots else "",
    )
    return Fragment(name="framework", html=html)


def _lead(time: FrameworkTime) -> str:
    outside = next((part.percent for part in time.steps if part.name == OUTSIDE), None)
    if outside is None:
        untold = "of the steps only their own time is known" if time.steps else "no step was recorded"
        return f"How much time lay between steps is not known: {untold}."
    text = f"{formats.percent(outside)} of the workers' time from their first to their last step lay outside of steps."
    if time.forward_only:
        return (
            f"{text} Steps end with the forward pass here, because no backward pass was recorded: backward pass, "
            "optimizer and data loading lie between them, so this share says nothing by itself."
        )
    if outside <= MUCH_OUTSIDE:
        return text
    if _between(time):
        return f"{text} That is much."
    ran = (
        ["data loading", "checkpoints"] if _evaluates(time) else ["data loading", "evaluation", "checkpoints"]
    )
    return f"{text} That is much: look at what runs between them, as {formats.join_names(ran)}."


def _evaluates(time: FrameworkTime) -> bool:
    """Whether steps of evaluation were recorded, so that they do not lie between steps."""
    return any(name.upper().startswith("EVAL") for name in (*time.kinds, *(part.name for part in time.steps)))


def _between(time: FrameworkTime) -> EventTypeTime | None:
    """The phase that ran for most of the time between steps, where that time is much and events tell it."""
    outside = next((part.percent for part in time.steps if part.name == OUTSIDE), 0.0)
    if time.forward_only or outside <= MUCH_OUTSIDE:
        return None
    known = [one for one in time.event_types if one.outside_percent is not None]
    most = max(known, key=lambda one: one.outside_percent or 0.0, default=None)
    return most if most and (most.outside_percent or 0.0) > MUCH_BETWEEN else None


def _link(report: Report, phase: EventTypeTime) -> tuple[str, str] | None:
    """Anchor and title of the section that tells more of a phase."""
    anchor = "data-loading" if phase.name in _LOADING else "cpu-bottlenecks"
    told = report.data_loading if anchor == "data-loading" else report.bottlenecks
    return (anchor, heading(anchor).title) if told else None


def _operators_basis(time: FrameworkTime) -> str:
    """What the shares of operators describe: steps and seconds."""
    ran = [
        f"{seconds(table.ran_s)} on the {table.device}" for table in time.operators if table.ran_s is not None
    ]
    lasted = f": they ran for {' and '.join(ran)}" if ran else ""
    if time.first_step is None or time.last_step is None:
        return (
            f"Operators were recorded for a part of the job{lasted}; no step is named, it may be a few only."
        )
    of = _steps(time.first_step, time.last_step)
    return f"Operators were recorded for {of}{lasted}; their shares describe these, not the job."


def _phases_days(time: FrameworkTime) -> bool:
    """Whether the stretches of the phases lie on several days."""
    if not time.event_types:
        return False
    first, last = min(one.first_us for one in time.event_types), max(one.last_us for one in time.event_types)
    return formats.spans_days(first, last)


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _key(fills: Sequence[str], names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Class, words and series of each kind in a figure of stacked bars."""
    return [
        (fill, formats.escape_name(name, 40), f"kind-{i}")
        for i, (fill, name) in enumerate(zip(fills, names, strict=False))
    ]


def _worker(time: FrameworkTime, index: int) -> str:
    one = time.ranks[index]
    several = len({other.node for other in time.ranks}) > 1
    return f"{one.node} {one.rank}".strip() if several else one.rank or one.node


def _fills(time: FrameworkTime) -> list[str]:
    """Class of each kind of time; outside of steps is waiting, unless steps end early by nature."""
    first = "f2" if time.forward_only else "l"
    return [first, *_PHASE_FILLS][: len(time.kinds)]


def _ranks_figure(time: FrameworkTime) -> Figure | None:
    if not time.ranks:
        return None
    stacks = [
        Stack(name=_worker(time, i), percents=one.percents, whole=seconds(one.seconds))
        for i, one in enumerate(time.ranks)
    ]
    if time.other_ranks:
        name = formats.count(time.other_ranks, "other")
        stacks.append(Stack(name=name, percents=time.other_percents, whole="their time"))
    pair = stacked(stacks, time.kinds, _fills(time))
    caption = _workers_caption(time)
    style = rows_class(len(stacks)) + (" names" if len(stacks) > 1 else "")
    return Figure(
        name="ranks", pair=pair, style=style, label=f"Share of step time. {caption}", caption=caption
    )


def _workers_caption(time: FrameworkTime) -> str:
    """Whether the workers are alike, and which one is not."""
    outside = [one.percents[0] for one in time.ranks]
    count = len(outside) + time.other_ranks
    if count == 1 or time.outside_median is None:
        parts = sorted(zip(time.ranks[0].percents, time.kinds, strict=True), key=lambda part: -part[0])
        share, kind = parts[0]
        where = "outside of steps" if kind == OUTSIDE else f"in {formats.escape_name(kind, 40)} steps"
        return f"The worker spent {formats.percent(share)} of its time {where}."
    usual = time.outside_median
    odd = max(range(len(outside)), key=lambda i: abs(outside[i] - usual))
    if abs(outside[odd] - usual) < ALIKE_POINTS:
        return (
            f"The {count}{formats.NBSP}workers are alike: each spent {formats.spread(outside)} "
            "of its time outside of steps."
        )
    name = formats.escape_name(_worker(time, odd), 40)
    return (
        f"Worker {name} spent {formats.percent(outside[odd])} of its time outside of steps, "
        f"the median of {count}{formats.NBSP}workers is {formats.percent(usual)}."
    )


def _passes_figure(time: FrameworkTime) -> Figure | None:
    if not time.passes:
        return None
    first = time.passes[0]
    caption = f"The {first.name.lower()} takes {formats.percent(first.percent)} of the time of both passes"
    if first.percent > UNEVEN:
        caption += (
            "; as a rule the backward pass takes about twice as long as the forward pass, so this is uneven"
            if first.name == BACKWARD
            else "; as a rule the backward pass takes longer, so this is uneven"
        )
    stack = Stack(
        name="",
        percents=tuple(one.percent for one in time.passes),
        whole=f"{seconds(sum(one.seconds for one in time.passes))} in both",
    )
    pair = stacked([stack], [one.name for one in time.passes], _PASS_FILLS)
    return Figure(
        name="passes",
        pair=pair,
        style=rows_class(1),
        label=f"Forward and backward. {caption}.",
        caption=f"{caption}.",
    )


def _general_figure(time: FrameworkTime) -> Figure | None:
    """The ten phases that ran for most of the stretch in which they were recorded."""
    told = [one for one in time.event_types if one.percent is not None][:MOST_RANKED]
    if not told:
        return None
    first, longest = told[0], max(time.event_types, key=lambda one: one.seconds if one.name else 0.0)
    caption = (
        f"{formats.escape_name(first.name, 60)} ran for {formats.percent(first.percent or 0.0)} of the time over which "
        "it was recorded"
    )
    if longest is first:
        caption += f" and took most time in all, {seconds(first.seconds)}."
    else:
        caption += (
            f"; {formats.escape_name(longest.name, 60)} took most time in all, {seconds(longest.seconds)}."
        )
    ranks = [
        Rank(name=one.name, percent=one.percent or 0.0, told=f"{seconds(one.seconds)} in all") for one in told
    ]
    return _ranked_figure("general", "Phases", caption, ranks)


def _horovod_figure(time: FrameworkTime) -> Figure | None:
    if not time.horovod:
        return None
    first = time.horovod[0]
    caption = (
        f"{formats.escape_name(first.name, 60)} takes {formats.percent(first.percent)} of Horovod's time, "
        f"{seconds(first.seconds)}."
    )
    return _ranked_figure("horovod", "Horovod", caption, _ranks(time.horovod))


def _operators_figure(table: Operators) -> Figure:
    """The ten operators with most own time."""
    shown_rows = table.rows[:MOST_RANKED]
    ranks = [
        Rank(
            name=row.name,
            percent=row.percent,
            told=f"{seconds(row.self_s)} own, {seconds(row.total_s)} in all, {formats.count(row.calls, 'call')}",
        )
        for row in shown_rows
    ]
    left = len(table.rows) - len(shown_rows) + table.others
    if left:
        ranks.append(other(left, table.others_percent + sum(row.percent for row in table.rows[MOST_RANKED:])))
    return _ranked_figure(table.device.lower(), f"Operators on the {table.device}", _finding(table), ranks)


def _ranked_figure(name: str, what: str, caption: str, ranks: Sequence[Rank]) -> Figure:
    style = f"{rows_class(len(ranks))} ranked"
    return Figure(name=name, pair=ranked(ranks), style=style, label=f"{what}. {caption}", caption=caption)


def _ranks(slices: Sequence[Slice]) -> tuple[Rank, ...]:
    return of_slices(slices, [seconds(one.seconds) for one in slices])


def _operators_caption(time: FrameworkTime) -> str:
    """What takes most on each device, and which of them had more to do."""
    found = [f"On the {table.device} {_finding(table)}." for table in time.operators if table.rows]
    if len(time.operators) > 1:
        most = max(time.operators, key=lambda table: table.self_s)
        if most.self_s:
            part = formats.percent(most.self_percent)
            found.append(f"{part} of the own time of all operators is on the {most.device}.")
    return " ".join(found)


def _finding(table: Operators) -> str:
    """The operator that takes most."""
    first = table.rows[0]
    name = formats.escape_name(first.name, 60)
    return f"{name} takes {formats.percent(first.percent)} of the operators' own time"


def _told_in_rules(report: Report) -> bool:
    """Whether the card of the rule tells the vendor's figures."""
    cards = {card.name: card.status for card in report.rules}
    return report.origin is Origin.DEBUGGER_RESULTS and cards.get(_RULE) is Status.PASSED


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return f"The vendor's results hold no {_RULE}."
    if not any(card.name == _RULE for card in report.rules):
        return f"{_RULE} was not selected."
    if report.job.steps:
        return "The steps and framework events that were recorded last no time."
    return "Neither steps nor framework events were recorded."
