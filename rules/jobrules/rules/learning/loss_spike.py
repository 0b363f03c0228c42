"""LossSpike: the loss jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec import Struct

from jobrules.measures.learning.robust import SIGMA, few, finite
from jobrules.model import BoolArray, HowMuch, IntArray, Severity, When
from jobrules.model.learning import LOSS, TRAINING, Training, time_of_step
from jobrules.model.order import median
from jobrules.rule import number, percent
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count, join_names

if TYPE_CHECKING:
    from jobrules.model import FloatArray, Job, RuleResult
    from jobrules.model.learning import Learning

_MIN_VALUES = 100
#: Values before one that say what is usual, and values after a spike in which the loss comes back, or has not.
_BEFORE, _AFTER, _LATER = 50, 100, 49
#: A spike lies so far above the usual value, of it and of the first ten values.
_OF_USUAL, _OF_START = 0.5, 0.05
#: Jumps so few values apart are one spike.
_APART = 10
#: Windows that are sorted at a time.
_CHUNK = 1 << 14


class Spikes(Struct, frozen=True, kw_only=True, eq=False):
    """Where a loss jumps, by place in the series."""

    #: (spikes,) first and last value above the limit, and the first one after it that is not; the length of the series if
    #: there is none.
    first: IntArray
    last: IntArray
    back: IntArray
    #: (spikes,) the loss is above the limit 50 to 100 values later, too.
    lasts: BoolArray

    @classmethod
    def of(cls, loss: FloatArray, mads: float) -> Spikes:
        """With a limit of so many deviations, at least."""
        places, limits = _hits(loss, mads)
        begins = np.diff(places, prepend=-_BEFORE) > _APART
        first, limit = places[begins], limits[begins]
        last = places[np.append(begins[1:], True)] if len(places) else places
        padded = np.append(loss, np.full(_AFTER, np.nan))
        windows = np.lib.stride_tricks.sliding_window_view(padded, _AFTER)
        back, lasts = np.full(len(first), len(loss)), np.zeros(len(first), np.bool_)
        for start in range(0, len(first), _CHUNK):
            some = slice(start, start + _CHUNK)
            after = windows[last[some] + 1]
            below = after <= limit[some, None]
            back[some] = np.where(below.any(axis=1), last[some] + 1 + below.argmax(axis=1), len(loss))
            # NaN, of a series that ends before, is not above.
            lasts[some] = np.sort(after[:, _LATER:], axis=1)[:, (_AFTER - _LATER) // 2] > limit[some]
            lasts[some] &= last[some] + _AFTER < len(loss)
        # A value below the limit is no return there, but a median is.
        medians = _middle(np.sort(loss[: len(loss) // _BEFORE * _BEFORE].reshape(-1, _BEFORE), axis=1))
        for i in np.flatnonzero(lasts):
            block = last[i] // _BEFORE + 2
            low = medians[block:] <= limit[i]
            back[i] = _BEFORE * (block + low.argmax()) if low.any() else len(loss)
        return cls(first=first, last=last, back=back, lasts=lasts)

    def __len__(self) -> int:
        return len(self.first)

    def inside(self, values: int) -> float:
        """Share of so many values that lie inside spikes."""
        edges = np.zeros(values + 1, np.int64)
        np.add.at(edges, self.first, 1)
        np.add.at(edges, self.back, -1)
        return float((np.cumsum(edges)[:-1] > 0).mean())


@dataclass(frozen=True, kw_only=True)
class LossSpike(LearningRule):
    """The loss jumps.

    What it checks
        Values above the median of the 50 before by ``mads`` deviations and by half of it. A warning if ``inside`` of all
        steps are in spikes, or the loss stays high.

    Why it matters
        Steps in a spike are lost, and some spikes never end.

    What to do
        * Look at the batches of these steps, or skip them.
        * Clip gradients, or lower the learning rate.

    Details
        A deviation is the median absolute one times 1.4826; a spike is also above by 5% of the median of the first ten
        values. Values up to 10 apart are one spike. The loss stays high if its median over values 50 to 100 after the
        spike is above the limit; it is back with the first 50 values whose median is not. Steps are those with a value.
    """

    title: ClassVar[str] = "The loss jumps"
    needs: ClassVar[tuple[Training, ...]] = (Training.LOSS,)

    mads: float = number(8.0, "deviations above the median before")
    inside: float = percent(5.0, "steps in spikes for a warning")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Violations`` are spikes."""
        del job
        steps, loss = finite(learning.series(LOSS, TRAINING))
        if len(loss) < _MIN_VALUES:
            return self.not_evaluated(few(len(loss), _MIN_VALUES, "values of the loss"))
        spikes = Spikes.of(loss, self.mads)
        if not len(spikes):
            return self.passed(f"No spike in {count(len(loss), 'value')} of the loss", datapoints=len(loss))
        inside = spikes.inside(len(loss))
        stays = steps[spikes.first[spikes.lasts & (spikes.back == len(loss))]]
        at = [f"{step:,}" for step in steps[spikes.first[:5]].tolist()]
        more = f"{join_names(at, 5)}{', …' if len(spikes) > 5 else ''}"
        title = f"{count(len(spikes), 'loss spike')} ({'step' if len(spikes) == 1 else 'steps'} {more})"
        if len(stays):
            title += f"; from step {stays[0]:,} on the loss stayed high"
        elif (spikes.back < len(loss)).all():
            longest = int((steps[spikes.back] - steps[spikes.first]).max())
            who = "it" if len(spikes) == 1 else "both" if len(spikes) == 2 else "all"
            title += f"; {who} recovered within {count(longest, 'step')}"
        is_warning = bool(spikes.lasts.any()) or 100 * inside >= self.inside
        begin, end = (time_of_step(learning, int(steps[i])) for i in (spikes.first[0], spikes.last[-1]))
        finding = self.finding(
            title,
            *([When(begin, end)] if begin and end else ()),
            HowMuch("Steps inside spikes", 100 * inside, "%"),
            severity=Severity.WARNING if is_warning else Severity.INFO,
        )
        return self.found(
            learning,
            finding,
            since_step=int(stays[0]) if len(stays) else None,
            violations=len(spikes),
            datapoints=len(loss),
            details={"steps": steps[spikes.first[:100]].tolist(), "inside": inside},
        )


