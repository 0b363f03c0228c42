"""Callback for the ``Trainer`` of Lightning."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

from jobrecord.hooks.trainers import TrainerMarks, learning_options

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobRecorder(Callback):  # type: ignore[misc]
    """Records steps, the wait for data, and evaluation. A step ends with a batch in which the optimizer stepped.

    With `learning`, which may have options of ``jobrecord.learn``, it records what the modules log, and statistics of
    the model.
    """

    def __init__(self, learning: bool | Mapping[str, Any] = False) -> None:
        self._marks = TrainerMarks("Lightning Trainer")
        self._learning = learning
        self._step = 0
        #: Names that evaluation logs, and those that training did before it.
        self._evaluated: set[str] = set()
        self._trained: set[str] = set()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the first step."""
        self._step = trainer.global_step
        mixed = str(getattr(trainer, "precision", "")).partition("-")[0]
        precision = {"bf16": "bfloat16", "16": "float16"}.get(mixed, "")
        self._marks.training_begins(trainer.train_dataloader, self._step, pl_module, precision)
        if self._learning:
            scaler = getattr(getattr(trainer, "precision_plugin", None), "scaler", None)
            options = {"scaler": scaler} | learning_options(self._learning)
            known = {"amp": precision, "accumulation": trainer.accumulate_grad_batches}
            self._marks.learn(trainer.model, trainer.optimizers, options, **known)

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
            if self._learning and self._step % trainer.log_every_n_steps == 0:
                metrics = trainer.callback_metrics
                trained = {name: one for name, one in metrics.items() if name not in self._evaluated}
                self._marks.logged(self._step, "TRAIN", trained)
        self._marks.mark()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End training."""
        self._marks.training_ended()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an evaluation, that of the sanity check as well."""
        if self._learning:
            self._trained |= trainer.callback_metrics.keys() - self._evaluated
        self.on_test_start()

    def on_validation_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """End a fetch; it is part of the step of evaluation."""
        self._marks.fetched()

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """End a step of evaluation."""
        self._marks.evaluated()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End an evaluation, which is no part of a step."""
        if self._learning:
            metrics = trainer.callback_metrics
            self._evaluated |= metrics.keys() - self._trained
            if not trainer.sanity_checking:
                evaluated = {name: metrics[name] for name in self._evaluated}
                self._marks.logged(trainer.global_step, "EVAL", evaluated)
        self.on_test_end()

    def on_test_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin an evaluation."""
        self._marks.evaluation_begins()

    def on_test_end(self, *args: Any, **kwargs: Any) -> None:
        """End an evaluation, which is no part of a step."""
        self._marks.outside_ended()

    on_predict_start, on_predict_end = on_test_start, on_test_end
    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end

    def on_predict_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """End a step of prediction."""
        self._marks.evaluated("PREDICT")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Note the moment of a checkpoint."""
        self._marks.saved()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the step that is cut short."""
        self._marks.cut()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Learn no more."""
        self._marks.learning_ended()
