"""The verdict of a comparison: a sentence on each variant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.comparison import profiled_verdict, words
from jobreport.comparison.comparing import RATES, headline
from jobreport.comparison.document import CHANGED, Comparison, Word
from jobreport.comparison.measures import BY_KEY, LOSS
from jobreport.comparison.real_difference import not_by_chance
from jobreport.comparison.runs import NOT_RECORDED
from jobreport.comparison.words import aside, with_asides, with_details, without_asides
from jobreport.cost.document import ABOUT_SAME, MIN_EXPLAINED
from jobreport.cost.words import money
from jobreport.formats import NBSP
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobreport.comparison.document import Change, Measure
    from jobrules.model.time_parts import TimePart

#: From this change on, a ratio says more than percent.
MANY_TIMES = 1.0
#: Variants that the sentence names.
MAX_SENTENCES = 2
#: What is said of the best of many variants, and of the base if none is better.
BEST = {
    "cost": ("costs least", "costs less"),
    "cost_per_million_samples": ("costs least per 1 million samples", "costs less per 1 million samples"),
    "cost_per_1000_steps": ("costs least per 1,000 steps", "costs less per 1,000 steps"),
    "samples_per_s": ("has the highest throughput", "has a higher throughput"),
    "tokens_per_s": ("has the highest throughput", "has a higher throughput"),
    "steps_per_s": ("does the most steps per second", "does more steps per second"),
    "duration_s": ("took the least time", "took less time"),
    "profiled_step_s": ("has the shortest profiled step", "has a shorter profiled step"),
    "profiled_samples_per_s": ("has the highest profiled throughput", "has a higher profiled throughput"),
}
#: The cost of so much work can be compared where that of the whole run cannot.
PER_WORK = {"cost_per_million_samples": "1 million samples", "cost_per_1000_steps": "1,000 steps"}


class Against(Struct, frozen=True, kw_only=True):
    """A variant against the base: what its sentence is made of."""

    found: Comparison
    label: str
    #: Whether its cost changed more than a time can by chance, mostly by the number of GPUs and their price.
    is_sure: bool
    #: The condition of a change of the cost of the run, if nobody knows that both did the same work; otherwise empty.
    condition: str

    @property
    def base(self) -> str:
        """Label of the base."""
        return self.found.base

    def measure(self, key: str) -> Measure | None:
        """A measure if it was compared; None if it was refused, or not measured."""
        measure = self.found.find(key)
        return measure if measure and measure.against[self.label].is_compared else None

    def both(self, measure: Measure) -> tuple[float, float]:
        """Values of the variant and of the base."""
        return measure.values[self.label] or 0.0, measure.values[self.base] or 0.0

    @property
    def rate(self) -> Measure | None:
        """Throughput, if it is what the sentence is about."""
        key = headline(self.found.measures, self.label)
        return self.found.find(key) if key in RATES else None

    @property
    def rate_word(self) -> Word | None:
        """That of the throughput."""
        return self.rate.against[self.label].word if self.rate else None

    @property
    def knows_batches(self) -> bool:
        """Whether the batch sizes of both are known."""
        facts = [one.facts for one in self.found.variants if one.label in (self.base, self.label)]
        return all(own.get("batch_size") is not None for own in facts)


def verdict(
    found: Comparison, of_unknown_work: Collection[str], chance: Mapping[str, float]
) -> tuple[str, str]:
    """The answer in one short sentence; and a sentence on each variant, of many on the best one.

    ``of_unknown_work`` are the labels of variants of which nobody knows whether they did the work of the base, ``chance`` is
    how much a time differs from that of the base by chance, in logarithms.
    """
    sure = [label for label in found.others if _is_by_price(found, label, chance[label])]
    label, lead = _best(found, sure)
    labels, sentences = found.others, []
    if len(labels) > MAX_SENTENCES:
        labels, sentences = [label], [lead]
    by_traces = set()
    for label in labels:
        condition = "if both did the same work" if label in of_unknown_work else ""
        one = Against(found=found, label=label, is_sure=label in sure, condition=condition)
        of_traces = _of_traces(one)
        by_traces.add(bool(of_traces))
        sentences.append(f"{escape_name(label, 40)} {of_traces or _of_runs(one)}.")
    said = " ".join(sentences)
    # Steps of whole runs and of traces have no common measure in which one variant is the best.
    answer = said if len(found.others) == 1 or len(by_traces) > 1 else lead
    return without_asides(answer), with_asides(said)


def _of_runs(one: Against) -> str:
    """What a variant costs, how fast it is, and why."""
    amount = _costs(one) or _gpu_hours(one)
    # The base is named once.
    than = "" if amount else f"{NBSP}{one.base}"
    steps = "" if one.rate or one.knows_batches else _if_the_same_step(one, than=than)
    pace = _pace(one, than="" if steps else than)
    pace = f"{steps}{aside(f'; {with_asides(pace)}')}" if steps else pace
    joint = "" if not amount else " " if pace.startswith("in ") else " and "
    # Steps of other batches are other work.
    condition = "" if steps or one.knows_batches else ", if the batch sizes are equal"
    return f"{amount}{joint}{pace}{aside(_reason(one))}{_loss(one, condition)}"


def _loss(one: Against, condition: str) -> str:
    """``; but the loss after 1,000 steps is higher``: what that speed costs; empty unless that is shown."""
    measure = one.measure(LOSS)
    change = measure.against[one.label] if measure else None
    if measure is None or change is None or change.word not in CHANGED:
        return ""
    values = words.of_variants(measure)
    higher = change.word is Word.WORSE
    contrary = one.rate_word is (Word.BETTER if higher else Word.WORSE)
    amounts = f" ({values[one.label]} against {values[one.base]}; {words.tested(change)})"
    return (
        f"; {'but ' if contrary else ''}the {measure.label[0].lower()}{measure.label[1:]} is "
        f"{'higher' if higher else 'lower'}{aside(amounts)}{condition}"
    )


def _of_traces(one: Against) -> str:
    """What traces say of a variant if nothing else does; empty if something does."""
    found, base, label = one.found, one.base, one.label
    measure = found.find(headline(found.measures, label))
    if measure and BY_KEY[measure.key].is_profiled:
        why = profiled_verdict.reason(found.profiled, measure, base, label) if found.profiled else ""
        return f"{profiled_verdict.pace(measure, base, label)}{aside(f'; main reason: {why}') if why else ''}"
    if measure and measure.against[label].word is not Word.NOT_MEASURED:
        return ""
    if found.profiled:
        return profiled_verdict.without_device_work(found.profiled, found.differences, base, label)
    return f"cannot be compared with {base}: of one of them, only traces of PyTorch's profiler are known"


def _best(found: Comparison, by_price: Collection[str]) -> tuple[str, str]:
    """The best of many variants in the first measure in which most can be compared, and how it stands."""
    several = f"{len(found.others)} variants"
    for measure in filter(None, map(found.find, BEST)):
        values = {
            label: value
            for label, change in measure.against.items()
            if change.is_compared and (value := measure.values[label]) is not None
        }
        if 2 * len(values) <= len(found.others):
            continue
        sign = 1 if measure.direction == "higher" else -1
        better = [label for label in values if _is_better(found, measure, label, by_price)]
        label = max(better or values, key=lambda one: sign * values[one])
        word = measure.against[label].word
        if measure.unit == "money" and word is Word.NOT_TESTED and not better and label not in by_price:
            continue  # throughput says whether there is a change
        of = several if len(values) == len(found.others) else f"{len(values)} of {several}"
        name, (most, more) = escape_name(label, 40), BEST[measure.key]
        if word in (Word.NOT_RESOLVED, Word.SAME, Word.SMALL):
            return label, f"None of {of} is shown to be better than {found.base}; {name} comes nearest."
        if sign * values[label] > sign * (measure.values[found.base] or 0.0):
            return label, f"Of {of} compared with {found.base}, {name} {most}."
        return label, f"None of {of} {more} than {found.base}; {name} comes nearest."
    return found.others[0], f"{several} are in the tables; the first:"


def _is_better(found: Comparison, measure: Measure, label: str, by_price: Collection[str]) -> bool:
    """Whether a variant is better in a measure: an untested cost is by its price, or by a time that is shown to be shorter."""
    word = measure.against[label].word
    lower = (measure.values[label] or 0) < (measure.values[found.base] or 0)
    if measure.unit != "money" or word is not Word.NOT_TESTED or not lower:
        return word is Word.BETTER
    rates = filter(None, map(found.find, RATES))
    return label in by_price or any(rate.against[label].word is Word.BETTER for rate in rates)


def _priced(found: Comparison, label: str) -> Measure | None:
    """The cost that can be compared: of the run, otherwise of so much work; None if none can."""
    costs = filter(None, map(found.find, ("cost", *PER_WORK)))
    return next((one for one in costs if one.against[label].is_compared), None)


def _is_by_price(found: Comparison, label: str, chance: float) -> bool:
    """Whether the cost changed more than a time can by chance, mostly by the number of GPUs and their price."""
    measure = _priced(found, label) if found.cost else None
    if found.cost is None or measure is None:
        return False
    one, two = measure.values[label], measure.values[found.base]
    change = math.log(one / two) if one and two else 0.0
    if measure.against[label].word not in (*CHANGED, Word.NOT_TESTED) or abs(change) <= chance:
        return False
    factors = found.cost.factors[label]
    return math.log(factors.count * factors.price) / change >= MIN_EXPLAINED


def _costs(one: Against) -> str:
    """What a variant costs against the base: the run, otherwise so much work; empty if neither can be compared.

    A change is said where it is sure, or where the time is shown to have changed.
    """
    cost, measure = one.found.cost, _priced(one.found, one.label)
    if cost is None or measure is None:
        return ""
    new, old = one.both(measure)
    per = f" per {PER_WORK[measure.key]}" if measure.key in PER_WORK else ""
    amounts = [money(amount, cost.currency) for amount in (new, old)]
    more, change = new / old - 1, measure.against[one.label]
    if round(abs(more), 3) == 0:
        both = aside(f" ({' against '.join(amounts)})")
        return f"costs as much{per} as {one.base}{both}"
    sharp = formats.signed(change.low or 0.0) == formats.signed(change.high or 0.0)
    shown = "" if sharp else words.interval(change)
    of_time = one.rate_word is (Word.WORSE if more > 0 else Word.BETTER)
    said = change.word in CHANGED or (change.word is Word.NOT_TESTED and (one.is_sure or of_time))
    if not said:
        tested = f"({aside(f'{shown}, ') if shown else ''}{change.word})"
        return f"cost {amounts[0]}{per} against {amounts[1]} of {one.base} {tested}"
    if change.word is Word.NOT_TESTED:
        shown = ""
    untested = str(change.word) if change.word is Word.NOT_TESTED and not one.is_sure else ""
    condition = one.condition if measure.key == "cost" else ""
    against = with_details([" against ".join(amounts), shown], ", ".join(filter(None, (untested, condition))))
    if more >= MANY_TIMES:
        return f"costs {_times(1 + more)} as much{per} as {one.base}{against}"
    return f"costs {abs(100 * more):.1f}% {'more' if more > 0 else 'less'}{per} than {one.base}{against}"


def _gpu_hours(one: Against) -> str:
    """GPU-hours against those of the base; empty if the durations say as much."""
    hours, machines = one.measure("gpu_hours"), _gpus(one)
    if hours is None or not machines:
        return ""
    shown = words.of_variants(hours)
    new, old = one.both(hours)
    amounts = f"{shown[one.label]} against {shown[one.base]}"
    if not old or round(abs(new / old - 1), 3) == 0:
        return f"took as many GPU-hours as {one.base}{aside(f' ({amounts}; {machines})')}"
    change = f"{abs(100 * (new / old - 1)):.1f}% {'more' if new > old else 'fewer'} GPU-hours"
    return f"took {change} than {one.base}{aside(f' ({amounts}; {machines})')}"


def _gpus(one: Against) -> str:
    """``1 GPU in place of 4``; empty if there are as many."""
    gpus = {variant.label: variant.facts.get("gpus") for variant in one.found.variants}
    few, many = gpus[one.label], gpus[one.base]
    if few == many:
        return ""
    number = count(few, "GPU") if isinstance(few, int) else f"{words.plain(few)} GPUs"
    return f"{number} in place of {words.plain(many)}"


def _pace(one: Against, *, than: str) -> str:
    """How fast a variant is if that is resolved; otherwise how long it took, and what is open."""
    rate = one.rate
    if rate is None:
        return _duration(one, than=than)
    change, unit = rate.against[one.label], RATES[rate.key]
    if change.word in CHANGED:
        faster = "faster" if change.word is Word.BETTER else "slower"
        than = f" than{than}" if than else ""
        return f"is {faster}{than}: {_more_or_fewer(change)} {unit}{aside(f' ({words.tested(change)})')}"
    if change.word is Word.SAME:
        tested = aside(f" ({unit}: {words.tested(change)})")
        return f"is as fast as {one.base} within {rate.min_effect:g}%{tested}"
    open_rate = f"{unit}: {words.interval(change) or words.change(change)}, {change.word}"
    reason = f" ({change.reason})" if change.reason else ""
    took = _duration(one, than=than)
    is_open = {Word.NOT_RESOLVED: ", which may be chance", Word.NOT_TESTED: ", not tested"}
    chance = is_open.get(change.word, "") if took.startswith("ran ") else ""
    return f"{took}{chance}{aside(f'; {open_rate}{reason}')}"


def _if_the_same_step(one: Against, *, than: str) -> str:
    """How much faster steps were of which nobody knows whether they did the same work; empty if not shown to be."""
    steps = one.found.find("steps_per_s")
    change = steps.against[one.label] if steps else None
    if steps is None or change is None or change.low is None or change.high is None:
        return ""
    chances = [other.p for other in steps.against.values() if other.p is not None]
    by_chance = change.p not in not_by_chance(chances) or change.low <= 0 <= change.high
    if by_chance or abs(change.change or 0.0) < steps.min_effect:
        return ""
    faster = "faster" if change.low > 0 else "slower"
    than = f" than{than}" if than else ""
    gpus = _gpus(one)
    return (
        f"is {faster}{than}{f' on {gpus}' if gpus else ''}, if a step did the same work: "
        f"{_more_or_fewer(change)} steps per second{aside(f' ({words.tested(change)})')}"
    )


def _more_or_fewer(change: Change) -> str:
    """``16.9% fewer``, ``3.0 times as many``."""
    moved = change.change or 0.0
    if moved >= 100 * MANY_TIMES:
        return f"{_times(1 + moved / 100)} as many"
    return f"{abs(moved):.1f}% {'more' if moved > 0 else 'fewer'}"


def _times(ratio: float) -> str:
    """``3.0 times``, ``1e+06 times``."""
    return f"{ratio:.1f} times" if ratio < 1000 else f"{ratio:.3g} times"


def _duration(one: Against, *, than: str) -> str:
    """How long a variant took."""
    measure = one.found.measure("duration_s")
    change, (new, old) = measure.against[one.label], one.both(measure)
    amounts = words.durations(new, old)
    if change.reason.endswith(NOT_RECORDED):
        return f"was recorded for {amounts[0]} against {amounts[1]} ({change.reason})"
    shown = words.interval(change) if change.word is not Word.REFUSED else ""
    caveat = change.reason if change.word is Word.REFUSED else ""
    times = with_details([" against ".join(amounts), shown], caveat, joint="; ")
    times += "" if one.rate or shown or caveat else ", not tested"
    if old and abs(new / old - 1) <= ABOUT_SAME:
        return f"took about as long as{than}{times}" if than else f"in about the same time{times}"
    return f"ran {'longer' if new > old else 'shorter'}{f' than{than}' if than else ''}{times}"


def _reason(one: Against) -> str:
    """A clause: the largest factor of a cost that is sure, or part of a step or of the time, if it explains most of the change."""
    is_open = one.rate_word not in (None, *CHANGED, Word.SAME)
    if factor := _factor(one):
        return f"; main reason{' for the cost' if is_open else ''}: {factor}"
    if stalls := _stalls(one):
        return f"; {'' if is_open else 'main reason: '}{stalls}"
    why = _part_of_step(one) if one.rate_word in CHANGED else _part_of_time(one)
    return f"; main reason: {why}" if why else ""


def _factor(one: Against) -> str:
    """The number or price of GPUs, if it explains most of the change of a cost that is sure; otherwise empty."""
    cost = one.found.cost if one.is_sure and one.measure("cost") else None
    factors = cost.factors[one.label] if cost else None
    key = factors.main if factors else ""
    if cost is None or factors is None or key not in ("count", "price"):
        return ""
    noun = "GPU" if factors.of_gpus else "machine"
    if key == "price":
        return f"the price of an hour of a {noun}"
    rows = {row.label: row for row in cost.rows}
    new, old = (rows[name].gpus if factors.of_gpus else rows[name].nodes for name in (one.label, one.base))
    # Of repeats on other machines, the mean is no number of them.
    if new == round(new) and old == round(old):
        return f"{count(round(new), noun)} in place of {round(old):,}"
    return f"the number of {noun}s"


def _stalls(one: Against) -> str:
    """How few steps carry a change that counts."""
    step, steps = one.measure("step_s"), one.found.steps
    if step is None or abs(step.against[one.label].change or 0.0) < step.min_effect:
        return ""
    return words.of_stalls(steps.get(one.base), steps.get(one.label))


def _part_of_step(one: Against) -> str:
    """What changed of a step: its wait for data, or the rest; empty if the one or the other is not known."""
    step, wait = one.measure("step_s"), one.measure("data_wait_percent")
    if not step or not wait:
        return ""
    new, old = one.both(step)
    waits = [lasted * share / 100 for lasted, share in zip((new, old), one.both(wait), strict=True)]
    if (waits[0] - waits[1]) / (new - old) >= MIN_EXPLAINED:
        return f"a step waited {' for data instead of '.join(words.times(*waits))}"
    rest = words.times(new - waits[0], old - waits[1])
    return f"without its wait for data, a step took {' instead of '.join(rest)}"


def _part_of_time(one: Against) -> str:
    """The part that explains most of a change of the duration; empty if that is training itself."""
    duration = one.measure("duration_s")
    new, old = one.both(duration) if duration else (0.0, 0.0)
    goodput: Sequence[Sequence[TimePart]] = [
        one.found.goodput.get(name, ()) for name in (one.base, one.label)
    ]
    if abs(new - old) <= ABOUT_SAME * old:
        return ""
    pairs = [(a, b) for a, b in zip(*goodput, strict=False) if a.measured and b.measured]
    share, a, b = max(
        (((b.amount - a.amount) / (new - old), a, b) for a, b in pairs),
        key=lambda row: row[0],
        default=(0, None, None),
    )
    if a is None or b is None or a.key in ("productive", "between-steps") or share < MIN_EXPLAINED:
        return ""
    return f"{a.label.lower()} took {' instead of '.join(words.durations(b.amount, a.amount))}"
