"""Whether the model learned: loss, gradients, updates, activations, and classes, and how they were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.formats import compact
from jobreport.page.figures.learning.courses import Values, courses
from jobreport.page.figures.learning.layers import (
    USUAL,
    cells,
    decade_labels,
    has_holes,
    height_of,
    layer_map,
    spreads,
)
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Empty, Figure, Sentences, Table
from jobreport.page.kit.fragment import place
from jobreport.page.kit.table import PERCENT_SCALE, as_code, bar, swatch
from jobreport.page.sections.devices import color_scale
from jobreport.page.sections.outline import section
from jobreport.sentences import LOSS_EVENTS, loss_sentence
from jobrules.analyses.learning.layers import DECADES, NOT_FINITE, ZERO
from jobrules.measures.learning.last_classes import MIN_OF_CLASS
from jobrules.model.learning import (
    ACCURACY,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    VAL_ACCURACY,
    VAL_LOSS,
)
from jobrules.text import capitalized, count, dated, join_names, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block, Entry
    from jobreport.page.kit.section import Content
    from jobrules.analyses.learning.layers import LayerMap, Spread
    from jobrules.analyses.learning.plots import Classes, LearningPlots, ScalarRow

#: What readers look for.
LOOKED_FOR = "`jobrecord.log`, TensorBoard events, tables of metrics (`metrics.csv`), `trainer_state.json`, and lines of logs"
#: Characters of events on the loss.
_MARKS = {"spike": "▾", "overflow": "×", "skipped": "×"}


@section
def learning(report: Report) -> Content:
    """Series and tensors over steps."""
    found = report.learning or None
    nothing = f"No loss was found. Looked for: {LOOKED_FOR}."
    if found is None:
        return Empty(nothing, absent=True)
    return [
        *([] if found.has_loss else [nothing.replace("`", "")]),
        _loss(found),
        _accuracy(found),
        _gradients(found),
        _updates(found),
        _activations(found),
        *_classes(found.classes or None),
        _scalars(found),
        Sentences(found.how),
    ]


# --- series


def _loss(found: LearningPlots) -> Figure | None:
    """The loss of training as a line, that of validation as points, and small plots of what steers it."""
    loss, validation = found.course(LOSS), found.course(VAL_LOSS)
    drawn = [one for one in (loss, validation) if one]
    if not drawn or found.columns is None:
        return None
    marks = {name: character for name, character in _MARKS.items() if name in found.marks}
    figure = courses(found, [("s1", drawn[0])], validation if loss else None, best=found.best, marks=marks)
    small = {LEARNING_RATE: "Learning rate", LOSS_SCALE: "Loss scale"}
    every = f"columns of {found.columns.width:,} steps" if found.columns.width > 1 else "each step"
    logarithmic = ", logarithmic scale" if Values.of(drawn).logarithmic else ""
    utc = "; below the steps, times in UTC" if _has_times(found) else ""
    return Figure(
        name="learning-loss",
        title="Loss",
        finding=loss_sentence(found),
        aid=f"Line: median, and band: lowest to highest, of {every}{logarithmic}{utc}.",
        reading="Best validation loss: the lowest median of three neighboring evaluations, if there are 8 or more."
        if found.best
        else "",
        key=_loss_key(found, has_points=bool(loss and validation)),
        drawings=[
            Drawing(figure=figure, title="Loss"),
            *(
                Drawing(figure=courses(found, [("s1", one)]), title=title, style="low")
                for name, title in small.items()
                if (one := found.course(name))
            ),
        ],
    )


def _has_times(found: LearningPlots) -> bool:
    return bool(found.times) and dated(found.times[0][1])


def _loss_key(found: LearningPlots, *, has_points: bool) -> list[Entry]:
    entries: list[Entry] = [("s1", "training" if has_points else "median", "")]
    entries += [Markup("<span>• validation</span>")] if has_points else []
    entries += [Markup("<span>▼ best validation loss</span>")] if found.best else []
    if any(one.not_finite for one in found.courses if one.name in (LOSS, LEARNING_RATE, LOSS_SCALE)):
        entries.append(("l", "NaN or infinite", ""))
    entries += [Markup("<span>┊ resumed</span>")] if "resume" in found.marks else []
    marked = [(character, LOSS_EVENTS[name]) for name, character in _MARKS.items() if name in found.marks]
    return entries + [Markup("<span>{} {}</span>").format(*one) for one in marked]


def _accuracy(found: LearningPlots) -> Figure | None:
    lines = [
        (style, words, one)
        for style, words, name in (("s1", "training", ACCURACY), ("s2", "validation", VAL_ACCURACY))
        if (one := found.course(name))
    ]
    if not lines:
        return None
    last = [f"{words} {compact(_row(found, one.name).last)}" for _, words, one in lines]
    return Figure(
        name="learning-accuracy",
        title="Accuracy",
        finding=f"Accuracy at the end: {', '.join(last)}.",
        key=[(style, words, "") for style, words, _ in lines],
        drawings=[Drawing(figure=courses(found, [(style, one) for style, _, one in lines]), style="low")],
    )


def _row(found: LearningPlots, name: str) -> ScalarRow:
    return next(one for one in found.scalars if one.name == name)


def _scalars(found: LearningPlots) -> Table | None:
    """Every series in numbers."""
    if not found.scalars:
        return None
    return Table(
        label="Series that were logged",
        caption=f"Series that were logged, of the first rank.{formats.not_shown(found.scalars_left, 'series', 'series')}",
        fold="series that were logged",
        heads=[
            *(":Series", ":Logged as", ":Mode", ":Source"),
            *("Values", "NaN or infinite", "First", "Last", "Lowest", "Highest"),
        ],
        rows=[
            [
                as_code(one.name),
                as_code(one.logged_as),
                formats.escape_name(one.mode, 24),
                formats.escape_name(one.source, 40),
                formats.number(one.values, 0),
                formats.number(one.not_finite, 0),
                *map(compact, (one.first, one.last, one.low, one.high)),
            ]
            for one in found.scalars
        ],
    )


# --- tensors


def _gradients(found: LearningPlots) -> Figure | None:
    """The norm of all gradients, and their size by layer and step."""
    norm, by_layer = found.course(GRADIENT_NORM), found.gradients or None
    drawings: list[Block] = []
    if norm:
        drawings.append(
            Drawing(figure=courses(found, [("s1", norm)]), title="Gradient norm of the model", style="low")
        )
    if by_layer:
        drawings.append(_drawn_map(by_layer, "Size of gradients by layer (rms)", shares=False))
    if not drawings:
        return None
    return Figure(
        name="learning-gradients",
        title="Gradients",
        finding=_gradients_finding(found),
        aid=f"Color: root mean square, {DECADES} decades below the largest; all that is smaller is at the low end."
        if by_layer
        else "",
        key=_map_key(by_layer, decade_labels(by_layer)) if by_layer else (),
        drawings=drawings,
        tables=[_of_map(by_layer, "Gradients")] if by_layer else [],
    )


def _gradients_finding(found: LearningPlots) -> str:
    if found.gradients and (ranked := found.gradients.extremes):
        low, high = ranked[0], ranked[-1]
        if low is not high:
            return (
                f"Median size of gradients: from {compact(low.median)} in {_name(low)} to {compact(high.median)} in "
                f"{_name(high)}."
            )
    if found.course(GRADIENT_NORM):
        row = _row(found, GRADIENT_NORM)
        return f"The gradient norm of the model was {compact(row.low)} to {compact(row.high)}, {compact(row.last)} at the end."
    return "Gradients of one tensor were recorded."


def _name(one: Spread) -> str:
    return formats.escape_name(one.name, 40)


def _drawn_map(found: LayerMap, title: str, *, shares: bool) -> Drawing:
    lines = Markup("").join(Markup('<path class="q{}" d="{}"/>').format(*path) for path in cells(found).paths)
    static = Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" width="100%" height="100%">'
        '<g class="cells" stroke-width="{}">{}</g></svg>'
    ).format(found.columns.count, 10 * len(found.rows), place(cells(found).thickness), lines)
    return Drawing(
        figure=layer_map(found, shares=shares),
        title=title,
        style=f"names tall-{height_of(len(found.rows))}",
        cells=static,
    )


def _map_key(found: LayerMap, ends: tuple[str, str]) -> list[Entry]:
    """The scale of the colors, and what else is drawn."""
    others = [
        *([swatch("value", "exactly 0")] if any(ZERO in one.levels for one in found.rows) else []),
        *([swatch("l", "NaN or infinite")] if any(NOT_FINITE in one.levels for one in found.rows) else []),
        *([swatch("x", "not recorded")] if has_holes(found) else []),
    ]
    return [color_scale(*ends), *others]


def _of_map(found: LayerMap, what: str) -> Table:
    """Of many tensors those with the lowest and with the highest values."""
    return _spreads(found.extremes, what, found.tensors - len(found.extremes))


def _spreads(found: Sequence[Spread], what: str, left: int = 0) -> Table:
    """Numbers of tensors or blocks."""
    heads = (":Layer", "Tensors", "Records", "Exactly 0", "Lowest", "p25", "Median", "p75", "Highest")
    return Table(
        label=f"{what} in numbers",
        fold=f"{what.lower()} in numbers",
        caption=f"{what} in numbers.{formats.not_shown(left, 'tensor')}",
        heads=heads,
        rows=[
            [
                as_code(one.name),
                *(formats.number(n, 0) for n in (one.tensors, one.records, one.zeros)),
                *map(compact, (one.low, one.p25, one.median, one.p75, one.high)),
            ]
            for one in found
        ],
    )


def _updates(found: LearningPlots) -> Figure | None:
    """How much a step moves each weight."""
    if not found.updates:
        return None
    low, high = (10.0**end for end in USUAL)
    outside = [one for one in found.updates if not low <= one.median <= high]
    finding = "The median update of every layer is in the usual range."
    if outside:
        finding = (
            f"The median update of {len(outside)} of {count(len(found.updates), 'layer')} is outside of the usual range, "
            f"{compact(low)} to {compact(high)} of the weight: {join_names([_name(one) for one in outside], 3)}."
        )
    return Figure(
        name="learning-updates",
        title="Updates of weights",
        finding=finding,
        aid="Norm of an update by the norm of its weight. Box: p25 to p75; line: lowest to highest.",
        key=[("band2", "usual range", "")],
        drawings=[Drawing(figure=spreads(found.updates), style=f"names {rows_class(len(found.updates))}")],
        tables=[_spreads(found.updates, "Updates of weights")],
    )


def _activations(found: LearningPlots) -> Figure | None:
    """Dead and saturated parts of the activations."""
    shares = found.activations or None
    if not shares or not shares.extremes:
        return None
    worst = shares.extremes[-1]
    kinds = sorted({one.kind for one in shares.rows})
    kind = next((one.kind for one in shares.rows if one.name == worst.name), " or ".join(kinds))
    return Figure(
        name="learning-activations",
        title="Activations",
        finding=f"Most {' or '.join(kinds)}: {_name(worst)}, where {percent(100 * worst.median)} are {kind} in the median record.",
        aid="Dead: units of ReLU layers without a positive output in 10 records. Saturated: outputs near an end of their range.",
        key=_map_key(shares, ("0%", "100%")),
        drawings=[_drawn_map(shares, f"{capitalized(' or '.join(kinds))} share by layer", shares=True)],
        tables=[_of_map(shares, "Shares of activations")],
    )


# --- classes


def _classes(found: Classes | None) -> list[Block]:
    if found is None:
        return []
    known = [one for one in found.rows if one.recall is not None]
    right = (
        ""
        if found.right is None
        else f"{percent(100 * found.right)} of {count(found.labels, 'prediction')} were right. "
    )
    lowest = (
        f"Lowest recall: class {known[0].number} ({percent(100 * (known[0].recall or 0))})." if known else ""
    )
    left = formats.not_shown(found.classes - len(found.rows), "class", "classes")
    return [
        Table(
            label="Classes",
            caption=f"{right}{lowest}",
            aid=f"The last of {count(found.evaluations, 'evaluation')}, at step {found.step:,}.{left}",
            heads=(":Class", "Labels", "Predicted", "Recall (%)", PERCENT_SCALE),
            rows=[
                [
                    str(one.number),
                    formats.number(one.labels, 0),
                    formats.number(one.predicted, 0),
                    formats.known(None if one.recall is None else 100 * one.recall),
                    bar(("u", 100 * (one.recall or 0.0))),
                ]
                for one in found.rows
            ],
        ),
        Table(
            label="Classes taken for others",
            caption=f"Classes taken for others, of those with at least {MIN_OF_CLASS} labels.",
            fold="classes taken for others",
            heads=(":Class", ":Predicted as", "Count", "Share of the class (%)"),
            rows=[
                [str(label), str(other), formats.number(n, 0), formats.number(100 * share)]
                for label, other, n, share in found.pairs
            ],
        )
        if found.pairs
        else None,
    ]
