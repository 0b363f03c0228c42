"""The numbers of a comparison in words, the same on the page, in Markdown, and on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.comparison.document import Cost, Word
from jobreport.formats import NBSP
from jobrules.text import duration, join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Change, Comparison, Measure, Steps, WorkTime
    from jobreport.cost import JobCost

#: Signs of currencies that stand in front of an amount.
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
MINUS = "\u2212"
#: From here on, a ratio says more than percent.
MANY_PERCENT = 200.0
#: Share of a difference that most of it is.
MOST = 0.5


def money(amount: float, currency: str, whole: float | None = None) -> str:
    """``$1.07``; with more digits below 1, those of the whole if it is a part: ``under $0.01`` of ``$6.16``."""
    most = abs(amount if whole is None else whole)
    digits = 2 if most >= 1 else 3 if most >= 0.1 else 4
    if amount and not round(amount, digits):
        return f"under {_with_sign(formats.number(10**-digits, digits), currency)}"
    return f"{MINUS if amount < 0 else ''}{_with_sign(formats.number(abs(amount), digits), currency)}"


def _with_sign(text: str, currency: str) -> str:
    if currency in SIGNS:
        return f"{SIGNS[currency]}{text}"
    return f"{text}{NBSP}{formats.escape_name(currency, 12)}".rstrip()


def price(amount: float, currency: str) -> str:
    """``$14.688``: as the list has it, with at least two digits."""
    whole = money(amount, currency)
    digits = max(2, len(f"{amount:.10g}".partition(".")[2]))
    return (
        whole.replace(f"{formats.number(amount, 2)}", formats.number(amount, digits))
        if amount >= 1
        else whole
    )


#: How a duration is billed.
BILLED = {"1s": "to the second", "1min": "to the minute", "1h": "to the hour"}


def origin(cost: Cost | JobCost) -> str:
    """``Prices: list, as of 2026-01-31; billed to the second.``"""
    as_of = f", as of {formats.escape_name(cost.as_of, 40)}" if cost.as_of else ""
    sources = [f"{formats.escape_name(cost.source, 120)}{as_of}"] if cost.source else []
    if isinstance(cost, Cost) and cost.own_price:
        sources.append(f"given for {join_names(cost.own_price)}")
    return f"Prices: {'; '.join(sources)}; billed {BILLED[cost.billing]}."


def refused_costs(comparison: Comparison) -> dict[str, str]:
    """Why the cost of a variant cannot be compared with that of the base, by its label."""
    against = comparison.measure("cost").against
    return {label: one.reason for label, one in against.items() if one.word is Word.REFUSED}


def saving(cost: Cost, label: str, refused: Mapping[str, str]) -> str:
    """``−82.7%``: the change of a cost from the base; ``–`` if it cannot be compared."""
    if label not in cost.saving or label in refused:
        return "–"
    return ratio(-100 * cost.saving[label])


def lost_money(cost: JobCost) -> str:
    """``Lost GPU time cost about $3.20 of $6.16.``; empty without a price."""
    if cost.run is None:
        return ""
    whole = money(cost.run.cost, cost.currency)
    if cost.lost:
        return f"Lost GPU time cost about {money(cost.lost, cost.currency, cost.run.cost)} of {whole}."
    return f"The job cost {whole}."


#: How to say what a cost needs, by what is missing; ``given`` is ``--set``, with the label of a comparison.
TO_GIVE = {
    "duration": "the duration of the job was not recorded",
    "span": "its start or end was not recorded; use {given}finished=true if the recording holds the whole job",
    "gpus": "give the number of GPUs of a machine with {given}gpus_per_node=N",
    "nodes": "give the number of machines with {given}nodes=N",
    "prices": "no price was given; use --prices FILE with {given}instance_type=TYPE, or {given}price_per_node_hour=PRICE",
    "machine": "name the type of the machines with {given}instance_type=TYPE, or use {given}price_per_node_hour=PRICE",
    "price": "the list of prices ({source}) lacks {machine}; add it, or use {given}price_per_node_hour=PRICE",
    "spot_price": "the list of prices ({source}) has no spot price of {machine}; add spot_per_hour, or use "
    "{given}price_per_node_hour=PRICE",
}


def why_no_cost(missing: str, machine: str, source: str, label: str = "") -> str:
    """What to give so that a run has a cost; ``label`` is that of a run in a comparison."""
    why = TO_GIVE[missing].format(
        given=f"--set {label}." if label else "--set ",
        machine=formats.escape_name(machine, 60),
        source=formats.escape_name(source, 120),
    )
    return f"{f'The cost of {label}' if label else 'Cost'} is not known: {why}."


def no_cost(cost: JobCost) -> str:
    """Why the cost of a job is not known, and what to do; empty if it is."""
    return why_no_cost(cost.missing, cost.machine, cost.source) if cost.missing else ""


def value(amount: float | None, unit: str, cost: Cost | None = None) -> str:
    """A value with its unit: ``503.0 s``, ``45.0%``, ``$6.16``; ``–`` if there is none."""
    return values([amount], unit, cost)[0]


def of_variants(measure: Measure, cost: Cost | None = None) -> dict[str, str]:
    """The values of a measure by variant, all in one unit."""
    return dict(zip(measure.values, values(list(measure.values.values()), measure.unit, cost), strict=True))


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
    else:
        shown = [f"{formats.number(amount, _digits(amount))}{NBSP}{unit}" for amount in known]
    texts = iter(shown)
    return ["–" if amount is None else next(texts) for amount in amounts]


#: From this many seconds of the largest on, a unit is used; the first is for 0, too.
_TIMES = ((0.9995, 1.0, "s"), (0.9995e-3, 1e3, "ms"), (0.9995e-6, 1e6, "µs"), (0.0, 1e9, "ns"))


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


def signed(number: float, sign: str = "") -> str:
    """``+5.0%``, ``−0.2%``; 0 has no sign."""
    text = f"{abs(number):,.1f}"
    return f"{'' if text == '0.0' else '+' if number > 0 else MINUS}{text}{sign}"


def change(found: Change) -> str:
    """``+5.0%``, ``+32.5 points``, ``–``; a change of a percentage is never in percent."""
    if found.points is not None:
        return signed(found.points, f"{NBSP}points")
    if found.change is None:
        return "–"
    return ratio(found.change)


def ratio(percent: float) -> str:
    """``+5.0%``, ``× 15.3``."""
    return f"×{NBSP}{1 + percent / 100:,.3g}" if percent >= MANY_PERCENT else signed(percent, "%")


def interval(found: Change) -> str:
    """``−3.0 to +9.1%``; empty without a test."""
    if found.low is None or found.high is None:
        return ""
    if found.points is None and found.high >= MANY_PERCENT:
        return f"×{NBSP}{1 + found.low / 100:,.3g} to {1 + found.high / 100:,.3g}"
    unit = f"{NBSP}points" if found.points is not None else "%"
    return f"{signed(found.low)} to {signed(found.high, unit)}"


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
