"""What scalars are, whatever a script calls them."""

from __future__ import annotations

import re

from jobrules.model.learning import (
    ACCURACY,
    EVALUATION,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    TRAINING,
    VAL_ACCURACY,
    VAL_LOSS,
)

#: Whole names, with an underscore for each blank, slash, dot, and hyphen. Some frameworks add how often they log.
_TRAINING, _VALIDATION = "(?:(?:train|training|epoch)_)?", "(?:val|valid|validation|eval|test)_"
_HOW = "(?:_step|_epoch)?"
#: Boosted trees have log loss, of sets with numbers.
_LOSS = "(?:loss|m?logloss)"
_PATTERNS = {
    LOSS: f"lm_loss|{_TRAINING}{_LOSS}{_HOW}",
    VAL_LOSS: rf"{_VALIDATION}(?:\d_)?{_LOSS}{_HOW}",
    ACCURACY: f"{_TRAINING}(?:acc|accuracy|top1){_HOW}",
    VAL_ACCURACY: f"{_VALIDATION}(?:acc|accuracy|top1){_HOW}",
    LEARNING_RATE: f"{_TRAINING}(?:lr|learning_rate)",
    GRADIENT_NORM: f"{_TRAINING}(?:grad_norm|gradient_norm|gnorm){_HOW}",
    LOSS_SCALE: f"{_TRAINING}loss_scale",
}
_NAMES = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
_BREAK = re.compile(r"[ /.-]")
#: As Lightning's monitor logs it.
_OF_OPTIMIZER = re.compile(r"lr-\w+", re.IGNORECASE)
#: In evaluation.
_VALIDATED = {LOSS: VAL_LOSS, ACCURACY: VAL_ACCURACY}


def canonical(logged_as: str, mode: str) -> tuple[str, str] | None:
    """One of ``CANONICAL`` and its mode; None for any other scalar."""
    plain = _BREAK.sub("_", logged_as.strip().lower())
    name = next((name for name, pattern in _NAMES.items() if pattern.fullmatch(plain)), None)
    if name is None and _OF_OPTIMIZER.fullmatch(logged_as):
        name = LEARNING_RATE
    return as_canonical(name, mode) if name else None


def mode_of(logged_as: str) -> str:
    """The mode that a name tells."""
    is_validation = re.match(_VALIDATION, _BREAK.sub("_", logged_as.strip().lower()))
    return EVALUATION if is_validation else TRAINING


def as_canonical(name: str, mode: str) -> tuple[str, str]:
    """A name in its mode: a loss of an evaluation is one of validation."""
    if mode == EVALUATION:
        name = _VALIDATED.get(name, name)
    return (name, EVALUATION) if name in _VALIDATED.values() else (name, mode or TRAINING)
