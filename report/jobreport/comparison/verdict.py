"""The verdict of a comparison: a sentence on each variant, and what would settle what is open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobreport.comparison import profiled_verdict, words
from jobreport.comparison.comparing import crowded, half_of_time, headline, stopped, were_stopped
from jobreport.comparison.document import Word
from jobreport.comparison.facts import NOT_RECORDED, is_older
from jobreport.comparison.measures import BY_KEY
from jobreport.comparison.real_difference import not_by_chance
from jobreport.cost.billing import ABOUT_SAME, MIN_EXPLAINED, main_factor
from jobreport.cost.words import money
from jobreport.formats import NBSP
from jobrules.model import Severity
from jobrules.text import count, escape_name, join_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobreport.comparison.document import (
        Change,
        Fact,
        Measure,
        Profiled,
        Steps,
        Variant,
    )
    from jobreport.comparison.facts import RunOf
    from jobreport.cost.document import Cost
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
#: What throughput counts.
RATES = {
    "samples_per_s": "samples per second",
    "tokens_per_s": "tokens per second",
    "steps_per_s": "steps per second",
}
#: The cost of so much work can be compared where that of the whole run cannot.
PER_WORK = {"cost_per_million_samples": "1 million samples", "cost_per_1000_steps": "1,000 steps"}
#: What is better of variants that are as fast.
OF_BEST = ("cost", "gpu_hours")
_NOT_COMPARED = (Word.REFUSED, Word.NOT_MEASURED)


def verdict(
    variants: Sequence[Variant],
    measures: Sequence[Measure],
    cost: Cost | None,
    goodput: Mapping[str, Sequence[TimePart]],
    traces: Profiled | None,
    differences: Sequence[Fact],
    steps: Mapping[str, Steps],
    of_unknown_work: Collection[str],
    run_noise: float,
) -> str:
    """A sentence on each variant; of many, on the best one.

    ``of_unknown_work`` are the labels of variants of which nobody knows whether they did the work of the base.
    """
    base, *others = (variant.label for variant in variants)
    by_key = {one.key: one for one in measures}
    sentences = []
    by_price = _by_price(cost, by_key, run_noise) if cost else ()
    if len(others) > MAX_SENTENCES:
        label, lead = _best(by_key, base, others, by_price)
        others, sentences = [label], [lead]
    for label in others:
        key = headline(measures, label)
        if found := _on_traces(by_key.get(key), traces, differences, base, label):
            sentences.append(f"{escape_name(label, 40)} {found}.")
            continue
        facts = [one.facts for one in variants if one.label in (base, label)]
        rate = by_key.get(key) if key in RATES else None
        same = "if both did the same work" if label in of_unknown_work else ""
        sure = label in by_price
        amount = _costs(base, label, cost, by_key, rate, sure=sure, same=same) or _gpu_hours(
            variants, base, label, by_key
        )
        # The base is named once.
        than = "" if amount else f"{NBSP}{base}"
        unknown = rate is None and any(own.get("batch_size") is None for own in facts)
        lead = _if_the_same_step(by_key, label, than=than) if unknown else ""
        pace = f"{lead}{_pace(by_key, rate, base, label, than='' if lead else than)}"
        joined = f"{amount} {'' if pace.startswith('in ') else 'and '}{pace}" if amount else pace
        stalls = _stalls(by_key.get("step_s"), steps, base, label)
        reason = _reason(base, label, cost if sure else None, by_key, goodput, stalls, rate)
        sentences.append(f"{escape_name(label, 40)} {joined}{reason}.")
    return " ".join(sentences)


def _best(
    measures: Mapping[str, Measure], base: str, others: Sequence[str], by_price: Collection[str] = ()
) -> tuple[str, str]:
    """The best of many variants in the first measure in which most can be compared, and how it stands."""
    several = f"{len(others)} variants"
    for key, (most, more) in BEST.items():
        measure = measures.get(key)
        if measure is None:
            continue
        values = {
            label: value
            for label in others
            if _is_compared(measure, label) and (value := measure.values[label]) is not None
        }
        if 2 * len(values) <= len(others):
            continue
        sign = 1 if measure.direction == "higher" else -1
        better = [
            one
            for one in values
            if measure.against[one].word is Word.BETTER
            or (measure.unit == "money" and _is_cheaper(measures, measure, base, one, by_price))
        ]
        label = max(better or values, key=lambda one: sign * values[one])
        of = several if len(values) == len(others) else f"{len(values)} of {several}"
        word, before = measure.against[label].word, measure.values[base] or 0.0
        if measure.unit == "money" and word is Word.NOT_TESTED and not better and label not in by_price:
            continue  # throughput says whether there is a change
        if word in (Word.NOT_RESOLVED, Word.SAME, Word.SMALL):
            return (
                label,
                f"None of {of} is shown to be better than {base}; {escape_name(label, 40)} comes nearest.",
            )
        if sign * values[label] > sign * before:
            return label, f"Of {of} compared with {base}, {escape_name(label, 40)} {most}."
        return label, f"None of {of} {more} than {base}; {escape_name(label, 40)} comes nearest."
    return others[0], f"{several} are in the tables; the first:"


def _is_cheaper(
    measures: Mapping[str, Measure], cost: Measure, base: str, label: str, by_price: Collection[str]
) -> bool:
    """True if an untested cost is lower because of the price, or of a time that is shown to be shorter."""
    if cost.against[label].word is not Word.NOT_TESTED or (cost.values[label] or 0) >= (
        cost.values[base] or 0
    ):
        return False
    faster = any(key in measures and measures[key].against[label].word is Word.BETTER for key in RATES)
    return faster or label in by_price


def _on_traces(
    measure: Measure | None, traces: Profiled | None, differences: Sequence[Fact], base: str, label: str
) -> str:
    """What traces say of a variant if nothing else does; empty if something does."""
    if measure and BY_KEY[measure.key].is_profiled:
        why = profiled_verdict.reason(traces, measure, base, label) if traces else ""
        return f"{profiled_verdict.pace(measure, base, label)}{f'; main reason: {why}' if why else ''}"
    if measure and measure.against[label].word is not Word.NOT_MEASURED:
        return ""
    if traces:
        return profiled_verdict.without_device_work(traces, differences, base, label)
    return f"cannot be compared with {base}: of one of them, only traces of PyTorch's profiler are known"


def _is_compared(measure: Measure | None, label: str) -> bool:
    return measure is not None and measure.against[label].word not in _NOT_COMPARED


def _costs(
    base: str,
    label: str,
    cost: Cost | None,
    measures: Mapping[str, Measure],
    rate: Measure | None,
    *,
    sure: bool,
    same: str,
) -> str:
    """What a variant costs against the base: the run, otherwise so much work; empty if neither can be compared.

    A change is said where it is `sure`, or where the time is shown to have changed.
    """
    if cost is None:
        return ""
    key = _priced(measures, label)
    if key is None:
        return ""
    one, two = (measures[key].values[name] or 0.0 for name in (label, base))
    per = f" per {PER_WORK[key]}" if key in PER_WORK else ""
    amounts = money(one, cost.currency), money(two, cost.currency)
    more = one / two - 1
    if round(abs(more), 3) == 0:
        return f"costs as much{per} as {base} ({' against '.join(amounts)})"
    change = measures[key].against[label]
    sharp = words.signed(change.low or 0.0) == words.signed(change.high or 0.0)
    shown = "" if sharp else words.interval(change)
    if change.word not in (Word.BETTER, Word.WORSE):
        slower = rate is not None and rate.against[label].word is (Word.WORSE if more > 0 else Word.BETTER)
        if change.word is not Word.NOT_TESTED or not (sure or slower):
            tested = f"{shown}, {change.word}" if shown else change.word
            return f"cost {amounts[0]}{per} against {amounts[1]} of {base} ({tested})"
        shown = "" if sure else str(change.word)
    same = same if key == "cost" else ""
    against = f"({', '.join(filter(None, (' against '.join(amounts), shown, same)))})"
    if more >= MANY_TIMES:
        return f"costs {_times(1 + more)} as much{per} as {base} {against}"
    return f"costs {abs(100 * more):.1f}% {'more' if more > 0 else 'less'}{per} than {base} {against}"


def _priced(measures: Mapping[str, Measure], label: str) -> str | None:
    """Key of the cost that can be compared; None if none can."""
    return next((one for one in ("cost", *PER_WORK) if _is_compared(measures.get(one), label)), None)


def _by_price(cost: Cost, measures: Mapping[str, Measure], run_noise: float) -> list[str]:
    """Labels of variants whose cost changed more than a time can by chance, mostly by the number of GPUs and their price."""
    found = []
    for label, factors in cost.factors.items():
        key = _priced(measures, label)
        one, two = (measures[key].values[name] if key else None for name in (label, cost.rows[0].label))
        change = math.log(one / two) if one and two else 0.0
        known = key and measures[key].against[label].word in (Word.BETTER, Word.WORSE, Word.NOT_TESTED)
        if not known or abs(change) <= half_of_time(measures, label, run_noise):
            continue
        if math.log(factors.count * factors.price) / change >= MIN_EXPLAINED:
            found.append(label)
    return found


def _gpu_hours(variants: Sequence[Variant], base: str, label: str, measures: Mapping[str, Measure]) -> str:
    """GPU-hours against those of the base; empty if the durations say as much."""
    gpus = {variant.label: variant.facts.get("gpus") for variant in variants}
    hours = measures.get("gpu_hours")
    if hours is None or gpus[base] == gpus[label] or not _is_compared(hours, label):
        return ""
    shown = words.of_variants(hours)
    return f"took {shown[label]} against {shown[base]} of {base}"


def _pace(measures: Mapping[str, Measure], rate: Measure | None, base: str, label: str, *, than: str) -> str:
    """How fast a variant is if that is resolved; otherwise how long it took, and what is open."""
    if rate is None:
        return _duration(measures["duration_s"], base, label, than=than, alone=True)
    change = rate.against[label]
    unit, amount = RATES[rate.key], _more_or_fewer(change)
    if change.word in (Word.BETTER, Word.WORSE):
        faster = "faster" if change.word is Word.BETTER else "slower"
        than = f" than{than}" if than else ""
        return f"is {faster}{than}: {amount} {unit} ({words.tested(change)})"
    if change.word is Word.SAME:
        return f"is as fast as {base} within {rate.min_effect:g}% ({unit}: {words.tested(change)})"
    open_rate = f"{unit}: {words.interval(change) or words.change(change)}, {change.word}"
    why = f" ({change.reason})" if change.reason else ""
    return f"{_duration(measures['duration_s'], base, label, than=than, alone=False)}; {open_rate}{why}"


def _if_the_same_step(measures: Mapping[str, Measure], label: str, *, than: str) -> str:
    """How much faster steps were of which nobody knows whether they did the same work; empty if not shown to be."""
    steps = measures.get("steps_per_s")
    change = steps.against[label] if steps else None
    if steps is None or change is None or change.low is None or change.high is None:
        return ""
    chances = [one.p for one in steps.against.values() if one.p is not None]
    if (
        change.p not in not_by_chance(chances)
        or change.low <= 0 <= change.high
        or abs(change.change or 0.0) < steps.min_effect
    ):
        return ""
    faster = "faster" if change.low > 0 else "slower"
    than = f" than{than}" if than else ""
    return f"did {_more_or_fewer(change)} steps per second{than} ({words.tested(change)}), {faster} if a step did the same work; "


def _more_or_fewer(change: Change) -> str:
    """``16.9% fewer``, ``3.0 times as many``."""
    moved = change.change or 0.0
    if moved >= 100 * MANY_TIMES:
        return f"{_times(1 + moved / 100)} as many"
    return f"{abs(moved):.1f}% {'more' if moved > 0 else 'fewer'}"


def _times(ratio: float) -> str:
    """``3.0 times``, ``1e+06 times``."""
    return f"{ratio:.1f} times" if ratio < 1000 else f"{ratio:.3g} times"


def _duration(measure: Measure, base: str, label: str, *, than: str, alone: bool) -> str:
    """How long a variant took; `alone` if nothing follows that was tested."""
    one, two = measure.values[label] or 0.0, measure.values[base] or 0.0
    found = measure.against[label]
    tail = ", not tested" if alone else ""
    if found.word is Word.REFUSED:
        tail = f"; {found.reason}"
    elif found.low is not None:
        tail = f", {words.interval(found)}"
    amounts = words.durations(one, two)
    if found.reason.endswith(NOT_RECORDED):
        return f"was recorded for {amounts[0]} against {amounts[1]} ({found.reason})"
    times = f"({' against '.join(amounts)}{tail})"
    if two and abs(one / two - 1) <= ABOUT_SAME:
        return f"took about as long as{than} {times}" if than else f"in about the same time {times}"
    return f"ran {'longer' if one > two else 'shorter'}{f' than{than}' if than else ''} {times}"


def _reason(
    base: str,
    label: str,
    cost: Cost | None,
    measures: Mapping[str, Measure],
    goodput: Mapping[str, Sequence[TimePart]],
    stalls: str,
    rate: Measure | None,
) -> str:
    """A clause: the largest factor of a cost that is sure, or part of a step or of the time, if it explains most of the change."""
    word = rate.against[label].word if rate else None
    is_open = word not in (None, Word.BETTER, Word.WORSE, Word.SAME)
    key = main_factor(cost.factors[label]) if cost and _is_compared(measures.get("cost"), label) else ""
    if cost and key in ("count", "price"):
        return f"; main reason{' for the cost' if is_open else ''}: {_factor(cost, base, label, key)}"
    if stalls:
        return f"; {'' if is_open else 'main reason: '}{stalls}"
    duration = measures["duration_s"]
    before, after = duration.values[base] or 0.0, duration.values[label] or 0.0
    why = ""
    if word in (Word.BETTER, Word.WORSE):
        why = _part_of_step(measures, base, label)
    elif _is_compared(duration, label) and abs(after - before) > ABOUT_SAME * before:
        why = _part_of_time(goodput.get(base, ()), goodput.get(label, ()), after - before)
    return f"; main reason: {why}" if why else ""


def _stalls(step: Measure | None, steps: Mapping[str, Steps], base: str, label: str) -> str:
    """How few steps carry a change that counts."""
    if (
        step is None
        or not _is_compared(step, label)
        or abs(step.against[label].change or 0.0) < step.min_effect
    ):
        return ""
    return words.of_stalls(steps.get(base), steps.get(label))


def _part_of_step(measures: Mapping[str, Measure], base: str, label: str) -> str:
    """What changed of a step: its wait for data, or the rest; empty if the one or the other is not known."""
    step, wait = (measures.get(key) for key in ("step_s", "data_wait_percent"))
    if not step or not wait or not _is_compared(step, label) or not _is_compared(wait, label):
        return ""
    new, old = (step.values[name] or 0.0 for name in (label, base))
    waits = [lasted * (wait.values[name] or 0.0) / 100 for lasted, name in ((new, label), (old, base))]
    if (waits[0] - waits[1]) / (new - old) >= MIN_EXPLAINED:
        return f"a step waited {' for data instead of '.join(words.times(*waits))}"
    rest = words.times(new - waits[0], old - waits[1])
    return f"without its wait for data, a step took {' instead of '.join(rest)}"


def _part_of_time(base: Sequence[TimePart], other: Sequence[TimePart], longer_s: float) -> str:
    """The part that explains most of the time that the other took longer; empty if that is training itself."""
    pairs = [(one, two) for one, two in zip(base, other, strict=False) if one.measured and two.measured]
    one, two = max(pairs, key=lambda pair: (pair[1].amount - pair[0].amount) / longer_s, default=(None, None))
    if one is None or two is None or one.key in ("productive", "between-steps"):
        return ""
    if (two.amount - one.amount) / longer_s < MIN_EXPLAINED:
        return ""
    return f"{one.label.lower()} took {' instead of '.join(words.durations(two.amount, one.amount))}"


def _factor(cost: Cost, base: str, label: str, key: str) -> str:
    of_gpus = cost.factors[label].of_gpus
    noun = "GPU" if of_gpus else "machine"
    if key == "price":
        return f"the price of an hour of a {noun}"
    rows = {row.label: row for row in cost.rows}
    one, two = (rows[name].gpus if of_gpus else rows[name].nodes for name in (label, base))
    # Of repeats on other machines, the mean is no number of them.
    if one == round(one) and two == round(two):
        return f"{count(round(one), noun)} in place of {round(two):,}"
    return f"the number of {noun}s"


def next_step(
    variants: Mapping[str, Sequence[RunOf]],
    measures: Sequence[Measure],
    headline: str,
    traces: Profiled | None,
) -> str:
    """What would settle the headline; empty if nothing is open."""
    measure = next((one for one in measures if one.key == headline), None)
    if measure is None:
        return (
            "Profile at least 0.1 s of GPU work, and call profiler.step() after each step."
            if traces
            else "Record steps, to compare throughput."
        )
    open_words = {change.word for change in measure.against.values()}
    runs = [run for own in variants.values() for run in own]
    if open_words == {Word.NOT_MEASURED}:
        return "Record the same of all runs: samples with record-job, or traces of PyTorch's profiler."
    if older := sorted({run.label for run in runs if is_older(run.report)}):
        return (
            f"Make the report of {join_names(older)} again: an older version kept nothing that can be tested."
        )
    fewest = min(len(own) for own in variants.values())
    if BY_KEY[headline].is_profiled:
        return _to_test_traces(headline, open_words, fewest)
    if headline not in RATES:
        return _to_judge_throughput(variants, fewest)
    return _to_test_throughput(runs, open_words, fewest)


def left_to_win(variants: Mapping[str, Sequence[RunOf]], measures: Sequence[Measure], headline: str) -> str:
    """The main finding on the best run, with its advice; empty if it has none.

    Best is a variant that is shown to be better in the headline, otherwise in cost or GPU-hours, or the base.
    """
    best = next(iter(variants))
    by_key = {one.key: one for one in measures}
    for measure in (by_key[key] for key in (headline, *OF_BEST) if key in by_key):
        sign = 1 if measure.direction == "higher" else -1
        better = [label for label, change in measure.against.items() if change.word is Word.BETTER]
        if better:
            best = max(better, key=lambda one: sign * (measure.values[one] or 0.0))
            break
        if any(change.word is Word.WORSE for change in measure.against.values()):
            break
    found = variants[best][0].report.verdict.main_finding
    if found is None or found.severity is Severity.INFO:
        return ""
    return " ".join([f"{best}: {found.title.rstrip('.')}.", *found.advice[:1]])


def _to_test_throughput(runs: Sequence[RunOf], open_words: set[Word], fewest: int) -> str:
    if fewest == 1 and crowded(runs):
        return "Run each variant three times, in turn, on cores that no other process uses."
    if Word.NOT_TESTED in open_words and Word.NOT_RESOLVED not in open_words:
        if cut := stopped(runs):
            return f"Let each run do at least 110 steps, which are tested within a run: {were_stopped(cut)} before."
        return "Record at least 100 steps of each run after the first 10, or run each variant three times."
    return _to_resolve(open_words, fewest)


def _to_resolve(open_words: set[Word], fewest: int) -> str:
    if Word.NOT_RESOLVED not in open_words:
        return ""
    few = {1: "one run cannot show how much runs differ", 2: "two runs find less than one"}
    if fewest in few:
        return f"Run each variant three times, in turn: {few[fewest]}."
    return "Run each variant more often, in turn."


def _to_test_traces(headline: str, open_words: set[Word], fewest: int) -> str:
    if Word.NOT_TESTED not in open_words:
        return _to_resolve(open_words, fewest)
    if headline == "profiled_compute_percent":
        return "Call profiler.step() after each step, to compare step times."
    return "Profile three runs of each variant, in turn: the few steps of one trace cannot be tested."


def _to_judge_throughput(variants: Mapping[str, Sequence[RunOf]], fewest: int) -> str:
    if all(run.report.blocks for own in variants.values() for run in own):
        given = " ".join(f"--set {label}.batch_size=N" for label in variants)
        return f"Give the batch sizes, to compare throughput: {given}."
    how = "Record steps (record-job finds those of PyTorch; others call jobrecord.step())"
    if cut := stopped([run for own in variants.values() for run in own]):
        return f"{how}: throughput can be compared of runs that were stopped. Or let {join_names(cut)} run to the end."
    if fewest == 1:
        return f"{how}: throughput is tested within a run. Durations are tested only of repeats: run each variant three times."
    return ""
