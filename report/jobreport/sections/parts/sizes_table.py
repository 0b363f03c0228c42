"""Machines that could run a job: what it needs, what it has, and the cheapest that come close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.comparison import words
from jobreport.sections.parts.table import Table
from jobrules.model import SECOND_US
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.cost import Candidate, Sizing

_HEADS = (
    ":Machines",
    "GPUs",
    "Cores",
    "Host memory",
    "GPU memory",
    "Per hour",
    "Saving",
    "Pays below",
    ":Result",
)


class Sizes(Struct, frozen=True, kw_only=True):
    """What ``sizes.html.j2`` shows."""

    lead: str
    guards: Sequence[str]
    table: Table


def sizes(found: Sizing, currency: str, job: str) -> Sizes:
    """``job`` is the name of the job in sentences."""
    good = sum(not one.fails and one.per_hour < found.now.per_hour for one in found.candidates)
    known = (
        f"{count(good, 'cheaper choice')} {'are' if good > 1 else 'is'}" if good else "No cheaper choice is"
    )
    estimate = ["The demand is an upper estimate from percentiles of each node."]
    rows = [
        [f"Needed by {job}", *map(_amount, found.needs.values(), found.needs), "–", "–", "–", "–"],
        _row(found.now, currency, f"{_name(found.now)}, today", "keeps less than 20% free: "),
        *(_row(one, currency, _name(one)) for one in found.candidates),
    ]
    return Sizes(
        lead=f"A cheaper choice to test for {job}." if found.advised else f"Nothing is proposed for {job}.",
        guards=[*found.guards, *(estimate if found.upper_estimate else [])],
        table=Table(
            label=f"Machines for {job}",
            heads=_HEADS,
            rows=rows,
            caption=f"{known} known to hold the demand of {job}. Demand: p99.5 over the loop plus 20% headroom; "
            "saving: if the run takes as long.",
            style="sizes",
        ),
    )


def _name(one: Candidate) -> str:
    name = f"{one.count} × {formats.escape_name(one.machine, 40)}"
    return f"{name}, as {one.label}" if one.label else name


def _row(one: Candidate, currency: str, name: str, before: str = "") -> list[str]:
    cheaper = one.saving is None or one.saving > 0
    saving = formats.percent(100 * one.saving) if one.saving and cheaper else "–"
    return [
        name,
        *map(_amount, one.offers.values(), one.offers),
        words.money(one.per_hour, currency),
        saving,
        formats.duration(one.break_even_s * SECOND_US) if cheaper else "–",
        f"{before}{'; '.join(one.fails)}" if one.fails else "holds all that is known",
    ]


def _amount(amount: float | None, key: str) -> str:
    if amount is None:
        return "not known"
    return f"{amount:,.4g}{formats.NBSP}GiB" if key.endswith("gib") else f"{amount:,.6g}"
