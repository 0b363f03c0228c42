"""What was recorded of the training itself, as frames: scalars, statistics of tensors, and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.library.asked import chosen, numbered
from jobreport.library.frames import DURATION, UTC_TIME, coded, frame, of_rows, or_missing
from jobreport.library.machine_time import columns_of
from jobreport.library.recorded import RecordedJob
from jobreport.library.results import widened
from jobrules.model.learning import Collection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from jobreport.library.asked import Moment, StepNumbers
    from jobreport.library.asked import Names as Asked
    from jobrules.model import BoolArray, FloatArray, IntArray
    from jobrules.model.learning import ClassCounts, Learning, Scalars, TensorRecords

_TIMES = {"time": UTC_TIME, "time_us": "Int64", "since_start": DURATION, "step": "int64"}
SCALARS = {
    **_TIMES, "mode": "category", "rank": "int64", "name": "category", "value": "float64", "source": "category",
}  # fmt: skip
#: Numbers of a record of a tensor, by its fields, in the order of the columns.
_STATISTICS = (
    *("count", "finite", "nan", "inf", "zero_share", "mean", "std", "min", "max", "rms", "l1", "l2"),
    *("positive", "ratio", "dead", "saturated"),
)
TENSORS = {
    **_TIMES, "name": "category", "collection": "category", "shape": "object", **dict.fromkeys(_STATISTICS, "float64"),
}  # fmt: skip
HISTOGRAMS = {
    "step": "int64", "name": "category", "exponent": "int64", "low": "float64", "high": "float64", "count": "int64",
    "share": "float64",
}  # fmt: skip
QUANTILES = {"step": "int64", "name": "category"}
CLASSES = {
    "step": "int64", "mode": "str", "label": "int64", "labels": "int64", "predicted": "int64", "correct": "Int64",
    "recall": "float64", "precision": "float64",
}  # fmt: skip
COLLECTIONS = {
    "name": "str", "tensors": "int64", "records": "int64", "first_step": "int64", "last_step": "int64",
}  # fmt: skip
#: Of two jobs; differences are relative to this job.
LEARNING = {
    "kind": "str", "name": "str", "mode": "str", "steps": "int64", "first_step": "Int64", "largest": "float64",
}  # fmt: skip

#: Of the smallest of ``TensorRecords.bins``.
_FIRST_EXPONENT = -40
#: Classes of a square frame.
_MAX_CLASSES = 2000
_NOTHING, _NO_TENSORS = "nothing of the training itself was recorded", "no tensors were recorded"
_NO_CLASSES, _NO_BINS = "no labels and predictions were recorded", "no histograms were recorded"


class LearnedJob(RecordedJob):
    """A job with what was recorded of its training as frames of pandas."""

    # The training itself

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of scalars: ``TRAIN``, ``EVAL``, ``PREDICT``."""
        return tuple(dict.fromkeys(one.mode for one in self._learning.scalars)) if self._learning else ()

    @property
    def collections(self) -> pd.DataFrame:
        """The kinds of tensors that were recorded: ``gradient``, ``parameter``, …"""
        records = self._records
        found = []
        for kind in Collection:
            if records and len(rows := np.flatnonzero(records.of(kind))):
                step = records.step[rows]
                found.append(
                    (str(kind), len(np.unique(records.tensor[rows])), len(rows), step.min(), step.max())
                )
        reason = "" if records else self._not_learned(_NO_TENSORS)
        return of_rows(COLLECTIONS, found, **self._attrs() | {"reason": reason})

    def scalars(
        self,
        name: Asked = None,
        *,
        mode: Asked = None,
        rank: int | None = 0,
        start: Moment = None,
        end: Moment = None,
        raw: bool = False,
    ) -> pd.DataFrame:
        """Numbers that the training logged, by name, mode, and step; all ranks with ``rank=None``.

        Names are the same whatever logged them: ``loss``, ``val_loss``, ``accuracy``, ``lr``, ``grad_norm``, …; all others are
        as they were logged, and ``raw`` adds what each was ``logged_as``. Values are as recorded, and ``attrs["nonfinite"]``
        counts those that are NaN or infinite. Times are NA where the log has none; a window leaves these out.
        """
        attrs = self._attrs(locals()) | {"nonfinite": 0}
        columns = SCALARS | ({"logged_as": "category"} if raw else {})
        series = self._learning.scalars if self._learning else ()
        if not series:
            return frame(columns, **attrs | {"reason": self._not_learned("no scalars were recorded")})
        own = {one.name for one in series}
        # What a log calls ``loss`` may be the loss of evaluations, whose own name is another one.
        names = chosen(name, [*own, *(one.logged_as for one in series)])
        modes = chosen(mode, (one.mode for one in series))
        kept = [
            one
            for one in series
            if (one.name in names or one.logged_as in names - own)
            and one.mode in modes
            and rank in (None, one.rank)
        ]
        found = _scalar_columns(kept) if kept else {}
        if found and not (start is None and end is None):
            first_us, stop_us = self._window(start, end)
            rows = (found["time_us"] >= max(first_us, 1)) & (found["time_us"] < stop_us)
            found = {column: values[rows] for column, values in found.items()}
        if found:
            attrs["nonfinite"] = int((~np.isfinite(found["value"])).sum())
            found = self._with_times(found)
        return frame(columns, found, **attrs)

    def tensors(
        self,
        name: Asked = None,
        *,
        collection: Asked = None,
        statistic: str | None = None,
        step: StepNumbers = None,
    ) -> pd.DataFrame:
        """Statistics of tensors by step, then in the order of the forward pass; those of all ranks are joined.

        ``mean``, ``std``, ``rms``, and all norms and ends are over finite elements, ``std`` of the population, ``l1`` and ``l2``
        are norms of the elements as one vector. ``ratio`` is the norm of the last update by that of the weight; ``dead`` and
        ``saturated`` are shares of activations. What was not recorded is NaN.

        ``statistic="rms"`` has a column for each tensor, and the steps as index; of one collection.
        """
        attrs = self._attrs(locals())
        wanted = None if statistic is None else next(iter(chosen(statistic, _STATISTICS)))
        records, rows = self._asked(name, collection, step)
        if records is None:
            return frame(TENSORS, **attrs | {"reason": self._not_learned(_NO_TENSORS)})
        place, shapes = records.tensor[rows], np.empty(len(records.tensors), np.object_)
        shapes[:] = [one.shape for one in records.tensors]
        found = {"step": records.step[rows], "time_us": records.time_us[rows], "shape": shapes[place]}
        found |= {
            "name": _named(records, place),
            "collection": _category([str(one.collection) for one in records.tensors], place),
        }
        found |= {one: _statistic(records, one)[rows] for one in _STATISTICS}
        made = frame(TENSORS, self._with_times(found), **attrs)
        return widened(made, "step", ["name"], wanted, "collection") if wanted else made

    def histograms(
        self, name: Asked = None, *, collection: Asked = None, step: StepNumbers = None
    ) -> pd.DataFrame:
        """How many elements of a sample have a magnitude in [low, high): powers of two, without elements that are 0.

        Bins without an element have no row; ``share`` is that of the elements of the sample that are in any bin.
        """
        attrs = self._attrs(locals()) | {"from": "sampled histogram"}
        records, rows = self._asked(name, collection, step)
        if records is None or not len(records.bins):
            return frame(HISTOGRAMS, **attrs | {"reason": self._not_learned(_NO_BINS)})
        bins = records.bins[rows]
        row, place = np.nonzero(bins)
        exponent, count = place + _FIRST_EXPONENT, bins[row, place].astype(np.int64)
        found = {
            "step": records.step[rows][row],
            "name": _named(records, records.tensor[rows][row]),
            "exponent": exponent.astype(np.int64),
            "low": 2.0 ** (exponent - 1),
            "high": 2.0**exponent,
            "count": count,
            "share": count / bins.sum(axis=1)[row],
        }
        return frame(HISTOGRAMS, found, **attrs)

    def quantiles(
        self,
        name: Asked = None,
        q: Sequence[float] = (0.05, 0.5, 0.95),
        *,
        collection: Asked = None,
        step: StepNumbers = None,
    ) -> pd.DataFrame:
        """Quantiles of the magnitudes of elements that are not 0, from ``histograms``: a column ``p50`` for each of ``q``.

        Within a bin, which doubles from its low end to its high one, magnitudes are taken as evenly spread on a logarithmic
        scale.
        """
        attrs, q = self._attrs(locals()) | {"from": "sampled histogram"}, [*dict.fromkeys(q)]
        quantiles = columns_of(q)
        columns = QUANTILES | quantiles
        records, rows = self._asked(name, collection, step)
        if records is None or not len(records.bins):
            return frame(columns, **attrs | {"reason": self._not_learned(_NO_BINS)})
        found: dict[str, Any] = {"step": records.step[rows], "name": _named(records, records.tensor[rows])}
        found |= {name: _quantile(records.bins[rows], one) for name, one in zip(quantiles, q, strict=True)}
        return frame(columns, found, **attrs)

    def classes(self, step: StepNumbers = None) -> pd.DataFrame:
        """How often each class was the label and was predicted, in each evaluation; recall and precision.

        ``correct`` and what follows from it are NA where only the most frequent pairs were recorded and it is not among them.
        """
        attrs = self._attrs(locals())
        counts = self._counts(step)
        if not counts:
            return frame(CLASSES, **attrs | {"reason": self._not_learned(_NO_CLASSES)})
        parts = [_of_classes(one) for one in counts]
        found: dict[str, Any] = {name: np.concatenate([one[name] for one in parts]) for name in CLASSES}
        return frame(CLASSES, found | {"correct": or_missing(found["correct"])}, **attrs)

    def confusion(self, step: int | None = None) -> pd.DataFrame:
        """A row for each label and a column for each prediction, of the last evaluation or of that at a step.

        ``attrs["complete"]`` is False where only the most frequent pairs were recorded; the others count as 0.
        """
        import pandas as pd  # noqa: PLC0415 - a second

        counts = self._counts(step)
        size = len(counts[-1].labels) if counts else 0
        if size > _MAX_CLASSES:
            raise ValueError(f"a frame of {size:,} × {size:,} classes would be too large; see classes()")
        table = np.zeros((size, size), np.int64)
        if counts:
            np.add.at(table, (counts[-1].pairs[:, 0], counts[-1].pairs[:, 1]), counts[-1].pairs[:, 2])
        axes = [pd.RangeIndex(size, name=name) for name in ("label", "predicted")]
        made = pd.DataFrame(table, index=axes[0], columns=axes[1])
        reason = "" if counts else self._not_learned(_NO_CLASSES)
        facts = {"step": counts[-1].step, "complete": counts[-1].complete} if counts else {"complete": True}
        made.attrs.update(**self._attrs({"step": step}) | {"reason": reason} | facts)
        return made

    # What stands behind it

    @property
    def _learning(self) -> Learning | None:
        return self._job.learning if self._job else None

    @property
    def _records(self) -> TensorRecords | None:
        return self._learning.tensors if self._learning else None

    def _not_learned(self, what: str) -> str:
        """Why there is nothing."""
        return what if self._learning else self._none(_NOTHING)

    def _asked(
        self, name: Asked, collection: Asked, step: StepNumbers
    ) -> tuple[TensorRecords | None, BoolArray]:
        """All records of tensors, and which of them are asked for; None without any."""
        records = self._records
        if records is None:
            return None, np.empty(0, np.bool_)
        names = chosen(name, (one.name for one in records.tensors))
        kinds = chosen(collection, (str(one.collection) for one in records.tensors))
        of_tensors = [one.name in names and str(one.collection) in kinds for one in records.tensors]
        return records, np.array(of_tensors, np.bool_)[records.tensor] & _of_steps(records.step, step)

    def _counts(self, step: StepNumbers) -> list[ClassCounts]:
        counts = list(self._learning.classes) if self._learning else []
        inside = _of_steps(np.array([one.step for one in counts], np.int64), step) if counts else ()
        return [one for one, kept in zip(counts, inside, strict=True) if kept]

    def _with_times(self, found: dict[str, Any]) -> dict[str, Any]:
        """The columns with times; a time of 0 is not known."""
        us = found["time_us"]
        known_us = np.where(us > 0, us, np.iinfo(np.int64).min)
        times = {"time_us": or_missing(np.where(us > 0, us, -1)), "time": self._clock.times(known_us)}
        return found | times | {"since_start": self._clock.since_start(known_us)}


