"""From the reports of several runs to their comparison."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import __version__
from jobreport.comparison import budgets, curves
from jobreport.comparison.comparing import Options, compared, half_of_time, headline, same_work, stopped
from jobreport.comparison.document import SCHEMA_VERSION, Comparison, Run, Variant, Word
from jobreport.comparison.facts import common_facts, differences
from jobreport.comparison.notes import notes
from jobreport.comparison.profiled import profiled
from jobreport.comparison.rules import rules
from jobreport.comparison.verdict import left_to_win, next_step, verdict
from jobreport.cost import sizes
from jobreport.cost.billing import cost, cost_of, has_own_price, of_reports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.budgets import Limit
    from jobreport.comparison.document import Measure
    from jobreport.comparison.facts import RunOf
    from jobreport.cost.document import Cost, RunCost
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
    labels = list(dict.fromkeys(run.label for run in runs))
    runs = [replace(run, cost=_cost_of(run, settings)) for run in runs]
    variants = {label: [run for run in runs if run.label == label] for label in labels}
    measures = compared(variants, settings.options)
    own_price = [run.label for run in runs if has_own_price(run)]
    costs = {label: [run.cost for run in own] for label, own in variants.items()}
    paid = cost(costs, settings.prices, settings.billing, own_price)
    known = _monthly(paid, measures, settings.runs_per_month)
    facts = {label: common_facts(own) for label, own in variants.items()}
    shown = tuple(
        Variant(
            label=label,
            runs=tuple(
                Run(
                    name=run.name,
                    report_version=run.report.version,
                    start_us=run.report.job.start_us,
                    end_us=run.report.job.end_us,
                    page=run.page,
                )
                for run in own
            ),
            facts=facts[label],
        )
        for label, own in variants.items()
    )
    key = headline(measures)
    judged = budgets.judged(settings.limits, measures, labels[1:], variants)
    goodput, steps = curves.goodput(variants), curves.steps(variants)
    in_traces = profiled(variants)
    differing = differences(facts)
    candidates = {}
    noise = settings.options.run_noise
    chance = {one: half_of_time({m.key: m for m in measures}, one, noise) for one in labels[1:]}
    for label, own in variants.items():
        others = [_other(label, one, variants, known, chance) for one in labels if one != label]
        if found := sizes.sizing(own, settings.prices, others):
            candidates[label] = found
    next_one = next_step(variants, measures, key, in_traces)
    return Comparison(
        schema_version=SCHEMA_VERSION,
        version=__version__,
        command=command,
        base=labels[0],
        verdict=verdict(
            shown,
            measures,
            known,
            goodput,
            in_traces,
            differing,
            steps,
            [one for one in labels[1:] if same_work(variants[labels[0]], variants[one]) is None],
            noise,
        ),
        next=next_one,
        left="" if next_one else left_to_win(variants, measures, key),
        variants=shown,
        differences=tuple(differing),
        headline=key,
        measures=tuple(measures),
        cost=known,
        goodput=goodput,
        device_time=curves.device_time(variants),
        steps=steps,
        use=curves.use(variants),
        rules=tuple(rules(variants)),
        candidates=candidates,
        budgets=tuple(judged),
        notes=tuple(notes(variants, settings, measures)),
        profiled=in_traces,
    )


def _cost_of(run: RunOf, settings: Settings) -> RunCost | None:
    """Of a part of the job, the price is known, not the cost."""
    if run.finished is None and not run.number("cost"):
        return None
    return cost_of(run, settings.prices, settings.billing)


def _other(
    own: str,
    label: str,
    variants: Mapping[str, Sequence[RunOf]],
    costs: Cost | None,
    chance: Mapping[str, float],
) -> sizes.Variant:
    """Another variant, with what it took and cost if it did the same work.

    ``chance`` is how much a time differs from that of the base by chance, in logarithms.
    """
    runs = variants[label]
    of_both = [*variants[own], *runs]
    if costs is None or stopped(of_both) or not same_work(variants[own], runs):
        return sizes.Variant(label=label, run=runs[0])
    amounts = {row.label: row.cost for row in costs.rows}
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
