"""Claims that several causes share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobrules.model import BoolArray, FloatArray, Job, Panel, Stalls
    from jobrules.model.claims import Claim, Samples
    from jobrules.rules.bottleneck_rule import BottleneckRule


def left_in(rows_of: Callable[[Samples], BoolArray]) -> Claim:
    """Claim all that is left of some samples of each GPU: (n,) those for which it is True."""
    return lambda gpus: [np.where(rows_of(gpu), gpu.left_us, 0.0) for gpu in gpus]


def with_stalls(
    rule: BottleneckRule,
    own: Callable[[Job, Panel, FloatArray], Claim | None],
    stalls: Stalls | None,
    least: float,
) -> Callable[[Job, Panel, FloatArray], Claim | None]:
    """A claim on samples, and on the moments of the ``stalls`` with at least so many cores."""
    return partial(_claimed_too, rule.criteria.gpu_threshold, own, stalls, least) if stalls else own


def _claimed_too(
    below: float,
    own: Callable[[Job, Panel, FloatArray], Claim | None],
    stalls: Stalls,
    least: float,
    part: Job,
    panel: Panel,
    weight_us: FloatArray,
) -> Claim:
    sampled = own(part, panel, weight_us)

    def of_gpu(gpu: Samples) -> FloatArray:
        held = stalls.held(gpu.time_us, gpu.weight_us, least)
        return np.where(gpu.values < below, held * gpu.left_us, 0.0)

    def claim(gpus: Sequence[Samples]) -> Sequence[FloatArray]:
        known = sampled(gpus) if sampled else [np.zeros(len(gpu.values)) for gpu in gpus]
        return [np.maximum(one, of_gpu(gpu)) for one, gpu in zip(known, gpus, strict=True)]

    return claim


def idle_first(left_us: FloatArray, idle: BoolArray, amount_us: float) -> FloatArray:
    """Spread an amount over lost time: over that of idle samples first."""
    of_idle, others = np.where(idle, left_us, 0.0), np.where(idle, 0.0, left_us)
    first = min(1.0, amount_us / max(1.0, float(of_idle.sum())))
    rest_us = max(0.0, amount_us - float(of_idle.sum()))
    return np.asarray(of_idle * first + others * min(1.0, rest_us / max(1.0, float(others.sum()))))
