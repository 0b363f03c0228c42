"""What StragglerRank and UnevenRanks share: how long ranks wait for one another, and for whom most."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from jobrules.model import DeviceStatus, Measure, Note, Reason, ReasonKind
from jobrules.rule import number, percent
from jobrules.rules.traces.shares import (
    PROFILED_TIME,
    CaptureRule,
    ProfiledGPU,
    most_telling,
    profiled,
    severity_by,
    too_short,
)
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, Finding, Job, RuleResult
    from jobrules.model.captures import AcrossRanks, DeviceCapture, RankWaiting

#: One rank is late if others wait for it in this share of all waiting, by the lowest number of ranks. Of 2,000 simulated
#: jobs without a slow rank and with work scattered by 10%, at most 0.2% have one above.
_LATE_SHARES = ((8, 0.35), (3, 0.5), (2, 0.75))

_WHY_NOT_MATCHED = {
    "one_rank": Reason(kind=ReasonKind.NOT_RECORDED, what="traces of two or more ranks", verb="were"),
    "not_synchronizing": Reason(
        kind=ReasonKind.OTHER, what="the traced collectives do not make ranks wait for one another"
    ),
    "counts": Reason(kind=ReasonKind.OTHER, what="the traces of ranks hold different collectives"),
}
_NO_COMMUNICATION = Reason(kind=ReasonKind.NOT_RECORDED, what="communication between ranks in the traces")


class Waiting(Struct, frozen=True, kw_only=True):
    """How long ranks waited for one another."""

    #: Of the time of all profiled GPUs, in percent.
    percent: float
    #: The rank for which others waited most, and its share of all waiting.
    most: RankWaiting
    share: float
    across: AcrossRanks

    @property
    def is_one(self) -> bool:
        """True if it is always the same rank that is late."""
        least = next(share for ranks, share in _LATE_SHARES if len(self.across.ranks) >= ranks)
        return self.share >= least

    @property
    def at_hand(self) -> str:
        """Clause on ranks without a trace; empty if all have one."""
        ranks, world = len(self.across.ranks), self.across.world_size or 0
        of_then = " of the same time" if self.across.alone else ""
        return f", of the {ranks} of {count(world, 'rank')} with a trace{of_then}" if world > ranks else ""


@dataclass(frozen=True, kw_only=True)
class WaitingRule(CaptureRule):
    """Waiting for other ranks, in collectives that ran on all ranks at hand."""

    section: ClassVar[str] = "communication"
    part: ClassVar[str] = "waiting"
    when: ClassVar[str] = "while ranks waited for one another"
    #: The rule that reports the waiting if this one does not.
    other: ClassVar[str]
    #: Keys of findings that explain this one.
    because_of: ClassVar[tuple[str, ...]] = ("load-balancing",)

    threshold: float = percent(5.0, "waiting for other ranks, from which it is a finding")
    warning_threshold: float = percent(15.0, "the same, from which it is a warning")
    min_collectives: int = number(50, "collectives to compare, at least", unit="collectives", low=1)

    def counted_ns(self, device: DeviceCapture) -> int:
        """Exposed communication in which the rank waited for others."""
        return device.exposed_waiting_ns or 0

    @abstractmethod
    def counts(self, waiting: Waiting) -> bool:
        """Whether enough waiting is a finding of this rule."""

    @abstractmethod
    def described(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, tuple[Fact, ...]]:
        """The title of the finding, and its evidence."""

    def advice(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """What to do."""
        del waiting, gpus
        return self.documentation().advice

    def check_gpus(self, job: Job, gpus: Sequence[ProfiledGPU]) -> RuleResult:
        """Counts are of ranks."""
        waiting = self._waiting(job.across_ranks, gpus)
        if isinstance(waiting, Reason):
            return self.not_evaluated(waiting)
        across = waiting.across
        found = waiting.percent >= self.threshold and self.counts(waiting)
        late = {waiting.most.rank} if found else set()
        known: dict[str, Any] = {
            "evaluated": len(across.ranks),
            "violating": len(late),
            "counted": "ranks",
            "devices": tuple(
                DeviceStatus.of(f"rank {one.rank}", None, 1, int(one.rank in late))
                for one in most_telling(across.waiting, lambda one: one.caused_ns)
            ),
            "measure": Measure(
                value=round(waiting.percent, 1),
                limits=(self.threshold, self.warning_threshold),
                bad="above",
                scale=max(waiting.percent, 2.5 * self.warning_threshold),
                unit=f"% {PROFILED_TIME}",
                limit_text=f"waiting for other ranks, thresholds {self.threshold:g} and {self.warning_threshold:g}%",
            ),
            "details": {
                f"rank {one.rank}": {
                    "waited_ns": one.suffered_ns,
                    "caused_ns": one.caused_ns,
                    "last": one.last,
                }
                for one in across.waiting
            },
        }
        if not found:
            return self.passed(self.summary(waiting), **known)
        finding = self._finding(waiting, gpus)
        part = f"{waiting.percent:.1f}% {PROFILED_TIME}{waiting.at_hand}"
        return self.triggered(finding, headline=f"{finding.title}: {part}", **known)

    def summary(self, waiting: Waiting) -> str:
        """The result as a fact."""
        part = f"Ranks waited for one another in {waiting.percent:.1f}% {PROFILED_TIME}"
        limit = f"threshold {self.threshold:g}%" if waiting.percent < self.threshold else f"see {self.other}"
        most = f"for rank {waiting.most.rank} in {100 * waiting.share:.1f}% of it"
        return f"{part}, {most}{waiting.at_hand} ({limit})"

    def _finding(self, waiting: Waiting, gpus: Sequence[ProfiledGPU]) -> Finding:
        title, evidence = self.described(waiting, gpus)
        compared = Note(f"{count(waiting.across.matched, 'collective')} compared{waiting.at_hand}")
        return self.finding(
            title,
            *evidence,
            compared,
            *profiled(gpus),
            severity=severity_by(waiting.percent, self.warning_threshold),
            advice=self.advice(waiting, gpus),
            share=waiting.percent / 100,
            share_of=PROFILED_TIME,
            seen_as=title[:1].lower() + title[1:],
            because_of=self.because_of,
        )

    def _waiting(self, across: AcrossRanks | None, gpus: Sequence[ProfiledGPU]) -> Waiting | Reason:
        if across is None:
            ranks = {gpu.rank for gpu in gpus}
            return _NO_COMMUNICATION if len(ranks) > 1 else _WHY_NOT_MATCHED["one_rank"]
        if across.reason == "not_synchronizing" and not across.collectives:
            return _NO_COMMUNICATION
        if across.reason:
            return _WHY_NOT_MATCHED[across.reason]
        if short := too_short(max(gpu.window_ns for gpu in gpus)):
            return short
        if across.matched < self.min_collectives:
            return Reason(
                kind=ReasonKind.TOO_FEW,
                what="collectives on all ranks",
                needed=self.min_collectives,
                have=across.matched,
            )
        all_ns = sum(one.caused_ns for one in across.waiting)
        most = max(across.waiting, key=lambda one: one.caused_ns)
        return Waiting(
            percent=100 * all_ns / max(1, across.window_ns),
            most=most,
            share=most.caused_ns / max(1, all_ns),
            across=across,
        )
