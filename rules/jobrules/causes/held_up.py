"""What other GPUs lost while one was held back: in training in step they wait for the slowest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.intervals import Intervals, joined, union
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work import Work
from jobrules.model import (
    BoolArray,
    ByNode,
    Finding,
    FloatArray,
    Job,
    Metric,
    Note,
    Panel,
    RuleResult,
    Severity,
)
from jobrules.model.claims import Cause, Claimed, Precedence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.model.claims import Claim, Samples


class Straggler(Struct, frozen=True, kw_only=True, eq=False):
    """GPUs that were held back: when, corrected for clock offsets, and how much they were used then."""

    names: ByNode[set[str]]
    times: Intervals
    #: Mean utilization in percent.
    mean: float

    def of_node(self, node: str) -> Straggler:
        """What the part of one node needs."""
        return replace(self, names=self.names.of_node(node))


def held_up(
    job: Job,
    result: RuleResult,
    precedence: Precedence,
    when: str,
    reasons: Sequence[Metric] = (),
) -> tuple[Cause, ...]:
    """The cause that a rule on slow GPUs names: other GPUs wait for those of its first finding, if that is no info."""
    first, work = next(iter(result.findings), None), Work.of(job)
    if first is None or work is None or (reasons and first.severity is Severity.INFO):
        return ()
    slow = straggler(job, work, first.devices, reasons)
    if slow is None:
        return ()
    claim = partial(waiting_for, slow, work)
    return (
        Cause(
            key=first.key,
            precedence=precedence,
            when=when,
            claim=claim,
            finding=partial(_held_up, first),
        ),
    )


def _held_up(first: Finding, claimed: Claimed) -> Finding:
    del claimed
    counts = Note("The amount is how much less the other GPUs were used meanwhile")
    return replace(first, evidence=(*first.evidence, counts))


def straggler(job: Job, work: Work, names: Sequence[str], reasons: Sequence[Metric] = ()) -> Straggler | None:
    """The GPUs ``names``, while one of the reasons held them back, or if there is none during the work; None if never."""
    by_node = ByNode[set[str]]()
    for name in names:
        by_node.setdefault(name.rpartition("/")[0], set()).add(name)
    found = job.gathered(_held_back, work, by_node, tuple(reasons))
    if not found:
        return None
    weights = [length for _, _, length in found]
    return Straggler(
        names=by_node,
        times=joined([times for times, _, _ in found]),
        mean=float(np.average([mean for _, mean, _ in found], weights=weights)),
    )


def _held_back(
    part: Job, work: Work, names: ByNode[set[str]], reasons: tuple[Metric, ...]
) -> Iterator[tuple[Intervals, float, float]]:
    """For each of the GPUs: when, its mean utilization then, and for how long."""
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        late_us = work.clocks.late_us(panel.node)
        weight_us = sample_weights(panel.time_us, *work.clocks.span_us(panel.node)).weight_us
        for column, device in enumerate(panel.devices):
            if f"{panel.node}/{device}" not in names.get(panel.node, ()):
                continue
            values = panel.values[:, column]
            rows = work.holds(panel.time_us, panel.node) & ~np.isnan(values)
            if reasons:
                rows &= _with_reason(part, panel, device, reasons)
            if rows.any():
                start_us = panel.time_us[rows] - late_us
                times = union(start_us, start_us + weight_us[rows].astype(np.int64))
                yield (
                    times,
                    float(np.average(values[rows], weights=np.maximum(weight_us[rows], 1))),
                    float(times.total),
                )


def _with_reason(part: Job, panel: Panel, device: str, reasons: Sequence[Metric]) -> BoolArray:
    """(n,) snapshots in which a reason held the GPU back."""
    found = np.zeros(len(panel.time_us), np.bool_)
    for metric in reasons:
        reason = part.panel(panel.node, metric)
        if reason is not None and device in reason.devices:
            _, at, rows = np.intersect1d(
                panel.snapshot, reason.snapshot, assume_unique=True, return_indices=True
            )
            found[at] |= reason.values[rows, reason.devices.index(device)] > 0
    return found


def waiting_for(slow: Straggler, work: Work, part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim how much less than the stragglers the other GPUs were used while these were held back."""
    del part, weight_us
    names = slow.names.get(panel.node, ())
    ahead_us = work.clocks.late_us(panel.node)

    def of_gpu(gpu: Samples) -> FloatArray:
        then = slow.times.holds(gpu.time_us - ahead_us) & gpu.in_work
        time_us, left_us = float(gpu.weight_us[then].sum()), float(gpu.left_us[then].sum())
        if gpu.name in names or not time_us or not left_us:
            return np.zeros(len(gpu.values))
        behind_us = max(0.0, left_us - (1 - slow.mean / 100) * time_us)
        return np.where(then, gpu.left_us * min(1.0, behind_us / left_us), 0.0)

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]
