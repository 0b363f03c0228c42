"""From the reports of several runs to their comparison."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import __version__
from jobreport.comparison import budgets, curves
from jobreport.comparison.advice import left_to_win, next_step
from jobreport.comparison.comparing import Options, compared, half_of_time, headline
from jobreport.comparison.document import SCHEMA_VERSION, Comparison, Run, Variant, Word
from jobreport.comparison.facts import common_facts, differences, together
from jobreport.comparison.notes import notes
from jobreport.comparison.profiled import profiled
from jobreport.comparison.rules import rules
from jobreport.comparison.verdict import verdict
from jobreport.cost import sizes
from jobreport.cost.billing import cost, cost_of, has_own_price, of_reports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.budgets import Limit
    from jobreport.comparison.document import Measure
    from jobreport.comparison.facts import RunOf
    from jobreport.cost.document import Cost, RunCost, Sizing
    from jobreport.cost.prices import Prices


class Settings(Struct, frozen=True, kw_only=True):
    """What the user set for a comparison."""

    options: Options = Options()
    prices: Prices | None = None
    billing: str = "1s"
    limits: tuple[Limit, ...] = ()
    runs_per_month: float | None = None
    #: Grams of CO₂ per kWh, and energy of the site per energy of the machines; None for none.
    co2_g: float | None = None
    pue: float = 1.0


def compare(runs: Sequence[RunOf], settings: Settings, command: str) -> Comparison:
    """The comparison of all variants with that of the first run."""
    settings = replace(settings, prices=settings.prices or of_reports(runs))
    runs = [replace(run, cost=_cost_of(run, settings)) for run in runs]
    variants = {
        label: [run for run in runs if run.label == label] for label in dict.fromkeys(r.label for r in runs)
    }
    base, *others = variants
    pairs = {label: together([*variants[base], *variants[label]]) for label in others}
    measures = compared(variants, pairs, settings.options)
    chance = {label: half_of_time(measures, label, settings.options.run_noise) for label in others}
    paid = _monthly(_cost(variants, settings), measures, settings.runs_per_month)
    facts = {label: common_facts(own) for label, own in variants.items()}
    found = Comparison(
        schema_version=SCHEMA_VERSION,
        version=__version__,
        command=command,
        base=base,
        verdict="",
        next="",
        variants=tuple(
            Variant(label=label, runs=tuple(map(_shown, own)), facts=facts[label])
            for label, own in variants.items()
        ),
        differences=tuple(differences(facts)),
        headline=headline(measures),
        measures=tuple(measures),
        cost=paid,
        goodput=curves.goodput(variants),
        device_time=curves.device_time(variants),
        steps=curves.steps(variants),
        use=curves.use(variants),
        rules=tuple(rules(variants)),
        candidates=_candidates(variants, settings, paid, chance),
        budgets=tuple(budgets.judged(settings.limits, measures, variants)),
        notes=tuple(notes(variants, pairs, settings, measures)),
        profiled=profiled(variants),
    )
    unknown = [label for label, pair in pairs.items() if pair.same_work is None]
    next_one = next_step(found, variants)
    return replace(
        found,
        verdict=verdict(found, unknown, chance),
        next=next_one,
        left="" if next_one else left_to_win(found, variants),
    )


def _shown(run: RunOf) -> Run:
    job = run.report.job
    version = run.report.version
    return Run(name=run.name, report_version=version, start_us=job.start_us, end_us=job.end_us, page=run.page)


def _cost_of(run: RunOf, settings: Settings) -> RunCost | None:
    """Of a part of the job, the price is known, not the cost."""
    if run.finished is None and not run.number("cost"):
        return None
    return cost_of(run, settings.prices, settings.billing)


def _cost(variants: Mapping[str, Sequence[RunOf]], settings: Settings) -> Cost | None:
    own_price = [run.label for own in variants.values() for run in own if has_own_price(run)]
    costs = {label: [run.cost for run in own] for label, own in variants.items()}
    return cost(costs, settings.prices, settings.billing, own_price)


def _candidates(
    variants: Mapping[str, Sequence[RunOf]],
    settings: Settings,
    paid: Cost | None,
    chance: Mapping[str, float],
) -> dict[str, Sizing]:
    """Which machines may run each variant, of the list and those of the other variants."""
    found = {}
    for label, own in variants.items():
        others = [_machines(label, one, variants, paid, chance) for one in variants if one != label]
        if size := sizes.sizing(own, settings.prices, others):
            found[label] = size
    return found


def _machines(
    own: str,
    label: str,
    variants: Mapping[str, Sequence[RunOf]],
    paid: Cost | None,
    chance: Mapping[str, float],
) -> sizes.Variant:
    """Another variant, with what it took and cost if it did the same work."""
    runs = variants[label]
    both = together([*variants[own], *runs])
    if paid is None or both.stopped or not both.same_work:
        return sizes.Variant(label=label, run=runs[0])
    amounts = {row.label: row.cost for row in paid.rows}
    ratio = amounts[label] / amounts[own]
    return sizes.Variant(
        label=label,
        run=runs[0],
        seconds=fmean(run.seconds for run in runs),
        cost=ratio,
        is_sure=abs(math.log(ratio)) > max(chance.get(one, 0.0) for one in (own, label)),
    )


def _monthly(found: Cost | None, measures: Sequence[Measure], runs: float | None) -> Cost | None:
    """The cost with what so many runs of the variants that can be compared would save."""
    if found is None or runs is None:
        return found
    base = found.rows[0].cost
    against = next(one for one in measures if one.key == "cost").against
    monthly = {
        row.label: math.fsum((runs * base, -runs * row.cost))
        for row in found.rows[1:]
        if against[row.label].word is not Word.REFUSED
    }
    return replace(found, runs_per_month=runs, monthly=monthly)
