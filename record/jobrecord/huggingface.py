"""Callback for the ``Trainer`` of Hugging Face's transformers."""

# ruff: noqa: ARG002 - the framework calls with all of them
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from jobrecord.hooks.trainers import TrainerMarks, learning_options

if TYPE_CHECKING:
    from collections.abc import Mapping

_FRAMEWORK = "Hugging Face Trainer"


class JobRecorderCallback(TrainerCallback):  # type: ignore[misc]
    """Records steps, the wait for data, and evaluation.

    All batches of a step are fetched, and copied to the device, before it begins. An exception is seen at the next
    training, or at the end of the recording. With `learning`, which may have options of ``jobrecord.learn``, it
    records what the Trainer logs, and statistics of the model.
    """

    #: Whether the script has one, so that those that were added without it are not needed.
    is_given = False

    def __init__(self, learning: bool | Mapping[str, Any] = False) -> None:
        JobRecorderCallback.is_given = True
        self._marks = TrainerMarks(_FRAMEWORK)
        self._learning = learning

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the first step."""
        mixed = {"bfloat16": getattr(args, "bf16", False), "float16": getattr(args, "fp16", False)}
        precision = next((name for name, is_on in mixed.items() if is_on), "")
        self._marks.training_begins(
            kwargs.get("train_dataloader"), state.global_step, kwargs.get("model"), precision
        )
        if self._learning:
            optimizer = kwargs["optimizer"]
            options = {"scaler": getattr(optimizer, "scaler", None)} | learning_options(self._learning)
            # The model is not yet what the ranks train together.
            is_replica = getattr(args.parallel_mode, "value", "") == "distributed" and not (
                args.deepspeed or args.fsdp
            )
            self._marks.learn(
                kwargs["model"],
                optimizer,
                options,
                amp=precision,
                sharding="ddp" if is_replica else None,
                accumulation=args.gradient_accumulation_steps,
                compiled=args.torch_compile,
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
        self._marks.learning_ended()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step of evaluation."""
        self._marks.evaluated()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write what training logs, but not the summary of all of it."""
        is_training = not any(name.startswith("eval_") or name == "train_runtime" for name in logs or ())
        if self._learning and is_training:
            self._marks.logged(state.global_step, "TRAIN", logs or {})

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """End an evaluation, which is no part of a step."""
        if self._learning:
            self._marks.logged(state.global_step, "EVAL", metrics or {})
        self._marks.outside_ended()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the saving of a checkpoint, which is no part of a step."""
        self._marks.saved()
        self._marks.outside_ended()


class AddedCallback(JobRecorderCallback):
    """The same, added without a change of the script."""

    def __init__(self) -> None:
        self._marks = TrainerMarks(_FRAMEWORK, is_needed=lambda: not JobRecorderCallback.is_given)
        self._learning = False
