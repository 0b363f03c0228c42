"""Which machines could run a job: what it needs, what each offers, and from when it pays.

A candidate is something to test, never an order. The needs are those of the busiest moments, with headroom; a machine
holds them only if all needs are known, and all that it offers. What another variant measured stands over the estimate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.cost.billing import cost_of, listed_price, machine_of
from jobreport.cost.document import Candidate, RunCost, Sizing
from jobreport.cost.facts import GIB, KnownJob
from jobreport.cost.prices import Machine  # noqa: TC001 - msgspec reads the annotation
from jobrules.model import Metric, Status
from jobrules.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jobreport.cost.prices import Prices
    from jobreport.document import Report

#: Room above the demand, as AWS Compute Optimizer's default.
HEADROOM = 0.20
#: Less than a rounding error of a sum of percentages makes no GPU more.
_EPSILON = 1e-9
MAX_CANDIDATES = 3
MIN_SECONDS, MIN_COVERAGE = 600.0, 80.0
#: Above this share of its size, GPU memory may hold parts of a sharded model.
FULL_MEMORY = 0.80
#: Bottlenecks of this share of the time come first.
BOTTLENECK_PERCENT = 10.0
IMBALANCED_PERCENT, LOW_PERCENT = 80.0, 50.0


def whole(demand: float) -> int:
    """Devices that hold a demand with headroom."""
    return math.ceil(demand / (1 - HEADROOM) - _EPSILON)


class Variant(Struct, frozen=True, kw_only=True):
    """Another variant, by one of its runs; what it took and cost if it did the same work."""

    label: str
    run: KnownJob
    seconds: float | None = None
    #: As a ratio to that of the variant whose size is looked at.
    cost: float | None = None
    is_sure: bool = True


def sizing(runs: Sequence[KnownJob], prices: Prices | None, others: Sequence[Variant] = ()) -> Sizing | None:
    """For the run that asks for most; None without a list of machines, or if nothing was sampled.

    The machines of ``others`` are looked at whatever they cost.
    """
    known = [(run, found) for run in runs if (found := demand_of(run.report))]
    if prices is None or not known or not any(machine.gpus is not None for machine in prices.machines):
        return None
    run, (gpus, cores, upper) = max(known, key=lambda one: (one[1][0] or 0.0, one[1][1] or 0.0))
    now = machine_of(run, prices)
    paid = cost_of(run, prices, "1s")
    if now is None or paid is None:
        return None
    demand = run.report.demand or None
    gpus_there = round(run.number("gpus") or 0)
    used = (demand.used_gpus if demand and demand.all_gpus else gpus_there) or 0
    needs = _needs(run, now, gpus, cores, used)
    guards, advised = _guards(run.report)
    machines = [(one, machine) for one in others if (machine := machine_of(one.run, prices))]
    names = {machine.type: str(one.run.facts["instance_type"]) for one, machine in machines}
    names[now.type] = str(run.facts["instance_type"])
    have = _Today(run=run, machine=now, paid=paid, needs=needs, used=used, names=names)
    compared = [
        have.offer(machine, int(its.nodes), its.per_hour, other)
        for other, machine in machines
        if (its := cost_of(other.run, prices, "1s"))
    ]
    # What ran, ran; of the same machines in other numbers an estimate would say less.
    measured = {one.machine for one in compared if one.measured_s is not None}
    taken = {(one.machine, one.count) for one in compared}
    offers = [
        offer
        for machine, per_hour in _cheapest(prices, now, paid)
        for count in have.counts(machine)
        if count * per_hour < paid.nodes * paid.per_hour and (machine.gpus != 0 or not needs["gpus"])
        if (offer := have.offer(machine, count, per_hour)).machine not in measured
        and (offer.machine, offer.count) not in taken
    ]
    # Those that hold what is needed, the cheapest first; then those of which that is not known, or that lack least.
    offers.sort(key=lambda one: (len(one.fails), len(one.unknown), one.per_hour, one.machine, one.count))
    best = offers[:MAX_CANDIDATES]
    if used and any(one.offers["gpus"] and one.offers["gpus"] < used for one in best):
        guards.append("Fewer GPUs at the same global batch need more memory each.")
    return Sizing(
        needs=needs,
        now=have.offer(now, int(paid.nodes), paid.per_hour),
        candidates=(*best, *compared),
        guards=tuple(guards),
        advised=advised and bool(best) and best[0].holds,
        upper_estimate=upper,
    )


def _cheapest(prices: Prices, now: Machine, paid: RunCost) -> Collection[tuple[Machine, float]]:
    """Each type once, with its lowest price of an hour in the region: catalogs have a row for each zone.

    That of the run's own machines is what was paid. A run on spot machines is held against spot prices.
    """
    found: dict[str, tuple[Machine, float]] = {}
    for machine in prices.machines:
        own = machine.type == now.type
        price = paid.per_hour if own else listed_price(machine, spot=paid.spot)
        near = not now.region or machine.region in ("", now.region)
        if near and price and (machine.type not in found or price < found[machine.type][1]):
            found[machine.type] = machine, price
    return found.values()


def demand_of(report: Report) -> tuple[float | None, float | None, bool] | None:
    """GPUs and cores in full use at the busiest, and whether that is an upper estimate from percentiles of nodes."""
    demand = report.demand or None
    if demand is not None and (demand.gpus is not None or demand.cores is not None):
        return demand.gpus, demand.cores, False
    devices = {node.name: (node.gpus, node.cores) for node in report.job.nodes}
    sums: dict[Metric, float] = {}
    for metric, place in ((Metric.GPU_UTILIZATION, 0), (Metric.CPU_UTILIZATION, 1)):
        rows = [row for row in report.utilization if row.label == metric.label and row.node in devices]
        # A single series is the mean of an unknown number of cores.
        if rows and not (place and any(devices[row.node][place] <= 1 for row in rows)):
            sums[metric] = math.fsum(devices[row.node][place] * row.p95 / 100 for row in rows)
    return (sums.get(Metric.GPU_UTILIZATION), sums.get(Metric.CPU_UTILIZATION), True) if sums else None


def _needs(
    run: KnownJob, now: Machine, gpus: float | None, cores: float | None, used: int
) -> dict[str, float | None]:
    """With headroom: GPUs and cores of all machines, host memory of the processes of each GPU, memory of each GPU, in GiB.

    GPUs in use need no headroom. Without GPUs in use, host memory is that of a machine.
    """
    if gpus is None and now.gpus == 0 and not run.number("gpus"):
        gpus = 0.0  # there are none
    demand = run.report.demand or None
    percent_used = demand.host_memory_percent if demand else None
    host = percent_used / 100 * now.memory_gib / (1 - HEADROOM) if percent_used and now.memory_gib else None
    nodes = run.number("nodes") or 1
    memory = demand.gpu_memory / GIB / (1 - HEADROOM) if demand and demand.gpu_memory is not None else None
    return {
        "gpus": min(used, whole(gpus)) if gpus is not None else None,
        "cores": whole(cores) if cores is not None else None,
        "memory_gib": host * min(1.0, nodes / used) if host and used else host,
        "gpu_memory_gib": 0.0 if memory is None and now.gpus == 0 else memory,
    }


#: What machines are held against, in words: each need, and what the list says.
_UNITS = {"gpus": "GPUs", "cores": "cores", "memory_gib": "host memory", "gpu_memory_gib": "GPU memory"}


class _Today(Struct, frozen=True, kw_only=True):
    """What a run has, and needs."""

    run: KnownJob
    machine: Machine
    paid: RunCost
    needs: dict[str, float | None]
    #: GPUs in use.
    used: int
    #: As the user named machines, by their names in the list.
    names: dict[str, str]

    def ranks(self, machine: Machine, count: int) -> int:
        """GPUs in use on the fullest of so many machines, as far as it has them; without GPUs in use, machines of today on it."""
        spread = math.ceil((self.used or self.paid.nodes) / count)
        return spread if not self.used or machine.gpus is None else min(machine.gpus, spread)

    def counts(self, machine: Machine) -> list[int]:
        """Numbers of a machine, at most as many as today, among which the best are: more machines lack less.

        These are the lowest from which on a need is met, and some more of each.
        """
        sizes = {"gpus": machine.gpus, "cores": machine.cores}
        whole = [(self.needs[key], size) for key, size in sizes.items()] + [(self.paid.gpus, machine.gpus)]
        if (share := self.needs["memory_gib"]) and machine.memory_gib:
            whole.append((self.used or self.paid.nodes, machine.memory_gib // share))
        enough = [1, *(math.ceil(need / size) for need, size in whole if need and size)]
        near = {count + more for count in enough for more in range(-1, MAX_CANDIDATES)}
        return sorted(count for count in near if 1 <= count <= self.paid.nodes)

    def offer(
        self, machine: Machine, count: int, per_hour: float, variant: Variant | None = None
    ) -> Candidate:
        """So many of a machine at a price, held against the needs, or as the variant measured it."""
        offers = {
            "gpus": count * machine.gpus if machine.gpus is not None else None,
            "cores": count * machine.cores if machine.cores is not None else None,
            "memory_gib": machine.memory_gib,
            "gpu_memory_gib": 0.0 if machine.gpus == 0 else machine.gpu_memory_gib,
        }
        measured = variant.seconds if variant else None
        fails, unknown = ([], []) if measured is not None else self._lacks(machine, count, offers)
        hourly, today = count * per_hour, self.paid.nodes * self.paid.per_hour
        if measured is not None and variant and variant.cost is not None:
            saving: float | None = 1 - variant.cost
        else:
            saving = None if self._other_gpus(machine) else 1 - hourly / today
        return Candidate(
            machine=self.names.get(machine.type, machine.type),
            count=count,
            offers=offers,
            fails=tuple(fails),
            unknown=tuple(unknown),
            per_hour=hourly,
            saving=saving,
            break_even_s=today / hourly * self.run.seconds,
            measured_s=measured,
            is_sure=variant.is_sure if variant else True,
            label=variant.label if variant else "",
        )

    def _lacks(
        self, machine: Machine, count: int, offers: dict[str, float | None]
    ) -> tuple[list[str], list[str]]:
        """Needs that are not met, and what is not known, as clauses."""
        fails, unknown = [], []
        for key, unit in _UNITS.items():
            need, offer = self.needs[key], offers[key]
            if need is not None and key == "memory_gib":
                need *= self.ranks(machine, count)
            if need is None:
                unknown.append(f"{unit} in use")
            elif offer is None and need:
                unknown.append(f"{unit} of the machine")
            elif offer is not None and offer < need - _EPSILON:
                gib = " GiB" if key.endswith("gib") else ""
                fails.append(f"{unit}: {need:,.4g}{gib} needed, {offer:,.4g}{gib} there")
        fewer = offers["gpus"] is not None and self.used > offers["gpus"]
        if fewer and _is_full(self.run.report) and self.run.facts.get("parallelism") != "ddp":
            fails.append("GPU memory is nearly full, and may hold parts of a sharded model")
        if self._other_gpus(machine):
            unknown.append(
                f"how fast {machine.gpu_model} GPUs are: test" if machine.gpu_model else "its model of GPU"
            )
        return fails, unknown

    def _other_gpus(self, machine: Machine) -> bool:
        """Whether GPUs are needed, and the machine has others, or nobody knows."""
        same = machine.type == self.machine.type or (
            machine.gpu_model and machine.gpu_model == self.machine.gpu_model
        )
        return self.needs["gpus"] != 0 and not same


def _is_full(report: Report) -> bool:
    demand = report.demand or None
    return bool(
        demand
        and demand.gpu_memory
        and demand.gpu_memory_total
        and demand.gpu_memory >= FULL_MEMORY * demand.gpu_memory_total
    )


def _guards(report: Report) -> tuple[list[str], bool]:
    """What stands before any advice, and whether there may be any."""
    guards, advised = [], True
    demand = report.demand or None
    if demand and (demand.seconds < MIN_SECONDS or demand.coverage_percent < MIN_COVERAGE):
        advised = False
        measured = f"{duration(demand.seconds * 1e6)}, {percent(demand.coverage_percent)} of it sampled"
        guards.append(f"The measurement is short ({measured}); a candidate needs 10 min with 80% sampled.")
    guards += [
        f"Utilization is low because GPUs wait ({card.name}, {percent(100 * card.severity)}): first remove that."
        for card in report.rules
        if card.name in ("CPUBottleneck", "IOBottleneck")
        and card.status is Status.TRIGGERED
        and 100 * card.severity >= BOTTLENECK_PERCENT
    ]
    if demand and demand.highest_gpu_percent is not None and demand.mean_gpu_percent is not None:
        of_used = demand.mean_gpu_percent * demand.all_gpus / max(1, demand.used_gpus)
        if demand.highest_gpu_percent > IMBALANCED_PERCENT and of_used < LOW_PERCENT:
            advised = False
            guards.append("One GPU is busy while the others are not: first balance the work (LoadBalancing).")
        if 0 < demand.used_gpus < demand.all_gpus:
            guards.append(
                f"{demand.used_gpus} of {demand.all_gpus} GPUs were used: first try the same machine type with so many."
            )
    return guards, advised
