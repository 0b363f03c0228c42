"""Marks of changes: a shape for each word, and intervals on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport.comparison import words
from jobreport.comparison.document import Word
from jobreport.formats import MINUS
from jobrules.text import capitalized

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.comparison.document import Change, Measure

#: Ends of the axis, in percent or points.
LIMITS = (5.0, 10.0, 25.0, 50.0, 100.0)
#: Around 0, in px; with the class of the shape.
_SHAPES = {
    Word.BETTER: ("solid", "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5z"),
    Word.WORSE: ("solid", "M0-6L6 0L0 6L-6 0z"),
    Word.HIGHER: ("solid", "M-4-4H4V4H-4z"),
    Word.LOWER: ("solid", "M-4-4H4V4H-4z"),
    Word.SAME: ("stick", "M-5-2.5H5M-5 2.5H5"),
    Word.SMALL: ("stick", "M-5-2.5H5M-5 2.5H5"),
    Word.NOT_RESOLVED: ("hollow", "M0-4A4 4 0 1 1 0 4A4 4 0 1 1 0-4z"),
    Word.NOT_TESTED: ("stick", "M0-5V5"),
    Word.NOT_MEASURED: ("stick", "M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5"),
    Word.REFUSED: ("stick", "M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5"),
}
#: Class of a word: its color.
CLASSES = {Word.BETTER: "better", Word.WORSE: "worse", Word.HIGHER: "plain", Word.LOWER: "plain"}
#: Beyond an end of the axis.
_ARROWS = {-1: "M-5 0L3-5V5z", 1: "M5 0L-3-5V5z"}


class Scale(Struct, frozen=True, kw_only=True):
    """The axis of a table, from minus to plus its limit."""

    limit: float

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Scale:
        """The smallest that holds most intervals, and all up to the largest limit."""
        ends = [abs(end) for one in changes for end in (one.low, one.high) if end is not None]
        largest = max(ends, default=0.0)
        return cls(limit=next((limit for limit in LIMITS if largest <= limit), LIMITS[-2]))

    def place(self, value: float) -> float:
        """Percent of the width."""
        return 50 + 50 * max(-1.0, min(1.0, value / self.limit))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels."""
        values = (-self.limit, -self.limit / 2, 0.0, self.limit / 2, self.limit)
        return [(self.place(v), f"{MINUS if v < 0 else '+' if v else ''}{abs(v):g}") for v in values]


def axis(scale: Scale, *, inside: bool = False) -> Markup:
    """The labels of the axis, those at its ends ``inside`` of it or centered."""
    ends = {0: "start", len(scale.ticks) - 1: "end"} if inside else {}
    texts = (
        Markup('<text x="{}%" y="1em" text-anchor="{}">{}</text>').format(at, ends.get(i, "middle"), label)
        for i, (at, label) in enumerate(scale.ticks)
    )
    return Markup('<svg class="axis-head" aria-hidden="true">{}</svg>').format(Markup("").join(texts))


def mark(word: Word) -> Markup:
    """The shape of a word, in the line of the text."""
    style, path = _SHAPES[word]
    return Markup(
        '<svg class="mk" viewBox="-7 -7 14 14" aria-hidden="true"><path class="{}" d="{}"/></svg>'
    ).format(style, path)


def outcome(measure: Measure, change: Change) -> Markup:
    """The word of a change behind its shape."""
    words_of = capitalized(words.outcome(measure, change))
    return Markup('<span class="word {}">{}{}</span>').format(
        CLASSES.get(change.word, "m"), mark(change.word), words_of
    )


def interval(scale: Scale, measure: Measure, change: Change) -> Markup:
    """The change on the axis: gray what counts as the same, thick the spread within runs, thin that between them."""
    value = change.points if change.points is not None else change.change
    tested = change.low is not None and change.high is not None
    parts = [_line("rail", 0, 100)]
    if tested:
        low, high = scale.place(-measure.min_effect), scale.place(measure.min_effect)
        parts.append(
            Markup('<rect class="tol" x="{:.2f}%" width="{:.2f}%" y="0" height="100%"/>').format(
                low, high - low
            )
        )
    parts.append(Markup('<line class="zero" x1="50%" x2="50%" y1="0" y2="100%"/>'))
    if tested:
        for style, a, b in (
            ("wide-iv", change.low, change.high),
            ("inner-iv", change.own_low, change.own_high),
        ):
            parts.append(_line(style, scale.place(a or 0.0), scale.place(b or 0.0)))
    if value is not None:
        beyond = (value > scale.limit) - (value < -scale.limit)
        style, path = ("solid", _ARROWS[beyond]) if beyond else _SHAPES[change.word]
        parts.append(
            Markup('<svg x="{:.2f}%" y="50%"><path class="{}" d="{}"/></svg>').format(
                scale.place(value), style, path
            )
        )
    return Markup('<svg class="glyph iv {}" aria-hidden="true">{}</svg>').format(
        CLASSES.get(change.word, "m"), Markup("").join(parts)
    )


def _line(style: str, a: float, b: float) -> Markup:
    return Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="50%" y2="50%"/>').format(style, a, b)


def value_bar(value: float, largest: float, style: str) -> Markup:
    """A bar from 0."""
    width = 100 * value / largest if largest else 0.0
    return Markup(
        '<svg class="value-bar" aria-hidden="true"><rect class="{}" width="{:.2f}%" height="100%"/></svg>'
    ).format(style, width)
