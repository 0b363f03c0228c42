"""Amounts of money and the origin of prices in words, the same on the page, in Markdown, and on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.cost.document import Cost
from jobreport.formats import NBSP
from jobrules.text import join_names

if TYPE_CHECKING:
    from jobreport.cost.document import JobCost

#: Signs of currencies that stand in front of an amount.
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}


def money(amount: float, currency: str, whole: float | None = None) -> str:
    """``$1.07``; with more digits below 1, those of the whole if it is a part: ``under $0.01`` of ``$6.16``."""
    most = abs(amount if whole is None else whole)
    digits = 2 if most >= 1 else 3 if most >= 0.1 else 4
    if amount and not round(amount, digits):
        return f"under {_with_sign(formats.number(10**-digits, digits), currency)}"
    return f"{formats.MINUS if amount < 0 else ''}{_with_sign(formats.number(abs(amount), digits), currency)}"


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
