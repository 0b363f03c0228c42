"""Cost and size of a job by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from jobreport.cost.billing import HOUR_S, cost_of, has_own_price, missing, wrong_machine
from jobreport.cost.document import JobCost
from jobreport.cost.facts import PRICES, KnownJob, facts_of
from jobreport.cost.sizes import sizing

if TYPE_CHECKING:
    from msgspec import UnsetType

    from jobreport.cost.prices import Pricing
    from jobreport.document import Report
    from jobrules.model.time_parts import TimePart


def job_cost(report: Report, pricing: Pricing) -> JobCost | UnsetType:
    """Unset without a list of prices and without a price. Raises ``UsageError`` if a machine has several prices."""
    prices = pricing.prices
    run = KnownJob(report=report, facts=facts_of(report, pricing.facts))
    paid = cost_of(run, prices, pricing.billing)
    if paid is None and prices is None and not has_own_price(run):
        return UNSET
    if given := [key for key in PRICES if run.number(key)]:
        source = "the command line" if pricing.facts.keys() & given else "a label of the recording"
    else:
        source = prices.source if prices else ""
    per_gpu_hour = paid.cost / (paid.gpus * paid.hours) if paid and paid.gpus else None
    parts = _parts(report, run.seconds / HOUR_S, per_gpu_hour)
    amount = paid.cost if paid else None
    return JobCost(
        machine=str(run.facts.get("instance_type") or ""),
        currency=prices.currency if prices else "",
        source=source,
        as_of=prices.as_of if prices and not given else "",
        billing=pricing.billing,
        run=paid,
        missing="" if paid else missing(run, prices),
        per_1000_steps=run.per_work(amount, "steps", 1e3),
        per_million_samples=run.per_work(amount, "samples", 1e6),
        per_gpu_hour=per_gpu_hour,
        parts=parts,
        lost=math.fsum(part.amount for part in parts if part.role == "lost"),
        rest=math.fsum((paid.cost, *(-part.amount for part in parts))) if paid and parts else 0.0,
        sizing=sizing([run], prices),
        wrong_machine=wrong_machine(run, prices),
    )


def _parts(report: Report, hours: float, per_gpu_hour: float | None) -> tuple[TimePart, ...]:
    """By the percentages of the verdict, which have more digits than its hours in a short job."""
    use = report.verdict.use
    if use is None or use.device != "GPU" or not per_gpu_hour:
        return ()
    whole = use.count * hours * per_gpu_hour
    return tuple(replace(part, amount=part.percent / 100 * whole) for part in use.parts)
