"""What was recorded of the training itself: its loss, gradients, weights, and predictions.

The tables are the same for every source; most sources have scalars only. A step is one step of the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Struct

from jobrules.model.names import Message, Name, NodeName, OwnText
from jobrules.model.types import BoolArray, CodeArray, FloatArray, IntArray, span_of

#: A parameter or a place in the model, and a number that the script logged.
TensorName = Annotated[str, Name("tensor")]
ScalarName = Annotated[str, Name("scalar")]
#: The class of a module, or of an optimizer.
ModuleName = Annotated[str, Name("type")]

#: Modes of records.
TRAINING, EVALUATION, PREDICTION = "TRAIN", "EVAL", "PREDICT"

#: The names that series have whatever the script calls them; any other series keeps its own.
LOSS, VAL_LOSS, ACCURACY, VAL_ACCURACY = "loss", "val_loss", "accuracy", "val_accuracy"
LEARNING_RATE, GRADIENT_NORM, LOSS_SCALE = "lr", "grad_norm", "loss_scale"
CANONICAL = (LOSS, VAL_LOSS, ACCURACY, VAL_ACCURACY, LEARNING_RATE, GRADIENT_NORM, LOSS_SCALE)


class Training(StrEnum):
    """What a rule on training needs, in words for "… was not recorded"."""

    LOSS = "the loss"
    VALIDATION = "validation loss"
    GRADIENT = "gradients"
    UPDATE = "weight updates"
    OUTPUT = "outputs of activation modules"
    CLASSES = "labels and predictions"
    INPUT = "inputs of the model"


class Collection(StrEnum):
    """Kinds of tensors."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    #: Of a weight, by one step of the optimizer.
    UPDATE = "update"
    #: Of an activation module, and what goes into it.
    OUTPUT = "output"
    PREACTIVATION = "preactivation"
    #: Of the model. Of images, a tensor for each channel (``name[0]``), whose shape is (channels, height, width).
    INPUT = "input"


