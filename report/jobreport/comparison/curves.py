"""What the figures of a comparison draw, of the variants whose runs all have it; of repeats the mean of each number."""

from __future__ import annotations

import math
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import replace

from jobreport.comparison.document import Steps, Use
from jobreport.comparison.facts import unrecorded
from jobreport.comparison.measures import mean_over, stretches
from jobrules.model import Metric
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from msgspec import UnsetType

    from jobreport.comparison.facts import RunOf
    from jobrules.analyses.blocks import StepBlocks
    from jobrules.analyses.goodput import Goodput
    from jobrules.model.time_parts import TimePart
    from jobrules.verdict.time_use import TimeUse

    Variants = Mapping[str, Sequence[RunOf]]

T = TypeVar("T")


def _of_all(variants: Variants, of: Callable[[RunOf], T | UnsetType | None]) -> dict[str, list[T]]:
    """What all runs of a variant have, by its label."""
    found = {label: [one for run in runs if (one := of(run))] for label, runs in variants.items()}
    return {label: known for label, known in found.items() if len(known) == len(variants[label])}


def goodput(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Seconds of the job by part."""
    known = _of_all(variants, lambda run: run.report.goodput)
    return {label: _goodput(own, whole=not unrecorded(variants[label])) for label, own in known.items()}


def _goodput(runs: Sequence[Goodput], *, whole: bool) -> tuple[TimePart, ...]:
    """Productive time to the nearest tenth of a percent, as captions have it, the others add up with it."""
    parts = [[one.of(part.key) for one in runs] for part in runs[0].parts]
    means = {own[0].key: fmean([one.percent for one in own]) for own in parts}
    first = round(means.pop("productive"), 1)
    percents = dict(zip(means, apportion(list(means.values()), 100.0 - first, 1), strict=True))
    return tuple(
        replace(
            own[0],
            amount=fmean([one.amount for one in own]),
            percent=percents.get(own[0].key, first),
            measured=all(one.measured for one in own)
            and (whole or own[0].key not in ("before-first-step", "after-last-step")),
        )
        for own in parts
    )


def device_time(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Hours of GPUs with samples, by cause of loss."""
    known = _of_all(variants, lambda run: run.report.verdict.use)
    gpus = {label: own for label, own in known.items() if all(use.device == "GPU" for use in own)}
    return {label: _device_time(own) for label, own in gpus.items()}


def _device_time(runs: Sequence[TimeUse]) -> tuple[TimePart, ...]:
    """Percents are those of the report; of repeats, whose lengths differ, the shares of the mean hours."""
    parts = {part.key: part for use in runs for part in use.parts}
    hours = [fmean([sum(p.amount for p in use.parts if p.key == key) for use in runs]) for key in parts]
    percents = [part.percent for part in parts.values()] if len(runs) == 1 else apportion(hours, 100.0, 1)
    return tuple(
        replace(part, amount=amount, percent=percent, finding="", when="")
        for part, amount, percent in zip(parts.values(), hours, percents, strict=True)
    )


def steps(variants: Variants) -> dict[str, Steps]:
    """Step times."""
    return {label: _steps(own) for label, own in _of_all(variants, lambda run: run.report.blocks).items()}


def _steps(runs: Sequence[StepBlocks]) -> Steps:
    # Runs of fewer steps have no blocks.
    blocks = [np.divide(one.sum_s, one.n) for one in runs if len(one.n) > 1]
    stalls = [one.stalls for one in runs if one.stalls is not None]
    return Steps(
        quantiles_s=_means([one.quantiles_s for one in runs]),
        means_s=_means(blocks) if len(blocks) == len(runs) else (),
        timed=sum(one.timed for one in runs),
        timed_s=math.fsum(second for one in runs for second in one.sum_s),
        stalls=sum(stalls) if len(stalls) == len(runs) else None,
        stalled_s=math.fsum(one.stalled_s for one in runs),
    )


def use(variants: Variants) -> dict[str, tuple[Use, ...]]:
    """Utilization of GPUs and cores in the training loop; of the variants that have either."""
    found: dict[str, tuple[Use, ...]] = {}
    for device, metric in (("GPU", Metric.GPU_UTILIZATION), ("CPU", Metric.CPU_UTILIZATION)):
        known = _of_all(variants, partial(stretches, metric=metric))
        for label, own in known.items():
            mean, histogram = fmean(map(mean_over, own)), _means([one.histogram for one in own])
            found[label] = (*found.get(label, ()), Use(device=device, mean=mean, histogram=histogram))
    return {label: found[label] for label in variants if label in found}


def _means(rows: Sequence[Sequence[float]] | Sequence[np.ndarray]) -> tuple[float, ...]:
    """Mean of each place of rows of one length."""
    return tuple(np.mean(np.array(rows, np.float64), axis=0).tolist())