def _scalar_columns(series: Sequence[Scalars]) -> dict[str, Any]:
    place = np.repeat(np.arange(len(series)), [len(one) for one in series])
    found: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in series]) for name in ("step", "time_us", "value")
    }
    found["rank"] = np.array([one.rank for one in series])[place]
    for name in ("mode", "name", "source", "logged_as"):
        found[name] = _category([getattr(one, name) for one in series], place)
    return found


def differences(this: LearnedJob, other: LearnedJob, tolerance: float) -> Iterator[tuple[Any, ...]]:
    """What both recorded, with the first step where it differs by more than a part of this, and the largest such part."""
    of_both = [dict(_curves(one)) for one in (this, other)]
    for (kind, name, mode), (steps, values) in of_both[0].items():
        other_steps, other_values = of_both[1].get((kind, name, mode), (steps[:0], values[:0]))
        common, here, there = np.intersect1d(steps, other_steps, assume_unique=True, return_indices=True)
        if len(common):
            part = _relative(values[here], other_values[there])
            first = common[part > tolerance]
            yield kind, name, mode, len(common), int(first[0]) if len(first) else None, float(part.max())


def _curves(job: LearnedJob) -> Iterator[tuple[tuple[str, str, str], tuple[IntArray, FloatArray]]]:
    """Steps and values of scalars, and of two statistics of tensors; of a step that is there twice the last value."""
    for one in job._learning.scalars if job._learning else ():
        if one.rank == 0:
            yield ("scalar", one.name, one.mode), _last_of_each(one.step, one.value)
    if (records := job._records) is None or not len(records):
        return
    order = np.argsort(records.tensor, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(records.tensor[order])) + 1):
        tensor = records.tensors[records.tensor[rows[0]]]
        for statistic in ("rms", "ratio"):
            values = _statistic(records, statistic)[rows]
            if not np.isnan(values).all():
                key = (f"{tensor.collection} {statistic}", tensor.name, "")
                yield key, _last_of_each(records.step[rows], values)


