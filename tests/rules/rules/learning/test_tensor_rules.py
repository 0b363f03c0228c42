"""The rules on gradients, weights, and activations: vectors of their definitions, what they lack, and what changes nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from jobrules.model import Severity, Status
from jobrules.model.learning import (
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS_SCALE,
    Collection,
    LearningEvent,
    Tensor,
)
from jobrules.rules.learning import LEARNING_RULES
from jobrules.rules.learning.dead_relu import DeadRelu
from jobrules.rules.learning.exploding_tensor import ExplodingTensor
from jobrules.rules.learning.gradient_growth import GradientGrowth
from jobrules.rules.learning.low_precision_underflow import LowPrecisionUnderflow
from jobrules.rules.learning.poor_weight_initialization import PoorWeightInitialization
from jobrules.rules.learning.saturated_activation import SaturatedActivation
from jobrules.rules.learning.unchanged_tensor import UnchangedTensor
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.rules.learning.weight_update_ratio import WeightUpdateRatio
from tests.learning_data import START_US, learning_job, matrix, scalars, tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.model import JobInMemory
    from jobrules.rule import Rule

NAN, INF = math.nan, math.inf
#: The rules of this file.
RULES = (
    ExplodingTensor,
    GradientGrowth,
    VanishingGradient,
    WeightUpdateRatio,
    UnchangedTensor,
    DeadRelu,
    SaturatedActivation,
    PoorWeightInitialization,
    LowPrecisionUnderflow,
)
PASSED, TRIGGERED, NOT_EVALUATED = Status.PASSED, Status.TRIGGERED, Status.NOT_EVALUATED
WARNING, CRITICAL, INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO

#: A row of a tensor at one record.
Record = dict[str, float]


def events(name: str, *steps: int) -> tuple[LearningEvent, ...]:
    return tuple(LearningEvent(step=step, time_us=START_US + step * 1_000_000, name=name) for step in steps)


def of_norm(*values: float) -> JobInMemory:
    return learning_job(scalars(values, GRADIENT_NORM))


def of_gradients(
    sizes: Mapping[str, Sequence[float]], ratios: Mapping[str, Sequence[float]] | None = None, **known: Any
) -> JobInMemory:
    """Gradients of matrices by their sizes, and their updates."""
    rows: dict[Tensor, list[Record]] = {
        matrix(name, **known): [{"rms": one} for one in values] for name, values in sizes.items()
    }
    rows |= {
        matrix(name, Collection.UPDATE, **known): [{"ratio": one} for one in values]
        for name, values in (ratios or {}).items()
    }
    return learning_job(tensors=tensors(rows))


def of_updates(*medians: float, rate: Sequence[float] | None = (0.1,) * 20) -> JobInMemory:
    """Updates of matrices, 20 records of each; the first five are of another size."""
    rows = {
        matrix(f"{i}.weight", Collection.UPDATE): [{"ratio": 0.5}] * 5 + [{"ratio": one}] * 15
        for i, one in enumerate(medians)
    }
    rates = () if rate is None else (scalars(rate, LEARNING_RATE),)
    return learning_job(*rates, tensors=tensors(rows))


def of_outputs(column: str, *modules: Sequence[float], **known: Any) -> JobInMemory:
    rows = {
        Tensor(name=f"act{i}", collection=Collection.OUTPUT, module="ReLU"): [{column: one} for one in values]
        for i, values in enumerate(modules)
    }
    return learning_job(tensors=tensors(rows), **known)


def first_loss(value: float, **known: Any) -> JobInMemory:
    return learning_job(scalars([value, 1.0]), **({"class_count": 10} | known))


def of_bins(
    below: int, above: int, *, scale: float = 2.0**16, records: int = 10, amp: str = "float16"
) -> JobInMemory:
    """Gradients of which so many elements are in the first bin, which ends at 2**-40, and in one of larger ones."""
    bins: Any = [below, *[0] * 29, above, *[0] * 33]
    rows = {matrix("w"): [{"rms": 1.0, "bins": bins}] * records}
    series = (scalars([scale] * records, LOSS_SCALE),) if scale else ()
    return learning_job(*series, tensors=tensors(rows), amp=amp)


#: Healthy beside what is judged.
LIVE = [0.1] * 10
VECTORS: dict[str, tuple[type[Rule], JobInMemory, Status, Severity | None]] = {
    "V1 the loss is NaN": (ExplodingTensor, learning_job(scalars([2, 1, NAN, NAN])), TRIGGERED, CRITICAL),
    "V1 3 of 400 steps overflow": (
        ExplodingTensor,
        learning_job(scalars([1.0] * 400), events=events("overflow", 3, 90, 201)),
        PASSED,
        None,
    ),
    "V2 a last quarter of 101": (GradientGrowth, of_norm(*[1] * 30, *[101] * 10), TRIGGERED, WARNING),
    "V2 a last quarter of 100": (GradientGrowth, of_norm(*[1] * 30, *[100] * 10), PASSED, None),
    "V3 half of two vanish": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [9e-5] * 10}, {"a": [1e-3] * 10, "b": [9e-7] * 10}),
        TRIGGERED,
        CRITICAL,
    ),
    "V3 small, but it moves": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [9e-5] * 10}, {"a": [1e-3] * 10, "b": [2e-6] * 10}),
        PASSED,
        None,
    ),
    "V3 0 in half of the records": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [0] * 5 + [1] * 5}),
        TRIGGERED,
        CRITICAL,
    ),
    "V3 0 in 4 of 10 records": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [0] * 4 + [1] * 6}),
        PASSED,
        None,
    ),
    "V3 one of three": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [0] * 10, "c": [1] * 10}),
        TRIGGERED,
        WARNING,
    ),
    "V3 exactly a ten-thousandth": (
        VanishingGradient,
        of_gradients({"a": [1] * 10, "b": [1e-4] * 10}, {"a": [1e-3] * 10, "b": [9e-7] * 10}),
        PASSED,
        None,
    ),
    "V4 2 of 3 low": (WeightUpdateRatio, of_updates(2e-7, 3e-7, 1e-3), TRIGGERED, WARNING),
    "V4 1 of 2 low": (WeightUpdateRatio, of_updates(2e-7, 1e-3), PASSED, None),
    "V4 1 of 3 high": (WeightUpdateRatio, of_updates(0.11, 1e-3, 1e-3), TRIGGERED, WARNING),
    "V4 at both limits": (WeightUpdateRatio, of_updates(1e-6, 1e-6, 0.1), PASSED, None),
    "V4 low, learning rate unknown": (WeightUpdateRatio, of_updates(2e-7, rate=None), PASSED, None),
    "V4 high, learning rate unknown": (WeightUpdateRatio, of_updates(0.2, rate=None), TRIGGERED, WARNING),
    "V5 in no parameter group": (
        UnchangedTensor,
        of_gradients({"w": [1] * 10}, {"w": [0] * 10}, optimized=False),
        TRIGGERED,
        WARNING,
    ),
    "V5 moved once": (UnchangedTensor, of_gradients({"w": [1] * 10}, {"w": [0] * 9 + [1e-9]}), PASSED, None),
    "V5 9 records": (UnchangedTensor, of_gradients({"w": [1] * 9}, {"w": [0] * 9}), NOT_EVALUATED, None),
    "V5 no gradient": (UnchangedTensor, of_gradients({"w": [0] * 10}, {"w": [0] * 10}), TRIGGERED, INFO),
    "V6 3 of 5": (
        DeadRelu,
        of_outputs("dead", [0] * 5 + [0.6, 0.6, 0.6, 0.4, 0.4], LIVE),
        TRIGGERED,
        WARNING,
    ),
    "V6 2 of 5": (DeadRelu, of_outputs("dead", [0] * 5 + [0.6, 0.6, 0.4, 0.4, 0.4], LIVE), PASSED, None),
    "V6 all modules": (DeadRelu, of_outputs("dead", [0.6] * 10, [0.9] * 10), TRIGGERED, CRITICAL),
    "V6 half of the units": (DeadRelu, of_outputs("dead", [0.5] * 10), PASSED, None),
    "V6 3 of 6": (
        DeadRelu,
        of_outputs("dead", [0] * 6 + [0.6, 0.6, 0.6, 0.4, 0.4, 0.4], LIVE),
        TRIGGERED,
        WARNING,
    ),
    "V7 half of the outputs": (SaturatedActivation, of_outputs("saturated", [0.5] * 10), PASSED, None),
    "V7 more": (SaturatedActivation, of_outputs("saturated", [0.51] * 10), TRIGGERED, WARNING),
    "V8 first loss 4.60": (PoorWeightInitialization, first_loss(4.60), PASSED, None),
    "V8 first loss 4.61": (PoorWeightInitialization, first_loss(4.61), TRIGGERED, WARNING),
    "V21 10 of 100": (LowPrecisionUnderflow, of_bins(10, 90), PASSED, None),
    "V21 11 of 100": (LowPrecisionUnderflow, of_bins(11, 89), TRIGGERED, WARNING),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_of_the_specification(name: str) -> None:
    kind, job, status, severity = VECTORS[name]

    result = kind().check(job)

    assert (result.status, result.findings[0].severity if result.findings else None) == (status, severity)
    assert (result.reason is not None) == (status is NOT_EVALUATED)
    assert 0 <= result.violating <= result.evaluated or not result.evaluated
    if status is not NOT_EVALUATED and result.measure and name != "V3 0 in half of the records":
        assert result.measure.is_bad == (status is TRIGGERED) or kind is GradientGrowth


def test_each_rule_of_this_file_is_in_the_order_of_the_report() -> None:
    assert [kind for kind in LEARNING_RULES if kind in RULES] == [
        *(ExplodingTensor, VanishingGradient, GradientGrowth, WeightUpdateRatio, UnchangedTensor),
        *(PoorWeightInitialization, DeadRelu, SaturatedActivation, LowPrecisionUnderflow),
    ]
