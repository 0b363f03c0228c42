"""What the page shows of the training itself: series and tensors in few columns of steps, never their records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from jobrules.measures.learning.evaluations import MIN_EVALUATIONS, Evaluations
from jobrules.measures.learning.last_classes import MIN_OF_CLASS, last_evaluation
from jobrules.measures.learning.robust import block_medians, finite
from jobrules.model import Count, FloatArray, IntArray, Positive
from jobrules.model.learning import (
    CANONICAL,
    LOSS,
    TRAINING,
    VAL_LOSS,
    ClassCounts,
    Collection,
    Learning,
    ScalarName,
    Scalars,
    TensorName,
    TensorRecords,
    Trees,
    block_of,
)
from jobrules.model.names import OwnText
from jobrules.model.order import median
from jobrules.model.types import BoolArray
from jobrules.text import count, duration, escape_name, join_names, percent

#: Columns of series, of tensors, and rows of tensors.
MAX_COLUMNS, MAX_MAP_COLUMNS, MAX_ROWS = 200, 100, 60
#: Tensors with the smallest and the largest gradients in the table, rows of scalars, classes, pairs, and features.
MAX_EXTREMES, MAX_SCALARS, MAX_CLASSES, MAX_PAIRS, MAX_FEATURES = 20, 40, 30, 10, 20
#: Decades below the largest gradient that have a color of their own.
DECADES = 6
#: Levels of ``LayerRow``: of the whole scale, and instead of one.
FULL, NOT_FINITE, ZERO, NOT_RECORDED = 100, 253, 254, 255
#: Decimal digits of a number in the report.
DIGITS = 4
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


class StepColumns(Struct, frozen=True, kw_only=True):
    """Columns of equally many steps."""

    start: int
    width: int
    count: Positive

    @classmethod
    def of(cls, steps: IntArray, most: int) -> StepColumns:
        """From the first to the last step, at most so many, and none narrower than the usual distance of steps."""
        known = np.unique(steps)
        start, stop = int(known[0]), int(known[-1]) + 1
        width = max(_usual(np.diff(known)), -(-(stop - start) // most))
        return cls(start=start, width=width, count=-(-(stop - start) // width))

    def column(self, steps: IntArray) -> IntArray:
        """In which column each step is; below 0 or from ``count`` on if in none."""
        return np.asarray((steps - self.start) // self.width, np.int64)


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


class LayerRow(Struct, frozen=True, kw_only=True):
    """A tensor, or those of a block, over the columns."""

    name: TensorName
    tensors: Positive
    #: (columns,) 0 to 100 of the scale, ``ZERO``, ``NOT_FINITE``, or ``NOT_RECORDED``.
    levels: bytes
    #: ``dead`` or ``saturated`` of activations.
    kind: OwnText = ""


class Spread(Struct, frozen=True, kw_only=True):
    """Values of a tensor, or of those of a block, over its records: lowest to highest."""

    name: TensorName
    tensors: Positive
    records: Count
    #: Records in which the value is exactly 0.
    zeros: Count
    low: float
    p25: float
    median: float
    p75: float
    high: float


class LayerMap(Struct, frozen=True, kw_only=True):
    """A statistic of tensors by layer and step."""

    columns: StepColumns
    rows: tuple[LayerRow, ...]
    #: Tensors in ``rows``, and the value of the full scale.
    tensors: Count
    top: float
    #: Of single tensors: those with the lowest and those with the highest median.
    extremes: tuple[Spread, ...]


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
        gradients=(tensors and _gradients(tensors)) or UNSET,
        updates=(tensors and _updates(tensors)) or UNSET,
        activations=(tensors and _activations(tensors)) or UNSET,
        classes=_classes(learning.classes) if learning.classes else UNSET,
        trees=_trees(learning.trees) if learning.trees else UNSET,
    )


def _usual(gaps: IntArray) -> int:
    """The distance in which at least half of all steps lie; 1 without one."""
    ordered = np.sort(gaps)
    sums = np.cumsum(ordered)
    return int(ordered[np.searchsorted(sums, sums[-1] / 2)]) if len(gaps) else 1


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _rounded(value: float) -> float | None:
    return _short(value) if np.isfinite(value) else None


def _quantiles(
    keys: IntArray, values: FloatArray, groups: int, parts: Sequence[float]
) -> tuple[IntArray, list[FloatArray]]:
    """How many values each group has, and the quantiles of each, linear between values; NaN without any."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first = np.searchsorted(keys, np.arange(groups))
    counts = np.searchsorted(keys, np.arange(groups), "right") - first
    there = counts > 0
    found = []
    for part in parts:
        place = part * (counts[there] - 1)
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        below, above = values[first[there] + low], values[first[there] + high]
        one = np.full(groups, np.nan)
        # A difference of the two may be infinite.
        one[there] = below * (1 - (place - low)) + above * (place - low)
        found.append(one)
    return counts.astype(np.int64), found


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
    _, found = _quantiles(column[finite], series.value[finite], columns.count, (0, 0.5, 1))
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
    return int(found.steps[place]), _short(value)


