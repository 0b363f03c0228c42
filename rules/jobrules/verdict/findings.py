"""The verdict: how the time was spent, and findings, the worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work import Work
from jobrules.model import Finding, Inferred, Job, Note, RuleResult, Severity, Status
from jobrules.model.claims import Cause, Claimed
from jobrules.model.finding import OF_LOOP
from jobrules.model.names import OwnText
from jobrules.rule import Role, Rule
from jobrules.rules.traces.shares import NO_GPU_ACTIVITY, PROFILED_TIME
from jobrules.text import capitalized, join_names, percent
from jobrules.verdict.account import account_of, causes_of_rules
from jobrules.verdict.code_lines import with_lines
from jobrules.verdict.late_ranks import SLOW_RANK, late_start, slow_rank
from jobrules.verdict.learning import LearningLoss, learning_loss, training_findings
from jobrules.verdict.loop_parts import loop_findings, recompilations
from jobrules.verdict.memory_growth import memory_growth
from jobrules.verdict.not_evaluated import NOT_RECORDED, NotEvaluated, by_reason, how_many, how_to_record
from jobrules.verdict.observations import (
    CROWDED,
    LOST_SAMPLES,
    NOT_MEASURED,
    clock_offsets,
    disjoint_times,
    io_pauses,
    late_first_step,
    memory_kills,
    nearly_full,
    other_processes,
    pauses,
)
from jobrules.verdict.on_cores import free_cores, trainings
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.profiled import (
    LONGER_TRACE,
    ProfiledTime,
    in_order,
    too_little_profiled,
    with_place,
    with_traces,
)
from jobrules.verdict.story import (
    CRITICAL_SHARE,
    DATA_LOADING,
    SEVERITIES,
    UNEXPLAINED_LOSS,
    WARNING_SHARE,
    Account,
    Checks,
    Story,
    join_explained,
    joined_accounts,
    story_of,
)
from jobrules.verdict.time_use import TimeUse, time_use

_WHOLE_TRACE = (
    "Traces with all events, to see why GPUs idled: record `ProfilerActivity.CPU`, too, and remove no event."
)

#: What is said of a rule that did not trigger.
_QUIET = {
    Status.PASSED: ("the condition of {} was not met", "the conditions of {} were not met"),
    Status.NOT_EVALUATED: ("{} was not evaluated", "{} were not evaluated"),
    Status.ERROR: ("{} failed", "{} failed"),
}

#: Place of lost time without a cause among findings of one severity: after causes.
_UNEXPLAINED = 1

#: Recordings named where nothing was found, those first that would explain most.
MAX_RECORD_NEXT = 3


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer for a reader with ten seconds."""

    #: None if neither GPU nor CPU samples exist, or if they cover no time.
    use: TimeUse | None
    #: All findings, worst first; findings of one cause are one.
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    #: Number of rules that apply to the job, without the summaries.
    rules: int
    #: Share of the job's GPU time that the causes of a rule claimed, by its name; those without a finding too.
    explains: dict[OwnText, float] = {}
    #: What there is too little of, if the job cannot be judged: ``41 s of GPU work``.
    too_little: OwnText = ""
    #: From how little the job is judged: ``36 s of work and 300 steps``; empty if it is not little.
    little: OwnText = ""
    #: How the time in traces of PyTorch's profiler was spent; left out if too little was profiled.
    profiled: ProfiledTime | UnsetType = UNSET
    #: Used time that did not improve the model; left out if there is none, or if nothing of the training was recorded.
    learning: LearningLoss | UnsetType = UNSET

    @property
    def main_finding(self) -> Finding | None:
        """The first finding; None without findings."""
        return next(iter(self.findings), None)

    @property
    def lead(self) -> Finding | None:
        """The finding that is said first: the main one, unless it is a remark on little time or none."""
        first = self.main_finding
        if first is None or (first.severity is Severity.INFO and (first.share or 0.0) < WARNING_SHARE):
            return None
        return first

    def is_cause(self, finding: Finding) -> bool:
        """True if a finding is a cause of lost time: it explains a part of the bar, which is that of traces if nothing else
        is known.
        """
        return finding.key != UNEXPLAINED_LOSS and _explains(finding, self.use or self.profiled)

    @property
    def missing(self) -> int:
        """How many rules that apply were not evaluated."""
        return sum(one.applies for one in self.not_evaluated)

    @property
    def how_many(self) -> str:
        """``7 of 18 rules were not evaluated``."""
        return how_many(self.missing, self.rules)

    @property
    def advice_head(self) -> str:
        """What the advice is called."""
        is_known = self.lead and (self.lead.key != UNEXPLAINED_LOSS or self.lead.because_of)
        return "Try first" if is_known else "Record next"

    @property
    def advice(self) -> tuple[str, ...]:
        """The advice of the lead; without one, what to record to see lost time, or anything at all."""
        if self.lead:
            return self.lead.advice
        if not self.use and self.too_little:
            return (LONGER_TRACE,)
        lost = self.use is None or (self.use.device == "GPU" and self.use.of("lost")[0] > 0)
        missing = next((g for g in by_reason(self.not_evaluated) if g.head == NOT_RECORDED), None)
        if not missing or not (lost or self.missing == self.rules):
            return ()
        first = [lack.brief for lack in missing.lacks[:MAX_RECORD_NEXT]]
        if self.not_explained:
            return (_WHOLE_TRACE, f"{capitalized(join_names(first))}, to see what was not checked.")
        return (f"{capitalized(join_names(first))}, to see what was not checked.", *how_to_record(first))

    @property
    def too_short(self) -> str:
        """``Too short to judge: 41 s of GPU work.``; empty if the job is long enough."""
        return f"Too short to judge: {self.too_little}." if self.too_little else ""

    @property
    def caveat(self) -> str:
        """What stands against a judgment: most of the samples are lost, or there is too little; empty if nothing does."""
        first = self.main_finding
        is_lost = first and first.key == LOST_SAMPLES and first.severity is not Severity.INFO
        return " ".join(filter(None, [f"{first.title}." if first and is_lost else "", self.too_short]))

    @property
    def not_explained(self) -> str:
        """What traces alone leave open: ``40.0% of the profiled time``; empty if it is little."""
        unknown = self.profiled.of("unknown") if self.profiled and not self.use else 0.0
        return f"{percent(unknown)} {PROFILED_TIME}" if unknown >= 100 * WARNING_SHARE else ""

    @property
    def without_samples(self) -> str:
        """Why utilization is not known: ``neither GPU nor CPU samples were recorded over time``."""
        missing = "neither GPU nor CPU samples were recorded over time"
        has_traces = any(one.reason == NO_GPU_ACTIVITY for one in self.not_evaluated)
        return f"{missing}, and the traces hold no GPU activity" if has_traces else missing


