"""What rules on the training itself share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec.structs import replace

from jobrules.model import Reason, ReasonKind
from jobrules.model.learning import Training, time_of_step
from jobrules.rule import Rule
from jobrules.text import count, join_names, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding, FloatArray, IntArray, Job, RuleResult
    from jobrules.model.learning import Learning, Scalars, TensorRecords

#: Reason of a rule on training, if only the machine was recorded.
NO_LEARNING = Reason(kind=ReasonKind.NOT_APPLICABLE, what="nothing of the training itself was recorded")
#: Records of tensors before a rule judges them.
MIN_RECORDS = 10


@dataclass(frozen=True, kw_only=True)
class LearningRule(Rule):
    """A rule on the training itself, judged once a job."""

    #: What must be recorded.
    needs: ClassVar[tuple[Training, ...]] = ()
    section: ClassVar[str] = "learning"
    of_learning: ClassVar[bool] = True
    of_work: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """The judgement, or what it lacks."""
        learning = job.learning
        if learning is None:
            return self.not_evaluated(NO_LEARNING)
        missing = next((need for need in self.needs if need not in learning.has), None)
        if missing:
            return self.not_evaluated(not_recorded(missing))
        # Numbers of a training that went wrong overflow.
        with np.errstate(all="ignore"):
            return self.judge(learning, job)

    @abstractmethod
    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """The result of a training with all that the rule ``needs``."""

    def found(
        self,
        learning: Learning,
        finding: Finding,
        *others: Finding,
        since_step: int | None = None,
        **facts: Any,
    ) -> RuleResult:
        """Result with findings, which tells from which step on the training did not improve the model."""
        details: dict[str, Any] = dict(facts.pop("details", {}))
        if since_step is not None:
            details |= {"since_step": since_step, "since_us": time_of_step(learning, since_step)}
        result = self.triggered(finding, details=details, **facts)
        return replace(result, findings=(finding, *others))


@dataclass(frozen=True, kw_only=True)
class TensorRule(LearningRule):
    """A rule on records of tensors."""

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """The judgement of the records."""
        del job
        if learning.tensors is None:
            return self.not_evaluated(not_recorded(Training.GRADIENT))
        return self.judge_tensors(learning.tensors, learning)

    @abstractmethod
    def judge_tensors(self, records: TensorRecords, learning: Learning) -> RuleResult:
        """The result of a training with such records."""


def at_steps(series: Scalars, step: IntArray) -> FloatArray:
    """The last value at or before each step, or the first one."""
    return series.value[np.maximum(np.searchsorted(series.step, step, side="right") - 1, 0)]


def not_recorded(need: Training) -> Reason:
    """Reason of a rule that lacks it."""
    verb = "was" if need in (Training.LOSS, Training.VALIDATION) else "were"
    return Reason(kind=ReasonKind.NOT_RECORDED, what=need, verb=verb)


def frozen(records: TensorRecords) -> list[str]:
    """Which tensors were not judged as they do not take part in training: a clause, or none."""
    names = tuple(dict.fromkeys(one.name for one in records.tensors if not one.trainable))
    return [f"Frozen, not judged: {named(names)}"] if names else []


def named(names: Sequence[str]) -> str:
    """Names of tensors or modules, the first few of many: `` `a`, `b`, and 3 more``."""
    return join_names([f"`{name.replace('`', '')}`" for name in names])


def fold(times: float) -> str:
    """``340-fold``, ``1.2e+09-fold``."""
    return f"{times:,.0f}-fold" if times < 1e6 else f"{times:.1e}-fold"


def of_matrices(n: int, whole: int) -> str:
    """``8 of 13 weight matrices``."""
    return f"{number(n)} of {count(whole, 'weight matrix', 'weight matrices')}"