def _last_of_each(step: IntArray, value: FloatArray) -> tuple[IntArray, FloatArray]:
    is_last = np.append(np.diff(step) != 0, True)[: len(step)]
    return step[is_last], value[is_last]


def _relative(one: FloatArray, other: FloatArray) -> FloatArray:
    """(n,) the distance as a part of the first; 0 where both are equal or NaN, infinite where one of them is 0 or NaN."""
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.abs(other - one) / np.abs(one)
    return np.where(equal, 0.0, np.where(np.isnan(part), np.inf, part))


def _of_steps(steps: IntArray, asked: StepNumbers) -> BoolArray:
    if asked is None:
        return np.ones(len(steps), np.bool_)
    first, stop = numbered(asked, steps, "recorded")
    return np.asarray((steps >= first) & (steps < stop))


def _statistic(records: TensorRecords, name: str) -> FloatArray:
    if name == "zero_share":
        share: FloatArray = np.divide(
            records.zero, records.count, out=np.full(len(records), np.nan), where=records.count > 0
        )
        return share
    found: FloatArray = getattr(records, name)
    return found


def _category(names: Sequence[str], place: Any) -> Any:
    """The names at these places, of which several may be equal, in their order."""
    known = list(dict.fromkeys(names))
    code = {one: i for i, one in enumerate(known)}
    return coded(np.array([code[one] for one in names], np.int32)[place], known)