def judge(
    job: Job,
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    phases: JobPhases,
    others: Account | None = None,
    known: Sequence[Finding] = (),
    *,
    strict: bool = False,
) -> Verdict:
    """The verdict on a job, from the results of its rules during its work and from its phases.

    ``others`` is the account of GPUs without samples, ``known`` are findings on them, both from another source.
    What a cause of a rule raises is an error of its rule, unless ``strict``.
    """
    every = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.can_trigger]
    checks: Checks = [
        (rule, with_place(job, rules, rule, result)) for rule, result in every if not rule.of_learning
    ]
    verdict = _of_machine(job, checks, phases, others, known, strict=strict)
    return _with_training(verdict, job, [check for check in every if check[0].of_learning])


def _of_machine(
    job: Job,
    checks: Checks,
    phases: JobPhases,
    others: Account | None,
    known: Sequence[Finding],
    *,
    strict: bool,
) -> Verdict:
    """The verdict on all but the training itself."""
    if not (job.gpu_count and job.covers_time and Clocks.of(job).length_us):
        return _of_others(job, checks, phases, others, known, strict=strict)
    account = account_of(job, checks, strict=strict)
    story = story_of(joined_accounts(account, others) if others else account, strict=strict)
    unmeasured_us = sum(device.unmeasured for node in story.account.nodes for device in node.devices)
    found = [
        *_with_waits_of_ranks(job, story.findings),
        *late_start(job),
        *recompilations(job),
        *_about_samples(job, phases, story.use, unmeasured_us),
    ]
    return _ranked(job, story.account.checks, found, story.use, story)


def _with_training(verdict: Verdict, job: Job, checks: Checks) -> Verdict:
    """With what the rules on the training found; they are no rules of a job without any record of it."""
    if job.learning is None:
        return verdict
    unanswered = _unanswered(checks)
    return replace(
        verdict,
        findings=training_findings(job, job.learning, checks, verdict.findings, verdict.use),
        not_evaluated=(*verdict.not_evaluated, *unanswered),
        rules=verdict.rules + _applying(checks, unanswered),
        learning=learning_loss(job, checks) or UNSET,
    )


