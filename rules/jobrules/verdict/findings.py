"""The verdict: how the time was spent, and findings that are joined by cause and ranked.

The story of a job is told in steps, each from what the steps before found:

1. each lost moment of each GPU goes to one cause (``accounting``);
2. a cause of at least 5% of the GPU time is a finding, and so is as much loss without a cause;
3. rules that explain no lost time report on their own;
4. a saturated CPU and waiting for data are one finding, symptoms are evidence of the main cause;
5. the worst come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from jobrules.claims import Cause, Claimed
from jobrules.max_initialization_time import MaxInitializationTime
from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import Loading
from jobrules.measures.work import Work
from jobrules.model import (
    SECOND_US,
    AlsoSeenAs,
    Finding,
    Job,
    Metric,
    Note,
    RuleResult,
    Severity,
    Status,
    When,
)
from jobrules.rule import Role, Rule
from jobrules.text import capitalized, duration, join_names, percent
from jobrules.verdict.accounting import UNEXPLAINED, NodeTime, claimed, spent_per_node
from jobrules.verdict.edges import START_UP, WIND_DOWN, edges
from jobrules.verdict.not_evaluated import NotEvaluated, how_many
from jobrules.verdict.observations import (
    NOT_MEASURED,
    clock_offsets,
    disjoint_times,
    late_first_step,
    pauses,
)
from jobrules.verdict.phases import JobPhases
from jobrules.verdict.time_use import LABELS, TimeUse, in_parts, time_use

#: Share of the job's GPU time from which a finding is a warning, and from which it is critical.
WARNING_SHARE, CRITICAL_SHARE = 0.05, 0.2

#: Start-up and wind-down that are shorter are part of any job.
WARNING_EDGE_US, CRITICAL_EDGE_US = 5 * 60 * SECOND_US, 15 * 60 * SECOND_US

#: With less work or fewer snapshots, a job is too short to judge.
MIN_WORK_US, MIN_SNAPSHOTS = 60 * SECOND_US, 30

#: Keys of findings that others refer to.
UNEXPLAINED_LOSS, DATA_LOADING, CPU_BOTTLENECK = "unexplained", "data-loading", "cpu-bottleneck"

_ORDER = list(Severity)

#: The rules with their results during the work.
Checks = Sequence[tuple[Rule, RuleResult]]


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
    explains: dict[str, float] = {}
    #: Length of the GPUs' work in seconds if it is too short to judge; None if it is not.
    too_short_s: float | None = None

    @property
    def main_finding(self) -> Finding | None:
        """The first finding; None without findings."""
        return next(iter(self.findings), None)

    @property
    def has_cause(self) -> bool:
        """True if the main finding is a cause of lost time: it explains a part of the bar."""
        main = self.main_finding
        return main is not None and main.key != UNEXPLAINED_LOSS and _explains(main, self.use)

    @property
    def missing(self) -> int:
        """How many rules that apply were not evaluated."""
        return sum(one.applies for one in self.not_evaluated)

    @property
    def how_many(self) -> str:
        """``7 of 18 rules were not evaluated``."""
        return how_many(self.missing, self.rules)

    @property
    def second_cause(self) -> Finding | None:
        """The next finding that explains lost time, if the main finding is a cause."""
        if not self.has_cause:
            return None
        others = (f for f in self.findings[1:] if f.key != UNEXPLAINED_LOSS and _explains(f, self.use))
        return next(others, None)

    @property
    def main_head(self) -> str:
        """What the main finding is called."""
        if self.main_finding and self.main_finding.key == UNEXPLAINED_LOSS:
            return "No cause found"
        return "Main cause" if self.has_cause else "Main finding"

    @property
    def advice_head(self) -> str:
        """What the advice of the main finding is called."""
        return "Record next" if self.main_head == "No cause found" else "Try first"

    @property
    def without_finding(self) -> str:
        """What stands in place of findings: ``No problem found. 9 of 18 rules were not evaluated, so …``."""
        if self.too_short_s is not None:
            return f"Too short to judge: {duration(SECOND_US * self.too_short_s)} of GPU work."
        missing, evaluated = self.missing, self.how_many
        if missing == self.rules:
            return f"{evaluated}."
        return (
            f"No problem found. {evaluated}, so what they look for is not ruled out."
            if missing
            else "No problem found."
        )


class _Story(Struct, frozen=True, kw_only=True):
    """What is known of a job with GPUs, step by step."""

    job: Job
    checks: Checks
    work: Work | None
    causes: tuple[Cause, ...] = ()
    #: Rule of each cause that has one, by the key of the cause.
    owners: dict[str, str] = {}
    nodes: tuple[NodeTime, ...] = ()
    #: What each cause claimed, by its key.
    claims: dict[str, Claimed] = {}
    findings: tuple[Finding, ...] = ()
    #: Key of the finding that explains a part of the lost time, by the key of the part.
    explained_by: dict[str, str] = {}


def judge(job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], phases: JobPhases) -> Verdict:
    """The verdict on a job, from the results of its rules during its work and from its phases."""
    checks: Checks = [(rule, result) for rule, result in zip(rules, results, strict=True) if rule.can_trigger]
    use: TimeUse | None
    findings: Sequence[Finding]
    too_short_s, unmeasured_us, explains = None, 0.0, {}
    if job.gpu_count and job.covers_time and Clocks.of(job).length_us:
        story = _Story(job=job, checks=checks, work=Work.of(job))
        story = _account(story)
        too_short_s = _too_short_s(story)
        if too_short_s is None:
            story = _name_causes(story)
            story = _name_the_rest(story)
            story = _join_chain(story)
            story = _add_symptoms(story)
        story = _observe(story)
        use = _time_use(story)
        findings = _as_printed(story, use) if use else story.findings
        explains, checks = _explained_by_rule(story), story.checks
        unmeasured_us = sum(device.unmeasured for node in story.nodes for device in node.devices)
    else:
        use, findings = time_use(job), _without_gpus(job, checks)
    findings = _join_explained(findings)
    unmeasured = pauses(job, phases, use, unmeasured_us)
    if use and use.device == "GPU" and unmeasured:
        parts = (replace(p, finding=NOT_MEASURED) if p.role == "unknown" else p for p in use.parts)
        use = replace(use, parts=tuple(parts))
    not_evaluated = tuple(
        NotEvaluated(rule=rule.name, status=result.status, reason=result.reason)
        for rule, result in checks
        if result.status in (Status.NOT_EVALUATED, Status.ERROR) and result.reason
    )
    return Verdict(
        use=use,
        findings=tuple(
            sorted([*findings, *unmeasured, *clock_offsets(job), *disjoint_times(job)], key=_rank)
        ),
        not_evaluated=not_evaluated,
        rules=len(checks) - sum(not one.applies for one in not_evaluated),
        explains=explains,
        too_short_s=too_short_s,
    )


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Worst first; then causes of lost time, lost time without a cause, the rest, and time that was not measured."""
    kind = 0 if finding.gpu_s is not None else 2
    if finding.key in (UNEXPLAINED_LOSS, NOT_MEASURED):
        kind = 1 if finding.key == UNEXPLAINED_LOSS else 3
    return _ORDER.index(finding.severity), kind, -(finding.share or 0)