class Scalars(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A number that was logged again and again, by one rank, in the order of the steps."""

    #: One of ``CANONICAL``, or as it was logged.
    name: ScalarName
    logged_as: ScalarName
    mode: OwnText
    #: ``jobrecord``, ``TensorBoard``, …
    source: OwnText
    rank: int = 0
    #: (n,) ascending, but a step may be there twice.
    step: IntArray
    #: (n,) microseconds since the epoch; 0 where no time is known.
    time_us: IntArray
    #: (n,) as recorded: also NaN and infinities.
    value: FloatArray

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def finite(self) -> BoolArray:
        """(n,) where the value is a finite number."""
        return np.isfinite(self.value)


class Tensor(Struct, frozen=True, kw_only=True):
    """A tensor of the model."""

    name: TensorName
    collection: Collection
    #: Of all ranks together.
    shape: tuple[int, ...] = ()
    dtype: OwnText = ""
    #: Of parameters: whether they take part in training, and are in a parameter group of an optimizer.
    trainable: bool = True
    optimized: bool = True
    #: Class of its module: ``ReLU``.
    module: ModuleName = ""
    #: Place in the forward pass; -1 if it is not known.
    order: int = -1
    #: Of integer inputs: the number that stands for padding. ``zero`` counts it.
    pad_id: int | None = None

    @property
    def is_matrix(self) -> bool:
        """Whether it has two or more axes, which biases and scales of norms do not."""
        return len(self.shape) >= 2


def block_of(name: str) -> str:
    """The block of a tensor, up to the first part that ends with a number: ``b.7`` of ``b.7.attn.weight``; otherwise its name."""
    parts = name.split(".")
    numbered = (i for i, part in enumerate(parts[:-1], start=1) if part[-1:].isdigit())
    return ".".join(parts[: next(numbered, len(parts))])


#: Columns of ``TensorRecords`` that hold numbers of all elements, and those of a sample of them.
COUNTS = ("count", "nan", "inf", "zero")
STATISTICS = ("sum", "l1", "l2", "min", "max", "positive", "ratio", "dead", "saturated")


class TensorRecords(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Statistics of tensors, a row each, in arrays of the same length, by step; ranks are joined.

    Numbers that were not recorded are NaN.
    """

    #: Each tensor once, in forward order as far as it is known.
    tensors: tuple[Tensor, ...] = ()
    #: (n,) place in ``tensors``.
    tensor: CodeArray
    step: IntArray
    time_us: IntArray
    #: (n,) elements; those that are NaN, infinite, and exactly 0.
    count: FloatArray
    nan: FloatArray
    inf: FloatArray
    zero: FloatArray
    #: (n,) over finite elements: sum, sum of magnitudes, and root of the sum of squares; lowest and highest.
    sum: FloatArray
    l1: FloatArray
    l2: FloatArray
    min: FloatArray
    max: FloatArray
    #: (n,) of a sample: share of positive elements among those that are not 0; norm of the update by that of the weight.
    positive: FloatArray
    ratio: FloatArray
    #: (n,) of activations: share of units without a positive output in the last 10 records, and of saturated elements.
    dead: FloatArray
    saturated: FloatArray
    #: (n, 64) of a sample: elements whose magnitude lies in [2**(e-1), 2**e) for e = -40 to 23; no rows if none was recorded.
    bins: CodeArray

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def finite(self) -> FloatArray:
        """(n,) elements that are finite."""
        return self.count - self.nan - self.inf

    @cached_property
    def mean(self) -> FloatArray:
        """(n,) over finite elements."""
        return _divided(self.sum, self.finite)

    @cached_property
    def rms(self) -> FloatArray:
        """(n,) root of the mean square of the finite elements."""
        return _divided(self.l2, np.sqrt(self.finite))

    @cached_property
    def std(self) -> FloatArray:
        """(n,) of the population of finite elements."""
        return np.sqrt(np.maximum(0.0, self.rms**2 - self.mean**2))

    def of(self, collection: Collection) -> BoolArray:
        """(n,) the rows of a collection."""
        kinds = np.array([one.collection is collection for one in self.tensors], dtype=np.bool_)
        return kinds[self.tensor]


class ClassCounts(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """How often each class was a label, and was predicted, in one evaluation."""

    step: int
    mode: OwnText
    #: (classes,) counts.
    labels: IntArray
    predicted: IntArray
    #: (pairs, 3) label, prediction, count; the largest ones of many.
    pairs: IntArray
    #: Whether ``pairs`` holds all of them.
    complete: bool = True

    @cached_property
    def recall(self) -> FloatArray:
        """(classes,) share of the labels of a class that were predicted; NaN without any label, or if it is not known."""
        right = np.full(len(self.labels), 0.0 if self.complete else np.nan)
        same = self.pairs[self.pairs[:, 0] == self.pairs[:, 1]]
        right[same[:, 0]] = same[:, 2]
        return _divided(right, self.labels.astype(float))


class LearningEvent(Struct, frozen=True, kw_only=True):
    """Something that happened at a step."""

    step: int
    #: 0 if it is not known.
    time_us: int
    #: ``overflow``, ``skipped``, ``resume``, ``epoch``, ``checkpoint``, ``error``.
    name: OwnText
    text: Message = ""


class Trees(Struct, frozen=True, kw_only=True):
    """The boosted trees of a model at its end."""

    #: Feature and its gain, the largest first.
    importance: tuple[tuple[TensorName, float], ...] = ()
    #: Depth of each tree; the most that was allowed, None without a limit.
    depths: tuple[int, ...] = ()
    max_depth: int | None = None


class ReplicaDifference(Struct, frozen=True, kw_only=True):
    """A weight that differs between replicas of a model which should be equal: its norm on two ranks."""

    step: int
    tensor: TensorName
    low: float
    high: float
    low_rank: int
    high_rank: int


class Learning(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """All that was recorded of a training; no part of the tables of nodes."""

    #: By name, mode, and rank; of each name at most one series of a mode and rank.
    scalars: tuple[Scalars, ...] = ()
    #: None without records of tensors.
    tensors: TensorRecords | None = None
    #: By step.
    classes: tuple[ClassCounts, ...] = ()
    events: tuple[LearningEvent, ...] = ()
    trees: Trees | None = None
    replicas: tuple[ReplicaDifference, ...] = ()
    #: Where it was recorded; empty if it is not known.
    node: NodeName = ""
    #: Ranks with a file, and how many the job had; 0 if it is not known.
    ranks: tuple[int, ...] = ()
    world_size: int = 0
    #: Of the model; 0, None or empty if it is not known.
    parameters: int = 0
    trainable: int = 0
    class_count: int | None = None
    optimizer: ModuleName = ""
    #: ``float16``, ``bfloat16``; how parameters are split: ``none``, ``ddp``, ``fsdp1``, ``fsdp2``, ``other``.
    amp: OwnText = ""
    sharding: OwnText = ""
    #: Micro-batches of a step.
    accumulation: int | None = None
    compiled: bool = False
    #: Steps between two records of tensors.
    every: int | None = None
    #: What recording took, in microseconds.
    cost_us: int = 0
    #: Why something was not recorded, a clause each: ``activations: the model is compiled``.
    not_recorded: tuple[Message, ...] = ()
    #: Where scalars were looked for.
    sources: tuple[OwnText, ...] = ()

    def series(self, name: str, mode: str | None = None) -> Scalars | None:
        """The series of a name, of the first rank that has it; of several modes, that of training first."""
        found = [one for one in self.scalars if one.name == name and mode in (None, one.mode)]
        return min(found, key=lambda one: (one.mode != TRAINING, one.rank), default=None)

    @cached_property
    def has(self) -> frozenset[Training]:
        """What was recorded."""
        found = {
            Training.LOSS: self.series(LOSS),
            Training.VALIDATION: self.series(VAL_LOSS),
            Training.CLASSES: self.classes,
        }
        collections = {one.collection for one in self.tensors.tensors} if self.tensors else set()
        of_tensors = {
            Training.GRADIENT: Collection.GRADIENT,
            Training.UPDATE: Collection.UPDATE,
            Training.OUTPUT: Collection.OUTPUT,
            Training.INPUT: Collection.INPUT,
        }
        return frozenset(
            [*(need for need, one in found.items() if one)]
            + [need for need, kind in of_tensors.items() if kind in collections]
        )

    @cached_property
    def first_step(self) -> int | None:
        """The first step with any record; None without one."""
        return min((int(values.min()) for values in self._columns("step")), default=None)

    @cached_property
    def last_step(self) -> int:
        """The last step with any record; -1 without one."""
        return max((int(values.max()) for values in self._columns("step")), default=-1)

    @cached_property
    def span_us(self) -> tuple[int, int] | None:
        """Times of the first and the last record; None if no time is known."""
        known = (one[one > 0] for one in self._columns("time_us"))
        return span_of((int(one.min()), int(one.max())) for one in known if len(one))

    def _columns(self, name: str) -> Iterable[IntArray]:
        tables = [*self.scalars, *([self.tensors] if self.tensors else [])]
        return [values for one in tables if len(values := getattr(one, name))]


def time_of_step(learning: Learning, step: int) -> int | None:
    """When a step was recorded, from the series with most values that have times; None without any at or after it."""
    timed = [one for one in learning.scalars if len(one) and one.time_us.all()]
    best = max(timed, key=len, default=None)
    if best is None:
        return None
    place = int(np.searchsorted(best.step, step))
    return int(best.time_us[place]) if place < len(best) else None


def _divided(part: FloatArray, whole: FloatArray) -> FloatArray:
    """The quotients; NaN where the whole is 0."""
    found: FloatArray = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
    return found
