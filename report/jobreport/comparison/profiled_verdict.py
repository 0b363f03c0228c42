"""The verdict on runs of which nothing but traces of PyTorch's profiler is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison import words
from jobreport.comparison.document import Word
from jobreport.comparison.runs import OF_TRACES
from jobreport.comparison.shown import sure_change
from jobreport.cost.document import ABOUT_SAME
from jobreport.formats import percent
from jobrules.text import escape_name, join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Fact, Measure, Profiled, Work
    from jobrules.model.time_parts import TimePart

#: A part of the time is a reason from this change on: as a share of the step, and in points.
MIN_PART, MIN_POINTS = 0.05, 5.0
#: The part without a cause.
NO_REASON = "idle-unknown"
#: What is named of what differs.
MAX_NAMED = 2


def pace(measure: Measure, base: str, label: str) -> str:
    """How fast profiled steps of a variant are, or how much of the profiled time was computing."""
    change = measure.against[label]
    one, two = measure.values[label] or 0.0, measure.values[base] or 0.0
    tested, caveat = words.tested(change), ""
    if change.word is Word.NOT_RESOLVED:
        tested, caveat = words.interval(change), "not resolved"
    elif not tested:
        caveat = "not tested"
    shown = words.of_variants(measure)
    values = [shown[label], shown[base]]
    amounts = words.with_details([f"{values[0]} against {values[1]}", tested], caveat)
    tests = words.with_details([tested], caveat)
    if measure.key == "profiled_compute_percent":
        return f"computed in {values[0]} of the profiled time against {values[1]} of {base}{tests}"
    if measure.key == "profiled_samples_per_s":
        return f"had a throughput of {values[0]} in profiled steps against {values[1]} of {base}{tests}"
    moved = one / two - 1 if two else 0.0
    if change.word is Word.SAME or abs(moved) <= ABOUT_SAME:
        return f"took about as long per profiled step as {base}{amounts}"
    if 100 * moved >= words.MANY_PERCENT:
        return f"took {1 + moved:.3g} times as long per profiled step as {base}{amounts}"
    return f"took {percent(100 * abs(moved))} {'more' if moved > 0 else 'less'} time per profiled step than {base}{amounts}"


def reason(found: Profiled, measure: Measure, base: str, label: str) -> str:
    """The part of the profiled time that explains most of the change; empty if none does."""
    if base not in found.time or label not in found.time:
        return ""
    if measure.key == "profiled_compute_percent":
        return _largest_share(found, base, label)
    one, two = measure.values[label] or 0.0, measure.values[base] or 0.0
    # Of steps of one batch size; a throughput of others has no one time to explain.
    if measure.key != "profiled_step_s" or abs(one - two) <= ABOUT_SAME * two:
        return ""
    before, after = ({part.key: part for part in found.time[name]} for name in (base, label))
    direction = 1 if one > two else -1
    moved = {
        key: direction * (_amount(after, key) - _amount(before, key))
        for key in dict.fromkeys((*before, *after))
    }
    key = max(moved, key=moved.__getitem__, default="")
    if key in ("", NO_REASON) or moved[key] < MIN_PART * two:
        return ""
    noun = (after.get(key) or before[key]).label.lower()
    amounts = [_amount(parts, key) for parts in (after, before)]
    new, old = words.times(*amounts)
    return f"{f'{new} of' if amounts[0] else 'no'} {noun} per step instead of {old if amounts[1] else 'none'}"


def _amount(parts: Mapping[str, TimePart], key: str) -> float:
    return parts[key].amount if key in parts else 0.0


def _largest_share(found: Profiled, base: str, label: str) -> str:
    """The part, other than computing, whose share changed most."""
    shares = [{part.key: part.percent for part in found.time[name]} for name in (label, base)]
    names = {part.key: part.label.lower() for own in found.time.values() for part in own}
    moved = {
        key: abs(shares[0].get(key, 0.0) - shares[1].get(key, 0.0)) for key in names if key != "computing"
    }
    key = max(moved, key=moved.__getitem__, default="")
    if key in ("", NO_REASON) or moved[key] < MIN_POINTS:
        return ""
    new, old = (own.get(key, 0.0) for own in shares)
    return f"{percent(new) if new else 'no'} {names[key]} instead of {percent(old) if old else 'none'}"


def without_device_work(found: Profiled, differences: Sequence[Fact], base: str, label: str) -> str:
    """What is known of traces in which devices did next to nothing: what the host ran, and what else differs."""
    parts = []
    different = [
        f"{fact.label[:1].lower()}{fact.label[1:]} ({words.plain(fact.values[label])} instead of "
        f"{words.plain(fact.values[base])})"
        for fact in differences
        if fact.kind == "different" and fact.key in OF_TRACES and fact.values[label] != fact.values[base]
    ]
    if different:
        parts.append(f"differs from {base} in {' and '.join(different[:MAX_NAMED])}")

    def change(row: Work) -> float:
        return sure_change(row.variants[base], row.variants[label])

    changed = sorted(filter(change, found.work), key=change, reverse=True)
    if changed:
        named = " and ".join(_work(row, base, label) for row in changed[:MAX_NAMED])
        parts.append(f"changed most in {named}")
    elif found.compared:
        kinds = join_names([f"{kind}s" for kind in found.compared])
        parts.append(f"ran the same {kinds} for the same time")
    lengths = words.stretches(found.seconds[label], found.seconds[base])
    parts.append(
        f"cannot be judged by its speed: too little GPU time was profiled ({lengths[0]} against {lengths[1]})"
    )
    return f"{', '.join(parts[:-1])}, and {parts[-1]}" if len(parts) > 1 else parts[0]


def _work(row: Work, base: str, label: str) -> str:
    new, old = words.work_times(row.variants[label], row.variants[base])
    return f"{row.kind} {escape_name(row.name, 60)} ({new} instead of {old})"
