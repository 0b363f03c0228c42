"""Recorded trainings, made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jobrules.model import JobInMemory
from jobrules.model.learning import (
    LOSS,
    TRAINING,
    ClassCounts,
    Collection,
    Learning,
    Scalars,
    Tensor,
    TensorRecords,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: 2025-03-09 10:00:00 UTC.
START_US = 1_741_514_400_000_000
_COLUMNS = (
    *("count", "nan", "inf", "zero", "sum", "l1", "l2", "min", "max"),
    *("positive", "ratio", "dead", "saturated"),
)


def scalars(
    values: Sequence[float],
    name: str = LOSS,
    *,
    mode: str = TRAINING,
    steps: Sequence[int] | None = None,
    step_s: float = 1.0,
    timed: bool = True,
    **known: Any,
) -> Scalars:
    """A series; step ``i`` is ``i * step_s`` seconds after ``START_US``."""
    step = np.arange(len(values)) if steps is None else np.asarray(steps)
    time_us = START_US + (step * step_s * 1e6).astype(np.int64) if timed else np.zeros(len(step), np.int64)
    facts: dict[str, Any] = {"logged_as": name, "source": "jobrecord"} | known
    return Scalars(
        name=name,
        mode=mode,
        step=step.astype(np.int64),
        time_us=time_us,
        value=np.asarray(values, float),
        **facts,
    )


def tensors(
    rows: Mapping[Tensor, Sequence[Mapping[str, float]]], steps: Sequence[int] | None = None
) -> TensorRecords:
    """A row of each tensor for each record; ``rms`` gives ``l2``, and a tensor without a shape has 100 elements."""
    known = tuple(rows)
    found: list[tuple[int, int, dict[str, Any]]] = []
    for place, (tensor, records) in enumerate(rows.items()):
        for number, record in enumerate(records):
            row: dict[str, Any] = {"count": float(np.prod(tensor.shape)) if tensor.shape else 100.0}
            row |= dict[str, Any]({"nan": 0.0, "inf": 0.0, "zero": 0.0}) | dict(record)
            if "rms" in row:
                row["l2"] = row.pop("rms") * np.sqrt(row["count"] - row["nan"] - row["inf"])
            found.append((number if steps is None else steps[number], place, row))
    found.sort(key=lambda one: one[:2])
    step = np.array([one[0] for one in found], np.int64)
    columns = {name: np.array([one[2].get(name, np.nan) for one in found], float) for name in _COLUMNS}
    bins = [one[2].get("bins") for one in found]
    return TensorRecords(
        tensors=known,
        tensor=np.array([one[1] for one in found], np.int32),
        step=step,
        time_us=START_US + step * 1_000_000,
        bins=np.array(bins, np.int32) if bins and bins[0] is not None else np.empty((0, 64), np.int32),
        **columns,
    )


def matrix(name: str, collection: Collection = Collection.GRADIENT, **known: Any) -> Tensor:
    """A tensor of two axes."""
    return Tensor(name=name, collection=collection, **{"shape": (10, 10)} | known)


def counted(labels: Sequence[int], pairs: Sequence[tuple[int, int, int]], step: int = 100) -> ClassCounts:
    """An evaluation by its labels and pairs of label, prediction, and count."""
    of_pairs = np.array(pairs, np.int64).reshape(-1, 3)
    predicted = np.bincount(of_pairs[:, 1], weights=of_pairs[:, 2], minlength=len(labels))
    return ClassCounts(
        step=step,
        mode="EVAL",
        labels=np.asarray(labels, np.int64),
        predicted=predicted.astype(np.int64),
        pairs=of_pairs,
    )


def learning_job(*series: Scalars, **known: Any) -> JobInMemory:
    """A job of which nothing but its training was recorded."""
    return JobInMemory(name="training", learning=Learning(scalars=series, **known))
