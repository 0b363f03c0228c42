"""What the page shows of the training itself: series and tensors in few columns of steps, never their records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from jobrules.analyses.learning.columns import StepColumns, quantiles_of, short
from jobrules.analyses.learning.layers import LayerMap, Spread, activations, gradients, updates
from jobrules.measures.learning.evaluations import MIN_EVALUATIONS, Evaluations
from jobrules.measures.learning.last_classes import MIN_OF_CLASS, last_evaluation
from jobrules.measures.learning.robust import block_medians, finite
from jobrules.model import Count, IntArray, Positive
from jobrules.model.learning import (
    CANONICAL,
    LOSS,
    TRAINING,
    VAL_LOSS,
    ClassCounts,
    Learning,
    ScalarName,
    Scalars,
    TensorName,
    Trees,
)
from jobrules.model.names import OwnText
from jobrules.model.order import median
from jobrules.text import count, duration, escape_name, join_names, percent

#: Columns of series, rows of scalars, classes, pairs, and features.
MAX_COLUMNS, MAX_SCALARS, MAX_CLASSES, MAX_PAIRS, MAX_FEATURES = 200, 40, 30, 10, 20
#: The loss after so many steps is the median over this last part of them, and that of so many pieces of it.
LAST_PART, PIECES = 0.1, 10
#: Those that are drawn.
EVENTS = ("overflow", "skipped", "resume")
#: Reasons why something was not recorded.
MAX_LACKS = 6
_SHARDING = {
    "ddp": "DistributedDataParallel",
    "fsdp1": "FSDP",
    "fsdp2": "FSDP2",
    "other": "another kind of sharding",
}


class Course(Struct, frozen=True, kw_only=True):
    """A series in columns of steps: lowest, median, and highest finite value of each; None without one."""

    name: ScalarName
    low: tuple[float | None, ...]
    median: tuple[float | None, ...]
    high: tuple[float | None, ...]
    #: Columns with a value that is NaN or infinite.
    not_finite: tuple[int, ...] = ()


class ScalarRow(Struct, frozen=True, kw_only=True):
    """A series in numbers; None if no value is finite."""

    name: ScalarName
    logged_as: ScalarName
    mode: OwnText
    source: OwnText
    values: Count
    #: NaN or infinite, and the first step with such a value.
    not_finite: Count
    not_finite_from: int | None
    first: float | None
    last: float | None
    low: float | None
    high: float | None


class ClassRow(Struct, frozen=True, kw_only=True):
    """A class in an evaluation; its recall is None without labels, or if it is not known."""

    number: int
    labels: int
    predicted: int
    recall: float | None


class Classes(Struct, frozen=True, kw_only=True):
    """The last evaluation with counts of classes."""

    step: int
    evaluations: Positive
    classes: Count
    labels: int
    #: Share of right predictions; None if it is not known.
    right: float | None
    #: The classes of lowest recall, then those with most labels.
    rows: tuple[ClassRow, ...]
    #: Label, other prediction, count, and its share of the label: the largest shares of at least ``MIN_OF_CLASS`` labels.
    pairs: tuple[tuple[int, int, int, float], ...]


class LossAfter(Struct, frozen=True, kw_only=True):
    """The loss after a number of steps."""

    steps: int
    loss: float
    #: Of equal pieces, one after the other: how much it varies. Empty of fewer values than pieces.
    pieces: tuple[float, ...]


class TreeNumbers(Struct, frozen=True, kw_only=True):
    """Boosted trees: the features of largest gain, and how many trees have each depth."""

    #: Feature, and its share of the gain of all.
    features: tuple[tuple[TensorName, float], ...]
    features_left: Count
    #: (depth, trees), ascending.
    depths: tuple[tuple[int, int], ...]
    max_depth: int | None


class LearningPlots(Struct, frozen=True, kw_only=True):
    """What the page plots of the training itself."""

    #: How it was recorded, in sentences.
    how: tuple[OwnText, ...]
    #: Columns of ``courses``, which begin with the loss if there is one; None without a series.
    columns: StepColumns | None
    courses: tuple[Course, ...]
    #: Steps with the time at which they were recorded, to label the columns.
    times: tuple[tuple[int, int], ...]
    #: Step and value of the best validation loss.
    best: tuple[int, float] | None
    #: Columns with events, by their names, and how many there were; spikes are those of LossSpikes.
    marks: dict[OwnText, tuple[int, ...]]
    events: dict[OwnText, Count]
    #: After round numbers of steps, the median loss of the last tenth of them.
    loss_after: tuple[LossAfter, ...]
    #: What a step of the optimizer is made of; None and 0 if it is not known.
    accumulation: int | None
    world_size: int
    scalars: tuple[ScalarRow, ...]
    scalars_left: Count
    gradients: LayerMap | UnsetType = UNSET
    updates: tuple[Spread, ...] | UnsetType = UNSET
    activations: LayerMap | UnsetType = UNSET
    classes: Classes | UnsetType = UNSET
    trees: TreeNumbers | UnsetType = UNSET

    def course(self, name: str) -> Course | None:
        """The series of a name; None if it was not recorded."""
        return next((one for one in self.courses if one.name == name), None)

    @property
    def has_loss(self) -> bool:
        """Whether there is any loss."""
        return any(one.name in (LOSS, VAL_LOSS) for one in self.courses)


def learning_plots(
    learning: Learning | None, spikes: Sequence[int] = (), spike_count: int = 0
) -> LearningPlots | None:
    """None if nothing of the training itself was recorded; ``spikes`` are steps of the first of the loss's spikes."""
    if learning is None:
        return None
    series = _of_first_rank(learning)
    drawn = [one for name in CANONICAL if (one := learning.series(name))]
    columns = StepColumns.of(np.concatenate([one.step for one in drawn]), MAX_COLUMNS) if drawn else None
    loss = learning.series(LOSS)
    steps: dict[str, list[int]] = {"spike": [*spikes]} if spikes else {}
    for event in learning.events:
        if event.name in EVENTS:
            steps.setdefault(event.name, []).append(event.step)
    tensors = learning.tensors if learning.tensors and len(learning.tensors) else None
    return LearningPlots(
        how=_how(learning),
        columns=columns,
        courses=tuple(_course(one, columns) for one in drawn) if columns else (),
        times=_times(drawn),
        best=_best(learning),
        marks={name: _inside(columns, np.array(steps[name])) for name in sorted(steps)} if columns else {},
        events={name: spike_count if name == "spike" else len(steps[name]) for name in sorted(steps)},
        loss_after=tuple(_loss_after(loss)) if loss else (),
        accumulation=learning.accumulation,
        world_size=learning.world_size,
        scalars=tuple(map(_scalar_row, series[:MAX_SCALARS])),
        scalars_left=max(0, len(series) - MAX_SCALARS),
        gradients=(tensors and gradients(tensors)) or UNSET,
        updates=(tensors and updates(tensors)) or UNSET,
        activations=(tensors and activations(tensors)) or UNSET,
        classes=_classes(learning.classes) if learning.classes else UNSET,
        trees=_trees(learning.trees) if learning.trees else UNSET,
    )


