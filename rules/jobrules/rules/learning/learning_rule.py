"""What rules on the training itself share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.model import Reason, ReasonKind
from jobrules.model.learning import Training, time_of_step
from jobrules.rule import Rule
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Finding, Job, RuleResult
    from jobrules.model.learning import Learning, TensorRecords

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
        self, learning: Learning, finding: Finding, *, since_step: int | None = None, **facts: Any
    ) -> RuleResult:
        """Result with a finding, which tells from which step on the training did not improve the model."""
        details: dict[str, Any] = dict(facts.pop("details", {}))
        if since_step is not None:
            details |= {"since_step": since_step, "since_us": time_of_step(learning, since_step)}
        return self.triggered(finding, details=details, **facts)


def not_recorded(need: Training) -> Reason:
    """Reason of a rule that lacks it."""
    verb = "was" if need in (Training.LOSS, Training.VALIDATION) else "were"
    return Reason(kind=ReasonKind.NOT_RECORDED, what=need, verb=verb)


def frozen(records: TensorRecords) -> tuple[str, ...]:
    """Names of the tensors that do not take part in training."""
    return tuple(dict.fromkeys(one.name for one in records.tensors if not one.trainable))


def named(names: Sequence[str]) -> str:
    """Names of tensors or modules, the first few of many: `` `a`, `b`, and 3 more``."""
    return join_names([f"`{name.replace('`', '')}`" for name in names])
