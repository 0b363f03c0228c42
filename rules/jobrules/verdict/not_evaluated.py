"""Rules that were not evaluated, grouped by what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from jobrules.model import Reason, ReasonKind, Status
from jobrules.model.learning import Training
from jobrules.model.names import OwnText
from jobrules.rules.traces.shares import NO_GPU_ACTIVITY
from jobrules.text import NBSP, count, number


class NotEvaluated(Struct, frozen=True, kw_only=True):
    """A rule without a result."""

    rule: OwnText
    status: Status
    reason: Reason

    @property
    def applies(self) -> bool:
        """True if other data would have the rule evaluated."""
        return self.reason.kind is not ReasonKind.NOT_APPLICABLE


class Lack(Struct, frozen=True, kw_only=True):
    """Rules that lack the same, in the order of the sentence: ``before``, the rules, ``after``."""

    before: str = ""
    rules: tuple[str, ...]
    after: str = ""
    #: The same in short; empty if the rules themselves say it best.
    brief: str = ""

    def __str__(self) -> str:
        """``GPU memory in use (GPUMemoryFull, GPUMemoryLeak)``."""
        return f"{self.before}{', '.join(self.rules)}{self.after}"


class ReasonGroup(Struct, frozen=True, kw_only=True):
    """Rules that were not evaluated for reasons of one kind."""

    head: str
    lacks: tuple[Lack, ...]
    #: Between two of ``lacks``.
    comma: str

    def __str__(self) -> str:
        """``Not recorded: GPU memory in use (GPUMemoryFull, GPUMemoryLeak), GPU power (PowerCap).``"""
        return f"{self.head}: {self.comma.join(map(str, self.lacks))}."

    @property
    def brief(self) -> str:
        """``Not recorded: steps (2 rules), GPU power (1).``, ``Too short: UnusedGPU.``, ``Too short: 6 rules.``"""
        briefs = [lack.brief for lack in self.lacks if lack.brief]
        rules = [rule for lack in self.lacks for rule in lack.rules]
        if self.head == NOT_RECORDED:
            counts = [
                count(len(self.lacks[0].rules), "rule"),
                *(str(len(lack.rules)) for lack in self.lacks[1:]),
            ]
            briefs = [f"{brief} ({n})" for brief, n in zip(briefs, counts, strict=True)]
        if not briefs:
            briefs = rules if len(rules) <= MAX_BRIEF_RULES else [count(len(rules), "rule")]
        return f"{self.head}: {', '.join(briefs)}."


#: Recordings that explain lost time, the most telling first.
SETTLES = (NO_GPU_ACTIVITY.what, "GPU utilization", "CPU utilization", "loader events", "steps", "I/O wait")

NOT_RECORDED = "Not recorded"

_OF_TRAINING = frozenset(Training)

#: What only the training script can record.
_FROM_SCRIPT = frozenset({"steps", "loader events", "data loading"})

#: More rules are counted in short texts.
MAX_BRIEF_RULES = 2

_HEADS = {
    ReasonKind.ERROR: "Failed",
    ReasonKind.NOT_RECORDED: NOT_RECORDED,
    ReasonKind.TOO_SHORT: "Too short",
    ReasonKind.TOO_FEW: "Too short",
    ReasonKind.NO_DEVICE: "Nothing to check",
    ReasonKind.NOT_APPLICABLE: "Not applicable",
    ReasonKind.OTHER: "Other reasons",
}


def by_reason(not_evaluated: Sequence[NotEvaluated]) -> tuple[ReasonGroup, ...]:
    """All rules that were not evaluated: by kind of reason, then by what they lack."""
    groups: dict[str, dict[Reason, list[NotEvaluated]]] = {head: {} for head in _HEADS.values()}
    for one in not_evaluated:
        reason = one.reason
        if reason.kind in (ReasonKind.TOO_SHORT, ReasonKind.TOO_FEW):
            # Rules count samples of other devices: what they need is the same.
            reason = replace(reason, have=0.0)
        groups[_HEADS[one.reason.kind]].setdefault(reason, []).append(one)
    return tuple(
        ReasonGroup(
            head=head,
            lacks=tuple(_lack(same) for same in sorted(found.values(), key=_settles)),
            comma=", " if head == NOT_RECORDED else "; ",
        )
        for head, found in groups.items()
        if found
    )


def _settles(same: Sequence[NotEvaluated]) -> tuple[int, int]:
    """What would explain most lost time first, then what more rules lack; what is about the training last."""
    what = same[0].reason.what
    return SETTLES.index(what) if what in SETTLES else len(SETTLES) + (what in _OF_TRAINING), -len(same)


def _lack(same: Sequence[NotEvaluated]) -> Lack:
    """What rules that need the same lack."""
    reason, rules = same[0].reason, tuple(one.rule for one in same)
    match reason.kind:
        case ReasonKind.TOO_SHORT | ReasonKind.TOO_FEW:
            by_amount = sorted((one.reason for one in same), key=lambda one: one.have)
            needed, least = by_amount[0].amounts
            _, most = by_amount[-1].amounts
            have = least if least == most else f"{least} to {most}"
            need = f" {'needs' if len(rules) == 1 else 'need'} {needed}, {reason.whose} has {have}"
            return Lack(rules=rules, after=need)
        case ReasonKind.NOT_RECORDED:
            return Lack(before=f"{reason.missing} (", rules=rules, after=")", brief=reason.missing)
        case ReasonKind.NOT_APPLICABLE:
            return Lack(before=f"{reason} (", rules=rules, after=")", brief=str(reason))
        case ReasonKind.ERROR:
            return Lack(rules=rules, after=f" ({reason.what})")
    return Lack(before=f"{reason} (", rules=rules, after=")")


def how_to_record(missing: Iterable[str]) -> tuple[str, ...]:
    """The sentence on how the training script records what is missing; nothing if it need not."""
    if _FROM_SCRIPT.isdisjoint(missing):
        return ()
    return (
        "`jobrecord.start()` and `jobrecord.data(loader)` in the training script record steps and data loading.",
    )


def how_many(not_evaluated: int, rules: int) -> str:
    """``7 of 18 rules were not evaluated``, without a period."""
    if not rules:
        return "No rule was selected"
    if not_evaluated == rules:
        return "No rule was evaluated"
    if not_evaluated:
        verb = "was" if not_evaluated == 1 else "were"
        return f"{number(not_evaluated)} of {count(rules, 'rule')} {verb} not evaluated"
    return "The rule was evaluated" if rules == 1 else f"All {number(rules)}{NBSP}rules were evaluated"