def _rounded(value: float) -> float | None:
    return short(value) if np.isfinite(value) else None


# --- series


def _of_first_rank(learning: Learning) -> list[Scalars]:
    """Of each name and mode the series of the lowest rank; what is drawn comes first."""
    first: dict[tuple[str, str], Scalars] = {}
    for one in sorted(learning.scalars, key=lambda one: one.rank):
        first.setdefault((one.name, one.mode), one)
    names = {name: i for i, name in enumerate(CANONICAL)}
    return sorted(first.values(), key=lambda one: (names.get(one.name, len(names)), one.mode != TRAINING))


def _course(series: Scalars, columns: StepColumns) -> Course:
    column, finite = columns.column(series.step), series.finite
    _, found = quantiles_of(column[finite], series.value[finite], columns.count, (0, 0.5, 1))
    low, median, high = (tuple(map(_rounded, one.tolist())) for one in found)
    broken = tuple(np.unique(column[~finite]).tolist())
    return Course(name=series.name, low=low, median=median, high=high, not_finite=broken)


def _inside(columns: StepColumns, steps: IntArray) -> tuple[int, ...]:
    """The columns that have one of the steps."""
    found = np.unique(columns.column(steps))
    return tuple(found[(found >= 0) & (found < columns.count)].tolist())


def _scalar_row(series: Scalars) -> ScalarRow:
    values = series.value[series.finite]
    ends = (values[0], values[-1], values.min(), values.max()) if len(values) else (np.nan,) * 4
    first, last, low, high = (_rounded(float(one)) for one in ends)
    return ScalarRow(
        name=series.name,
        logged_as=series.logged_as,
        mode=series.mode,
        source=series.source,
        values=len(series),
        not_finite=len(series) - len(values),
        not_finite_from=int(series.step[int(np.argmin(series.finite))])
        if len(values) < len(series)
        else None,
        first=first,
        last=last,
        low=low,
        high=high,
    )


def _times(series: Sequence[Scalars]) -> tuple[tuple[int, int], ...]:
    """At most 21 points of the longest series whose times are all known."""
    timed = max((one for one in series if one.time_us.all()), key=len, default=None)
    if timed is None:
        return ()
    places = np.unique(np.linspace(0, len(timed) - 1, 21).astype(np.int64))
    return tuple(zip(timed.step[places].tolist(), timed.time_us[places].tolist(), strict=True))


