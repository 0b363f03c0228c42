"""From the reports of several runs to their comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport import __version__
from jobreport.comparison import budgets, shown
from jobreport.comparison.advice import left_to_win, next_step, notes
from jobreport.comparison.comparing import compared, half_of_time, headline
from jobreport.comparison.document import SCHEMA_VERSION, Comparison, Variant
from jobreport.comparison.measures import columns
from jobreport.comparison.runs import common_facts, differences, equal_steps, together
from jobreport.comparison.verdict import verdict
from jobreport.cost.billing import cost, cost_of, has_own_price, of_reports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.comparison.comparing import Settings
    from jobreport.comparison.runs import RunOf


def compare(runs: Sequence[RunOf], settings: Settings, command: str) -> Comparison:
    """The comparison of all variants with that of the first run."""
    settings = replace(settings, prices=settings.prices or of_reports(runs))
    prices, billing = settings.prices, settings.billing
    variants: dict[str, list[RunOf]] = {run.label: [] for run in runs}
    steps = equal_steps(runs)
    for run in runs:
        # Of a part of the job, the price is known, not the cost.
        is_known = run.finished is not None or run.number("cost")
        paid_for = cost_of(run, prices, billing) if is_known else None
        variants[run.label].append(replace(run, cost=paid_for, loss_steps=steps))
    costs = {label: [run.cost for run in own] for label, own in variants.items()}
    paid = cost(costs, prices, billing, [run.label for run in runs if has_own_price(run)])
    base, *others = variants
    facts = {label: common_facts(own) for label, own in variants.items()}
    different = tuple(differences(facts))
    pairs = {label: together([*variants[base], *variants[label]]) for label in others}
    measures = compared(columns(variants), pairs, settings.options)
    chance = {label: half_of_time(measures, label, settings.options.run_noise) for label in others}
    found = Comparison(
        schema_version=SCHEMA_VERSION,
        version=__version__,
        command=command,
        base=base,
        answer="",
        verdict="",
        next="",
        variants=tuple(
            Variant(label=label, runs=tuple(map(shown.run, own)), facts=facts[label])
            for label, own in variants.items()
        ),
        differences=different,
        headline=headline(measures),
        measures=tuple(measures),
        cost=shown.saved(paid, measures, settings.runs_per_month),
        goodput=shown.goodput(variants),
        device_time=shown.device_time(variants),
        steps=shown.steps(variants),
        use=shown.use(variants),
        rules=tuple(shown.rules(variants)),
        profiled=shown.profiled(variants),
        candidates=shown.candidates(variants, prices, paid, chance),
        budgets=tuple(budgets.judged(settings.limits, measures, variants)),
        notes=tuple(notes(variants, pairs, settings, measures)),
    )
    unknown = [label for label, pair in pairs.items() if pair.same_work is None]
    answer, said = verdict(found, unknown, chance)
    next_one = next_step(found, variants)
    return replace(
        found,
        answer=answer,
        verdict=said,
        next=next_one,
        left="" if next_one else left_to_win(found, variants),
    )
