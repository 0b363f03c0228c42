"""What the figures of a comparison draw; of repeats the mean of each number."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.comparison.document import Steps, Use
from jobreport.comparison.facts import unrecorded
from jobreport.comparison.measures import mean_over, stretches
from jobrules.model import Metric
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.facts import RunOf
    from jobrules.model.time_parts import TimePart

    Variants = Mapping[str, Sequence[RunOf]]


def goodput(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Seconds of the job by part, of the variants whose runs all have it."""
    found = {}
    for label, runs in variants.items():
        known = [run.report.goodput for run in runs if run.report.goodput]
        if len(known) == len(runs):
            amounts = {part.key: fmean([one.of(part.key).amount for one in known]) for part in known[0].parts}
            percents = _mean_percents(
                [{part.key: part.percent for part in one.parts} for one in known], "productive"
            )
            found[label] = tuple(
                replace(
                    part,
                    amount=amounts[part.key],
                    percent=percents[part.key],
                    measured=all(one.of(part.key).measured for one in known)
                    and not (part.key in ("before-first-step", "after-last-step") and unrecorded(runs)),
                )
                for part in known[0].parts
            )
    return found


def device_time(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Device-hours by cause of loss, of the variants whose runs all have GPUs with samples."""
    found = {}
    for label, runs in variants.items():
        known = [run.report.verdict.use for run in runs if run.report.verdict.use]
        if len(known) < len(runs) or any(use.device != "GPU" for use in known):
            continue
        parts = {part.key: part for use in known for part in use.parts}
        amounts = {
            key: fmean([sum(part.amount for part in use.parts if part.key == key) for use in known])
            for key in parts
        }
        # Those of the report; of repeats, whose lengths differ, the shares of the mean hours.
        percents = {part.key: part.percent for part in known[0].parts}
        if len(known) > 1:
            percents = dict(zip(amounts, apportion(list(amounts.values()), 100.0, 1), strict=True))
        found[label] = tuple(
            replace(part, amount=amounts[key], percent=percents[key], finding="", when="")
            for key, part in parts.items()
        )
    return found


def _mean_percents(runs: Sequence[Mapping[str, float]], named: str) -> dict[str, float]:
    """Mean percent of each part: the named one to the nearest tenth, as captions have it, the others add up with it."""
    means = {key: fmean([run.get(key, 0.0) for run in runs]) for key in runs[0]}
    first = round(means.pop(named, 0.0), 1)
    others = apportion(list(means.values()), 100.0 - first, 1)
    return {named: first, **dict(zip(means, others, strict=True))}


def steps(variants: Variants) -> dict[str, Steps]:
    """Step times of the variants whose runs all have steps."""
    found = {}
    for label, runs in variants.items():
        known = [run.report.blocks for run in runs if run.report.blocks]
        if len(known) < len(runs):
            continue
        # Runs of fewer steps have no blocks.
        blocks = [np.divide(one.sum_s, one.n) for one in known if len(one.n) > 1]
        same = len(blocks) == len(runs)
        found[label] = Steps(
            quantiles_s=_means([one.quantiles_s for one in known]),
            means_s=_means(blocks) if same else (),
            timed=sum(one.timed for one in known),
            timed_s=math.fsum(second for one in known for second in one.sum_s),
            stalls=None if None in (own := [one.stalls for one in known]) else sum(filter(None, own)),
            stalled_s=math.fsum(one.stalled_s for one in known),
        )
    return found


def use(variants: Variants) -> dict[str, tuple[Use, ...]]:
    """Utilization of GPUs and cores in the training loop."""
    found: dict[str, tuple[Use, ...]] = {}
    for label, runs in variants.items():
        rows = []
        for device, metric in (("GPU", Metric.GPU_UTILIZATION), ("CPU", Metric.CPU_UTILIZATION)):
            known = [one for run in runs if (one := stretches(run.report, metric))]
            if known and len(known) == len(runs):
                histogram = _means([one.histogram for one in known])
                rows.append(
                    Use(
                        device=device,
                        mean=fmean(map(mean_over, known)),
                        histogram=histogram,
                    )
                )
        found[label] = tuple(rows)
    return {label: rows for label, rows in found.items() if rows}


def _means(rows: Sequence[Sequence[float]] | Sequence[np.ndarray]) -> tuple[float, ...]:
    """Mean of each place of rows of one length."""
    return tuple(np.mean(np.array(rows, np.float64), axis=0).tolist())
