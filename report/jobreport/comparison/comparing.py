"""Each measure of each variant against the base: the change, its interval, and one word."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.comparison.document import Change, Measure, Word
from jobreport.comparison.measures import JOB, STEP
from jobreport.comparison.real_difference import (
    OF_ASSUMED,
    Difference,
    Sample,
    difference,
    not_by_chance,
    of_equal_code,
    t_quantile,
)
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.budgets import Limit
    from jobreport.comparison.measures import Column, Kind, Measured
    from jobreport.comparison.runs import Together
    from jobreport.cost.prices import Prices

#: Changes that count, in percent or points.
MIN_EFFECT, MIN_EFFECT_POINTS = 2.0, 1.0
#: Standard deviation between runs of the same code, in percent; of percentages in points for each percent.
RUN_NOISE, POINTS_PER_PERCENT = 3.0, 1 / 3
#: Measures of throughput, the most telling first, with what they count; and of how fast steps are.
RATES = {
    "samples_per_s": "samples per second",
    "tokens_per_s": "tokens per second",
    "steps_per_s": "steps per second",
}
SPEEDS = (*RATES, "step_s")
#: Measures of the sentence, other than throughput.
OF_SENTENCE = ("duration_s", "cost")
#: Words of a change whose interval excludes 0.
FOUND = (Word.BETTER, Word.WORSE, Word.HIGHER, Word.LOWER, Word.SMALL)
OF_MANY = "of so many measures, one can differ as much by chance"
#: Digits of a chance, so that rounding makes no two of one.
PRECISION = 9


class Options(Struct, frozen=True, kw_only=True):
    """What the user may set."""

    #: In percent or points by the key of the measure, and for all others under the empty key.
    min_effect: dict[str, float] = {}
    run_noise: float = RUN_NOISE

    def least(self, kind: Kind) -> float:
        """Smallest change of a measure that counts."""
        default = MIN_EFFECT_POINTS if kind.in_points else self.min_effect.get("", MIN_EFFECT)
        return self.min_effect.get(kind.key, default)


class Settings(Struct, frozen=True, kw_only=True):
    """What the user set for a comparison."""

    options: Options = Options()
    prices: Prices | None = None
    billing: str = "1s"
    limits: tuple[Limit, ...] = ()
    runs_per_month: float | None = None
    #: Grams of CO₂ per kWh, and energy of the site per energy of the machines; None for none.
    co2_g: float | None = None
    pue: float = 1.0


def refusal(kind: Kind, pair: Together) -> str:
    """Why a measure cannot be compared; empty if it can."""
    counts_steps = kind.whole == STEP or (kind.whole == JOB and pair.have_steps)
    if reason := kind.not_whole(pair):
        return reason
    if kind.whole == JOB and pair.same_work is False:
        return "the runs did not do the same work"
    if kind.whole == STEP and len(pair.batches) > 1:
        return "the batch size is not known of all" if None in pair.batches else "the batch sizes differ"
    if pair.batches != {None} or kind.whole not in (JOB, STEP):
        return ""
    unlike = "GPUs" if pair.other_gpus else pair.other_parts
    unlike = "steps" if pair.other_steps else unlike if counts_steps else ""
    return f"the numbers of {unlike} differ, and the batch sizes are not known" if unlike else ""


def half_of_time(measures: Sequence[Measure], label: str, run_noise: float) -> float:
    """Half the width of the interval of a time against the base, in logarithms; of throughput, or as it is assumed."""
    by_key = {one.key: one for one in measures}
    for key in (*RATES, "duration_s"):
        change = by_key[key].against[label] if key in by_key else None
        if change and change.word is not Word.REFUSED and change.low is not None and change.high is not None:
            return (math.log1p(change.high / 100) - math.log1p(change.low / 100)) / 2
    return t_quantile(OF_ASSUMED) * math.sqrt(2) * run_noise / 100


def compared(columns: Sequence[Column], pairs: Mapping[str, Together], options: Options) -> list[Measure]:
    """Each measure of all variants against the base, with which each is in a pair."""
    found = [_measure(one, pairs, options) for one in columns]
    return _shares_with_throughput(_not_by_chance(found))


def _measure(column: Column, pairs: Mapping[str, Together], options: Options) -> Measure:
    kind, rows = column.kind, column.rows
    return Measure(
        key=kind.key,
        label=kind.label,
        unit=kind.unit,
        direction=kind.direction,
        min_effect=options.least(kind),
        values={label: _mean(row) for label, row in rows.items()},
        per_run={label: tuple(one.value for one in row) for label, row in rows.items()},
        against={label: _against(column, label, pair, options) for label, pair in pairs.items()},
    )


def _against(column: Column, label: str, pair: Together, options: Options) -> Change:
    """The change, unless something of the two stands against it."""
    base, other = next(iter(column.rows.values())), column.rows[label]
    change = change_of(column.kind, base, other, options)
    shared = pair.crowded if change.p is not None and 1 in (len(base), len(other)) else []
    reason = refusal(column.kind, pair)
    if reason and change.word is not Word.NOT_MEASURED:
        # On shared cores nothing is judged, not even under a condition.
        return replace(change, word=Word.REFUSED, reason=reason, p=None if shared else change.p)
    if shared:
        reason = f"other processes used the cores of {join_names(shared)}"
        return replace(change, word=Word.NOT_RESOLVED, reason=reason)
    return change


def _mean(row: Sequence[Measured]) -> float | None:
    values = [one.value for one in row if one.value is not None]
    return math.fsum(values) / len(values) if len(values) == len(row) else None


def change_of(kind: Kind, base: Sequence[Measured], other: Sequence[Measured], options: Options) -> Change:
    """The change of one measure from the runs of the base to those of another variant."""
    a, b = _mean(base), _mean(other)
    if a is None or b is None:
        reason = next((one.reason for one in (*base, *other) if one.value is None), "")
        return Change(word=Word.NOT_MEASURED, reason=reason)
    if kind.in_points:
        change = Change(word=Word.NOT_TESTED, points=b - a)
    else:
        change = Change(word=Word.NOT_TESTED, change=0.0 if a == b else 100 * (b / a - 1) if a else None)
        if not (a > 0 and b > 0):
            return replace(change, reason="both are 0" if a == b else "there is no ratio to 0")
    one, two = _sample(kind, base), _sample(kind, other)
    if isinstance(one, str) or isinstance(two, str):
        return replace(change, reason=one if isinstance(one, str) else str(two))
    noise = options.run_noise * (POINTS_PER_PERCENT if kind.in_points else 1 / 100)
    first, second, assumed = of_equal_code(one, two, noise)
    test = difference(first, second, spread=assumed or 0.0)
    return replace(
        _with_test(change, kind, test, (one, two)),
        word=_word(kind, test, options.least(kind)),
        run_noise=None if assumed is None else options.run_noise,
    )


def _sample(kind: Kind, row: Sequence[Measured]) -> Sample | str:
    """The runs of a variant as a sample, or why there is none: repeats by their values, a single run by its blocks."""
    if len(row) == 1:
        return row[0].sample or row[0].reason
    values = [one.value for one in row if one.value is not None]
    if not kind.in_points and not all(value > 0 for value in values):
        return "there is no ratio to 0"
    return Sample.of_values(values, in_logarithms=not kind.in_points)


def _with_test(change: Change, kind: Kind, test: Difference, samples: tuple[Sample, Sample]) -> Change:
    def shown(place: float) -> float:
        return place if kind.in_points else 100 * math.expm1(place)

    return replace(
        change,
        low=shown(test.d - test.half),
        high=shown(test.d + test.half),
        own_low=shown(test.d - test.own_half),
        own_high=shown(test.d + test.own_half),
        d=test.d,
        se=test.se,
        df=test.df,
        r=tuple(sample.correlation for sample in samples),
        k_eff=tuple(sample.effective for sample in samples),
        p=test.p,
    )


def _word(kind: Kind, test: Difference, least: float) -> Word:
    """Of ratios the limits are those of the logarithm, so that the order of the two does not matter."""
    limit = least if kind.in_points else math.log1p(least / 100)
    if abs(test.d) + test.half <= limit:
        return Word.SAME
    if abs(test.d) <= test.half:
        return Word.NOT_RESOLVED
    if abs(test.d) < limit:
        return Word.SMALL
    if kind.direction == "none":
        return Word.HIGHER if test.d > 0 else Word.LOWER
    return Word.BETTER if (test.d > 0) is (kind.direction == "higher") else Word.WORSE


def _not_by_chance(measures: Sequence[Measure]) -> list[Measure]:
    """Of many measures and variants, some differ by chance; Holm's correction keeps that below 5%.

    It is made for what the sentence is about, chosen before anything is tested: the headline's measure of all variants,
    and their durations and costs; and for all other measures together. Measures with one chance are one: those of speed,
    and a duration and its cost.
    """
    tested = {
        (one.key, label): round(change.p, PRECISION)
        for one in measures
        for label, change in one.against.items()
        if change.p is not None and change.word is not Word.REFUSED
    }
    judged = {(headline(measures, label), label) for label in {label for _, label in tested}} & tested.keys()
    # Means of rates are not those of times: one question has one answer.
    tested |= {
        (speed, label): tested[key, label]
        for key, label in judged
        for speed in SPEEDS
        if key in SPEEDS and (speed, label) in tested
    }
    left, kept = set(tested.values()), set()
    for family in (judged, {place for place in tested if place[0] in OF_SENTENCE}, tested):
        chances = {tested[place] for place in family} & left
        kept |= not_by_chance(chances)
        left -= chances

    def checked(key: str, label: str, change: Change) -> Change:
        if change.word not in FOUND or tested[key, label] in kept:
            return change
        return replace(change, word=Word.NOT_RESOLVED, reason=OF_MANY)

    return [
        replace(
            one, against={label: checked(one.key, label, change) for label, change in one.against.items()}
        )
        for one in measures
    ]


def _shares_with_throughput(measures: Sequence[Measure]) -> list[Measure]:
    """No share is better where throughput is worse, or worse where it is better.

    A slower program can use the GPU more, and a wait has a larger share of shorter steps.
    """
    rates = [one for one in measures if one.key in RATES]
    pace = {(label, change.word) for rate in rates for label, change in rate.against.items()}

    def plain(label: str, change: Change) -> Change:
        opposite = {Word.BETTER: Word.WORSE, Word.WORSE: Word.BETTER}.get(change.word)
        if (label, opposite) not in pace:
            return change
        return replace(change, word=Word.HIGHER if (change.points or 0) > 0 else Word.LOWER)

    return [
        replace(one, against={label: plain(label, change) for label, change in one.against.items()})
        if one.unit == "%"
        else one
        for one in measures
    ]


def headline(measures: Sequence[Measure], of: str = "") -> str:
    """Key of the measure that the verdict judges: throughput, or the duration if no steps were recorded.

    ``of`` is the label of a variant; without one, it is judged of any. Traces alone say nothing of these; of them it is the time of a profiled step, or what is known of the profiled time.
    """
    known = {
        one.key
        for one in measures
        if any(
            change.word is not Word.REFUSED and change.word is not Word.NOT_MEASURED
            for label, change in one.against.items()
            if of in ("", label)
        )
    }
    order = (
        *(*RATES, "duration_s"),
        *("profiled_step_s", "profiled_samples_per_s", "profiled_compute_percent"),
    )
    return next((key for key in order if key in known), "duration_s")
