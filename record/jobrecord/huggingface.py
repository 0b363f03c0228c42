"""Callback for the ``Trainer`` of Hugging Face's transformers."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from jobrecord.hooks.trainers import TrainerMarks

_FRAMEWORK = "Hugging Face Trainer"


class JobRecorderCallback(TrainerCallback):  # type: ignore[misc]
    """Records steps, the wait for data, and evaluation.

    All batches of a step are fetched, and copied to the device, before it begins. An exception is seen at the next
    training, or at the end of the recording.
    """

    #: Whether the script has one, so that those that were added without it are not needed.
    is_given = False

    def __init__(self) -> None:
        JobRecorderCallback.is_given = True
        self._marks = TrainerMarks(_FRAMEWORK)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the first step."""
        mixed = {"bfloat16": getattr(args, "bf16", False), "float16": getattr(args, "fp16", False)}
        precision = next((name for name, is_on in mixed.items() if is_on), "")
        self._marks.training_begins(
            kwargs.get("train_dataloader"), state.global_step, kwargs.get("model"), precision
        )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a fetch."""
        self._marks.mark()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the fetch of all batches of a step."""
        self._marks.fetched()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step."""
        self._marks.step_ended()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End training."""
        self._marks.training_ended()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step of evaluation."""
        self._marks.evaluated()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End an evaluation, which is no part of a step."""
        self._marks.outside_ended()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the saving of a checkpoint, which is no part of a step."""
        self._marks.saved()
        self._marks.outside_ended()


class AddedCallback(JobRecorderCallback):
    """The same, added without a change of the script."""

    def __init__(self) -> None:
        self._marks = TrainerMarks(_FRAMEWORK, is_needed=lambda: not JobRecorderCallback.is_given)