def _account(story: _Story) -> _Story:
    """Give each lost moment of each GPU to one cause."""
    job, work = story.job, story.work
    first_step = next((r for rule, r in story.checks if isinstance(rule, MaxInitializationTime)), None)
    own, failed = [], {}
    for rule, result in story.checks:
        # As in check, a rule of a user's own may raise anything.
        try:
            own += [(cause, rule.name) for cause in (rule.causes(job, work, result) if work else ())]
        except Exception as error:  # noqa: BLE001
            failed[rule.name] = rule.failed(error)
    every = [*edges(job, work, first_step), *(cause for cause, _ in own)]
    causes = tuple(sorted(every, key=lambda cause: cause.precedence))
    nodes = tuple(spent_per_node(job, causes, work))
    owners = {cause.key: name for cause, name in own}
    raised = {owners[key]: error for node in nodes for key, error in node.failed.items()}
    failed |= {rule.name: rule.failed(raised[rule.name]) for rule, _ in story.checks if rule.name in raised}
    return replace(
        story,
        checks=[(rule, failed.get(rule.name, result)) for rule, result in story.checks],
        causes=causes,
        nodes=nodes,
        claims={cause.key: claimed(cause, nodes) for cause in causes},
        owners=owners,
    )


def _too_short_s(story: _Story) -> float | None:
    """Length of the work if the causes cannot be judged from it."""
    if story.work is None:
        return None
    snapshots = max((node.snapshots for node in story.nodes), default=0)
    short = story.work.length_us < MIN_WORK_US or snapshots < MIN_SNAPSHOTS
    return story.work.length_us / SECOND_US if short else None


