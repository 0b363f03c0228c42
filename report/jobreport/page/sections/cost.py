"""What the job cost, and which machines could run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.cost import words
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table, swatch
from jobreport.page.sections.outline import heading, section
from jobreport.page.sections.parts.sizes_table import sizes
from jobreport.page.sections.verdict import gpu_fill

if TYPE_CHECKING:
    from jobreport.cost.document import JobCost, RunCost
    from jobreport.document import Report
    from jobrules.verdict.phases import JobPhases
    from jobrules.verdict.time_use import TimeUse

#: Cost outside of all parts that has a row, as a share of the cost.
MIN_REST = 0.005


@section
def cost(report: Report) -> Fragment:
    """Tables of the cost, of the GPU time in money, and of machines."""
    found, use = report.cost or None, report.verdict.use
    html = render(
        "cost",
        heading=heading("cost", report),
        found=found,
        no_cost=words.no_cost(found) if found else "",
        bill=_bill(found, found.run) if found and found.run else None,
        parts_table=_parts(found, found.run, use, report.phases)
        if found and found.run and found.parts and use
        else None,
        origin=words.origin(found) if found else "",
        gpu_hour=words.price(found.per_gpu_hour, found.currency) if found and found.per_gpu_hour else "",
        check=found.wrong_machine if found else "",
        sizes=sizes(found.sizing, found.currency, "the job") if found and found.sizing else None,
    )
    return Fragment(name="cost", html=html)


def _bill(cost: JobCost, run: RunCost) -> Table:
    def money(amount: float | None) -> str:
        return "" if amount is None else words.money(amount, cost.currency)

    values = {
        "Machines": f"{run.nodes:g}{f' × {formats.escape_name(run.machine, 40)}' if run.machine else ''}",
        "Node-hours": f"{formats.number(run.nodes * run.hours, 3)}{formats.NBSP}h",
        "Price of a node-hour": f"{words.price(run.per_hour, cost.currency)}{' (spot)' if run.spot else ''}",
        "Cost": money(run.cost),
        "Cost of 1,000 steps": money(cost.per_1000_steps),
        "Cost of 1 million samples": money(cost.per_million_samples),
    }
    return Table(
        label="Cost",
        heads=(":Quantity", "Amount"),
        rows=[row for row in values.items() if row[1]],
        caption=f"The job cost {money(run.cost)}.",
    )


def _parts(cost: JobCost, run: RunCost, use: TimeUse, phases: JobPhases) -> Table:
    """The parts of the verdict's bar in money."""
    rows = [
        (
            swatch(gpu_fill(part.key, part.role), part.label),
            formats.part_hours(use, phases, part),
            words.money(paid.cost, cost.currency, run.cost),
        )
        for part, paid in zip(use.parts, cost.parts, strict=True)
    ]
    if cost.rest > MIN_REST * run.cost:
        rows.append(
            (
                Markup("Billed, but not GPU time that was recorded"),
                "–",
                words.money(cost.rest, cost.currency, run.cost),
            )
        )
    return Table(
        label="GPU time in money",
        heads=(":GPU time", use.unit, "Cost"),
        rows=rows,
        caption=words.lost_money(cost),
    )
