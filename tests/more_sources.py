"""What a report on more sources must not lose of one on fewer."""

from __future__ import annotations

from collections.abc import Iterator

from jobreport.document import Report
from jobrules.verdict.accounting import UNEXPLAINED
from jobrules.verdict.findings import Verdict

#: A cause of less is on the edge of being named, and may be found in less time by better evidence.
NAMED_PERCENT, KEPT_PART = 10.0, 0.5
#: What a saturated process of which nothing else is known turns out to be.
FINER = {"saturated-process": ("data-loading", "cpu-bottleneck")}


def causes(verdict: Verdict) -> dict[str, float]:
    """Percent of GPU time by cause; without GPUs, that of the training loop."""
    parts = verdict.use.parts if verdict.use else ()
    found = {one.key: one.percent for one in parts if one.role == "lost" and one.key not in UNEXPLAINED}
    return found or {
        one.key: 100 * (one.share or 0) for one in verdict.findings if one.share_of == "of the training loop"
    }


def lost(fewer: Report, more: Report) -> Iterator[str]:
    """What a report has not that one on a part of its sources has, in words."""
    kept = causes(more.verdict)
    for cause, percent in causes(fewer.verdict).items():
        # With GPUs, shares are of another whole.
        of_gpus = fewer.verdict.use is not None and fewer.verdict.use.device == "GPU"
        now = max(kept.get(one, 0.0) for one in (cause, *FINER.get(cause, ())))
        if percent >= NAMED_PERCENT and now < (KEPT_PART * percent if of_gpus else 1.0):
            yield f"{cause}: {percent} to {now}"
    answered = {card.name for card in more.rules if card.was_evaluated}
    for card in fewer.rules:
        if card.was_evaluated and card.name not in answered:
            yield f"{card.name} is not evaluated"
    nodes = {node.name: node for node in more.job.nodes}
    for node in fewer.job.nodes:
        same = nodes.get(node.name)
        if same is None or same.gpus < node.gpus or same.cores < node.cores:
            yield f"devices of {node.name}"
    if more.job.steps < fewer.job.steps:
        yield "steps"
    rows = {(row.node, row.label) for row in more.utilization}
    yield from (
        f"{row.label} of {row.node}" for row in fewer.utilization if (row.node, row.label) not in rows
    )
    had_gpus = any(row.label == "GPU" for row in fewer.utilization)
    if had_gpus and (more.verdict.use is None or more.verdict.use.device != "GPU"):
        yield "GPU time"
