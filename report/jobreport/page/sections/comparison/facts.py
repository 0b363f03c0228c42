"""Facts that differ between the variants, rules whose results do, and the method of the comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.comparison import words
from jobreport.comparison.document import LOST_DATA, NO_COST
from jobreport.comparison.measures import LOSS
from jobreport.formats import NBSP
from jobreport.page.kit import Empty, Note, Sentences, Side, Table, Terms, code
from jobreport.page.kit.marks import status, unbroken
from jobreport.page.sections.comparison.outline import headings_of, section
from jobreport.page.sections.verdict import SIGNS
from jobrules.model import Status
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.document import Comparison, Fact, Rule, RuleResult
    from jobreport.page.kit.section import Content

_SIGNS = {str(result): sign for result, sign in SIGNS.items()}
TERMS = {
    "Training loop": (
        "From the first to the last step or GPU work, as far as they were recorded. Start-up is before it, "
        "wind-down after it. Times to the first and after the last step can be longer: they hold GPU work "
        "outside of the steps."
    ),
    "Interval": (
        "The steps of a run form 20 blocks of neighbors. The spread of their means, corrected for the "
        "correlation of neighboring blocks, gives a 95% interval (Welch's t). Values are plain means and "
        "quantiles; the change is that of the two values, around which the blocks of each run scatter. "
        "Runs of repeated variants take the place of the blocks. Single runs have an assumed spread "
        "between runs as well, and both the larger of their own: a run without a stall does not know of "
        "them. One run against repeats differs as they do, if that is more."
    ),
    "Many measures": (
        "Of many measures and variants, some differ by chance. Holm's correction keeps the chance of one "
        "false result below 5% in each of three groups, chosen before anything is tested: the measure of "
        "the verdict, over all variants; duration and cost; all other measures. Measures that say the "
        "same, as step time and steps per second, are one."
    ),
    "Result": (
        "Better or worse: the interval excludes 0, also after Holm's correction, and the change counts. "
        "Real, but small: it does not count. The same: the whole interval is within what counts. Not "
        "resolved: anything else. Not tested: one number for each run, or fewer than 100 steps."
    ),
}
REPEATS = Markup(
    "Three runs of each variant, in turn, measure how much runs differ; two find less than one: <code>{}</code>."
)


@section
def facts(comparison: Comparison) -> Content:
    """Facts that differ as a table; the same and the unknown ones as a sentence."""
    different, same, unknown = (
        [one for one in comparison.differences if one.kind == kind]
        for kind in ("different", "same", "unknown")
    )
    named_same = "; ".join(f"{one.label}: {words.plain(next(iter(one.values.values())))}" for one in same)
    return [
        Side(
            blocks=[
                _different(comparison, different) if different else "No recorded fact differs.",
                Terms(
                    [
                        ("The same", [f"{named_same}."] if same else []),
                        ("Not known", [_to_add(one) for one in unknown]),
                    ]
                ),
            ],
            style="side",
        )
    ]


def _different(comparison: Comparison, different: Sequence[Fact]) -> Table:
    """Values of each variant, of two with the ratio."""
    two = len(comparison.labels) == 2
    names = [
        one.label[0].lower() + one.label[1:] if one.label[1:2].islower() else one.label for one in different
    ]
    caption = f"Different: {join_names(names)}."
    if len(names) > 1:
        caption += " The runs alone cannot separate their effects."
    ratio = [f"{comparison.others[0]} to {comparison.base}"] if two else []
    return Table(
        label="What differs",
        heads=[":Fact", *headings_of(comparison.labels), *ratio],
        rows=[
            [one.label, *map(words.plain, one.values.values()), *([_ratio(one)] if two else [])]
            for one in different
        ],
        caption=caption,
        style="named",
    )


def _to_add(fact: Fact) -> Markup:
    """The option that gives the value of a fact."""
    labels = [label for label, value in fact.values.items() if value is None]
    option = unbroken(f"--set {labels[0]}.{fact.key}=VALUE")
    return Markup("{} of {}: add it with <code>{}</code>.").format(fact.label, join_names(labels), option)


def _ratio(fact: Fact) -> str:
    """``× 2``, ``÷ 6``; ``–`` for texts."""
    base, other = fact.values.values()
    if not isinstance(base, int | float) or not isinstance(other, int | float) or not base or not other:
        return "–"
    ratio = max(other / base, base / other)
    return f"{'×' if other > base else '÷'}{NBSP}{ratio:.{3 if ratio >= 1.1 else 4}g}"


@section
def rules(comparison: Comparison) -> Content:
    """A table of the rules that any variant evaluated; the others as a sentence."""
    evaluated = [
        one for one in comparison.rules if any(r.status != Status.NOT_EVALUATED for r in one.results.values())
    ]
    if not evaluated:
        return Empty("No rule was evaluated in any run.")
    changed = sum(one.changed for one in evaluated)
    silent = formats.count(len(comparison.rules) - len(evaluated), "more rule")
    return [
        Table(
            label="Rules",
            heads=[":Rule", *(f":{head}" for head in headings_of(comparison.labels)), ":Change"],
            rows=[
                [
                    Markup('<code>{}</code> <span class="m">{}</span>').format(one.name, one.title),
                    *(_cell(one.results.get(label)) for label in comparison.labels),
                    _changed(comparison, one),
                ]
                for one in evaluated
            ],
            caption=f"{changed} of {formats.count(len(evaluated), 'rule')} changed.",
            aid="Share of what each rule checked that is in violation.",
            style="named",
        ),
        Note(f"{silent} could be evaluated in no run; the reports say why.")
        if len(evaluated) < len(comparison.rules)
        else None,
    ]


def _cell(result: RuleResult | None) -> Markup:
    """The status, and the share in violation."""
    if result is None:
        return status("off", "Not run")
    sign = status(*_SIGNS[result.status])
    if result.percent is None:
        return sign
    return Markup('{} <span class="m s">{}</span>').format(sign, formats.percent(result.percent))


def _changed(comparison: Comparison, rule: Rule) -> str:
    if rule.other_thresholds:
        return "judged by other thresholds"
    base = rule.results.get(comparison.base)
    parts = []
    for label in comparison.others:
        result = rule.results.get(label)
        if base and result and base.status != result.status:
            prefix = f"{label}: " if len(comparison.others) > 1 else ""
            parts.append(
                f"{prefix}{'now passes' if result.status == Status.PASSED else f'now {result.status}'}"
            )
    return "; ".join(parts) or "–"


@section
def method(comparison: Comparison) -> Content:
    """The notes of the comparison, the formulas in words, and the command."""
    runs = [f"{label}=RUN{i}" for label in comparison.labels[:2] for i in (1, 2, 3)]
    command = Markup("<code>{}</code>").format(unbroken(comparison.command))
    but = ", but for the loss after equal steps" if comparison.compares(LOSS) else ""
    return [
        Sentences([code(note.text) for note in comparison.notes if note.kind not in (NO_COST, LOST_DATA)]),
        Terms(
            [
                *((term, [text]) for term, text in TERMS.items()),
                ("Repeats", [REPEATS.format(unbroken(" ".join(["compare-reports", *runs])))]),
                (
                    "Not compared",
                    [f"How well the model learned{but}. A run that learns worse can cost less."],
                ),
                ("Command", [command] if comparison.command else []),
            ]
        ),
    ]
