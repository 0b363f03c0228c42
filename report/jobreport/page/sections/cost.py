"""Cost of the job, and machines that could run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.cost import words
from jobreport.page.kit import Empty, Note, Table
from jobreport.page.kit.marks import status
from jobreport.page.kit.table import swatch
from jobreport.page.sections.outline import section
from jobreport.page.sections.parts.sizes_table import NOT_HELD, sizes
from jobrules.model.time_parts import named

if TYPE_CHECKING:
    from jobreport.cost.document import JobCost, RunCost
    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.verdict.phases import JobPhases
    from jobrules.verdict.time_use import TimeUse

#: Cost outside of all parts that has a row, as a share of the cost.
MIN_REST = 0.005
NO_SIZES = "Other machines are compared if the list of --prices has the GPUs and cores of each, and utilization was recorded."


@section
def cost(report: Report) -> Content:
    """Tables of the cost, of the GPU time in money, and of machines."""
    found = report.cost or None
    if found is None:
        return Empty(
            "No price was given. Use --prices FILE with --set instance_type=TYPE, or --set price_per_node_hour=PRICE."
        )
    if found.run is None:
        return [words.no_cost(found)]
    parts = _parts(found, found.run, report.verdict.use, report.phases)
    return [
        Markup("{} {}").format(status("warn", "Warning"), found.wrong_machine)
        if found.wrong_machine
        else None,
        _bill(found, found.run),
        Note(f"{words.origin(found)} {NOT_HELD}"),
        parts,
        Note(
            f"A GPU-hour costs {words.price(found.per_gpu_hour, found.currency)}: the price of a node-hour over the GPUs "
            "of a node."
        )
        if parts and found.per_gpu_hour
        else None,
        *(sizes(found.sizing, found.currency, "the job") if found.sizing else [Note(NO_SIZES)]),
    ]


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


def _parts(cost: JobCost, run: RunCost, use: TimeUse | None, phases: JobPhases) -> Table | None:
    """The parts of the verdict's bar in money; None without GPUs."""
    if not (cost.parts and use):
        return None
    rows = [
        (
            swatch(named(part.key).fill, part.label),
            formats.part_hours(use, phases, part),
            words.money(paid.amount, cost.currency, run.cost),
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
