"""The numbers of a comparison in words, the same on the page, in Markdown, and on the terminal."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.comparison.document import Word
from jobreport.cost.words import money, price
from jobreport.formats import NBSP
from jobrules.text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Change, Comparison, Measure, Steps, WorkTime
    from jobreport.cost.document import Cost

#: From here on, a ratio says more than percent.
MANY_PERCENT = 200.0
#: Share of a difference that most of it is.
MOST = 0.5
#: Heads of the columns of ``cost_rows``.
COST_HEADS = ("Variant", "Machine", "Nodes", "Node-hours", "Price of a node-hour", "Cost", "Change")
#: From this many seconds of the largest on, a unit is used; the first is for 0, too.
_TIMES = ((0.9995, 1.0, "s"), (0.9995e-3, 1e3, "ms"), (0.9995e-6, 1e6, "µs"), (0.0, 1e9, "ns"))


def refused_costs(comparison: Comparison) -> dict[str, str]:
    """Why the cost of a variant cannot be compared with that of the base, by its label."""
    against = comparison.measure("cost").against
    return {label: one.reason for label, one in against.items() if one.word is Word.REFUSED}


def cost_rows(cost: Cost, refused: Mapping[str, str]) -> list[list[str]]:
    """What each variant cost; the change from the base is ``–`` if it was ``refused``."""
    return [
        [
            row.label,
            formats.escape_name(row.machine, 40) or "–",
            f"{row.nodes:g}",
            f"{formats.number(row.node_hours, 3)}{NBSP}h",
            f"{price(row.per_hour, cost.currency)}{' (spot)' if row.spot else ''}",
            money(row.cost, cost.currency),
            "–" if row.label in refused or row is cost.rows[0] else ratio(-100 * cost.saving[row.label]),
        ]
        for row in cost.rows
    ]


def value(amount: float | None, unit: str, cost: Cost | None = None) -> str:
    """A value with its unit: ``503.0 s``, ``45.0%``, ``$6.16``; ``–`` if there is none."""
    return values([amount], unit, cost)[0]


def of_variants(measure: Measure, cost: Cost | None = None) -> dict[str, str]:
    """The values of a measure by variant, all in one unit."""
    return dict(zip(measure.values, values(list(measure.values.values()), measure.unit, cost), strict=True))


def compared(measure: Measure, cost: Cost | None) -> list[list[str]]:
    """Of each variant but the base: its label, the value of the base, its value, the change, and the interval."""
    base, *others = of_variants(measure, cost).values()
    return [
        [label, base, value, change(found), interval(found)]
        for value, (label, found) in zip(others, measure.against.items(), strict=True)
    ]


def values(amounts: Sequence[float | None], unit: str, cost: Cost | None = None) -> list[str]:
    """As ``value``, all in the unit that suits the largest."""
    known = [amount for amount in amounts if amount is not None]
    if unit == "s":
        shown = times(*known)
    elif unit == "B":
        scale = formats.rate_scale(known, "B")
        shown = [f"{formats.number(amount / scale.factor)}{NBSP}{scale.unit}" for amount in known]
    elif unit == "money":
        shown = [money(amount, cost.currency if cost else "") for amount in known]
    elif unit == "%":
        shown = [formats.percent(amount) for amount in known]
    elif not unit:
        shown = list(map(formats.compact, known))
    else:
        shown = [f"{formats.number(amount, _digits(amount))}{NBSP}{unit}" for amount in known]
    texts = iter(shown)
    return ["–" if amount is None else next(texts) for amount in amounts]


def times(*seconds: float) -> list[str]:
    """``503.0 s``, ``0.462 ms`` and ``47.3 ms``: all in the unit that suits the longest."""
    longest = max(seconds, default=0.0)
    factor, unit = next((factor, unit) for least, factor, unit in _TIMES if longest >= least or not longest)

    def text(amount: float) -> str:
        digits = 1 if amount >= 10 or not amount or longest >= 100 else 2 if amount >= 1 else 3
        if amount and not round(amount, digits):
            return f"under {10**-digits:g}"
        return formats.number(amount, digits)

    return [f"{text(amount * factor)}{NBSP}{unit}" for amount in seconds]


def _digits(amount: float) -> int:
    """Digits after the point that show about three digits."""
    return 0 if abs(amount) >= 1000 else 1 if abs(amount) >= 100 else 2 if abs(amount) >= 1 else 3


def plain(amount: float | str | None) -> str:
    """A fact: a number with its thousands, a text as it is, ``not known``."""
    if amount is None:
        return "not known"
    return (
        formats.escape_name(amount)
        if isinstance(amount, str)
        else f"{amount:,.6g}"
        if amount < 1e6
        else f"{amount:,.0f}"
    )


def work_times(*found: WorkTime) -> list[str]:
    """``46.9 ms``; ``up to 0.400 ms`` for what is known to be no longer; all in one unit."""
    amounts = times(*(one.high_s for one in found))
    return [
        amount if one.calls is not None else f"up to{NBSP}{amount}"
        for one, amount in zip(found, amounts, strict=True)
    ]


def stretches(*seconds: float) -> list[str]:
    """Lengths of what was profiled: ``801.0 ms``, ``less than 1 ms``; all in one unit."""
    return [
        text if length >= 1e-3 else f"less than 1{NBSP}ms"
        for length, text in zip(seconds, times(*seconds), strict=True)
    ]


def change(found: Change) -> str:
    """``+5.0%``, ``+32.5 points``, ``–``; a change of a percentage is never in percent."""
    if found.points is not None:
        return f"{formats.signed(found.points)}{NBSP}points"
    if found.change is None:
        return "–"
    return ratio(found.change)


def ratio(percent: float) -> str:
    """``+5.0%``, ``× 15.3``."""
    return f"×{NBSP}{1 + percent / 100:,.3g}" if percent >= MANY_PERCENT else f"{formats.signed(percent)}%"


def interval(found: Change) -> str:
    """``−3.0 to +9.1%``; empty without a test."""
    if found.low is None or found.high is None:
        return ""
    if found.points is None and found.high >= MANY_PERCENT:
        return f"×{NBSP}{1 + found.low / 100:,.3g} to {1 + found.high / 100:,.3g}"
    unit = f"{NBSP}points" if found.points is not None else "%"
    return f"{formats.signed(found.low)} to {formats.signed(found.high)}{unit}"


def tested(found: Change) -> str:
    """The interval with what it assumes: ``−23.6 to −9.7%, if runs of one code differ by no more than 3%``."""
    noise = found.run_noise if found.points is None else None
    assumed = f", if runs of one code differ by no more than {noise:g}%" if noise else ""
    return f"{interval(found)}{assumed}"


def of_stalls(base: Steps | None, other: Steps | None) -> str:
    """How few steps carry most of the difference of two mean step times; empty if they do not."""
    if not base or not other or base.stalls is None or other.stalls is None:
        return ""
    moved = other.timed_s / other.timed - base.timed_s / base.timed
    part = (other.stalled_s / other.timed - base.stalled_s / base.timed) / (moved or math.inf)
    if part < MOST:
        return ""
    return (
        f"{other.stalls:,} of {other.timed:,} steps that stalled, against {base.stalls:,} of {base.timed:,}, "
        f"carry {'all' if part >= 1 else formats.percent(100 * part)} of the difference"
    )


def outcome(measure: Measure, found: Change) -> str:
    """The word of a change: ``the same within 2%``, ``better``."""
    if found.word is Word.SAME:
        points = f"{NBSP}point{'s' if measure.min_effect != 1 else ''}"
        return f"the same within {measure.min_effect:g}{points if measure.unit == '%' else '%'}"
    return str(found.word)


def durations(*amounts: float) -> list[str]:
    """All in one form, in seconds: ``503 s`` and ``502 s``, ``7 min 21 s`` and ``1 h 12 min``."""
    longest = max(amounts)
    if longest < 10:
        return times(*amounts)
    if longest < 600:
        return [f"{formats.number(amount, 0)}{NBSP}s" for amount in amounts]
    return [duration(amount * 1e6) for amount in amounts]


#: What stands between these two belongs to the details of a sentence; no name holds one, since names are escaped.
_ASIDE = ("\x02", "\x03")


def aside(text: str) -> str:
    """A part of a sentence that its short form leaves out; asides within it are part of it."""
    return f"{_ASIDE[0]}{with_asides(text)}{_ASIDE[1]}" if text else ""


def with_details(details: Sequence[str], caveat: str, *, joint: str = ", ") -> str:
    """``(44 s against 40 s, not tested)``: the short form keeps the caveat alone."""
    known = ", ".join(filter(None, details))
    if known and caveat:
        return f" ({aside(f'{known}{joint}')}{caveat})"
    return f" ({caveat})" if caveat else aside(f" ({known})") if known else ""


def with_asides(sentence: str) -> str:
    """All of a sentence."""
    return sentence.replace(_ASIDE[0], "").replace(_ASIDE[1], "")


def without_asides(sentence: str) -> str:
    """The short form."""
    return re.sub("\x02[^\x03]*\x03", "", sentence)
