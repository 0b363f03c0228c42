"""What the sections show of the variants next to each other; of repeats the mean of each number."""

from __future__ import annotations

import math
import re
from operator import methodcaller
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobreport.comparison.document import Profiled, Rule, RuleResult, Run, Steps, Use, Word, Work, WorkTime
from jobreport.comparison.measures import sums
from jobreport.comparison.runs import NS_PER_S, PARTS, together
from jobreport.cost import sizes
from jobrules.captures.kinds import STEP
from jobrules.captures.operators import MAX_ROWS
from jobrules.model import Metric, Severity, Status
from jobrules.model.time_parts import TimePart, named
from jobrules.text import apportion, escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from msgspec import UnsetType

    from jobreport.comparison.document import Measure
    from jobreport.comparison.runs import Profile, RunOf
    from jobreport.cost.document import Cost, Sizing
    from jobreport.cost.prices import Prices
    from jobreport.document import Report, RuleCard
    from jobrules.analyses.blocks import StepBlocks
    from jobrules.analyses.goodput import Goodput
    from jobrules.model.captures import Capture
    from jobrules.verdict.time_use import TimeUse

    Variants = Mapping[str, Sequence[RunOf]]

T = TypeVar("T")
#: The worst first.
ORDER = (
    *(Severity.CRITICAL, Severity.WARNING, Severity.INFO),
    *(Status.ERROR, Status.PASSED, Status.NOT_EVALUATED),
)
#: Rows of a kind.
MAX_CHANGED = 8
#: Placeholders of names: those of two reports do not mean the same.
_PLACEHOLDER = re.compile(r".*\b(?:operator|kernel)-[0-9]+")


def _of_all(variants: Variants, of: Callable[[RunOf], T | UnsetType | None]) -> dict[str, list[T]]:
    """What all runs of a variant have, by its label."""
    found = {label: [one for run in runs if (one := of(run))] for label, runs in variants.items()}
    return {label: known for label, known in found.items() if len(known) == len(variants[label])}