def _named(records: TensorRecords, place: Any) -> Any:
    return _category([one.name for one in records.tensors], place)


def _quantile(bins: Any, q: float) -> FloatArray:
    """(n,) of the magnitudes in rows of bins; NaN without any."""
    so_far = np.cumsum(bins, axis=1, dtype=np.float64)
    target = q * so_far[:, -1]
    place = ((so_far >= target[:, None]) & (bins > 0)).argmax(axis=1)
    rows = np.arange(len(bins))
    inside = bins[rows, place].astype(np.float64)
    with np.errstate(invalid="ignore"):
        part = np.where(inside > 0, 1 - (so_far[rows, place] - target) / inside, np.nan)
    return np.asarray(2.0 ** (place + _FIRST_EXPONENT - 1 + part))


def _of_classes(one: ClassCounts) -> dict[str, Any]:
    size = len(one.labels)
    same = one.pairs[one.pairs[:, 0] == one.pairs[:, 1]]
    correct = np.full(size, 0 if one.complete else -1, np.int64)
    correct[same[:, 0]] = same[:, 2]
    right = np.where(correct < 0, np.nan, correct)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(one.predicted > 0, right / one.predicted, np.nan)
    return {
        "step": np.full(size, one.step),
        "mode": np.full(size, one.mode, np.object_),
        "label": np.arange(size),
        "labels": one.labels,
        "predicted": one.predicted,
        "correct": correct,
        "recall": one.recall,
        "precision": precision,
    }
