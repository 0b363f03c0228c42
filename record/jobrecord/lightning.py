"""Callback for the ``Trainer`` of Lightning."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

import sys
from typing import Any

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

from jobrecord.hooks.trainers import TrainerMarks


class JobRecorder(Callback):  # type: ignore[misc]
    """Records steps, the wait for data, and evaluation. A step ends with a batch in which the optimizer stepped."""

    def __init__(self) -> None:
        self._marks = TrainerMarks()
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the first step."""
        self._step = trainer.global_step
        self._marks.training_begins(trainer.train_dataloader, self._step)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a fetch."""
        self._marks.mark()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """End a fetch."""
        self._marks.fetched()

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """End a step, if the optimizer stepped."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._marks.step_ended()
        self._marks.mark()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End training."""
        self._marks.training_ended()

    def on_validation_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin a step of evaluation."""
        self._marks.mark()

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """End a step of evaluation."""
        self._marks.evaluated()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End an evaluation, which is no part of a step."""
        self._marks.outside_ended()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Note the moment of a checkpoint."""
        self._marks.saved()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the step that is cut short."""
        self._marks.cut()
