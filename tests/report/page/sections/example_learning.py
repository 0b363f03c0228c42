"""Trainings with what the section on learning shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.build import build_report
from jobreport.remarks import Quality
from jobrules.model import JobInMemory
from jobrules.model.learning import (
    ACCURACY,
    GRADIENT_NORM,
    LEARNING_RATE,
    VAL_ACCURACY,
    VAL_LOSS,
    Collection,
    Learning,
    LearningEvent,
    Scalars,
    Tensor,
    Trees,
)
from jobrules.rule import run_rules
from tests.learning_data import counted, scalars, tensors

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.rule import Rule

#: Steps of the example, and of its records of tensors.
STEPS = 600
RECORDED = [*range(10), *range(10, STEPS, 10)]
BLOCKS = 12


def series(*, timed: bool = True) -> list[Scalars]:
    """Loss, learning rate, norm of gradients, and evaluations of which the last third is worse."""
    chance = np.random.default_rng(34)
    step = np.arange(STEPS)
    loss = 2.3 * np.exp(-step / 120) + 0.03 + 0.05 * chance.random(STEPS)
    every = range(19, STEPS, 20)
    worse = [0.3 + 1.8 * np.exp(-at / 100) + max(0, at - 400) / 800 for at in every]
    evaluated: dict[str, Any] = {"mode": "EVAL", "steps": every, "timed": timed}
    return [
        scalars(loss.tolist(), timed=timed),
        scalars(worse, VAL_LOSS, **evaluated),
        scalars((1e-3 * np.minimum(1, (step + 1) / 50)).tolist(), LEARNING_RATE, timed=timed),
        scalars((3 * np.exp(-step / 200) + 0.1 * chance.random(STEPS)).tolist(), GRADIENT_NORM, timed=timed),
        scalars((1 - np.exp(-step / 150)).tolist(), ACCURACY, timed=timed),
        scalars([0.9 - 0.5 * np.exp(-at / 100) for at in every], VAL_ACCURACY, **evaluated),
    ]


def recorded(blocks: int = BLOCKS, steps: list[int] = RECORDED) -> dict[Tensor, list[dict[str, float]]]:
    """Gradients that are smaller in each block and 0 in one for a while, updates, and activations that die."""
    rows: dict[Tensor, list[dict[str, float]]] = {}
    for block in range(blocks):
        name = f"model.layers.{block}.mlp.weight"
        shape = (64, 64)
        small = 10.0 ** (-6.5 * block / blocks)
        dead = np.linspace(0, 1, len(steps)) * block / blocks
        rows[Tensor(name=name, collection=Collection.GRADIENT, shape=shape)] = [
            {"rms": 0.0 if block == 3 and 200 <= at < 300 else small * (1 + 0.2 * np.sin(at))} for at in steps
        ]
        rows[Tensor(name=name, collection=Collection.UPDATE, shape=shape)] = [
            {"ratio": 1e-3 * small * (1 + 0.5 * np.sin(at))} for at in steps
        ]
        rows[Tensor(name=f"model.layers.{block}.act", collection=Collection.OUTPUT, module="ReLU")] = [
            {"dead": float(share)} for share in dead
        ]
    return rows


def everything(**changes: Any) -> Learning:
    """A training with all that is shown."""
    labels = [200 - 15 * i for i in range(10)]
    pairs = [(i, i, n - 5 * i) for i, n in enumerate(labels)] + [(i, 1, 5 * i) for i in range(2, 10)]
    facts: dict[str, Any] = {
        "scalars": tuple(series()),
        "tensors": tensors(recorded(), RECORDED),
        "classes": (counted(labels, pairs, step=599),),
        "events": (LearningEvent(step=120, time_us=0, name="overflow"),),
        "trees": Trees(
            importance=tuple((f"feature {i}", 100.0 / (i + 1)) for i in range(25)),
            depths=(3, 4, 4, 6, 6, 6),
            max_depth=6,
        ),
        "node": "algo-1",
        "ranks": (0,),
        "world_size": 2,
        "parameters": 10_234,
        "trainable": 10_234,
        "optimizer": "AdamW",
        "amp": "float16",
        "every": 10,
        "cost_us": 1_200_000,
        "not_recorded": ("inputs: not asked for",),
    }
    return Learning(**facts | changes)


def report_of(learning: Learning | None, *rules: Rule) -> Report:
    """The report of a job of which nothing else was recorded, with these rules."""
    job = JobInMemory(name="training", learning=learning)
    results = run_rules(rules, job, strict=True)
    return build_report(job, Quality(sources=(), remarks=()), rules, results, "make-report", strict=True)