def _unanswered(checks: Checks) -> tuple[NotEvaluated, ...]:
    return tuple(
        NotEvaluated(rule=rule.name, status=result.status, reason=result.reason)
        for rule, result in checks
        if result.status in (Status.NOT_EVALUATED, Status.ERROR) and result.reason
    )


def _applying(checks: Checks, unanswered: Sequence[NotEvaluated]) -> int:
    """How many rules apply."""
    return len(checks) - sum(not one.applies for one in unanswered)


def _with_waits_of_ranks(job: Job, findings: Sequence[Finding]) -> Sequence[Finding]:
    """With the finding on a slow rank as a share of the training loop, if little of it is known as lost GPU time: a GPU that
    waits in an exchange counts as used.
    """
    slow = slow_rank(job)
    if slow is None:
        return findings
    found = in_loop(slow, job.steps_us or job.span_us, job.nodes)
    told = [one.share or 0.0 for one in findings if one.key in (found.key, *found.because_of)]
    if 2 * max(told, default=0.0) >= slow.of_loop:
        return findings
    return [replace(found, because_of=()), *(one for one in findings if one.key != found.key)]


def _of_others(
    job: Job,
    checks: Checks,
    phases: JobPhases,
    others: Account | None,
    known: Sequence[Finding],
    *,
    strict: bool,
) -> Verdict:
    """The verdict on a job whose GPUs were not sampled: on its cores and traces, and what is known from elsewhere."""
    use = time_use(job)
    checks, causes = causes_of_rules(job, checks, strict=strict)
    story = story_of(replace(others, checks=checks), strict=strict) if others else None
    taken = {*story.claims} if story else {one.key for one in known}
    span_us = job.steps_us or job.span_us
    waits = [in_loop(cause, span_us, job.nodes) for cause, _ in causes if cause.of_loop >= WARNING_SHARE]
    slow = slow_rank(job)
    waits += [in_loop(slow, span_us, job.nodes)] if slow else []
    loops = [*loop_findings(job), *late_start(job), *recompilations(job)]
    has_gpus = story or job.captures or any(part.gpus for part in job.facts)
    work = None if waits or loops or has_gpus else Work.of(job)
    found = [
        *other_processes(job),
        *(() if work or has_gpus else io_pauses(job)),
        *(() if story else _without_gpus(job, checks)),
        *waits,
        *loops,
        *free_cores(job.gathered(trainings, work, job.loop_facts) if work and work.enough else ()),
        *_about_samples(job, phases, use, 0.0),
    ]
    # What is known may join the results of several rules.
    told = {rule for one in known for rule in one.rules}
    found = [one for one in found if one.key not in taken and not (one.rules and {*one.rules} <= told)]
    if story:
        return _ranked(job, story.account.checks, [*story.findings, *found], story.use, story)
    return _ranked(job, checks, join_explained([*known, *found]), use)


def _ranked(
    job: Job, checks: Checks, findings: Iterable[Finding], use: TimeUse | None, story: Story | None = None
) -> Verdict:
    """The findings in their order, the bars, and what was not evaluated.

    ``use`` is that of the ``story``, if there is one. Findings on the traces of the job have their own part of the profiled
    time.
    """
    rules = [rule for rule, _ in checks]
    findings = [_on_own_ground(finding, checks) for finding in findings]
    use = _with_unmeasured(use, findings)
    profiled, findings, of_traces = with_traces(job, rules, findings)
    findings = with_lines(job, findings)
    # What steps show is judged by these, however few the samples are.
    by_steps = any(finding.key == SLOW_RANK for finding in findings)
    too_little = story.too_short if story and not by_steps else ""
    if not (profiled or use):
        too_little = too_little_profiled(job)
    known = sum(one.share or 0 for one in findings if one.gpu_s is not None and one.key != UNEXPLAINED_LOSS)
    waits = any(finding.key in (DATA_LOADING, SLOW_RANK) for finding in findings)
    findings.sort(key=lambda finding: _rank(finding, known, of_traces, waits=waits))
    not_evaluated = _unanswered(checks)
    return Verdict(
        use=use,
        findings=tuple(findings),
        not_evaluated=not_evaluated,
        rules=_applying(checks, not_evaluated),
        explains=story.explains if story else {},
        too_little=too_little,
        little=work.little if (work := Work.of(job)) and not too_little else "",
        profiled=in_order(profiled, findings) if profiled else UNSET,
    )


