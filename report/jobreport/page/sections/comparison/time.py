"""Time of the jobs and of their GPUs in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats
from jobreport.comparison import words
from jobreport.formats import time_scale
from jobreport.page.figures.chart import along
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit import Drawing, Empty, Figure, Table
from jobreport.page.kit.table import as_code, swatch
from jobreport.page.sections.comparison.outline import headings_of, section
from jobrules.model.time_parts import ROLES, named
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison, Profiled, WorkTime
    from jobreport.formats import TimeScale
    from jobreport.page.figures import canvas
    from jobreport.page.kit.section import Content
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


class Bars(Struct, frozen=True, kw_only=True):
    """A bar of parts for each variant."""

    name: str
    #: Parts of each variant by their key.
    parts: Mapping[str, Mapping[str, TimePart]]
    finding: str
    aid: str
    unit: str
    digits: int
    #: The length of a bar is its amount; otherwise all bars are 100%.
    to_scale: bool = False

    def unknown(self, key: str) -> list[bool]:
        """Whether nothing was recorded in each variant that could show a part."""
        found = (own.get(key) for own in self.parts.values())
        return [part is not None and not part.measured and not part.amount for part in found]

    def values(self, key: str) -> list[tuple[float, float]]:
        """Amount and percent of a part in each variant; 0 where a variant does not have it."""
        found = (own.get(key) for own in self.parts.values())
        return [(part.amount, part.percent) if part else (0.0, 0.0) for part in found]

    @property
    def shown(self) -> list[TimePart]:
        """The parts that some variant has, by role."""
        known = {
            key: part
            for own in self.parts.values()
            for key, part in own.items()
            if round(part.amount, self.digits) or round(part.percent, 1)
        }
        return sorted(known.values(), key=lambda part: ROLES.index(part.role))


@section
def time(comparison: Comparison) -> Content:
    """Figures of stacked bars, each with its table: of the job, its GPUs, and profiled steps; and what these ran."""
    traces = comparison.profiled
    blocks = [
        _figure(_goodput(comparison)) if comparison.goodput else None,
        _figure(_devices(comparison)) if comparison.device_time else None,
        _figure(_profiled(comparison, traces)) if traces and traces.time else None,
        _work(comparison, traces) if traces and traces.work else None,
        _same_work(traces) if traces and not traces.work else "",
    ]
    return blocks if any(blocks) else Empty("Neither steps, GPU samples, nor traces were recorded.")


def _by_key(
    comparison: Comparison, parts: Mapping[str, Sequence[TimePart]]
) -> dict[str, dict[str, TimePart]]:
    """The parts of each variant by their key, in the order of the variants."""
    return {label: {part.key: part for part in parts[label]} for label in comparison.labels if label in parts}


def _goodput(comparison: Comparison) -> Bars:
    parts = _by_key(comparison, comparison.goodput)
    every = [part for own in parts.values() for part in own.values()]
    named = ", ".join(
        f"{label} {formats.percent(own['productive'].percent)}" for label, own in list(parts.items())[:4]
    )
    unknown = sorted({part.label.lower() for part in every if not part.measured})
    aid = "Each moment counts once. Blue: training. Orange: lost time of training. Gray: outside of training."
    if unknown:
        aid += f" Not recorded in all runs: {', '.join(unknown)}."
    return Bars(
        name="goodput",
        parts=parts,
        finding=f"Goodput, the share of the job that trained: {named}.",
        aid=aid,
        unit="s",
        digits=1,
    )


def _devices(comparison: Comparison) -> Bars:
    parts = _by_key(comparison, comparison.device_time)
    lost = {
        label: sum(part.amount for part in own.values() if part.role == "lost")
        for label, own in parts.items()
    }
    named = ", ".join(f"{label} {formats.number(hours, 3)}" for label, hours in list(lost.items())[:4])
    return Bars(
        name="devices",
        parts=parts,
        finding=f"GPU-hours lost: {named}.",
        aid="All bars have one scale. Blue: used. Orange: lost, by cause.",
        unit="GPU-h",
        digits=3,
        to_scale=True,
    )


def _profiled(comparison: Comparison, traces: Profiled) -> Bars:
    scale = time_scale(_whole(own) for own in traces.time.values())
    parts = {
        label: {key: replace(part, amount=part.amount * scale.factor) for key, part in own.items()}
        for label, own in _by_key(comparison, traces.time).items()
    }
    computed = {
        label: own["computing"].percent if "computing" in own else 0.0 for label, own in parts.items()
    }
    named = ", ".join(f"{label} {formats.percent(share)}" for label, share in list(computed.items())[:4])
    return Bars(
        name="profiled",
        parts=parts,
        finding=f"Computing in the profiled time: {named}.",
        aid=f"Mean {'step' if traces.per_step else 'trace'} of one GPU in the profiled stretch. Blue: work that nothing "
        f"hides. Orange: waiting.{_rest_of_steps(comparison, traces)}",
        unit=scale.unit,
        digits=scale.digits,
        to_scale=traces.per_step,
    )


def _rest_of_steps(comparison: Comparison, traces: Profiled) -> str:
    """Time of a step that the parts leave out; empty if next to nothing, or without steps."""
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
        return formats.signed((other.low_s - one.low_s) * scale.factor, scale.digits)
    rises = other.low_s > one.high_s
    least = other.low_s - one.high_s if rises else other.high_s - one.low_s
    return f"{'≥' if rises else '≤'}{formats.NBSP}{formats.signed(least * scale.factor, scale.digits)}"


def _figure(bars: Bars) -> Figure:
    return Figure(
        name=f"time-{bars.name}",
        title=bars.finding,
        finding=bars.finding,
        aid=bars.aid,
        drawings=[
            Drawing(figure=_drawing(bars), label=bars.finding, style=f"names {rows_class(len(bars.parts))}")
        ],
        tables=[_table(bars)],
    )


def _drawing(bars: Bars) -> canvas.Figure:
    drawn = []
    for part in bars.shown:
        amounts, percents = zip(*bars.values(part.key), strict=True)
        drawn.append(
            Part(
                style=named(part.key).fill,
                label=part.label,
                percents=percents,
                amounts=tuple(words.value(amount, bars.unit) for amount in amounts),
                lengths=amounts if bars.to_scale else (),
            )
        )
    longest = max(_whole(list(own.values())) for own in bars.parts.values())
    x = along(0, longest or 1.0, unit=f" {bars.unit}") if bars.to_scale else None
    return stacked(list(bars.parts), drawn, bar="Variant", amount="Amount", x=x)


def _table(bars: Bars) -> Table:
    """Amounts, of few variants with their shares, of two with the change."""
    labels = list(bars.parts)
    two, shares = len(labels) == 2, len(labels) <= MAX_SHARES
    rows: list[list[str]] = []
    for part in bars.shown:
        values = bars.values(part.key)
        cells: list[str] = [swatch(named(part.key).fill, part.label)]
        unknown = bars.unknown(part.key)
        for (amount, percent), is_unknown in zip(values, unknown, strict=True):
            cells.append("not measured" if is_unknown else formats.number(amount, bars.digits))
            cells += [("–" if is_unknown else formats.percent(percent))] if shares else []
        change = None if any(unknown) else values[-1][0] - values[0][0]
        rows.append([*cells, *([formats.signed(change, bars.digits)] if two else [])])
    heads = [":Part"]
    for head in headings_of(labels):
        heads += [f"{head} ({bars.unit})", *(["%"] if shares else [])]
    return Table(label=bars.finding, heads=[*heads, *([f"Change ({bars.unit})"] if two else [])], rows=rows)


def _whole(parts: Sequence[TimePart]) -> float:
    return sum(part.amount for part in parts)