def _name_causes(story: _Story) -> _Story:
    """Add a finding for each cause that explains enough of the GPU time."""
    findings = []
    for cause in story.causes:
        amount = story.claims[cause.key]
        length_us = _edge_us(story, cause.key)
        if amount.share >= WARNING_SHARE and length_us >= WARNING_EDGE_US:
            critical = amount.share >= CRITICAL_SHARE and length_us >= CRITICAL_EDGE_US
            findings.append(
                _with_amount(cause.finding(amount), amount.share, amount.gpu_s, critical=critical)
            )
    keys = {finding.key for finding in findings}
    return replace(
        story,
        findings=(*story.findings, *findings),
        explained_by=story.explained_by
        | {cause.key: cause.key for cause in story.causes if cause.key in keys},
    )


def _edge_us(story: _Story, key: str) -> int:
    """Length of start-up or wind-down; of any other cause, long enough."""
    work = story.work
    if work is None or key not in (START_UP, WIND_DOWN):
        return CRITICAL_EDGE_US
    return work.begin_us - work.clocks.start_us if key == START_UP else work.clocks.end_us - work.end_us


def _with_amount(finding: Finding, share: float, gpu_s: float, *, critical: bool) -> Finding:
    return replace(
        finding,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        share=round(share, 3),
        share_of="of GPU time",
        gpu_s=round(gpu_s, 1),
    )


def _name_the_rest(story: _Story) -> _Story:
    """Add the finding on what no cause explains while a GPU is idle or low."""
    devices = [device for node in story.nodes for device in node.devices]
    whole = sum(device.total for device in devices)
    rest = sum(device.lost["idle"] + device.lost["low"] for device in devices)
    share = rest / whole if whole else 0.0
    if share < WARNING_SHARE or story.work is None:
        return story
    state = "The GPU was" if len(devices) == 1 else "GPUs were"
    ruled_out, missing = _ruled_out(story)
    begin_us, end_us = story.work.begin_us, story.work.end_us
    finding = Finding(
        key=UNEXPLAINED_LOSS,
        severity=Severity.WARNING,
        title=f"{state} idle or low for {percent(100 * share)} of the GPU time, and no recorded cause explains it",
        evidence=(When(begin_us, end_us), *(Note(text) for text in (ruled_out, missing) if text)),
        advice=_record_next(story),
        rules=(),
        section="gpu-utilization",
        devices=tuple(device.name for device in devices if device.worked),
        start_us=begin_us,
        end_us=end_us,
    )
    found = _with_amount(finding, share, rest / SECOND_US, critical=share >= CRITICAL_SHARE)
    return replace(
        story,
        findings=(*story.findings, found),
        explained_by=story.explained_by | dict.fromkeys(("idle", "low"), UNEXPLAINED_LOSS),
    )


def _recorded(job: Job) -> dict[str, bool]:
    """What could show a cause, and whether it was recorded."""
    return {
        "CPU utilization": job.has(Metric.CPU_UTILIZATION),
        "I/O wait": job.has(Metric.IO_WAIT),
        "steps": bool(job.step_count),
        "data loading": job.event_count > 0 and any(job.each(_records_loading)),
    }


def _records_loading(part: Job) -> bool:
    return Loading.of(part.events, *part.nodes) is not None


def _ruled_out(story: _Story) -> tuple[str, str]:
    """What was recorded and is not the cause, and what was not recorded, in words."""
    recorded = _recorded(story.job)
    there = [what for what, known in recorded.items() if known]
    absent = [what for what, known in recorded.items() if not known]
    return (
        f"Recorded, and not the cause: {join_names(there)}" if there else "",
        f"Not recorded: {join_names(absent)}" if absent else "",
    )


def _record_next(story: _Story) -> tuple[str, ...]:
    absent = [what for what, known in _recorded(story.job).items() if not known]
    if absent:
        return (f"{capitalized(join_names(absent))}: they show what the GPU waits for.",)
    return ("A profile of a few steps: it shows what the GPU waits for.",)


def _join_chain(story: _Story) -> _Story:
    """Make one finding of a saturated CPU and waiting for data: the larger, with the other in its evidence."""
    chain = [f for f in story.findings if f.key in (DATA_LOADING, CPU_BOTTLENECK)]
    if len(chain) < 2:
        return story
    small, large = sorted(chain, key=lambda finding: finding.share or 0)
    share, gpu_s = (small.share or 0) + (large.share or 0), (small.gpu_s or 0) + (large.gpu_s or 0)
    one = replace(
        _with_amount(large, share, gpu_s, critical=share >= CRITICAL_SHARE),
        evidence=(*large.evidence, AlsoSeenAs(small.title)),
        rules=large.rules + small.rules,
    )
    return replace(
        story,
        findings=tuple(one if f is large else f for f in story.findings if f is not small),
        explained_by={
            part: large.key if key == small.key else key for part, key in story.explained_by.items()
        },
    )


