"""Records of tensors of several ranks as one: shards are joined, and replicas compared."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.readers.learning.rows import BINS, COLUMNS, MAX_ROWS
from jobreport.readers.restarts import latest
from jobrules.model.learning import COUNTS, Collection, ReplicaDifference, Tensor, TensorRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.tally import Tally
    from jobrules.model.types import BoolArray, FloatArray, IntArray

#: Those that are split over ranks; of all others, each rank has its own.
_SPLIT = (Collection.PARAMETER, Collection.GRADIENT, Collection.UPDATE)
#: How the shards of a tensor are joined. Of the rest of the columns, only a tensor of one rank has any.
_FOLDS: dict[str, np.ufunc] = {
    **dict.fromkeys((*COUNTS, "sum", "l1", "bins"), np.add),
    # Of shares and ratios, the parts and wholes; and ranks that have a shard.
    **dict.fromkeys(("positives", "signed", "moved", "weight", "ranks"), np.add),
    "l2": np.hypot,
    "min": np.fmin,
}
_SUMS = (*COUNTS, "sum", "l1")
#: Norms of replicas that differ by more are different; how many differences are kept.
_TOLERANCE, _MAX_DIFFERENCES = 1e-3, 1000


class JoinedRanks:
    """Takes the records of one rank after the other; ``is_split`` if parameters are split over ranks."""

    def __init__(self, *, is_split: bool) -> None:
        self._is_split = is_split
        self._codes = _Codes()
        self._tensors = self._codes.tensors
        #: Tensors that one rank has, and rows of those that several have a part of.
        self._owned: set[int] = set()
        self._whole: list[dict[str, Any]] = []
        self._shards: dict[str, Any] | None = None
        self.differences: list[ReplicaDifference] = []
        #: Rows of which a shard is missing, and those that were too many.
        self.incomplete = self.left_out = 0

    def add(self, rank: int, records: TensorRecords) -> None:
        """Take a rank; those before have lower numbers."""
        rows = self._rows(rank, records)
        sizes = np.array([prod(one.shape) for one in self._tensors], float)
        may_split = np.array([self._is_split and one.collection in _SPLIT for one in self._tensors], np.bool_)
        is_shard = may_split[rows["code"]] & (rows["count"] != sizes[rows["code"]])
        shards = _where(rows, is_shard & (rows["count"] > 0))
        self.incomplete += int((is_shard & np.isnan(rows["count"])).sum())
        self._shards = _folded(self._shards, shards) if self._shards else shards
        whole = _where(rows, ~is_shard)
        if not self._is_split:
            self._compare(rank, whole)
        if new := {*np.unique(whole["code"]).tolist()} - self._owned:
            self._owned |= new
            self._whole.append(_where(whole, np.isin(whole["code"], [*new])))
        # Each stage of a pipeline has its own.
        if sum(len(one["step"]) for one in self._whole) > 2 * MAX_ROWS:
            table = {name: np.concatenate([one[name] for one in self._whole]) for name in rows}
            kept = _even(table["step"], MAX_ROWS)
            self.left_out += int((~kept).sum())
            self._whole = [_where(table, kept)]

    def _rows(self, rank: int, records: TensorRecords) -> dict[str, Any]:
        """The columns of a rank, with the numbers of which shares are made."""
        rows = {name: getattr(records, name) for name in ("step", "time_us", "bins", *COLUMNS)}
        rows["code"] = self._codes.of(records)
        if not len(rows["bins"]):
            rows["bins"] = np.zeros((len(records), BINS), np.int32)
        sampled = rows["bins"].sum(axis=1)
        rows["signed"] = np.where(sampled > 0, sampled, records.count - records.zero)
        rows["positives"] = np.where(rows["signed"] > 0, records.positive * rows["signed"], 0.0)
        rows["weight"] = self._weights(rows) ** 2
        rows["moved"] = np.where(rows["weight"] > 0, records.ratio**2 * rows["weight"], 0.0)
        rows["ranks"] = np.ones(len(records))
        rows["rank"] = np.full(len(records), rank)
        return rows

    def _weights(self, rows: dict[str, Any]) -> FloatArray:
        """(n,) of each row, the norm of the weight of its name in the same step; NaN if it is not known."""
        weight_of = np.array(
            [self._codes.known.get((one.name, Collection.PARAMETER), -1) for one in self._tensors], np.int64
        )
        if not len(rows["step"]):
            return np.empty(0)
        key = _key(rows["code"], rows["step"])
        order = np.argsort(key)
        wanted = _key(weight_of[rows["code"]], rows["step"])
        at = order[np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)]
        return np.where(key[at] == wanted, rows["l2"][at], np.nan)

    def _compare(self, rank: int, rows: dict[str, Any]) -> None:
        """Note weights whose norm differs from that on the first rank that has them."""
        is_weight = np.array([one.collection is Collection.PARAMETER for one in self._tensors], np.bool_)
        mine = _where(rows, is_weight[rows["code"]])
        for known in self._whole:
            _, here, there = np.intersect1d(
                _key(mine["code"], mine["step"]), _key(known["code"], known["step"]), return_indices=True
            )
            l2, other = mine["l2"][here], known["l2"][there]
            differs = np.abs(l2 - other) > _TOLERANCE * np.maximum(l2, other)
            for i in np.flatnonzero(differs)[: _MAX_DIFFERENCES - len(self.differences)].tolist():
                (low, low_rank), (high, high_rank) = sorted(
                    [(float(l2[i]), rank), (float(other[i]), int(known["rank"][there[i]]))]
                )
                self.differences.append(
                    ReplicaDifference(
                        step=int(mine["step"][here[i]]),
                        tensor=self._tensors[int(mine["code"][here[i]])].name,
                        low=low,
                        high=high,
                        low_rank=low_rank,
                        high_rank=high_rank,
                    )
                )

    def joined(self, *, is_complete: bool, most: int = MAX_ROWS) -> TensorRecords | None:
        """All rows; without those of tensors of which a shard is missing, as where a rank has no file."""
        tables = [*self._whole]
        if self._shards and len(self._shards["step"]):
            tables.append(self._with_shares(self._shards, is_complete=is_complete))
        if not tables:
            return None
        rows = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}
        order = np.lexsort((rows["code"], rows["step"]))
        found = TensorRecords(
            tensors=tuple(self._tensors),
            tensor=rows["code"][order].astype(np.int32),
            step=rows["step"][order],
            time_us=rows["time_us"][order],
            bins=rows["bins"][order] if rows["bins"].any() else np.empty((0, BINS), np.int32),
            **{name: rows[name][order] for name in COLUMNS},
        )
        found, left_out = thinned(found, most)
        self.left_out += left_out
        return found if len(found) else None

    def _with_shares(self, rows: dict[str, Any], *, is_complete: bool) -> dict[str, Any]:
        """Rows of shards with all elements of their tensor, and what shares and ratios are of all of them."""
        size = np.array([prod(one.shape) for one in self._tensors], float)[rows["code"]]
        # Of several groups that have all shards each, each counts.
        copies = np.maximum(rows["count"] // np.maximum(size, 1), 1)
        kept: BoolArray = (rows["count"] == copies * size) & (copies <= rows["ranks"]) & is_complete
        self.incomplete += int((~kept).sum())
        copies = copies[kept]
        rows = _where(rows, kept)
        several = rows["ranks"] > 1
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = {
                "positive": rows["positives"] / rows["signed"],
                "ratio": np.sqrt(rows["moved"] / rows["weight"]),
            }
        rows |= {name: np.where(several, share, rows[name]) for name, share in shares.items()}
        rows |= {name: rows[name] / copies for name in _SUMS}
        rows["l2"] = rows["l2"] / np.sqrt(copies)
        rows["bins"] = rows["bins"] // copies[:, None].astype(np.int32)
        return rows


def thinned(records: TensorRecords, most: int = MAX_ROWS) -> tuple[TensorRecords, int]:
    """At most so many rows, of steps that are evenly distributed, and how many rows were left out."""
    kept = _even(records.step, most)
    return where(records, kept), int((~kept).sum())


def _even(step: IntArray, most: int) -> BoolArray:
    """(n,) the rows of so many steps, evenly distributed, as have at most so many rows; one step if it has more."""
    steps, number = np.unique(step, return_inverse=True)
    stride = 1
    while (kept := number % stride == 0).sum() > most and stride < len(steps):
        stride *= 2
    return np.asarray(kept)


def where(records: TensorRecords, kept: BoolArray | IntArray) -> TensorRecords:
    """The rows that are kept."""
    columns = ("tensor", "step", "time_us", *COLUMNS)
    return TensorRecords(
        tensors=records.tensors,
        bins=records.bins[kept] if len(records.bins) else records.bins,
        **{name: getattr(records, name)[kept] for name in columns},
    )


def _folded(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The rows of both, those of one tensor and step as one."""
    rows = {name: np.concatenate([values, other[name]]) for name, values in one.items()}
    key = _key(rows["code"], rows["step"])
    order = np.argsort(key, kind="stable")
    if not len(order):
        return rows
    starts = np.flatnonzero(np.append(True, np.diff(key[order]) > 0))
    return {
        name: _FOLDS.get(name, np.fmax).reduceat(values[order], starts, axis=0)
        for name, values in rows.items()
    }


