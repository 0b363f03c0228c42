"""Statistics of the elements of a tensor, as a recording of jobrecord has them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jobrules.model import BoolArray, IntArray

#: Elements at a time, and those of a sample.
_CHUNK, _SAMPLE = 1 << 20, 1 << 16
#: Units of a module that are remembered, and labels.
_MAX_UNITS, _MAX_LABELS = 1 << 16, 1 << 24
#: Exponent of the first bin, and bins.
_LOWEST, BINS = -40, 64
#: Values outside of which the derivative is below 5% of its maximum.
_STEEP = {"Tanh": (-0.9747, 0.9747), "Sigmoid": (0.0127, 0.9873)}


def statistics(elements: Any, module: str = "") -> tuple[dict[str, float], IntArray]:
    """Columns of ``TensorRecords``, and (64,) bins."""
    flat, size, steep = elements.reshape(-1), elements.size, _STEEP.get(module)
    found = dict.fromkeys(("nan", "inf", "zero", "sum", "l1", "l2"), 0.0)
    low, high, outside = math.inf, -math.inf, 0
    for begin in range(0, size, _CHUNK):
        part = flat[begin : begin + _CHUNK].astype(np.float64)
        finite = part[np.isfinite(part)]
        nan = np.isnan(part).sum()
        found["nan"] += nan
        found["inf"] += len(part) - len(finite) - nan
        found["zero"] += (finite == 0).sum()
        if steep:
            outside += ((part < steep[0]) | (part > steep[1])).sum()
        if not len(finite):
            continue
        low, high = min(low, finite.min()), max(high, finite.max())
        # The square of a double may be no double.
        most = max(-low, high) or 1.0
        found["sum"] += finite.sum()
        found["l1"] += np.abs(finite).sum()
        found["l2"] = math.hypot(found["l2"], most * math.sqrt(np.square(finite / most).sum()))
    if low <= high:
        found |= {"min": low, "max": high}
    if steep and size:
        found["saturated"] = outside / size
    apart = -(-size // _SAMPLE)
    sample = flat[:: max(1, apart + (apart % 2 == 0))].astype(np.float64)
    sample = sample[np.isfinite(sample) & (sample != 0)]
    if len(sample):
        found["positive"] = float((sample > 0).mean())
    _, exponent = np.frexp(sample)
    bins = np.bincount(np.clip(exponent - _LOWEST, 0, BINS - 1), minlength=BINS)
    return {"count": float(size)} | {name: float(value) for name, value in found.items()}, bins


def fired(elements: Any) -> BoolArray | None:
    """(units,) whether any output of a unit is positive: of channels of images, and otherwise of the last axis.

    None if there are too many units to remember.
    """
    shape = elements.shape or (1,)
    axis = 1 if len(shape) in (4, 5) else len(shape) - 1
    units, inner = shape[axis], math.prod(shape[axis + 1 :])
    if not 0 < units <= _MAX_UNITS or not inner:
        return None
    found = np.zeros(units, np.bool_)
    some = max(1, _CHUNK // (units * inner)) * units * inner
    for begin in range(0, elements.size, some):
        found |= (elements.reshape(-1)[begin : begin + some] > 0).reshape(-1, units, inner).any(axis=(0, 2))
    return found


def classes(elements: Any) -> IntArray | None:
    """(n,) classes: integers, or the place of the largest number along the last axis; None if they are neither."""
    shape, is_integer = elements.shape, elements.dtype.kind in "iu"
    if len(shape) < 2 or shape[-1] < 2 or is_integer:
        if elements.size > _MAX_LABELS:
            return None
        found = elements.reshape(-1).astype(np.float64)
        return (
            found.astype(np.int64)
            if np.array_equal(found, np.trunc(found)) and np.isfinite(found).all()
            else None
        )
    rows = max(1, _CHUNK // shape[-1]) * shape[-1]
    return np.concatenate(
        [
            elements.reshape(-1)[begin : begin + rows].reshape(-1, shape[-1]).argmax(axis=1)
            for begin in range(0, elements.size, rows)
        ]
        or [np.empty(0, np.int64)]
    )