def goodput(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Seconds of the job by part."""
    known = _of_all(variants, lambda run: run.report.goodput)
    return {
        label: _goodput(own, whole=all(run.finished is not None for run in variants[label]))
        for label, own in known.items()
    }


def _goodput(runs: Sequence[Goodput], *, whole: bool) -> tuple[TimePart, ...]:
    """Productive time to the nearest tenth of a percent, as captions have it, the others add up with it."""
    parts = [[one.of(part.key) for one in runs] for part in runs[0].parts]
    means = {own[0].key: fmean([one.percent for one in own]) for own in parts}
    first = round(means.pop("productive"), 1)
    percents = dict(zip(means, apportion(list(means.values()), 100.0 - first, 1), strict=True))
    return tuple(
        replace(
            own[0],
            amount=fmean([one.amount for one in own]),
            percent=percents.get(own[0].key, first),
            measured=all(one.measured for one in own)
            and (whole or own[0].key not in ("before-first-step", "after-last-step")),
        )
        for own in parts
    )


def device_time(variants: Variants) -> dict[str, tuple[TimePart, ...]]:
    """Hours of GPUs with samples, by cause of loss."""
    known = _of_all(variants, lambda run: run.report.verdict.use)
    gpus = {label: own for label, own in known.items() if all(use.device == "GPU" for use in own)}
    return {label: _device_time(own) for label, own in gpus.items()}


def _device_time(runs: Sequence[TimeUse]) -> tuple[TimePart, ...]:
    """Percents are those of the report; of repeats, whose lengths differ, the shares of the mean hours."""
    parts = {part.key: part for use in runs for part in use.parts}
    hours = [fmean([sum(p.amount for p in use.parts if p.key == key) for use in runs]) for key in parts]
    percents = [part.percent for part in parts.values()] if len(runs) == 1 else apportion(hours, 100.0, 1)
    return tuple(
        replace(part, amount=amount, percent=percent, finding="", when="")
        for part, amount, percent in zip(parts.values(), hours, percents, strict=True)
    )


def steps(variants: Variants) -> dict[str, Steps]:
    """Step times."""
    return {label: _steps(own) for label, own in _of_all(variants, lambda run: run.report.blocks).items()}


def _steps(runs: Sequence[StepBlocks]) -> Steps:
    # Runs of fewer steps have no blocks.
    blocks = [np.divide(one.sum_s, one.n) for one in runs if len(one.n) > 1]
    stalls = [one.stalls for one in runs if one.stalls is not None]
    return Steps(
        quantiles_s=_means([one.quantiles_s for one in runs]),
        means_s=_means(blocks) if len(blocks) == len(runs) else (),
        timed=sum(one.timed for one in runs),
        timed_s=math.fsum(second for one in runs for second in one.sum_s),
        stalls=sum(stalls) if len(stalls) == len(runs) else None,
        stalled_s=math.fsum(one.stalled_s for one in runs),
    )


def use(variants: Variants) -> dict[str, tuple[Use, ...]]:
    """Utilization of GPUs and cores in the training loop; of the variants that have either."""
    found: dict[str, list[Use]] = {label: [] for label in variants}
    for device, metric in (("GPU", Metric.GPU_UTILIZATION), ("CPU", Metric.CPU_UTILIZATION)):
        for label, own in _of_all(variants, methodcaller("stretches", metric)).items():
            amounts = [[math.fsum(part) for part in sums(one)] for one in own]
            mean = fmean([total / size for total, size in amounts])
            found[label].append(
                Use(device=device, mean=mean, histogram=_means([one.histogram for one in own]))
            )
    return {label: tuple(own) for label, own in found.items() if own}


def _means(rows: Sequence[Sequence[float]] | Sequence[np.ndarray]) -> tuple[float, ...]:
    """Mean of each place of rows of one length."""
    return tuple(np.mean(np.array(rows, np.float64), axis=0).tolist())


def rules(variants: Variants) -> list[Rule]:
    """Every rule that can trigger and that any run has, those with other results first."""
    found = list(_rules(variants))
    return sorted(found, key=lambda rule: not rule.changed)


def _rules(variants: Variants) -> Iterator[Rule]:
    cards = {
        label: [(run.report, card) for run in runs for card in run.report.rules if card.can_trigger]
        for label, runs in variants.items()
    }
    for name, title in {card.name: card.title for own in cards.values() for _, card in own}.items():
        known = {label: [one for one in own if one[1].name == name] for label, own in cards.items()}
        results = {
            label: min((_result(*one) for one in own), key=lambda one: ORDER.index(one.status))
            for label, own in known.items()
            if own
        }
        thresholds = {
            tuple((one.name, one.value) for one in card.parameters)
            for own in known.values()
            for _, card in own
        }
        yield Rule(
            name=escape_name(name),
            title=escape_name(title, 200),
            results=results,
            other_thresholds=len(thresholds) > 1,
            changed=len({one.status for one in results.values()}) > 1,
        )


def _result(report: Report, card: RuleCard) -> RuleResult:
    status: str = card.status
    if card.status is Status.TRIGGERED:
        finding = next((one for one in report.verdict.findings if card.name in one.rules), None)
        status = finding.severity if finding else Severity.INFO
    return RuleResult(status=status, percent=100 * card.severity if card.evaluated else None)


def run(one: RunOf) -> Run:
    """A run with its times."""
    job = one.report.job
    version = one.report.version
    return Run(name=one.name, report_version=version, start_us=job.start_us, end_us=job.end_us, page=one.page)


def profiled(variants: Variants) -> Profiled | None:
    """The profiled stretch of all variants; None if a run of any has no traces."""
    known = {label: [run.profile for run in runs if run.profile] for label, runs in variants.items()}
    if any(len(known[label]) < len(runs) for label, runs in variants.items()):
        return None
    per_step = all(capture.steps for own in known.values() for one in own for capture in one.captures)
    work, compared = changed_work(
        {label: [capture for one in own for capture in one.captures] for label, own in known.items()},
        per_step=per_step,
    )
    return Profiled(
        per_step=per_step,
        seconds={label: fmean([one.longest_s for one in own]) for label, own in known.items()},
        time={
            label: _parts(own, per_step=per_step)
            for label, own in known.items()
            if all(p.window_ns for p in own)
        },
        work=work,
        compared=compared,
    )


def _parts(profiles: Sequence[Profile], *, per_step: bool) -> tuple[TimePart, ...]:
    """Of repeats the mean of each part."""
    parts = [one.parts_ns() for one in profiles]
    # Of a step of one device; without steps, of one device.
    wholes = [
        sum((capture.steps if per_step else 1) * len(capture.devices) for capture in one.captures)
        for one in profiles
    ]
    return tuple(
        TimePart(
            key=key,
            label=named(key).title,
            role=named(key).role,
            amount=fmean([own[key] / whole / NS_PER_S for own, whole in zip(parts, wholes, strict=True)]),
            percent=fmean(
                [100 * own[key] / profile.window_ns for own, profile in zip(parts, profiles, strict=True)]
            ),
        )
        for key in PARTS
        if any(own[key] for own in parts)
    )


class _Table(Struct, frozen=True, kw_only=True):
    """The names of one capture that have most time."""

    #: Calls and nanoseconds.
    rows: dict[str, tuple[int, int]]
    #: Longest time of a name that is not among them.
    rest_ns: int


def changed_work(
    variants: Mapping[str, Sequence[Capture]], *, per_step: bool
) -> tuple[tuple[Work, ...], tuple[str, ...]]:
    """What changed most against the first variant, by kind; and the kinds of which all names could be compared.

    Amounts are those of a step of one rank, or of one capture where steps are not known. What is the same everywhere is
    left out.
    """
    kinds: dict[str, Callable[[Capture], _Table | None]] = {
        "operator": _operators,
        "mark": _marks,
        "kernel": _kernels,
    }
    found, compared = [], []
    for kind, table_of in kinds.items():
        recorded = {label: _recorded(own, table_of) for label, own in variants.items()}
        if not all(recorded.values()):
            continue
        names = {name for own in recorded.values() for _, table in own for name in table.rows}
        if names and not any(map(_PLACEHOLDER.match, names)):
            compared.append(kind)
        rows = [
            Work(
                kind=kind,
                name=name,
                variants={label: _time(own, name, per_step=per_step) for label, own in recorded.items()},
            )
            for name in names
            if not STEP.match(name) and not _PLACEHOLDER.match(name)
        ]
        changed = [row for row in rows if change_of(row)]
        found += sorted(changed, key=lambda row: (-change_of(row), row.name))[:MAX_CHANGED]
    return tuple(found), tuple(compared)


def change_of(row: Work) -> float:
    """Largest sure change of a variant against the first one."""
    base, *others = row.variants.values()
    return max(sure_change(base, other) for other in others)


def sure_change(one: WorkTime, other: WorkTime) -> float:
    """Seconds by which two times differ at least."""
    return max(0.0, one.low_s - other.high_s, other.low_s - one.high_s)


def _recorded(
    captures: Sequence[Capture], table_of: Callable[[Capture], _Table | None]
) -> list[tuple[Capture, _Table]]:
    return [(capture, table) for capture in captures if (table := table_of(capture))]


def _time(recorded: Sequence[tuple[Capture, _Table]], name: str, *, per_step: bool) -> WorkTime:
    whole = sum(capture.steps if per_step else 1 for capture, _ in recorded)
    rows = [table.rows.get(name) for _, table in recorded]
    known = [row for row in rows if row]
    low = sum(ns for _, ns in known)
    rest = sum(table.rest_ns for (_, table), row in zip(recorded, rows, strict=True) if row is None)
    return WorkTime(
        calls=None if rest else sum(calls for calls, _ in known) / whole,
        low_s=low / whole / 1e9,
        high_s=(low + rest) / whole / 1e9,
    )


def _operators(capture: Capture) -> _Table | None:
    """By their own time on the host; None if none were recorded."""
    rows = capture.operators
    # The first ones have most of it; the others are there for their time on devices.
    rest = rows[MAX_ROWS - 1].self_ns if capture.operator_names > len(rows) >= MAX_ROWS else 0
    return _summed([(row.name, row.calls, row.self_ns) for row in rows], rest) if rows else None


def _marks(capture: Capture) -> _Table | None:
    """By their time on the host, with what they hold; marks are recorded with operators."""
    rows = capture.marks
    rest = rows[-1].total_ns if len(rows) >= MAX_ROWS else 0
    return _summed([(row.name, row.calls, row.total_ns) for row in rows], rest) if capture.operators else None


def _kernels(capture: Capture) -> _Table | None:
    """By their time on all devices."""
    tables = [(device.kernels, device.kernel_names) for device in capture.devices if device.kernels]
    rest = sum(rows[-1].total_ns for rows, names in tables if names > len(rows))
    found = [(row.name, row.calls, row.total_ns) for rows, _ in tables for row in rows]
    return _summed(found, rest) if found else None


def _summed(rows: Iterable[tuple[str, int, int]], rest_ns: int) -> _Table:
    found: dict[str, tuple[int, int]] = {}
    for name, calls, ns in rows:
        before = found.get(name, (0, 0))
        found[name] = before[0] + calls, before[1] + ns
    return _Table(rows=found, rest_ns=rest_ns)


def saved(paid: Cost | None, measures: Sequence[Measure], runs: float | None) -> Cost | None:
    """The cost with what so many runs of the variants that can be compared would save."""
    if paid is None or runs is None:
        return paid
    base = paid.rows[0].cost
    against = next(one for one in measures if one.key == "cost").against
    monthly = {
        row.label: math.fsum((runs * base, -runs * row.cost))
        for row in paid.rows[1:]
        if against[row.label].word is not Word.REFUSED
    }
    return replace(paid, runs_per_month=runs, monthly=monthly)


def candidates(
    variants: Variants, prices: Prices | None, paid: Cost | None, chance: Mapping[str, float]
) -> dict[str, Sizing]:
    """Which machines may run each variant, of the list and those of the other variants.

    ``chance`` is how much a time differs from that of the base by chance, in logarithms.
    """
    found = {
        own: sizes.sizing(
            runs, prices, [_machines(own, one, variants, paid, chance) for one in variants if one != own]
        )
        for own, runs in variants.items()
    }
    return {label: size for label, size in found.items() if size}


def _machines(
    own: str, label: str, variants: Variants, paid: Cost | None, chance: Mapping[str, float]
) -> sizes.Variant:
    """Another variant, with what it took and cost if it did the same work."""
    runs = variants[label]
    both = together([*variants[own], *runs])
    if paid is None or both.stopped or not both.same_work:
        return sizes.Variant(label=label, run=runs[0])
    amounts = {row.label: row.cost for row in paid.rows}
    ratio = amounts[label] / amounts[own]
    return sizes.Variant(
        label=label,
        run=runs[0],
        seconds=fmean(run.seconds for run in runs),
        cost=ratio,
        is_sure=abs(math.log(ratio)) > max(chance.get(one, 0.0) for one in (own, label)),
    )
