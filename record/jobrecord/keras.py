"""Callback for ``fit`` and ``evaluate`` of Keras."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

from typing import Any

from keras.callbacks import Callback

from jobrecord.hooks.trainers import TrainerMarks


class JobRecorderCallback(Callback):  # type: ignore[misc]
    """Records steps and evaluation. A step ends where the next batch begins, so that its own fetch is that of the one before.

    A callback at the end of batches would let Keras wait for the device there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks = TrainerMarks("Keras")
        #: Whether a batch of the training, or of the evaluation, has begun.
        self._trains = self._evaluates = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin the first step."""
        self._trains = False
        self._marks.training_begins(None, None)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """End the step before."""
        self._end_step()
        self._trains = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the last step of an epoch."""
        self._end_step()
        self._marks.outside_ended()

    def on_train_end(self, logs: Any = None) -> None:
        """End training."""
        self._end_step()
        self._marks.training_ended()

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin an evaluation, which is no part of a step."""
        self._end_step()
        self._marks.evaluation_begins()
        self._evaluates = False

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """End the step of evaluation before; the first one begins with the evaluation."""
        if self._evaluates:
            self._marks.evaluated()
        self._evaluates = True

    def on_test_end(self, logs: Any = None) -> None:
        """End an evaluation."""
        if self._evaluates:
            self._marks.evaluated()
            self._evaluates = False
        self._marks.outside_ended()

    def _end_step(self) -> None:
        if self._trains:
            self._trains = False
            self._marks.step_ended()
