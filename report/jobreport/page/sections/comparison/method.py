"""Method of the comparison, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport.comparison.document import LOST_DATA, NO_COST
from jobreport.page.kit import Sentences, Terms, code
from jobreport.page.kit.marks import unbroken
from jobreport.page.sections.comparison.outline import section

if TYPE_CHECKING:
    from jobreport.comparison.document import Comparison
    from jobreport.page.kit.section import Content

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
def method(comparison: Comparison) -> Content:
    """The notes of the comparison, the formulas in words, and the command."""
    runs = [f"{label}=RUN{i}" for label in comparison.labels[:2] for i in (1, 2, 3)]
    command = Markup("<code>{}</code>").format(unbroken(comparison.command))
    return [
        Sentences([code(note.text) for note in comparison.notes if note.kind not in (NO_COST, LOST_DATA)]),
        Terms(
            [
                *((term, [text]) for term, text in TERMS.items()),
                ("Repeats", [REPEATS.format(unbroken(" ".join(["compare-reports", *runs])))]),
                ("Not compared", ["How well the model learned. A run that learns worse can cost less."]),
                ("Command", [command] if comparison.command else []),
            ]
        ),
    ]