def _loss_after(loss: Scalars) -> Iterable[LossAfter]:
    """The first step is number 0 or 1, so ``n`` steps end with step ``n``."""
    numbers = (first * 10**power for power in range(1, 18) for first in (1, 2, 5))
    step, value = finite(loss)
    for steps in itertools.takewhile(lambda steps: steps <= int(loss.step[-1]) + 1, numbers):
        values = value[(step > (1 - LAST_PART) * steps) & (step <= steps)]
        pieces = block_medians(values, PIECES).tolist() if len(values) >= PIECES else ()
        if len(values):
            yield LossAfter(steps=steps, loss=_short(median(values)), pieces=tuple(map(_short, pieces)))


# --- tensors


def _rows_of(records: TensorRecords, chosen: BoolArray) -> tuple[IntArray, list[tuple[str, int]]]:
    """The row of each tensor, -1 for none, and name and number of tensors of each row.

    Of too many, those of a block are one row; of too many blocks, neighbors.
    """
    there = np.unique(records.tensor[chosen]).tolist()
    blocks = [records.tensors[place].name for place in there]
    if len(there) > MAX_ROWS:
        blocks = list(map(block_of, blocks))
    places = {name: i for i, name in enumerate(dict.fromkeys(blocks))}
    share = -(-len(places) // MAX_ROWS)
    rows = np.full(len(records.tensors), -1, np.int64)
    members: dict[int, list[int]] = {}
    for place, block in zip(there, blocks, strict=True):
        rows[place] = places[block] // share
        members.setdefault(int(rows[place]), []).append(place)
    called = [*places][::share]
    return rows, [(called[row], len(members[row])) for row in sorted(members)]


def _matrices(records: TensorRecords, collection: Collection) -> BoolArray:
    """(n,) the rows of a collection; if it has matrices, only theirs."""
    found = records.of(collection)
    matrices = found & np.array([one.is_matrix for one in records.tensors], np.bool_)[records.tensor]
    return matrices if matrices.any() else found


def _spreads(keys: IntArray, values: FloatArray, named: Sequence[tuple[str, int]]) -> tuple[Spread, ...]:
    """Of each group with a finite value, in their order."""
    finite = np.isfinite(values)
    keys, values = keys[finite], values[finite]
    counts, found = _quantiles(keys, values, len(named), (0, 0.25, 0.5, 0.75, 1))
    zeros = np.bincount(keys[values == 0], minlength=len(named))
    return tuple(
        Spread(
            name=named[i][0],
            tensors=named[i][1],
            records=int(counts[i]),
            zeros=int(zeros[i]),
            **{
                part: _short(one[i])
                for part, one in zip(("low", "p25", "median", "p75", "high"), found, strict=True)
            },
        )
        for i in range(len(named))
        if counts[i]
    )


def _map(
    records: TensorRecords, chosen: BoolArray, values: FloatArray, kinds: Sequence[str], *, shares: bool
) -> LayerMap | None:
    """``values`` of the ``chosen`` records by row and column: shares from 0 to 1, or norms on a logarithmic scale."""
    if not chosen.any():
        return None
    rows, named = _rows_of(records, chosen)
    columns = StepColumns.of(records.step[chosen], MAX_MAP_COLUMNS)
    tensor, value = records.tensor[chosen], values[chosen]
    key = rows[tensor] * columns.count + columns.column(records.step[chosen])
    cells = len(named) * columns.count
    finite = np.isfinite(value)
    _, (median,) = _quantiles(key[finite], value[finite], cells, (0.5,))
    top = 1.0 if shares else float(np.nanmax(median, initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = median if shares else 1 + np.log10(median / top) / DECADES
    levels = np.full(cells, NOT_RECORDED, np.uint8)
    known = np.isfinite(median)
    levels[known] = np.rint(FULL * np.clip(np.nan_to_num(part[known], neginf=0.0), 0, 1)).astype(np.uint8)
    if not shares:
        levels[median == 0] = ZERO
        finite &= (records.nan + records.inf == 0)[chosen]
    levels[key[~finite]] = NOT_FINITE
    table = levels.reshape(len(named), columns.count)
    own = _spreads(tensor.astype(np.int64), value, [(one.name, 1) for one in records.tensors])
    ranked = sorted(own, key=lambda one: one.median)
    most = MAX_EXTREMES if len(ranked) > 2 * MAX_EXTREMES else len(ranked)
    kind_of = {int(row): kinds[place] for place, row in enumerate(rows.tolist()) if row >= 0}
    return LayerMap(
        columns=columns,
        rows=tuple(
            LayerRow(name=name, tensors=n, levels=table[i].tobytes(), kind=kind_of[i])
            for i, (name, n) in enumerate(named)
        ),
        tensors=len(own),
        top=_short(top),
        extremes=(*ranked[:most], *ranked[max(most, len(ranked) - most) :]),
    )


def _gradients(records: TensorRecords) -> LayerMap | None:
    chosen = _matrices(records, Collection.GRADIENT)
    return _map(records, chosen, records.rms, [""] * len(records.tensors), shares=False)


def _activations(records: TensorRecords) -> LayerMap | None:
    """Of each layer the share that is dead or, of those that saturate, saturated."""
    dead = np.isfinite(records.dead)
    chosen = records.of(Collection.OUTPUT) & (dead | np.isfinite(records.saturated))
    of_dead = {*np.unique(records.tensor[chosen & dead]).tolist()}
    kinds = ["dead" if place in of_dead else "saturated" for place in range(len(records.tensors))]
    # What is NaN is not positive, and yet no unit is dead.
    share = np.where(records.nan > 0, np.nan, np.where(dead, records.dead, records.saturated))
    return _map(records, chosen, share, kinds, shares=True)


def _updates(records: TensorRecords) -> tuple[Spread, ...] | None:
    chosen = _matrices(records, Collection.UPDATE)
    if not chosen.any():
        return None
    rows, named = _rows_of(records, chosen)
    return _spreads(rows[records.tensor[chosen]], records.ratio[chosen], named) or None


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
            (label, taken, times, _short(times / labels[label]))
            for label, taken, times in last.pairs[wrong][worst].tolist()
        ),
    )


def _trees(trees: Trees) -> TreeNumbers:
    whole = sum(gain for _, gain in trees.importance) or 1.0
    shown = trees.importance[:MAX_FEATURES]
    depths, counts = np.unique(np.array(trees.depths, np.int64), return_counts=True)
    return TreeNumbers(
        features=tuple((name, _short(gain / whole)) for name, gain in shown),
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
