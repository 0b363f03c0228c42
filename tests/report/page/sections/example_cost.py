"""Goodput of an interrupted job, and prices of machines."""

from __future__ import annotations

from jobreport.cost.prices import Machine, Prices, Pricing
from jobrules.analyses.goodput import PARTS, Goodput
from jobrules.model.time_parts import TimePart, named

#: Of a job of 17 minutes that was killed once.
SECONDS = {
    "interruption": 88.0,
    "checkpoint": 10.0,
    "lost-work": 80.0,
    "before-first-step": 160.0,
    "first-step": 34.0,
    "data-loading": 80.0,
    "productive": 560.0,
    "after-last-step": 8.0,
}


def goodput(seconds: dict[str, float] = SECONDS, *not_measured: str) -> Goodput:
    whole = sum(seconds.values())
    parts = (
        TimePart(
            key=key,
            label=named(key).title,
            role=named(key).role,
            amount=seconds.get(key, 0.0),
            percent=100 * seconds.get(key, 0.0) / whole,
            measured=key not in not_measured,
        )
        for key in PARTS
    )
    return Goodput(seconds=whole, parts=tuple(parts))


def pricing(name: str = "big", currency: str = "USD", **facts: str | float) -> Pricing:
    """A list of two machines, the first of which the job had."""
    return Pricing(
        prices=Prices(
            currency=currency,
            source=f"{name} page",
            as_of="2026-01-31",
            machines=(
                Machine(type=name, per_hour=24.48, gpus=8, gpu_memory_gib=16, cores=32, memory_gib=488),
                Machine(
                    type=f"small {name}", per_hour=12.24, gpus=4, gpu_memory_gib=16, cores=32, memory_gib=244
                ),
            ),
        ),
        facts={"instance_type": name, **facts},
    )
