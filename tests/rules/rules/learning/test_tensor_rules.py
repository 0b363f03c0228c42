"""The rules on gradients, weights, and activations: vectors of their definitions, what they lack, and what changes nothing."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from jobrules.model import Severity, Status, in_words
from jobrules.model.learning import (
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS_SCALE,
    Collection,
    LearningEvent,
    Tensor,
    TensorRecords,
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
from tests.jobs import make_job
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
    sizes: Mapping[str, Sequence[float]],
    ratios: Mapping[str, Sequence[float]] | None = None,
    *,
    rate: Sequence[float] = (),
    **known: Any,
) -> JobInMemory:
    """Gradients of matrices by their sizes, and their updates."""
    rows: dict[Tensor, list[Record]] = {
        matrix(name, **known): [{"rms": one} for one in values] for name, values in sizes.items()
    }
    rows |= {
        matrix(name, Collection.UPDATE, **known): [{"ratio": one} for one in values]
        for name, values in (ratios or {}).items()
    }
    rates = (scalars(rate, LEARNING_RATE),) if rate else ()
    return learning_job(*rates, tensors=tensors(rows))


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


def of_nan_outputs(*, finite: int) -> JobInMemory:
    """All units are dead in 10 records, of which the first are finite."""
    tensor = Tensor(name="act", collection=Collection.OUTPUT, module="ReLU")
    return learning_job(
        tensors=tensors({tensor: [{"dead": 1.0, "nan": float(i >= finite)} for i in range(10)]})
    )


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
    "V4 low, learning rate unknown": (WeightUpdateRatio, of_updates(2e-7, rate=None), TRIGGERED, WARNING),
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


def test_from_the_step_on_at_which_the_loss_stays_nan_nothing_is_learned() -> None:
    result = ExplodingTensor().check(learning_job(scalars([2, 1, NAN, NAN])))

    assert result.headline == "From step 2 on the loss was NaN or infinite: 50.0% of the steps"
    assert result.details == {"since_step": 2, "since_us": START_US + 2_000_000}
    assert in_words(result.findings[0].evidence) == "Gradients and weights were not recorded."


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_loss_that_recovers_costs_no_more_than_its_steps(bad: float) -> None:
    result = ExplodingTensor().check(learning_job(scalars([2, bad, 1, 1])))

    assert result.headline == "The loss was NaN or infinite in 1 of 4\u00a0steps, first in step 1"
    assert result.findings[0].severity is CRITICAL
    assert "since_step" not in result.details


def test_the_first_gradients_that_are_not_finite_are_named() -> None:
    fine, bad = {"rms": 1.0}, {"rms": 1.0, "inf": 2.0}
    rows: dict[Tensor, list[Record]] = {
        matrix("0.weight"): [fine, fine, bad],
        matrix("2.weight"): [fine, bad, bad],
        matrix("2.weight", Collection.PARAMETER): [fine, bad, bad],
        matrix("act", Collection.OUTPUT): [bad, bad, bad],
    }
    steps = [0, 100, 200]

    result = ExplodingTensor().check(
        learning_job(scalars([1.0] * 90), tensors=tensors(rows, steps), events=events("skipped", 300))
    )

    assert result.details["since_step"] == 100
    assert result.headline.startswith("From step 100 on gradients or weights were NaN or infinite")
    assert (
        in_words(result.findings[0].evidence)
        == "First seen in the gradient of `2.weight`, recorded at step 100."
    )


def test_gradients_of_skipped_steps_do_not_count() -> None:
    rows = {matrix("w"): [{"rms": 1.0}, {"rms": 1.0, "inf": 1.0}, {"rms": 1.0}]}
    job = learning_job(tensors=tensors(rows), events=events("overflow", 1))

    assert ExplodingTensor().check(job).status is PASSED
    weights = {matrix("w", Collection.PARAMETER): one for one in rows.values()}
    job = learning_job(tensors=tensors(weights), events=events("overflow", 1))
    assert ExplodingTensor().check(job).status is TRIGGERED


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        (range(20, 30), PASSED),
        (range(20, 31), TRIGGERED),
        (range(1000, 3000, 100), PASSED),
        (range(1000, 3000, 95), TRIGGERED),
    ],
    ids=["10 in a row", "11 in a row", "1% after the first 1,000", "more than 1%"],
)
def test_skipped_steps_count_where_there_are_too_many(steps: range, status: Status) -> None:
    job = learning_job(scalars([1.0] * 3000), events=events("overflow", *steps))

    result = ExplodingTensor().check(job)

    assert result.status is status
    assert [(one.key, one.severity) for one in result.findings] == (
        [("skipped-steps", WARNING)] if status is TRIGGERED else []
    )


@pytest.mark.parametrize(
    ("first", "steps", "skipped", "status"),
    [
        # Each in two events: of two ranks, or of an overflow and the step that it cost.
        (0, 400, range(5, 11), PASSED),
        (0, 1050, [1010], PASSED),
        (0, 1050, [1010, 1030], TRIGGERED),
        (100_000, 500, range(100_000, 100_500, 125), PASSED),
        (100_000, 500, range(100_000, 100_500, 50), TRIGGERED),
    ],
)
def test_skipped_steps_are_a_share_of_those_that_were_recorded(
    first: int, steps: int, skipped: Sequence[int], status: Status
) -> None:
    loss = scalars([1.0] * steps, steps=range(first, first + steps))
    result = ExplodingTensor().check(
        learning_job(loss, events=events("overflow", *skipped) + events("skipped", *skipped))
    )

    assert (result.status, result.evaluated) == (status, steps)
    assert f"{len(skipped)} step" in result.headline.replace("\u00a0", " ")


def test_the_gradient_norm_is_that_of_all_recorded_gradients_if_none_was_logged() -> None:
    rows = {matrix("a"): [{"l2": 3.0}] * 45, matrix("b"): [{"l2": 4.0}] * 30 + [{"l2": 400.0 * 5}] * 15}

    result = GradientGrowth().check(learning_job(tensors=tensors(rows)))

    assert result.details["growth"] == pytest.approx(math.hypot(3, 2000) / 5)
    assert result.headline == "The gradient norm grew 400-fold between steps 10 and 44"


@pytest.mark.parametrize(("jumps", "severity"), [([30], INFO), ([30, 50, 51], INFO), ([30, 50, 70], WARNING)])
def test_a_jump_of_the_gradient_norm_is_info_and_three_are_a_warning(
    jumps: list[int], severity: Severity
) -> None:
    norms = np.ones(200)
    norms[jumps] = 101

    result = GradientGrowth().check(of_norm(*norms))

    assert result.findings[0].severity is severity
    assert result.headline.startswith("The gradient norm jumped above 100 times its usual size")
    assert result.details["jumps"] == (2 if 51 in jumps else len(jumps))
    norms[jumps] = 100
    assert GradientGrowth().check(of_norm(*norms)).status is PASSED


def test_norms_that_are_not_finite_are_left_to_another_rule() -> None:
    assert GradientGrowth().check(of_norm(*[1] * 41, NAN, INF)).status is PASSED
    assert GradientGrowth().check(of_norm(*[0] * 60)).status is PASSED


def test_small_gradients_without_recorded_updates_are_not_judged() -> None:
    small = VanishingGradient().check(of_gradients({"a": [1] * 10, "b": [1e-6] * 10}))
    large = VanishingGradient().check(of_gradients({"a": [1] * 10, "b": [1e-3] * 10}))

    assert (small.status, small.headline) == (NOT_EVALUATED, "Not evaluated: weight updates not recorded")
    assert large.status is PASSED


def test_vectors_and_frozen_weights_are_not_compared() -> None:
    rows: dict[Tensor, list[Record]] = {
        matrix("a"): [{"rms": 1.0}] * 10,
        matrix("b"): [{"rms": 0.5}] * 10,
        matrix("c.bias", shape=(10,)): [{"rms": 0.0}] * 10,
        matrix("d", trainable=False): [{"rms": 0.0}] * 10,
    }

    result = VanishingGradient().check(learning_job(tensors=tensors(rows)))

    assert (result.status, result.evaluated) == (PASSED, 2)
    assert result.headline.endswith("Frozen, not judged: `d`")


def test_a_falling_learning_rate_is_no_reason_for_small_updates() -> None:
    rate = [1.0] * 8 + [0.01] * 12
    rows = {matrix("w", Collection.UPDATE): [{"ratio": 1e-3 * one} for one in (*[1.0] * 8, *[1e-5] * 12)]}

    known = WeightUpdateRatio().check(learning_job(scalars(rate, LEARNING_RATE), tensors=tensors(rows)))
    unknown = WeightUpdateRatio().check(learning_job(tensors=tensors(rows)))

    assert (known.status, known.details["change"]) == (PASSED, pytest.approx(1e-3))
    assert "they need 3,200,000 steps to change once" in in_words(
        WeightUpdateRatio().check(of_updates(3.1415e-7)).findings[0].evidence
    )
    assert (unknown.status, unknown.details["change"]) == (PASSED, pytest.approx(1e-8))


def test_weights_that_never_move_are_named_by_their_reason() -> None:
    gradients = {name: [1.0] * 10 for name in ("in", "out", "moves", "unused")} | {"unused": [0.0] * 10}
    rows = {
        matrix(name, optimized=name != "out"): [{"rms": one} for one in of] for name, of in gradients.items()
    }
    rows |= {
        matrix(name, Collection.UPDATE, optimized=name != "out"): [
            {"ratio": 1e-3 if name == "moves" else 0.0}
        ]
        * 10
        for name in gradients
    }
    weight: dict[str, float] = {"zero": 100.0, "count": 100.0}
    rows[matrix("zeros", Collection.PARAMETER)] = [weight] * 10
    rows[matrix("starts at 0", Collection.PARAMETER)] = [weight] * 9 + [weight | {"zero": 3.0}]
    rows[matrix("frozen", Collection.PARAMETER, trainable=False)] = [weight] * 10

    result = UnchangedTensor().check(learning_job(tensors=tensors(rows)))

    assert [(one.key, one.severity, one.title.partition(": ")[2]) for one in result.findings] == [
        ("not-in-optimizer", WARNING, "`out`"),
        ("unchanged-tensor", WARNING, "`in`"),
        ("always-zero", INFO, "`zeros` and `unused`"),
    ]
    assert (
        result.headline
        == "1\u00a0parameter outside all parameter groups of the optimizer got gradients: `out`"
    )
    assert in_words(result.findings[0].evidence) == "Frozen, not judged: `frozen`."
    assert not any(one.because_of for one in result.findings)


def test_weights_of_a_vanishing_gradient_that_do_not_move_are_part_of_it() -> None:
    rows: dict[Tensor, list[Record]] = {
        matrix("0.weight"): [{"rms": 1e-9}] * 10,
        matrix("0.bias", shape=(10,)): [{"rms": 1e-9}] * 10,
        matrix("1.weight"): [{"rms": 1.0}] * 10,
        matrix("0.weight", Collection.UPDATE): [{"ratio": 0.0}] * 10,
        matrix("0.bias", Collection.UPDATE, shape=(10,)): [{"ratio": 0.0}] * 10,
    }

    (finding,) = UnchangedTensor().check(learning_job(tensors=tensors(rows))).findings

    assert finding.title == "2\u00a0parameters got gradients, but never moved: `0.weight` and `0.bias`"
    assert finding.because_of == (VanishingGradient().key,)


def of_start(
    weights: Mapping[str, Record] | None = None,
    inputs: Sequence[Record] = (),
    gradients: Mapping[str, Sequence[float]] | None = None,
    *,
    first: int = 0,
    **known: Any,
) -> JobInMemory:
    """Records of the first steps."""
    rows: dict[Tensor, list[Record]] = {
        matrix(name, Collection.PARAMETER, **known): [one] * 3 for name, one in (weights or {}).items()
    }
    rows |= {
        Tensor(name=f"act{i}", collection=Collection.PREACTIVATION, module="ReLU"): [one]
        for i, one in enumerate(inputs)
    }
    rows |= {matrix(name): [{"rms": one} for one in of] for name, of in (gradients or {}).items()}
    return learning_job(tensors=tensors(rows, range(first, first + 10)))


SPREAD: Record = {"min": -1.0, "max": 1.0}
ONES: Record = {"min": 1.0, "max": 1.0}
ZEROS: Record = {"min": 0.0, "max": 0.0, "zero": 100.0}


def varied(std: float, mean: float = 0.0) -> Record:
    """The statistics of inputs of an activation, as they are recorded."""
    rms = float(f"{math.hypot(std, mean):.4g}")
    return {"rms": rms, "sum": 100 * mean, "min": mean - 3 * std, "max": mean + 3 * std}


@pytest.mark.parametrize(
    ("job", "severity"),
    [
        (of_start({"a": ONES, "b": SPREAD}), CRITICAL),
        (of_start({"a": ZEROS, "b": SPREAD}), CRITICAL),
        (of_start({"a": SPREAD, "b": SPREAD}), None),
        (of_start({"norm": ONES, "b": SPREAD}, module="LayerNorm"), "not evaluated"),
        (of_start({"scale": ONES, "b": SPREAD}, shape=(100, 1, 1)), "not evaluated"),
        (of_start(inputs=[varied(1.0), varied(0.5), varied(0.00099)]), WARNING),
        (of_start(inputs=[varied(1.0), varied(0.5), varied(0.001)]), None),
        (of_start(inputs=[varied(1.0), varied(0.00001)]), "not evaluated"),
        (of_start(inputs=[varied(1.0), varied(1.0), varied(0.0, 2.0)]), WARNING),
        (of_start(inputs=[varied(1.0), varied(1.0), varied(0.01, 7.777)]), None),
        (of_start(gradients={"a": [1.0] * 3, "b": [9e-6] * 3}), WARNING),
        (of_start(gradients={"a": [1.0] * 3, "b": [1e-5] * 3}), None),
        (of_start(gradients={"a": [1.0] * 3, "adapter": [0.0, 0.0, 0.1]}), None),
        (of_start({"a": ONES}, gradients={"a": [1.0] * 3, "b": [0.0] * 3}), CRITICAL),
        (of_start(inputs=[varied(1.0), varied(1.0), varied(0.0)], gradients={"a": [1], "b": [0]}), CRITICAL),
        (of_start({"a": ONES}, first=2), "not evaluated"),
        (of_start({"a": ONES}, first=1), CRITICAL),
        (first_loss(9.0, class_count=None), "not evaluated"),
        (learning_job(scalars([9.0], steps=[2]), class_count=10), "not evaluated"),
    ],
)
def test_what_the_first_step_shows(job: JobInMemory, severity: Severity | str | None) -> None:
    result = PoorWeightInitialization().check(job)

    found = result.findings[0].severity if result.findings else None
    assert (result.status if result.status is NOT_EVALUATED else found) == severity


def test_an_adapter_that_begins_at_zero_is_no_poor_initialization() -> None:
    zeros = ZEROS | {"count": 100.0}
    rows = {
        matrix("lora_B", Collection.PARAMETER): [zeros, zeros, SPREAD],
        matrix("a", Collection.PARAMETER): [SPREAD] * 3,
    }

    assert PoorWeightInitialization().check(learning_job(tensors=tensors(rows))).status is PASSED


@pytest.mark.parametrize(
    ("scale", "share"), [(2.0**16, 30.0), (2.0**15, 30.0), (2.0**17, 0.0), (1.0, 30.0), (2.0**-14, 100.0)]
)
def test_a_bin_counts_that_lies_below_the_smallest_float16(scale: float, share: float) -> None:
    """The other bin is that of 2**-11 to 2**-10."""
    result = LowPrecisionUnderflow().check(of_bins(30, 70, scale=scale))

    assert result.details["share"] == share


FEW = of_gradients({"a": [1] * 9, "b": [1] * 9}, {"a": [1] * 9, "b": [1] * 9})
LACKING: dict[str, tuple[type[Rule], JobInMemory, str]] = {
    "V1": (ExplodingTensor, learning_job(), "the loss, gradients, and weights not recorded"),
    "V2 nothing": (GradientGrowth, learning_job(), "gradients not recorded"),
    "V2 39": (GradientGrowth, of_norm(*[1] * 39), "40 gradient norms needed, 39 recorded"),
    "V3 nothing": (VanishingGradient, learning_job(), "gradients not recorded"),
    "V3 9 records": (VanishingGradient, FEW, "10 records of gradients needed, 9 recorded"),
    "V3 one matrix": (
        VanishingGradient,
        of_gradients({"a": [1] * 10}),
        "2 weight matrices with gradients needed, 1 recorded",
    ),
    "V4 nothing": (WeightUpdateRatio, of_gradients({"a": [1] * 10}), "weight updates not recorded"),
    "V4 9 records": (WeightUpdateRatio, FEW, "10 records of weight updates needed, 9 recorded"),
    "V4 rate 0": (WeightUpdateRatio, of_updates(0.0, rate=[0.0] * 20), "the learning rate was 0 all along"),
    "V5 nothing": (UnchangedTensor, of_gradients({"a": [1] * 10}), "weight updates not recorded"),
    "V5 rate 0": (
        UnchangedTensor,
        of_gradients({"a": [1] * 10}, {"a": [0] * 10}, rate=[0.0] * 10),
        "the learning rate was 0 all along",
    ),
    "V6 nothing": (DeadRelu, learning_job(), "outputs of ReLU modules not recorded"),
    "V6 tanh": (DeadRelu, of_outputs("saturated", LIVE), "outputs of ReLU modules not recorded"),
    "V6 compiled": (DeadRelu, learning_job(compiled=True), "the model is compiled"),
    "V6 9 records": (
        DeadRelu,
        of_outputs("dead", [1.0] * 9),
        "10 records of a ReLU module needed, 9 recorded",
    ),
    "V6 outputs are NaN": (
        DeadRelu,
        of_nan_outputs(finite=3),
        "10 records of a ReLU module needed, 3 recorded",
    ),
    "V7 compiled": (SaturatedActivation, learning_job(compiled=True), "the model is compiled"),
    "V8": (PoorWeightInitialization, learning_job(), "the first step not recorded"),
    "V21 bfloat16": (
        LowPrecisionUnderflow,
        of_bins(90, 10, amp="bfloat16"),
        "gradients were not computed in float16",
    ),
    "V21 no histograms": (
        LowPrecisionUnderflow,
        learning_job(tensors=tensors({matrix("a"): [{"rms": 1.0}]}), amp="float16"),
        "histograms of gradients not recorded",
    ),
    "V21 no scale": (LowPrecisionUnderflow, of_bins(90, 10, scale=0), "the loss scale not recorded"),
    "V21 9 records": (
        LowPrecisionUnderflow,
        of_bins(90, 10, records=9),
        "10 records of gradients needed, 9 recorded",
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_rule_says_what_it_lacks(name: str) -> None:
    kind, job, lacks = LACKING[name]

    result = kind().check(job)

    assert (result.status, result.headline) == (NOT_EVALUATED, f"Not evaluated: {lacks}")


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_without_a_training_a_rule_does_not_apply(kind: type[Rule]) -> None:
    result = kind().check(make_job(gpu=[1.0]))

    assert result.headline == "Not evaluated: nothing of the training itself was recorded"
    told = kind.documentation()
    assert len(" ".join((told.checks, told.why, *told.advice)).split()) <= 60


def trained(rng: np.random.Generator, records: int, layers: int, *, loss: float = 1.0) -> TensorRecords:
    """Records of a healthy net of ReLU layers but for one layer in eight, whose gradient vanishes."""
    weak = np.arange(layers) % 8 == 5
    steps = [*range(min(10, records)), *range(100, 100 * (records - 9), 100)]
    rows: dict[Tensor, list[Record]] = {}
    for i in range(layers):
        name, size = f"{i}.weight", 1e-6 if weak[i] else 10 ** rng.uniform(-1, 0)
        noise = rng.lognormal(0, 0.3, (3, records))
        rows[matrix(name)] = [{"rms": loss * size * one} for one in noise[0]]
        rows[matrix(name, Collection.UPDATE)] = [
            {"ratio": (1e-8 if weak[i] else 1e-3) * one} for one in noise[1]
        ]
        rows[matrix(name, Collection.PARAMETER)] = [{"rms": one, "min": -one, "max": one} for one in noise[2]]
        rows[Tensor(name=f"act{i}", collection=Collection.OUTPUT, module="ReLU")] = [
            {"dead": one} for one in rng.uniform(0, 0.3, records)
        ]
    return tensors(rows, steps)


@pytest.mark.parametrize("loss", [1e-6, 0.3, 65_536.0])
def test_a_constant_factor_of_the_loss_changes_nothing_for_gradients_that_vanish(loss: float) -> None:
    plain, scaled = (
        VanishingGradient().check(learning_job(tensors=trained(np.random.default_rng(1), 20, 16, loss=one)))
        for one in (1.0, loss)
    )

    assert plain.details["vanishing"] == ("5.weight", "13.weight")
    assert (scaled.status, scaled.details, scaled.headline) == (plain.status, plain.details, plain.headline)


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_the_order_of_tensors_changes_nothing(kind: type[Rule]) -> None:
    rng = np.random.default_rng(2)
    records = trained(rng, 30, 16)
    order = rng.permutation(len(records.tensors))
    names = tuple(records.tensors[i] for i in order)
    shuffled = replace(records, tensors=names, tensor=np.argsort(order).astype(np.int32)[records.tensor])

    one, other = (kind().check(learning_job(tensors=found, class_count=10)) for found in (records, shuffled))

    assert (one.status, one.violating, one.evaluated) == (other.status, other.violating, other.evaluated)
    assert [found.severity for found in one.findings] == [found.severity for found in other.findings]
    assert one.measure == other.measure


@pytest.mark.parametrize("seed", range(5))
def test_the_share_of_records_in_which_a_gradient_vanishes_is_that_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, ratio = 10 ** rng.uniform(-6, 0, (6, 12)), 10 ** rng.uniform(-8, -4, (6, 12))
    job = of_gradients(
        {str(i): list(one) for i, one in enumerate(size)}, {str(i): list(one) for i, one in enumerate(ratio)}
    )

    expected = tuple(
        str(i)
        for i in range(6)
        if sum(size[i, j] < 1e-4 * max(size[:, j]) and ratio[i, j] < 1e-6 for j in range(12)) >= 6
    )

    assert VanishingGradient().check(job).details["vanishing"] == expected


def test_names_from_data_stay_in_their_marks() -> None:
    name = "a`\n</script>\u202e`" + "x" * 300
    job = of_gradients({name: [0] * 10, "b": [1] * 10}, {name: [0] * 10, "b": [1] * 10})

    texts = [
        text
        for kind in (VanishingGradient, UnchangedTensor)
        for one in kind().check(job).findings
        for text in (one.title, in_words(one.evidence))
    ]

    assert any("</script>" in text for text in texts)
    assert [
        text for text in texts if "\n" in text or "\u202e" in text or text.count("`") % 2 or len(text) > 500
    ] == []


def test_numbers_beyond_all_measure_end_no_rule() -> None:
    columns = ("count", "nan", "inf", "zero", "sum", "l2", "min", "max", "ratio", "dead", "saturated")
    rng = np.random.default_rng(3)
    for seed in range(30):
        values = (0.0, 1e308, -1e308, INF, NAN, 5e-324) if seed else (INF,)
        rows: dict[Tensor, list[Record]] = {
            matrix(f"{i}", kind): [
                {column: float(rng.choice(values)) for column in columns} for _ in range(12)
            ]
            for kind in Collection
            for i in range(3)
        }
        series = [
            scalars(rng.choice(values, 60).tolist(), name)
            for name in ("loss", GRADIENT_NORM, LEARNING_RATE, LOSS_SCALE)
        ]
        bins = np.full((len(rows) * 12, 64), 2**31 - 1, np.int32)
        found = replace(tensors(rows), bins=bins)
        job = learning_job(*series, tensors=found, amp="float16", class_count=2)

        for kind in RULES:
            assert kind().check(job).headline


@pytest.mark.slow
def test_nine_rules_on_250_000_rows_take_less_than_a_second() -> None:
    rng = np.random.default_rng(4)
    records = trained(rng, 625, 100)
    records = replace(records, bins=np.ones((len(records), 64), np.int32))
    series = scalars([1.0] * 60_000), scalars(rng.choice([2.0**15, 2.0**16], 60_000).tolist(), LOSS_SCALE)
    job = learning_job(*series, tensors=records, amp="float16")
    assert len(records) == 250_000

    start = time.perf_counter()
    for kind in RULES:
        kind().check(job)

    assert time.perf_counter() - start < 1