def _add_symptoms(story: _Story) -> _Story:
    """Add what rules on symptoms report to the evidence of the largest loss during the work."""
    symptoms = [
        finding for rule, result in story.checks if rule.role is Role.SYMPTOM for finding in result.findings
    ]
    homes = [f for f in story.findings if f.key not in (START_UP, WIND_DOWN)]
    if not symptoms or not homes:
        return story
    home = max(homes, key=lambda finding: (finding.key != UNEXPLAINED_LOSS, finding.share or 0))
    seen = tuple(AlsoSeenAs(symptom.seen_as) for symptom in symptoms if symptom.seen_as)
    rules = tuple(name for symptom in symptoms for name in symptom.rules)
    one = replace(home, evidence=(*home.evidence, *seen), rules=home.rules + rules)
    return replace(story, findings=tuple(one if f is home else f for f in story.findings))


def _observe(story: _Story) -> _Story:
    """Add the findings of rules that explain no lost time."""
    known = {finding.key for finding in story.findings}
    own = [
        finding
        for rule, result in story.checks
        if rule.role is Role.OBSERVATION and not isinstance(rule, MaxInitializationTime)
        for finding in result.findings
        if finding.key not in known
    ]
    return replace(story, findings=(*story.findings, *own))


def _join_explained(findings: Sequence[Finding]) -> list[Finding]:
    """Put a finding that names its reason into the finding on that reason, if that is about the same devices."""
    joined = list(findings)
    for finding in findings:
        homes = [f for f in joined if f.key in finding.because_of and {*finding.devices} <= {*f.devices}]
        if homes:
            seen = AlsoSeenAs(finding.seen_as or finding.title)
            home = replace(
                homes[0], evidence=(*homes[0].evidence, seen), rules=homes[0].rules + finding.rules
            )
            joined = [home if f is homes[0] else f for f in joined if f is not finding]
    return joined


def _explained_by_rule(story: _Story) -> dict[str, float]:
    """Share of GPU time by rule, of those that claimed any."""
    shares: dict[str, float] = {}
    for key, rule in story.owners.items():
        if share := story.claims[key].share:
            shares[rule] = round(shares.get(rule, 0.0) + share, 4)
    return shares


def _time_use(story: _Story) -> TimeUse | None:
    """The parts of the bar: used, causes with the largest first, unexplained, not measured."""
    sums = {key: amount.gpu_s for key, amount in story.claims.items()}
    by_key = {cause.key: cause for cause in story.causes}
    labels = {key: by_key[key].label for key in sorted(sums, key=lambda key: -sums[key])}
    labels |= {key: LABELS[key] for key in UNEXPLAINED}
    use = in_parts(story.job, "GPU", [device for node in story.nodes for device in node.devices], labels)
    if use is None:
        return None
    parts = (
        replace(
            part,
            finding=story.explained_by.get(part.key, ""),
            when=by_key[part.key].when if part.key in by_key else "",
        )
        for part in use.parts
    )
    return replace(use, parts=tuple(parts))


def _as_printed(story: _Story, use: TimeUse) -> tuple[Finding, ...]:
    """The findings with the shares of their parts of the bar, which add up as printed."""
    shares: dict[str, float] = {}
    for part in use.parts:
        if key := story.explained_by.get(part.key):
            shares[key] = shares.get(key, 0.0) + part.percent / 100
    return tuple(
        replace(finding, share=round(shares[finding.key], 3), share_of=f"of {use.time}")
        if finding.key in shares and finding.gpu_s is not None
        else finding
        for finding in story.findings
    )


def _without_gpus(job: Job, checks: Checks) -> tuple[Finding, ...]:
    """Findings of a job whose GPUs were not sampled."""
    found = [
        finding
        for rule, result in checks
        for finding in result.findings
        # The share of a step rule is of the time of steps.
        if rule.role is Role.OBSERVATION or (rule.role is Role.CAUSE and finding.share is not None)
    ]
    late = any(isinstance(rule, MaxInitializationTime) and result.findings for rule, result in checks)
    return (*found, *late_first_step(job, started=late))


def _explains(finding: Finding, use: TimeUse | None) -> bool:
    return use is not None and any(part.finding == finding.key for part in use.parts if part.role == "lost")