def _with_unmeasured(use: TimeUse | None, findings: Iterable[Finding]) -> TimeUse | None:
    """With the finding on the time that was not measured, if there is one."""
    if not (use and use.device == "GPU" and any(finding.key == NOT_MEASURED for finding in findings)):
        return use
    parts = (replace(p, finding=NOT_MEASURED) if p.role == "unknown" else p for p in use.parts)
    return replace(use, parts=tuple(parts))


def _on_own_ground(finding: Finding, checks: Checks) -> Finding:
    """Without the rules that did not trigger, whose cards say so; if no cause is left, a note says what it stands on."""
    quiet = {
        words: names
        for status, words in _QUIET.items()
        if (
            names := [
                rule.name for rule, found in checks if found.status is status and rule.name in finding.rules
            ]
        )
    }
    if not quiet or not finding.share_of:
        return finding
    silent = {name for some in quiet.values() for name in some}
    finding = replace(finding, rules=tuple(name for name in finding.rules if name not in silent))
    causes = {rule.name for rule, _ in checks if rule.role is Role.CAUSE}
    # What is inferred names its source, which may be a result of the same rule from elsewhere.
    if causes.intersection(finding.rules) or any(isinstance(one, Inferred) for one in finding.evidence):
        return finding
    why = [words[len(some) > 1].format(join_names(some)) for words, some in quiet.items()]
    note = Note(f"Reported for its share {finding.share_of}; {join_names(why)}")
    return replace(finding, evidence=(*finding.evidence, note))


def _about_samples(job: Job, phases: JobPhases, use: TimeUse | None, unmeasured_us: float) -> list[Finding]:
    return [
        *pauses(job, phases, use, unmeasured_us),
        *clock_offsets(job),
        *disjoint_times(job),
        *memory_kills(job),
        *memory_growth(job),
        *nearly_full(job),
    ]


def _rank(
    finding: Finding, known: float, of_traces: Collection[str], *, waits: bool
) -> tuple[int, int, bool, float]:
    """Worst first; then causes of lost time, lost time without a cause, the rest, and time that was not measured.

    Lost time without a cause follows every cause, unless it is more than all of them explain (``known``).
    Other processes on the job's cores come before all, for what they take makes the times of the job longer; after all others
    if training ``waits`` for data or for a rank, which was measured. Findings on a part
    of the profiled time (``of_traces``, by key) come before others of their severity that are no causes of the whole job,
    and may be those of a loss that nothing else explains.
    """
    kind, severity = 0 if finding.gpu_s is not None else 2, finding.severity
    if finding.key == UNEXPLAINED_LOSS and (finding.share or 0) <= known:
        severity = Severity.WARNING
    if finding.key in (UNEXPLAINED_LOSS, NOT_MEASURED):
        kind = _UNEXPLAINED if finding.key == UNEXPLAINED_LOSS else 3
    if finding.key == CROWDED:
        kind = 3 if waits else -1
    is_of_traces = finding.key in of_traces
    kind = min(kind, _UNEXPLAINED) if is_of_traces else kind
    return SEVERITIES.index(severity), kind, not is_of_traces, -(finding.share or 0)


def _without_gpus(job: Job, checks: Checks) -> tuple[Finding, ...]:
    """Findings of a job whose GPUs were not sampled."""
    found = [
        finding for rule, result in checks for finding in result.findings if rule.role is not Role.SYMPTOM
    ]
    late = any(rule.role is Role.START_UP and result.findings for rule, result in checks)
    return (*found, *late_first_step(job, started=late))


def in_loop(cause: Cause, span_us: tuple[int, int], nodes: tuple[str, ...]) -> Finding:
    """The finding on a cause that took a share of the training loop, without an amount of GPU time."""
    start_us, end_us = span_us
    nothing = Claimed(
        gpu_s=0.0,
        share=0.0,
        devices=(),
        nodes=nodes,
        snapshots=0,
        of_snapshots=0,
        start_us=start_us,
        end_us=end_us,
    )
    return replace(
        cause.finding(nothing),
        severity=Severity.CRITICAL if cause.of_loop >= CRITICAL_SHARE else Severity.WARNING,
        share=round(cause.of_loop, 3),
        share_of=OF_LOOP,
    )


def _explains(finding: Finding, use: TimeUse | ProfiledTime | UnsetType | None) -> bool:
    return isinstance(use, TimeUse | ProfiledTime) and any(
        part.finding == finding.key for part in use.parts if part.role == "lost"
    )
