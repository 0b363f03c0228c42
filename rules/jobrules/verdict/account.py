"""The account of the GPU time of a job by its samples: its causes, what they claimed, and on which evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.core_use import TELLING_LIFT, FewCores, few_cores, may_be_at_limit
from jobrules.measures.data_loading import FETCH, PIPELINE, WORKER
from jobrules.measures.data_waits import RELEVANT_PART
from jobrules.measures.step_use import StepUse, step_use
from jobrules.measures.work import Work
from jobrules.model import Job, LoopFacts, Metric, RuleResult
from jobrules.model.claims import Cause
from jobrules.rule import Role, Rule
from jobrules.text import share
from jobrules.verdict.accounting import UNEXPLAINED, NodeTime, spent_per_node
from jobrules.verdict.code_lines import CODE_LINE, code_line
from jobrules.verdict.edges import NEVER, START_UP, WIND_DOWN, edges
from jobrules.verdict.late_ranks import SLOW_RANK, slow_rank
from jobrules.verdict.observations import CROWDED, LOST_SAMPLES, NOT_MEASURED
from jobrules.verdict.recorded import PHASES, recorded_causes
from jobrules.verdict.story import UNEXPLAINED_LOSS, Account, Checks

#: Keys that no rule's cause may have.
RESERVED = frozenset(
    {
        NEVER,
        START_UP,
        WIND_DOWN,
        *PHASES,
        SLOW_RANK,
        CODE_LINE,
        *UNEXPLAINED,
        UNEXPLAINED_LOSS,
        NOT_MEASURED,
        LOST_SAMPLES,
        CROWDED,
        "used",
        "unmeasured",
    }
)

#: Steps that take more of the time than this, with GPUs used for less, hold what GPUs wait for.
LONG_STEPS, IDLE_STEPS = 0.8, 0.1
STEPS_HOLD = "Steps take most of the time while the GPUs idle: they hold what the GPUs wait for"


def account_of(job: Job, checks: Checks, *, strict: bool = False) -> Account:
    """Give each lost moment of each GPU of a job to one cause."""
    work = Work.of(job)
    first_step = next((r for rule, r in checks if rule.role is Role.START_UP), None)
    checks, of_rules = causes_of_rules(job, checks, strict=strict) if work else (checks, [])
    of_rules = [(cause, name) for cause, name in of_rules if cause.claim]
    causes = [*edges(job, work, first_step), *(cause for cause, _ in of_rules)]
    causes += recorded_causes(job, work) if work else ()
    causes += [slow] if (slow := slow_rank(job)) and slow.claim else []
    causes += [line] if work and (line := code_line(job)) else []
    causes.sort(key=lambda cause: cause.precedence)
    nodes = tuple(spent_per_node(job, causes, work))
    raised = [error for node in nodes for error in node.failed.values()]
    if strict and raised:
        raise raised[0]
    owners = {cause.key: name for cause, name in of_rules}
    cores = FewCores.sum(job.gathered(few_cores, work) if work else ())
    steps = StepUse.sum(job.gathered(step_use, work) if work else ())
    return Account(
        checks=_with_failed_claims(checks, nodes, owners),
        work=work,
        length_us=Clocks.of(job).length_us,
        causes=tuple(causes),
        nodes=nodes,
        owners=owners,
        recorded=_recorded(job, work, cores, steps),
        profiled=bool(job.captures),
        notes=(*loop_notes(job.loop_facts), *_step_notes(steps), *_core_notes(cores)),
        unknown_gpus=job.gpus_unknown,
    )


def causes_of_rules(job: Job, checks: Checks, *, strict: bool) -> tuple[Checks, list[tuple[Cause, str]]]:
    """The causes that rules name, each with its rule; a rule that raises has failed, unless ``strict``."""
    known: list[tuple[Rule, RuleResult]] = []
    causes: list[tuple[Cause, str]] = []
    for rule, result in checks:
        # As in check, a rule of a user's own may raise anything.
        try:
            own = rule.causes(job, result)
            taken = RESERVED | {cause.key for cause, _ in causes}
            if twice := [cause.key for cause in own if cause.key in taken]:
                raise ValueError(f"there is already a cause {twice[0]}")
            causes += [(cause, rule.name) for cause in own]
            known.append((rule, result))
        except (Exception, SystemExit) as error:
            if strict:
                raise
            known.append((rule, rule.failed(error)))
    return known, causes


def _with_failed_claims(checks: Checks, nodes: Sequence[NodeTime], owners: Mapping[str, str]) -> Checks:
    """The rules with their results; one whose claim raised on a node has failed."""
    raised = {owners.get(key, key): error for node in nodes for key, error in node.failed.items()}
    return [
        (rule, rule.failed(raised[rule.name]) if rule.name in raised else result) for rule, result in checks
    ]


def _recorded(job: Job, work: Work | None, cores: FewCores, steps: StepUse) -> dict[str, bool]:
    """What could show a cause, and whether it was recorded; without what was and is undecided."""
    cpu = {"CPU utilization": job.has(Metric.CPU_UTILIZATION)}
    if cpu["CPU utilization"] and not any(
        len(panel.devices) > 1
        for part in job.facts
        for panel in part.panels
        if panel.metric is Metric.CPU_UTILIZATION
    ):
        # The mean clears nobody: one process may be at its limit.
        cpu = {"CPU utilization per core": False}
    elif (cores.in_idle >= RELEVANT_PART and not cores.others) or (
        work and any(job.gathered(may_be_at_limit, work))
    ):
        cpu = {}
    elsewhere = job.loop_facts.stalls if job.loop_facts else {}
    if "cpu" in elsewhere and not all(cpu.values()):
        cpu = {} if elsewhere["cpu"].share >= RELEVANT_PART else {"CPU utilization": True}
    return cpu | {
        "I/O wait": job.has(Metric.IO_WAIT) or "io" in elsewhere,
        **_steps_recorded(job, steps),
        **_loading_recorded(job),
    }


def _loading_recorded(job: Job) -> dict[str, bool]:
    """Fetches of which nobody knows how much of the time they took clear nobody."""
    if job.event_count > 0 and any(job.each(_records_loading)):
        return {"data loading": True}
    facts = job.loop_facts
    if facts is None or facts.fetch_s is None:
        return {"data loading": False}
    return {"data loading": True} if facts.shows_waits else {}


def _steps_recorded(job: Job, use: StepUse) -> dict[str, bool]:
    """Steps show no cause where most is lost between them, where they hold it, or where only their sum is known."""
    if not job.step_count and not (job.loop_facts and job.loop_facts.steps):
        return {"steps": False}
    decided = job.step_count and use.inside_lost_us >= use.between_lost_us and not _hold_the_cause(use)
    return {"steps": True} if decided else {}


def _hold_the_cause(use: StepUse) -> bool:
    return 1 - use.between > LONG_STEPS and use.used_inside < IDLE_STEPS


def _step_notes(use: StepUse) -> tuple[str, ...]:
    """How much of the time is between recorded steps; or that they hold what GPUs wait for."""
    if _hold_the_cause(use):
        return (STEPS_HOLD,)
    if use.between < RELEVANT_PART or use.between_lost_us <= use.inside_lost_us:
        return ()
    return (f"{share(use.between)} of the time with recorded steps is between them, and most is lost there",)


def loop_notes(facts: LoopFacts | None) -> tuple[str, ...]:
    """How much of the recorded time is between the steps, if nothing shows what happens there."""
    if facts is None or not facts.outside or facts.waited:
        return ()
    return (f"According to {facts.source}, {share(facts.outside)} of the recorded time is between the steps",)


def _core_notes(cores: FewCores) -> tuple[str, ...]:
    """Why a saturated core is no evidence."""
    if cores.in_idle < RELEVANT_PART:
        return ()
    seen = f"A core was saturated in {share(cores.in_idle)} of the samples"
    if not cores.others:
        return (f"{seen}, but no GPU was ever active to compare with",)
    if cores.in_idle >= TELLING_LIFT * cores.in_others:
        return ()
    return (
        f"{seen} of idle GPUs and in {share(cores.in_others)} of the others, so that alone explains nothing",
    )


def _records_loading(part: Job) -> bool:
    return any(lane.event_type in (FETCH, WORKER, PIPELINE) for lane in part.events.lanes)
