"""No rule on the training fails on odd numbers, and none takes long."""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
import numpy as np
import pytest

from jobrules.model import FloatArray, Job, Severity, Status, in_words
from jobrules.model.learning import (
    CANONICAL,
    GRADIENT_NORM,
    LOSS,
    VAL_ACCURACY,
    VAL_LOSS,
    Collection,
    LearningEvent,
    Scalars,
    Tensor,
    Trees,
)
from jobrules.rule import run_rules
from jobrules.rules.learning import LEARNING_RULES
from tests.copies import replace
from tests.jobs import make_job
from tests.learning_data import START_US, counted, learning_job, scalars, tensors

RULES = [rule() for rule in LEARNING_RULES]
NAME = "a\n</script>\u202e`" * 9
ODD = [0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf, 2.303]


def odd_values(rng: np.random.Generator, n: int) -> FloatArray:
    """Numbers of one kind, with some odd ones among them."""
    kinds = (
        rng.normal(size=n),
        np.full(n, rng.choice(ODD)),
        np.exp(-np.arange(n) / 20),
        rng.choice(ODD, n),
        np.exp(rng.uniform(-700, 700, n)),
    )
    values = kinds[rng.integers(len(kinds))].copy()
    values[rng.random(n) < 0.02] = rng.choice(ODD)
    return np.asarray(values)


def odd_series(rng: np.random.Generator, name: str) -> Scalars:
    n = int(rng.choice([0, 1, 2, 7, 9, 60, 150, 400]))
    steps = np.sort(rng.integers(0, max(1, int(rng.choice([1, n, 10**12]))), n)).tolist()
    one = scalars(
        odd_values(rng, n).tolist(), name, mode=str(rng.choice(["TRAIN", "EVAL"])), steps=steps, timed=False
    )
    times = [np.zeros(n), START_US + np.arange(n) * 1e6, np.sort(rng.integers(0, 4 * 10**15, n))]
    return replace(one, time_us=times[rng.integers(3)].astype(np.int64))


def odd_job(seed: int) -> Job:
    rng = np.random.default_rng(seed)
    records = int(rng.choice([1, 12, 30]))
    rows: dict[Tensor, list[dict[str, float]]] = {}
    for collection in Collection:
        for i, shape in enumerate([(3, 8, 8), (4, 4), (0,), ()]):
            known: dict[str, Any] = {"dtype": str(rng.choice(["float32", "int64"])), "pad_id": i or None}
            module = str(rng.choice(["", "ReLU", "Tanh"]))
            tensor = Tensor(name=f"{NAME}{i}", collection=collection, shape=shape, module=module, **known)
            columns = ("zero", "nan", "sum", "l1", "l2", "min", "max", "ratio", "dead", "saturated")
            rows[tensor] = [
                dict(zip(columns, odd_values(rng, len(columns)), strict=True)) for _ in range(records)
            ]
    labels = rng.integers(0, 400, 6) * rng.integers(0, 2, 6)
    learned = learning_job(
        *(odd_series(rng, name) for name in CANONICAL if rng.random() < 0.8),
        tensors=tensors(rows) if rng.random() < 0.8 else None,
        classes=(counted(labels.tolist(), rng.integers(0, 6, (9, 3)).tolist()),),
        events=(LearningEvent(step=0, time_us=START_US + 10**9, name=NAME),),
        trees=Trees(
            importance=tuple((NAME, x) for x in odd_values(rng, 8).tolist()), depths=(3, 3), max_depth=3
        ),
        class_count=int(rng.choice([0, 1, 10])) or None,
        amp=str(rng.choice(["", "float16"])),
    )
    machine = make_job(gpu=[50.0] * 100, interval_s=60.0, start_us=START_US)
    return replace(machine, learning=learned.learning) if rng.random() < 0.5 else learned


@pytest.mark.parametrize("seed", range(60))
def test_no_rule_fails(seed: int) -> None:
    for result in run_rules(RULES, odd_job(seed), strict=True):
        assert (result.reason is not None) == (result.status is Status.NOT_EVALUATED)
        texts = [result.headline, str(result.reason or "")]
        texts += [
            text for one in result.findings for text in (one.title, in_words(one.evidence), *one.advice)
        ]
        assert [text for text in texts if "\n" in text or "\u202e" in text] == []
        numbers = (
            [result.measure.value, result.measure.scale, *result.measure.limits] if result.measure else []
        )
        assert all(map(math.isfinite, numbers)), result
        assert all(one.severity in Severity for one in result.findings)
        msgspec.json.encode(result)


def test_odd_trainings_reach_what_rules_say() -> None:
    found = [result for seed in range(60) for result in run_rules(RULES, odd_job(seed))]

    assert len({one.rule for one in found if one.status is Status.TRIGGERED}) >= 14


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_million_values_take_half_a_second(rule: Any) -> None:
    n = 1_000_000
    rng = np.random.default_rng(0)
    series = [
        scalars(rng.normal(2, 0.1, n).tolist(), LOSS),
        scalars(rng.normal(2, 0.1, n).tolist(), VAL_LOSS, mode="EVAL"),
        scalars(rng.uniform(0, 1, n).tolist(), VAL_ACCURACY, mode="EVAL"),
        scalars(rng.uniform(1, 2, n).tolist(), GRADIENT_NORM, timed=False),
    ]
    job = learning_job(*series, class_count=8)
    start = time.process_time()
    rule.check(job)

    assert time.process_time() - start < 0.5
