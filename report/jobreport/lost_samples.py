"""What the recorder could not write, as a finding: what others are about may follow from it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobrules.model import Finding, Job, Note, Severity, When, Where, natural_sorted
from jobrules.text import count, escape_name, number
from jobrules.verdict.loop_parts import UNNAMED_ADVICE
from jobrules.verdict.observations import DISJOINT_TIMES, LOST_SAMPLES, NOT_MEASURED, RELEVANT_PERCENT
from jobrules.verdict.story import SEVERITIES

if TYPE_CHECKING:
    from jobreport.remarks import Quality
    from jobrules.verdict.findings import Verdict

#: A larger part is critical.
_CRITICAL_PERCENT = 50.0
_MAX_REASONS = 2
_ADVICE = {
    "--max-bytes": "Raise `--max-bytes`, or sample less often: `--interval`.",
    "No space left": "Free space where the recording lies, or record into another folder: `record-job --out`.",
    "quota": "Free space where the recording lies, or record into another folder: `record-job --out`.",
    "": "Record into a folder that the job can write to until its end: `record-job --out`.",
}


def with_lost_samples(verdict: Verdict, quality: Quality, job: Job) -> Verdict:
    """The verdict with a finding on samples and events that the recorder lost; before all others if it lost many samples.

    It takes the place of findings that follow from it: time without samples or steps, and times that do not overlap.
    """
    recordings = [one for source in quality.sources for one in source.recordings]
    runs = [(one, run) for one in recordings for run in one.runs if run.dropped_samples or run.dropped_events]
    if not runs:
        return verdict
    samples, events = sum(run.dropped_samples for _, run in runs), sum(run.dropped_events for _, run in runs)
    kept = sum(source.rows for source in quality.sources if source.source == "system samples")
    of = {"sample": (samples, kept), "event": (events, job.event_count)}
    lost, lost_events = (100 * n / (n + rest) if n else 0.0 for n, rest in of.values())
    start_us = min(run.dropped_since_us or run.start_us for _, run in runs)
    end_us = max(run.dropped_until_us or run.end_us or job.span_us[1] for _, run in runs)
    reasons = [*dict.fromkeys(escape_name(run.dropped_reason, 120) for _, run in runs if run.dropped_reason)]
    what = " and ".join(f"{number(n, 0)} of {count(n + rest, name)}" for name, (n, rest) in of.items() if n)
    more = [f"{len(reasons) - _MAX_REASONS} more"] if len(reasons) > _MAX_REASONS else []
    why = "; ".join([*reasons[:_MAX_REASONS], *more])
    title = f"{what} {'was' if samples + events == 1 else 'were'} lost{why and f': {why}'}"

    def follows(finding: Finding) -> bool:
        first_us, last_us = finding.start_us or 0, finding.end_us or 0
        is_gap = finding.key in (NOT_MEASURED, DISJOINT_TIMES) or (
            events > 0 and finding.advice == UNNAMED_ADVICE
        )
        return is_gap and first_us <= end_us and start_us <= last_us

    others = [one for one in verdict.findings if not follows(one)]
    unmeasured = next((one for one in verdict.findings if one.key == NOT_MEASURED and follows(one)), None)
    advice = next(text for part, text in _ADVICE.items() if any(part in reason for reason in reasons or [""]))
    is_much = lost >= RELEVANT_PERCENT or len(others) < len(verdict.findings)
    severity = Severity.CRITICAL if lost >= _CRITICAL_PERCENT else Severity.WARNING
    if not is_much and lost_events < RELEVANT_PERCENT:
        severity = Severity.INFO
    finding = Finding(
        key=LOST_SAMPLES,
        severity=severity,
        title=title,
        evidence=(
            Where(natural_sorted({one.node for one, _ in runs})),
            When(start_us, max(start_us, end_us)),
            *((Note(unmeasured.title),) if unmeasured else ()),
        ),
        advice=(advice, *(("What else the report says stands on what was kept.",) if is_much else ())),
        rules=(),
        section="quality",
        start_us=start_us,
        end_us=max(start_us, end_us),
    )
    use = verdict.use
    if use and is_much:
        parts = (replace(p, finding=LOST_SAMPLES) if p.role == "unknown" else p for p in use.parts)
        use = replace(use, parts=tuple(parts))
    found = [finding, *others]
    if not is_much:
        found = sorted([*others, finding], key=lambda one: SEVERITIES.index(one.severity))
    return replace(verdict, use=use, findings=tuple(found))
