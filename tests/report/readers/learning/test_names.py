"""Names that are one thing, whatever a script calls it: the list of the specification, and what is near it."""

from __future__ import annotations

import pytest

from jobreport.readers.learning.names import canonical, mode_of

NAMES = {
    "loss": "loss train_loss train/loss training_loss lm_loss Loss TRAIN/LOSS train_loss_step epoch_loss",
    "val_loss": "val_loss eval_loss eval/loss validation/loss valid_loss test_loss val.loss Val-Loss val_loss_epoch",
    "accuracy": "acc accuracy top1 train_acc train/accuracy training_top1",
    "val_accuracy": "val_acc eval/accuracy validation/top1 valid_accuracy test_acc",
    "lr": "lr learning_rate train/learning_rate lr-AdamW",
    "grad_norm": "grad_norm gradient_norm gnorm train/grad_norm",
    "loss_scale": "loss_scale",
}
#: Of others, as whole words are meant.
OTHERS = (
    "losses box_loss train/box_loss train_loss_2 my_loss lossy perplexity mean_accuracy top5 lr_pg0 lr-Adam/x "
    "eval_g0_loss"
)


@pytest.mark.parametrize(
    ("name", "logged"), [(k, one) for k, names in NAMES.items() for one in names.split()]
)
def test_a_name_is_known(name: str, logged: str) -> None:
    mode = "EVAL" if name.startswith("val_") else "TRAIN"
    assert canonical(logged, "") == (name, mode)


@pytest.mark.parametrize(
    ("logged", "name"), [("lm loss", "loss"), ("learning rate", "lr"), ("grad norm", "grad_norm")]
)
def test_a_name_with_a_blank_is_known(logged: str, name: str) -> None:
    assert canonical(logged, "TRAIN") == (name, "TRAIN")


@pytest.mark.parametrize("logged", OTHERS.split())
def test_any_other_name_stays(logged: str) -> None:
    assert canonical(logged, "TRAIN") is None


@pytest.mark.parametrize(
    ("logged", "name"),
    [("train-mlogloss", "loss"), ("validation_0-logloss", "val_loss"), ("eval-mlogloss", "val_loss")],
)
def test_log_loss_of_boosted_trees_is_the_loss(logged: str, name: str) -> None:
    assert canonical(logged, "")[:1] == (name,)  # type: ignore[index]


def test_a_loss_of_an_evaluation_is_that_of_validation() -> None:
    assert canonical("loss", "EVAL") == ("val_loss", "EVAL")
    assert canonical("train/acc", "EVAL") == ("val_accuracy", "EVAL")
    assert canonical("val_loss", "TRAIN") == ("val_loss", "EVAL")
    assert (mode_of("val/box_loss"), mode_of("value"), mode_of("train/x")) == ("EVAL", "TRAIN", "TRAIN")