def _where(rows: dict[str, Any], kept: BoolArray) -> dict[str, Any]:
    return {name: values[kept] for name, values in rows.items()}


def _key(code: IntArray, step: IntArray) -> IntArray:
    """Of a tensor and a step, which is below 2**40."""
    found: IntArray = (code << 41) + step
    return found


class _Codes:
    """Numbers of tensors, each of which has one in all tables."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Collection], int] = {}
        self.tensors: list[Tensor] = []

    def of(self, records: TensorRecords) -> IntArray:
        """(n,) of the rows. What is known of a tensor may change while it trains: the last counts."""
        codes = []
        for one in records.tensors:
            code = self.known.setdefault((one.name, one.collection), len(self.tensors))
            self.tensors[code : code + 1] = [one]
            codes.append(code)
        return np.array(codes, np.int64)[records.tensor]


def restarted(tables: Sequence[TensorRecords], tally: Tally) -> TensorRecords:
    """The records of processes that went on one after the other."""
    codes = _Codes()
    code = np.concatenate([codes.of(one) for one in tables])
    none = np.empty((0, BINS), np.int32)
    has_bins = any(len(one.bins) for one in tables)
    bins = [one.bins if len(one.bins) else np.zeros((len(one), BINS), np.int32) for one in tables]
    found = TensorRecords(
        tensors=tuple(codes.tensors),
        tensor=code.astype(np.int32),
        bins=np.concatenate(bins) if has_bins else none,
        **{
            name: np.concatenate([getattr(one, name) for one in tables])
            for name in ("step", "time_us", *COLUMNS)
        },
    )
    part = np.repeat(np.arange(len(tables)), [len(one) for one in tables])
    kept = latest(found.step, found.tensor, part)
    tally.note("learning.rows_again", count=len(found) - len(kept))
    found, left_out = thinned(where(found, kept))
    tally.note("learning.thinned", count=left_out)
    return found
