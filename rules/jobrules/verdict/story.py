"""From an account of the GPU time to findings, in steps, each from what the steps before found.

1. A cause of at least 5% of the GPU time is a finding, and so is as much loss without a cause.
2. A saturated CPU and waiting for data are one finding; symptoms are evidence of the main cause.
3. Rules that explain no lost time report on their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from jobrules.measures.work import Work
from jobrules.model import SECOND_US, AlsoSeenAs, Finding, Note, RuleResult, Severity, When, natural_key
from jobrules.model.claims import Cause, Claimed
from jobrules.model.time_parts import TIME_PARTS
from jobrules.rule import Role, Rule
from jobrules.text import capitalized, count, duration, escape_name, join_names
from jobrules.verdict.accounting import Loss, NodeTime, claimed
from jobrules.verdict.edges import NEVER, START_UP, WIND_DOWN
from jobrules.verdict.not_evaluated import how_to_record
from jobrules.verdict.time_use import TimeUse, in_parts

#: Share of the job's GPU time from which a finding is a warning, and from which it is critical.
WARNING_SHARE, CRITICAL_SHARE = 0.05, 0.2

#: Start-up and wind-down that are shorter are part of any job, unless they take these shares of the GPU time.
WARNING_EDGE_US, CRITICAL_EDGE_US = 5 * 60 * SECOND_US, 15 * 60 * SECOND_US
WARNING_EDGE_SHARE, CRITICAL_EDGE_SHARE = 0.2, 0.4

#: A job is too short to judge with fewer snapshots of its work.
MIN_SNAPSHOTS = 30

#: A GPU alone is called never used if it was sampled for as long as this without any work.
LONG_US = 10 * 60 * SECOND_US

#: A cause that explains less is called none.
NAMED_SHARE = 0.01

#: The causes that a recording shows.
_SHOWN_BY = {
    "CPU utilization": ("cpu-bottleneck", "saturated-process", "one-process"),
    "I/O wait": ("io-bottleneck",),
    "steps": ("step-outlier",),
    "data loading": ("data-loading",),
}

#: Keys of findings that others refer to.
UNEXPLAINED_LOSS, DATA_LOADING = "unexplained", "data-loading"

#: Keys of the findings that are one where training waits for data.
_LOADING_CHAIN = (DATA_LOADING, "io-bottleneck", "cpu-bottleneck")

#: Worst first.
SEVERITIES = list(Severity)

#: The rules with their results during the work.
Checks = Sequence[tuple[Rule, RuleResult]]


class Account(Struct, frozen=True, kw_only=True):
    """How the GPU time of a job was spent, and on which evidence."""

    checks: Checks
    #: None if no GPU worked and no step was recorded.
    work: Work | None
    #: Of the whole job, in microseconds.
    length_us: int
    #: In the order of their claims.
    causes: tuple[Cause, ...]
    nodes: tuple[NodeTime, ...]
    #: Rule of each cause that has one, by the key of the cause.
    owners: dict[str, str]
    #: What could show a cause, and whether it was recorded.
    recorded: dict[str, bool]
    #: Sentences, without their periods, on what limits the account.
    notes: tuple[str, ...] = ()
    #: Whether there are traces of a part of the job.
    profiled: bool = False
    #: GPUs whose utilization was not recorded.
    unknown_gpus: int = 0
    #: Where the use of the GPUs comes from, if not from samples: ``SageMaker Debugger``.
    source: str = ""


def joined_accounts(first: Account, second: Account) -> Account:
    """The account of the nodes of two sources; causes, evidence, and notes are those of the first where both have some."""
    length_us = max(first.length_us, second.length_us)
    keys = {cause.key for cause in first.causes}
    causes = (*first.causes, *(cause for cause in second.causes if cause.key not in keys))
    none = dict.fromkeys([cause.key for cause in causes])
    nodes = [
        replace(
            node,
            devices=tuple(
                replace(
                    device,
                    lost=dict.fromkeys(none, 0.0) | device.lost,
                    unmeasured=device.unmeasured + max(0.0, length_us - device.total),
                )
                for device in node.devices
            ),
            losses=dict.fromkeys(none, Loss()) | node.losses,
        )
        for node in (*first.nodes, *second.nodes)
    ]
    return replace(
        first,
        length_us=length_us,
        causes=causes,
        nodes=tuple(sorted(nodes, key=lambda node: natural_key(node.node))),
        owners=second.owners | first.owners,
        recorded=second.recorded
        | {what: known or second.recorded.get(what, False) for what, known in first.recorded.items()},
        source=f"samples and {second.source}",
    )


class _Amount(Struct, frozen=True, kw_only=True):
    """GPU time, and its share of that of the job."""

    share: float = 0.0
    gpu_s: float = 0.0


class Story(Struct, frozen=True, kw_only=True):
    """What an account comes to."""

    account: Account
    #: What each cause claimed, by its key.
    claims: dict[str, Claimed]
    findings: tuple[Finding, ...] = ()
    #: Key of the finding that explains a part of the lost time, by the key of the part.
    explained_by: dict[str, str] = {}
    #: None if the account covers no time.
    use: TimeUse | None = None
    #: Share of the GPU time that the causes of a rule claimed, by its name.
    explains: dict[str, float] = {}
    #: What there is too little of, if the job cannot be judged: ``41 s of GPU work``.
    too_short: str = ""


def story_of(account: Account, *, strict: bool = False) -> Story:
    """All findings of an account, unsorted, and the parts of the bar.

    A cause that cannot be described has a finding that says so, unless ``strict``.
    """
    claims = {cause.key: claimed(cause, account.nodes) for cause in account.causes}
    story = Story(account=account, claims=claims, too_short=_too_short(account))
    if not story.too_short:
        story = _name_causes(story, strict=strict)
        story = _name_the_rest(story)
        story = _join_chain(story)
        story = _add_symptoms(story)
    story = _observe(story)
    story = _join_explained(story)
    return _as_printed(story)


def _too_short(account: Account) -> str:
    """What there is too little of to find causes; empty if there is enough.

    After a long look without work, or with little, what came before the work and after it is known.
    """
    work = account.work
    if work and work.enough:
        snapshots = max((node.snapshots for node in account.nodes), default=0)
        return count(snapshots, "snapshot") if snapshots < MIN_SNAPSHOTS else ""
    devices = [device for node in account.nodes for device in node.devices]
    measured_us = max((one.total - one.unmeasured for one in devices), default=0.0)
    if measured_us >= LONG_US:
        return ""
    if work:
        return f"{duration(work.length_us)} of {'GPU work' if work.gpu_us else 'steps'}"
    # A GPU is not called never used after a short look.
    return f"no GPU worked in {duration(round(measured_us)) if measured_us else 'the few samples'}"


def _name_causes(story: Story, *, strict: bool) -> Story:
    """Add a finding for each cause that explains enough of the GPU time."""
    findings = []
    for cause in story.account.causes:
        amount = story.claims[cause.key]
        share, edge_us = amount.share, _edge_us(story, cause.key)
        if edge_us is not None and story.account.work and story.account.work.little:
            # Any job begins: of a short try, that says nothing.
            continue
        found, critical = share >= WARNING_SHARE, share >= CRITICAL_SHARE
        if edge_us is not None:
            found &= edge_us >= WARNING_EDGE_US or share >= WARNING_EDGE_SHARE
            critical &= edge_us >= CRITICAL_EDGE_US or share >= CRITICAL_EDGE_SHARE
        if found:
            described = _finding_of(cause, amount, strict=strict)
            findings.append(_with_amount(described, share, amount.gpu_s, critical=critical))
    keys = {finding.key for finding in findings}
    return replace(
        story,
        findings=(*story.findings, *findings),
        explained_by=story.explained_by
        | {cause.key: cause.key for cause in story.account.causes if cause.key in keys},
    )


def _finding_of(cause: Cause, amount: Claimed, *, strict: bool) -> Finding:
    # As in check, a rule of a user's own may raise anything.
    try:
        found = cause.finding(amount)
        if isinstance(found, Finding):
            return found
        raise TypeError(f"finding returned {type(found).__name__}")
    except (Exception, SystemExit) as error:
        if strict:
            raise
        what = escape_name(f"{type(error).__name__}: {error}", 200)
        return Finding(
            key=cause.key,
            severity=Severity.WARNING,
            title=cause.shown.removeprefix("Lost: "),
            evidence=(Note(f"The rule could not describe it: {what}"),),
            advice=(),
            rules=(),
            section="rules",
            devices=amount.devices,
        )


def _edge_us(story: Story, key: str) -> int | None:
    """Length of start-up or wind-down; None for any other cause."""
    work = story.account.work
    if work is None or key not in (START_UP, WIND_DOWN):
        return None
    return work.begin_us - work.clocks.start_us if key == START_UP else work.clocks.end_us - work.end_us


def _with_amount(finding: Finding, share: float, gpu_s: float, *, critical: bool) -> Finding:
    return replace(
        finding,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        share=round(share, 3),
        share_of="of GPU time",
        gpu_s=round(gpu_s, 1),
    )


def _name_the_rest(story: Story) -> Story:
    """Add the finding on what no cause explains while a GPU is idle or low."""
    devices = [device for node in story.account.nodes for device in node.devices]
    whole = sum(device.total for device in devices)
    rest = sum(device.lost["idle"] + device.lost["low"] for device in devices)
    share = rest / whole if whole else 0.0
    if share < WARNING_SHARE or story.account.work is None:
        return story
    state = "The GPU was" if len(devices) == 1 else "GPUs were"
    ruled_out, missing = _ruled_out(story)
    begin_us, end_us = story.account.work.begin_us, story.account.work.end_us
    finding = Finding(
        key=UNEXPLAINED_LOSS,
        severity=Severity.WARNING,
        title=f"{state} idle or low, and no recorded cause explains it",
        evidence=(
            When(begin_us, end_us),
            *(Note(text) for text in (ruled_out, missing, *story.account.notes) if text),
        ),
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


def _ruled_out(story: Story) -> tuple[str, str]:
    """What was recorded and is not the cause, and what was not recorded, in words."""
    recorded = story.account.recorded
    seen = {what for what, keys in _SHOWN_BY.items() if any(_claims(story, key) for key in keys)}
    there = [what for what, known in recorded.items() if known and what not in seen]
    absent = [what for what, known in recorded.items() if not known]
    return (
        f"Recorded, and not the cause: {join_names(there)}" if there else "",
        f"Not recorded: {join_names(absent)}" if absent else "",
    )


def _claims(story: Story, key: str) -> bool:
    return key in story.claims and story.claims[key].share >= NAMED_SHARE


def _record_next(story: Story) -> tuple[str, ...]:
    absent = [what for what, known in story.account.recorded.items() if not known]
    if absent:
        named = capitalized(join_names(absent))
        return (f"{named}, to see what the GPU waits for.", *how_to_record(absent))
    steps = "other steps" if story.account.profiled else "a few steps"
    return (f"A profile of {steps}: it shows what the GPU waits for.",)


def _join_chain(story: Story) -> Story:
    """Make one finding of waiting for data, for I/O, and for a saturated CPU: the largest, with the others in its evidence."""
    chain = sorted(
        (f for f in story.findings if f.key in _LOADING_CHAIN), key=lambda finding: finding.share or 0
    )
    if DATA_LOADING not in {finding.key for finding in chain}:
        return story
    *others, home = (finding.key for finding in chain)
    for other in reversed(others):
        story = _joined(story, _found(story, home), _found(story, other))
    return story


def _found(story: Story, key: str) -> Finding:
    return next(finding for finding in story.findings if finding.key == key)


def _joined(story: Story, home: Finding, other: Finding) -> Story:
    """One finding of two on the same cause, with the time of both; the other is in its evidence."""
    seen = AlsoSeenAs(other.seen_as or other.title)
    one = replace(home, evidence=(*home.evidence, seen), rules=home.rules + other.rules)
    explained_by = {part: home.key if key == other.key else key for part, key in story.explained_by.items()}
    own, added = _amount(story, home), _amount(story, other)
    share = own.share + added.share
    if added.share and share >= WARNING_SHARE:
        graded = _with_amount(one, share, own.gpu_s + added.gpu_s, critical=share >= CRITICAL_SHARE)
        one = replace(graded, severity=min(graded.severity, home.severity, key=SEVERITIES.index))
        explained_by |= {key: home.key for key in (home.key, other.key) if key in story.claims}
    return replace(
        story,
        findings=tuple(one if f is home else f for f in story.findings if f is not other),
        explained_by=explained_by,
    )


def _amount(story: Story, finding: Finding) -> _Amount:
    """The GPU time that a finding is about; its cause may have claimed too little for a finding with an amount."""
    if finding.gpu_s is not None:
        return _Amount(share=finding.share or 0.0, gpu_s=finding.gpu_s)
    claim = story.claims.get(finding.key)
    return _Amount(share=claim.share, gpu_s=claim.gpu_s) if claim else _Amount()


def _add_symptoms(story: Story) -> Story:
    """Add what rules on symptoms report to the evidence of the largest loss during the work."""
    symptoms = [
        finding
        for rule, result in story.account.checks
        if rule.role is Role.SYMPTOM
        for finding in result.findings
        if finding.seen_as
    ]
    homes = [f for f in story.findings if f.key not in (START_UP, WIND_DOWN)]
    if not symptoms or not homes:
        return story
    # Any cause comes before what is unexplained.
    home = max(homes, key=lambda finding: (finding.key != UNEXPLAINED_LOSS, finding.share or 0))
    seen = tuple(AlsoSeenAs(symptom.seen_as) for symptom in symptoms)
    rules = tuple(name for symptom in symptoms for name in symptom.rules)
    one = replace(home, evidence=(*home.evidence, *seen), rules=home.rules + rules)
    return replace(story, findings=tuple(one if f is home else f for f in story.findings))


def _observe(story: Story) -> Story:
    """Add the findings of rules that explain no lost time."""
    known = {finding.key for finding in story.findings}
    own = [
        finding
        for rule, result in story.account.checks
        if rule.role is Role.OBSERVATION
        for finding in result.findings
        if finding.key not in known
    ]
    return replace(story, findings=(*story.findings, *own))


def _join_explained(story: Story) -> Story:
    """Put a finding that names its reason into the finding on that reason, if that is about the same devices."""
    while pair := _explained(story.findings):
        story = _joined(story, *pair)
    return story


def join_explained(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The same of findings without an account of GPU time."""
    nothing = Account(checks=(), work=None, length_us=0, causes=(), nodes=(), owners={}, recorded={})
    return _join_explained(Story(account=nothing, claims={}, findings=tuple(findings))).findings


