"""Boosted trees, which XGBoost trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import xgboost

import jobrecord
from generator.learning.nets import CLASSES
from generator.learning.tasks import Task
from jobrecord.xgboost import JobRecorderCallback

if TYPE_CHECKING:
    from typing import Any

    from generator.learning.scenarios import Scenario


def boost(scenario: Scenario, seed: int) -> None:
    """Train as many rounds as the scenario has steps. The first feature is the label, with noise."""
    torch.manual_seed(seed)
    task = Task(scenario)
    training, validation = map(_with_labels, (task.points, task.validation))
    settings = {
        "objective": "multi:softprob",
        "num_class": CLASSES,
        "nthread": 1,
        "seed": seed,
        "max_depth": 2,
    }
    jobrecord.start()
    xgboost.train(
        settings,
        training,
        scenario.steps,
        evals=[(training, "train"), (validation, "validation")],
        callbacks=[JobRecorderCallback()],
        verbose_eval=False,
    )


def _with_labels(points: tuple[Any, Any]) -> Any:
    inputs, labels = points
    inputs = inputs.clone()
    inputs[:, 0] = labels + 0.3 * torch.randn(len(labels))
    return xgboost.DMatrix(inputs.numpy(), labels.numpy())
