"""Machines that could run a job: what it needs, what it has, and the cheapest that come close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.cost import words
from jobreport.cost.document import ABOUT_SAME
from jobreport.page.kit import Html, Table
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from jobreport.cost.document import Candidate, Sizing

_HEADS = (
    ":Machines",
    "GPUs, all",
    "Cores, all",
    "Host memory, each",
    "GPU memory, each",
    "Per hour",
    "Saving",
    "Pays below",
    ":Result",
)


NOT_HELD = "Storage, network, and licenses are not in the cost."


def sizes(found: Sizing, currency: str, job: str) -> tuple[Html, Table]:
    """Machines to test, and the table of machines; ``job`` is the name of the job in sentences."""
    estimate = ["The demand is an upper estimate from percentiles of each node."]
    # Host memory is that of the processes of a GPU.
    per_gpu = (
        {"memory_gib": f"{formats.NBSP}per GPU"} if found.needs["gpus"] and found.needs["memory_gib"] else {}
    )
    needed = [_amount(amount, key) + per_gpu.get(key, "") for key, amount in found.needs.items()]
    rows = [
        [f"Needed by {job}", *needed, "–", "–", "–", "–"],
        _row(found.now, currency, f"{_name(found.now)}, today", "keeps less than 20% free: "),
        *(_row(one, currency, _name(one)) for one in found.candidates),
    ]
    guards = " ".join([*found.guards, *(estimate if found.upper_estimate else [])])
    return (
        Html(Markup('<p class="note"><b>{}</b> {}</p>').format(_lead(found, job), guards)),
        Table(
            label=f"Machines for {job}",
            heads=_HEADS,
            rows=rows,
            caption="Demand: p99.5 over the loop plus 20% headroom, and no more GPUs than are in use. "
            "Saving: if the run takes as long, or as measured.",
            style="sizes",
        ),
    )


def _lead(found: Sizing, job: str) -> str:
    """The cheapest machine that was measured, otherwise the cheapest to test."""
    ran = [one for one in found.candidates if one.measured_s is not None and (one.saving or 0) > ABOUT_SAME]
    if ran:
        best = max(ran, key=lambda one: one.saving or 0)
        return (
            f"Measured: {best.label} ran on {_machines(best)} and cost "
            f"{formats.percent(100 * (best.saving or 0))} less than {job}{'' if best.is_sure else ', not tested'}."
        )
    if not found.advised:
        return f"Nothing is proposed for {job}."
    first = found.candidates[0]
    saving = f", {formats.percent(100 * first.saving)} less per hour" if first.saving else ""
    return f"To test for {job}: {_machines(first)}{saving}."


def _machines(one: Candidate) -> str:
    return f"{one.count} × {formats.escape_name(one.machine, 40)}"


def _name(one: Candidate) -> str:
    return f"{_machines(one)}, as {one.label}" if one.label else _machines(one)


def _row(one: Candidate, currency: str, name: str, before: str = "") -> list[str]:
    cheaper = one.saving is None or one.saving > 0
    saving = formats.percent(100 * one.saving) if one.saving and cheaper else "–"
    return [
        name,
        *map(_amount, one.offers.values(), one.offers),
        words.money(one.per_hour, currency),
        saving,
        formats.duration(one.break_even_s * SECOND_US) if cheaper and one.measured_s is None else "–",
        f"measured: {formats.duration(one.measured_s * SECOND_US)}"
        if one.measured_s is not None
        else _result(one, before),
    ]


def _result(one: Candidate, before: str) -> str:
    """Needs that a machine does not meet, and those that are not known."""
    lacks = f"{before}{'; '.join(one.fails)}" if one.fails else ""
    open_ = f"not known: {', '.join(one.unknown)}" if one.unknown else ""
    return "; ".join(filter(None, (lacks, open_))) or "holds all needs"


def _amount(amount: float | None, key: str) -> str:
    if amount is None:
        return "not known"
    return f"{amount:,.4g}{formats.NBSP}GiB" if key.endswith("gib") else f"{amount:,.6g}"
