"""All measures: tested ones with their intervals, the others with their values; and the budgets that limit them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec.structs import replace

from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE, MET
from jobreport.comparison.document import JUDGED, Word
from jobreport.comparison.measures import BY_KEY
from jobreport.page.kit import Fold, Fragment, Table
from jobreport.page.kit.marks import status
from jobreport.page.sections.comparison import marks
from jobreport.page.sections.comparison.outline import headings_of, section
from jobrules.text import capitalized, count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Budget, Comparison, Measure
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content

_SAME = "The same"
#: Groups of tested measures, with what is said of each.
GROUPS = {
    "Judged": "the verdict rests on this",
    "Also changed": "largest change first",
    "Real, but small": "the interval excludes 0, the change does not count",
    "Not resolved": "better and worse are both possible, or of so many measures one can differ as much by chance",
    _SAME: "the whole interval is within what counts",
}
#: Class of each state; a broken budget of level error is critical.
_SIGNS = {BROKEN: "warn", INCONCLUSIVE: "off", MET: "pass"}


@section
def measures(comparison: Comparison) -> Content:
    """Tested measures on one axis; untested ones with their values; the rest with the reason."""
    if not comparison.measures:
        return ["Too little was profiled to measure anything."]
    tested = [one for one in comparison.measures if _is_tested(one)]
    untested = [one for one in comparison.measures if one not in tested and _has(one, Word.NOT_TESTED)]
    rest = [one for one in comparison.measures if one not in tested and one not in untested]
    whole = [one for one in untested if not BY_KEY[one.key].is_profiled]
    # What no run lost time to is no row.
    profiled = [one for one in untested if one not in whole and any(one.values.values())]
    return [
        *_tested(comparison, tested),
        _untested(comparison, whole),
        _untested(comparison, profiled, " of the profiled stretch"),
        _refused(comparison, rest),
    ]


def _tested(comparison: Comparison, tested: Sequence[Measure]) -> list[Block]:
    """Measures that changed or may have changed; those that are the same, in a fold."""
    groups: dict[str, list[Measure]] = {name: [] for name in GROUPS}
    for one in sorted(tested, key=_largest, reverse=True):
        groups[_group(comparison, one)].append(one)
    same = groups.pop(_SAME)
    finding, aid = _finding(tested), _aid(comparison)
    scale = marks.Scale.of(change for one in tested for change in one.against.values())
    lead = Markup('{} <span class="m">{}</span>').format(finding, aid) if same else finding
    folded = _on_axis(comparison, scale, {_SAME: same}, "Measures that are the same")
    table = _on_axis(comparison, scale, groups, "Tested measures")
    return [
        replace(table, caption=finding, aid=aid) if table else lead,
        Fold(summary=f"The same: {count(len(same), 'measure')}", blocks=[folded], style="on-paper")
        if same
        else None,
    ]


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


def _on_axis(
    comparison: Comparison, scale: marks.Scale, groups: Mapping[str, Sequence[Measure]], label: str
) -> Table:
    """The measures of each group; empty without any."""
    rows: list[str | list[str]] = []
    for name, found in groups.items():
        rows += [_titled(name, GROUPS[name])] if found else []
        for one in found:
            rows += _rows(comparison, one, scale)
    several = len(comparison.others) > 1
    values = [":Variant", "Value"] if several else [":Measure", *headings_of(comparison.labels)]
    drawn = Markup('{}<span class="vh">Drawn</span>').format(marks.axis(scale))
    heads = [*values, "Change", "95% interval", drawn, ":Result"]
    return Table(label=label, heads=heads, rows=rows, style="cmp tested", as_blocks=True)


def _rows(comparison: Comparison, measure: Measure, scale: marks.Scale) -> list[list[str]]:
    """A row; of several variants a title and a row for each."""
    several = len(measure.against) > 1
    rows: list[list[str]] = []
    compared = words.compared(measure, comparison.cost)
    for (label, base, *cells, interval), change in zip(compared, measure.against.values(), strict=True):
        if several and not rows:
            rows.append([_titled(measure.label, f"{comparison.base} {base}")])
        drawn = [marks.interval(scale, measure, change), marks.outcome(measure, change)]
        rows.append([*([label] if several else [measure.label, base]), *cells, interval or "–", *drawn])
    return rows


def _titled(name: str, about: str) -> Markup:
    return Markup("{} <span>{}</span>").format(name, about)


def _finding(tested: Sequence[Measure]) -> str:
    if not tested:
        return "Nothing could be tested: one number for each run is no sample."
    changes = [change for one in tested for change in one.against.values()]
    variants = len(changes) // len(tested)
    counts = {word: sum(one.word is word for one in changes) for word in Word}
    named = [f"{counts[word]} {word}" for word in JUDGED if counts[word]]
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


def _untested(comparison: Comparison, found: Sequence[Measure], of: str = "") -> Table:
    """Values of each variant; of two variants the change too."""
    two = len(comparison.others) == 1
    return Table(
        label=f"Measures{of} without a test",
        heads=[":Measure", *headings_of(comparison.labels), *(["Change"] if two else [])],
        rows=[
            [
                one.label,
                *words.of_variants(one, comparison.cost).values(),
                *(words.change(change) for change in one.against.values() if two),
            ]
            for one in found
        ],
        caption=f"{count(len(found), 'measure')}{of} without a test: one number for each run, too few values, or 0. "
        "Shown, not judged.",
        style="named calm",
    )


def _refused(comparison: Comparison, found: Sequence[Measure]) -> Table:
    return Table(
        label="Measures that cannot be compared",
        heads=[":Measure", *headings_of(comparison.labels), ":Why"],
        rows=[[one.label, *words.of_variants(one, comparison.cost).values(), _why(one)] for one in found],
        caption=f"{count(len(found), 'measure')} that cannot be compared.",
        style="named calm words",
    )


def _why(measure: Measure) -> str:
    """The reasons why a measure was not compared, each once."""
    return "; ".join(
        dict.fromkeys(
            capitalized(f"{one.word}: {one.reason}" if one.reason else one.word)
            for one in measure.against.values()
        )
    )


@section
def budgets(comparison: Comparison) -> Content:
    """A row for each limit and variant; empty without budgets."""
    if not comparison.budgets:
        return Fragment(name="budgets", html="")
    states = [one.state for one in comparison.budgets]
    counts = ", ".join(f"{states.count(state)} {state}" for state in _SIGNS if state in states)
    return [
        f"{count(len(states), 'budget')}: {counts}.",
        Table(
            label="Limits and their state",
            heads=[":Budget", ":State", ":Variant", "Value", ":Limit", ":Level"],
            rows=[_budget(comparison, one) for one in comparison.budgets],
            style="cmp bud",
        ),
    ]


def _budget(comparison: Comparison, one: Budget) -> list[str]:
    name = comparison.measure(one.measure).label if one.value is not None else one.measure
    sign = "crit" if one.state == BROKEN and one.level == "error" else _SIGNS[one.state]
    state = status(sign, capitalized(one.state))
    if one.reason:
        state = Markup('{} <span class="s m">{}</span>').format(state, one.reason)
    return [
        Markup("{} <code>{}</code>").format(name, one.measure),
        state,
        one.label,
        _budget_value(comparison, one),
        _limit_of(comparison, one),
        one.level,
    ]


def _budget_value(comparison: Comparison, one: Budget) -> str:
    if one.value is None:
        return "–"
    return words.value(one.value, comparison.measure(one.measure).unit, comparison.cost)


def _limit_of(comparison: Comparison, one: Budget) -> str:
    """The limit as it was given, with the change that it limits."""
    if one.value is None or not one.limit.endswith(("more", "less")):
        return one.limit
    return f"{one.limit} than {comparison.base} ({words.change(comparison.measure(one.measure).against[one.label])})"
