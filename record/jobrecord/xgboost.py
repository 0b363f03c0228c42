"""Callback for ``train`` of XGBoost."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from xgboost.callback import TrainingCallback

from jobrecord.hooks.trainers import TrainerMarks


class JobRecorderCallback(TrainingCallback):  # type: ignore[misc]
    """Records a step each round, the metrics of the evaluation sets, and at the end gains of features and depths of trees."""

    def __init__(self) -> None:
        self._marks = TrainerMarks("XGBoost")

    def before_training(self, model: Any) -> Any:
        """Begin the first round."""
        self._marks.training_begins(None, model.num_boosted_rounds())
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Write the metrics of a round, and end it."""
        for data, metrics in evals_log.items():
            # With a deviation where it cross-validates.
            last = {f"{data}-{name}": values[-1] for name, values in metrics.items()}
            self._marks.logged(epoch, "TRAIN" if "train" in data.lower() else "EVAL", last)
        self._marks.step_ended()
        return False

    def after_training(self, model: Any) -> Any:
        """Write what the trees came to."""
        # Linear models have none, and a cross-validation has several models.
        with suppress(Exception):
            # Of all splits: the mean gain of a split makes rare features large.
            gains = model.get_score(importance_type="total_gain")
            depths = [max(line.count("\t") for line in tree.splitlines()) for tree in model.get_dump()]
            limit = int(_setting(json.loads(model.save_config()), "max_depth") or 0)
            self._marks.boosted(gains, depths, limit or None)
        self._marks.training_ended()
        return model


def _setting(config: Any, name: str) -> Any:
    """A setting, wherever it is in nested mappings, whose places differ between versions."""
    if not isinstance(config, dict):
        return None
    found = (_setting(one, name) for one in config.values())
    return config[name] if name in config else next((one for one in found if one is not None), None)
