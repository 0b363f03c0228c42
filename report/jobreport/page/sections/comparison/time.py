"""Where the time of the jobs and of their GPUs went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats
from jobreport.comparison import words
from jobreport.formats import time_scale
from jobreport.page.figures.canvas import Figure  # noqa: TC001 - msgspec reads the annotation
from jobreport.page.figures.chart import along
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table, as_code, swatch
from jobreport.page.sections.comparison.outline import heading, headings_of, section
from jobrules.model.time_parts import ROLES, named
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison, Profiled, WorkTime
    from jobreport.formats import TimeScale
    from jobreport.page.kit.section import Heading
    from jobrules.model.time_parts import TimePart

#: What each kind of recorded work is counted by.
KINDS = {
    "operator": "Operators: own time on the host",
    "mark": "Marks of the program: time on the host, with what they hold",
    "kernel": "Kernels: time on the device",
}
#: Time of a step outside of all parts that is named, as a share of the step.
MIN_REST = 0.01
#: Variants whose percentages stand in the table too.
MAX_SHARES = 4


class Shown(Struct, frozen=True, kw_only=True):
    """A figure with its table."""

    id: str
    figure: Figure
    number: str
    caption: str
    aid: str
    style: str
    table: Table


@section
def time(comparison: Comparison) -> Fragment:
    """Figures of stacked bars, each with its table: of the job, its GPUs, and profiled steps; and what these ran."""
    place = heading("time")
    figures = []
    if comparison.goodput:
        figures.append(_goodput(comparison, place))
    if comparison.device_time:
        figures.append(_devices(comparison, place))
    traces = comparison.profiled
    if traces and traces.time:
        figures.append(_profiled(comparison, traces, place))
    html = render(
        "comparison/time",
        heading=place,
        figures=figures,
        work=_work(comparison, traces) if traces and traces.work else None,
        same_work=_same_work(traces) if traces and not traces.work else "",
        json=document_json("time", {one.id: one.figure.live for one in figures}),
    )
    return Fragment(name="time", html=html)


def _goodput(comparison: Comparison, place: Heading) -> Shown:
    parts = comparison.goodput
    productive = {label: next(p for p in own if p.key == "productive") for label, own in parts.items()}
    named = ", ".join(
        f"{label} {formats.percent(part.percent)}" for label, part in list(productive.items())[:4]
    )
    unknown = sorted({p.label.lower() for own in parts.values() for p in own if not p.measured})
    aid = "Each moment counts once. Blue: training. Orange: lost time of training. Gray: outside of training."
    if unknown:
        aid += f" Not recorded in all runs: {', '.join(unknown)}."
    return _figure(
        comparison,
        place,
        name="goodput",
        parts=parts,
        caption=f"Goodput, the share of the job that trained: {named}.",
        aid=aid,
        unit="s",
        digits=1,
    )


def _devices(comparison: Comparison, place: Heading) -> Shown:
    parts = comparison.device_time
    lost = {label: sum(p.amount for p in own if p.role == "lost") for label, own in parts.items()}
    named = ", ".join(f"{label} {formats.number(hours, 3)}" for label, hours in list(lost.items())[:4])
    return _figure(
        comparison,
        place,
        name="devices",
        parts=parts,
        caption=f"GPU-hours lost: {named}.",
        aid="All bars have one scale. Blue: used. Orange: lost, by cause.",
        unit="GPU-h",
        digits=3,
        to_scale=True,
    )


def _profiled(comparison: Comparison, traces: Profiled, place: Heading) -> Shown:
    scale = time_scale(_whole(own) for own in traces.time.values())
    parts = {
        label: [replace(part, amount=part.amount * scale.factor) for part in own]
        for label, own in traces.time.items()
    }
    computed = {label: next((p for p in own if p.key == "computing"), None) for label, own in parts.items()}
    named = ", ".join(
        f"{label} {formats.percent(part.percent if part else 0.0)}"
        for label, part in list(computed.items())[:4]
    )
    return _figure(
        comparison,
        place,
        name="profiled",
        parts=parts,
        caption=f"Computing in the profiled time: {named}.",
        aid=f"Mean {'step' if traces.per_step else 'trace'} of one GPU in the profiled stretch. Blue: work that nothing "
        f"hides. Orange: waiting.{_rest_of_steps(comparison, traces)}",
        unit=scale.unit,
        digits=scale.digits,
        to_scale=traces.per_step,
    )


def _rest_of_steps(comparison: Comparison, traces: Profiled) -> str:
    """How much of a step the parts leave out; empty if next to nothing, or without steps."""
    steps = next((one.values for one in comparison.measures if one.key == "profiled_step_s"), {})
    pairs = {
        label: (_whole(own), step)
        for label, own in traces.time.items()
        if traces.per_step and (step := steps.get(label)) and _whole(own) < (1 - MIN_REST) * step
    }
    if not pairs:
        return ""
    named = [
        f"{parts} of {whole} of {label}"
        for label, (parts, whole) in ((label, words.times(*pair)) for label, pair in pairs.items())
    ]
    return f" The parts hold {', '.join(named)}: a step has time before the first and after the last GPU work, too."


def _same_work(traces: Profiled) -> str:
    """That nothing changed; empty if nothing was recorded of all."""
    kinds = join_names([f"{kind}s" for kind in traces.compared])
    return f"The {kinds} of all traces have the same calls and times." if kinds else ""


def _work(comparison: Comparison, traces: Profiled) -> Table:
    """Operators, marks, and kernels that changed most."""
    labels = comparison.labels
    two = len(labels) == 2
    each = "step" if traces.per_step else "trace"
    scale = time_scale(time.high_s for row in traces.work for time in row.variants.values())
    rows: list[str | list[str]] = []
    for kind, title in KINDS.items():
        found = [row for row in traces.work if row.kind == kind]
        rows += [title] if found else []
        for row in found:
            times = [row.variants[label] for label in labels]
            calls = [formats.known(one.calls, int(0 < (one.calls or 0) < 10)) for one in times]
            rows.append(
                [
                    as_code(row.name),
                    *([" → ".join(calls)] if two else ()),
                    *(_time(one, scale) for one in times),
                    *([_changed(times[0], times[1], scale)] if two else ()),
                ]
            )
    timed = [f"{head} ({scale.unit})" for head in headings_of(labels)]
    around = (["Calls"], [f"Change ({scale.unit})"]) if two else ([], [])
    limited = any(time.calls is None for row in traces.work for time in row.variants.values())
    limits = " ≤: not among the names with most time, so only a limit is known." if limited else ""
    return Table(
        label="Recorded work that changed most",
        heads=[":Name", *around[0], *timed, *around[1]],
        rows=rows,
        caption=f"What changed most in the traces, per {each} of one rank.{limits}",
    )


def _time(found: WorkTime, scale: TimeScale) -> str:
    return scale(found.low_s) if found.calls is not None else f"≤{formats.NBSP}{scale(found.high_s)}"


def _changed(one: WorkTime, other: WorkTime, scale: TimeScale) -> str:
    """The change, or its least amount if one of the times is a limit."""
    if one.calls is not None and other.calls is not None:
        return _moved((other.low_s - one.low_s) * scale.factor, scale.digits)
    rises = other.low_s > one.high_s
    least = other.low_s - one.high_s if rises else other.high_s - one.low_s
    return f"{'≥' if rises else '≤'}{formats.NBSP}{_moved(least * scale.factor, scale.digits)}"


def _figure(
    comparison: Comparison,
    place: Heading,
    *,
    name: str,
    parts: Mapping[str, Sequence[TimePart]],
    caption: str,
    aid: str,
    unit: str,
    digits: int,
    to_scale: bool = False,
) -> Shown:
    """Bars of 100%, or ``to_scale`` of the amounts."""
    labels = [label for label in comparison.labels if label in parts]
    by_key = {label: {p.key: p for p in parts[label]} for label in labels}
    known = {
        p.key: p for own in parts.values() for p in own if round(p.amount, digits) or round(p.percent, 1)
    }
    shown = sorted(known.values(), key=lambda p: ROLES.index(p.role))

    def amount(label: str, key: str) -> float:
        return by_key[label][key].amount if key in by_key[label] else 0.0

    def share(label: str, key: str) -> float:
        return by_key[label][key].percent if key in by_key[label] else 0.0

    drawn: Figure = stacked(
        labels,
        [
            Part(
                style=named(part.key).fill,
                label=part.label,
                percents=tuple(share(label, part.key) for label in labels),
                amounts=tuple(words.value(amount(label, part.key), unit) for label in labels),
                lengths=tuple(amount(label, part.key) for label in labels) if to_scale else (),
            )
            for part in shown
        ],
        bar="Variant",
        amount="Amount",
        x=along(0, max(_whole(own) for own in parts.values()) or 1.0, unit=f" {unit}") if to_scale else None,
    )
    two, shares = len(labels) == 2, len(labels) <= MAX_SHARES
    rows: list[list[str]] = []
    for part in shown:
        amounts = [amount(label, part.key) for label in labels]
        cells: list[str] = [swatch(named(part.key).fill, part.label)]
        for label, one in zip(labels, amounts, strict=True):
            cells.append(formats.number(one, digits))
            if shares:
                cells.append(formats.percent(share(label, part.key)))
        if two:
            cells.append(_moved(amounts[1] - amounts[0], digits))
        rows.append(cells)
    heads = [":Part"]
    for head in headings_of(labels):
        heads += [f"{head} ({unit})", *(["%"] if shares else [])]
    if two:
        heads.append(f"Change ({unit})")
    return Shown(
        id=f"live-time-{name}",
        figure=drawn,
        number=place.figure(),
        caption=caption,
        aid=aid,
        style=f"names {rows_class(len(labels))}",
        table=Table(label=caption, heads=heads, rows=rows),
    )


def _whole(parts: Sequence[TimePart]) -> float:
    return sum(part.amount for part in parts)


def _moved(amount: float, digits: int) -> Markup:
    text = f"{abs(amount):,.{digits}f}"
    sign = "" if not float(text.replace(",", "")) else "+" if amount > 0 else formats.MINUS
    return Markup("{}{}").format(sign, text)