def _hits(loss: FloatArray, mads: float) -> tuple[IntArray, FloatArray]:
    """(hits,) and (hits,) places of values above their limit, and the limit."""
    start = _OF_START * abs(median(loss[:10]))
    windows = np.lib.stride_tricks.sliding_window_view(loss, _BEFORE)
    # The lower median of a window is no less than the value in its place among twice as many: few values are above that.
    low = np.sort(_twice(loss), axis=1)[:, _BEFORE // 2 - 1]
    low = np.repeat(low, _BEFORE)[: len(loss) - _BEFORE]
    places = np.flatnonzero(loss[_BEFORE:] > low + np.maximum(_OF_USUAL * np.abs(low), start))
    found = [
        _above(loss, windows, places[i : i + _CHUNK], mads, start) for i in range(0, len(places), _CHUNK)
    ]
    hits, limits = zip(*found, strict=True) if found else ([places], [np.empty(0)])
    return np.concatenate(hits) + _BEFORE, np.concatenate(limits)


def _above(
    loss: FloatArray, windows: FloatArray, places: IntArray, mads: float, start: float
) -> tuple[IntArray, FloatArray]:
    """The windows that a value above its limit follows, and the limit."""
    before = np.sort(windows[places], axis=1)
    usual = _middle(before)
    least = np.maximum(_OF_USUAL * np.abs(usual), start)
    high = loss[places + _BEFORE] > usual + least
    places, before, usual, least = places[high], before[high], usual[high], least[high]
    deviation = _middle(np.sort(np.abs(before - usual[:, None]), axis=1))
    limit = usual + np.maximum(mads * SIGMA * deviation, least)
    hit = loss[places + _BEFORE] > limit
    return places[hit], limit[hit]


def _twice(loss: FloatArray) -> FloatArray:
    """(blocks, 100) values from each 50th on: each window of 50 that begins in a block's first half lies in it."""
    blocks = -(-(len(loss) - _BEFORE) // _BEFORE)
    # What is added after the end only makes the bound lower or leaves it.
    padded = np.append(loss, np.full(2 * _BEFORE, loss.min()))
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * _BEFORE)[::_BEFORE][:blocks]


def _middle(ordered: FloatArray) -> FloatArray:
    """(n,) the median of each row of an even number of ascending values."""
    half = ordered.shape[1] // 2
    return np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)
