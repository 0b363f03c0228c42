"""Statistics of tensors by layer and step, in few columns and rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from jobrules.analyses.learning.columns import StepColumns, quantiles_of, short
from jobrules.model import Count, FloatArray, IntArray, Positive
from jobrules.model.learning import Collection, TensorName, TensorRecords, block_of
from jobrules.model.names import OwnText
from jobrules.model.types import BoolArray

#: Columns and rows of tensors.
MAX_MAP_COLUMNS, MAX_ROWS = 100, 60
#: Tensors with the smallest and with the largest values in a table.
MAX_EXTREMES = 20
#: Decades below the largest gradient that have a color of their own.
DECADES = 6
#: Levels of ``LayerRow``: of the whole scale, and instead of one.
FULL, NOT_FINITE, ZERO, NOT_RECORDED = 100, 253, 254, 255


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
    counts, found = quantiles_of(keys, values, len(named), (0, 0.25, 0.5, 0.75, 1))
    zeros = np.bincount(keys[values == 0], minlength=len(named))
    return tuple(
        Spread(
            name=named[i][0],
            tensors=named[i][1],
            records=int(counts[i]),
            zeros=int(zeros[i]),
            **{
                part: short(one[i])
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
    _, (median,) = quantiles_of(key[finite], value[finite], cells, (0.5,))
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
        top=short(top),
        extremes=(*ranked[:most], *ranked[max(most, len(ranked) - most) :]),
    )


def gradients(records: TensorRecords) -> LayerMap | None:
    """Of each layer the root mean square of its gradients; None without any."""
    chosen = _matrices(records, Collection.GRADIENT)
    return _map(records, chosen, records.rms, [""] * len(records.tensors), shares=False)


def activations(records: TensorRecords) -> LayerMap | None:
    """Of each layer the share that is dead or, of those that saturate, saturated."""
    dead = np.isfinite(records.dead)
    chosen = records.of(Collection.OUTPUT) & (dead | np.isfinite(records.saturated))
    of_dead = {*np.unique(records.tensor[chosen & dead]).tolist()}
    kinds = ["dead" if place in of_dead else "saturated" for place in range(len(records.tensors))]
    # What is NaN is not positive, and yet no unit is dead.
    share = np.where(records.nan > 0, np.nan, np.where(dead, records.dead, records.saturated))
    return _map(records, chosen, share, kinds, shares=True)


def updates(records: TensorRecords) -> tuple[Spread, ...] | None:
    """Of each layer the norm of its updates by that of its weights; None without any."""
    chosen = _matrices(records, Collection.UPDATE)
    if not chosen.any():
        return None
    rows, named = _rows_of(records, chosen)
    return _spreads(rows[records.tensor[chosen]], records.ratio[chosen], named) or None
