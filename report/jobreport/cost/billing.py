"""What runs cost, from prices that the user gives, and why one costs less than another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobreport.cost.document import Cost, CostRow, Factors, RunCost
from jobreport.cost.facts import PRICES
from jobreport.cost.prices import Prices
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobreport.cost.facts import KnownJob
    from jobreport.cost.prices import Machine

#: Seconds that a duration is rounded up to before it is billed.
BILLING = {"1s": 1, "1min": 60, "1h": 3600}
HOUR_S = 3600.0


def machine_of(run: KnownJob, prices: Prices | None) -> Machine | None:
    """The machine that a run had; None if it is not known."""
    kind = run.facts.get("instance_type")
    region = str(run.facts.get("region") or "")
    return prices.machine(str(kind), region, spot=is_spot(run)) if prices and kind else None


def is_spot(run: KnownJob) -> bool:
    """Whether the machines of a run were spot machines."""
    return str(run.facts.get("spot")).lower() in ("true", "yes", "1")


def has_own_price(run: KnownJob) -> bool:
    """Whether the cost is not by the list: it was given for the run, with ``--set`` or a label."""
    return any(run.number(key) for key in PRICES)


def listed_price(machine: Machine, *, spot: bool) -> float | None:
    """Of an hour; None for a spot machine without a spot price."""
    return machine.spot_per_hour if spot else machine.per_hour


def missing(run: KnownJob, prices: Prices | None) -> str:
    """What has to be known before a run has a cost: a key of ``words.TO_GIVE``."""
    if not run.seconds or run.report.only_traces:
        return "duration"
    machine = machine_of(run, prices)
    if run.number("price_per_gpu_hour") and run.number("nodes") and not _own_price(run):
        return "gpus"
    if has_own_price(run) or (machine and listed_price(machine, spot=is_spot(run))):
        return "nodes"
    if prices is None or not prices.machines:
        return "prices"
    if not run.facts.get("instance_type"):
        return "machine"
    return "spot_price" if machine else "price"


def cost_of(run: KnownJob, prices: Prices | None, billing: str) -> RunCost | None:
    """None if it took no time, or has no price: given for the run, or by the list for its machine."""
    nodes = run.number("nodes")
    machine = machine_of(run, prices)
    spot = is_spot(run)
    listed = listed_price(machine, spot=spot) if machine else None
    unit = BILLING[billing]
    # Times are whole microseconds: 60.0000000001 s are one minute.
    hours = math.ceil(round(run.seconds / unit, 9)) * unit / HOUR_S if unit > 1 else run.seconds / HOUR_S
    given = run.number("cost")
    if not nodes or not hours or run.report.only_traces:
        return None
    per_hour = given / nodes / hours if given else _own_price(run) or listed or _of_report(run, prices)
    if not per_hour:
        return None
    return RunCost(
        machine=str(run.facts.get("instance_type") or ""),
        nodes=nodes,
        hours=hours,
        per_hour=per_hour,
        spot=spot,
        cost=given or nodes * hours * per_hour,
        gpus=_paid_gpus(run, machine),
    )


def _own_price(run: KnownJob) -> float | None:
    """Of a node-hour, as it was given for the run; None also for a price of a GPU-hour of an unknown number of GPUs."""
    of_gpu, gpus, nodes = (run.number(key) for key in ("price_per_gpu_hour", "gpus", "nodes"))
    return run.number("price_per_node_hour") or (of_gpu * gpus / nodes if of_gpu and gpus and nodes else None)


def _of_report(run: KnownJob, prices: Prices | None) -> float | None:
    """Price of a node-hour with which the report was made, if ``prices`` are ``of_reports``."""
    found = run.report.cost.run if run.report.cost else None
    return found.per_hour if found and prices and not prices.machines else None


def of_reports(runs: Sequence[KnownJob]) -> Prices | None:
    """Where the prices are from with which the reports were made; None for none, and for several currencies."""
    costs = [run.report.cost for run in runs if run.report.cost and run.report.cost.run]
    if len({one.currency for one in costs}) != 1:
        return None
    source, as_of = (
        " / ".join(dict.fromkeys(filter(None, texts)))
        for texts in zip(*((one.source, one.as_of) for one in costs), strict=True)
    )
    return Prices(currency=costs[0].currency, source=source, as_of=as_of, machines=())


def _paid_gpus(run: KnownJob, machine: Machine | None) -> float:
    """GPUs of all nodes as they were given or recorded, otherwise those of the list."""
    use = run.report.verdict.use
    sampled = use.count if use and use.device == "GPU" else 0
    listed = (run.number("nodes") or 0) * (machine.gpus or 0) if machine else 0
    return max(run.number("gpus") or 0, sampled) or listed


def wrong_machine(run: KnownJob, prices: Prices | None) -> str:
    """That the list has other GPUs or cores of the machine type than were recorded; empty if it has not."""
    machine = machine_of(run, prices)
    if machine is None:
        return ""
    nodes = run.report.job.nodes
    # Of the cores that a machine has, a job may see a part.
    all_cores = [one.cores for source in run.report.quality.sources for one in source.recordings if one.cores]
    recorded = {
        "GPU": ([node.gpus for node in nodes], machine.gpus),
        "core": (all_cores or [node.cores for node in nodes], machine.cores),
    }
    # Means over all cores look like a single one.
    wrong = {
        noun: (others[0], round(listed))
        for noun, (found, listed) in recorded.items()
        if listed is not None
        if (others := [one for one in found if one != listed and one > (noun == "core")])
    }
    if not wrong:
        return ""
    found, listed = (" and ".join(count(pair[i], noun) for noun, pair in wrong.items()) for i in (0, 1))
    kind = escape_name(str(run.facts["instance_type"]), 40)
    return f"{found} of a node were recorded, but {kind} has {listed} by the list: check the machine type."


def cost(
    variants: Mapping[str, Sequence[RunCost | None]],
    prices: Prices | None,
    billing: str,
    own_price: Collection[str] = (),
) -> Cost | None:
    """The costs of all variants; None if one is not known. The first variant is the base.

    ``own_price`` are the labels of variants with a cost that is not by the list.
    """
    rows: dict[str, CostRow] = {}
    for label, runs in variants.items():
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            return None
        rows[label] = CostRow(
            label=label,
            machine=" / ".join(dict.fromkeys(run.machine for run in known)),
            nodes=_mean([run.nodes for run in known]),
            gpus=_mean([run.gpus for run in known]),
            node_hours=_mean([run.nodes * run.hours for run in known]),
            per_hour=_mean([run.per_hour for run in known]),
            spot=all(run.spot for run in known),
            cost=_mean([run.cost for run in known]),
        )
    base, *others = rows.values()
    of_gpus = all(run and run.gpus for runs in variants.values() for run in runs)
    by_list = None if rows.keys() <= {*own_price} else prices
    return Cost(
        currency=prices.currency if prices else "",
        source=by_list.source if by_list else "",
        as_of=by_list.as_of if by_list else "",
        own_price=tuple(label for label in rows if label in own_price),
        billing=billing,
        rows=tuple(rows.values()),
        saving={row.label: 1 - row.cost / base.cost for row in others},
        factors={row.label: _factors(base, row, of_gpus=of_gpus) for row in others},
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _factors(base: CostRow, row: CostRow, *, of_gpus: bool) -> Factors:
    """Ratios whose product is that of the costs: of the time of a machine, of the number, and of the price of each."""
    time = (row.node_hours / row.nodes) / (base.node_hours / base.nodes)
    count = row.gpus / base.gpus if of_gpus else row.nodes / base.nodes
    # What is left, so that the product holds whatever a user gave as cost.
    return Factors(time=time, count=count, price=row.cost / base.cost / time / count, of_gpus=of_gpus)
