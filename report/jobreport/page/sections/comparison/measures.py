"""All measures: those that were tested with their intervals, the others with their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup  # noqa: TC002 - msgspec reads the annotation
from msgspec import Struct

from jobreport.comparison import words
from jobreport.comparison.document import Word
from jobreport.comparison.markdown import SHOWN
from jobreport.comparison.measures import BY_KEY
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table
from jobreport.page.sections.comparison import marks
from jobreport.page.sections.comparison.outline import heading, headings_of, section
from jobrules.text import capitalized, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Change, Comparison, Measure

_SAME = "The same"
#: Groups of tested measures, with what is said of each.
GROUPS = (
    ("Judged", "the verdict rests on this"),
    ("Also changed", "largest change first"),
    ("Real, but small", "the interval excludes 0, the change does not count"),
    (
        "Not resolved",
        "better and worse are both possible, or of so many measures one can differ as much by chance",
    ),
    (_SAME, "the whole interval is within what counts"),
)


class Row(Struct, frozen=True, kw_only=True):
    """A measure of one variant against the base."""

    #: Of the measure; of several variants the label.
    name: str
    base: str
    value: str
    change: str
    interval: str
    glyph: Markup
    outcome: Markup


@section
def measures(comparison: Comparison) -> Fragment:
    """Tested measures on one axis; untested ones with their values; the rest with the reason."""
    tested = [one for one in comparison.measures if _is_tested(one)]
    scale = marks.Scale.of(change for one in tested for change in one.against.values())
    groups = [
        (name, about, [one for one in tested if _group(comparison, one) == name]) for name, about in GROUPS
    ]
    for _, _, found in groups:
        found.sort(key=_largest, reverse=True)
    shown = [
        (name, about, [(one.label, _rows(comparison, one, scale)) for one in found])
        for name, about, found in groups
        if found
    ]
    untested = [one for one in comparison.measures if one not in tested and _has(one, Word.NOT_TESTED)]
    rest = [one for one in comparison.measures if one not in tested and one not in untested]
    whole = [one for one in untested if not BY_KEY[one.key].is_profiled]
    # What no run lost time to is no row.
    profiled = [one for one in untested if one not in whole and any(one.values.values())]
    html = render(
        "comparison/measures",
        heading=heading("measures"),
        groups=[one for one in shown if one[0] != _SAME],
        same=[one for one in shown if one[0] == _SAME],
        finding=_finding(tested) if comparison.measures else "Too little was profiled to measure anything.",
        aid=_aid(comparison),
        scale=scale,
        several=len(comparison.others) > 1,
        base=comparison.base,
        other=comparison.others[0],
        untested=[table for own in (whole, profiled) if (table := _untested(comparison, own))],
        refused=_refused(comparison, rest),
    )
    return Fragment(name="measures", html=html)


def _is_tested(measure: Measure) -> bool:
    return any(one.low is not None and one.word is not Word.REFUSED for one in measure.against.values())


def _has(measure: Measure, word: Word) -> bool:
    return any(one.word is word for one in measure.against.values())


def _group(comparison: Comparison, measure: Measure) -> str:
    if measure.key == comparison.headline:
        return "Judged"
    if any(_has(measure, word) for word in (Word.BETTER, Word.WORSE, Word.HIGHER, Word.LOWER)):
        return "Also changed"
    if _has(measure, Word.SMALL):
        return "Real, but small"
    return "Not resolved" if _has(measure, Word.NOT_RESOLVED) else _SAME


def _largest(measure: Measure) -> float:
    return max(
        abs(one.points if one.points is not None else one.change or 0.0) for one in measure.against.values()
    )


def _rows(comparison: Comparison, measure: Measure, scale: marks.Scale) -> list[Row]:
    several = len(comparison.others) > 1
    shown = words.of_variants(measure, comparison.cost)
    return [
        Row(
            name=label if several else measure.label,
            base=shown[comparison.base],
            value=shown[label],
            change=words.change(change),
            interval=words.interval(change),
            glyph=marks.interval(scale, measure, change),
            outcome=marks.outcome(measure, change),
        )
        for label, change in measure.against.items()
    ]


def _finding(tested: Sequence[Measure]) -> str:
    if not tested:
        return "Nothing could be tested: one number for each run is no sample."
    changes = [change for one in tested for change in one.against.values()]
    variants = len(changes) // len(tested)
    counts = {word: sum(one.word is word for one in changes) for word in Word}
    named = [f"{counts[word]} {word}" for word in SHOWN if counts[word]]
    several = f" in {count(variants, 'variant')}" if variants > 1 else ""
    return f"{capitalized(count(len(tested), 'measure'))} tested{several}: {', '.join(named)}."


def _aid(comparison: Comparison) -> str:
    single = any(len(variant.runs) == 1 for variant in comparison.variants)
    noise = next(
        (
            one.run_noise
            for measure in comparison.measures
            for one in measure.against.values()
            if one.run_noise
        ),
        None,
    )
    text = "Intervals are 95%; gray: changes that count as the same."
    if single and noise:
        text = f"Of single runs a thick line is the spread within the runs, a thin one adds an assumed {noise:g}% between runs. Three runs each would measure it. {text}"
    return text


def _untested(comparison: Comparison, found: Sequence[Measure]) -> Table | None:
    """Values of each variant; of two variants the change too."""
    two = len(comparison.others) == 1
    rows = [
        [
            one.label,
            *words.of_variants(one, comparison.cost).values(),
            *([words.change(one.against[comparison.others[0]])] if two else []),
        ]
        for one in found
    ]
    if not rows:
        return None
    of_traces = BY_KEY[found[0].key].is_profiled
    return Table(
        label="Measures without a test" + (" of the profiled time" if of_traces else ""),
        heads=[":Measure", *headings_of(comparison.labels), *(["Change"] if two else [])],
        rows=rows,
        caption=f"{count(len(rows), 'measure')}{' of the profiled stretch' if of_traces else ''} without a test: one number for each run, too few values, or 0. Shown, not judged.",
        style="named calm",
    )


def _refused(comparison: Comparison, found: Sequence[Measure]) -> Table | None:
    def why(measure: Measure) -> str:
        reasons = dict.fromkeys(_why(one) for one in measure.against.values())
        return "; ".join(reasons)

    rows = [
        [
            one.label,
            *words.of_variants(one, comparison.cost).values(),
            why(one),
        ]
        for one in found
    ]
    if not rows:
        return None
    return Table(
        label="Measures that cannot be compared",
        heads=[":Measure", *headings_of(comparison.labels), ":Why"],
        rows=rows,
        caption=f"{count(len(rows), 'measure')} that cannot be compared.",
        style="named calm words",
    )


def _why(change: Change) -> str:
    return f"{capitalized(change.word)}: {change.reason}" if change.reason else capitalized(change.word)