def _best(learning: Learning) -> tuple[int, float] | None:
    """That of the rules, by the lowest median of an evaluation and its neighbors; of few evaluations by the lowest value."""
    found = Evaluations.of(learning)
    if not len(found):
        return None
    place, value = int(found.loss.argmin()), found.loss.min()
    if len(found) >= MIN_EVALUATIONS:
        place, value = found.best, found.smooth.min()
    return int(found.steps[place]), short(value)


def _loss_after(loss: Scalars) -> Iterable[LossAfter]:
    """The first step is number 0 or 1, so ``n`` steps end with step ``n``."""
    numbers = (first * 10**power for power in range(1, 18) for first in (1, 2, 5))
    step, value = finite(loss)
    for steps in itertools.takewhile(lambda steps: steps <= int(loss.step[-1]) + 1, numbers):
        values = value[(step > (1 - LAST_PART) * steps) & (step <= steps)]
        pieces = block_medians(values, PIECES).tolist() if len(values) >= PIECES else ()
        if len(values):
            yield LossAfter(steps=steps, loss=short(median(values)), pieces=tuple(map(short, pieces)))


# --- the rest


def _classes(counts: Sequence[ClassCounts]) -> Classes:
    last = last_evaluation(counts)
    recall, labels = last.recall, last.labels
    order = np.lexsort((-labels, np.nan_to_num(recall, nan=2.0)))[:MAX_CLASSES].tolist()
    of_label, other, n = last.pairs.T if len(last.pairs) else np.empty((3, 0), np.int64)
    wrong = (of_label != other) & (labels[of_label] >= MIN_OF_CLASS)
    shares = n[wrong] / labels[of_label[wrong]]
    worst = np.argsort(-shares, kind="stable")[:MAX_PAIRS]
    total = int(labels.sum())
    right = int(n[of_label == other].sum()) / total if last.complete and total else None
    return Classes(
        step=last.step,
        evaluations=len({one.step for one in counts if one.mode == last.mode}),
        classes=len(labels),
        labels=total,
        right=None if right is None else _rounded(right),
        rows=tuple(
            ClassRow(
                number=i,
                labels=int(labels[i]),
                predicted=int(last.predicted[i]),
                recall=_rounded(float(recall[i])),
            )
            for i in order
        ),
        pairs=tuple(
            (label, taken, times, short(times / labels[label]))
            for label, taken, times in last.pairs[wrong][worst].tolist()
        ),
    )


def _trees(trees: Trees) -> TreeNumbers:
    whole = sum(gain for _, gain in trees.importance) or 1.0
    shown = trees.importance[:MAX_FEATURES]
    depths, counts = np.unique(np.array(trees.depths, np.int64), return_counts=True)
    return TreeNumbers(
        features=tuple((name, short(gain / whole)) for name, gain in shown),
        features_left=len(trees.importance) - len(shown),
        depths=tuple(zip(depths.tolist(), counts.tolist(), strict=True)),
        max_depth=trees.max_depth,
    )


def _how(learning: Learning) -> tuple[str, ...]:
    """Where it was recorded, how often, at what cost, and what was not."""
    sources = dict.fromkeys(one.source for one in learning.scalars) or ["files of the job"]
    every = f", tensors each {count(learning.every, 'step')}" if learning.every else ""
    world = learning.world_size
    of_ranks = f", on {len(learning.ranks)} of {count(world, 'rank')}"
    facts = [
        f"{learning.parameters:,} parameters ({learning.trainable:,} trainable)"
        if learning.parameters
        else "",
        f"optimizer {escape_name(learning.optimizer, 40)}" if learning.optimizer else "",
        learning.amp,
        _SHARDING.get(learning.sharding, ""),
        f"{learning.accumulation} micro-batches a step" if learning.accumulation else "",
        "compiled" if learning.compiled else "",
    ]
    model, span = ", ".join(filter(None, facts)), learning.span_us
    length_us = span[1] - span[0] if span else 0
    cost = percent(100 * learning.cost_us / max(1, length_us))
    of_time = f", {cost} of the time from the first to the last record" if length_us else ""
    lacks = [escape_name(one) for one in learning.not_recorded[:MAX_LACKS]]
    lacks += [f"{more} more"] if (more := len(learning.not_recorded) - len(lacks)) else []
    said = [
        f"Recorded from {join_names([*sources])}{every}{of_ranks if world > 1 else ''}.",
        f"Model: {model}." if model else "",
        f"Recording took {duration(learning.cost_us)}{of_time}." if learning.cost_us else "",
        f"Not recorded: {'; '.join(lacks)}." if lacks else "",
        f"{count(len(learning.replicas), 'weight')} differed between replicas." if learning.replicas else "",
    ]
    return tuple(filter(None, said))