def _explained(findings: Sequence[Finding]) -> tuple[Finding, Finding] | None:
    """The first finding on a reason and another that it explains."""
    pairs = (
        (home, other)
        for other in findings
        for home in findings
        if home is not other and home.key in other.because_of and {*other.devices} <= {*home.devices}
    )
    return next(pairs, None)


def _explained_by_rule(story: Story) -> dict[str, float]:
    """Share of GPU time by rule, of those that claimed any."""
    shares: dict[str, float] = {}
    for key, rule in story.account.owners.items():
        if share := story.claims[key].share:
            shares[rule] = round(shares.get(rule, 0.0) + share, 4)
    return shares


def _time_use(story: Story) -> TimeUse | None:
    """The parts of the bar: used, causes with the largest first, unexplained, not measured."""
    account = story.account
    by_key = {cause.key: cause for cause in account.causes}
    labels = {key: by_key[key].shown for key in sorted(by_key, key=lambda key: -story.claims[key].gpu_s)}
    if story.too_short and account.work is None:
        labels |= {NEVER: TIME_PARTS["no-gpu-work"].of_device}
    devices = [device for node in account.nodes for device in node.devices]
    use = in_parts("GPU", devices, labels, account.length_us, account.unknown_gpus or UNSET)
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
    return replace(use, parts=tuple(parts), source=account.source or UNSET)


def _as_printed(story: Story) -> Story:
    """With the parts of the bar, and the shares of findings as the sums of their parts."""
    use = _time_use(story)
    story = replace(story, use=use, explains=_explained_by_rule(story))
    if use is None:
        return story
    return replace(story, findings=tuple(_with_printed_share(finding, use) for finding in story.findings))


def _with_printed_share(finding: Finding, use: TimeUse) -> Finding:
    parts = [part for part in use.parts if part.finding == finding.key]
    if not parts or finding.gpu_s is None:
        return finding
    # Of several parts, the sum as printed.
    gpu_s = round(3600 * sum(part.amount for part in parts), 1) if len(parts) > 1 else finding.gpu_s
    share = round(sum(part.percent for part in parts) / 100, 3)
    return replace(finding, share=share, share_of=f"of {use.time}", gpu_s=gpu_s)
