"""CheckInputImages: input images are not normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.learning.robust import few, shown
from jobrules.model import BoolArray, FloatArray, Note, Reason, ReasonKind, Severity
from jobrules.model.learning import Collection, Training
from jobrules.rule import number
from jobrules.rules.learning.learning_rule import LearningRule, named

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning, TensorRecords

#: Channels that the evidence names.
_NAMED = 4
#: A mean of so many deviations, or above this number, is far from 0; deviations beyond these are far from 1.
_FAR, _LARGE, _NARROW = 5.0, 10.0, 0.01
#: The largest number of a byte.
_BYTE = 255.0


@dataclass(frozen=True, kw_only=True)
class CheckInputImages(LearningRule):
    """Input images are not normalized.

    What it checks
        Mean and standard deviation of each channel. A warning if a mean is beyond 10 or five deviations, or a deviation
        above 10 or below 0.01; info beyond ``shift`` deviations.

    Why it matters
        Large or shifted inputs slow training down.

    What to do
        * Divide by 255.
        * Subtract the mean of the data.

    Details
        Of float inputs with four axes, over at least 500 images in all records.
    """

    title: ClassVar[str] = "Input images are not normalized"
    needs: ClassVar[tuple[Training, ...]] = (Training.INPUT,)

    images: int = number(500, "images before the first check", low=1)
    shift: float = number(0.5, "deviations between the mean and 0")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of channels."""
        del job
        records = learning.tensors
        assert records is not None  # noqa: S101 - inputs are recorded
        inputs = [one.collection is Collection.INPUT and len(one.shape) == 3 for one in records.tensors]
        floats = [
            is_one and "float" in one.dtype for is_one, one in zip(inputs, records.tensors, strict=True)
        ]
        if not any(floats):
            what = "inputs are integers" if any(inputs) else "no input of images was recorded"
            return self.not_evaluated(Reason(kind=ReasonKind.NOT_APPLICABLE, what=what))
        found = _Channels.of(records, np.array(floats))
        enough = found.images >= self.images
        if not enough.any():
            return self.not_evaluated(few(int(found.images.max()), self.images, "images"))
        away, std = np.abs(found.mean), found.std
        far = enough & ((away > _FAR * std) | (away > _LARGE) | (std > _LARGE) | (std < _NARROW))
        shifted = enough & (away > self.shift * std)
        facts: dict[str, Any] = {
            "evaluated": int(enough.sum()),
            "violating": int((far | shifted).sum()),
            "counted": "channels",
            "datapoints": int(found.images.max()),
        }
        worst = np.flatnonzero(far if far.any() else shifted)
        worst = worst[np.argsort(-away[worst], kind="stable")].tolist()
        if not worst:
            return self.passed(f"Means are within {self.shift:g} standard deviations of 0", **facts)
        first = worst[0]
        said = [
            f"mean {shown(mean)} and standard deviation {shown(one)}"
            for mean, one in zip(found.mean.tolist(), std.tolist(), strict=True)
        ]
        is_byte = found.low[first] >= 0 and _BYTE / 2 < found.high[first] <= _BYTE
        looks = "Inputs look like 0 to 255:" if is_byte else "Inputs have"
        finding = self.finding(
            f"{looks} {said[first]}",
            *(Note(f"{named([found.names[i]])}: {said[i]}") for i in worst[:_NAMED]),
            severity=Severity.WARNING if far.any() else Severity.INFO,
        )
        return self.found(learning, finding, **facts)


class _Channels(Struct, frozen=True, kw_only=True, eq=False):
    """Channels of images over all records."""

    names: tuple[str, ...]
    #: (channels,) each.
    images: FloatArray
    mean: FloatArray
    std: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, records: TensorRecords, which: BoolArray) -> _Channels:
        """Of the tensors that are channels."""
        rows = which[records.tensor]
        code, size = records.tensor[rows], len(which)

        def total(column: FloatArray) -> FloatArray:
            sums: FloatArray = np.bincount(code, np.nan_to_num(column[rows]), size).astype(float)
            return sums[which]

        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.fmin.at(low, code, records.min[rows])
        np.fmax.at(high, code, records.max[rows])
        chosen = [one for one, is_one in zip(records.tensors, which, strict=True) if is_one]
        finite = np.maximum(total(records.finite), 1.0)
        mean = total(records.sum) / finite
        return cls(
            names=tuple(one.name for one in chosen),
            images=total(records.count) / [max(1, one.shape[1] * one.shape[2]) for one in chosen],
            mean=mean,
            std=np.sqrt(np.maximum(0.0, total(records.l2**2) / finite - mean**2)),
            low=low[which],
            high=high[which],
        )
