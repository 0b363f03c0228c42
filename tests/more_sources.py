"""What a report on more sources must not lose of one on fewer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobreport.document import Report
from jobrules.model import ReasonKind, in_words
from jobrules.verdict.accounting import UNEXPLAINED
from jobrules.verdict.findings import Verdict
from jobrules.verdict.story import UNEXPLAINED_LOSS

#: Causes of more are compared, and better evidence may find so much less. Of another whole, all that is asked is a name.
NAMED_PERCENT, KEPT_PART, OF_ANOTHER_WHOLE = 5.0, 0.8, 1.0
#: What a cause turns out to be when more is known.
FINER = {"saturated-process": ("data-loading", "cpu-bottleneck")}
#: What a card shows to be recorded.
SHOWN = {
    "Dataloader": ("loader events", "data loading"),
    "StepOutlier": ("steps",),
    "CPUBottleneck": ("CPU utilization", "CPU utilization per core"),
    "IOBottleneck": ("I/O wait",),
}


def causes(verdict: Verdict) -> dict[str, float]:
    """Percent of GPU time by cause; without GPUs, that of the training loop."""
    parts = verdict.use.parts if verdict.use else ()
    found = {one.key: one.percent for one in parts if one.role == "lost" and one.key not in UNEXPLAINED}
    return found or {
        one.key: 100 * (one.share or 0) for one in verdict.findings if one.share_of == "of the training loop"
    }


def _whole(verdict: Verdict) -> str:
    """What shares of causes are of."""
    named = (
        any(part.role == "lost" and part.key not in UNEXPLAINED for part in verdict.use.parts)
        if verdict.use
        else False
    )
    return "of GPU time" if named else "of the training loop"


def _knows_cause(verdict: Verdict) -> bool:
    return any(map(verdict.is_cause, verdict.findings[:1]))


def _is_finer(first: str, now: str, before: Verdict) -> bool:
    """True if a first finding stands, turns out to be another, or gives way to the cause of what was unexplained."""
    unexplained = any(one.key == UNEXPLAINED_LOSS for one in before.findings)
    new = now not in {one.key for one in before.findings}
    return now in (first, *FINER.get(first, ())) or (unexplained and new)


def _recorded(report: Report) -> set[str]:
    shown = {what for card in report.rules if card.was_evaluated for what in SHOWN.get(card.name, ())}
    loading = {"data loading"} if "data-loading" in causes(report.verdict) else set()
    return shown | loading | ({"steps"} if report.job.steps else set())


def _not_recorded(report: Report) -> set[str]:
    """What the report says of its rules, and of its findings."""
    reasons = {
        one.reason.what for one in report.verdict.not_evaluated if one.reason.kind is ReasonKind.NOT_RECORDED
    }
    words = " ".join(in_words(one.evidence) for one in report.verdict.findings)
    said = {
        what
        for sentence in re.findall(r"Not recorded: ([^.]*)", words)
        for what in re.split(r", and |, | and ", sentence)
    }
    return reasons | said


def lost(fewer: Report, more: Report) -> Iterator[str]:
    """What a report has not that one on a part of its sources has, in words."""
    kept, same_whole = causes(more.verdict), _whole(fewer.verdict) == _whole(more.verdict)
    for cause, percent in causes(fewer.verdict).items():
        now = max(kept.get(one, 0.0) for one in (cause, *FINER.get(cause, ())))
        if percent >= NAMED_PERCENT and now < (KEPT_PART * percent if same_whole else OF_ANOTHER_WHOLE):
            yield f"{cause}: {percent} to {now}"
    first, now_first = fewer.verdict.lead, more.verdict.lead
    if first and not (now_first and _is_finer(first.key, now_first.key, fewer.verdict)):
        yield f"first finding: {first.key} to {now_first and now_first.key}"
    if _knows_cause(fewer.verdict) and not _knows_cause(more.verdict):
        yield "no cause is known any more"
    yield from (f"not recorded: {what}" for what in sorted(_recorded(fewer) & _not_recorded(more)))
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
